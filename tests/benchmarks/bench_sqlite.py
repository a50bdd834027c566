"""The SQLite backend next to the bare minimum of the same promises, in one run: python tests/benchmarks/bench_sqlite.py

Raw is what a program without leases would do: one insert per claim and one update per finish, each a transaction.
"""

import argparse
import asyncio
import os
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

from tenure.model import Claim, new_token
from tenure_sqlite import SqliteBackend

FIRST = 1_700_000_000_000


def claim(slot, job="sync", overlap="skip", token=None):
    return Claim(
        job=job,
        slot=slot,
        token=token or new_token(),
        instance="bench-host-12345-abcdef",
        lease_ms=30_000,
        mode="manual",
        overlap=overlap,
        max_attempts=3,
        max_late_ms=None,
    )


class Raw:
    """One connection, no thread, no lease: insert the claim, update it."""

    def __init__(self, path, synchronous):
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("pragma journal_mode=wal")
        self._connection.execute(f"pragma synchronous={synchronous}")
        self._connection.execute("create table raw (job, slot, token, status, primary key (job, slot)) without rowid")

    def cycle(self, slot):
        execute = self._connection.execute
        token = new_token()
        execute("insert into raw values ('sync', ?, ?, 'open') on conflict do nothing", (slot, token))
        execute("update raw set status = 'success' where job = 'sync' and slot = ? and token = ?", (slot, token))

    def close(self):
        self._connection.close()


def timed(action, count):
    """Milliseconds of each of ``count`` calls."""
    times = []
    for number in range(count):
        started = time.perf_counter()
        action(FIRST + number)
        times.append((time.perf_counter() - started) * 1_000)
    return times


async def timed_async(action, count, first=FIRST):
    times = []
    for number in range(count):
        started = time.perf_counter()
        await action(first + number)
        times.append((time.perf_counter() - started) * 1_000)
    return times


async def cycle(backend, slot, job="sync", overlap="skip"):
    request = claim(slot, job, overlap)
    assert (await backend.claim(request)).outcome == "won"
    assert await backend.finish(job, slot, request.token, "success")


async def beat(backend, held):
    assert await backend.heartbeat(held.job, held.slot, held.token)


async def rate(backend, tasks, count):
    """Cycles a second of that many tasks at once, each a job of its own."""
    started = time.perf_counter()

    async def task(number):
        for slot in range(FIRST, FIRST + count // tasks):
            await cycle(backend, slot, f"job {number} of {tasks}")

    await asyncio.gather(*[task(number) for number in range(tasks)])
    return count / (time.perf_counter() - started)


def show(name, times, base=None):
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    ratio = f"{p50 / base:6.2f} x raw" if base else ""
    print(f"  {name:42} p50 {p50:7.3f} ms   p99 {p99:7.3f} ms   {ratio}")
    return p50


async def bench(directory, synchronous, count):
    print(f"synchronous={synchronous}")
    raw = Raw(directory / f"raw-{synchronous}.db", synchronous)
    base = show("raw claim + finish", timed(raw.cycle, count))
    threaded = await timed_async(lambda slot: asyncio.to_thread(raw.cycle, slot + count), count)
    show("raw claim + finish, one hop to a thread", threaded, base)
    raw.close()
    path = directory / f"tenure-{synchronous}.db"
    async with SqliteBackend(path, synchronous=synchronous) as backend, SqliteBackend(path) as other:
        show("claim + finish", await timed_async(lambda slot: cycle(backend, slot), count), base)
        allowed = await timed_async(lambda slot: cycle(backend, slot, "many", "allow"), count)
        show("claim + finish, overlap allowed (128 kept)", allowed, base)
        held = claim(FIRST + 10 * count)
        assert (await backend.claim(held)).outcome == "won"
        beats = await timed_async(lambda _: beat(backend, held), count)
        show("heartbeat", beats, base / 2)
        lost = await timed_async(lambda _: other.claim(claim(held.slot)), count)
        show("lost claim", lost, base / 2)
        jobs = [f"job {n} of 50" for n in range(50)]
        for tasks in (1, 50):
            print(f"  {tasks:2} tasks at once: {await rate(backend, tasks, count):8.0f} cycles/s")
        show("active of 50 jobs", await timed_async(lambda _: backend.active(jobs), count))


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--count", type=int, default=1_000)
    arguments.add_argument("--directory", type=Path, default=None, help="on the disk to measure")
    given = arguments.parse_args()
    print(f"SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        for synchronous in ("full", "normal"):
            asyncio.run(bench(Path(directory), synchronous, given.count))


if __name__ == "__main__":
    main()
