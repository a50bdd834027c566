"""Whether memory and open files stay as they are, over many runs and many new connections.

python tests/benchmarks/soak_etcd.py [--runs 100000] [--reconnects 200]: prints both as it goes, and fails if they grow.
"""

import argparse
import asyncio
import gc
import os

from bench_etcd import FIRST, claim
from tenure import connect
from tenure.model import RunResult
from tenure_conformance.targets.etcd import server

AT_ONCE = 50
STEPS = 10
GROWTH_MB = 8


def measured():
    gc.collect()
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    return len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def run(backend, job, slot):
    one = claim(slot, job)
    assert (await backend.claim(one)).outcome == "won"
    assert await backend.heartbeat(job, slot, one.token)
    assert await backend.finish(job, slot, one.token, "success")
    await backend.save_result(job, RunResult(slot, 1, 1, "success", "soak", FIRST, FIRST))


async def soak(url, runs, reconnects):
    seen = []
    async with connect(url, namespace="soak", timeout="60s") as backend:
        for step in range(STEPS + 1):
            for turn in range(runs // STEPS // AT_ONCE):
                slot = FIRST + step * runs + turn
                await asyncio.gather(*(run(backend, f"job {number}", slot) for number in range(AT_ONCE)))
            for turn in range(reconnects // STEPS):
                backend._session.cluster.blame(backend._session.cluster.member)
                await run(backend, "reconnects", FIRST + step * reconnects + turn)
            seen.append(measured())
            print(f"  {step * runs // STEPS:7} runs: {seen[-1][0]} files, {seen[-1][1]:.1f} MB", flush=True)
    first, last = seen[1], seen[-1]
    assert last[0] <= first[0] + 3, "open files grow"
    assert last[1] <= first[1] + GROWTH_MB, "memory grows"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--reconnects", type=int, default=200)
    chosen = parser.parse_args()
    with server.serve("binary") as url:
        asyncio.run(soak(url, chosen.runs, chosen.reconnects))


if __name__ == "__main__":
    main()
