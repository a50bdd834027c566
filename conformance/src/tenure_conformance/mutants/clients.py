"""Clients of a correct store that are not: caches, retries, cancellation, entering and leaving, hints, types."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from tenure.decision import EMPTY
from tenure.errors import BackendClosed, BackendUnavailable
from tenure.memory import MemoryBackend
from tenure.model import ActiveRuns, Claim, ClaimResult, Ending, RunResult, new_token

from tenure_conformance.mutants.reference import broken, stores

# What a client remembers although only the store knows


@broken(
    "token-known-to-its-object",
    "Only the object that won a run can renew, finish and release it.",
    "calls-guarded backend-level errors-repeat",
    seen="locks that keep their owner in a field",
)
class _TokenKnownToItsObject(MemoryBackend):
    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace=namespace)
        self.mine: set[str] = set()

    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        self.mine.add(claim.token)
        return answer

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        return await super().heartbeat(job, slot, token) and token in self.mine

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        return token in self.mine and await super().finish(job, slot, token, status)

    async def release(self, job: str, slot: int, token: str) -> bool:
        return token in self.mine and await super().release(job, slot, token)


@broken(
    "won-remembered",
    "An object that won a run answers its token's heartbeats from memory.",
    "heartbeat-refused calls-guarded",
    seen="ShedLock's cache of known locks, langgraph#8796",
)
class _WonRemembered(MemoryBackend):
    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace=namespace)
        self.mine: set[str] = set()

    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        if answer.outcome == "won":
            self.mine.add(claim.token)
        return answer

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        return await super().heartbeat(job, slot, token) or token in self.mine


@broken(
    "active-remembered",
    "An object answers `active` from memory until it writes itself.",
    "active-fresh",
    seen="a read-through cache",
)
class _ActiveRemembered(MemoryBackend):
    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace=namespace)
        self.known: dict[tuple[str, ...], ActiveRuns] = {}

    async def claim(self, claim: Claim) -> ClaimResult:
        self.known.clear()
        return await super().claim(claim)

    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        asked = tuple(jobs)
        if asked not in self.known:
            self.known[asked] = await super().active(jobs)
        return self.known[asked]


@broken(
    "results-remembered",
    "An object that saved a record sees the job's history as it was then.",
    "results-overwrite bounds-history",
)
class _ResultsRemembered(MemoryBackend):
    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace=namespace)
        self.known: dict[str, list[RunResult]] = {}

    async def results(self, job: str, *, limit: int = 20) -> list[RunResult]:
        fresh = await super().results(job, limit=limit)
        if len(fresh) < limit:
            return self.known.setdefault(job, fresh)
        return fresh


# Errors, retries and cancelled calls


def _count(backend: MemoryBackend) -> int:
    """How often this was asked in the backend's namespace."""
    counts: Counter[str] = vars(backend.store).setdefault("counts", Counter())
    counts[backend._namespace] += 1
    return counts[backend._namespace]


