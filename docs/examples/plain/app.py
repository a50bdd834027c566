# app.py
import logging
import os

from tenure import Context, Scheduler

logging.basicConfig(level=logging.INFO)
scheduler = Scheduler(os.environ.get("JOBS_STORE", "sqlite:///jobs.db"), grace="30s")


@scheduler.every("sync", "2s")
def sync(ctx: Context) -> None:
    print(f"sync {ctx.slot:%H:%M:%S} on {ctx.instance}", flush=True)


if __name__ == "__main__":
    scheduler.run()
