"""Every situation a claim can meet, and which row of the protocol's table answers it: stated anew, without decision."""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from tenure import decision
from tenure.decision import EMPTY, JobState, RunState
from tenure.model import EARLY_MS, Claim, Ending, Mode, Overlap

from tenure_conformance.bench import SLOT
from tenure_conformance.timing import LONG_MS

RunKind = Literal["unknown", "live", "lapsed", "released", "success", "failed", "exhausted", "superseded"]
OtherKind = Literal["none", "live", "lapsed", "released", "ended"]
RUN_KINDS: tuple[RunKind, ...] = (
    "unknown",
    "live",
    "lapsed",
    "released",
    "success",
    "failed",
    "exhausted",
    "superseded",
)
DRAWN: tuple[RunKind, ...] = (*RUN_KINDS, *("unknown",) * 8, *("lapsed", "released") * 2)
"""Kinds as often as they are drawn: of what has most rows, more."""
OTHER_KINDS: tuple[OtherKind, ...] = ("none", "live", "lapsed", "released", "ended")
MODES: tuple[Mode, ...] = ("scheduled", "catch-up", "manual", "takeover")
OVERLAPS: tuple[Overlap, ...] = ("skip", "allow")
NEWER_DRAWN: tuple[OtherKind, ...] = (*OTHER_KINDS, *("none",) * 4)
SHORT_MS = -1
"""In a plan: the bench's lease that is only waited for to lapse."""
HOUR_MS = 3_600_000
OLDER, RUN, NEWER = SLOT, SLOT + 1_000, SLOT + 2_000


