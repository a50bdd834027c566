"""Makes a complete lease backend of any store that loads a value with its version and replaces it if unchanged."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from tenure import decision
from tenure.codec import decode_history, decode_state, encode_history, encode_state
from tenure.decision import DEFAULT_KEEP_RESULTS, EMPTY, JobState
from tenure.duration import Duration, to_ms, to_text
from tenure.errors import BackendClosed, BackendError, BackendUnavailable
from tenure.model import (
    ActiveRuns,
    Capabilities,
    Claim,
    ClaimResult,
    Ending,
    RunResult,
    check_ending,
    check_lease,
    check_limit,
    check_name,
    check_run,
    round_lease,
)
from tenure.protocol import Entered

Answer = TypeVar("Answer")
Change = Callable[[bytes | None, int], tuple[bytes | None, Answer]]
"""(value, the store's clock) -> (value, answer); a value that stays is given back as the very same object."""

_LEAST = Capabilities()


class Key(NamedTuple):
    """Where a value is kept. Two keys that differ in anything are two values: compared exactly, never joined."""

    namespace: str
    job: str
    kind: str
    """``state`` or ``history``."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the store holds under some keys, as of ``now_ms``."""

    now_ms: int
    """The store's clock, in milliseconds since the Unix epoch."""
    values: Sequence[tuple[bytes | None, Any]]
    """(value, version) of each key, in the order asked; the value is None where there is none."""


class CasStore(Entered, Protocol):
    """What is asked of a store: two methods, and entering and leaving (see Entered).

    Any exception is taken as "could not be asked now" (BackendUnavailable, with the cause) unless it is a BackendError
    itself. A call may be cancelled at any await, when its caller gives up or its time is over; the next call must get
    its own answer all the same. The driver's own retries should be off: a value sent twice, late, is refused by its
    version, but only then. Its ``str`` names the store in logs, as a URL without secrets.
    """

    async def load(self, keys: Sequence[Key]) -> Loaded:
        """The values under the keys, each with its version, and the store's clock.

        What a finished ``replace`` has stored must be seen (no replica that lags). Value and version of one key belong
        together; different keys may be of different moments. The clock is the store's own, the same for all clients.
        Read it in the same step as the values, or else before them: an error then only delays a takeover.

        A version is handed back to ``replace`` and is nothing else; a number that each write raises, the store's own
        etag, or the value itself all serve. Where there is no value it is whatever ``replace`` takes for "none yet".
        """

    async def replace(self, key: Key, value: bytes, version: Any) -> bool:
        """Store the value if the key's version is still this one, in one atomic step; True if it was stored.

        False means only "something else is there now", also when there was none and is one now; a failure is
        raised. Of several calls with the same version at most one gets True. The value is UTF-8 JSON: a state of at
        most a few KiB under ``skip`` and some 300 KiB under ``allow``; a history of ``keep_results`` records, whose
        error texts are at most 64 KiB each. Values are kept for ever: nothing may expire or be evicted.
        """


class CasBackend:
    """A lease backend on a CasStore; every rule is decided by ``tenure.decision``, as in the in-memory backend.

    ``capabilities`` is what the store can promise. Every call ends within ``timeout``. A value that others keep
    changing is tried again after growing, random pauses, for as long as that.
    """

    def __init__(
        self,
        store: CasStore,
        *,
        namespace: str = "tenure",
        keep_results: int = DEFAULT_KEEP_RESULTS,
        timeout: Duration = "5s",
        capabilities: Capabilities = _LEAST,
    ) -> None:
        check_name(namespace, "namespace")
        check_limit(keep_results)
        self.capabilities = capabilities
        self._store = store
        self._namespace = namespace
        self._keep_results = keep_results
        self._timeout_ms = to_ms(timeout, "timeout", minimum_ms=1)
        self._entered = 0
        self._gate = asyncio.Lock()

    def __str__(self) -> str:
        return f"{self._store} (namespace {self._namespace})"

    async def __aenter__(self) -> Self:
        """See Entered; the store is entered with the first and left with the last of several."""
        await self._in_time(self._enter())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """See Entered."""
        await self._in_time(self._leave(exc_type, exc, traceback))

    async def claim(self, claim: Claim) -> ClaimResult:
        """See LeaseBackend."""
        check_lease(claim.lease_ms, self.capabilities)
        granted = replace(claim, lease_ms=round_lease(claim.lease_ms, self.capabilities))
        return await self._decide(claim.job, lambda state, now: decision.claim(state, granted, now))

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        return await self._decide(job, lambda state, now: decision.heartbeat(state, slot, token, now))

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        check_ending(status)
        return await self._decide(job, lambda state, _: decision.finish(state, slot, token, status))

    async def release(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        return await self._decide(job, lambda state, now: decision.release(state, slot, token, now))

    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        """See LeaseBackend."""
        names = sorted(set(jobs))
        loaded = await self._call(self._load([self._key(job, "state") for job in names]))
        now = loaded.now_ms
        states = zip(names, loaded.values, strict=True)
        return ActiveRuns(
            now, tuple([run for job, (value, _) in states for run in decision.active(job, _state(value), now)])
        )

    async def save_result(self, job: str, result: RunResult) -> None:
        """See LeaseBackend."""
        key = self._key(job, "history")

        def record(value: bytes | None, _: int) -> tuple[bytes | None, None]:
            history = _history(value)
            recorded = decision.record(history, result, self._keep_results)
            return (value if recorded is history else encode_history(recorded)), None

        await self._call(self._change(key, record))

    async def results(self, job: str, *, limit: int = 20) -> list[RunResult]:
        """See LeaseBackend."""
        check_limit(limit)
        loaded = await self._call(self._load([self._key(job, "history")]))
        return list(_history(loaded.values[0][0])[:limit])

    async def _enter(self) -> None:
        async with self._gate:
            if not self._entered:
                await self._store.__aenter__()
            if _given_up():
                await self._store.__aexit__(None, None, None)
            else:
                self._entered += 1

    async def _leave(self, *exc_info: Any) -> None:
        async with self._gate:
            self._entered -= 1
            if not self._entered:
                await self._store.__aexit__(*exc_info)

    def _key(self, job: str, kind: str) -> Key:
        check_name(job, "job")
        return Key(self._namespace, job, kind)

    async def _decide(self, job: str, decide: Callable[[JobState, int], tuple[JobState, Answer]]) -> Answer:
        def change(value: bytes | None, now: int) -> tuple[bytes | None, Answer]:
            known = _state(value)
            state, answer = decide(known, now)
            return (value if state is known else encode_state(state)), answer

        return await self._call(self._change(self._key(job, "state"), change))

    async def _load(self, keys: Sequence[Key]) -> Loaded:
        return await self._store.load(keys)

    async def _change(self, key: Key, change: Change[Answer]) -> Answer:
        """Load, change, replace; again from the start if the value was replaced in between."""
        pause_s = 0.002
        while True:
            loaded = await self._store.load((key,))
            value, version = loaded.values[0]
            changed, answer = change(value, loaded.now_ms)
            if changed is None or changed is value or await self._store.replace(key, changed, version):
                return answer
            await asyncio.sleep(random.uniform(0, pause_s))
            pause_s = min(pause_s * 2, 0.1)

    async def _call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        if not self._entered:
            work.close()
            raise BackendClosed("the backend is not entered; use it inside `async with`")
        return await self._in_time(work)

    async def _in_time(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """The answer within the timeout, also of a store that does not end when it is cancelled."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task,), timeout=self._timeout_ms / 1_000)
        finally:
            task.add_done_callback(_forget)
            task.cancel()
        if not task.done():
            raise BackendUnavailable(f"the store did not answer within {to_text(self._timeout_ms)}")
        return _answer_of(task)


def _answer_of(task: "asyncio.Future[Answer]") -> Answer:
    if task.cancelled():
        raise BackendUnavailable("the store cancelled its own call")
    error = task.exception()
    if error is None or isinstance(error, BackendError):
        return task.result()
    if not isinstance(error, Exception):
        raise error
    raise BackendUnavailable(f"the store failed: {type(error).__name__}: {error}") from error


def _forget(task: "asyncio.Future[Any]") -> None:
    """Take the outcome of a call nobody waits for any more, so that asyncio does not complain of it."""
    if not task.cancelled():
        task.exception()


def _given_up() -> bool:
    """Whether who waited for this task is gone: a store may finish entering although it was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _state(value: bytes | None) -> JobState:
    return EMPTY if value is None else decode_state(value)


def _history(value: bytes | None) -> tuple[RunResult, ...]:
    return () if value is None else decode_history(value)
