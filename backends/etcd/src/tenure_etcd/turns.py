"""Lets the changes of one job take turns, so that one process does not race itself; other jobs do not wait."""

import asyncio


class Turns:
    """A lock for each name that is in use, and none for the others."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    def of(self, name: str) -> "_Turn":
        """Wait for the name's turn, and have it until the context is left."""
        turn = self._turns.get(name)
        if turn is None:
            turn = self._turns[name] = _Turn(self._turns, name)
        return turn


class _Turn:
    def __init__(self, turns: "dict[str, _Turn]", name: str) -> None:
        self._turns = turns
        self._name = name
        self._lock = asyncio.Lock()
        self._users = 0

    async def __aenter__(self) -> None:
        self._users += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
        self._leave()

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            del self._turns[self._name]
