"""The fence in the handler's own transaction: a holder that was replaced cannot commit."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time

import psycopg
import pytest
from tenure.context import Context
from tenure.errors import InvalidClaim
from tenure_postgres import PostgresBackend, guard

from .test_postgres import LONG_AGO, claim, entering, server, sql, url

__all__ = ["server", "sql", "url"]
PATIENCE_S = 60


def ctx(fence, slot=LONG_AGO, overlap="skip", job="sync"):
    return Context(job, slot, 1, fence, "manual", "i", overlap)


@pytest.fixture
def database(url, sql):
    """A database with tenure's schema and a table of the application's."""
    entering(PostgresBackend(url))
    sql("create table ledger (entry text)")
    return url


def write(database, context, entry, **options):
    """What a handler does: its work and the guard in one transaction."""
    with psycopg.connect(database) as connection:
        connection.execute("insert into ledger values (%s)", (entry,))
        guard(connection, context, **options)


async def write_async(database, context, entry):
    async with await psycopg.AsyncConnection.connect(database) as connection, connection.cursor() as cursor:
        await cursor.execute("insert into ledger values (%s)", (entry,))
        await guard(cursor, context)


def test_a_fence_that_is_not_the_newest_fails_its_transaction(database, sql):
    write(database, ctx(5), "first")
    write(database, ctx(5), "the same once more")
    write(database, ctx(7), "its successor")
    with pytest.raises(psycopg.errors.CheckViolation, match="stale_fence") as caught:
        write(database, ctx(6), "stale")
    assert caught.value.diag.constraint_name == "stale_fence"
    assert sql("select entry from ledger") == [("first",), ("the same once more",), ("its successor",)]


def test_an_asynchronous_cursor_is_awaited(database, sql):
    asyncio.run(write_async(database, ctx(5), "first"))
    with pytest.raises(psycopg.errors.CheckViolation, match="stale_fence"):
        asyncio.run(write_async(database, ctx(4), "stale"))
    assert sql("select entry from ledger") == [("first",)]


def test_fences_are_compared_within_their_scope(database):
    write(database, ctx(9), "of the job")
    for slot in (1, 2, 3):
        write(database, ctx(5, slot, "allow"), "of a run")
        write(database, ctx(8, slot, "allow"), "of the same run")
        with pytest.raises(psycopg.errors.CheckViolation):
            write(database, ctx(7, slot, "allow"), "stale")
    write(database, ctx(1, job="other"), "of another job")
    write(database, ctx(1), "of another namespace", namespace="other")


@pytest.mark.parametrize("overlap", ["skip", "allow"])
def test_where_the_store_is_in_the_same_database_a_takeover_alone_is_enough(database, overlap):
    """The new owner need not have guarded anything yet."""

    async def main():
        async with PostgresBackend(database) as backend:
            won = await backend.claim(claim(overlap=overlap))
            write(database, ctx(won.fence, overlap=overlap), "held")
            await backend.release("sync", LONG_AGO, "one")
            await backend.claim(claim(token="two", mode="takeover", after=1, overlap=overlap))
            with pytest.raises(psycopg.errors.CheckViolation, match="stale_fence"):
                write(database, ctx(won.fence, overlap=overlap), "stale")

    asyncio.run(main())


def test_it_works_in_a_database_that_is_not_the_store_s(database, server):
    elsewhere = server.schema()
    server.sql(f"create database {elsewhere}")
    url = server.url(f"/{elsewhere}")
    asyncio.run(PostgresBackend(url, schema="fences of 'mine'").migrate())
    with psycopg.connect(url) as connection:
        guard(connection, ctx(5), schema="fences of 'mine'")
        with pytest.raises(psycopg.errors.CheckViolation):
            guard(connection, ctx(4), schema="fences of 'mine'")
    server.sql(f"drop database {elsewhere} with (force)")


def test_of_two_transactions_the_later_waits_for_the_earlier(database, sql):
    """So what an owner's transaction reads is what its predecessor's left, all of it."""
    with psycopg.connect(database) as first:
        first.execute("insert into ledger values ('predecessor')")
        guard(first, ctx(5))
        second = subprocess.Popen([sys.executable, "-c", WRITE.format(url=database, fence=7, entry="successor")])
        limit = time.monotonic() + PATIENCE_S
        while not sql("select 1 from pg_stat_activity where wait_event_type = 'Lock'"):
            assert time.monotonic() < limit, "the successor waits"
            time.sleep(0.01)
        first.commit()
    assert second.wait(PATIENCE_S) == 0
    assert sql("select entry from ledger") == [("predecessor",), ("successor",)]


WRITE = textwrap.dedent("""
    import psycopg
    from tenure.context import Context
    from tenure_postgres import guard
    with psycopg.connect({url!r}) as connection:
        connection.execute("insert into ledger values ({entry!r})")
        guard(connection, Context("sync", 1, 1, {fence}, "manual", "i", "skip"))
""")


def test_fences_of_runs_long_past_are_removed_now_and_then(database, sql, monkeypatch):
    monkeypatch.setattr("tenure_postgres.fencing._REMOVALS", 1.0)
    monkeypatch.setattr("tenure_postgres.fencing._KEPT", 10)
    write(database, ctx(5), "of the job")
    for slot in range(30):
        write(database, ctx(5, slot, "allow"), "of a run")
    assert sql("select min(slot) from tenure.fences where slot >= 0") == [(19,)]
    assert sql("select fence from tenure.fences where slot < 0") == [(5,)]


def test_without_a_fence_nothing_can_be_guarded(database):
    with pytest.raises(InvalidClaim, match="claim-only"):
        write(database, ctx(0), "x")


HOLDER = textwrap.dedent("""
    import asyncio, sys
    import psycopg
    from tenure import Scheduler
    from tenure_postgres import guard

    url, name = sys.argv[1:]
    scheduler = Scheduler(url, instance=name)

    @scheduler.every("sync", "1h", lease="800ms", max_late=None)
    def sync(ctx):
        with psycopg.connect(url) as connection:
            connection.execute("insert into ledger values (%s)", (f"{name} {ctx.attempt}",))
            print("writing", flush=True)
            sys.stdin.readline()
            try:
                guard(connection, ctx)
                connection.commit()
                print("committed", flush=True)
            except psycopg.errors.CheckViolation:
                print("refused", flush=True)

    async def main():
        async with scheduler:
            if name == "first":
                await scheduler.trigger("sync")
            await asyncio.sleep(3600)

    asyncio.run(main())
""")


def test_a_holder_that_was_frozen_and_replaced_cannot_commit(database, sql):
    """Two real processes under one schedule; the first is frozen amid its transaction, the other takes its run over."""
    first = started(database, "first")
    second = None
    try:
        assert first.stdout.readline() == "writing\n"
        os.kill(first.pid, signal.SIGSTOP)
        second = started(database, "second")
        assert second.stdout.readline() == "writing\n"
        os.kill(first.pid, signal.SIGCONT)
        answer(first)
        assert first.stdout.readline() == "refused\n"
        answer(second)
        assert second.stdout.readline() == "committed\n"
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.communicate()
    assert sql("select entry from ledger") == [("second 2",)]


def started(database, name):
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, database, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )


def answer(process):
    process.stdin.write("go\n")
    process.stdin.flush()
