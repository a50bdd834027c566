"""What the scripts of the peers share, with the standard library alone: each measure is a function that gives JSON."""

import asyncio
import gc
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable

IN_A_ROW = 10
"""Calls of a kind that follow each other, before those of the next kind: a busy moment falls on all of them."""
WIDTH = 50
"""Runs at a time, where many are measured."""
WARM_UP = 50
LEASE_S = 2
"""For takeovers: how long a holder that is silent keeps its run."""
BEFORE_S = 0.5
"""How long before a burst the memory is looked at: what the start took is given back."""
NEVER_ENDS_S = 3_600
"""How long the handler takes whose process is killed."""


def main(**measures: Callable) -> None:
    """Take the measure that the command line names, with the arguments that follow."""
    name, *arguments = sys.argv[1:]
    answer = measures[name](*arguments)
    print(json.dumps(asyncio.run(answer) if asyncio.iscoroutine(answer) else answer), flush=True)


async def in_turns(count: int, **actions: Callable[[], Awaitable]) -> dict:
    """Milliseconds of each action."""
    times = {name: [] for name in actions}
    for _ in range((count + WARM_UP) // IN_A_ROW):
        for name, action in actions.items():
            for _ in range(IN_A_ROW):
                started = time.perf_counter()
                await action()
                times[name].append((time.perf_counter() - started) * 1_000)
    return {name: spread(taken[WARM_UP:]) for name, taken in times.items()}


def spread(values: list[float]) -> dict:
    at = statistics.quantiles(values, n=100)
    return {"p50": at[49], "p99": at[98], "max": max(values), "count": len(values)}


async def rate(cycle: Callable[[int], Awaitable], count: int) -> dict:
    """Cycles a second of so many tasks at once, each of which begins its next one when the last has ended."""

    async def task(number: int) -> None:
        for _ in range(count // WIDTH):
            await cycle(number)

    await cycle(0)
    started = time.perf_counter()
    await asyncio.gather(*(task(number) for number in range(WIDTH)))
    return {"per_s": count // WIDTH * WIDTH / (time.perf_counter() - started)}


class Ended:
    """Counts the handlers that have ended, and says when it was the last of those that are waited for."""

    def __init__(self) -> None:
        self.count = 0
        self._wanted = 0
        self._all = asyncio.Event()

    def one(self) -> None:
        self.count += 1
        if self.count == self._wanted:
            self._all.set()

    async def more(self, count: int, within_s: float = 60) -> None:
        """Wait until so many more have ended than had when this was called."""
        await self.reach(self.count + count, within_s)

    async def reach(self, count: int, within_s: float = 60) -> None:
        if self.count >= count:
            return
        self._wanted = count
        self._all.clear()
        await asyncio.wait_for(self._all.wait(), within_s)

    async def drained(self, work: Awaitable, count: int, within_s: float = 60) -> dict:
        """Runs a second of a worker that begins when so many wait, until the last has ended."""
        started = time.perf_counter()
        working = asyncio.ensure_future(work)
        await self.reach(self.count + count, within_s)
        took_s = time.perf_counter() - started
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return {"per_s": count / took_s}


async def through_worker(ended: Ended, add: Callable[[], Awaitable], count: int) -> dict:
    """Runs a second of a queue whose worker runs: added by so many tasks, until the last has ended."""

    async def adder() -> None:
        for _ in range(count // WIDTH):
            await add()

    await asyncio.gather(ended.more(1), add())
    already, total = ended.count, count // WIDTH * WIDTH
    started = time.perf_counter()
    await asyncio.gather(*(adder() for _ in range(WIDTH)))
    await ended.reach(already + total)
    return {"per_s": total / (time.perf_counter() - started)}


# Takeover: who runs it reads these words


def say(word: str) -> None:
    print(f"{word} {time.time()}", flush=True)


async def hold() -> None:
    """The handler whose process is killed, and then that of the one that takes over."""
    say("run")
    await asyncio.sleep(NEVER_ENDS_S)


# Ten thousand jobs due in one second, without a store


class Burst:
    """Lateness, start and memory of jobs that are all due at one moment; memory only where Python traces it."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.late_ms: list[float] = []
        self._done = asyncio.Event()
        self._begun = time.perf_counter()
        self._memory = _traced_bytes()
        self.due = float(int(time.time()) + 3 + jobs // 2_000)

    async def handler(self) -> None:
        self.late_ms.append((time.time() - self.due) * 1_000)
        if len(self.late_ms) == self.jobs:
            self._done.set()

    async def figures(self) -> dict:
        """To be awaited when all jobs are there and the scheduler runs."""
        start_s = time.perf_counter() - self._begun
        before_s = self.due - time.time() - BEFORE_S
        assert before_s > 0, "it was due before it was there"
        await asyncio.sleep(before_s)
        memory = _traced_bytes() - self._memory
        await asyncio.wait_for(self._done.wait(), self.due - time.time() + 60)
        late_ms = spread(self.late_ms)
        assert min(self.late_ms) >= 0, "one came early"
        return {"start_s": start_s, "bytes_per_job": memory / self.jobs, "late_ms": late_ms}


def _traced_bytes() -> int:
    if tracemalloc.is_tracing():
        gc.collect()
    return tracemalloc.get_traced_memory()[0]
