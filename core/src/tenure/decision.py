"""THE state machine: (job state, call, now) -> (job state, answer), pure; docs/protocol.md, sections 3 and 4.

A state that a call does not change is returned as the very same object, so a caller sees by ``is`` whether to write.
"""

from bisect import bisect_left
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, cast

from tenure.model import (
    ATTEMPT_STATUSES,
    EARLY_MS,
    ENDINGS,
    ActiveRun,
    Claim,
    ClaimResult,
    DoneStatus,
    Ending,
    LostAttempt,
    RunResult,
)

RunStatus = Literal["open", "released", "success", "failed", "exhausted", "superseded"]

KEPT_ENDED = {"skip": 16, "allow": 128}
"""Ended runs kept at a win, the newest, by the claim's overlap rule."""
KEPT_UNFINISHED = 1_000
"""Unfinished runs kept at a win; an older one whose lease is over is superseded."""
DEFAULT_KEEP_RESULTS = 100

_slot_of = attrgetter("slot")


@dataclass(frozen=True, slots=True)
class RunState:
    """What the store knows of a run: its last attempt, and whether that is over."""

    slot: int
    attempt: int
    used: int
    """Won attempts less released ones."""
    fence: int
    token: str
    holder: str
    lease_ms: int
    started_at: int
    expires_at: int
    status: RunStatus = "open"
    previous: tuple[LostAttempt, ...] = ()
    """What the win of this attempt was told, for the same token's next claim."""

    def live(self, now: int) -> bool:
        """Its lease is live: neither ended, released nor superseded, and not run out."""
        return self.status == "open" and now < self.expires_at

    def held_by(self, token: str) -> bool:
        """Whether the token holds the run; a lease that ran out and that nobody took still counts."""
        return self.status == "open" and self.token == token

    def renewed(self, lease_ms: int, now: int) -> "RunState":
        """With a lease of that length from now."""
        return self._with(self.used, lease_ms, now + lease_ms, self.status, self.previous)

    def released(self, now: int) -> "RunState":
        """With its lease over and its attempt given back."""
        return self._with(self.used - 1, self.lease_ms, min(self.expires_at, now), "released", self.previous)

    def ended(self, status: RunStatus, previous: tuple[LostAttempt, ...] = ()) -> "RunState":
        """With its last status."""
        return self._with(self.used, self.lease_ms, self.expires_at, status, previous)

    def _with(
        self, used: int, lease_ms: int, expires_at: int, status: RunStatus, previous: tuple[LostAttempt, ...]
    ) -> "RunState":  # dataclasses.replace takes twice as long
        return RunState(
            self.slot,
            self.attempt,
            used,
            self.fence,
            self.token,
            self.holder,
            lease_ms,
            self.started_at,
            expires_at,
            status,
            previous,
        )

    def lost(self) -> LostAttempt:
        """This attempt as its successor is told of it."""
        released = self.status == "released"
        return LostAttempt(self.slot, self.attempt, self.fence, self.holder, self.started_at, self.expires_at, released)


@dataclass(frozen=True, slots=True)
class JobState:
    """What the store knows of a job. Fence and floor are never dropped; both tuples are ordered by slot."""

    fence: int = 0
    floor: int = -1
    """A slot at or below it, without a record, can never start."""
    unfinished: tuple[RunState, ...] = ()
    ended: tuple[RunState, ...] = ()
    """The newest runs that ended or were superseded."""


EMPTY = JobState()


def claim(state: JobState, claim: Claim, now: int) -> tuple[JobState, ClaimResult]:
    """Decide a claim: the rows of section 3, in order."""
    run = _find(state.unfinished, claim.slot)
    if run is None:
        ended = _find(state.ended, claim.slot)
        return _claim_unknown(state, claim, now) if ended is None else (state, _done(ended, now))  # row 1
    if run.live(now):
        if run.token == claim.token:  # row 2, lease live
            return _renew(state, run, claim, now)
        return state, _running(run, now, run.expires_at - now)  # row 3
    return _claim_over(state, run, claim, now)


