"""Tells a loop that a backend blocks from one that the machine does not let run."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

STEP_S = 0.005


class _Ticks(threading.Thread):
    """Remembers how late it woke, each time: the machine's own delays."""

    def __init__(self) -> None:
        super().__init__(name="tenure-conformance-ticks", daemon=True)
        self.late: list[tuple[float, float]] = []
        self.over = threading.Event()

    def run(self) -> None:
        """Tick until it is over."""
        while not self.over.is_set():
            begun = time.monotonic()
            time.sleep(STEP_S)
            self.late.append((begun, time.monotonic()))

    def late_ms(self, begin: float, end: float) -> float:
        """All the delays that fell between two moments."""
        return 1_000 * sum(stop - start - STEP_S for start, stop in self.late if stop > begin and start < end)


async def longest_block(work: Callable[[], Awaitable[None]]) -> float:
    """For how many milliseconds the loop stood still at most, less what a thread beside it was kept waiting too."""
    ticks, spans = _Ticks(), list[tuple[float, float]]()

    async def look() -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(STEP_S)
            spans.append((begun, time.monotonic()))

    ticks.start()
    task = asyncio.create_task(look())
    try:
        await work()
        await asyncio.sleep(2 * STEP_S)
    finally:
        ticks.over.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(ticks.join)
    blocked = [1_000 * (end - begin - STEP_S) - ticks.late_ms(begin, end) for begin, end in spans]
    return max(0.0, *blocked)
