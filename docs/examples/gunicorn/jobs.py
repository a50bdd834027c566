# jobs.py
import os

from tenure import Context, Scheduler

scheduler = Scheduler(os.environ.get("JOBS_STORE", "sqlite:///jobs.db"), grace="20s")


@scheduler.every("sync", "2s")
def sync(ctx: Context) -> None:
    print(f"sync {ctx.slot:%H:%M:%S} on {ctx.instance}", flush=True)
