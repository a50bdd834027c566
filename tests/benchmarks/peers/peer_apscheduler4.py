# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "apscheduler==4.0.0a6",
#   "asyncpg==0.32.0",
#   "psycopg[binary]==3.3.9",
#   "sqlalchemy[asyncio]==2.1.9",
#   "sniffio==1.3.1",  # which it imports and does not require
# ]
# ///
"""APScheduler 4, a pre-release: schedules and jobs in a data store that several schedulers share."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from apscheduler import AsyncScheduler, ConflictPolicy, Job, JobOutcome, JobResult, ScheduleResult
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.eventbrokers.psycopg import PsycopgEventBroker
from apscheduler.triggers.interval import IntervalTrigger
from measure import LEASE_S, Burst, Ended, hold, in_turns, main, say
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

LEASE = timedelta(seconds=30)
ended = Ended()


async def noop() -> None:
    ended.one()


@asynccontextmanager
async def _scheduler(url: str, name: str, **settings: object):
    """With a schema of its own, and the event broker that tells the others of new work."""
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"), pool_size=50)
    async with engine.begin() as connection:
        await connection.execute(text(f'create schema if not exists "{name}"'))
    broker = PsycopgEventBroker(url, channel=name)
    async with AsyncScheduler(SQLAlchemyDataStore(engine, schema=name), broker, **settings) as scheduler:
        yield scheduler, engine
    await engine.dispose()


async def cycle(url: str) -> dict:
    """What a scheduler does for a slot that is due: acquire the schedule, add a job, release, acquire the job, end."""
    async with _scheduler(url, "cycle") as (scheduler, engine):
        store, me = scheduler.data_store, scheduler.identity
        await scheduler.configure_task("noop", func=noop)
        trigger = IntervalTrigger(microseconds=1, start_time=datetime(2020, 1, 1, tzinfo=UTC))
        await scheduler.add_schedule("noop", trigger, id="cycle", conflict_policy=ConflictPolicy.replace)

        async def ping() -> None:
            async with engine.connect() as connection:
                await connection.execute(text("select 1"))

        async def slot() -> None:
            (due,) = await store.acquire_schedules(me, LEASE, 100)
            await store.add_job(Job(task_id=due.task_id, schedule_id=due.id, executor=due.job_executor))
            await store.release_schedules(me, [_fired(due)])
            (job,) = await store.acquire_jobs(me, LEASE, 100)
            await store.release_job(me, job, JobResult.from_job(job, JobOutcome.success))

        return await in_turns(200, ping=ping, cycle=slot)


def _fired(schedule) -> ScheduleResult:
    return ScheduleResult(
        schedule_id=schedule.id,
        task_id=schedule.task_id,
        trigger=schedule.trigger,
        last_fire_time=schedule.next_fire_time,
        next_fire_time=schedule.trigger.next(),
    )


async def waiting(url: str, count: int = 300) -> dict:
    """So many schedules, all due at once, by one scheduler with as many jobs at a time."""
    async with _scheduler(url, "waiting", max_concurrent_jobs=50) as (scheduler, _):
        await scheduler.configure_task("noop", func=noop, max_running_jobs=None, misfire_grace_time=None)
        due = datetime.now(UTC) + timedelta(seconds=8)
        for number in range(count):
            trigger = IntervalTrigger(hours=1, start_time=due)
            await scheduler.add_schedule("noop", trigger, id=f"{number}", conflict_policy=ConflictPolicy.replace)
        await scheduler.start_in_background()
        assert datetime.now(UTC) < due, "it was due before it was there"
        await ended.reach(count)
        return {"per_s": count / (datetime.now(UTC) - due).total_seconds()}


async def worker(url: str, name: str) -> None:
    """With what makes it take over: room for a second run of the task, and another schedule that wakes the peers."""
    async with _scheduler(url, name, lease_duration=LEASE_S) as (scheduler, _):
        await scheduler.configure_task("hold", func=hold, max_running_jobs=2)
        await scheduler.configure_task("tick", func=noop)
        await scheduler.add_schedule(
            "tick", IntervalTrigger(seconds=0.5), id="tick", conflict_policy=ConflictPolicy.do_nothing
        )
        await scheduler.start_in_background()
        say("ready")
        if await asyncio.to_thread(input) == "begin":
            await scheduler.add_job("hold")
        await asyncio.Event().wait()


async def worker_by_default(url: str, name: str) -> None:
    """The same with one run of the task at a time, as it is unless told, and nothing else due."""
    async with _scheduler(url, name, lease_duration=LEASE_S) as (scheduler, _):
        await scheduler.configure_task("hold", func=hold)
        await scheduler.start_in_background()
        say("ready")
        if await asyncio.to_thread(input) == "begin":
            await scheduler.add_job("hold")
        await asyncio.Event().wait()


async def burst(jobs: str) -> dict:
    """Jobs in memory, all due in one second; as many at a time as there are."""
    measured = Burst(int(jobs))
    async with AsyncScheduler(max_concurrent_jobs=measured.jobs) as scheduler:
        await scheduler.configure_task("burst", func=measured.handler, max_running_jobs=None, misfire_grace_time=None)
        due = datetime.fromtimestamp(measured.due, UTC)
        for number in range(measured.jobs):
            await scheduler.add_schedule("burst", IntervalTrigger(hours=1, start_time=due), id=f"job {number}")
        await scheduler.start_in_background()
        return await measured.figures()


if __name__ == "__main__":
    main(cycle=cycle, waiting=waiting, worker=worker, worker_by_default=worker_by_default, burst=burst)
