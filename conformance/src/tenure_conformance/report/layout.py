"""Where calls and leases lie in the picture: moments downwards, and a lane for each client beside each other."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenure_conformance.report.lifetimes import FOREVER, Life
from tenure_conformance.verdict import Call

HEAD, ROW, TAIL = 30, 38, 26
"""The lanes' names; the least between two calls, since each has a label; what is drawn after the last one."""
BAR = 9.0
"""The greatest width and the least height of a call's bar."""
SPACIOUS, LONGEST = 4.0, 120.0
"""A pause is drawn as long as the square root of its milliseconds, times the first, at most the second."""
GUTTER = 54
"""Left of the lanes, for the moments."""
TRACK, TRACKS = 26.0, 104.0
"""The greatest width of a track, and that of all together: the labels need the rest of a phone's."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Where moments lie on the page: time only goes down, but is stretched where much happens."""

    rows: tuple[float, ...]
    """Where the calls begin, in their order."""
    moments: tuple[tuple[float, float], ...]
    """Moments with their places, both ascending."""
    height: float

    def place(self, moment: float) -> float:
        """The place of a moment of a call or a lease."""
        return next((place for known, place in self.moments if known >= moment), self.height)


@dataclass(frozen=True, slots=True)
class Lane:
    """A client's place: as many tracks as it had calls under way at once."""

    client: str
    x: float
    width: float
    bar: float
    """The width of a bar."""
    bars: Mapping[int, float]
    """The x of the bar of each of its calls."""


def scale_of(calls: Sequence[Call], leases: Sequence[Life]) -> Scale:
    """The scale that gives each call a row of its own and shows how long nothing happened."""
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


def lanes_of(calls: Sequence[Call]) -> list[Lane]:
    """The clients' lanes, side by side; narrower the more there are."""
    clients = sorted({call.client for call in calls}, key=lambda name: (len(name), name))
    tracks = {client: _tracks([one for one in enumerate(calls) if one[1].client == client]) for client in clients}
    counts = {client: max(tracks[client].values()) + 1 for client in clients}
    step = min(TRACK, TRACKS / sum(counts.values()))
    bar = min(BAR, step * 0.7)
    lanes, x = [], float(GUTTER)
    for client in clients:
        first = x + (step - bar) / 2
        bars = {number: first + step * track for number, track in tracks[client].items()}
        lanes.append(Lane(client, x, step * counts[client], bar, bars))
        x += step * counts[client]
    return lanes


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
    edges -= {call.end_ms for call in calls}
    moved = [(edge, 0, "edge", 0) for edge in edges if first < edge < last]
    return [(moment, kind, number) for moment, _, kind, number in sorted(begins + ends + moved)]


def _tracks(calls: Sequence[tuple[int, Call]]) -> dict[int, int]:
    """The first track that is free for each call of a client."""
    busy_until: list[float] = []
    found = {}
    for number, call in calls:
        free = next((track for track, until in enumerate(busy_until) if until <= call.begin_ms), len(busy_until))
        busy_until[free : free + 1] = [FOREVER if call.end_ms is None else call.end_ms]
        found[number] = free
    return found
