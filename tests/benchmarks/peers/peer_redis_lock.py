# /// script
# requires-python = ">=3.11"
# dependencies = ["redis[hiredis]==8.1.0"]
# ///
"""redis-py's Lock: a lock with a timeout that its holder must extend; no schedule, no runs, no history."""

import asyncio

from measure import LEASE_S, hold, in_turns, main, rate, say
from redis.asyncio import Redis


async def cycle(url: str) -> dict:
    async with Redis.from_url(url) as client:
        return await in_turns(3_000, ping=client.ping, cycle=lambda: _locked(client, "one"))


async def runs(url: str) -> dict:
    async with Redis.from_url(url) as client:
        return await rate(lambda number: _locked(client, f"lock {number}"), 10_000)


async def _locked(client: Redis, name: str) -> None:
    lock = client.lock(f"bench:{name}", timeout=30)
    assert await lock.acquire(blocking=False)
    await lock.release()


async def worker(url: str, name: str) -> None:
    """Wait for the lock, then do the work while it is extended three times per timeout."""
    async with Redis.from_url(url) as client:
        lock = client.lock(f"bench:{name}", timeout=LEASE_S)
        say("ready")
        await lock.acquire()
        work = asyncio.create_task(hold())
        while not work.done():
            await asyncio.sleep(LEASE_S / 3)
            await lock.reacquire()


if __name__ == "__main__":
    main(cycle=cycle, runs=runs, worker=worker)
