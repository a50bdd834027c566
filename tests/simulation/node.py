"""One instance of a simulation: the engine's loop, the application's, which may be blocked, and its threads."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

from tenure.context import Context
from tenure.errors import BackendError, SchedulerStateError, UnknownJob
from tenure.events import Event
from tenure.job import Job, make_job
from tenure.schedule import every
from tenure.testing import World, _Clock, _Loop, _Selector

from .network import Link
from .scenario import Spec
from .timeline import Timeline

_MOST_BUSY = 20_000

Handle = Callable[["Node", Spec, Context], Any]


@dataclass(slots=True)
class Span:
    """A time in which something was so; without an end while it is."""

    since_s: float
    until_s: float = float("inf")
    what: str = ""


class Livelock(Exception):
    """A loop goes round and round while no time passes."""


class _Counting(_Selector):
    """Sees a loop that never waits."""

    def __init__(self, loop: _Loop) -> None:
        super().__init__(loop)
        self._busy = 0

    def select(self, timeout: float | None = None) -> list[object]:
        self._busy = self._busy + 1 if timeout == 0 else 0
        if self._busy > _MOST_BUSY:
            self._busy = 0
            raise Livelock(f"a loop went round {_MOST_BUSY} times without a wait")
        return super().select(timeout)


class NodeLoop(_Loop):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._selector = _Counting(self)


class AppLoop(NodeLoop):
    """The application's loop; a handler that blocks it stops all that runs on it."""

    def __init__(self, world: World) -> None:
        self._blocked_until_s = 0.0
        super().__init__(world)

    def block(self, for_s: float) -> None:
        self._blocked_until_s = max(self._blocked_until_s, self._world.elapsed_s + for_s)
        self.due_s = max(self.due_s, self._blocked_until_s)
        if self.is_running():
            self.stop()

    def wake(self) -> None:
        super().wake()
        self.due_s = max(self.due_s, self._blocked_until_s)

    def run_until_idle(self) -> None:
        if self._world.elapsed_s < self._blocked_until_s:  # it was blocked from outside
            self.due_s = self._blocked_until_s
            return
        super().run_until_idle()
        if self.due_s == float("inf") and (self._ready or self._scheduled):  # type: ignore[attr-defined]
            self.due_s = max(self._world.elapsed_s, self._blocked_until_s)


class _Threads:
    """The place of sync handlers: coroutines on a loop that nothing blocks, and that nobody can cancel."""

    def __init__(self, executor: Any, here: _Loop, there: _Loop) -> None:
        self._executor = executor
        self._here = here
        self._there = there

    def start(self, call: Any) -> None:
        self._there.call_soon_threadsafe(self._begin, call)

    def cancel(self, call: Any) -> None:
        pass

    def tell(self, call: Any, ended: Any) -> None:
        self._here.call_soon_threadsafe(call.finished, ended)

    def _begin(self, call: Any) -> None:
        self._there.create_task(self._work(call))

    async def _work(self, call: Any) -> None:
        ended = self._executor.Ended("returned")
        if not call.starts():
            ended = self._executor.Ended("unstarted")
        else:
            try:
                await call.job.handler(call.ctx)
            except BaseException as error:
                ended = self._executor.Ended("raised", error)
        call.tell(ended)


@dataclass(eq=False)
class Version:
    """A job as an instance had it, from when to when."""

    spec: Spec
    span: Span


@dataclass(eq=False)
class Life:
    """What became of an instance, for whoever judges it."""

    began_s: float
    specs: list[Version] = field(default_factory=list)
    frozen: list[Span] = field(default_factory=list)
    troubles: list[Span] = field(default_factory=list)
    """Times in which it could not do its work: frozen, cut off, slow."""
    clock: list[tuple[float, float]] = field(default_factory=list)
    """How far its wall clock is ahead, in seconds, from when."""
    stop_s: float | None = None
    stop_seq: int = 0
    grace_s: float = 0.0
    stopped_s: float | None = None
    closed_s: float | None = None
    gone_s: float = float("inf")
    """Crashed, or asked to stop."""
    complaints: list[str] = field(default_factory=list)


