"""The timeline: the store and the instances above, the jobs' attempts below, time from left to right."""

from collections.abc import Iterator

from tenure_conformance.report.markup import Markup, join, tag

from .checker import Judgement
from .evidence import NEVER, Life, Span
from .plan import POSITIONS
from .story import Attempt, Story

SECOND = 42.0
"""Pixels."""
TOP, LANE, GAP = 26, 22, 12
BAR = 6.0
_LEAST = 2.0
_TRACKS = 4
"""Attempts of one job that are drawn beside each other."""
_STATUSES = ("success", "failed", "interrupted", "crashed")


class Drawing:
    """One picture."""

    def __init__(self, judgement: Judgement) -> None:
        self._story: Story = judgement.story
        self._judgement = judgement
        evidence = self._story.evidence
        self._begin = evidence.begin - 2_000
        self._end = max([evidence.end, *(life.end for life in evidence.lives if life.end < NEVER)]) + 500
        self._jobs = sorted({job for job, _ in self._story.runs})
        positions = [who for who in POSITIONS if any(life.instance.startswith(who) for life in evidence.lives)]
        names = ["faults", "store", *positions, *self._jobs]
        heights = {name: LANE if name not in self._jobs else BAR * _TRACKS + 4 for name in names}
        self._lanes: dict[str, float] = {}
        place = float(TOP)
        for name in names:
            place += GAP if name in (positions[:1] + self._jobs[:1]) else 0
            self._lanes[name] = place
            place += heights[name] + 4
        self._height = place + 8
        self._width = self._x(self._end) + 20

    def draw(self) -> Markup:
        """The names, which stay, beside the picture, which scrolls."""
        names = (
            tag("text", name, x=8, y=y + (15 if name not in self._jobs else BAR * _TRACKS / 2 + 5))
            for name, y in self._lanes.items()
        )
        left = tag("svg", *names, class_="names", width=84, height=self._height)
        picture = tag(
            "svg", *self._grid(), *self._parts(), width=self._width, height=self._height, role="img", class_="picture"
        )
        return tag("div", left, tag("div", picture, class_="scroll", tabindex="0"), class_="timeline")

    def _parts(self) -> Iterator[Markup]:
        evidence = self._story.evidence
        for fault in evidence.faults:
            yield self._bar(fault.span, self._lanes["faults"] + 12, 8, "lossy", f"{fault.kind}, {fault.who}")
            x = self._x(fault.span.begin)
            yield tag(
                "text", f"{fault.kind} {fault.who if len(fault.who) == 1 else ''}", x=x, y=self._lanes["faults"] + 9
            )
        yield self._bar(Span(self._begin, self._end), self._lanes["store"] + 4, 14, "up", "the store")
        for span in evidence.away:
            yield self._bar(span, self._lanes["store"] + 4, 14, "away", "the store does not answer, or slowly")
        for span in evidence.stalls:
            yield self._bar(span, self._lanes["store"] + 19, 3, "stall", "the machine stalled")
        for life in evidence.lives:
            yield from self._life(life)
        for job in self._jobs:
            yield from self._job(job)
        for number, violation in enumerate(self._judgement.violations):
            x = self._x(violation.at)
            yield tag("line", x1=x, x2=x, y1=TOP, y2=self._height, class_="violation", id=f"v{number}")

    def _grid(self) -> Iterator[Markup]:
        for second in range(int((self._end - self._story.evidence.begin) / 1000) + 1):
            x = self._x(self._story.evidence.begin + second * 1000)
            yield tag("line", x1=x, x2=x, y1=TOP - 6, y2=self._height, class_="grid")
            if second % 5 == 0:
                yield tag("text", f"{second} s", x=x + 3, y=14)

    def _life(self, life: Life) -> Iterator[Markup]:
        y, end = self._lanes[life.instance[0]] + 4, min(life.end, self._end)
        ready = min(life.ready, end)
        clock = f", its clock {life.clock_ahead_ms / 3_600_000:+.0f} h" if life.clock_ahead_ms else ""
        yield self._bar(Span(life.spawned, ready), y, 14, "starting", f"{life.instance} starts")
        yield self._bar(Span(ready, end), y, 14, "up", f"{life.instance}, version {life.version}{clock}")
        if life.stopping < end:
            yield self._bar(Span(life.stopping, end), y, 14, "stopping", f"{life.instance} stops")
        for harm in life.harms:
            yield self._bar(harm.span, y, 14, harm.kind, f"{life.instance} is {harm.kind}")
        if life.how == "killed":
            x = self._x(end)
            yield tag("line", x1=x, x2=x, y1=y - 3, y2=y + 17, class_="killed")
        name = f"{life.instance}{' ' + clock[-4:] if clock else ''} v{life.version}"
        yield tag("text", name, x=self._x(ready) + 3, y=y + 11, class_="label")

    def _job(self, job: str) -> Iterator[Markup]:
        free = [0.0] * _TRACKS
        attempts = [one for one in self._story.attempts.values() if one.job == job and one.at < NEVER]
        for attempt in sorted(attempts, key=lambda one: one.at):
            span = self._story.executes(attempt) or Span(attempt.at, attempt.at)
            span = Span(attempt.at, min(max(span.end, attempt.at), self._end))
            track = min(
                range(_TRACKS), key=lambda one: (free[one] > span.begin, one if free[one] <= span.begin else free[one])
            )
            free[track] = span.end
            yield from self._attempt(attempt, span, self._lanes[job] + track * BAR)

    def _attempt(self, attempt: Attempt, span: Span, y: float) -> Iterator[Markup]:
        status = attempt.record.status if attempt.record else "other"
        told = f", told {attempt.told.more.get('reason')}" if attempt.told else ""
        due = (self._story.monotonic(attempt.slot) - self._story.evidence.begin) / 1000
        title = f"{attempt.job}, due at {due:.3f} s: {attempt}, {status}{told}"
        yield self._bar(span, y, BAR - 1.5, status if status in _STATUSES else "other", title)
        if attempt.number > 1:
            yield tag("circle", cx=self._x(span.begin), cy=y + 2, r=3.2, class_="takeover")
        if attempt.told is not None and span.begin <= attempt.told.at <= span.end:
            x = self._x(attempt.told.at)
            yield tag("line", x1=x, x2=x, y1=y - 1, y2=y + BAR, class_="told")
        for line in attempt.lines:
            if not line.accepted:
                yield tag("circle", cx=self._x(line.at), cy=y + 2, r=2.2, class_="refused-write")

    def _bar(self, span: Span, y: float, height: float, kind: str, title: str) -> Markup:
        x = self._x(span.begin)
        width = max(self._x(span.end) - x, _LEAST)
        return tag("rect", tag("title", title), x=x, y=y, width=width, height=height, rx=1, class_=kind)

    def _x(self, at: float) -> float:
        return round((min(max(at, self._begin), self._end) - self._begin) / 1000 * SECOND, 1) + 4


def key() -> Markup:
    """What the colours mean."""
    told = {
        "up": "up, answering",
        "starting": "starts or stops",
        "frozen": "frozen",
        "cut": "cut off",
        "lossy": "slow or lossy",
        "away": "store away",
        "success": "success",
        "failed": "failed",
        "interrupted": "interrupted",
        "crashed": "crashed",
        "other": "no record",
    }
    kinds = (tag("span", tag("i", style=f"background:var(--{kind})"), words) for kind, words in told.items())
    signs = "red stroke: SIGKILL · ring: takeover · black stroke: told to stop · red dot: a write that was refused"
    return tag("p", join(*kinds), tag("span", signs), class_="key")
