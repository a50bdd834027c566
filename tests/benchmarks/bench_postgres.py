"""The Postgres backend next to psycopg's own ping and to a bare lock of two statements, in one run.

python tests/benchmarks/bench_postgres.py [--url postgresql://…] [--count 2000]: a server of its own is started unless a
URL is given. Ratios are to ``select 1`` by psycopg over its pool, as the bare lock's two statements are and as an
application would ask, measured in turns with the rest; the same on one connection of its own is shown beside it.
"""

import argparse
import asyncio
import dataclasses
import random
import statistics
import time
from contextlib import AsyncExitStack, nullcontext
from uuid import uuid4

import bench_runs
import psycopg
from measuring import Measured, claim
from psycopg_pool import AsyncConnectionPool
from tenure.model import RunResult
from tenure_conformance.targets.postgres import server
from tenure_postgres import PostgresBackend

FIRST = 1_700_000_000_000
IN_A_ROW = 10
"""Calls of a kind that follow each other, each on a job of its own, before those of the next kind."""
LOCK = (
    "insert into bench_lock values (%s, now() + '30 s', now(), 'bench') on conflict (name) do update set"
    " until = excluded.until, locked_at = excluded.locked_at, locked_by = excluded.locked_by"
    " where bench_lock.until <= now()"
)
UNLOCK = "update bench_lock set until = now() where name = %s"