class Node:
    def __init__(
        self,
        name: str,
        world: World,
        build: SimpleNamespace,
        link: Link,
        timeline: Timeline,
        handle: Handle,
        rng: Random,
        ahead_s: float,
    ) -> None:
        self.name = name
        self.link = link
        self.over = False
        self.app_loop = AppLoop(world)
        self.loops = [NodeLoop(world), self.app_loop, NodeLoop(world)]
        self.clock = _Clock(world, timedelta(seconds=ahead_s))
        self.events: list[tuple[float, int, Event]] = []
        self.life = Life(world.elapsed_s, clock=[(world.elapsed_s, ahead_s)])
        self._world = world
        self._timeline = timeline
        self._handle = handle
        self._tasks: list[asyncio.Task[Any]] = []
        loop, app_loop, threads = self.loops
        executor = build.executor.Executor(
            build.executor.OtherLoop(loop, app_loop), _Threads(build.executor, loop, threads)
        )
        instance = build.instance.Instance(name, self.clock, rng, self)
        self.instance = instance
        self.executor = executor
        self.engine = build.engine.Engine(link, instance, executor)
        for loop in self.loops:
            loop.set_exception_handler(self._complain)
        self._run()

    # What the engine emits to

    def wants(self, kind: str) -> bool:
        return True

    def emit(self, event: Event) -> None:
        if not self.over:
            self.events.append((self._world.elapsed_s, self._timeline.add("event", self.name, event), event))

    # What can be done to it

    def start(self, specs: tuple[Spec, ...]) -> None:
        self._note_specs(specs)
        self._do(self.engine.start([self._job(spec) for spec in specs]))

    def add(self, spec: Spec) -> None:
        self._note_specs((spec,))
        self._call(lambda: self.engine.add([self._job(spec)]))

    def replace(self, spec: Spec) -> None:
        self._end_spec(spec.name)
        self._note_specs((spec,))
        self._call(lambda: self.engine.replace(self._job(spec)))

    def remove(self, name: str) -> None:
        self._end_spec(name)
        self._call(lambda: self.engine.remove(name))

    def trigger(self, name: str) -> None:
        self._do(self._trigger(name))

    def stop(self, grace_s: float) -> None:
        life = self.life
        life.stop_s, life.grace_s, life.stop_seq = self._world.elapsed_s, grace_s, len(self._timeline.moments)
        life.gone_s = min(life.gone_s, self._world.elapsed_s)
        self._do(self._stop(grace_s * 1000))

    def crash(self) -> None:
        self.life.gone_s = min(self.life.gone_s, self._world.elapsed_s)
        self.freeze()
        self.life.closed_s = self._world.elapsed_s

    def freeze(self) -> None:
        self.life.frozen.append(Span(self._world.elapsed_s))
        for loop in self.loops:
            if loop in self._world._loops:
                self._world._loops.remove(loop)

    def thaw(self) -> None:
        self.life.frozen[-1].until_s = self._world.elapsed_s
        self._run()

    def jump_clock(self, by_s: float) -> None:
        self.clock.ahead += timedelta(seconds=by_s)
        self.life.clock.append((self._world.elapsed_s, self.clock.ahead.total_seconds()))

    def set_clock(self) -> None:
        self.jump_clock(-self.clock.ahead.total_seconds())

    def discard(self) -> None:
        """Nothing of it is left in this process."""
        self.over = True
        self.engine.abandon()
        self.link.fault = "refused"
        for loop in self.loops:
            with suppress(Livelock):
                loop.discard()
            loop.close()  # where it could not be discarded

    # What is asked of it

    @property
    def is_up(self) -> bool:
        return self.life.gone_s == float("inf")

    @property
    def is_frozen(self) -> bool:
        return bool(self.life.frozen) and self.life.frozen[-1].until_s == float("inf")

    def spec(self, name: str, at_s: float) -> Spec | None:
        """The job as this instance had it then."""
        for version in reversed(self.life.specs):
            if version.spec.name == name and version.span.since_s <= at_s < version.span.until_s:
                return version.spec
        return None

    def has(self, name: str) -> bool:
        return self.spec(name, self._world.elapsed_s) is not None

    def leftovers(self) -> list[str]:
        """What an instance that has stopped and closed left behind."""
        handlers = [call.name for call in self.executor.executing() if call.ended is None]
        timed_out = len(self.executor.executing()) > len(handlers)  # it may go on for ever, and nobody waits for it
        loops = self.loops[:1] if timed_out else self.loops
        left = [f"handler {name}" for name in handlers]
        left += [f"task {task.get_coro().__qualname__}" for loop in loops for task in asyncio.all_tasks(loop)]
        left += ["engine's task" for _ in self.instance._tasks]
        left += [f"timer {timer!r}" for loop in loops for timer in loop._scheduled if not timer.cancelled()]
        left += [f"watch of {name}" for name in self.engine._level._watches._watches]
        return left

    # Behind it

    def _run(self) -> None:
        for loop in self.loops:
            self._world._loops.append(loop)
            loop.wake()

    def _job(self, spec: Spec) -> Job:
        async def handler(ctx: Context) -> None:
            await self._handle(self, spec, ctx)

        options = {
            "lease": timedelta(milliseconds=spec.lease_ms),
            "heartbeat": timedelta(milliseconds=spec.heartbeat_ms),
            "overlap": spec.overlap,
            "max_attempts": spec.max_attempts,
            "max_late": _optional(spec.max_late_ms),
            "catch_up": _optional(spec.catch_up_ms),
            "jitter": timedelta(milliseconds=spec.jitter_ms),
            "timeout": _optional(spec.timeout_ms),
        }
        job = make_job(spec.name, every(timedelta(milliseconds=spec.every_ms)), handler, options)
        return replace(job, is_async=not spec.thread)

    def _note_specs(self, specs: tuple[Spec, ...]) -> None:
        now_s = self._world.elapsed_s
        self.life.specs += [Version(spec, Span(now_s)) for spec in specs]

    def _end_spec(self, name: str) -> None:
        for version in self.life.specs:
            if version.spec.name == name:
                version.span.until_s = min(version.span.until_s, self._world.elapsed_s)

    async def _trigger(self, name: str) -> None:
        try:
            await self.engine.trigger(name)
        except (BackendError, UnknownJob, SchedulerStateError) as error:
            self._timeline.add("trigger failed", self.name, str(error))

    async def _stop(self, grace_ms: float) -> None:
        await self.engine.stop(grace_ms)
        self.life.stopped_s = self._world.elapsed_s
        self._timeline.add("stopped", self.name, None)
        await self.engine.close()
        self.life.closed_s = self._world.elapsed_s
        self._timeline.add("closed", self.name, None)

    def _call(self, function: Callable[[], Any]) -> None:
        async def call() -> None:
            function()

        self._do(call())

    def _do(self, work: Any) -> None:
        loop = self.loops[0]
        self._tasks.append(loop.create_task(work))
        loop.wake()

    def _complain(self, _loop: Any, context: dict[str, Any]) -> None:
        if not self.over:
            self.life.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")


def _optional(ms: int | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=ms)
