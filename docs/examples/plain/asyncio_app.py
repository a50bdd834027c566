# asyncio_app.py
import asyncio
import os
import signal

from tenure import Context, Scheduler

scheduler = Scheduler(os.environ.get("JOBS_STORE", "sqlite:///jobs.db"), grace="30s")


@scheduler.every("sync", "2s")
async def sync(ctx: Context) -> None:
    print(f"sync {ctx.slot:%H:%M:%S} on {ctx.instance}", flush=True)


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with scheduler:
        await stop.wait()  # the application


asyncio.run(main())
