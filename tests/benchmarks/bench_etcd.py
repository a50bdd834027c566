"""The etcd backend next to a bare read of the same client and to aetcd's Lock, in one run.

python tests/benchmarks/bench_etcd.py [--url etcd://…] [--count 1000]: a server of its own is started unless a URL is
given. Ratios are to a Range of one key over aetcd's own stubs and one channel, measured in turns with the rest.
"""

import argparse
import asyncio
import itertools
import statistics
import time
from contextlib import AsyncExitStack
from uuid import uuid4

import aetcd
from aetcd.rpc import rpc_pb2
from measuring import Measured, claim
from tenure import connect
from tenure.model import RunResult
from tenure_conformance.targets.etcd import server

FIRST = 1_700_000_000_000
HISTORY = 20
"""Runs of each job before anything is measured, so that as many are kept as always will be."""
JOB = "sync"
JOBS = [f"{JOB} {number}" for number in range(10)]
"""Calls of a kind follow each other, one for each of them, before those of the next kind."""


def _show_pair(times):
    ping, won, finish, lock = (
        statistics.median(times[name]) for name in ("ping (Range of a key)", "claim won", "finish", "aetcd Lock")
    )
    both = won + finish
    print(f"  claim + finish: {both / ping:.2f} x ping, {both / lock:.2f} x aetcd's Lock, which stores nothing")


async def one_at_a_time(url, count):
    namespace = f"bench-{uuid4().hex}"
    measured = Measured()
    host, _, port = url.partition("://")[2].partition("?")[0].partition(":")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(aetcd.Client(host=host, port=int(port)))
        backend = await stack.enter_async_context(connect(url, namespace=namespace))
        other = await stack.enter_async_context(connect(url, namespace=namespace))
        for slot, job in itertools.product(range(FIRST - HISTORY, FIRST), JOBS):
            await finished(backend, claim(slot, job))
        for job in JOBS:
            await other.claim(claim(FIRST - 1, job))  # who has lost looks first the next time
        for slot in range(FIRST, FIRST + count // len(JOBS)):
            await cycle(measured, client, backend, other, slot)
    measured.show("ping (Range of a key)")
    _show_pair(measured.times)


async def finished(backend, one):
    assert (await backend.claim(one)).outcome == "won"
    assert await backend.finish(one.job, one.slot, one.token, "success")


async def cycle(measured, client, backend, other, slot):
    """Each of the calls, some in a row."""
    request = rpc_pb2.RangeRequest(key=b"nothing")
    claims = [claim(slot, job) for job in JOBS]
    for _ in JOBS:
        await measured.take("ping (Range of a key)", client.kvstub.Range(request))
    for one in claims:
        assert (await measured.take("claim won", backend.claim(one))).outcome == "won"
    for job in JOBS:
        assert (await measured.take("claim lost (running)", other.claim(claim(slot, job)))).outcome == "running"
    for job in JOBS:
        assert (await measured.take("claim lost (overlap)", other.claim(claim(slot + 1, job)))).outcome == "overlap"
    for one in claims:
        assert await measured.take("heartbeat", backend.heartbeat(one.job, slot, one.token))
    for one in claims:
        assert await measured.take("finish", backend.finish(one.job, slot, one.token, "success"))
    for job in JOBS:
        assert (await measured.take("claim lost (done)", other.claim(claim(slot, job)))).outcome == "done"
    record = RunResult(slot, 1, 1, "success", "bench-host-12345-abcdef", FIRST, FIRST)
    for job in JOBS:
        await measured.take("save_result", backend.save_result(job, record))
    for _ in JOBS:
        await measured.take("aetcd Lock", locked(client))


async def locked(client):
    lock = client.lock(b"lock", ttl=30)
    await lock.acquire()
    await lock.release()


async def at_once(url, count, tasks=50):
    """Runs of different jobs by one process, so many at a time: claim, finish and result."""
    namespace = f"bench-{uuid4().hex}"
    async with connect(url, namespace=namespace, timeout="60s") as backend:

        async def runs(job):
            for slot in range(FIRST, FIRST + count // tasks):
                one = claim(slot, job)
                await finished(backend, one)
                await backend.save_result(job, RunResult(slot, 1, 1, "success", "bench", FIRST, FIRST))

        await asyncio.gather(*(backend.claim(claim(FIRST - 1, f"job {n}", max_late_ms=0)) for n in range(tasks)))
        started = time.perf_counter()
        await asyncio.gather(*(runs(f"job {number}") for number in range(tasks)))
        seconds = time.perf_counter() - started
    print(f"  {tasks} at once: {count / seconds:.0f} runs a second (claim, finish, result)")


async def contended(url, rounds=100, claimers=50):
    """So many claimers on one slot, each an object of its own in one process: one winner, and how long it takes."""
    namespace = f"bench-{uuid4().hex}"
    times = []
    async with AsyncExitStack() as stack:
        backends = [
            await stack.enter_async_context(connect(url, namespace=namespace, timeout="60s")) for _ in range(claimers)
        ]

        async def timed(backend, one):
            started = time.perf_counter()
            told = await backend.claim(one)
            times.append((time.perf_counter() - started) * 1_000)
            return told.outcome

        for slot in range(FIRST, FIRST + rounds):
            claims = [claim(slot) for _ in backends]
            outcomes = await asyncio.gather(*map(timed, backends, claims))
            assert sorted(outcomes) == ["running"] * (claimers - 1) + ["won"]
            winner = outcomes.index("won")
            assert await backends[winner].finish(JOB, slot, claims[winner].token, "success")
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    print(f"  {claimers} claimers on one slot, {rounds} rounds: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url")
    parser.add_argument("--count", type=int, default=1_000)
    chosen = parser.parse_args()
    if chosen.url:
        asyncio.run(everything(chosen.url, chosen.count))
        return
    with server.serve("binary") as url:
        asyncio.run(everything(url, chosen.count))


async def hinted(url, count=100):
    """How long after a lease's end another instance hears of it."""
    namespace = f"bench-{uuid4().hex}"
    times = []
    async with connect(url, namespace=namespace) as backend, connect(url, namespace=namespace) as other:
        hints = other.changes([JOB])
        heard = asyncio.ensure_future(anext(hints))
        await asyncio.sleep(0.5)  # until the watch is there
        for slot in range(FIRST, FIRST + count):
            one = claim(slot)
            await backend.claim(one)
            started = time.perf_counter()
            await backend.release(JOB, slot, one.token)
            await heard
            times.append((time.perf_counter() - started) * 1_000)
            heard = asyncio.ensure_future(anext(hints))
        heard.cancel()
        await asyncio.gather(heard, return_exceptions=True)
        await hints.aclose()
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    print(f"  release until another hears of it: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


async def everything(url, count):
    print("etcd")
    await one_at_a_time(url, count)
    await at_once(url, 2 * count)
    await contended(url)
    await hinted(url)


if __name__ == "__main__":
    main()
