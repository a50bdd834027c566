# /// script
# requires-python = ">=3.11"
# dependencies = ["apscheduler==3.11.3"]
# ///
"""APScheduler 3: schedules of one process."""

from datetime import UTC, datetime

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from measure import Burst, main


async def burst(jobs: str) -> dict:
    """Jobs in memory, all due in one second; the executor takes as many as there are."""
    measured = Burst(int(jobs))
    scheduler = AsyncIOScheduler(timezone=UTC, job_defaults={"misfire_grace_time": None})
    due = datetime.fromtimestamp(measured.due, UTC)
    for number in range(measured.jobs):
        scheduler.add_job(measured.handler, "interval", hours=1, next_run_time=due, id=f"job {number}")
    scheduler.start()
    figures = await measured.figures()
    scheduler.shutdown(wait=False)
    return figures


if __name__ == "__main__":
    main(burst=burst)
