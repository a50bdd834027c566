"""What all parts of one running scheduler share: its id, clocks, tasks and events, and whether it stops."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from random import Random
from typing import Any, TypeVar

from tenure.clock import Clock
from tenure.events import Emitter, Error, Event
from tenure.health import Contact
from tenure.observe import Observers

Answer = TypeVar("Answer")

_FIRST_RETRY_MS = 100
_LONGEST_RETRY_MS = 10_000


def new_instance_id() -> str:
    """``host-pid-random``, different in each process and at each start."""
    host = socket.gethostname().encode("ascii", "replace").decode()[:100] or "host"
    return f"{host}-{os.getpid()}-{os.urandom(3).hex()}"


class Instance:
    """One running scheduler."""

    def __init__(self, name: str, clock: Clock, rng: Random, events: Emitter, contact: Contact | None = None) -> None:
        self.name = name
        self.clock = clock
        self.rng = rng
        self.contact: Contact = contact or Contact(clock, Observers())
        self._events = events
        self._tasks: set[asyncio.Task[Any]] = set()
        self._forget = self._tasks.discard
        self._context = copy_context()
        self._held = 0
        self._none_held = asyncio.Event()
        self._none_held.set()
        self.stopping: asyncio.Event = asyncio.Event()

    def spawn(self, work: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        """Start work that the drain waits for."""
        # A context of its own: a driver may keep a deadline there, which overlapping calls would leave to others.
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._forget, context=self._context)  # one for all, which a burst would else copy
        return task

    def hold(self) -> None:
        """A handler starts, without a task of its own; the drain waits until ``let_go``."""
        self._held += 1
        self._none_held.clear()

    def let_go(self) -> None:
        """A handler has ended."""
        self._held -= 1
        if not self._held:
            self._none_held.set()

    def is_drained(self) -> bool:
        """Whether all work has ended."""
        return not (self._tasks or self._held)

    async def drained(self) -> None:
        """Wait until all work has ended, also what it starts in the meantime."""
        while self._tasks or self._held:
            await self._none_held.wait()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def wants(self, kind: str) -> bool:
        """Whether anyone would be told of such an event; if not, it need not be made."""
        return self._events.wants(kind)

    def emit(self, event: Event) -> None:
        """Tell the listeners; never raises."""
        self._events.emit(event)

    def error(self, call: str, error: BaseException, job: str = "", slot: int = 0) -> None:
        """Tell the listeners that a call failed."""
        self.emit(Error(job=job, slot=slot, instance=self.name, call=call, error=error))

    async def sleep(self, delay_ms: float) -> None:
        """Sleep, whether the instance stops or not."""
        await asyncio.sleep(delay_ms / 1000)

    async def pause(self, delay_ms: float) -> bool:
        """Sleep, not longer than until the instance stops; whether it does."""
        try:
            async with asyncio.timeout(delay_ms / 1000):
                await self.stopping.wait()
        except TimeoutError:
            return False
        return True

    async def until_answered(
        self, call: str, ask: Callable[[], Awaitable[Answer]], job: str, slot: int, patience_ms: Callable[[], float]
    ) -> Answer | None:
        """The answer of ``ask``, asked again while it raises; None when patience is over or the instance stops."""
        try:
            return await ask()
        except Exception as error:  # noqa: BLE001 - whatever a backend raises is no answer
            self.error(call, error, job, slot)
        return await self.again(call, ask, job, slot, patience_ms())

    async def again(
        self, call: str, ask: Callable[[], Awaitable[Answer]], job: str, slot: int, patience_ms: float
    ) -> Answer | None:
        """Do what ``until_answered`` does, after a first failure."""
        delays, give_up_ms = Delays(self.rng), self.clock.monotonic_ms() + patience_ms
        while True:
            delay_ms = delays.next_ms()
            if self.clock.monotonic_ms() + delay_ms > give_up_ms or await self.pause(delay_ms):
                return None
            try:
                return await ask()
            except Exception as error:  # noqa: BLE001 - whatever a backend raises is no answer
                self.error(call, error, job, slot)


class Delays:
    """Growing, jittered delays between tries."""

    def __init__(self, rng: Random, longest_ms: float = _LONGEST_RETRY_MS) -> None:
        self._rng = rng
        self._longest_ms = longest_ms
        self._next_ms: float = _FIRST_RETRY_MS

    def next_ms(self) -> float:
        """How long to wait before the next try."""
        delay_ms = min(self._next_ms, self._longest_ms) * (0.5 + self._rng.random() / 2)
        self._next_ms *= 2
        return delay_ms
