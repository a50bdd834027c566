"""The calls of all clients on one time line, downwards: a lane for each client, then the life of each lease."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenure_conformance.report.lifetimes import FOREVER, Life, holding, lives
from tenure_conformance.report.markup import Markup, tag
from tenure_conformance.report.wording import Words, duration, slot
from tenure_conformance.verdict import Call

SHOWN = 80
"""Calls that are drawn, the last ones."""
LIVES = 6
"""Leases that are drawn."""

HEAD, ROW, TAIL = 30, 38, 26
BAR = 9.0
GUTTER = 56
STRIP, STRIP_ROOM = 12, 18
NAMED_IN_LANE = 4
"""With more clients than that the lanes are too narrow for their names."""
SPACIOUS, LONGEST = 4.0, 120.0
"""A pause is drawn as long as the square root of its milliseconds, times the first, at most the second."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Where moments lie on the page: time only goes down, but is stretched where much happens."""

    rows: tuple[float, ...]
    """Where the calls begin, in their order."""
    moments: tuple[tuple[float, float], ...]
    """Moments with their places, both ascending."""
    height: float

    def place(self, moment: float) -> float:
        """The place of a moment; between two that are known it lies in proportion."""
        before = (float(HEAD), 0.0)
        for known, place in self.moments:
            if known == moment:
                return place
            if known > moment:
                part = (moment - before[1]) / (known - before[1])
                return before[0] + (place - before[0]) * part
            before = place, known
        return self.height


@dataclass(frozen=True, slots=True)
class Lane:
    """A client's place: as many tracks as it had calls under way at once."""

    client: str
    x: float
    width: float
    bar: float
    """The width of a bar."""
    tracks: Mapping[int, float]
    """The x of the bar of each of its calls."""


def draw(calls: Sequence[Call], claims: Mapping[str, Any], *, mark: str) -> Markup:
    """The picture with its labels; ``mark`` is what is said beside the call on which the rule was decided."""
    shown = calls[-SHOWN:]
    marked = _marked(shown)
    leases = _chosen(lives(calls, claims), shown)
    scale = _scale(shown, leases)
    lanes = _lanes(shown)
    left = lanes[-1].x + lanes[-1].width + 8
    width = left + STRIP_ROOM * len(leases) + 10
    picture = tag(
        "svg",
        tag("title", f"The calls of {len(lanes)} clients on a time line, and the leases between them"),
        *(_band(scale.rows[number], width) for number in sorted(marked)),
        *(_lane(lane, scale.height) for lane in lanes),
        *(_leader(scale.rows[number], _lane_of(lanes, number).tracks[number], width) for number in range(len(shown))),
        *_pauses(scale),
        *(_strip(life, number, left + STRIP_ROOM * number, scale) for number, life in enumerate(leases, 1)),
        *(_bar(call, number, _lane_of(lanes, number), scale, number in marked) for number, call in enumerate(shown)),
        class_="picture",
        width=width,
        height=scale.height,
        viewBox=f"0 0 {width:g} {scale.height:g}",
        role="img",
    )
    return tag(
        "figure",
        tag("div", picture, _labels(shown, scale, marked, mark), class_="timeline", style=f"height:{scale.height:g}px"),
        _caption(leases, len(calls) - len(shown)),
    )


def _marked(calls: Sequence[Call]) -> frozenset[int]:
    """The calls that do not fit: those that the rule named, else the one answered last."""
    named = frozenset(number for number, call in enumerate(calls) if call.suspect)
    ended = [number for number, call in enumerate(calls) if call.end_ms is not None]
    return named or frozenset(sorted(ended, key=lambda number: calls[number].end_ms or 0)[-1:])


def _chosen(found: Sequence[Life], calls: Sequence[Call]) -> list[Life]:
    """The leases of runs that the drawn calls are about, those of the last calls before others."""
    touched = dict.fromkeys(named[:2] for call in reversed(calls) if (named := holding(call)) is not None)
    by_run = [life for run in touched for life in reversed(found) if life.holding[:2] == run][:LIVES]
    return [life for life in found if life in by_run]


def _scale(calls: Sequence[Call], leases: Sequence[Life]) -> Scale:
    place, row, now = float(HEAD), -math.inf, calls[0].begin_ms
    rows: dict[int, float] = {}
    moments = []
    for moment, kind, number in _events(calls, leases):
        place += min(SPACIOUS * math.sqrt(moment - now), LONGEST)
        if kind == "begin":
            place = rows[number] = row = max(place, row + ROW)
        elif kind == "end":
            place = max(place, rows[number] + BAR)
        moments.append((moment, place))
        now = moment
    return Scale(tuple(rows.values()), tuple(moments), max(place, row + ROW - TAIL) + TAIL)


def _events(calls: Sequence[Call], leases: Sequence[Life]) -> list[tuple[float, str, int]]:
    """What happened in which order; of what happened at once, what ended before what began."""
    begins = [(call.begin_ms, 1, "begin", number) for number, call in enumerate(calls)]
    ends = [
        (call.end_ms, 0 if call.end_ms > call.begin_ms else 2, "end", number)
        for number, call in enumerate(calls)
        if call.end_ms is not None
    ]
    first, last = calls[0].begin_ms, max(begins + ends)[0]
    edges = {edge for life in leases for one in life.stretches for edge in (one.begin, one.end)}
    moved = [(edge, 0, "edge", 0) for edge in edges if first < edge < last]
    return [(moment, kind, number) for moment, _, kind, number in sorted(begins + ends + moved)]


