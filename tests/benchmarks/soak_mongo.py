"""Memory and open files over many runs and reconnects: python tests/benchmarks/soak_mongo.py [--runs 100000]

Each reconnect is a client of its own, with its share of the runs, 50 at a time. What it prints last should not differ
from what it prints after the first tenth by more than noise.
"""

import argparse
import asyncio
import gc
import os
import resource
from pathlib import Path

from tenure.model import Claim, RunResult, new_token
from tenure.registry import connect
from tenure_conformance.targets.mongo import server

FIRST = 1_700_000_000_000
WIDTH = 50


def used():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1_024, len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())


async def run(backend, job, slot):
    asked = {"lease_ms": 30_000, "mode": "manual", "overlap": "skip", "max_attempts": 3, "max_late_ms": None}
    request = Claim(job=job, slot=slot, token=new_token(), instance="soak", **asked)
    won = await backend.claim(request)
    assert won.outcome == "won", won
    assert await backend.finish(job, slot, request.token, "success")
    await backend.save_result(job, RunResult(slot, 1, won.fence, "success", "soak", won.now_ms, won.now_ms))


async def main(url, runs, reconnects):
    share = max(runs // reconnects // WIDTH, 1)
    for turn in range(reconnects):
        async with connect(url) as backend:

            async def task(number, first, backend=backend):
                for slot in range(first, first + share):
                    await run(backend, f"job {number}", slot)

            await asyncio.gather(*(task(number, FIRST + turn * share) for number in range(WIDTH)))
        if turn % max(reconnects // 10, 1) == 0 or turn == reconnects - 1:
            memory, files, tasks = used()
            done = f"{(turn + 1) * share * WIDTH:7} runs, {turn + 1:4} reconnects"
            print(f"{done}: {memory:7} KB, {files:3} files, {tasks} tasks")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--reconnects", type=int, default=200)
    arguments = parser.parse_args()
    with server.serve("auto") as served:
        asyncio.run(main(served, arguments.runs, arguments.reconnects))
