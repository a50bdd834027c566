"""Looks for an order of calls, each at one instant between call and answer, in which the model answers the same."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tenure import decision
from tenure.decision import EMPTY, JobState, RunState
from tenure.model import ActiveRuns, Claim, ClaimResult, LostAttempt

from tenure_conformance.timing import Uncertain
from tenure_conformance.verdict import Call

FOREVER = float("inf")
BUDGET = 200_000
"""States that the search looks at before it gives up as inconclusive."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A call of a history; one that is not required may have happened or not, at any time after it began."""

    call: Call
    required: bool
    known: bool
    """Whether its answer is known; a call that was cut off has none."""

    @property
    def begin(self) -> float:
        """When it was called."""
        return self.call.begin_ms

    @property
    def end(self) -> float:
        """When it was answered."""
        return self.call.end_ms if self.required and self.call.end_ms is not None else FOREVER

    @property
    def writes(self) -> bool:
        """Whether its answer lets it have changed anything."""
        answer = self.call.answer
        if not self.known:
            return True
        if isinstance(answer, ClaimResult):
            return answer.outcome == "won" or answer.status == "exhausted"
        return answer is True


class Model(Protocol):
    """What the calls are compared with."""

    def start(self) -> Any:
        """The state before any call; states can be hashed."""

    def after(self, state: Any, operation: Operation) -> Iterable[Any]:
        """The states in which the call may have left this one, none if its answer does not fit."""

    def expected(self, state: Any, operation: Operation) -> str:
        """What the call would have been answered in this state."""


@dataclass(slots=True)
class Search:
    """The search for an order, and how far it came."""

    operations: Sequence[Operation]
    model: Model
    budget: int = BUDGET
    best: tuple[int, ...] = ()
    best_state: Any = None

    def found(self) -> bool:
        """Whether there is an order; Uncertain if the budget did not suffice to know."""
        required = sum(1 << n for n, operation in enumerate(self.operations) if operation.required)
        start = self.model.start()
        self.best_state = start
        seen = {(0, start)}
        paths: list[tuple[int, Any, tuple[int, ...], Iterator[tuple[int, Any]]]] = []
        paths.append((0, start, (), self._steps(0, start)))
        while paths:
            done, _, path, steps = paths[-1]
            if done & required == required:
                return True
            step = next(steps, None)
            if step is None:
                paths.pop()
                continue
            number, state = step
            key = (done | 1 << number, state)
            if key in seen:
                continue
            seen.add(key)
            if len(seen) > self.budget:
                raise Uncertain(f"no order was found within {self.budget} states")
            longer = (*path, number)
            if len(longer) > len(self.best):
                self.best, self.best_state = longer, state
            paths.append((key[0], state, longer, self._steps(key[0], state)))
        return False

    def _steps(self, done: int, state: Any) -> Iterator[tuple[int, Any]]:
        """The calls that may come next, each with the state after it, without those that need not be tried."""
        candidates = self.candidates(done)
        for number in candidates:
            operation = self.operations[number]
            if operation.required and not operation.writes:
                for following in self.model.after(state, operation):
                    # It fits and changes nothing, here or later: whatever order there is, it may come first.
                    yield number, following
                    return
        for number in candidates:
            operation = self.operations[number]
            for following in self.model.after(state, operation):
                if operation.required or following != state:  # else leaving it out is as good
                    yield number, following

    def candidates(self, done: int) -> list[int]:
        """The calls that may come next: those that began before the first of the others was answered."""
        left = [n for n in range(len(self.operations)) if not done >> n & 1]
        first_end = min((self.operations[n].end for n in left), default=FOREVER)
        allowed = [n for n in left if self.operations[n].begin <= first_end]
        return sorted(allowed, key=lambda n: (not self.operations[n].required, self.operations[n].end))


