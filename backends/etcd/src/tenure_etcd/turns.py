"""Lets the changes of one job take turns, so that one process does not race itself; other jobs do not wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """A lock for each name that is in use, and none for the others."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Wait for the name's turn, and have it until the context is left."""
        lock, users = self._locks.get(name) or (asyncio.Lock(), 0)
        self._locks[name] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(name)
            if users > 1:
                self._locks[name] = lock, users - 1
