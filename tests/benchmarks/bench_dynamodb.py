"""The DynamoDB backend next to the same client's ping (a GetItem of nothing), in one run.

python tests/benchmarks/bench_dynamodb.py [--server moto] [--url dynamodb://…] [--count 1000]: a server of its own is
started unless a URL is given. Ping takes the same way through the backend's threads; "bare" is the client alone.
"""

import argparse
import asyncio
import os
import time
from contextlib import AsyncExitStack, nullcontext
from uuid import uuid4

from measuring import Measured, claim
from tenure import connect
from tenure.model import RunResult
from tenure_conformance.targets import dynamodb, dynamodb_moto

FIRST = 1_700_000_000_000
SERVERS = {"dynalite": dynamodb.server, "moto": dynamodb_moto.server}
IN_A_ROW = 10
"""Calls of a kind that follow each other, before those of the next kind."""


async def ping(backend):
    """What a call costs that asks for next to nothing, with the same client on the same threads."""
    key = {"pk": {"S": "nothing"}, "sk": {"S": "nothing"}}
    await backend._ask(lambda store, _: store._table.get(key))


async def bare(backend):
    key = {"pk": {"S": "nothing"}, "sk": {"S": "nothing"}}
    client = backend._service.store._table._client
    client.get_item(TableName=backend._table, Key=key, ConsistentRead=True)


async def one_at_a_time(url, count):
    namespace = f"bench-{uuid4().hex}"
    measured = Measured()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(connect(url, namespace=namespace))
        second = await stack.enter_async_context(connect(url, namespace=namespace))
        for turn in range(0, count, IN_A_ROW):
            for _ in range(IN_A_ROW):
                await measured.take("bare ping, no thread", bare(first))
            for _ in range(IN_A_ROW):
                await measured.take("ping", ping(first))
            for slot in range(FIRST + turn, FIRST + turn + IN_A_ROW):
                backend, other = (first, second) if slot % 2 else (second, first)
                held = claim(slot)
                assert (await measured.take("claim, won", backend.claim(held))).outcome == "won"
                assert (await measured.take("claim, lost", other.claim(claim(slot)))).outcome == "running"
                assert await measured.take("heartbeat", backend.heartbeat("sync", slot, held.token))
                assert await measured.take("finish", backend.finish("sync", slot, held.token, "success"))
                record = RunResult(slot, 1, slot, "success", "bench", slot, slot + 1)
                await measured.take("save_result", backend.save_result("sync", record))
                await measured.take("active, 1 job", backend.active(["sync"]))
    measured.show()


async def many_at_once(url, count, tasks=50):
    async with connect(url, namespace=f"bench-{uuid4().hex}") as backend:

        async def cycles(number):
            for slot in range(FIRST, FIRST + count // tasks):
                held = claim(slot, f"job {number}")
                assert (await backend.claim(held)).outcome == "won"
                assert await backend.finish(held.job, slot, held.token, "success")

        started = time.perf_counter()
        await asyncio.gather(*map(cycles, range(tasks)))
        print(f"  {tasks} at once: {2 * count / (time.perf_counter() - started):6.0f} calls/s")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--count", type=int, default=1_000)
    arguments.add_argument("--server", choices=SERVERS, default="dynalite")
    arguments.add_argument("--url", help="of a server that runs already")
    given = arguments.parse_args()
    with nullcontext(given.url) if given.url else SERVERS[given.server].serve("binary") as url:
        print(f"{given.url or given.server}, {os.cpu_count()} cores")
        asyncio.run(one_at_a_time(url, given.count))
        asyncio.run(many_at_once(url, given.count))


if __name__ == "__main__":
    main()
