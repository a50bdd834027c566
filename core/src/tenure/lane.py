"""The line in which runs wait for their claim: a store is not asked for thousands at once."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from tenure.instance import Instance
from tenure.job import Job
from tenure.model import Mode

WIDTH = 64
"""So many claims are on their way at once; more would wait in the client or in the store."""
_TURN = 1_000
"""After so many claims that a backend answered without waiting, others of the loop have their turn."""

Run = Callable[[Job, int, Mode], Awaitable[None]]


class Lane:
    """Claims runs in the order they came. A burst of them costs a few tasks, not one for each."""

    def __init__(self, instance: Instance, run: Run) -> None:
        self._instance = instance
        self._run = run
        self._waiting: deque[tuple[Job, int, Mode]] = deque()
        self._workers = 0

    def put(self, job: Job, slot: int, mode: Mode) -> None:
        """Claim the run soon; never once the instance stops."""
        self._waiting.append((job, slot, mode))
        if self._workers < WIDTH:
            self._workers += 1
            self._instance.spawn(self._work())

    async def _work(self) -> None:
        claimed = 0
        try:
            while self._waiting and not self._instance.stopping.is_set():
                await self._run(*self._waiting.popleft())
                claimed += 1
                if claimed % _TURN == 0:
                    await asyncio.sleep(0)
        finally:
            self._workers -= 1
