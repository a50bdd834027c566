"""Runs handlers: where they run, how they end, and which still execute."""

import asyncio
import threading
import traceback
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tenure.context import Context, SignalReason
from tenure.errors import TenureError
from tenure.job import Job

How = Literal["returned", "raised", "timeout", "unstarted"]
MayStart = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a handler ended; ``unstarted``: its lease was over when its turn came."""

    how: How
    error: BaseException | None = None

    @property
    def text(self) -> str | None:
        """What it raised, with its traceback."""
        if self.error is None:
            return None
        return "".join(traceback.TracebackException.from_exception(self.error).format())


class HandlerTimeout(TenureError):
    """A handler ran past its job's timeout."""


_RETURNED = Ended("returned")
_UNSTARTED = Ended("unstarted")

Done = Callable[[Ended], None]
Cancel = Callable[[], object]


class Place(Protocol):
    """Where handlers run."""

    def start(self, job: Job, ctx: Context, may_start: MayStart, done: Done) -> Cancel:
        """Start the handler soon, if ``may_start()`` then; ``done`` is called on the engine's loop.

        Gives a function that cancels the handler if it can be.
        """


class Handover:
    """Callbacks for the loop of another thread: many at once wake it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callbacks: deque[Callable[[], object]] = deque()
        self._awake = False

    def put(self, callback: Callable[[], object]) -> None:
        """Call it on the loop soon, in order; raises RuntimeError if the loop is closed."""
        self._callbacks.append(callback)
        if not self._awake:
            self._awake = True
            self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._awake = False  # first: what is put from here on wakes the loop again, or is still found below
        for _ in range(len(self._callbacks)):
            self._callbacks.popleft()()


class SameLoop:
    """Handlers on the engine's own loop, for tests in virtual time; a sync handler runs there and then."""

    def start(self, job: Job, ctx: Context, may_start: MayStart, done: Done) -> Cancel:
        """See Place."""
        task = asyncio.get_running_loop().create_task(_run(job, ctx, may_start))
        task.add_done_callback(lambda task: done(_outcome(task)))
        return task.cancel


class OtherLoop:
    """Async handlers on the application's loop, which runs in another thread and may be blocked."""

    def __init__(self, here: asyncio.AbstractEventLoop, there: asyncio.AbstractEventLoop) -> None:
        self._there = there
        self._out = Handover(there)
        self._back = Handover(here)

    def start(self, job: Job, ctx: Context, may_start: MayStart, done: Done) -> Cancel:
        """See Place."""
        tasks: list[asyncio.Task[Ended]] = []

        def begin() -> None:
            task = self._there.create_task(_run(job, ctx, may_start))
            tasks.append(task)
            task.add_done_callback(lambda task: self._back.put(lambda: done(_outcome(task))))

        def cancel() -> None:
            self._out.put(lambda: tasks[0].cancel())

        self._out.put(begin)
        return cancel


class Threads:
    """Sync handlers, each on a daemon thread of its own; at most ``limit`` start before others have ended.

    A thread that never ends keeps its place, and the process may end all the same.
    """

    def __init__(self, here: asyncio.AbstractEventLoop, limit: int) -> None:
        self._back = Handover(here)
        self._free = limit
        self._waiting: deque[Callable[[], object]] = deque()

    def start(self, job: Job, ctx: Context, may_start: MayStart, done: Done) -> Cancel:
        """See Place; a thread cannot be cancelled, its signal is all it gets."""

        def ended(how: Ended) -> None:
            self._free += 1
            self._next()
            done(how)

        def work() -> None:
            how = copied.run(_call, job, ctx) if may_start() else _UNSTARTED
            try:
                self._back.put(lambda: ended(how))
            except RuntimeError:
                return  # the engine's loop is closed: this thread outlived all who would want to know

        copied = copy_context()
        thread = threading.Thread(target=work, name=f"tenure-{job.name}", daemon=True)
        self._waiting.append(thread.start)
        self._next()
        return lambda: None

    def _next(self) -> None:
        while self._free > 0 and self._waiting:
            self._free -= 1
            self._waiting.popleft()()


