"""The Redis backend next to the same client's ping and to redis-py's Lock, in one run.

python tests/benchmarks/bench_redis.py [--url redis://…] [--count 3000]: a server of its own is started unless a URL
is given. Ratios are to ``client.ping()`` of redis-py, on one connection, measured in turns with the rest.
"""

import argparse
import asyncio
import statistics
import time
from contextlib import AsyncExitStack
from uuid import uuid4

import redis.asyncio
from measuring import Measured, claim
from tenure.model import RunResult
from tenure_conformance.targets.redis import server
from tenure_redis import RedisBackend

FIRST = 1_700_000_000_000
IN_A_ROW = 10
"""Calls of a kind that follow each other, before those of the next kind."""


async def one_at_a_time(url, count):
    namespace = f"bench-{uuid4().hex}"
    measured = Measured()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(redis.asyncio.Redis.from_url(url))
        backend = await stack.enter_async_context(RedisBackend(client, namespace=namespace))
        other = await stack.enter_async_context(RedisBackend(client, namespace=namespace))
        for slot in range(FIRST, FIRST + count // IN_A_ROW):
            await cycle(measured, client, backend, other, slot)
    measured.show()


async def cycle(measured, client, backend, other, slot):
    """Each of the calls, some in a row."""
    requests = [claim(slot, f"job {number}") for number in range(IN_A_ROW)]
    for _ in requests:
        await measured.take("ping", client.ping())
    for request in requests:
        assert (await measured.take("claim won", backend.claim(request))).outcome == "won"
    for one in requests:
        assert await measured.take("heartbeat", backend.heartbeat(one.job, slot, one.token))
    for one in requests:
        assert (await measured.take("claim lost (running)", other.claim(claim(slot, one.job)))).outcome == "running"
    for one in requests:
        assert await measured.take("finish", backend.finish(one.job, slot, one.token, "success"))
    for number in range(IN_A_ROW):
        await measured.take("claim + finish", both(backend, claim(slot, f"both {number}")))
    for number in range(IN_A_ROW):
        await measured.take(
            "the same, 128 ended runs kept", both(backend, claim(slot, f"many {number}", overlap="allow"))
        )
    for _ in requests:
        await measured.take("save_result", backend.save_result("job 0", RunResult(slot, 1, 1, "success", "i", 1, 2)))
    for _ in requests:
        await measured.take("active of 10 jobs", backend.active([one.job for one in requests]))
    for _ in requests:
        await measured.take("redis-py Lock, acquire + release", lock(client))


async def both(backend, request):
    assert (await backend.claim(request)).outcome == "won"
    assert await backend.finish(request.job, request.slot, request.token, "success")


async def lock(client):
    held = client.lock("bench-lock", timeout=30)
    assert await held.acquire()
    await held.release()


async def burst(url, count, width):
    """Cycles a second of that many calls at once, each of a job of its own, on one object."""
    async with RedisBackend(redis.asyncio.Redis.from_url(url), namespace=f"bench-{uuid4().hex}") as backend:
        started = time.perf_counter()

        async def task(number):
            for slot in range(FIRST, FIRST + count // width):
                await both(backend, claim(slot, f"job {number}"))

        await asyncio.gather(*(task(number) for number in range(width)))
        return count / (time.perf_counter() - started)


async def due_at_once(url, count):
    """Claims a second when so many runs are due at once."""
    async with RedisBackend(redis.asyncio.Redis.from_url(url), namespace=f"bench-{uuid4().hex}") as backend:
        requests = [claim(FIRST, f"job {number}") for number in range(count)]
        started = time.perf_counter()
        answers = await asyncio.gather(*(backend.claim(request) for request in requests))
        assert all(answer.outcome == "won" for answer in answers)
        return count / (time.perf_counter() - started)


async def one_after_another(url, count):
    """The same claims, each sent when the one before is answered."""
    async with RedisBackend(redis.asyncio.Redis.from_url(url), namespace=f"bench-{uuid4().hex}") as backend:
        requests = [claim(FIRST, f"job {number}") for number in range(count)]
        started = time.perf_counter()
        for request in requests:
            assert (await backend.claim(request)).outcome == "won"
        return count / (time.perf_counter() - started)


async def contended(url, rounds, claimers):
    """Claimers of one slot, each with an object and a connection of its own; how long their answers take."""
    async with AsyncExitStack() as stack:
        namespace = f"bench-{uuid4().hex}"
        client = redis.asyncio.Redis.from_url(url)
        objects = [await stack.enter_async_context(RedisBackend(client, namespace=namespace)) for _ in range(claimers)]
        measured = Measured()
        for number in range(rounds):
            answers = await asyncio.gather(
                *(measured.take("claim", one.claim(claim(FIRST + number, f"job {number}"))) for one in objects)
            )
            assert sorted(answer.outcome for answer in answers) == ["running"] * (claimers - 1) + ["won"]
        times = measured.times["claim"]
        p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
        print(
            f"  {claimers} claimers of one slot, {rounds} rounds: one winner each, p50 {p50:.1f} ms  p99 {p99:.1f} ms"
        )


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url")
    arguments.add_argument("--count", type=int, default=3_000)
    given = arguments.parse_args()
    if given.url:
        bench(given.url, given.count)
    else:
        with server.serve("binary") as url:
            bench(url, given.count)


def bench(url, count):
    asyncio.run(one_at_a_time(url, count))
    for width in (1, 50):
        print(f"  {width:2} at once: {asyncio.run(burst(url, count, width)):8.0f} claim + finish /s")
    alone, together = asyncio.run(one_after_another(url, 10_000)), asyncio.run(due_at_once(url, 10_000))
    print(f"  10,000 due at once: {together:.0f} claims/s, {together / alone:.1f} x the {alone:.0f} one after another")
    asyncio.run(contended(url, 100, 50))


if __name__ == "__main__":
    main()