def _claim_over(state: JobState, run: RunState, claim: Claim, now: int) -> tuple[JobState, ClaimResult]:
    """Rows 2 and 4 to 8: the run is unfinished and its lease is over."""
    overtaken = claim.overlap == "skip" and _newest(state) > run.slot
    in_the_way = _live_other(state, claim, now)
    if run.held_by(claim.token) and not overtaken and in_the_way is None:  # row 2, lease over
        return _renew(state, run, claim, now)
    if overtaken:  # row 4
        return state, ClaimResult(outcome="done", now_ms=now, status="superseded", attempt=run.attempt)
    if run.attempt != claim.after:  # row 5
        return state, _running(run, now, 0)
    if run.used >= claim.max_attempts:  # row 6
        exhausted = run.ended("exhausted", (run.lost(),))
        return _ended(state, exhausted), _done(exhausted, now)
    if in_the_way is not None:  # row 7
        return state, _overlap(in_the_way, run.attempt, now)
    return _win(state, claim, now, run)  # row 8


def _claim_unknown(state: JobState, claim: Claim, now: int) -> tuple[JobState, ClaimResult]:
    """Rows 9 to 14: the store has no record of the run."""
    slot = claim.slot
    if slot <= state.floor or (claim.overlap == "skip" and _newest(state) > slot):  # row 9
        return state, ClaimResult(outcome="done", now_ms=now, status="superseded")
    if claim.mode == "takeover" or claim.after or slot - now > EARLY_MS:  # rows 10 and 11
        return state, ClaimResult(outcome="none", now_ms=now, wait_ms=slot - now if slot > now else None)
    if claim.max_late_ms is not None and now - slot > claim.max_late_ms:  # row 12
        return state, ClaimResult(outcome="late", now_ms=now)
    in_the_way = _live_other(state, claim, now)
    if in_the_way is not None:  # row 13
        return state, _overlap(in_the_way, 0, now)
    return _win(state, claim, now, None)  # row 14


def _win(state: JobState, claim: Claim, now: int, run: RunState | None) -> tuple[JobState, ClaimResult]:
    others, ended = state.unfinished, state.ended
    attempt, used = 1, 1
    lost: tuple[LostAttempt, ...] = ()
    if run is not None:
        others = _without(others, run.slot)
        attempt, used, lost = claim.after + 1, run.used + 1, (run.lost(),)
    for other in _superseded_by(others, claim, now):
        others = _without(others, other.slot)
        ended = _put(ended, other.ended("superseded"))
        lost = (*lost, other.lost())
    won = RunState(
        claim.slot,
        attempt,
        used,
        max(state.fence + 1, now),
        claim.token,
        claim.instance,
        claim.lease_ms,
        now,
        now + claim.lease_ms,
        "open",
        lost,
    )
    floor, ended = _bounded(state.floor, ended, KEPT_ENDED[claim.overlap])
    return JobState(won.fence, floor, _put(others, won), ended), _won(won, now)


def _superseded_by(others: tuple[RunState, ...], claim: Claim, now: int) -> tuple[RunState, ...]:
    """Those of the other unfinished runs that a win of this claim supersedes."""
    if not others:
        return ()
    if claim.overlap == "skip":
        return tuple(run for run in others if run.slot < claim.slot)
    excess = len(others) + 1 - KEPT_UNFINISHED
    return tuple(run for run in others[: max(excess, 0)] if not run.live(now))


def _bounded(floor: int, ended: tuple[RunState, ...], keep: int) -> tuple[int, tuple[RunState, ...]]:
    """The newest ended runs, and the floor raised to the newest one that is dropped."""
    if len(ended) <= keep:
        return floor, ended
    return max(floor, ended[-keep - 1].slot), ended[-keep:]


def heartbeat(state: JobState, slot: int, token: str, now: int) -> tuple[JobState, bool]:
    """Renew the lease of the run that the token holds, also one that ran out and that nobody took."""
    run = _find(state.unfinished, slot)
    if run is None or not run.held_by(token):
        return state, False
    return _renewed(state, run.renewed(run.lease_ms, now)), True


def finish(state: JobState, slot: int, token: str, status: Ending) -> tuple[JobState, bool]:
    """End the run that the token holds; repeated with that token it is True and the first status stays."""
    run = _find(state.unfinished, slot)
    if run is not None and run.held_by(token):
        return _ended(state, run.ended(status)), True
    ended = _find(state.ended, slot)
    return state, ended is not None and ended.token == token and ended.status in ENDINGS


def release(state: JobState, slot: int, token: str, now: int) -> tuple[JobState, bool]:
    """End the lease that the token holds and give its attempt back; repeated with that token it is True."""
    run = _find(state.unfinished, slot)
    if run is None or run.token != token:
        return state, False
    if run.status == "released":
        return state, True
    return _renewed(state, run.released(now)), True