def _lanes(calls: Sequence[Call]) -> list[Lane]:
    clients = sorted({call.client for call in calls}, key=lambda name: (len(name), name))
    room = 26.0 if len(clients) <= NAMED_IN_LANE else max(9.0, 110 / len(clients))
    lanes, x = [], float(GUTTER)
    for client in clients:
        tracks = _tracks([(number, call) for number, call in enumerate(calls) if call.client == client])
        count = max(tracks.values()) + 1
        bar = min(BAR, room - 3)
        step = bar + 2
        width = max(room, step * count + 2)
        first = x + (width - step * count) / 2 + 1
        lanes.append(Lane(client, x, width, bar, {number: first + step * track for number, track in tracks.items()}))
        x += width
    return lanes


def _tracks(calls: Sequence[tuple[int, Call]]) -> dict[int, int]:
    """The first track that is free for each call of a client."""
    busy_until: list[float] = []
    found = {}
    for number, call in calls:
        free = next((track for track, until in enumerate(busy_until) if until <= call.begin_ms), len(busy_until))
        busy_until[free : free + 1] = [FOREVER if call.end_ms is None else call.end_ms]
        found[number] = free
    return found


def _lane_of(lanes: Sequence[Lane], number: int) -> Lane:
    return next(lane for lane in lanes if number in lane.tracks)


def _band(y: float, width: float) -> Markup:
    return tag("rect", x=0, y=y - 4, width=width, height=ROW - 4, class_="band")


def _lane(lane: Lane, height: float) -> Markup:
    middle = lane.x + lane.width / 2
    name = tag("text", lane.client, x=middle, y=14, class_="client") if lane.width >= 18 else None
    return tag("g", tag("line", x1=middle, x2=middle, y1=HEAD - 8, y2=height, class_="lane"), name)


def _pauses(scale: Scale) -> list[Markup]:
    """How long nothing happened, where that is longer than it looks."""
    told = []
    for (before, top), (after, bottom) in zip(scale.moments, scale.moments[1:], strict=False):
        y = (top + bottom) / 2 + 4
        if after - before >= 10 and not any(row - 2 < y < row + 22 for row in scale.rows):
            told.append(tag("text", f"+{duration(round(after - before))}", x=GUTTER - 10, y=y, class_="pause"))
    return told


def _strip(life: Life, number: int, x: float, scale: Scale) -> Markup:
    left = x - STRIP_ROOM
    parts = []
    for one in life.stretches:
        top = scale.place(one.begin)
        bottom = scale.height if one.end == FOREVER else scale.place(one.end)
        if bottom > top:
            parts.append(tag("rect", x=left, y=top, width=STRIP, height=bottom - top, class_=f"life {one.state}"))
    name = tag("text", f"L{number}", x=left + STRIP / 2, y=14, class_="client")
    return tag("g", tag("title", _life_name(life)), name, *parts)


def _leader(y: float, x: float, width: float) -> Markup:
    """From a call to its label."""
    return tag("line", x1=x, x2=width, y1=y + 5, y2=y + 5, class_="leader")


def _bar(call: Call, number: int, lane: Lane, scale: Scale, marked: bool) -> Markup:
    top, x = scale.rows[number], lane.tracks[number]
    bottom = scale.height if call.end_ms is None else max(scale.place(call.end_ms), top + BAR)
    kind = "marked" if marked else "raised" if call.error else "open" if call.end_ms is None else "told"
    end = "no end" if call.end_ms is None else f"{call.end_ms:.1f} ms"
    return tag(
        "g",
        tag("title", f"{call.client}.{call.name}, {call.begin_ms:.1f} ms to {end}"),
        tag("text", f"{call.begin_ms:.1f}", x=GUTTER - 10, y=top + 9, class_="moment"),
        tag("rect", x=x, y=top, width=lane.bar, height=bottom - top, rx=2, class_=f"call {kind}"),
    )


def _labels(calls: Sequence[Call], scale: Scale, marked: frozenset[int], mark: str) -> Markup:
    words = Words()
    rows = (
        _label(call, scale.rows[number], words, mark if number in marked else "") for number, call in enumerate(calls)
    )
    return tag("ol", *rows, class_="labels")


def _label(call: Call, top: float, words: Words, mark: str) -> Markup:
    asked, answered, details = words.asked(call), words.answered(call), words.details(call)
    first = tag(
        "span",
        tag("b", call.client, class_="by"),
        f" {call.name} ",
        tag("span", "→ ", answered, class_="answer raised" if call.error else "answer"),
        tag("span", f" {details}", class_="details") if details else None,
        class_="line",
    )
    second = tag("span", tag("strong", f"{mark} ") if mark else None, asked, class_="line asked")
    return tag("li", first, second, style=f"top:{top - 4:g}px", class_="marked" if mark else None)


def _caption(leases: Sequence[Life], left_out: int) -> Markup:
    key = [
        tag("span", tag("i", class_=f"key {state}"), f" {words}", class_="legend")
        for state, words in (("alive", "surely alive"), ("uncertain", "uncertain"), ("over", "surely over"))
    ]
    names = [f"L{number}: {_life_name(life)}. " for number, life in enumerate(leases, 1)]
    told = [
        *names,
        "Time goes down, in milliseconds since the rule began, stretched where much happens. ",
        f"{left_out} earlier calls are not drawn. " if left_out > 0 else None,
    ]
    return tag("figcaption", *(key if leases else ()), tag("p", *told))


def _life_name(life: Life) -> str:
    alive = [one.end for one in life.stretches if one.state == "alive"]
    until = f", surely alive until {duration(round(alive[-1]))}" if alive and not life.ended else ""
    return f"{life.client}'s lease of slot {slot(life.slot)} of {life.job!r}{until}"