async def one_at_a_time(url, count):
    measured = Measured()
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(await psycopg.AsyncConnection.connect(url, autocommit=True))
        settings = {"autocommit": True}
        pool = await stack.enter_async_context(AsyncConnectionPool(url, min_size=1, kwargs=settings, open=False))
        backend = await stack.enter_async_context(PostgresBackend(url, namespace=f"bench-{uuid4().hex}"))
        await connection.execute(
            "create table if not exists bench_lock"
            " (name text primary key, until timestamptz, locked_at timestamptz, locked_by text)"
        )

        async def ping():
            async with pool.connection() as pooled:
                return await (await pooled.execute("select 1")).fetchone()

        async def bare_ping():
            return await (await connection.execute("select 1")).fetchone()

        async def lock(statement):
            async with pool.connection() as pooled:
                assert (await pooled.execute(statement, ("bench",))).rowcount == 1

        for slot in range(FIRST, FIRST + count // IN_A_ROW):
            claims = [claim(slot, f"sync {number}") for number in range(IN_A_ROW)]
            for _ in claims:
                await measured.take("ping", ping())
            for _ in claims:
                await measured.take("ping, no pool", bare_ping())
            for each in claims:
                assert (await measured.take("won claim", backend.claim(each))).outcome == "won"
            for each in claims:
                other = claim(slot, each.job)
                assert (await measured.take("lost claim", backend.claim(other))).outcome == "running"
            for each in claims:
                assert await measured.take("heartbeat", backend.heartbeat(each.job, each.slot, each.token))
            for each in claims:
                assert await measured.take("finish", backend.finish(each.job, each.slot, each.token, "success"))
            for each in claims:
                result = RunResult(each.slot, 1, 1, "success", "bench-host", 1, 2)
                await measured.take("save_result", backend.save_result(each.job, result))
            overlapping = [claim(slot, f"many {number}", overlap="allow") for number in range(IN_A_ROW)]
            for each in overlapping:
                await measured.take("won claim, overlap allowed", backend.claim(each))
            for each in overlapping:
                await measured.take("release", backend.release(each.job, each.slot, each.token))
            for each in overlapping:
                await backend.claim(dataclasses.replace(each, token="again", mode="takeover", after=1))
                await backend.finish(each.job, each.slot, "again", "success")
            for _ in claims:
                await measured.take("bare lock", lock(LOCK))
                await measured.take("bare unlock", lock(UNLOCK))
    measured.show()


async def burst(url, count):
    """Claims a second of that many jobs due at once: by psycopg, with each statement travelling alone, and together.

    All jobs have run before; psycopg calls the same function over a pool of as many connections.
    """
    namespace = f"bench-{uuid4().hex}"
    call = "select tenure.claim(%s, %s, %s, 'token', 'bench-host', 30000, false, true, 3, null, 0)"
    rates = {}
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(PostgresBackend(url, namespace=namespace, timeout="120s"))
        settings = {"autocommit": True}
        pool = AsyncConnectionPool(url, min_size=4, max_size=4, kwargs=settings, timeout=120, open=False)
        await stack.enter_async_context(pool)

        async def by_psycopg(each):
            async with pool.connection() as connection:
                await (await connection.execute(call, (namespace, each.job, each.slot))).fetchone()

        async def by_tenure(each):
            assert (await backend.claim(each)).outcome == "won"

        most = backend._client._convoy._most
        ways = {"psycopg": (by_psycopg, most), "alone": (by_tenure, 1), "together": (by_tenure, most)}
        for slot, (name, (ask, at_once)) in enumerate([*ways.items()] * 4, FIRST):
            claims = [claim(slot, f"job {number}", token="token") for number in range(count)]
            backend._client._convoy._most = at_once
            begun = time.perf_counter()
            await asyncio.gather(*map(ask, claims))
            rates.setdefault(name, []).append(count / (time.perf_counter() - begun))
            backend._client._convoy._most = most
            await asyncio.gather(*[backend.finish(each.job, slot, "token", "success") for each in claims])
    psycopgs, alone, together = (statistics.median(rates[name][1:]) for name in ("psycopg", "alone", "together"))
    print(f"  {count} claims at once: {psycopgs:.0f}/s by psycopg and a pool, {alone:.0f}/s each alone,", end=" ")
    print(f"{together:.0f}/s together ({together / psycopgs:.2f} x, {together / alone:.2f} x)")


async def race(url, rounds, claimers=50):
    """That many claimers on one slot, of five processes' worth of backends."""
    times = []
    async with AsyncExitStack() as stack:
        namespace = f"bench-{uuid4().hex}"
        backends = [await stack.enter_async_context(PostgresBackend(url, namespace=namespace)) for _ in range(5)]

        async def one(number, slot):
            each = claim(slot)
            begun = time.perf_counter()
            result = await backends[number % 5].claim(each)
            times.append((time.perf_counter() - begun) * 1_000)
            return result.outcome, each.token

        for slot in range(FIRST, FIRST + rounds):
            told = await asyncio.gather(*[one(number, slot) for number in range(claimers)])
            (won,) = [token for outcome, token in told if outcome == "won"]
            assert await random.choice(backends).finish("sync", slot, won, "success")
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    print(f"  {claimers} claimers x {rounds} rounds: one winner each, p50 {p50:.1f} ms, p99 {p99:.1f} ms")


async def together(url, count, tasks=50):
    """Finishes and releases a second of many tasks: what NOTIFY costs, whose lock all commits of a server share."""
    async with PostgresBackend(url, namespace=f"bench-{uuid4().hex}", timeout="60s") as backend:
        for name in ("finish", "release"):
            claims = [claim(FIRST, f"{name} {number}") for number in range(count)]
            await asyncio.gather(*[backend.claim(each) for each in claims])
            waiting = iter(claims)

            async def work(name=name, waiting=waiting):
                for each in waiting:
                    more = ("success",) if name == "finish" else ()
                    assert await getattr(backend, name)(each.job, each.slot, each.token, *more)

            begun = time.perf_counter()
            await asyncio.gather(*[work() for _ in range(tasks)])
            print(f"  {name}, {tasks} at a time: {count / (time.perf_counter() - begun):.0f}/s")


async def whole_runs(url, runs):
    for connections in (1, 2, 4):
        rates = await bench_runs.at_a_time(f"{url}?connections={connections}", 50, runs)
        print(f"  whole runs, 50 at a time, {connections} connections: {rates['runs/s']:.0f}/s")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url")
    arguments.add_argument("--count", type=int, default=2_000)
    given = arguments.parse_args()
    with nullcontext(given.url) if given.url else server.serve("binary") as url:
        with psycopg.connect(url) as connection:
            told = [connection.execute(f"show {name}").fetchone()[0] for name in ("server_version", "fsync")]
        print(f"PostgreSQL {told[0]}, fsync {told[1]}, psycopg {psycopg.__version__}")
        asyncio.run(one_at_a_time(url, given.count))
        asyncio.run(burst(url, 5 * given.count))
        asyncio.run(race(url, 100))
        asyncio.run(together(url, given.count))
        asyncio.run(whole_runs(url, 2 * given.count))


if __name__ == "__main__":
    main()
