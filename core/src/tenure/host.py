"""Threads that tenure keeps for itself, so that nothing an application does can starve a heartbeat."""

import asyncio
import queue
import signal
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from tenure.clock import SystemClock
from tenure.duration import Duration, to_ms
from tenure.errors import SchedulerStateError
from tenure.events import Event, Events, logger
from tenure.executor import Call
from tenure.health import TICK_MS, State
from tenure.job import Job

Result = TypeVar("Result")

if TYPE_CHECKING:
    from tenure.engine import Engine

BuildEngine = Callable[[asyncio.AbstractEventLoop], "Engine"]
OnStopped = Callable[["EngineThread", list[Call]], None]


class EngineEnded(SchedulerStateError):
    """The engine ended before it could do what it was asked for."""


class StoppedEarly(SchedulerStateError):
    """The scheduler was stopped while it started."""


class Pending(Generic[Result]):
    """An answer that is on its way: ``await`` it in a task, or call ``result()`` in a thread.

    Who gives up waiting for it, or is cancelled, stops nothing.
    """

    def __init__(self, future: "Future[Result]") -> None:
        self._future = future

    def result(self, timeout: Duration | None = None) -> Result:
        """Wait for the answer; TimeoutError when it takes longer."""
        return self._future.result(None if timeout is None else to_ms(timeout, "timeout") / 1000)

    def __await__(self) -> Generator[Any, None, Result]:
        return outcome(self._future).__await__()


