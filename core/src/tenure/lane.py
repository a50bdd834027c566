"""The line in which runs wait for their claim: a store is not asked for thousands at once."""

import asyncio
import gc
from collections import deque
from collections.abc import Awaitable, Callable

from tenure.instance import Instance
from tenure.job import Job
from tenure.model import Mode

WIDTH = 64
"""So many claims are on their way at once; more would wait in the client or in the store."""
_TURN = 1_000
"""After so many claims that a backend answered without waiting, others of the loop have their turn."""

_BURST = 1_000
_COLLECTOR_PAUSE_S = 0.5
"""So many runs at once make objects by the hundred thousand, nearly all of them in use: looking through them for
garbage, again and again, costs half as much as starting the runs. It is put off for this long."""

Run = Callable[[Job, int, Mode], Awaitable[None]]


class Lane:
    """Claims runs in the order they came. A burst of them costs a few tasks, not one for each."""

    def __init__(self, instance: Instance, run: Run) -> None:
        self._instance = instance
        self._run = run
        self._waiting: deque[tuple[Job, int, Mode]] = deque()
        self._workers = 0
        self._collector_pauses = False

    def put(self, job: Job, slot: int, mode: Mode) -> None:
        """Claim the run soon; never once the instance stops."""
        self._waiting.append((job, slot, mode))
        if len(self._waiting) == _BURST:
            self._pause_collector()
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

    def close(self) -> None:
        """Leave nothing behind."""
        self._resume_collector()

    def _pause_collector(self) -> None:
        if gc.isenabled():
            gc.disable()
            self._collector_pauses = True
            asyncio.get_running_loop().call_later(_COLLECTOR_PAUSE_S, self._resume_collector)

    def _resume_collector(self) -> None:
        if self._collector_pauses:
            self._collector_pauses = False
            gc.enable()
