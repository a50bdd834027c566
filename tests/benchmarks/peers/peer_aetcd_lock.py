# /// script
# requires-python = ">=3.11"
# dependencies = ["aetcd==1.0.0", "grpcio==1.85.3"]
# ///
"""aetcd's Lock: a key on a lease of etcd that its holder must refresh; no schedule, no runs, no history."""

import asyncio
from urllib.parse import urlsplit

import aetcd
from measure import LEASE_S, hold, in_turns, main, rate, say


def _client(url: str) -> aetcd.Client:
    parts = urlsplit(url)
    return aetcd.Client(host=parts.hostname, port=parts.port)


async def cycle(url: str) -> dict:
    async with _client(url) as client:
        return await in_turns(1_500, ping=lambda: client.get(b"nothing"), cycle=lambda: _locked(client, b"one"))


async def runs(url: str) -> dict:
    async with _client(url) as client:
        return await rate(lambda number: _locked(client, b"lock %d" % number), 5_000)


async def _locked(client: aetcd.Client, name: bytes) -> None:
    lock = client.lock(name, ttl=30)
    assert await lock.acquire()
    await lock.release()


async def worker(url: str, name: str) -> None:
    """Wait for the lock, then do the work while its lease is refreshed three times per time to live."""
    async with _client(url) as client:
        lock = client.lock(name.encode(), ttl=LEASE_S)
        say("ready")
        await lock.acquire(timeout=None)
        work = asyncio.create_task(hold())
        while not work.done():
            await asyncio.sleep(LEASE_S / 3)
            await lock.refresh()


if __name__ == "__main__":
    main(cycle=cycle, runs=runs, worker=worker)
