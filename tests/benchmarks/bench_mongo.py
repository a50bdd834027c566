"""The MongoDB backend next to the same client's ping and to ShedLock's two statements, in one run.

python tests/benchmarks/bench_mongo.py [--url mongodb://…] [--count 3000]: a replica set of one is started unless a URL
is given. Ratios are to ``ping`` over pymongo, one call after another, in turns with the rest.

ShedLock's MongoLockProvider takes a lock with one find_one_and_update that may insert, and gives it up with another; it
knows neither runs nor attempts and keeps no history. Both write with the concern ``majority`` here.
"""

import argparse
import asyncio
import statistics
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from measuring import Measured, claim
from pymongo import AsyncMongoClient
from pymongo.write_concern import WriteConcern
from tenure.model import RunResult
from tenure_conformance.targets.mongo import server
from tenure_mongo import MongoBackend

FIRST = 1_700_000_000_000
IN_A_ROW = 5
"""Calls of a kind that follow each other, before those of the next kind."""


class ShedLock:
    """Its two statements, as MongoLockProvider sends them."""

    def __init__(self, client, database):
        majority = WriteConcern("majority", j=True)
        self._locks = client[database].get_collection("shedLock", write_concern=majority)

    async def lock(self, name):
        now = datetime.now(UTC)
        free = {"_id": name, "lockUntil": {"$lte": now}}
        until = now + timedelta(seconds=30)
        taken = {"$set": {"lockUntil": until, "lockedAt": now, "lockedBy": "bench-host-12345-abcdef"}}
        await self._locks.find_one_and_update(free, taken, upsert=True)

    async def unlock(self, name):
        await self._locks.find_one_and_update({"_id": name}, {"$set": {"lockUntil": datetime.now(UTC)}})


async def one_at_a_time(url, count):
    database, measured = f"bench-{uuid4().hex[:12]}", Measured()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(AsyncMongoClient(url, retryWrites=False, retryReads=False))
        backend = await stack.enter_async_context(MongoBackend(client, database=database))
        shedlock = ShedLock(client, database)
        for slot in range(FIRST, FIRST + count // IN_A_ROW):
            await cycle(measured, client, backend, shedlock, slot)
            if slot == FIRST + 20:
                measured.times.clear()
        await client.drop_database(database)
    measured.show()


async def cycle(measured, client, backend, shedlock, slot):
    """Each of the calls, some in a row."""
    requests = [claim(slot, f"job {number}") for number in range(IN_A_ROW)]
    for _ in range(2 * IN_A_ROW):
        await measured.take("ping", client.admin.command("ping"))
    for request in requests:
        assert (await measured.take("claim won", backend.claim(request))).outcome == "won"
    for one in requests:
        assert await measured.take("heartbeat", backend.heartbeat(one.job, slot, one.token))
    for one in requests:
        assert (await measured.take("claim lost (running)", backend.claim(claim(slot, one.job)))).outcome == "running"
    for one in requests:
        asked = claim(slot, one.job, mode="takeover", after=1)
        assert (await measured.take("backup's check (running)", backend.claim(asked))).outcome == "running"
    for one in requests:
        assert await measured.take("finish", backend.finish(one.job, slot, one.token, "success"))
    for number in range(IN_A_ROW):
        await measured.take("claim + finish", both(backend, claim(slot, f"both {number}")))
        await measured.take("ShedLock, lock + unlock", locked(shedlock, f"lock {number}"))
    for number in range(IN_A_ROW):
        request = claim(slot, f"many {number}", overlap="allow")
        await measured.take("the same, 128 ended runs kept", both(backend, request))
    for _ in requests:
        await measured.take("save_result", backend.save_result("job 0", RunResult(slot, 1, 1, "success", "i", 1, 2)))
    for _ in requests:
        await measured.take("active of 5 jobs", backend.active([one.job for one in requests]))


async def both(backend, request):
    assert (await backend.claim(request)).outcome == "won"
    assert await backend.finish(request.job, request.slot, request.token, "success")


async def locked(shedlock, name):
    await shedlock.lock(name)
    await shedlock.unlock(name)


async def at_once(url, count, width):
    """Cycles a second of that many at once, each of a job of its own, on one object."""
    database = f"bench-{uuid4().hex[:12]}"
    async with AsyncMongoClient(url, maxPoolSize=32) as client, MongoBackend(client, database=database) as backend:
        started = time.perf_counter()

        async def task(number):
            for slot in range(FIRST, FIRST + count // width):
                await both(backend, claim(slot, f"job {number}"))

        await asyncio.gather(*(task(number) for number in range(width)))
        took = time.perf_counter() - started
        await client.drop_database(database)
        return count / took


async def contended(url, rounds, claimers):
    """Milliseconds until each of many claimers of one slot has its answer."""
    database, times = f"bench-{uuid4().hex[:12]}", []
    async with AsyncMongoClient(url, maxPoolSize=32) as client, MongoBackend(client, database=database) as backend:

        async def ask(one):
            started = time.perf_counter()
            outcome = (await backend.claim(one)).outcome
            times.append((time.perf_counter() - started) * 1_000)
            return outcome

        for slot in range(FIRST, FIRST + rounds):
            claims = [claim(slot) for _ in range(claimers)]
            outcomes = await asyncio.gather(*map(ask, claims))
            assert sorted(outcomes) == ["running"] * (claimers - 1) + ["won"]
            assert await backend.finish("sync", slot, claims[outcomes.index("won")].token, "success")
        await client.drop_database(database)
    return times


async def main(url, count):
    print("one at a time")
    await one_at_a_time(url, count)
    for width in (1, 50):
        print(f"  {width:3} at once: {await at_once(url, count, width):7.0f} claim + finish a second")
    times = await contended(url, 100, 50)
    print(f"  50 claimers of one slot, 100 rounds: p99 {statistics.quantiles(times, n=100)[98]:.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url")
    parser.add_argument("--count", type=int, default=3_000)
    arguments = parser.parse_args()
    if arguments.url:
        asyncio.run(main(arguments.url, arguments.count))
    else:
        with server.serve("auto") as served:
            asyncio.run(main(served, arguments.count))