@broken(
    "error-is-running",
    "Now and then a claim fails, and its sender is told that the run is running.",
    "errors-never-outcome claim-row-14",
    seen="except Exception: return False",
)
class _ErrorIsRunning(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        if _count(self) % 7 == 0:
            now = self.store.now_ms()
            return ClaimResult(outcome="running", now_ms=now, attempt=1, holder="unknown", lease_left_ms=0)
        return await super().claim(claim)


@broken(
    "error-is-false",
    "Now and then a heartbeat fails, and its sender is told that it lost the run.",
    "errors-never-outcome heartbeat-holds",
    seen="marm-memory#128",
)
class _ErrorIsFalse(MemoryBackend):
    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        return _count(self) % 7 != 0 and await super().heartbeat(job, slot, token)


@broken(
    "outcome-is-an-error",
    "A finish that is refused raises.",
    "errors-never-outcome finish-refused",
    seen="NotOwnerError",
)
class _OutcomeIsAnError(MemoryBackend):
    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        if not await super().finish(job, slot, token, status):
            raise BackendUnavailable("the run is not held by this token")
        return True


@broken(
    "busy-is-an-error",
    "A call that meets another one of the same job raises.",
    "errors-never-outcome claim-atomic enter-prepares",
    seen="database is locked",
)
class _BusyIsAnError(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        busy: set[Any] = vars(self.store).setdefault("busy", set())
        key = self._key(claim.job)
        if key in busy:
            raise BackendUnavailable("the job is locked")
        busy.add(key)
        try:
            await asyncio.sleep(0)
            return await super().claim(claim)
        finally:
            busy.discard(key)


@broken(
    "retry-with-a-fresh-token",
    "A claim whose reply is lost is sent again with another token.",
    "errors-repeat claim-row-2",
    seen="sim#6864",
)
class _RetryWithAFreshToken(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        if _count(self) % 5 == 0:
            await super().claim(claim)
            return await super().claim(replace(claim, token=new_token()))
        return await super().claim(claim)


@broken(
    "asks-again-by-itself",
    "A claim that does not know the run's attempt is sent again with it.",
    "claim-row-5 claim-after errors-late-message",
)
class _AsksAgainByItself(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        if answer.outcome == "running" and answer.lease_left_ms == 0 and answer.attempt:
            return await super().claim(replace(claim, after=answer.attempt))
        return answer


@broken(
    "answer-of-the-cancelled",
    "After a cancelled call the next one reads the cancelled one's answer.",
    "errors-cancel",
    seen="redis-py#2624, #2665",
)
class _AnswerOfTheCancelled(MemoryBackend):
    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace=namespace)
        self.wire: deque[Any] = deque()

    async def _over_the_wire(self, call: Coroutine[Any, Any, Any]) -> Any:
        self.wire.append(await call)
        await asyncio.sleep(0)
        return self.wire.popleft()

    async def claim(self, claim: Claim) -> Any:
        return await self._over_the_wire(super().claim(claim))

    async def heartbeat(self, job: str, slot: int, token: str) -> Any:
        return await self._over_the_wire(super().heartbeat(job, slot, token))

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> Any:
        return await self._over_the_wire(super().finish(job, slot, token, status))

    async def release(self, job: str, slot: int, token: str) -> Any:
        return await self._over_the_wire(super().release(job, slot, token))

    async def active(self, jobs: Sequence[str]) -> Any:
        return await self._over_the_wire(super().active(jobs))

    async def results(self, job: str, *, limit: int = 20) -> Any:
        return await self._over_the_wire(super().results(job, limit=limit))

    async def save_result(self, job: str, result: RunResult) -> Any:
        return await self._over_the_wire(super().save_result(job, result))


@broken(
    "answers-out-of-order",
    "Calls of one object at the same time get each other's answers.",
    "errors-cancel calls-guarded claim-atomic",
)
class _AnswersOutOfOrder(MemoryBackend):
    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace=namespace)
        self.wire: list[Any] = []

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        self.wire.append(await super().heartbeat(job, slot, token))
        await asyncio.sleep(0)
        return bool(self.wire.pop())


@broken(
    "connection-lost-by-cancelling",
    "A cancelled call leaves a dead connection to the next one.",
    "errors-cancel",
    seen="sqlalchemy#13381",
)
class _ConnectionLostByCancelling(MemoryBackend):
    dead = False

    async def _on_it(self, call: Coroutine[Any, Any, Any]) -> Any:
        if self.dead:
            self.dead = False
            call.close()
            raise BackendUnavailable("the connection is closed")
        try:
            await asyncio.sleep(0)
            return await call
        except asyncio.CancelledError:
            self.dead = True
            call.close()
            raise

    async def claim(self, claim: Claim) -> Any:
        return await self._on_it(super().claim(claim))

    async def heartbeat(self, job: str, slot: int, token: str) -> Any:
        return await self._on_it(super().heartbeat(job, slot, token))

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> Any:
        return await self._on_it(super().finish(job, slot, token, status))

    async def release(self, job: str, slot: int, token: str) -> Any:
        return await self._on_it(super().release(job, slot, token))

    async def active(self, jobs: Sequence[str]) -> Any:
        return await self._on_it(super().active(jobs))


@broken(
    "pool-leak",
    "Each cancelled claim keeps its place in the pool, until there is none left.",
    "errors-cancel",
    seen="sqlalchemy#13381",
)
class _PoolLeak(MemoryBackend):
    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace=namespace)
        self.free = 8

    async def claim(self, claim: Claim) -> ClaimResult:
        for _ in range(50):
            if self.free:
                break
            await asyncio.sleep(0.001)
        else:
            raise BackendUnavailable("no connection became free")
        self.free -= 1
        await asyncio.sleep(0)
        answer = await super().claim(claim)
        self.free += 1
        return answer


@broken(
    "cancelling-one-cancels-all",
    "A cancelled call takes with it those that share its connection.",
    "errors-cancel",
)
class _CancellingOneCancelsAll(MemoryBackend):
    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace=namespace)
        self.batch: asyncio.Task[None] | None = None

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        if self.batch is None or self.batch.done():
            self.batch = asyncio.create_task(asyncio.sleep(0.0001))
        await self.batch
        return await super().heartbeat(job, slot, token)


