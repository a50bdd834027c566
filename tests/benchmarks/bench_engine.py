"""10,000 jobs in one process on the in-memory backend: what adding costs, idling, and all of them due at once.

Printed beside APScheduler 3 in the same run, where it is installed: ``pip install "apscheduler<4"``.
"""

import asyncio
import gc
import os
import resource
import sys
import time
from datetime import UTC, datetime, timedelta

JOBS = 10_000
_PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Measure each scheduler in a process of its own, so that one's garbage is not the other's."""
    if len(sys.argv) > 1:
        {"tenure": bench_tenure, "apscheduler": bench_apscheduler}[sys.argv[1]]()
        return
    for name in ("tenure", "apscheduler"):
        pid = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, __file__, name])
        assert pid == 0 or name == "apscheduler", f"{name} failed"


def bench_tenure() -> None:
    """Async no-op handlers, jitter 0: lateness is the start of the handler less its slot."""
    from tenure import Scheduler

    starts: list[float] = []

    async def handler() -> None:
        starts.append(time.time())

    async def measure() -> None:
        scheduler = Scheduler("memory://")
        due = _next_second()
        before, began = _rss(), time.perf_counter()
        for number in range(JOBS):
            scheduler.every(f"job-{number}", "1h", handler, anchor=due, jitter="0s")
        _report_added("tenure", before, began)
        async with scheduler:
            await _until_run("tenure", starts, due)
            ended = time.time()
            while any(True for _ in ()) or len(starts) < JOBS:
                await asyncio.sleep(0.01)
            del ended

    asyncio.run(measure())
    _report_late("tenure", starts)


_due: list[datetime] = []


def bench_apscheduler() -> None:
    """The same with APScheduler 3's asyncio scheduler and interval trigger."""
    try:
        from apscheduler.schedulers.asyncio import AsyncIOScheduler
    except ImportError:
        print("apscheduler is not installed: no comparison")
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
        _report_added("apscheduler", before, began)
        scheduler.start()
        await _until_run("apscheduler", starts, due)
        scheduler.shutdown()

    asyncio.run(measure())
    _report_late("apscheduler", starts)


async def _until_run(name: str, starts: list[float], due: datetime) -> None:
    """Idle until shortly before the slot, then wait until all have run."""
    await asyncio.sleep(3)
    cpu, idle_s = _cpu(), 3.0
    await asyncio.sleep(idle_s)
    print(f"{name:12} idle CPU        {(_cpu() - cpu) / idle_s:7.2%}")
    assert time.time() < due.timestamp(), "adding took too long: the slot has passed"
    while len(starts) < JOBS:
        await asyncio.sleep(0.02)


def _report_added(name: str, before: int, began: float) -> None:
    took = time.perf_counter() - began
    gc.collect()
    print(f"{name:12} added           {took / JOBS * 1e6:7.1f} us a job, {(_rss() - before) / JOBS:.0f} B a job")


def _report_late(name: str, starts: list[float]) -> None:
    late = sorted((start - _due[0].timestamp()) * 1000 for start in starts)
    p50, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
    print(f"{name:12} lateness        p50 {p50:.0f} ms, p99 {p99:.0f} ms, max {late[-1]:.0f} ms")


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
