# app.py
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from tenure import Context, Scheduler
from tenure.health import asgi

scheduler = Scheduler(os.environ.get("JOBS_STORE", "sqlite:///jobs.db"), grace="10s")


@scheduler.every("sync", "2s")
async def sync(ctx: Context) -> None:
    print(f"sync {ctx.slot:%H:%M:%S} on {ctx.instance}", flush=True)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with scheduler:
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/jobs", asgi(scheduler))  # /jobs/live and /jobs/ready


@app.post("/sync")
async def sync_now() -> dict[str, str]:
    return {"outcome": (await scheduler.trigger("sync")).outcome}
