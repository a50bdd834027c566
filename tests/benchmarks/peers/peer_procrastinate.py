# /// script
# requires-python = ">=3.11"
# dependencies = ["procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"]
# ///
"""procrastinate: a queue in tables of Postgres, with periodic tasks of which each slot is deferred once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from uuid import uuid4

from measure import LEASE_S, WIDTH, Ended, hold, in_turns, main, say, through_worker
from procrastinate import App, PsycopgConnector
from procrastinate.jobs import Job, Status

ended = Ended()
FIRST = 1_700_000_000


@asynccontextmanager
async def _app(url: str) -> AsyncIterator[App]:
    app = App(connector=PsycopgConnector(conninfo=url, max_size=WIDTH + 5))
    async with app.open_async():
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()
        yield app


async def cycle(url: str) -> dict:
    """What its worker does for a slot of a periodic task: defer it once, fetch it, finish it."""
    slots, periodic_id = count(FIRST), uuid4().hex
    async with _app(url) as app:
        jobs, by = app.job_manager, await app.job_manager.register_worker()

        async def slot() -> None:
            at = next(slots)
            job = Job(
                id=None,
                queue="bench",
                lock=None,
                queueing_lock=None,
                task_name="sync",
                task_kwargs={"timestamp": at},
            )
            assert await jobs.defer_periodic_job(job, periodic_id, at)
            fetched = await jobs.fetch_job(queues=["bench"], worker_id=by)
            await jobs.finish_job(fetched, status=Status.SUCCEEDED, delete_job=False)

        async def ping() -> None:
            await app.connector.execute_query_one_async("select 1 as one")

        measured = await in_turns(500, ping=ping, cycle=slot)
        await app.connector.execute_query_async("delete from procrastinate_jobs")
        return measured


async def asked(url: str) -> dict:
    """Deferred to an idle worker, until the handler has run."""
    async with _app(url) as app, _working(app, "asked"):
        noop = app.task(_noop, queue="asked", name="noop")

        async def deferred() -> None:
            await asyncio.gather(ended.more(1), noop.defer_async())

        return await in_turns(300, asked=deferred)


async def runs(url: str) -> dict:
    """Deferred one by one, to a worker that runs."""
    async with _app(url) as app, _working(app, "runs"):
        noop = app.task(_noop, queue="runs", name="noop")
        return await through_worker(ended, noop.defer_async, 1_000)


async def waiting(url: str) -> dict:
    async with _app(url) as app:
        noop = app.task(_noop, queue="waiting", name="noop")
        await noop.batch_defer_async(*[{}] * 1_000)
        return await ended.drained(_work(app, "waiting"), 1_000)


async def _noop() -> None:
    ended.one()


@asynccontextmanager
async def _working(app: App, queue: str) -> AsyncIterator[None]:
    working = asyncio.create_task(_work(app, queue))
    yield
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def _work(app: App, queue: str) -> None:
    await app.run_worker_async(queues=[queue], concurrency=WIDTH, install_signal_handlers=False)


async def worker(url: str, name: str) -> None:
    """As its guide to stalled jobs says: a periodic task looks for them, here each second."""
    async with _app(url) as app:
        task = app.task(hold, queue=name, name="hold")

        @app.periodic(cron="* * * * * *")
        @app.task(queue=name, queueing_lock=f"retry of {name}", pass_context=True, name="retry_stalled_jobs")
        async def retry_stalled_jobs(context, timestamp):
            for job in await app.job_manager.get_stalled_jobs(queue=name, seconds_since_heartbeat=LEASE_S):
                await app.job_manager.retry_job(job)

        say("ready")
        working = asyncio.create_task(
            app.run_worker_async(
                queues=[name],
                concurrency=2,
                update_heartbeat_interval=LEASE_S / 3,
                stalled_worker_timeout=LEASE_S,
                install_signal_handlers=False,
            )
        )
        if await asyncio.to_thread(input) == "begin":
            await task.defer_async()
        await working


if __name__ == "__main__":
    main(cycle=cycle, asked=asked, runs=runs, waiting=waiting, worker=worker)
