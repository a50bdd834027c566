"""tenure, measured as its peers are: ``python tests/benchmarks/peers/ours.py runs redis://…``."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from itertools import cycle as cycle_of
from urllib.parse import urlsplit
from uuid import uuid4

from measure import LEASE_S, WIDTH, Burst, Ended, hold, in_turns, main, rate, say
from tenure import Scheduler, connect
from tenure.model import Claim, new_token
from tenure.protocol import Backend

FIRST = 1_700_000_000_000


async def cycle(url: str) -> dict:
    """One slot claimed and finished, each slot's run of the same job."""
    slots = count(FIRST)
    async with AsyncExitStack() as stack:
        ping = await stack.enter_async_context(PINGS[urlsplit(url).scheme](url))
        backend = await stack.enter_async_context(connect(url, namespace=f"bench-{uuid4().hex}"))
        return await in_turns(3_000, ping=ping, cycle=lambda: _claimed(backend, next(slots)))


async def _claimed(backend: Backend, slot: int) -> None:
    claim = Claim(
        job="sync",
        slot=slot,
        token=new_token(),
        instance="bench-host-12345-abcdef",
        lease_ms=30_000,
        mode="manual",
        overlap="skip",
        max_attempts=3,
        max_late_ms=None,
    )
    assert (await backend.claim(claim)).outcome == "won"
    assert await backend.finish("sync", slot, claim.token, "success")


async def asked(url: str) -> dict:
    """From a trigger until the run's end is told, of one job after another: each needs a millisecond of its own."""
    numbers = cycle_of(range(WIDTH))
    async with _running(url) as run:
        return await in_turns(500, asked=lambda: run(next(numbers)))


async def runs(url: str) -> dict:
    """The same, of many jobs at once."""
    async with _running(url) as run:
        return await rate(run, 5_000)


@asynccontextmanager
async def _running(url: str):
    """A scheduler, and what triggers one of its jobs and waits for the run's end."""
    loop = asyncio.get_running_loop()
    ended = {f"job {number}": asyncio.Event() for number in range(WIDTH)}

    def listen(event: object) -> None:
        if event.kind == "success":
            loop.call_soon_threadsafe(ended[event.job].set)

    async def run(number: int) -> None:
        ended[f"job {number}"].clear()
        assert (await scheduler.trigger(f"job {number}")).outcome == "won"
        await ended[f"job {number}"].wait()

    scheduler = Scheduler(connect(url, namespace=f"bench-{uuid4().hex}"), on_event=listen)
    for name in ended:
        scheduler.every(name, "1h", _nothing)
    async with scheduler:
        yield run


async def waiting(url: str, jobs: int = 2_000) -> dict:
    """Runs a second of so many jobs with one slot, from the slot until the last has ended."""
    loop, ended = asyncio.get_running_loop(), Ended()
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4)

    def listen(event: object) -> None:
        if event.kind == "success":
            loop.call_soon_threadsafe(ended.one)

    scheduler = Scheduler(connect(url, namespace=f"bench-{uuid4().hex}"), on_event=listen)
    for number in range(jobs):
        scheduler.every(f"job {number}", "1h", _nothing, anchor=due, jitter="0s", max_late=None)
    async with scheduler:
        await ended.reach(jobs)
        return {"per_s": jobs / (datetime.now(UTC) - due).total_seconds()}


async def _nothing() -> None:
    pass


async def worker(url: str, name: str) -> None:
    scheduler = Scheduler(connect(url, namespace=name))
    scheduler.every("job", "1h", hold, lease=f"{LEASE_S}s", timeout=None)
    async with scheduler:
        say("ready")
        if await asyncio.to_thread(input) == "begin":
            await scheduler.trigger("job")
        await asyncio.Event().wait()


async def burst(jobs: str) -> dict:
    """Jobs in memory, all due in one second."""
    measured = Burst(int(jobs))
    scheduler = Scheduler("memory://")
    due = datetime.fromtimestamp(measured.due, UTC)
    for number in range(measured.jobs):
        scheduler.every(f"job {number}", "1h", measured.handler, anchor=due, jitter="0s")
    async with scheduler:
        return await measured.figures()


# What the same client needs for a call that asks for nothing


@asynccontextmanager
async def _redis(url: str):
    from redis.asyncio import Redis

    async with Redis.from_url(url) as client:
        yield client.ping


@asynccontextmanager
async def _postgres(url: str):
    from psycopg_pool import AsyncConnectionPool

    async def ping() -> None:
        async with pool.connection() as connection:
            await (await connection.execute("select 1")).fetchone()

    async with AsyncConnectionPool(url, min_size=1, kwargs={"autocommit": True}, open=False) as pool:
        yield ping


@asynccontextmanager
async def _etcd(url: str):
    import aetcd

    parts = urlsplit(url)
    async with aetcd.Client(host=parts.hostname, port=parts.port) as client:
        yield lambda: client.get(b"nothing")


PINGS = {"redis": _redis, "postgresql": _postgres, "etcd": _etcd}

if __name__ == "__main__":
    main(cycle=cycle, asked=asked, runs=runs, waiting=waiting, worker=worker, burst=burst)