@dataclass
class JobModel:
    """``tenure.decision`` for one job, as far as a client that only sees answers can know its clock."""

    granted: Callable[[Claim], Claim]
    slop_ms: int
    """How far the end of a lease may lie from the model's, which does not know when a heartbeat came."""
    clock_ms: int
    fences_told: bool
    """Whether each fence follows from the answers: not where one is a revision, or its win was cut off."""
    observed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Fence and start of each holder that was seen, for wins that were cut off."""

    def start(self) -> JobState:
        """See Model."""
        return EMPTY

    def after(self, state: JobState, operation: Operation) -> Iterable[JobState]:
        """See Model."""
        following, expected = self._apply(state, operation)
        if not operation.known:
            return (following,)
        answer = operation.call.answer
        if isinstance(answer, ClaimResult):
            return self._after_claim(state, following, expected, operation)
        if isinstance(answer, ActiveRuns):
            return (state,) if self._same_runs(expected, answer) else ()
        return (following,) if expected is answer else ()

    def expected(self, state: JobState, operation: Operation) -> str:
        """See Model."""
        return str(self._apply(state, operation)[1])

    def _apply(self, state: JobState, operation: Operation) -> tuple[JobState, Any]:
        call, arguments = operation.call, operation.call.arguments
        if call.name == "claim":
            return self._claim(state, operation)
        if call.name == "active":
            now = call.answer.now_ms if operation.known else self.clock_ms
            return state, decision.active(arguments["jobs"][0], state, now)
        slot, token = arguments["slot"], arguments["token"]
        if call.name == "heartbeat":
            return decision.heartbeat(state, slot, token, self.clock_ms)
        if call.name == "finish":
            return decision.finish(state, slot, token, arguments["status"])
        return decision.release(state, slot, token, self.clock_ms)

    def _claim(self, state: JobState, operation: Operation) -> tuple[JobState, ClaimResult]:
        claim: Claim = operation.call.arguments["claim"]
        if operation.known:
            return decision.claim(state, self.granted(claim), operation.call.answer.now_ms)
        fence, started_at = self.observed.get(claim.instance, (0, self.clock_ms))
        following, answer = decision.claim(state, self.granted(claim), started_at)
        if fence:
            following = _with_fence(following, claim.slot, fence, started_at)
        return replace(following, fence=max(fence, state.fence)), answer

    def _after_claim(
        self, state: JobState, following: JobState, expected: ClaimResult, operation: Operation
    ) -> Iterable[JobState]:
        answer: ClaimResult = operation.call.answer
        if answer.outcome == "won" and expected.outcome == "won" and not self.fences_told:
            if answer.fence is None or answer.attempt != expected.attempt:
                return ()
            repeated = following.fence == state.fence
            if not repeated and answer.fence <= state.fence:
                return ()
            slot = operation.call.arguments["claim"].slot
            following = replace(_with_fence(following, slot, answer.fence, None), fence=max(answer.fence, state.fence))
            expected = replace(expected, fence=answer.fence)
        return (following,) if self._same_answer(expected, answer) else ()

    def _same_answer(self, expected: ClaimResult, answer: ClaimResult) -> bool:
        left_fits = _near(expected.lease_left_ms, answer.lease_left_ms, self.slop_ms)
        previous_fits = self._lost(expected.previous) == self._lost(answer.previous)
        blank: dict[str, Any] = {"lease_left_ms": None, "previous": ()}
        return left_fits and previous_fits and replace(expected, **blank) == replace(answer, **blank)

    def _lost(self, previous: tuple[LostAttempt, ...]) -> list[LostAttempt]:
        """Lost attempts by slot, without what the model cannot know."""
        unknown: dict[str, Any] = {} if self.fences_told else {"fence": 0, "started_at": 0}
        return sorted((replace(lost, ended_at=0, **unknown) for lost in previous), key=lambda lost: lost.slot)

    def _same_runs(self, expected: tuple[Any, ...], answer: ActiveRuns) -> bool:
        unknown = {} if self.fences_told else {"fence": 0, "started_at": 0}
        blank: dict[str, Any] = {"lease_left_ms": 0, **unknown}
        return len(expected) == len(answer.runs) and all(
            replace(one, **blank) == replace(other, **blank)
            and _near(one.lease_left_ms, other.lease_left_ms, self.slop_ms)
            for one, other in zip(expected, answer.runs, strict=True)
        )


def _near(one: int | None, other: int | None, slop_ms: int) -> bool:
    return one == other or (one is not None and other is not None and abs(one - other) <= slop_ms)


def _with_fence(state: JobState, slot: int, fence: int, started_at: int | None) -> JobState:
    def told(run: RunState) -> RunState:
        return replace(run, fence=fence, started_at=run.started_at if started_at is None else started_at)

    runs = tuple(told(run) if run.slot == slot else run for run in state.unfinished)
    return replace(state, unfinished=runs)


def shrunk(operations: Sequence[Operation], model: Model, budget: int = BUDGET // 10) -> list[Operation]:
    """The shortest beginning that has no order, without the calls that changed nothing and are not needed to see it."""

    def fails(some: Sequence[Operation]) -> bool:
        try:
            return not Search(some, model, budget).found()
        except Uncertain:
            return False

    ends = sorted(operation.end for operation in operations if operation.required)
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(_until(operations, ends[middle])) else (middle + 1, high)
    kept = _until(operations, ends[low]) if ends else list(operations)
    if not fails(kept):
        return list(operations)
    for operation in list(kept):
        fewer = [one for one in kept if one is not operation]
        if (not operation.writes or not operation.required) and fails(fewer):
            kept = fewer
    return kept


def _until(operations: Sequence[Operation], moment: float) -> list[Operation]:
    """The history up to a moment: what was not answered by then may have happened or not."""
    return [
        operation if operation.end <= moment else replace(operation, required=False)
        for operation in operations
        if operation.begin <= moment
    ]
