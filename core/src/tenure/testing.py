"""Virtual time for tests: several instances on one in-memory store, an hour of schedule in milliseconds.

::

    with World(start="2026-12-01T12:00:00Z") as world:
        a, b = world.start(scheduler, "a"), world.start(scheduler, "b")
        world.advance("15s")
        a.crash()
        world.advance("1m")
        assert world.results("sync")[0].status == "success"

Nothing waits and no thread is started: each instance has an event loop of its own, and the world runs whichever is due
next. So an instance that crashes or freezes simply is not run any more, as by SIGKILL or SIGSTOP. With the same seed
everything happens the same way again.
"""

import asyncio
import math
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import Context
from datetime import UTC, datetime, timedelta
from random import Random
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, TypeVarTuple, Unpack

from tenure.duration import Duration, to_ms
from tenure.engine import Engine
from tenure.errors import BackendUnavailable, InvalidInput
from tenure.events import Event, Events
from tenure.executor import Executor, SameLoop
from tenure.instance import Instance
from tenure.job import Handler, Job, JobOptions, make_job
from tenure.memory import MemoryBackend, MemoryStore
from tenure.model import ActiveRun, ActiveRuns, Capabilities, Claim, ClaimResult, Ending, RunResult
from tenure.runner import Triggered
from tenure.schedule import Schedule
from tenure.scheduler import Scheduler

Fault = Literal["refused", "silent", "replies lost"]
Result = TypeVar("Result")
_Args = TypeVarTuple("_Args")

_TIMEOUT_S = 5.0
"""After it a call on a silent store fails, as real backends' calls do."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class World:
    """Virtual time, one in-memory store, and the instances that share it.

    ``start`` is an aware datetime or its ISO text. ``latency`` is how long each way to the store and back takes.
    """

    def __init__(
        self,
        start: datetime | str = "2026-01-01T00:00:00Z",
        *,
        seed: int = 0,
        latency: Duration = "0s",
        keep_results: int = 1_000,
    ) -> None:
        began = datetime.fromisoformat(start) if isinstance(start, str) else start
        if began.tzinfo is None:
            raise InvalidInput(f"start: {start!r} has no time zone; write it as in 2026-01-01T00:00:00Z")
        self._start_ms = (began - _EPOCH) // timedelta(milliseconds=1)
        self._store_ahead_ms = 0
        self._rng = Random(seed)
        self._loops: list[_Loop] = []
        self._latency_s = to_ms(latency, "latency") / 1000
        self.elapsed_s = 0.0
        self.instances: list[VirtualInstance] = []
        self.store = MemoryStore(self.store_ms)
        self._backend = MemoryBackend(self.store, keep_results=keep_results)
        _finish(self._backend.__aenter__())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all instances, cancelling what they do."""
        for instance in self.instances:
            instance._discard()  # its maker

    @property
    def now(self) -> datetime:
        """The true time, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.true_ms())

    def true_ms(self) -> int:
        """The true time, in milliseconds since the Unix epoch."""
        return self._start_ms + math.floor(self.elapsed_s * 1000 + 1e-6)

    def store_ms(self) -> int:
        """The store's time."""
        return self.true_ms() + self._store_ahead_ms

    def jump_store_clock(self, by: timedelta) -> None:
        """Set the store's clock forward or back."""
        self._store_ahead_ms += by // timedelta(milliseconds=1)

    def start(
        self, jobs: Scheduler | Iterable[Job], name: str | None = None, *, clock_ahead: timedelta = timedelta()
    ) -> "VirtualInstance":
        """Start an instance with a scheduler's jobs; its wall clock may be wrong from the beginning."""
        all_jobs = jobs.jobs if isinstance(jobs, Scheduler) else tuple(jobs)
        name = name or f"instance-{len(self.instances) + 1}"
        instance = VirtualInstance(self, name, all_jobs, Random(self._rng.random()), clock_ahead)
        self.instances.append(instance)
        instance._begin()
        return instance

    def advance(self, duration: Duration) -> None:
        """Let time pass."""
        self._run_until(self.elapsed_s + to_ms(duration, "duration") / 1000)

    def run_until(self, condition: Callable[[], bool], *, within: Duration = "1h") -> None:
        """Let time pass until the condition holds; AssertionError if it does not in time."""
        end_s = self.elapsed_s + to_ms(within, "within") / 1000
        while not condition():
            loop = self._next(end_s)
            if loop is None:
                raise AssertionError(f"{condition} does not hold within {within}")
            self._step(loop)

    def results(self, job: str, limit: int = 1_000) -> list[RunResult]:
        """The job's records, newest first."""
        return _finish(self._backend.results(job, limit=limit))

    def active(self, *jobs: str) -> tuple[ActiveRun, ...]:
        """The unfinished runs of the jobs."""
        return _finish(self._backend.active(jobs)).runs

    # What instances use

    def _loop(self) -> "_Loop":
        loop = _Loop(self)
        self._loops.append(loop)
        return loop

    def _run_until(self, end_s: float) -> None:
        while loop := self._next(end_s):
            self._step(loop)
        self.elapsed_s = max(self.elapsed_s, end_s)

    def _next(self, end_s: float) -> "_Loop | None":
        """The loop that is due next, if it is by ``end_s``."""
        loop = min((loop for loop in self._loops if not loop.suspended), key=_due, default=None)
        return loop if loop is not None and loop.due_s <= end_s else None

    def _step(self, loop: "_Loop") -> None:
        self.elapsed_s = max(self.elapsed_s, loop.due_s)
        loop.run_until_idle()

    def _finish(self, task: "asyncio.Task[Result]", within_s: float = 3_600) -> Result:
        self.run_until(task.done, within=timedelta(seconds=within_s))
        return task.result()


