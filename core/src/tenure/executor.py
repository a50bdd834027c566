"""Runs handlers: where they run, how they end, and which still execute."""

import asyncio
import threading
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol

from tenure.context import Context, SignalReason
from tenure.errors import TenureError
from tenure.job import Job
from tenure.observe import Observers

How = Literal["returned", "raised", "timeout", "unstarted"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a handler ended; ``unstarted``: its lease was over when its turn came."""

    how: How
    error: BaseException | None = None
    text: str | None = field(default=None, init=False)
    """What it raised, with its traceback; made where it was raised, since its making is the user's code."""

    def __post_init__(self) -> None:
        if self.error is not None:
            object.__setattr__(self, "text", _text_of(self.error))


def _text_of(error: BaseException) -> str:
    try:
        return "".join(traceback.TracebackException.from_exception(error).format())
    except BaseException as why:  # noqa: BLE001 - an exception may be of any make; its run ends all the same
        return f"{type(error).__name__}, whose text cannot be shown: {type(why).__name__}"


class HandlerTimeout(TenureError):
    """A handler ran past its job's timeout."""


_MOST_ENDED = 10_000
_RETURNED = Ended("returned")
_UNSTARTED = Ended("unstarted")


class Permit(Protocol):
    """A right that a handler needs at the very moment of its start."""

    def confirmed(self) -> bool:
        """Whether the right is still there; called in the handler's place, from any thread."""


Observer = Callable[["Call"], object]
Around = Callable[[Context], AbstractContextManager[object]]

nothing_around: Around = Observers().around


class Place(Protocol):
    """Where handlers run."""

    def start(self, call: "Call") -> None:
        """Start the handler soon, if it may start then, and tell how it ended."""

    def cancel(self, call: "Call") -> None:
        """Cancel the handler, where that can be done."""

    def tell(self, call: "Call", ended: Ended) -> None:
        """Call ``call.finished`` on the engine's loop."""


class Call:
    """One handler that was started: ``ended`` is how; ``gone`` says that it really executes no more."""

    __slots__ = (
        "_has_ended",
        "_loop",
        "_permit",
        "_place",
        "_timer",
        "_when_ended",
        "_when_gone",
        "around",
        "ctx",
        "ended",
        "gone",
        "job",
        "owner",
        "task",
    )

    def __init__(
        self,
        job: Job,
        ctx: Context,
        place: Place,
        permit: Permit | None,
        when_gone: tuple[Observer],
        around: Around,
    ) -> None:
        self.job: Job = job
        self.ctx: Context = ctx
        self.task: asyncio.Task[None] | None = None
        self.ended: Ended | None = None
        self.gone: bool = False
        self.around: Around = around
        """What the handler runs in."""
        self.owner: object = None
        """Whose handler it is, for whoever is told when it has ended."""
        self._when_ended: Observer | None = None
        self._when_gone: tuple[Observer, ...] = when_gone
        self._has_ended = False
        self._loop = asyncio.get_running_loop()
        self._permit = permit
        self._place = place
        self._timer: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        """``job@slot``; its thread, if it has one, is called ``tenure-job@slot``."""
        return f"{self.job.name}@{self.ctx.slot:%Y-%m-%dT%H:%M:%SZ}"

    def stop(self, reason: SignalReason, *, cancel: bool) -> None:
        """Set the handler's signal; and cancel it, which only an async handler feels."""
        self.ctx.signal.set(reason)
        if cancel and not self.gone:
            self._place.cancel(self)

    def lose(self) -> None:
        """The lease is lost: set the signal, and cancel."""
        self.stop("lost", cancel=True)

    def when_ended(self, callback: Observer, owner: object) -> None:
        """Call it when it is known how the handler ended; one observer only, and before it can be known."""
        self._when_ended = callback
        self.owner = owner

    async def wait(self) -> Ended:
        """Wait until it is known how the handler ended."""
        if self.ended is None:
            known = asyncio.Event()
            self._when_ended = lambda _: known.set()
            await known.wait()
        assert self.ended is not None
        return self.ended

    def when_gone(self, callback: Observer) -> None:
        """Call it when the handler executes no more; at once if so."""
        if self.gone:
            callback(self)
        else:
            self._when_gone = (*self._when_gone, callback)

    def tell(self, ended: Ended) -> None:
        """The handler executes no more; called in its place. From here on it is not too slow any more."""
        self._has_ended = True
        self._place.tell(self, ended)

    def finished(self, ended: Ended) -> None:
        """The handler executes no more; called on the engine's loop."""
        if self._loop.is_closed():
            return  # whoever would want to know is gone
        self._end(ended)
        self.gone = True
        for callback in self._when_gone:
            callback(self)

    def task_done(self, task: "asyncio.Task[None]") -> None:
        """A task that is cancelled before its first step never gets to tell its end; called on the task's loop."""
        if task.cancelled():
            self.tell(Ended("raised", asyncio.CancelledError()))

    def starts(self) -> bool:
        """Whether the handler starts now, from when its timeout counts; called in its place."""
        if self._permit is not None and (self.ctx.signal.is_set() or not self._permit.confirmed()):
            return False
        if self.job.timeout_ms is not None:
            self._loop.call_soon_threadsafe(self._set_timer, self.job.timeout_ms / 1000)
        return True

    def _set_timer(self, timeout_s: float) -> None:
        if self.ended is None:
            self._timer = self._loop.call_later(timeout_s, self._time_out)

    def _time_out(self) -> None:
        if self._has_ended:
            return
        self.stop("timeout", cancel=True)  # first: one that ends by it is not counted as going on
        self._end(Ended("timeout", HandlerTimeout(f"the handler ran past its timeout of {self.job.timeout_ms} ms")))

    def _end(self, ended: Ended) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.ended is None:
            self.ended = ended
            if self._when_ended is not None:
                self._when_ended(self)


current: ContextVar[Call] = ContextVar("current")
"""The call whose handler asks; also in the tasks and threads that took the handler's context with them."""


class Handover:
    """Calls of functions on the loop of another thread, in order: many at once wake it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._awake = False

    def __bool__(self) -> bool:
        """Whether something was put that is not called yet."""
        return bool(self._calls)

    def put(self, function: Callable[..., object], *args: Any) -> None:
        """Call it on the loop soon; raises RuntimeError if the loop is closed."""
        if self._loop.is_closed():
            raise RuntimeError("the event loop is closed")
        self._calls.append((function, args))
        if not self._awake:
            self._awake = True
            self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._awake = False  # first: what is put from here on wakes the loop again, or is still found below
        try:
            for _ in range(len(self._calls)):
                function, args = self._calls.popleft()
                function(*args)
        finally:
            if self._calls and not self._awake:  # one of them raised
                self._awake = True
                self._loop.call_soon(self._run)


class SameLoop:
    """Handlers on the engine's own loop, for tests in virtual time; a sync handler runs there and then."""

    def start(self, call: Call) -> None:
        """See Place."""
        call.task = asyncio.get_running_loop().create_task(_run(call))
        call.task.add_done_callback(call.task_done)

    def cancel(self, call: Call) -> None:
        """See Place."""
        assert call.task is not None
        call.task.cancel()

    def tell(self, call: Call, ended: Ended) -> None:
        """See Place."""
        call.finished(ended)


class OtherLoop:
    """Async handlers on the application's loop, which runs in another thread and may be blocked.

    An application may also close it and forget the scheduler: nothing executes on it then, and ``on_closed`` is called.
    """

    def __init__(
        self,
        here: asyncio.AbstractEventLoop,
        there: asyncio.AbstractEventLoop,
        on_closed: Callable[[], object] = lambda: None,
    ) -> None:
        self._there = there
        self._context = copy_context()  # one for all callbacks, which else copy one each
        self._out = Handover(there)
        self._back = Handover(here)
        self._ended: list[tuple[Call, Ended]] = []
        self._on_closed = on_closed

    def start(self, call: Call) -> None:
        """See Place."""
        self._put(self._begin, call)

    def cancel(self, call: Call) -> None:
        """See Place."""
        self._put(self._cancel, call)

    def tell(self, call: Call, ended: Ended) -> None:
        """See Place; on the loop of the handlers."""
        if not self._out and not self._ended:
            self._finish(call, ended)
            return
        if not self._ended:
            self._there.call_soon(self._tell_all)
        self._ended.append((call, ended))

    def _tell_all(self) -> None:
        """Hand the ends over; in a burst the starts come first, which the engine's work on ends would hold up."""
        if self._out and len(self._ended) < _MOST_ENDED:
            self._there.call_soon(self._tell_all)
            return
        all_ended, self._ended = self._ended, []
        for call, ended in all_ended:
            self._finish(call, ended)

    def _finish(self, call: Call, ended: Ended) -> None:
        with suppress(RuntimeError):  # the engine's loop is closed: this handler outlived all who would want to know
            self._back.put(call.finished, ended)

    def _put(self, function: Callable[[Call], None], call: Call) -> None:
        try:
            self._out.put(function, call)
        except RuntimeError as error:
            self._back.put(call.finished, _UNSTARTED if call.task is None else Ended("raised", error))
            self._on_closed()

    def _begin(self, call: Call) -> None:
        work = _run(call)
        try:
            call.task = self._there.create_task(work)
        except Exception as error:  # noqa: BLE001 - the application's own task factory
            work.close()
            call.tell(Ended("unstarted", error))
            return
        call.task.add_done_callback(call.task_done, context=self._context)

    def _cancel(self, call: Call) -> None:
        assert call.task is not None
        call.task.cancel()


class Threads:
    """Sync handlers, each on a daemon thread of its own; at most ``limit`` start before others have ended.

    A thread that never ends keeps its place, and the process may end all the same.
    """

    def __init__(self, here: asyncio.AbstractEventLoop, limit: int) -> None:
        self._back = Handover(here)
        self._free = limit
        self._waiting: deque[tuple[Call, threading.Thread]] = deque()

    def start(self, call: Call) -> None:
        """See Place."""
        work = partial(copy_context().run, self._work, call)
        self._waiting.append((call, threading.Thread(target=work, name=f"tenure-{call.name}", daemon=True)))
        self._next()

    def cancel(self, call: Call) -> None:
        """See Place; a thread cannot be cancelled, its signal is all it gets."""

    def tell(self, call: Call, ended: Ended) -> None:
        """See Place."""
        with suppress(RuntimeError):  # the engine's loop is closed: this thread outlived all who would want to know
            self._back.put(self._finished, call, ended)

    def _work(self, call: Call) -> None:
        current.set(call)
        call.tell(_call(call) if call.starts() else _UNSTARTED)

    def _finished(self, call: Call, ended: Ended) -> None:
        self._free += 1
        self._next()
        call.finished(ended)

    def _next(self) -> None:
        while self._free > 0 and self._waiting:
            self._free -= 1
            call, thread = self._waiting.popleft()
            try:
                thread.start()
            except RuntimeError as error:  # the system gives no more threads
                call.tell(Ended("unstarted", error))


class Executor:
    """Starts handlers and knows which still execute in this instance."""

    def __init__(self, async_place: Place, sync_place: Place, around: Around = nothing_around) -> None:
        self._async_place = async_place
        self._sync_place = sync_place
        self._calls: dict[tuple[str, int], Call] = {}
        self._going_on: dict[str, list[Call]] = {}
        self._when_gone = (self._gone,)
        self._around = around

    def start(self, job: Job, ctx: Context, permit: Permit | None = None) -> Call:
        """Start the handler of a run; it is started only if ``permit`` is confirmed at that very moment."""
        place = self._async_place if job.is_async else self._sync_place
        call = Call(job, ctx, place, permit, self._when_gone, self._around)
        self._calls[job.name, ctx.slot_ms] = call
        place.start(call)
        return call

    def timed_out(self, call: Call) -> None:
        """Keep in mind a handler that may go on after its timeout."""
        if not call.gone:
            self._going_on.setdefault(call.job.name, []).append(call)

    def going_on(self, name: str) -> tuple[str, ...]:
        """The names of the job's handlers that go on after their timeout."""
        return tuple(call.name for call in self._going_on.get(name, ()))

    def executes(self, name: str, slot: int) -> bool:
        """Whether a handler of the run executes here."""
        return (name, slot) in self._calls

    def in_the_way(self, job: Job, slot: int) -> Call | None:
        """The handler because of which this instance must not claim or check the run now.

        That is one of the run itself, or, under ``skip``, one of the job that goes on after its timeout.
        """
        return self._calls.get((job.name, slot)) or self.blocker(job)

    def blocker(self, job: Job) -> Call | None:
        """A handler that goes on after its timeout and so blocks all later runs of a job under ``skip``."""
        if job.overlap == "skip" and self._going_on:
            return next(iter(self._going_on.get(job.name, ())), None)
        return None

    def executing(self) -> list[Call]:
        """The handlers that have not really ended."""
        return list(self._calls.values())

    def _gone(self, call: Call) -> None:
        key = (call.job.name, call.ctx.slot_ms)
        if self._calls.get(key) is call:
            del self._calls[key]
        going_on = self._going_on.get(call.job.name)
        if going_on and call in going_on:
            going_on.remove(call)
            if not going_on:
                del self._going_on[call.job.name]


async def _run(call: Call) -> None:
    job, ctx = call.job, call.ctx
    current.set(call)
    ended = _RETURNED
    if not call.starts():
        ended = _UNSTARTED
    elif not job.is_async:
        ended = _call(call)
    else:
        try:
            with call.around(ctx):
                _check(job, await (job.handler(ctx) if job.takes_context else job.handler()))
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler must not end the application's loop
            ended = Ended("raised", error)
    call.tell(ended)


def _call(call: Call) -> Ended:
    job, ctx = call.job, call.ctx
    try:
        with call.around(ctx):
            _check(job, job.handler(ctx) if job.takes_context else job.handler())
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is a failed run
        return Ended("raised", error)
    return _RETURNED


def _check(job: Job, answer: Any) -> None:
    """Refuse an answer that shows that the work was not done: a coroutine nobody awaited."""
    if asyncio.iscoroutine(answer):
        answer.close()
        raise TypeError(f"the handler of {job.name!r} gave a coroutine; make it `async def`, and await what it calls")
