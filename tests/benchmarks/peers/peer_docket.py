# /// script
# requires-python = ">=3.11"
# dependencies = ["pydocket==0.27.0", "redis[hiredis]==8.1.0"]
# ///
"""docket: tasks on streams of Redis, each added by its key once, taken by workers in groups of consumers."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import uuid4

from docket import Docket, Worker
from measure import LEASE_S, WIDTH, Ended, hold, in_turns, main, say, through_worker

QUICK = {"minimum_check_interval": timedelta(milliseconds=5), "scheduling_resolution": timedelta(milliseconds=50)}
"""How often a worker whose hands are full looks for more: 250 ms unless told."""

ended = Ended()


async def noop() -> None:
    ended.one()


async def asked(url: str) -> dict:
    """Added to an idle worker, until the handler has run."""

    async def added() -> None:
        await asyncio.gather(ended.more(1), docket.add(noop)())

    async with _working(url, **QUICK) as docket:
        return await in_turns(500, asked=added)


async def runs(url: str) -> dict:
    async with _working(url, concurrency=WIDTH, **QUICK) as docket:
        return await through_worker(ended, lambda: docket.add(noop)(), 2_000)


async def runs_by_default(url: str) -> dict:
    async with _working(url) as docket:
        return await through_worker(ended, lambda: docket.add(noop)(), 200)


async def waiting(url: str) -> dict:
    """The same when all of them were added before the worker came."""
    async with Docket(name=uuid4().hex, url=url) as docket:
        for _ in range(2_000):
            await docket.add(noop)()
        async with Worker(docket, concurrency=WIDTH, **QUICK) as worker:
            return await ended.drained(worker.run_forever(), 2_000)


@asynccontextmanager
async def _working(url: str, **settings: object):
    async with (
        Docket(name=uuid4().hex, url=f"{url}?max_connections=500") as docket,
        Worker(docket, **settings) as worker,
    ):
        working = asyncio.create_task(worker.run_forever())
        try:
            yield docket
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


async def worker(url: str, name: str) -> None:
    async with Docket(name=name, url=url) as docket:
        docket.register(hold)
        async with Worker(docket, redelivery_timeout=timedelta(seconds=LEASE_S)) as worker:
            working = asyncio.create_task(worker.run_forever())
            say("ready")
            if await asyncio.to_thread(input) == "begin":
                await docket.add(hold)()
            await working


if __name__ == "__main__":
    main(asked=asked, runs=runs, runs_by_default=runs_by_default, waiting=waiting, worker=worker)
