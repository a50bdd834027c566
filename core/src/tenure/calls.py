"""An instance's calls to its backend: answers are checked, and the store's clock is learned from them."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar, get_args

from tenure.clock import Clock
from tenure.errors import BackendError, BackendUnavailable
from tenure.health import Contact, StoreClock
from tenure.model import MAX_SLOT, ActiveRuns, Claim, ClaimResult, Ending, Outcome, RunResult
from tenure.protocol import LeaseBackend

Result = TypeVar("Result")

_OUTCOMES = frozenset(get_args(Outcome))
_numbers = attrgetter("attempt", "fence", "slot", "lease_left_ms", "wait_ms")


@dataclass(frozen=True, slots=True)
class Answer:
    """A claim's answer; ``sent_ms`` is the monotonic time at which the very call that brought it was started."""

    result: ClaimResult
    sent_ms: float


class Calls:
    """The lease backend as runner, watch, recovery and heartbeat call it; what is no answer is a BackendError."""

    def __init__(self, backend: LeaseBackend, clock: Clock, contact: Contact) -> None:
        self._backend = backend
        self._clock = clock
        self._contact = contact
        self.store_clock: StoreClock = contact.store_clock

    async def claim(self, claim: Claim) -> Answer:
        """Send a claim once."""
        sent_ms = self._clock.monotonic_ms()
        result = await self._asked("claim", self._backend.claim(claim))
        if not isinstance(result, ClaimResult) or result.outcome not in _OUTCOMES or not _complete(result):
            raise _no_answer("claim", result)
        self.store_clock.learn(result.now_ms)
        return Answer(result, sent_ms)

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        """Send a heartbeat once."""
        return _held("heartbeat", await self._asked("heartbeat", self._backend.heartbeat(job, slot, token)))

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        """Send a finish once."""
        return _held("finish", await self._asked("finish", self._backend.finish(job, slot, token, status)))

    async def release(self, job: str, slot: int, token: str) -> bool:
        """Send a release once."""
        return _held("release", await self._asked("release", self._backend.release(job, slot, token)))

    async def active(self, jobs: list[str]) -> ActiveRuns:
        """Ask for the unfinished runs once."""
        answer = await self._asked("active", self._backend.active(jobs))
        if not isinstance(answer, ActiveRuns) or not isinstance(answer.runs, Sequence):
            raise _no_answer("active", answer)
        self.store_clock.learn(answer.now_ms)
        return answer

    async def save_result(self, job: str, result: RunResult) -> None:
        """Save a record once."""
        await self._asked("save_result", self._backend.save_result(job, result))

    async def results(self, job: str, limit: int) -> list[RunResult]:
        """Ask for the newest records once."""
        return await self._asked("results", self._backend.results(job, limit=limit))

    def _asked(self, call: str, answer: Awaitable[Result]) -> Awaitable[Result]:
        return self._contact.note(call, asked(answer))


async def asked(call: Awaitable[Result]) -> Result:
    """The answer of a backend's call; BackendUnavailable where its driver cancelled what it waited for.

    Drivers do so when a connection is closed. Taken for a cancellation of ours, it would end a watch without a word.
    """
    try:
        return await call
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise BackendUnavailable("the backend cancelled its own call") from error


def _complete(result: ClaimResult) -> bool:
    """Whether its numbers are numbers, a win names its attempt and fence, and ``overlap`` the run in the way."""
    if type(result.now_ms) is not int:
        return False
    if result.outcome == "won":  # a handler must never run without
        return type(result.fence) is int and type(result.attempt) is int and result.attempt >= 1
    if not all(number is None or type(number) is int for number in _numbers(result)):
        return False
    return result.outcome != "overlap" or (result.slot is not None and 0 <= result.slot <= MAX_SLOT)


def _held(call: str, answer: object) -> bool:
    if not isinstance(answer, bool):
        raise _no_answer(call, answer)
    return answer


def _no_answer(call: str, answer: object) -> BackendError:
    return BackendError(f"the backend answered {call} with {answer!r}, which is no answer of the protocol")