def active(job: str, state: JobState, now: int) -> tuple[ActiveRun, ...]:
    """Every unfinished, not superseded run of the job, by slot."""
    return tuple(
        ActiveRun(
            job,
            run.slot,
            run.attempt,
            run.fence,
            run.holder,
            run.live(now),
            run.expires_at - now if run.live(now) else 0,
            run.started_at,
        )
        for run in state.unfinished
    )


def record(history: tuple[RunResult, ...], result: RunResult, keep: int) -> tuple[RunResult, ...]:
    """The history, newest first by (slot, attempt), with the result in it if it has a place there."""
    key = (result.slot, result.attempt)
    place = 0
    for known in history:
        if (known.slot, known.attempt) == key:
            if not overwrites(result):
                return history
            return (*history[:place], result, *history[place + 1 :])
        if (known.slot, known.attempt) < key:
            break
        place += 1
    return (*history[:place], result, *history[place:])[:keep]


def overwrites(result: RunResult) -> bool:
    """Whether the record replaces one of the same slot and attempt: ``crashed`` and attempt 0 never do."""
    return result.status in ATTEMPT_STATUSES and result.status != "crashed"


def _renew(state: JobState, run: RunState, claim: Claim, now: int) -> tuple[JobState, ClaimResult]:
    renewed = run.renewed(claim.lease_ms, now)
    return _renewed(state, renewed), _won(renewed, now)


def _won(run: RunState, now: int) -> ClaimResult:
    return ClaimResult(
        outcome="won",
        now_ms=now,
        attempt=run.attempt,
        fence=run.fence,
        lease_left_ms=run.expires_at - now,
        previous=run.previous,
    )


def _running(run: RunState, now: int, left_ms: int) -> ClaimResult:
    return ClaimResult(outcome="running", now_ms=now, attempt=run.attempt, holder=run.holder, lease_left_ms=left_ms)


def _overlap(in_the_way: RunState, attempt: int, now: int) -> ClaimResult:
    return ClaimResult(
        outcome="overlap",
        now_ms=now,
        slot=in_the_way.slot,
        holder=in_the_way.holder,
        lease_left_ms=in_the_way.expires_at - now,
        attempt=attempt,
    )


def _done(run: RunState, now: int) -> ClaimResult:
    previous = run.previous if run.status == "exhausted" else ()
    return ClaimResult(
        outcome="done",
        now_ms=now,
        status=cast(DoneStatus, run.status),
        attempt=run.attempt,
        previous=previous,
    )


def _newest(state: JobState) -> int:
    """The newest slot of the job that was ever started: one whose record was dropped is at or below the floor."""
    newest = state.floor
    if state.unfinished:
        newest = max(newest, state.unfinished[-1].slot)
    if state.ended:
        newest = max(newest, state.ended[-1].slot)
    return newest


def _live_other(state: JobState, claim: Claim, now: int) -> RunState | None:
    """The newest other run of the job with a live lease, which is in the way under ``skip``."""
    if claim.overlap == "skip":
        for run in reversed(state.unfinished):
            if run.slot != claim.slot and run.live(now):
                return run
    return None


def _renewed(state: JobState, run: RunState) -> JobState:
    return JobState(state.fence, state.floor, _put(state.unfinished, run), state.ended)


def _ended(state: JobState, run: RunState) -> JobState:
    return JobState(state.fence, state.floor, _without(state.unfinished, run.slot), _put(state.ended, run))


def _find(runs: tuple[RunState, ...], slot: int) -> RunState | None:
    index = bisect_left(runs, slot, key=_slot_of)
    return runs[index] if index < len(runs) and runs[index].slot == slot else None


def _put(runs: tuple[RunState, ...], run: RunState) -> tuple[RunState, ...]:
    """The runs with this one in its place, instead of its former record if there is one."""
    if not runs or runs[-1].slot < run.slot:  # by far the most
        return (*runs, run)
    index = bisect_left(runs, run.slot, key=_slot_of)
    known = index < len(runs) and runs[index].slot == run.slot
    return (*runs[:index], run, *runs[index + known :])


def _without(runs: tuple[RunState, ...], slot: int) -> tuple[RunState, ...]:
    index = bisect_left(runs, slot, key=_slot_of)
    return (*runs[:index], *runs[index + 1 :])
