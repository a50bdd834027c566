"""What a handler is given: its run, and a signal that tells it to stop."""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from tenure.duration import Duration, to_ms
from tenure.errors import SchedulerStateError
from tenure.model import Mode, Overlap

SignalReason = Literal["stop", "timeout", "lost"]
FenceScope = Literal["job", "run"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_lock = threading.Lock()  # of all signals: each is set once, and held for an instant


class Signal:
    """Tells one attempt's handler to stop; usable from threads and tasks. The first reason stays."""

    __slots__ = ("_reason", "_waiters")

    def __init__(self) -> None:
        self._reason: SignalReason | None = None
        self._waiters: list[Callable[[], object]] | None = None

    @property
    def reason(self) -> SignalReason | None:
        """``stop`` (the scheduler stops), ``timeout``, ``lost`` (the lease); None while the handler may go on."""
        return self._reason

    def is_set(self) -> bool:
        """Whether the handler should stop."""
        return self._reason is not None

    def wait(self, timeout: Duration | None = None) -> bool:
        """Block this thread until the signal is set or the timeout is over; True if it is set.

        Raises SchedulerStateError where that would block an event loop.
        """
        if _in_a_loop():
            raise SchedulerStateError(
                "signal.wait() would block the event loop; use `await signal.wait_async()`, or look at signal.is_set() "
                "now and then (a sync handler in virtual time runs on the loop, too)"
            )
        event = threading.Event()
        self._when_set(event.set)
        try:
            return event.wait(None if timeout is None else to_ms(timeout, "timeout") / 1000)
        finally:
            self._forget(event.set)

    async def wait_async(self) -> SignalReason:
        """Wait in a task until the signal is set; gives its reason."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop was closed with this wait in it
                loop.call_soon_threadsafe(event.set)

        self._when_set(wake)
        try:
            await event.wait()
        finally:
            self._forget(wake)
        assert self._reason is not None
        return self._reason

    def set(self, reason: SignalReason) -> None:
        """Set the signal, which the scheduler does; a second reason is ignored."""
        with _lock:
            if self._reason is not None:
                return
            self._reason = reason
            waiters = self._waiters or ()
            self._waiters = None
        for waiter in waiters:
            waiter()

    def _when_set(self, waiter: Callable[[], object]) -> None:
        with _lock:
            if self._reason is None:
                self._waiters = [*(self._waiters or ()), waiter]
                return
        waiter()

    def _forget(self, waiter: Callable[[], object]) -> None:
        """A handler may wait with a timeout again and again: what waits no more is not kept."""
        with _lock:
            if self._waiters and waiter in self._waiters:
                self._waiters.remove(waiter)


@dataclass(frozen=True, slots=True)
class Context:
    """One attempt of one run, as its handler sees it."""

    job: str
    slot_ms: int
    """The slot, in milliseconds since the Unix epoch."""
    attempt: int
    fence: int
    """Greater at each new attempt; 0 on a claim-only backend, which has none."""
    mode: Mode
    instance: str
    overlap: Overlap
    signal: Signal = field(default_factory=Signal)

    @property
    def slot(self) -> datetime:
        """The instant the run is due, aware, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.slot_ms)

    @property
    def fence_scope(self) -> FenceScope:
        """What fences are compared within: all runs of the job under ``skip``, this run alone under ``allow``."""
        return "job" if self.overlap == "skip" else "run"


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _unlock() -> None:
    """In a forked child: the lock may have been held by a thread that stayed in the parent."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)