@dataclass(frozen=True, slots=True)
class Situation:
    """What the store knows of a run and of an older and a newer one, and a claim on it."""

    run: RunKind
    older: OtherKind
    newer: OtherKind
    overlap: Overlap
    mode: Mode
    token: str
    """Whose token the claim carries: ``fresh``, ``last`` (of the last attempt) or ``first`` (of the one before it)."""
    attempts: int
    given_back: bool
    """Whether the first of two attempts was released; else its lease ran out."""
    after: int
    max_attempts: int
    max_late_ms: int | None
    due: bool

    def claim(self, now: int) -> Claim:
        """The claim; a slot that is not due is an hour ahead of the store's clock."""
        slot = RUN if self.due else now + HOUR_MS
        return Claim(
            job="job",
            slot=slot,
            token=self.token,
            instance="claimant",
            lease_ms=LONG_MS + 7,
            mode=self.mode,
            overlap=self.overlap,
            max_attempts=self.max_attempts,
            max_late_ms=self.max_late_ms,
            after=self.after,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """A call that brings a situation about."""

    call: Literal["claim", "finish", "release"]
    slot: int
    token: str
    lease_ms: int = LONG_MS
    overlap: Overlap = "allow"
    after: int = 0
    max_attempts: int = 9
    status: Ending = "success"

    def claim(self, job: str, short_ms: int) -> Claim:
        """The step as a claim."""
        return Claim(
            job=job,
            slot=self.slot,
            token=self.token,
            instance=f"holder {self.token}",
            lease_ms=short_ms if self.lease_ms == SHORT_MS else self.lease_ms,
            mode="scheduled",
            overlap=self.overlap,
            max_attempts=self.max_attempts,
            max_late_ms=None,
            after=self.after,
        )


def plan(situation: Situation) -> tuple[list[Step], list[Step], list[Step]]:
    """The steps that bring it about, in three parts; short leases lapse between the parts."""
    first: list[Step] = []
    second: list[Step] = []
    third: list[Step] = []
    if situation.run != "unknown":
        last = situation.attempts - 1
        if situation.attempts == 2:
            first.append(Step("claim", RUN, "first", LONG_MS if situation.given_back else SHORT_MS))
            if situation.given_back:
                first.append(Step("release", RUN, "first"))
        short = situation.run in ("lapsed", "exhausted")
        second.append(Step("claim", RUN, "last", SHORT_MS if short else LONG_MS, after=last))
        second += _endings(situation.run)
        if situation.run == "exhausted":
            third.append(Step("claim", RUN, "too many", after=situation.attempts, max_attempts=1))
    second += _other(situation.older, OLDER) + _other(situation.newer, NEWER)
    return first, second, third


def _endings(run: RunKind) -> list[Step]:
    if run in ("success", "failed"):
        return [Step("finish", RUN, "last", status="success" if run == "success" else "failed")]
    if run == "released":
        return [Step("release", RUN, "last")]
    if run == "superseded":
        by = Step("claim", RUN + 500, "superseder", overlap="skip")
        return [Step("release", RUN, "last"), by, Step("finish", RUN + 500, "superseder")]
    return []


def _other(kind: OtherKind, slot: int) -> list[Step]:
    if kind == "none":
        return []
    token = f"other-{slot}"
    won = Step("claim", slot, token, SHORT_MS if kind == "lapsed" else LONG_MS)
    ends = {"released": [Step("release", slot, token)], "ended": [Step("finish", slot, token)]}
    return [won, *ends.get(kind, [])]


def simulate(situation: Situation) -> tuple[JobState, int]:
    """The model's state in the situation, and the moment."""
    state, now = EMPTY, SLOT + 60_000
    for part in plan(situation):
        for step in part:
            state = _step(state, step, now)
            now += 1
        now += 1_000
    return state, now


def _step(state: JobState, step: Step, now: int) -> JobState:
    if step.call == "claim":
        return decision.claim(state, step.claim("job", short_ms=10), now)[0]
    if step.call == "finish":
        return decision.finish(state, step.slot, step.token, step.status)[0]
    return decision.release(state, step.slot, step.token, now)[0]


def _random_situations(chance: random.Random) -> Iterator[Situation]:
    """Situations of each kind of run, neighbours and overlap rule, the rest at random."""
    for run, older, newer, overlap in itertools.product(DRAWN, OTHER_KINDS, NEWER_DRAWN, OVERLAPS):
        unknown = run == "unknown"
        due = not unknown or newer != "none" or chance.random() < 0.6
        attempts = 0 if unknown else chance.choice((1, 2))
        yield Situation(
            run=run,
            older=older,
            newer=newer,
            overlap=overlap,
            mode=chance.choice(MODES),
            token=chance.choice(("fresh", "last", "first")),
            attempts=attempts,
            given_back=chance.random() < 0.5,
            after=attempts if chance.random() < 0.6 else chance.randrange(4),
            max_attempts=chance.choice((1, 2, 3)),
            max_late_ms=chance.choice((None, 0, 100 * 365 * 24 * HOUR_MS)),
            due=due,
        )


@cache
def by_row(seed: int) -> dict[int, list[Situation]]:
    """Situations of each row, those first in which rows that come later would fit as well, each such pair in turn."""
    chance = random.Random(seed)
    found: dict[int, dict[tuple[int, ...], list[Situation]]] = {row: {} for row in ROWS}
    for _ in range(4):
        for situation in _random_situations(chance):
            state, now = simulate(situation)
            fitting = fitting_rows(state, situation.claim(now), now)
            found[fitting[0]].setdefault(fitting, []).append(situation)
    return {
        row: [one for turn in itertools.zip_longest(*kinds.values()) for one in turn if one is not None]
        for row, kinds in found.items()
    }


def varied(situations: list[Situation], count: int) -> list[Situation]:
    """So many of them, rare kinds of run and neighbours first."""
    kinds = Counter((one.run, one.older, one.newer) for one in situations)
    first = situations[: count // 2]
    rest = sorted(situations[count // 2 :], key=lambda one: kinds[one.run, one.older, one.newer])
    return [*first, *rest[: count - len(first)]]


def fitting_rows(state: JobState, claim: Claim, now: int) -> tuple[int, ...]:
    """All rows whose condition holds, of those that speak of such a run: the first is the answer."""
    known = _known(state, claim, now) or _ended(state, claim, now)
    return tuple(row for row, fits in ROWS.items() if (row <= 8) == known and fits(state, claim, now))


Row = Callable[[JobState, Claim, int], bool]


def _run(state: JobState, claim: Claim) -> RunState | None:
    return next((run for run in state.unfinished if run.slot == claim.slot), None)


def _ended(state: JobState, claim: Claim, _now: int) -> bool:
    return any(run.slot == claim.slot for run in state.ended)


def _known(state: JobState, claim: Claim, _now: int) -> bool:
    return _run(state, claim) is not None


def _live(state: JobState, claim: Claim, now: int) -> bool:
    run = _run(state, claim)
    return run is not None and run.status == "open" and now < run.expires_at


def _over(state: JobState, claim: Claim, now: int) -> bool:
    return _known(state, claim, now) and not _live(state, claim, now)


def _newer_started(state: JobState, claim: Claim, _now: int) -> bool:
    slots = [state.floor, *(run.slot for run in (*state.unfinished, *state.ended))]
    return claim.overlap == "skip" and max(slots) > claim.slot


def _in_the_way(state: JobState, claim: Claim, now: int) -> bool:
    return claim.overlap == "skip" and any(
        run.slot != claim.slot and run.status == "open" and now < run.expires_at for run in state.unfinished
    )


def _holds(state: JobState, claim: Claim, now: int) -> bool:
    run = _run(state, claim)
    if run is None or run.status != "open" or run.token != claim.token:
        return False
    return _live(state, claim, now) or not (_newer_started(state, claim, now) or _in_the_way(state, claim, now))


def _used_up(state: JobState, claim: Claim, now: int) -> bool:
    run = _run(state, claim)
    return _over(state, claim, now) and run is not None and run.used >= claim.max_attempts


def _not_after(state: JobState, claim: Claim, now: int) -> bool:
    run = _run(state, claim)
    return _over(state, claim, now) and run is not None and run.attempt != claim.after


ROWS: dict[int, Row] = {
    1: _ended,
    2: _holds,
    3: _live,
    4: lambda state, claim, now: _over(state, claim, now) and _newer_started(state, claim, now),
    5: _not_after,
    6: _used_up,
    7: lambda state, claim, now: _over(state, claim, now) and _in_the_way(state, claim, now),
    8: _over,
    9: lambda state, claim, now: claim.slot <= state.floor or _newer_started(state, claim, now),
    10: lambda _state, claim, _now: claim.mode == "takeover" or claim.after != 0,
    11: lambda _state, claim, now: claim.slot - now > EARLY_MS,
    12: lambda _state, claim, now: claim.max_late_ms is not None and now - claim.slot > claim.max_late_ms,
    13: _in_the_way,
    14: lambda _state, _claim, _now: True,
}
OUTCOMES = {
    1: "done",
    2: "won",
    3: "running",
    4: "done",
    5: "running",
    6: "done",
    7: "overlap",
    8: "won",
    9: "done",
    10: "none",
    11: "none",
    12: "late",
    13: "overlap",
    14: "won",
}
