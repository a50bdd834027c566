"""10,000 jobs in one process on the in-memory backend: what adding costs, idling, and all of them due at once.

Printed beside APScheduler 3 in the same run, where it is installed: ``pip install "apscheduler<4"``.
"""

import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

JOBS = 10_000
_PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Measure each scheduler in a process of its own, so that one's garbage is not the other's; print the ratios."""
    if len(sys.argv) > 1:
        {"tenure": bench_tenure, "apscheduler": bench_apscheduler}[sys.argv[1]]()
        print(json.dumps(_figures))
        return
    ours, theirs = figures("tenure"), figures("apscheduler")
    for name, value in ours.items():
        ratio = f"{value / theirs[name]:6.2f} of APScheduler 3's" if theirs.get(name) else ""
        print(f"{name:32} {value:8.1f} {ratio}")


def figures(name: str) -> dict[str, float]:
    """What a scheduler measured; nothing for a peer that is not installed."""
    run = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=False)
    assert run.returncode == 0 or name != "tenure", run.stderr
    return json.loads(run.stdout) if run.returncode == 0 else {}


_figures: dict[str, float] = {}


def bench_tenure() -> None:
    """Async no-op handlers, jitter 0: lateness is the start of the handler less its slot."""
    from tenure import MemoryBackend, Scheduler

    starts: list[float] = []

    async def handler() -> None:
        starts.append(time.time())

    async def measure() -> None:
        backend = MemoryBackend()
        scheduler = Scheduler(backend)
        due = _next_second()
        before, began = _rss(), time.perf_counter()
        for number in range(JOBS):
            scheduler.every(f"job-{number}", "1h", handler, anchor=due, jitter="0s")
        _report_added(before, began)
        async with scheduler:
            await _until_run(starts, due)
            while any(state.unfinished for state in list(backend.store.states.values())):
                await asyncio.sleep(0.02)
            _figures["all ended after, ms"] = (time.time() - due.timestamp()) * 1000

    asyncio.run(measure())
    _report_late(starts)


_due: list[datetime] = []


def bench_apscheduler() -> None:
    """The same with APScheduler 3's asyncio scheduler and interval trigger."""
    try:
        from apscheduler.schedulers.asyncio import AsyncIOScheduler
    except ImportError:
        print("apscheduler is not installed: no comparison", file=sys.stderr)
        sys.exit(1)
    starts: list[float] = []

    async def handler() -> None:
        starts.append(time.time())

    async def measure() -> None:
        scheduler = AsyncIOScheduler(timezone=UTC)
        due = _next_second()
        before, began = _rss(), time.perf_counter()
        for _ in range(JOBS):
            scheduler.add_job(handler, "interval", hours=1, start_date=due, misfire_grace_time=60)
        _report_added(before, began)
        scheduler.start()
        await _until_run(starts, due)
        scheduler.shutdown()

    asyncio.run(measure())
    _report_late(starts)


async def _until_run(starts: list[float], due: datetime) -> None:
    """Idle until shortly before the slot, then wait until all have run."""
    await asyncio.sleep(3)
    cpu, idle_s = _cpu(), 3.0
    await asyncio.sleep(idle_s)
    _figures["idle CPU, %"] = (_cpu() - cpu) / idle_s * 100
    assert time.time() < due.timestamp(), "adding took too long: the slot has passed"
    while len(starts) < JOBS:
        await asyncio.sleep(0.02)


def _report_added(before: int, began: float) -> None:
    took = time.perf_counter() - began
    gc.collect()
    _figures["added, us a job"] = took / JOBS * 1e6
    _figures["memory, B a job"] = (_rss() - before) / JOBS


def _report_late(starts: list[float]) -> None:
    late = sorted((start - _due[0].timestamp()) * 1000 for start in starts)
    _figures["lateness of the start, p50 ms"] = late[len(late) // 2]
    _figures["lateness of the start, p99 ms"] = late[len(late) * 99 // 100]


def _next_second() -> datetime:
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=12)
    _due.append(due)
    return due


def _rss() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * _PAGE


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
