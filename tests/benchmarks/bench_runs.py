"""Whole runs a second through a scheduler (claim, handler, finish, result): python tests/benchmarks/bench_runs.py URL…

"due at once" is 10,000 jobs with one slot, claimed 64 at a time. "50 at a time" is 50 jobs, each triggered again as
soon as its run has ended; a trigger and the news of an end each cross to the scheduler's thread and back. The
in-memory store shows what the scheduler takes for itself.
"""

import argparse
import asyncio
import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from tenure import Scheduler, connect


async def due_at_once(url: str, jobs: int) -> dict[str, float]:
    """Milliseconds after the slot until the last run has started and ended, and runs a second."""
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4 + jobs // 10_000)
    started: list[float] = []
    ended: list[float] = []

    async def handler() -> None:
        started.append(time.time())

    scheduler = Scheduler(
        connect(url, namespace=f"bench-{uuid4().hex}"),
        on_event=lambda event: ended.append(time.time()) if event.kind == "success" else None,
    )
    for number in range(jobs):
        scheduler.every(f"job-{number}", "1h", handler, anchor=due, jitter="0s", max_late=None)
    async with scheduler:
        while len(ended) < jobs:
            assert time.time() < due.timestamp() + 120, f"{len(ended)} of {jobs} ended"
            await asyncio.sleep(0.02)
    slot = due.timestamp()
    return {
        "claimed, ms": (max(started) - slot) * 1_000,
        "ended, ms": (max(ended) - slot) * 1_000,
        "claims/s": jobs / (max(started) - slot),
        "runs/s": jobs / (max(ended) - slot),
    }


async def at_a_time(url: str, width: int, runs: int) -> dict[str, float]:
    """Runs a second of that many jobs, each triggered when its run before has ended."""
    loop = asyncio.get_running_loop()
    ended: dict[str, asyncio.Event] = {f"job-{number}": asyncio.Event() for number in range(width)}

    def listen(event: object) -> None:
        if event.kind == "success":
            loop.call_soon_threadsafe(ended[event.job].set)

    async def handler() -> None:
        pass

    scheduler = Scheduler(connect(url, namespace=f"bench-{uuid4().hex}"), on_event=listen)
    for name in ended:
        scheduler.every(name, "1h", handler)

    async def again_and_again(name: str) -> None:
        for _ in range(runs // width):
            ended[name].clear()
            await scheduler.trigger(name)
            await ended[name].wait()

    async with scheduler:
        await scheduler.trigger("job-0")
        await ended["job-0"].wait()
        begun = time.perf_counter()
        await asyncio.gather(*(again_and_again(name) for name in ended))
        return {"runs/s": runs // width * width / (time.perf_counter() - begun)}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("urls", nargs="*", metavar="URL")
    arguments.add_argument("--jobs", type=int, default=10_000)
    arguments.add_argument("--runs", type=int, default=10_000)
    given = arguments.parse_args()
    for url in ["memory://", *given.urls]:
        backend = str(connect(url))
        for name, figures in (
            ("due at once", asyncio.run(due_at_once(url, given.jobs))),
            ("50 at a time", asyncio.run(at_a_time(url, 50, given.runs))),
        ):
            shown = "   ".join(f"{value:8.0f} {unit}" for unit, value in figures.items())
            print(f"{backend:50} {name:13} {shown}")


if __name__ == "__main__":
    main()
