"""The store: the real decision with states as numbers, time counted from now, and what no rule looks at left out."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from tenure import decision
from tenure.decision import EMPTY, JobState, RunState
from tenure.model import Claim

LEASE = 2
"""Ticks of a lease."""
NEVER = -9
"""Lower than any fence."""
NOBODY = "-"
"""Stands for a token that no instance and no message knows any more."""


Names = tuple[tuple[str, str], ...]


class Request(NamedTuple):
    """A message to the store; ``won`` is what its token won by an earlier copy; the store never sees that."""

    kind: str
    slot: int
    token: str
    after: int = 0
    takeover: bool = False
    overlap: str = "skip"
    won: int = 0


class Reply(NamedTuple):
    """An answer; ``held`` is what heartbeat, finish and release say."""

    outcome: str = ""
    attempt: int = 0
    fence: int = 0
    slot: int = 0
    held: bool = False


class Run(NamedTuple):
    """What a property looks at."""

    slot: int
    attempt: int
    token: str
    live: bool
    released: bool


class Decision:
    """The four calls that write; a rule is broken by overriding one of them."""

    def claim(self, state: JobState, claim: Claim) -> tuple[JobState, decision.ClaimResult]:
        return decision.claim(state, claim, 0)

    def heartbeat(self, state: JobState, slot: int, token: str) -> tuple[JobState, bool]:
        return decision.heartbeat(state, slot, token, 0)

    def finish(self, state: JobState, slot: int, token: str) -> tuple[JobState, bool]:
        return decision.finish(state, slot, token, "success")

    def release(self, state: JobState, slot: int, token: str) -> tuple[JobState, bool]:
        return decision.release(state, slot, token, 0)


@dataclass(frozen=True)
class Answered:
    """The state after a request, its answer, and what that broke."""

    store: int
    reply: Reply
    rise: int = 0
    """How much the newest fence rose; fences are counted from the newest, which is 0."""
    fault: str | None = None


class Store:
    """A state is a number, so that the world's states are small; every decision is taken once and remembered."""

    def __init__(self, decide: Decision, max_attempts: int) -> None:
        self._decide = decide
        self._max_attempts = max_attempts
        self._states: list[JobState] = []
        self._numbers: dict[JobState, int] = {}
        self._runs: list[tuple[Run, ...]] = []
        self._answers: dict[tuple[int, Request], Answered] = {}
        self._ticks: dict[int, int] = {}
        self._renamed: dict[tuple[int, Names], int] = {}
        self.empty = self._number(EMPTY)

    def unfinished(self, store: int) -> tuple[Run, ...]:
        """The runs of ``active``."""
        return self._runs[store]

    def ended_by(self, store: int) -> tuple[str, ...]:
        """The tokens of the last attempts of ended runs."""
        return tuple(run.token for run in self._states[store].ended)

    def answer(self, store: int, request: Request) -> Answered:
        """Let the request arrive."""
        key = (store, request)
        if key not in self._answers:
            self._answers[key] = self._answer(store, request)
        return self._answers[key]

    def tick(self, store: int) -> int:
        """Let a tick pass: what is left of the leases shrinks, since now is always 0."""
        if store not in self._ticks:
            state = self._states[store]
            runs = tuple(replace(run, expires_at=max(run.expires_at - 1, 0)) for run in state.unfinished)
            self._ticks[store] = self._number(replace(state, unfinished=runs))
        return self._ticks[store]

    def renamed(self, store: int, names: Names) -> int:
        """The same state with its tokens renamed; those without a name, which nobody knows any more, become NOBODY."""
        key = (store, names)
        if key not in self._renamed:
            state, new = self._states[store], dict(names)
            unfinished, ended = (
                tuple(replace(run, token=new.get(run.token, NOBODY)) for run in runs)
                for runs in (state.unfinished, state.ended)
            )
            self._renamed[key] = self._number(replace(state, unfinished=unfinished, ended=ended))
        return self._renamed[key]

    def _answer(self, store: int, request: Request) -> Answered:
        state = self._states[store]
        if request.kind == "claim":
            return self._claim(store, request)
        call = getattr(self._decide, request.kind)
        after, held = call(state, request.slot, request.token)
        return Answered(self._number(after), Reply(held=held), fault=self._fault_of_call(state, request, held))

    def _claim(self, store: int, request: Request) -> Answered:
        claim = Claim(
            job="job",
            slot=request.slot,
            token=request.token,
            instance="instance",
            lease_ms=LEASE,
            mode="takeover" if request.takeover else "scheduled",
            overlap=request.overlap,
            max_attempts=self._max_attempts,
            max_late_ms=None,
            after=request.after,
        )
        after, result = self._decide.claim(self._states[store], claim)
        fence = lowered(result.fence, after.fence) if result.fence is not None else 0
        reply = Reply(result.outcome, result.attempt or 0, fence, result.slot or 0)
        return Answered(self._number(after), reply, after.fence, self._fault_of_claim(store, request, reply))

    def _fault_of_claim(self, store: int, request: Request, reply: Reply) -> str | None:
        if reply.outcome != "won":
            return None
        if request.won not in (0, reply.attempt):
            return "one claim wins one attempt"
        if any(run.released and run.token == request.token for run in self._runs[store]):
            return "a released lease does not come back"
        own_live = any(run.live and run.slot == request.slot for run in self._runs[store])
        other_live = any(run.live and run.slot != request.slot for run in self._runs[store])
        if request.overlap == "skip" and other_live and not own_live:
            return "a claim under skip is not won beside another live lease"
        return None

    def _fault_of_call(self, state: JobState, request: Request, held: bool) -> str | None:
        ended = [run for run in state.ended if run.slot == request.slot]
        if request.kind != "finish" or not ended:
            return None
        by_it = ended[0].token == request.token and ended[0].status == "success"
        return None if held == by_it else "the answer to finish says whether this token ended the run"

    def _number(self, state: JobState) -> int:
        state = _plain(state)
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
            self._runs.append(
                tuple(
                    Run(run.slot, run.attempt, run.token, run.live(0), run.status == "released")
                    for run in state.unfinished
                )
            )
        return number


def lowered(fence: int, rise: int) -> int:
    """The fence counted from the new newest one."""
    return max(fence - rise, NEVER + 1)


def _plain(state: JobState) -> JobState:
    """The state without what decides nothing here: who held a lease since when, and what a win was told."""
    return replace(
        state,
        fence=0,
        unfinished=tuple(_plain_run(run, state.fence) for run in state.unfinished),
        ended=tuple(replace(_plain_run(run, 0), attempt=0, used=0, fence=0, expires_at=0) for run in state.ended),
    )


def _plain_run(run: RunState, newest: int) -> RunState:
    return replace(run, fence=lowered(run.fence, newest), holder="", started_at=0, previous=())
