"""Asks the store all the time whether it is there, so that nobody is blamed for its absence; and looks for stalls."""

import asyncio
import threading
import time
from contextlib import suppress

from tenure import BackendError, connect
from tenure.protocol import LeaseBackend
from tenure_conformance.timing import monotonic_ms

from .evidence import Span, merged

_PAUSE_S = 0.05
_TICK_S = 0.02
STALL_MS = 60
SLOW_MS = 100
"""An answer that takes longer is told."""


class Probe:
    """A thread with a client of its own; ``away`` and ``stalls`` are what it saw."""

    def __init__(self, url: str, namespace: str) -> None:
        self._url, self._namespace = url, namespace
        self._ended = threading.Event()
        self._away: list[Span] = []
        self.stalls: list[Span] = []
        self._threads = [threading.Thread(target=work) for work in (self._work, self._tick)]

    def __enter__(self) -> "Probe":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    @property
    def away(self) -> list[Span]:
        """When the store was not there, or slow."""
        return merged(self._away)

    def _work(self) -> None:
        asyncio.run(self._ask_all_the_time())

    async def _ask_all_the_time(self) -> None:
        while not self._ended.is_set():
            begin = monotonic_ms()
            with suppress(BackendError):
                backend = connect(self._url, namespace=self._namespace)
                async with backend:
                    await self._ask(backend)
            if not self._ended.is_set():
                self._away.append(Span(begin, monotonic_ms()))
                await asyncio.sleep(_PAUSE_S)

    async def _ask(self, backend: LeaseBackend) -> None:
        """A heartbeat of nobody: it goes the way of a write and writes nothing."""
        failed = False
        while not self._ended.is_set():
            begin = monotonic_ms()
            try:
                await backend.heartbeat("probe", 0, "nobody")
                failed = False
            except BackendError:
                failed = True
            if failed or monotonic_ms() - begin > SLOW_MS:
                self._away.append(Span(begin - _PAUSE_S * 1000, monotonic_ms() + _PAUSE_S * 1000))
            await asyncio.sleep(_PAUSE_S)

    def _tick(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(_TICK_S):
            now = time.monotonic()
            if (now - before - _TICK_S) * 1000 > STALL_MS:
                self.stalls.append(Span(before * 1000, now * 1000))
            before = time.monotonic()
