# /// script
# requires-python = ">=3.11"
# dependencies = ["pgqueuer==1.6.0", "asyncpg==0.32.0"]
# ///
"""PgQueuer: a queue in tables of Postgres, whose workers take jobs in batches, and a scheduler that fills it."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from uuid import uuid4

import asyncpg
from measure import LEASE_S, Ended, hold, in_turns, main, say, through_worker
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.queries import Queries

BATCH = 100
LEASE = timedelta(seconds=30)
ended = Ended()


@asynccontextmanager
async def _queries(url: str):
    """Over one connection, as its own worker has, with its tables there."""
    connection = await asyncpg.connect(url)
    try:
        queries = Queries(AsyncpgDriver(connection))
        if not await queries.schema_is_installed():
            await queries.install()
        yield queries
    finally:
        await connection.close()


@asynccontextmanager
async def _working(url: str, **settings: object):
    connection = await asyncpg.connect(url)
    worker = PgQueuer(AsyncpgDriver(connection))

    @worker.entrypoint("noop")
    async def noop(job):
        ended.one()

    running = asyncio.create_task(worker.run(**settings))
    try:
        yield
    finally:
        worker.shutdown.set()
        await running


async def cycle(url: str) -> dict:
    """A slot's job added once, taken, and written as ended, as its worker does for a batch."""
    slots, name, me = count(), f"cycle {uuid4().hex}", uuid4()
    async with _queries(url) as queries:

        async def slot() -> None:
            await queries.enqueue(name, None, dedupe_key=f"{name} {next(slots)}")
            (job,) = await queries.dequeue(1, {name: EntrypointExecutionParameter(0)}, me, None, LEASE)
            await queries.log_jobs([(job, "successful", None)])

        return await in_turns(1_000, ping=lambda: queries.driver.fetch("select 1"), cycle=slot)


async def asked(url: str) -> dict:
    """Added to an idle worker, until the handler has run."""

    async def added() -> None:
        await asyncio.gather(ended.more(1), queries.enqueue("noop", None))

    async with _queries(url) as queries, _working(url):
        return await in_turns(500, asked=added)


async def runs(url: str) -> dict:
    """Added one by one over a pool, to a worker that runs."""
    async with _queries(url), asyncpg.create_pool(url, min_size=8, max_size=8) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        async with _working(url, batch_size=BATCH):
            return await through_worker(ended, lambda: queries.enqueue("noop", None), 5_000)


async def waiting(url: str) -> dict:
    jobs = 5_000
    async with _queries(url) as queries:
        await queries.enqueue(["noop"] * jobs, [None] * jobs, [0] * jobs)

        async def work() -> None:
            async with _working(url, batch_size=BATCH):
                await asyncio.Event().wait()

        return await ended.drained(work(), jobs)


async def worker(url: str, name: str) -> None:
    async with _queries(url) as queries:
        connection = await asyncpg.connect(url)
        worker = PgQueuer(AsyncpgDriver(connection))

        @worker.entrypoint(name)
        async def held(job):
            await hold()

        running = asyncio.create_task(
            worker.run(dequeue_timeout=timedelta(seconds=1), heartbeat_timeout=timedelta(seconds=LEASE_S))
        )
        say("ready")
        if await asyncio.to_thread(input) == "begin":
            await queries.enqueue(name, None)
        await running


if __name__ == "__main__":
    main(cycle=cycle, asked=asked, runs=runs, waiting=waiting, worker=worker)
