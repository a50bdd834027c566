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
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import Context
from datetime import UTC, datetime, timedelta
from random import Random
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, TypeVarTuple, Unpack, get_args

from tenure.duration import Duration, to_ms
from tenure.engine import Engine
from tenure.errors import BackendUnavailable, DuplicateJob, InvalidInput, SchedulerStateError, UnknownJob
from tenure.events import KINDS, Event, Events, Listener
from tenure.executor import Executor, SameLoop
from tenure.instance import Instance
from tenure.job import Handler, Job, JobOptions, make_job
from tenure.memory import MemoryBackend, MemoryStore
from tenure.model import ActiveRun, ActiveRuns, Capabilities, Claim, ClaimResult, Ending, RunResult, Triggered
from tenure.protocol import Backend
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
    ``hints``: the store tells of released runs, as Redis and Postgres do; without, backups find them when they poll.
    """

    def __init__(
        self,
        start: datetime | str = "2026-01-01T00:00:00Z",
        *,
        seed: int = 0,
        latency: Duration = "0s",
        hints: bool = False,
        keep_results: int = 1_000,
    ) -> None:
        _refuse_running_loop()
        began = datetime.fromisoformat(start) if isinstance(start, str) else start
        if began.tzinfo is None:
            raise InvalidInput(f"start: {start!r} has no time zone; write it as in 2026-01-01T00:00:00Z")
        self.start_ms: int = (began - _EPOCH) // timedelta(milliseconds=1)
        self._store_ahead_ms = 0
        self._rng = Random(seed)
        self._loops: list[_Loop] = []
        self._latency_s = to_ms(latency, "latency") / 1000
        self._link_type = _HintingLink if hints else _Link
        self.elapsed_s: float = 0.0
        self.instances: list[VirtualInstance] = []
        self.events: list[Event] = []
        """What all instances emitted, in order."""
        self.store: MemoryStore = MemoryStore(self.store_ms)
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
        return self.start_ms + math.floor(self.elapsed_s * 1000 + 1e-6)

    def store_ms(self) -> int:
        """The store's time."""
        return self.true_ms() + self._store_ahead_ms

    def jump_store_clock(self, by: timedelta) -> None:
        """Set the store's clock forward or back."""
        self._store_ahead_ms += by // timedelta(milliseconds=1)

    def start(
        self,
        jobs: Scheduler | Iterable[Job],
        name: str | None = None,
        *,
        clock_ahead: timedelta = timedelta(),
        backend: Backend | None = None,
    ) -> "VirtualInstance":
        """Start an instance with a scheduler's jobs; its wall clock may be wrong from the beginning.

        The scheduler itself stays as it is; its listeners are told, its backend is not touched. A ``backend`` of your
        own is used instead of the world's store: it must wait by ``asyncio.sleep`` alone.
        """
        all_jobs, listeners = (jobs.jobs, jobs._listeners) if isinstance(jobs, Scheduler) else (tuple(jobs), ())
        name = name or f"instance-{len(self.instances) + 1}"
        instance = VirtualInstance(self, name, Random(self._rng.random()), clock_ahead, listeners, backend)
        self.instances.append(instance)
        instance._start(all_jobs)
        return instance

    def advance(self, duration: Duration) -> None:
        """Let time pass."""
        self._run_until(self.elapsed_s + to_ms(duration, "duration") / 1000)

    def run_until(self, condition: Callable[[], object], *, within: Duration = "1h", what: str = "") -> None:
        """Let time pass until the condition holds; AssertionError, which says ``what``, if it does not in time."""
        end_s = self.elapsed_s + to_ms(within, "within") / 1000
        while not condition():
            loop = self._next(end_s)
            if loop is None:
                raise AssertionError(f"{what or repr(condition)} did not come true within {within}; it is {self.now}")
            self._step(loop)

    def results(self, job: str, limit: int = 1_000) -> list[RunResult]:
        """The job's records, newest first; UnknownJob for one that no instance ever had."""
        self._check_known(job)
        return _finish(self._backend.results(job, limit=limit))

    def active(self, *jobs: str) -> tuple[ActiveRun, ...]:
        """The unfinished runs of the jobs; UnknownJob for one that no instance ever had."""
        for job in jobs:
            self._check_known(job)
        return _finish(self._backend.active(jobs)).runs

    # What instances use

    def _check_known(self, job: str) -> None:
        names = {name for instance in self.instances for name in instance._ever}
        if job not in names:
            raise UnknownJob(f"there was never a job {job!r} in this world; there are {sorted(names)}")

    def _run_until(self, end_s: float) -> None:
        while loop := self._next(end_s):
            self._step(loop)
        self.elapsed_s = max(self.elapsed_s, end_s)

    def _next(self, end_s: float) -> "_Loop | None":
        """The loop that is due next, if it is by ``end_s``."""
        loop = min(self._loops, key=_due, default=None)
        return loop if loop is not None and loop.due_s <= end_s else None

    def _step(self, loop: "_Loop") -> None:
        self.elapsed_s = max(self.elapsed_s, loop.due_s)
        loop.run_until_idle()


