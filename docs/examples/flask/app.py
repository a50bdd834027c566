# app.py
import atexit
import os

from flask import Flask
from tenure import Context, Scheduler

app = Flask(__name__)
scheduler = Scheduler(os.environ.get("JOBS_STORE", "sqlite:///jobs.db"), grace="10s")


@scheduler.every("sync", "2s")
def sync(ctx: Context) -> None:
    with app.app_context():
        print(f"sync {ctx.slot:%H:%M:%S} on {ctx.instance}", flush=True)


scheduler.start()
atexit.register(scheduler.stop)