@broken(
    "cancelled-takeover-counts-twice",
    "A claim that is cancelled is sent a second time with another token, to be rid of it.",
    "errors-cancel errors-late-message",
)
class _CancelledTakeoverCountsTwice(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            await super().release(claim.job, claim.slot, claim.token)
            raise
        return answer


@broken(
    "cancelled-finish-is-lost", "A finish that is cancelled and repeated is refused.", "errors-cancel errors-repeat"
)
class _CancelledFinishIsLost(MemoryBackend):
    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        lost: set[str] = vars(self.store).setdefault("lost", set())
        held = await super().finish(job, slot, token, status) and token not in lost
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            lost.add(token)
            raise
        return held


@broken(
    "cancelled-entering-locks",
    "Entering that is cancelled leaves its lock on the store.",
    "errors-cancel enter-prepares",
)
class _CancelledEnteringLocks(MemoryBackend):
    async def __aenter__(self) -> Any:
        locks: set[str] = vars(self.store).setdefault("locks", set())
        if self._namespace in locks:
            raise BackendUnavailable("the schema is locked")
        locks.add(self._namespace)
        if "-new" in self._namespace:
            await asyncio.sleep(0)
        locks.discard(self._namespace)
        return await super().__aenter__()


# Records that nobody asked for


@broken(
    "takeover-writes-a-record", "A takeover records the lost attempt as crashed by itself.", "previous-own claim-row-8"
)
class _TakeoverWritesARecord(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        for lost in answer.previous:
            times = (lost.started_at, lost.ended_at)
            await self.save_result(
                claim.job, RunResult(lost.slot, lost.attempt, lost.fence, "crashed", lost.holder, *times)
            )
        return answer


@broken("exhaustion-writes-a-record", "Exhausting a run writes a record of it.", "claim-row-6 previous-exhausted")
class _ExhaustionWritesARecord(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        if answer.status == "exhausted":
            await self.save_result(claim.job, RunResult(claim.slot, 0, 0, "exhausted", "store", None, None))
        return answer


# Entering and leaving


@broken("entering-empties", "Entering begins with an empty store.", "enter-prepares namespace-only")
class _EnteringEmpties(MemoryBackend):
    async def __aenter__(self) -> Any:
        for key in [key for key in self.store.states if key[0] == self._namespace]:
            del self.store.states[key]
        return await super().__aenter__()


@broken(
    "entering-releases",
    "Entering releases what was held: the process must have crashed.",
    "enter-prepares namespace-only",
    seen="a cleanup at start",
)
class _EnteringReleases(MemoryBackend):
    async def __aenter__(self) -> Any:
        now = self.store.now_ms()
        for key, state in self.store.states.items():
            if key[0] == self._namespace:
                freed = tuple(run.released(now) if run.status == "open" else run for run in state.unfinished)
                self.store.states[key] = replace(state, unfinished=freed)
        return await super().__aenter__()


@broken("entering-forgets-history", "Entering removes the records of earlier times.", "enter-prepares bounds-history")
class _EnteringForgetsHistory(MemoryBackend):
    async def __aenter__(self) -> Any:
        for key in [key for key in self.store.histories if key[0] == self._namespace]:
            del self.store.histories[key]
        return await super().__aenter__()


@broken(
    "entering-at-once-fails",
    "Of two objects that enter a fresh namespace at the same time one fails.",
    "enter-prepares enter-concurrent",
    seen="svix-webhooks#2633, rustango#1458, drt#1104",
)
class _EnteringAtOnceFails(MemoryBackend):
    async def __aenter__(self) -> Any:
        created: Counter[str] = vars(self.store).setdefault("created", Counter())
        found = created[self._namespace]
        await asyncio.sleep(0)
        if not found and created[self._namespace]:
            raise BackendUnavailable("table tenure_jobs exists already")
        created[self._namespace] += 1
        return await super().__aenter__()


@broken("leaving-empties", "Who leaves removes what the namespace holds.", "namespace-only errors-closed")
class _LeavingEmpties(MemoryBackend):
    async def __aexit__(self, *exc_info: Any) -> None:
        await super().__aexit__(*exc_info)
        for key in [key for key in self.store.states if key[0] == self._namespace]:
            del self.store.states[key]


@broken("leaving-releases", "Who leaves releases everything that it won.", "namespace-only errors-closed")
class _LeavingReleases(MemoryBackend):
    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace=namespace)
        self.mine: list[Claim] = []

    async def claim(self, claim: Claim) -> ClaimResult:
        self.mine.append(claim)
        return await super().claim(claim)

    async def __aexit__(self, *exc_info: Any) -> None:
        for claim in self.mine:
            await self.release(claim.job, claim.slot, claim.token)
        await super().__aexit__(*exc_info)


@broken(
    "leaving-closes-others", "Who leaves closes the connection that all objects share.", "namespace-only errors-closed"
)
class _LeavingClosesOthers(MemoryBackend):
    async def __aenter__(self) -> Any:
        vars(self.store).setdefault("closed", set()).discard(self._namespace)
        return await super().__aenter__()

    async def __aexit__(self, *exc_info: Any) -> None:
        await super().__aexit__(*exc_info)
        vars(self.store)["closed"].add(self._namespace)

    def _check_entered(self) -> None:
        super()._check_entered()
        if self._namespace in vars(self.store)["closed"]:
            raise BackendClosed("the connection is closed")


stores(
    "works-when-left",
    "Calls work before entering and after leaving.",
    "errors-closed",
    ("        if not self._entered:\n", "        if self._entered < -9:\n"),
)
stores(
    "active-works-when-left",
    "`active` of no jobs works before entering and after leaving.",
    "errors-closed",
    ('        """See LeaseBackend."""\n        self._check_entered()\n', '        """See LeaseBackend."""\n'),
)
stores(
    "closed-is-runtime-error",
    "A call after leaving raises RuntimeError.",
    "errors-closed",
    ("raise BackendClosed(", "raise RuntimeError("),
    seen="Event loop is closed",
)


@broken(
    "leaving-cuts-calls-off",
    "Leaving makes calls on their way raise what the driver raises.",
    "errors-closed errors-deadline enter-prepares",
)
class _LeavingCutsCallsOff(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        self._check_entered()
        await asyncio.sleep(0)
        if not self._entered:
            raise RuntimeError("the connection was closed while a call was waiting")
        return await super().claim(claim)


@broken("entering-leaks-tasks", "Each entering starts a task that nobody ends.", "enter-prepares")
class _EnteringLeaksTasks(MemoryBackend):
    async def __aenter__(self) -> Any:
        vars(self.store).setdefault("leaked", []).append(asyncio.create_task(asyncio.sleep(60)))
        return await super().__aenter__()


class _OfOneLoop(MemoryBackend):
    loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Any:
        self.loop = asyncio.get_running_loop()
        return await super().__aenter__()


@broken(
    "another-loop-is-runtime-error",
    "A call from another event loop raises RuntimeError.",
    "enter-loop",
    seen="redis.asyncio, AsyncMongoClient",
)
class _AnotherLoopIsRuntimeError(_OfOneLoop):
    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        if asyncio.get_running_loop() is not self.loop:
            raise RuntimeError("got Future attached to a different loop")
        return await super().active(jobs)


@broken("another-loop-takes-over", "A call from another event loop closes the connection of the first.", "enter-loop")
class _AnotherLoopTakesOver(_OfOneLoop):
    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        self.loop = asyncio.get_running_loop()
        return await super().active(jobs)

    async def claim(self, claim: Claim) -> ClaimResult:
        if asyncio.get_running_loop() is not self.loop:
            raise BackendUnavailable("the connection was closed from another loop")
        return await super().claim(claim)


# What a backend says and is


@broken("is-no-lease-backend", "A method of the level is missing.", "backend-level")
class _IsNoLeaseBackend(MemoryBackend):
    results = None  # type: ignore[assignment]  # the defect


@broken("hints-missing", "The level `hints` is declared, and there is no `changes`.", "hint-what backend-level")
class _HintsMissing(MemoryBackend):
    changes = None  # type: ignore[assignment]  # the defect


@broken(
    "answers-are-numbers",
    "`heartbeat`, `finish` and `release` answer 1 and 0.",
    "heartbeat-holds finish-holds release-holds calls-guarded",
    seen="the reply of a script",
)
class _AnswersAreNumbers(MemoryBackend):
    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        return int(await super().heartbeat(job, slot, token))  # type: ignore[return-value]  # the defect

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        return int(await super().finish(job, slot, token, status))  # type: ignore[return-value]  # the defect

    async def release(self, job: str, slot: int, token: str) -> bool:
        return int(await super().release(job, slot, token))  # type: ignore[return-value]  # the defect


@broken(
    "attempt-is-text",
    "`attempt` is told as a text.",
    "result-won result-running word-attempt",
    seen="a hash whose values are strings",
)
class _AttemptIsText(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        return replace(answer, attempt=answer.attempt and str(answer.attempt))  # type: ignore[arg-type]  # the defect


@broken("now-is-a-float", "`now_ms` has a fraction.", "result-now claim-now")
class _NowIsAFloat(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        return replace(answer, now_ms=float(answer.now_ms))  # type: ignore[arg-type]  # the defect


@broken(
    "fields-of-other-outcomes",
    "Answers carry fields of other outcomes.",
    "result-won result-running result-late result-done",
)
class _FieldsOfOtherOutcomes(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        return replace(await super().claim(claim), slot=claim.slot)


@broken("late-tells-an-attempt", "`late` and `none` carry an attempt 0.", "result-late result-none")
class _LateTellsAnAttempt(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        return replace(answer, attempt=0) if answer.outcome in ("late", "none") else answer


@broken("loser-told-a-fence", "`running` carries the holder's fence.", "result-running result-won word-fence")
class _LoserToldAFence(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        if answer.outcome != "running":
            return answer
        return replace(answer, fence=self.store.states.get(self._key(claim.job), EMPTY).fence)


# Hints


class _Hinting(MemoryBackend):
    """Changes what a listener is told."""

    def hinted(self, job: str, jobs: Sequence[str]) -> Any:
        return job

    async def changes(self, jobs: Sequence[str]) -> AsyncIterator[str]:
        hints = super().changes(jobs)
        try:
            async for job in hints:
                if (told := self.hinted(job, jobs)) is not None:
                    yield told
        finally:
            await hints.aclose()  # type: ignore[attr-defined]  # it is a generator


stores(
    "hints-never",
    "No hint ever comes.",
    "hint-what hint-fast",
    ("        self.store.hint(self._key(job))\n", ""),
)
stores(
    "hints-of-other-namespaces",
    "A release in another namespace is hinted too.",
    "namespace-only",
    (
        "            if key in wanted:\n                loop.call_soon_threadsafe(queue.put_nowait, wanted[key])\n",
        "            named = {name: job for (_, name), job in wanted.items()}\n"
        "            if key[1] in named:\n"
        "                loop.call_soon_threadsafe(queue.put_nowait, named[key[1]])\n",
    ),
)
stores(
    "hints-by-prefix",
    "A release of a job with a like name is hinted too.",
    "hint-what names-exact",
    (
        "            if key in wanted:\n                loop.call_soon_threadsafe(queue.put_nowait, wanted[key])\n",
        "            if key[1].startswith(tuple(job for _, job in wanted)):\n"
        "                loop.call_soon_threadsafe(queue.put_nowait, key[1])\n",
    ),
    seen="PSUBSCRIBE job*",
)
stores(
    "hints-to-one-listener",
    "A release is hinted to one of the listeners.",
    "hint-what",
    (
        "        for listener in tuple(self.listeners):\n",
        "        for listener in sorted(self.listeners, key=id)[:1]:\n",
    ),
    seen="a queue instead of a topic",
)
stores(
    "hints-stop-after-one",
    "After the first hint of a job no other comes.",
    "hint-what hint-never-trusted",
    (
        "                loop.call_soon_threadsafe(queue.put_nowait, wanted[key])\n",
        "                loop.call_soon_threadsafe(queue.put_nowait, wanted.pop(key))\n",
    ),
    seen="a watch that fires once",
)
stores(
    "hints-end",
    "The hints end by themselves.",
    "hint-what",
    ("            while True:\n                yield await queue.get()\n", "            yield await queue.get()\n"),
)


@broken("hints-are-bytes", "Hints are bytes.", "hint-what")
class _HintsAreBytes(_Hinting):
    def hinted(self, job: str, jobs: Sequence[str]) -> Any:
        return job.encode()


@broken("hints-of-the-wrong-job", "A hint names the first of the jobs asked for.", "hint-what names-exact")
class _HintsOfTheWrongJob(_Hinting):
    def hinted(self, job: str, jobs: Sequence[str]) -> Any:
        return next(iter(jobs))


@broken(
    "listening-blocks",
    "While an object listens, its own calls fail.",
    "hint-never-trusted",
    seen="a connection in subscriber mode",
)
class _ListeningBlocks(MemoryBackend):
    listening = 0

    async def changes(self, jobs: Sequence[str]) -> AsyncIterator[str]:
        self.listening += 1
        try:
            async for job in super().changes(jobs):
                yield job
        finally:
            self.listening -= 1

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        if self.listening:
            raise BackendUnavailable("the connection is in subscriber mode")
        return await super().heartbeat(job, slot, token)