class VirtualInstance:
    """One instance in virtual time. ``events`` are those it emitted."""

    def __init__(
        self,
        world: World,
        name: str,
        rng: Random,
        clock_ahead: timedelta,
        listeners: tuple[Listener, ...],
        backend: Backend | None,
    ) -> None:
        self.name = name
        self.events: list[Event] = []
        self._world = world
        self._names: set[str] = set()
        self._ever: set[str] = set()
        self._loop = _Loop(world)
        self._clock = _Clock(world, clock_ahead)
        self._link = world._link_type(world._backend, world._latency_s)
        self._own_backend = backend is not None
        self._stopping: asyncio.Task[None] | None = None
        self._crashed = False
        place = SameLoop()
        events = Events(self._clock, (self.events.append, world.events.append, *listeners))
        self._emitter = _Emitter(events)
        instance = Instance(name, self._clock, rng, self._emitter)
        self._engine = Engine(backend or self._link, instance, Executor(place, place))
        self._run()

    def add(self, name: str, schedule: Schedule, handler: Handler, **options: Unpack[JobOptions]) -> None:
        """Add a job, as ``scheduler.add`` does; DuplicateJob if there is one of that name."""
        if name in self._names:
            raise DuplicateJob(f"there is a job {name!r} already in {self.name}; use replace")
        job = make_job(name, schedule, handler, options)
        self._call(lambda: self._engine.add((job,)))
        self._names.add(name)
        self._ever.add(name)

    def replace(self, name: str, schedule: Schedule, handler: Handler, **options: Unpack[JobOptions]) -> None:
        """Replace a job, as ``scheduler.add(replace=True)`` does; UnknownJob if there is none of that name."""
        self._check_known(name)
        job = make_job(name, schedule, handler, options)
        self._call(lambda: self._engine.replace(job))

    def remove(self, name: str) -> None:
        """Remove a job; UnknownJob if there is none of that name."""
        self._check_known(name)
        self._call(lambda: self._engine.remove(name))
        self._names.remove(name)

    def trigger(self, name: str) -> Triggered:
        """Run a job now; time passes until the claim is decided."""
        return self._await(self._engine.trigger(name))

    def stop(self, grace: Duration = "30s", *, wait: bool = True) -> None:
        """Stop gracefully; time passes until it has, or is up to you to let pass. A second stop does not wait.

        A handler that outlives the stop goes on while time passes, as a thread would.
        """
        stopping = self._begin(self._stop(to_ms(grace, "grace")))
        self._stopping = self._stopping or stopping
        if wait:
            self._finish(stopping)

    @property
    def stopped(self) -> bool:
        """Whether it was stopped, and ``stop`` has returned."""
        return self._stopping is not None and self._stopping.done()

    def crash(self) -> None:
        """End at once, as by SIGKILL: nothing is released, nothing is told, and it never comes back."""
        self._crashed = True
        self.freeze()

    def freeze(self) -> None:
        """Stand still, as by SIGSTOP or a long pause of the machine."""
        if self._loop in self._world._loops:
            self._world._loops.remove(self._loop)

    def thaw(self) -> None:
        """Go on where it was frozen, with all that has become due meanwhile."""
        if self._crashed:
            raise SchedulerStateError(f"{self.name} crashed and cannot go on; start another instance")
        self._run()

    def cut_off(self, fault: Fault = "refused") -> None:
        """Cut it off from the store: calls are refused, swallowed, or carried out without an answer.

        A call without an answer fails after 5 s.
        """
        self._check_linked()
        if fault not in get_args(Fault):
            raise InvalidInput(f"fault: {fault!r} is not one of {', '.join(map(repr, get_args(Fault)))}")
        self._link.fault = fault

    def reconnect(self) -> None:
        """Let its calls through again."""
        self._link.fault = None

    def slow_down(self, latency: Duration) -> None:
        """Let each way to the store and back take this long; a call fails after 5 s and may arrive all the same."""
        self._check_linked()
        self._link.latency_s = to_ms(latency, "latency") / 1000

    def jump_clock(self, by: timedelta) -> None:
        """Set its wall clock forward or back."""
        self._clock.ahead += by

    def count(self, kind: str, job: str | None = None) -> int:
        """How many events of a kind it emitted; a kind or job that cannot be is an error."""
        if kind not in KINDS:
            raise InvalidInput(f"kind: {kind!r} is not one of {', '.join(KINDS)}")
        if job is not None:
            self._world._check_known(job)
        return sum(event.kind == kind and job in (None, event.job) for event in self.events)

    # Behind it

    def _run(self) -> None:
        if self._loop not in self._world._loops:
            self._world._loops.append(self._loop)
            self._loop.wake()

    def _start(self, jobs: Sequence[Job]) -> None:
        self._names.update(job.name for job in jobs)
        self._ever.update(self._names)
        self._await(self._engine.start(jobs))

    def _check_known(self, name: str) -> None:
        if name not in self._names:
            raise UnknownJob(f"there is no job {name!r} in {self.name}; there are {sorted(self._names)}")

    def _check_linked(self) -> None:
        if self._own_backend:
            raise SchedulerStateError(f"{self.name} has a backend of its own; let that one fail")

    async def _stop(self, grace_ms: float) -> None:
        executing = await self._engine.stop(grace_ms)
        closing = self._loop.create_task(self._engine.close())
        if not executing:
            await closing

    def _call(self, function: Callable[[], Result]) -> Result:
        async def call() -> Result:
            return function()

        return self._await(call())

    def _await(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._finish(self._begin(work))

    def _begin(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        if self._loop not in self._world._loops:
            work.close()
            raise SchedulerStateError(f"{self.name} does not run: it {'crashed' if self._crashed else 'is frozen'}")
        task = self._loop.create_task(work)
        self._loop.wake()
        return task

    def _finish(self, task: "asyncio.Task[Result]") -> Result:
        self._world.run_until(task.done)
        return task.result()

    def _discard(self) -> None:
        self._emitter.over = True
        self._engine.abandon()
        self._link.fault = "refused"
        self._loop.discard()


class _Emitter:
    """Passes events on until the world ends: what is cancelled then happened to nobody."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.over = False

    def emit(self, event: Event) -> None:
        if not self.over:
            self._events.emit(event)

    def wants(self, kind: str) -> bool:  # noqa: ARG002 - all are kept
        return True


class _Clock:
    def __init__(self, world: World, ahead: timedelta) -> None:
        self._world = world
        self.ahead = ahead

    def wall_ms(self) -> int:
        return self._world.true_ms() + self.ahead // timedelta(milliseconds=1)

    def monotonic_ms(self) -> float:
        return self._world.elapsed_s * 1000


class _Selector:
    """Never waits: when its loop would, the loop is stopped, and how long it would have waited is kept."""

    def __init__(self, loop: "_Loop") -> None:
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[object]:
        if timeout is None or timeout > 0:
            self._loop.idle_for(math.inf if timeout is None else timeout)
        return []


class _Loop(asyncio.BaseEventLoop):
    """An event loop in the world's time, without files or sockets, run until it is idle and then left."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._now_s = world.elapsed_s  # a loop that is not run any more sees no time pass
        self.due_s = world.elapsed_s
        self._selector = _Selector(self)
        super().__init__()

    def _process_events(self, event_list: list[object]) -> None:
        pass

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
        self.latency_s = latency_s
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
        if self.fault is None and not self.latency_s:
            return await call(*args)
        way = asyncio.get_running_loop().create_task(self._there_and_back(call, *args))
        done, _ = await asyncio.wait((way,), timeout=_TIMEOUT_S)
        if not done:  # it stays on its way
            raise BackendUnavailable("the store did not answer in time")
        return way.result()

    async def _there_and_back(self, call: Callable[..., Awaitable[Result]], *args: Any) -> Result:
        await asyncio.sleep(self.latency_s)
        if self.fault == "silent":
            await self._swallowed()
        answer = await call(*args)
        await asyncio.sleep(self.latency_s)
        if self.fault is not None:
            await self._swallowed()
        return answer

    async def _swallowed(self) -> None:
        await asyncio.sleep(2 * _TIMEOUT_S)
        raise asyncio.CancelledError  # nobody waits any more


class _HintingLink(_Link):
    """A link that passes the store's hints on as well, while it is not cut."""

    async def changes(self, jobs: Sequence[str]) -> AsyncGenerator[str, None]:
        async for job in self._backend.changes(jobs):
            await asyncio.sleep(self.latency_s)
            if self.fault is None:
                yield job


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SchedulerStateError(
        "a World runs event loops of its own; use it in a plain test function, not in a coroutine"
    )


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