class VirtualInstance:
    """One instance in virtual time. ``events`` are those it emitted."""

    def __init__(self, world: World, name: str, jobs: Sequence[Job], rng: Random, clock_ahead: timedelta) -> None:
        self.name = name
        self.events: list[Event] = []
        self._world = world
        self._jobs = jobs
        self._loop = world._loop()
        self._clock = _Clock(world, clock_ahead)
        self._link = _Link(world._backend, world._latency_s)
        place = SameLoop()
        instance = Instance(name, self._clock, rng, Events(self._clock, (self.events.append,)))
        self._engine = Engine(self._link, instance, Executor(place, place))

    def add(self, name: str, schedule: Schedule, handler: Handler, **options: Unpack[JobOptions]) -> None:
        """Add a job, as ``scheduler.add`` does."""
        job = make_job(name, schedule, handler, options)
        self._call(lambda: self._engine.add((job,)))

    def replace(self, name: str, schedule: Schedule, handler: Handler, **options: Unpack[JobOptions]) -> None:
        """Replace a job, as ``scheduler.add(replace=True)`` does."""
        job = make_job(name, schedule, handler, options)
        self._call(lambda: self._engine.replace(job))

    def remove(self, name: str) -> None:
        """Remove a job."""
        self._call(lambda: self._engine.remove(name))

    def trigger(self, name: str) -> Triggered:
        """Run a job now; time passes until the claim is decided."""
        return self._await(self._engine.trigger(name))

    def stop(self, grace: Duration = "30s") -> None:
        """Stop gracefully; time passes until it has."""
        self._await(self._stop(to_ms(grace, "grace")))

    def crash(self) -> None:
        """End at once, as by SIGKILL: nothing is released, nothing is told."""
        self._loop.suspended = True

    def freeze(self) -> None:
        """Stand still, as by SIGSTOP or a long pause of the machine."""
        self._loop.suspended = True

    def thaw(self) -> None:
        """Go on where it was frozen."""
        self._loop.suspended = False
        self._loop.wake()

    def cut_off(self, fault: Fault = "refused") -> None:
        """Cut it off from the store: calls are refused, swallowed, or carried out without an answer."""
        self._link.fault = fault

    def reconnect(self) -> None:
        """Let its calls through again."""
        self._link.fault = None

    def jump_clock(self, by: timedelta) -> None:
        """Set its wall clock forward or back."""
        self._clock.ahead += by

    def count(self, kind: str, job: str | None = None) -> int:
        """How many events of a kind it emitted."""
        return sum(event.kind == kind and job in (None, event.job) for event in self.events)

    def _begin(self) -> None:
        self._await(self._engine.start(self._jobs))

    async def _stop(self, grace_ms: float) -> None:
        await self._engine.stop(grace_ms)
        await self._engine.close()

    def _call(self, function: Callable[[], Result]) -> Result:
        async def call() -> Result:
            return function()

        return self._await(call())

    def _await(self, work: Coroutine[Any, Any, Result]) -> Result:
        task = self._loop.create_task(work)
        self._loop.wake()
        return self._world._finish(task)

    def _discard(self) -> None:
        self.cut_off()
        self._loop.discard()


