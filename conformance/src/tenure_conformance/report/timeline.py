"""The calls of all clients on one time line, downwards: a lane for each client, then the life of each lease."""

from collections.abc import Mapping, Sequence
from typing import Any

from tenure_conformance.report.layout import BAR, GUTTER, HEAD, ROW, Lane, Scale, lanes_of, scale_of
from tenure_conformance.report.lifetimes import FOREVER, Life, holding, lives
from tenure_conformance.report.markup import Markup, tag
from tenure_conformance.report.wording import Words, duration, slot
from tenure_conformance.verdict import Call

SHOWN = 80
"""Calls that are drawn, the last ones."""
LIVES = 6
"""Leases that are drawn."""
STRIPS = 54.0
"""The width of all of them together."""
NAMED = 16
"""A lane that is as wide as this has its client's name above it."""


def draw(calls: Sequence[Call], claims: Mapping[str, Any], *, mark: str, reason: str = "") -> Markup:
    """The picture with its labels; ``mark`` is what is said beside the call on which the rule was decided."""
    shown = calls[-SHOWN:]
    leases = _chosen(lives(calls, claims), shown)
    scale, lanes, marked = scale_of(shown, leases), lanes_of(shown), _marked(shown, reason)
    picture = _picture(shown, leases, scale, lanes, marked)
    labels = _labels(shown, scale, marked, mark)
    return tag(
        "figure",
        tag("div", picture, labels, class_="timeline", style=f"height:{scale.height:g}px"),
        _caption(leases, lanes, len(calls) - len(shown)),
    )


def _picture(
    calls: Sequence[Call], leases: Sequence[Life], scale: Scale, lanes: Sequence[Lane], marked: frozenset[int]
) -> Markup:
    left = lanes[-1].x + lanes[-1].width + 8
    step = min(18.0, STRIPS / max(len(leases), 1))
    width = left + step * len(leases) + 8
    lane_of = {number: lane for lane in lanes for number in lane.bars}
    return tag(
        "svg",
        tag("title", f"The calls of {len(lanes)} clients on a time line, and the leases between them"),
        *(_band(scale.rows[number], width) for number in sorted(marked)),
        *(_lane(lane, scale.height) for lane in lanes),
        *(_leader(scale.rows[number], lane.bars[number], width) for number, lane in sorted(lane_of.items())),
        *_pauses(scale),
        *(_strip(life, number, left + step * (number - 1), step, scale) for number, life in enumerate(leases, 1)),
        *(_bar(call, number, lane_of[number], scale, number in marked) for number, call in enumerate(calls)),
        class_="picture",
        width=width,
        height=scale.height,
        viewBox=f"0 0 {width:g} {scale.height:g}",
        role="img",
    )


def _marked(calls: Sequence[Call], reason: str) -> frozenset[int]:
    """The calls that do not fit: those that the rule named, else the one that raised what it tells, else the last."""
    named = frozenset(number for number, call in enumerate(calls) if call.suspect)
    ended = sorted((call.end_ms, number) for number, call in enumerate(calls) if call.end_ms is not None)
    raised = [number for _, number in ended if _tells(reason, calls[number].error)]
    answered = [number for _, number in ended if calls[number].error is None]
    return named or frozenset(raised[:1] or answered[-1:] or [number for _, number in ended[-1:]])


def _tells(reason: str, error: str | None) -> bool:
    return error is not None and all(part in reason for part in error.split(": ", 1))


def _chosen(found: Sequence[Life], calls: Sequence[Call]) -> list[Life]:
    """The leases of runs that the drawn calls are about, those of the last calls before others."""
    touched = dict.fromkeys(named[:2] for call in reversed(calls) if (named := holding(call)) is not None)
    by_run = [life for run in touched for life in reversed(found) if life.holding[:2] == run][:LIVES]
    return [life for life in found if life in by_run]


def _band(y: float, width: float) -> Markup:
    return tag("rect", x=0, y=y - 4, width=width, height=ROW - 4, class_="band")


def _lane(lane: Lane, height: float) -> Markup:
    middle = lane.x + lane.width / 2
    name = tag("text", lane.client, x=middle, y=14, class_="client") if lane.width >= NAMED else None
    return tag("g", tag("line", x1=middle, x2=middle, y1=HEAD - 8, y2=height, class_="lane"), name)


def _pauses(scale: Scale) -> list[Markup]:
    """How long nothing happened, where that is longer than it looks."""
    told = []
    for (before, top), (after, bottom) in zip(scale.moments, scale.moments[1:], strict=False):
        y = (top + bottom) / 2 + 4
        if after - before >= 10 and not any(row - 2 < y < row + 22 for row in scale.rows):
            told.append(tag("text", f"+{duration(round(after - before))}", x=GUTTER - 10, y=y, class_="pause"))
    return told


def _strip(life: Life, number: int, x: float, step: float, scale: Scale) -> Markup:
    width = step * 0.68
    parts = []
    for one in life.stretches:
        top = scale.place(one.begin)
        bottom = scale.height if one.end == FOREVER else scale.place(one.end)
        if bottom > top:
            parts.append(tag("rect", x=x, y=top, width=width, height=bottom - top, class_=f"life {one.state}"))
    name = tag("text", f"L{number}" if step > 12 else number, x=x + width / 2, y=14, class_="client")
    return tag("g", tag("title", _life_name(life)), name, *parts)


def _leader(y: float, x: float, width: float) -> Markup:
    """From a call to its label."""
    return tag("line", x1=x, x2=width, y1=y + 5, y2=y + 5, class_="leader")


def _bar(call: Call, number: int, lane: Lane, scale: Scale, marked: bool) -> Markup:
    top, x = scale.rows[number], lane.bars[number]
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
    second = tag(
        "span", tag("strong", mark) if mark else None, ": " if mark and asked else None, asked, class_="line asked"
    )
    return tag("li", first, second, style=f"top:{top - 4:g}px", class_="marked" if mark else None)


def _caption(leases: Sequence[Life], lanes: Sequence[Lane], left_out: int) -> Markup:
    key = [
        tag("span", tag("i", class_=f"key {state}"), f" {words}", class_="legend")
        for state, words in (("alive", "surely alive"), ("uncertain", "uncertain"), ("over", "surely over"))
    ]
    told = [
        *(f"L{number}: {_life_name(life)}. " for number, life in enumerate(leases, 1)),
        "Time goes down, in milliseconds since the rule began, stretched where much happens. ",
        f"Lanes: {', '.join(lane.client for lane in lanes)}. " if lanes[0].width < NAMED else None,
        f"{left_out} earlier calls are not drawn. " if left_out > 0 else None,
    ]
    return tag("figcaption", *(key if leases else ()), tag("p", *told))


def _life_name(life: Life) -> str:
    alive = [one.end for one in life.stretches if one.state == "alive"]
    until = f", surely alive until {duration(round(alive[-1]))}" if alive and not life.ended else ""
    return f"{life.client}'s lease of slot {slot(life.slot)} of {life.job!r}{until}"