async def outcome(future: "Future[Result]") -> Result:
    """The result of another thread's future; unlike ``wrap_future`` it passes no cancellation on to that thread."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def wake(_: object) -> None:
        with suppress(RuntimeError):  # the loop was closed with this wait in it
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(wake)
    await done.wait()
    return future.result()


class EventThread:
    """Tells listeners on a thread of its own: a slow one delays other listeners, and nothing else."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tenure-events", daemon=True)
        self._thread.start()

    def emit(self, event: Event) -> None:
        """Tell the listeners soon, in order."""
        if self.wants(event.kind):
            self._queue.put(event)

    def wants(self, kind: str) -> bool:
        """See Emitter."""
        return self._events.wants(kind)

    def is_current(self) -> bool:
        """Whether a listener asks this."""
        return threading.current_thread() is self._thread

    def stop(self, timeout_s: float) -> None:
        """Wait until what was emitted is told."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while (event := self._queue.get()) is not None:
            self._events.emit(event)


class LoopThread:
    """An event loop for async handlers of an application that has none."""

    def __init__(self) -> None:
        self._ended = asyncio.Event()
        ready: Future[asyncio.AbstractEventLoop] = Future()
        work = self._work(ready)
        self._thread = threading.Thread(target=asyncio.run, args=(work,), name="tenure-handlers", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            work.close()
            raise
        self.loop: asyncio.AbstractEventLoop = ready.result()

    def stop(self, timeout_s: float) -> None:
        """End the loop, and the tasks that handlers left on it; one that heeds no cancellation is not waited for."""
        with suppress(RuntimeError):  # a handler's own task ended the loop, by SystemExit
            self.loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(timeout_s)

    async def _work(self, ready: "Future[asyncio.AbstractEventLoop]") -> None:
        ready.set_result(asyncio.get_running_loop())
        await self._ended.wait()


def _monotonic_ms() -> float:
    return SystemClock().monotonic_ms()


class EngineThread:
    """An engine with its loop on a daemon thread: a process may end while a handler outlives ``stop``.

    ``started`` is set when it has; its exception is why it has not, and then nothing of it is left. ``stopped`` says
    whether nothing outlived the stop, or which error ended it; ``closed`` comes when all has ended and the store is
    left.
    """

    def __init__(
        self, build: BuildEngine, jobs: Iterable[Job], on_stopped: OnStopped, on_closed: Callable[[], None]
    ) -> None:
        self._build = build
        self._jobs = list(jobs)
        self._on_stopped = on_stopped
        self._on_closed = on_closed
        self._lock = threading.RLock()  # a signal's handler may come while this thread holds it
        self._open = True
        self._engine: Engine | None = None
        self._has_engine = asyncio.Event()
        self._requests: set[asyncio.Task[None]] = set()
        self._stops: list[asyncio.Task[list[Call]]] = []
        self._stop_asked = asyncio.Event()
        self._main_task: asyncio.Task[None] | None = None
        self._stopped_early = False
        self._because: Exception | None = None
        self.started: Future[None] = Future()
        self.stopped: Future[bool] = Future()
        self.closed: Future[None] = Future()
        self.ticked_ms: float = _monotonic_ms()
        """When its loop last turned."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="tenure-engine", daemon=True)

    def start(self) -> None:
        """Start; ``started`` tells what came of it."""
        try:
            self._thread.start()
        except BaseException:
            self._loop.close()
            raise

    def tell(self, function: "Callable[[Engine], None]") -> None:
        """Call a function with the started engine, on its loop, and wait for it; nothing happens once it has ended."""
        if threading.current_thread() is self._thread:
            raise SchedulerStateError("a schedule or backend cannot change the scheduler that asks it; use a handler")

        async def call(engine: "Engine") -> None:
            function(engine)

        with suppress(EngineEnded):
            self.submit(call).result()

    def submit(self, function: "Callable[[Engine], Awaitable[Result]]") -> "Future[Result]":
        """Start an async function with the started engine, on its loop; EngineEnded once that has ended."""
        answer: Future[Result] = Future()
        if not self._post(self._request, function, answer):
            raise EngineEnded("the scheduler does not run any more")
        return answer

    @property
    def state(self) -> State:
        """How far it is; safe from any thread."""
        if not self.started.done():
            return "starting"
        return "stopping" if self._stops else "running"

    def stop(self, grace_ms: float, because: Exception | None = None) -> None:
        """Ask it to stop, also while it starts, and in a signal's handler; a second time, to hurry.

        ``because`` is raised where ``stopped`` is waited for.
        """
        self._post(self._stop, grace_ms, because)

    def executes(self, call: Call) -> bool:
        """Whether the handler is one of this engine's."""
        return self._engine is not None and self._engine.executes(call)

    def wait_started(self) -> None:
        """Block until it has started, or raise why not; interrupted, it is stopped."""
        try:
            self.started.result()
        except BaseException:
            self._give_up()
            raise

    async def started_async(self) -> None:
        """Do what ``wait_started`` does, in an event loop."""
        try:
            await outcome(self.started)
        except BaseException:
            self._give_up()
            raise

    def wait_stopped(self) -> None:
        """Block until it has stopped, and left the store unless something outlives the stop."""
        if self.stopped.result():
            self.closed.result()
            self._thread.join()

    async def stopped_async(self) -> None:
        """Do what ``wait_stopped`` does, in an event loop."""
        if await outcome(self.stopped):
            await outcome(self.closed)
            self._thread.join()  # for an instant

    def _give_up(self) -> None:
        if self.started.done():
            self._thread.join()  # it failed: an instant
        else:
            self.stop(0)

    def _post(self, function: Callable[..., object], *args: Any) -> bool:
        """Call it on the loop; whether that will happen."""
        with self._lock:
            if self._open:
                self._loop.call_soon_threadsafe(function, *args)
            return self._open

    # On its thread

    def _work(self) -> None:
        error: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._main())
        except BaseException as failed:  # noqa: BLE001 - handed to whoever waits
            error = failed
        try:
            self._on_closed()
        finally:
            self._settle(error)

    def _settle(self, error: BaseException | None) -> None:
        self._on_stopped(self, [])
        if self._stopped_early:
            self.started.set_exception(StoppedEarly("the scheduler was stopped while it started"))
            self.stopped.set_result(True)
        elif error is not None:
            if self.started.done():
                logger.error("the scheduler ended by an error", exc_info=error)
            for future in (self.started, self.stopped):
                if not future.done():
                    future.set_exception(error)
        self.closed.set_result(None)

    async def _main(self) -> None:
        self._main_task = asyncio.current_task()
        self._tick()
        try:
            if self._stopped_early:
                raise asyncio.CancelledError
            engine = self._build(self._loop)
            await engine.start(self._jobs)
            self._engine = engine
            self._has_engine.set()
            self.started.set_result(None)
            await self._stop_asked.wait()
            executing = await self._stops[0]
            self._on_stopped(self, executing)
            if self._because is None:
                self.stopped.set_result(engine.is_drained() and not executing)
            else:
                self.stopped.set_exception(self._because)
            if self._requests:
                await asyncio.wait(self._requests)  # a claim on its way is given back, if it wins
            await engine.close()
        finally:
            if self._engine is not None:
                self._engine.abandon()
            await self._end_requests()

    def _tick(self) -> None:
        self.ticked_ms = _monotonic_ms()
        self._loop.call_later(TICK_MS / 1000, self._tick)

    async def _end_requests(self) -> None:
        with self._lock:
            self._open = False
        await asyncio.sleep(0)  # what was posted until now becomes a task
        for task in self._requests:
            task.cancel()
        await asyncio.gather(*self._requests, *self._stops, return_exceptions=True)

    def _stop(self, grace_ms: float, because: Exception | None) -> None:
        self._because = self._because or because
        if self._engine is not None:
            self._stops.append(self._loop.create_task(self._engine.stop(grace_ms)))
            self._stop_asked.set()
            return
        self._stopped_early = True
        if self._main_task is not None:
            self._main_task.cancel()

    def _request(self, function: "Callable[[Engine], Awaitable[Any]]", answer: "Future[Any]") -> None:
        task = self._loop.create_task(self._answer(function, answer))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _answer(self, function: "Callable[[Engine], Awaitable[Any]]", answer: "Future[Any]") -> None:
        try:
            await self._has_engine.wait()
            assert self._engine is not None
            result = await function(self._engine)
        except asyncio.CancelledError:
            answer.set_exception(EngineEnded("the scheduler ended before it could answer"))
        except BaseException as error:  # noqa: BLE001 - belongs to who asked
            answer.set_exception(error)
        else:
            answer.set_result(result)


class StopSignals:
    """While entered, SIGTERM and SIGINT stop a scheduler; also where a handler blocks the application's loop.

    ``stop`` is called with whether one came before. Only the main thread can have this; elsewhere it does nothing. A
    signal that is ignored stays so, as ``nohup`` wants it.
    """

    def __init__(self, stop: Callable[[bool], None]) -> None:
        self._stop = stop
        self._came = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGTERM, signal.SIGINT):
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    self._before[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for signum, handler in self._before.items():
            if handler is not None:  # else it was not installed by Python, and cannot be by us
                signal.signal(signum, handler)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 - Python's signature
        came, self._came = self._came, True
        self._stop(came)