class _Clock:
    def __init__(self, world: World, ahead: timedelta) -> None:
        self._world = world
        self.ahead = ahead

    def wall_ms(self) -> int:
        return self._world.true_ms() + self.ahead // timedelta(milliseconds=1)

    def monotonic_ms(self) -> float:
        return self._world.elapsed_s * 1000


class _Selector(selectors.SelectSelector):
    """Never waits: when its loop would, the loop is stopped, and how long it would have waited is kept."""

    loop: "_Loop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self.loop.idle_for(math.inf if timeout is None else timeout)
        return []


class _Loop(asyncio.SelectorEventLoop):
    """An event loop in the world's time, run until it is idle and then left."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._now_s = world.elapsed_s  # a loop that is not run any more sees no time pass
        self.suspended = False
        self.due_s = world.elapsed_s
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self._now_s

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[_Args]], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.Handle:
        self.wake()
        return self.call_soon(callback, *args, context=context)

    def wake(self) -> None:
        """Something was given to the loop from outside."""
        self.due_s = min(self.due_s, self._world.elapsed_s)

    def idle_for(self, delay_s: float) -> None:
        now_s = self._world.elapsed_s
        self.due_s = max(now_s + delay_s, math.nextafter(now_s, math.inf))
        self.stop()

    def run_until_idle(self) -> None:
        self.due_s = math.inf
        self._now_s = self._world.elapsed_s
        self.run_forever()

    def discard(self) -> None:
        """Cancel everything, let it end, close."""
        for _ in range(3):
            tasks = asyncio.all_tasks(self)
            for task in tasks:
                task.cancel()
            if tasks:
                self.run_forever()
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined] # it refused to be cancelled
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()


class _Link:
    """An instance's way to the store, which takes time and can fail."""

    def __init__(self, backend: MemoryBackend, latency_s: float) -> None:
        self._backend = backend
        self._latency_s = latency_s
        self.fault: Fault | None = None

    @property
    def capabilities(self) -> Capabilities:
        return self._backend.capabilities

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    async def claim(self, claim: Claim) -> ClaimResult:
        return await self._pass(self._backend.claim, claim)

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        return await self._pass(self._backend.heartbeat, job, slot, token)

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        return await self._pass(self._backend.finish, job, slot, token, status)

    async def release(self, job: str, slot: int, token: str) -> bool:
        return await self._pass(self._backend.release, job, slot, token)

    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        return await self._pass(self._backend.active, jobs)

    async def save_result(self, job: str, result: RunResult) -> None:
        await self._pass(self._backend.save_result, job, result)

    async def results(self, job: str, *, limit: int = 20) -> list[RunResult]:
        return await self._pass(lambda: self._backend.results(job, limit=limit))

    async def _pass(self, call: Callable[..., Awaitable[Result]], *args: Any) -> Result:
        if self.fault == "refused":
            raise BackendUnavailable("this instance is cut off from the store")
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        if self.fault == "silent":
            await self._give_up()
        answer = await call(*args)
        if self.fault is not None:
            await self._give_up()
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        return answer

    async def _give_up(self) -> None:
        await asyncio.sleep(_TIMEOUT_S)
        raise BackendUnavailable("the store did not answer in time")


def _due(loop: _Loop) -> float:
    return loop.due_s


def _finish(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    raise AssertionError("the in-memory backend never waits")
