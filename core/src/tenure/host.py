"""Threads that tenure keeps for itself, so that nothing an application does can starve a heartbeat."""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

from tenure.engine import Engine
from tenure.events import Event, Events
from tenure.executor import Call
from tenure.job import Job

Result = TypeVar("Result")

BuildEngine = Callable[[asyncio.AbstractEventLoop], Engine]


class EventThread:
    """Tells listeners on a thread of its own: a slow one delays other listeners, and nothing else."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tenure-events", daemon=True)
        self._thread.start()

    def emit(self, event: Event) -> None:
        """Tell the listeners soon, in order."""
        if self._events.wants(event):
            self._queue.put(event)

    def stop(self, timeout_s: float) -> None:
        """Wait until what was emitted is told."""
        self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _work(self) -> None:
        while (event := self._queue.get()) is not None:
            self._events.emit(event)


class LoopThread:
    """An event loop for async handlers of an application that has none."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="tenure-handlers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop, once nothing runs on it."""
        self.loop.call_soon_threadsafe(self.loop.stop)

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


class EngineThread:
    """An engine with its loop on a daemon thread: a process may end while a handler outlives ``stop``."""

    def __init__(self, build: BuildEngine, jobs: Iterable[Job], on_closed: Callable[[], None]) -> None:
        self._build = build
        self._jobs = list(jobs)
        self._on_closed = on_closed
        self._loop: asyncio.AbstractEventLoop
        self._engine: Engine
        self._closing: asyncio.Event
        self.started: Future[None] = Future()
        self.closed: Future[None] = Future()
        self._thread = threading.Thread(target=self._work, name="tenure-engine", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[Engine], Result]) -> Result:
        """Call a function with the engine, on its loop; blocks for an instant."""
        return self.submit(_as_async(function)).result()

    def submit(self, function: Callable[[Engine], Awaitable[Result]]) -> Future[Result]:
        """Start an async function with the engine, on its loop."""

        async def run() -> Result:
            return await function(self._engine)

        return asyncio.run_coroutine_threadsafe(run(), self._loop)

    def stop(self, grace_ms: float) -> Future[list[Call]]:
        """Stop the engine; what still executes then is waited for in the background."""

        async def stop(engine: Engine) -> list[Call]:
            try:
                return await engine.stop(grace_ms)
            finally:
                self._closing.set()

        return self.submit(stop)

    def _work(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            if not self.started.done():
                self.started.set_exception(error)
        finally:
            self._on_closed()
            self.closed.set_result(None)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        self._engine = self._build(self._loop)
        await self._engine.start(self._jobs)
        self.started.set_result(None)
        await self._closing.wait()
        await self._engine.close()


def _as_async(function: Callable[[Engine], Result]) -> Callable[[Engine], Awaitable[Result]]:
    async def call(engine: Engine) -> Result:
        return function(engine)

    return call