class Call:
    """One handler that was started: ``ended`` is how, ``gone`` that it really executes no more."""

    __slots__ = ("_cancel", "_timer", "ctx", "ended", "gone", "job")

    def __init__(self, job: Job, ctx: Context) -> None:
        loop = asyncio.get_running_loop()
        self.job = job
        self.ctx = ctx
        self.ended: asyncio.Future[Ended] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self._cancel: Cancel | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, place: Place, may_start: MayStart) -> None:
        """Start the handler in its place; its time counts from when it really starts."""
        timed = may_start if self.job.timeout_ms is None else self._timed(may_start, asyncio.get_running_loop())
        self._cancel = place.start(self.job, self.ctx, timed, self._done)

    def stop(self, reason: SignalReason, *, cancel: bool) -> None:
        """Set the handler's signal; and cancel it, which only an async handler feels."""
        self.ctx.signal.set(reason)
        if cancel and self._cancel is not None and not self.gone.done():
            self._cancel()

    def _timed(self, may_start: MayStart, loop: asyncio.AbstractEventLoop) -> MayStart:
        def starts() -> bool:  # in the handler's place
            if not may_start():
                return False
            loop.call_soon_threadsafe(self._set_timer, loop)
            return True

        return starts

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self.job.timeout_ms is not None
        if not self.ended.done():
            self._timer = loop.call_later(self.job.timeout_ms / 1000, self._time_out)

    def _time_out(self) -> None:
        self._end(Ended("timeout", HandlerTimeout(f"the handler ran past its timeout of {self.job.timeout_ms} ms")))
        self.stop("timeout", cancel=True)

    def _done(self, ended: Ended) -> None:
        self._end(ended)
        self.gone.set_result(None)

    def _end(self, ended: Ended) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.ended.done():
            self.ended.set_result(ended)


class Executor:
    """Starts handlers and knows which still execute in this instance."""

    def __init__(self, async_place: Place, sync_place: Place) -> None:
        self._async_place = async_place
        self._sync_place = sync_place
        self._calls: dict[tuple[str, int], Call] = {}
        self._going_on: dict[str, list[Call]] = {}

    def start(self, job: Job, ctx: Context, may_start: MayStart) -> Call:
        """Start the handler of a run; it is started only if ``may_start()`` at that very moment."""
        call = Call(job, ctx)
        key = (job.name, ctx.slot_ms)
        self._calls[key] = call
        call.gone.add_done_callback(lambda _: self._gone(key, call))
        call.begin(self._async_place if job.is_async else self._sync_place, may_start)
        return call

    def timed_out(self, call: Call) -> int:
        """Count a handler that goes on after its timeout; gives how many of its job do now."""
        going_on = self._going_on.setdefault(call.job.name, [])
        if not call.gone.done():
            going_on.append(call)
        return len(going_on)

    def in_the_way(self, job: Job, slot: int) -> Call | None:
        """The handler because of which this instance must not claim or check the run now.

        That is one of the run itself, or, under ``skip``, one of the job that goes on after its timeout.
        """
        call = self._calls.get((job.name, slot))
        if call is not None:
            return call
        if job.overlap == "skip" and self._going_on:
            return next(iter(self._going_on.get(job.name, ())), None)
        return None

    def executing(self) -> list[Call]:
        """The handlers that have not really ended."""
        return list(self._calls.values())

    def _gone(self, key: tuple[str, int], call: Call) -> None:
        if self._calls.get(key) is call:
            del self._calls[key]
        going_on = self._going_on.get(key[0], [])
        if call in going_on:
            going_on.remove(call)


async def _run(job: Job, ctx: Context, may_start: MayStart) -> Ended:
    if not may_start():
        return _UNSTARTED
    if not job.is_async:
        return _call(job, ctx)
    try:
        await (job.handler(ctx) if job.takes_context else job.handler())
    except BaseException as error:  # noqa: BLE001 - SystemExit of a handler must not end the application's loop
        return Ended("raised", error)
    return _RETURNED


def _call(job: Job, ctx: Context) -> Ended:
    try:
        answer: Any = job.handler(ctx) if job.takes_context else job.handler()
        if asyncio.iscoroutine(answer):
            answer.close()
            raise TypeError(f"the handler of {job.name!r} gave a coroutine; make it `async def`")  # noqa: TRY301
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is a failed run
        return Ended("raised", error)
    return _RETURNED


def _outcome(task: asyncio.Task[Ended]) -> Ended:
    if task.cancelled():  # before its first step
        return Ended("raised", asyncio.CancelledError())
    return task.result()
