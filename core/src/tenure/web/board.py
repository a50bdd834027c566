"""What the page knows, in parts with revisions: a browser is told only what it has not seen."""

import asyncio
from contextlib import suppress
from typing import Any

Message = dict[str, Any]


class Board:
    """Parts by name; used in one event loop.

    A browser that is slow, or was away, misses states in between and never the latest one. Nothing is queued for it.
    """

    def __init__(self) -> None:
        self.revision: int = 0
        self._parts: dict[str, tuple[int, Any]] = {}
        self._changed = asyncio.Event()
        self.closed: bool = False

    def close(self) -> None:
        """Let those who wait go."""
        self.closed = True
        self._tell()

    def put(self, name: str, value: Any) -> None:
        """Set a part; one that stays the same is no news."""
        known = self._parts.get(name)
        if known is None or known[1] != value:
            self.revision += 1
            self._parts[name] = self.revision, value
            self._tell()

    def drop(self, name: str) -> None:
        """Forget a part; those who have seen it are not told."""
        self._parts.pop(name, None)

    def clear(self) -> None:
        """Forget all; revisions go on."""
        self._parts.clear()

    def since(self, revision: int) -> Message:
        """The parts that are newer than the revision, by name."""
        return {name: value for name, (changed, value) in self._parts.items() if changed > revision}

    async def later(self, revision: int, timeout_s: float) -> None:
        """Wait for what is newer than the revision, for so long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.revision <= revision and not self.closed:
                    await self._changed.wait()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
