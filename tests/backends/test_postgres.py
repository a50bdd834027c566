"""What is the Postgres backend's own: its URL, its schema, its sessions, its deadlines and its errors."""

import asyncio
import random
import time

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool
from tenure.errors import (
    BackendError,
    BackendMisconfigured,
    InvalidClaim,
    InvalidDuration,
    InvalidUrl,
)
from tenure.memory import MemoryBackend, MemoryStore
from tenure.model import Claim, JobCard, RunResult, new_token
from tenure.registry import connect
from tenure_postgres import PostgresBackend, schema, statements

from .servers_postgres import NEWEST, PROGRAMS, Server, serving

LONG_AGO = 1_700_000_000_000
TICK_S = 1.0  # over its timeout: a quarter is promised, the rest is for a machine that is busy with other things
PATIENCE_S = 30
CARD = JobCard(
    job="sync", schedule="every 10s", words="every 10 seconds", lease_ms=30_000, overlap="skip", max_attempts=3,
    max_late_ms=None, next_slot=None, instance="i", seen_at_ms=int(time.time() * 1_000),
)  # fmt: skip


def claim(job="sync", slot=LONG_AGO, token="one", **changes):
    fields = {"instance": "i", "lease_ms": 60_000, "mode": "manual", "overlap": "skip", "max_attempts": 3}
    return Claim(job=job, slot=slot, token=token, **{**fields, "max_late_ms": None, **changes})


@pytest.fixture(scope="session")
def server(postgres_server) -> Server:
    return postgres_server


@pytest.fixture
def url(server):
    """A database of its own, with nothing in it."""
    name = server.schema()
    server.sql(f"create database {name}")
    yield server.url(f"/{name}")
    server.sql(f"drop database {name} with (force)")


@pytest.fixture
def sql(url):
    """Asks the test's database directly."""
    with psycopg.connect(url, autocommit=True) as connection:

        def ask(statement, *parameters):
            cursor = connection.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

        yield ask


def entering(backend):
    async def main():
        async with backend:
            pass

    asyncio.run(main())


def misconfigured(backend, *words):
    with pytest.raises(BackendMisconfigured) as caught:
        entering(backend)
    for word in words:
        assert word in str(caught.value)
    return caught.value


async def wait_until(told, description):
    limit = time.monotonic() + PATIENCE_S
    while not told():
        assert time.monotonic() < limit, description
        await asyncio.sleep(0.01)


# URLs and options


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:word@db.example.com/app", "postgresql://db.example.com/app"),
        ("postgres://me:word@db.example.com:5433/app?schema=jobs", "postgresql://db.example.com:5433/app"),
        ("postgresql://a:1111,b:2222/app", "postgresql://a:1111,b:2222/app"),
        ("postgresql://[::1]/app", "postgresql://[::1]/app"),
        ("postgresql:///app?host=/run/postgresql", "postgresql://%2Frun%2Fpostgresql/app"),
        ("postgresql://me@h/app?password=word&sslmode=verify-full", "postgresql://h/app"),
    ],
)
def test_it_is_shown_without_secrets(url, shown):
    backend = connect(url, namespace="n")
    place, _, rest = str(backend).partition(" (namespace n")
    assert place == shown
    assert rest == (", schema jobs)" if "schema" in url else ")")
    for text in (str(backend), repr(backend), repr(backend._address)):
        assert "word" not in text
        assert "me" not in text.replace("namespace", "")


def test_what_libpq_knows_passes_and_the_rest_is_refused():
    address = connect("postgresql://h/app?sslmode=verify-full&sslrootcert=system&timeout=3s")._address
    assert address.conninfo["sslmode"] == "verify-full"
    assert address.conninfo["sslrootcert"] == "system"
    assert "timeout" not in address.conninfo
    with pytest.raises(InvalidUrl, match=r"unknown option 'sslmod'.*connections, create, functions, keep_results"):
        connect("postgresql://h/app?sslmod=require")
    with pytest.raises(InvalidUrl, match="unknown option 'sslmode'"):
        connect("postgresql://h/app", sslmode="require")


def test_of_several_hosts_the_primary_is_wanted_unless_said_otherwise():
    assert connect("postgresql://a,b/app")._address.conninfo["target_session_attrs"] == "read-write"
    assert connect("postgresql://a,b/app?target_session_attrs=any")._address.conninfo["target_session_attrs"] == "any"
    assert "target_session_attrs" not in connect("postgresql://a/app")._address.conninfo


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        ("timeout=5", InvalidDuration, "timeout: '5'"),
        ("keep_results=0", InvalidClaim, "limit: 0"),
        ("connections=0", InvalidUrl, "connections: 0 is not a number of at least 1"),
        ("schema=", InvalidUrl, "schema: ''"),
        ("schema=pg_mine", InvalidUrl, "keeps to itself"),
        (f"schema={'n' * 64}", InvalidUrl, "longer than 63 bytes"),
        ("functions=perhaps", InvalidUrl, "neither true nor false"),
        ("schema=a&schema=b", InvalidUrl, "given twice"),
    ],
)
def test_options_are_checked_before_anything_is_opened(query, error, words):
    with pytest.raises(error, match=words):
        connect(f"postgresql://h/app?{query}")


def test_a_url_that_libpq_cannot_read_repeats_no_secret():
    with pytest.raises(InvalidUrl) as caught:
        connect("postgresql://me:se%zzcret@h:port/app")
    assert "zzcret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_address_or_a_pool_is_needed_and_not_both():
    for arguments in ({}, {"address": "postgresql://h/app", "pool": object()}):
        with pytest.raises(InvalidUrl, match="either an address or a pool"):
            PostgresBackend(**arguments)


# The schema


@pytest.mark.parametrize("name", ["tenure", 'A "quoted"; drop schema', "back\\slash 'x'", "š$1{0}%s", "select"])
def test_any_schema_s_name_works(url, sql, name):
    async def main():
        for functions in (True, False):
            async with PostgresBackend(url, schema=name, functions=functions) as backend:
                won = await backend.claim(claim(f"job {functions}"))
                assert won.outcome == "won"
                assert await backend.finish(f"job {functions}", LONG_AGO, "one", "success")

    asyncio.run(main())
    assert sql("select count(*) from pg_namespace where nspname = %s", name) == [(1,)]


def test_many_that_enter_an_empty_database_at_once_all_succeed(url):
    async def main():
        backends = [PostgresBackend(url, timeout="30s") for _ in range(24)]
        await asyncio.gather(*[backend.__aenter__() for backend in backends])
        claims = [backend.claim(claim(token=new_token())) for backend in backends]
        assert sorted(result.outcome for result in await asyncio.gather(*claims)) == ["running"] * 23 + ["won"]
        await asyncio.gather(*[backend.__aexit__(None, None, None) for backend in backends])

    asyncio.run(main())


def test_with_create_false_nothing_is_created(url, sql):
    misconfigured(PostgresBackend(url, create=False), "holds no store", "tenure migrate URL")
    assert sql("select 1 from pg_namespace where nspname = 'tenure'") == []
    entering(PostgresBackend(url))
    entering(PostgresBackend(url, create=False))


def test_an_older_schema_is_migrated_and_a_newer_one_refused(url, sql, monkeypatch):
    async def main():
        with monkeypatch.context() as older:
            older.setattr(schema, "VERSION", 1)
            assert await PostgresBackend(url).migrate() == ["0001_tables.sql"]
        misconfigured_late = PostgresBackend(url, create=False)
        with pytest.raises(BackendMisconfigured, match=r"lacks 0002_function_claim\.sql; run `tenure migrate URL`"):
            await misconfigured_late.__aenter__()
        async with PostgresBackend(url) as backend:
            assert (await backend.claim(claim())).outcome == "won"
            sql("insert into tenure.migrations values (1000)")
            assert (await backend.claim(claim())).outcome == "won"  # who runs goes on
        with pytest.raises(BackendMisconfigured, match=r"version 1000 .* knows up to .*; upgrade tenure-postgres"):
            await PostgresBackend(url).__aenter__()
        with pytest.raises(BackendMisconfigured, match="version 1000"):
            await PostgresBackend(url).migrate()

    asyncio.run(main())


def test_a_migration_that_fails_leaves_nothing_behind(url, sql, monkeypatch):
    real = schema.migration
    monkeypatch.setattr(schema, "migration", lambda number, name: real(number, name) if number == 1 else "select 1/0;")
    with pytest.raises(BackendError, match="division by zero"):
        entering(PostgresBackend(url))
    assert sql("select 1 from pg_namespace where nspname = 'tenure'") == []


def test_tables_of_our_names_that_are_not_ours_are_refused(url, sql):
    sql("create schema tenure")
    sql("create table tenure.jobs (something text)")
    misconfigured(PostgresBackend(url), "already exists", "use another one: schema=")
    sql("drop table tenure.jobs")
    sql("create table tenure.migrations (version text)")
    sql("insert into tenure.migrations values ('1')")
    with pytest.raises(BackendError):
        entering(PostgresBackend(url))


def test_a_schema_that_vanishes_in_use_is_named(url, sql):
    async def main():
        async with PostgresBackend(url) as backend:
            await backend.claim(claim())
            sql("drop schema tenure cascade")
            with pytest.raises(BackendMisconfigured, match="run `tenure migrate URL`"):
                await backend.claim(claim())
            with pytest.raises(BackendMisconfigured, match="run `tenure migrate URL`"):
                await backend.heartbeat("sync", LONG_AGO, "one")

    asyncio.run(main())


def test_the_printed_sql_and_the_grants_in_it_are_all_that_a_role_needs(url, sql, server):
    """The role has no right to create anything; what is printed as a comment is what it is granted."""
    role = f"app_{server.schema()}"
    script = PostgresBackend(url).migration_sql()
    body, _, grants = script.partition("-- What the role")
    sql(body)
    sql(f"create role {role} login")
    sql("revoke all on schema public from public")
    backend = connect(url.replace("postgres@", f"{role}@"))
    misconfigured(backend, "permission denied", "docs/postgres.md")
    sql("\n".join(line.removeprefix("-- ") for line in grants.splitlines()[1:]).replace("to app", f"to {role}"))

    async def main():
        async with backend:
            assert (await backend.claim(claim())).outcome == "won"
            assert await backend.heartbeat("sync", LONG_AGO, "one")
            assert await backend.release("sync", LONG_AGO, "one")
            taken = await backend.claim(claim(token="two", mode="takeover", after=1))
            assert taken.previous
            assert len((await backend.active(["sync"])).runs) == 1
            assert await backend.finish("sync", LONG_AGO, "two", "success")
            for slot in range(40):
                await backend.save_result("sync", RunResult(slot, 1, 1, "success", "i", 1, 2))
            assert len(await backend.results("sync")) == 20
            await backend.save_cards([CARD])
            assert await backend.cards() == [CARD]
            assert {finding.what: finding.state for finding in await backend.examine()}["rights"] == "ok"
            sql(f"revoke delete on tenure.cards from {role}")
            lacking = {finding.what: finding.text for finding in await backend.examine()}["rights"]
            assert lacking == "the role may not delete on cards"

    asyncio.run(main())
    sql(f"drop owned by {role}")
    sql(f"drop role {role}")


def test_without_rights_to_create_the_remedy_is_named(url, sql, server):
    role = f"app_{server.schema()}"
    sql(f"create role {role} login")
    misconfigured(connect(url.replace("postgres@", f"{role}@")), "permission denied for database", "tenure migrate")
    sql(f"drop role {role}")


# Decisions, differently from the shared tests: many runs, so that bounds are met


JOB_SLOTS = 40


@pytest.mark.parametrize("functions", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_long_random_histories_are_answered_as_the_reference_answers(server, monkeypatch, functions, seed):
    """Few slots and short leases: runs are ended, dropped, superseded and exhausted by the hundred."""
    asyncio.run(compare(server, monkeypatch, functions=functions, seed=seed, steps=600))


@pytest.mark.parametrize("version", PROGRAMS.keys() - {NEWEST})
def test_every_server_at_hand_answers_the_same(monkeypatch, version):
    with serving(version) as server:
        asyncio.run(compare(server, monkeypatch, functions=True, seed=version, steps=400))


async def compare(server, monkeypatch, *, functions, seed, steps):
    rng = random.Random(seed)
    now = [LONG_AGO]
    server.sql("create table if not exists public.test_clock as select 0::bigint as ms")
    monkeypatch.setattr(statements, "NOW_MS", "(select ms from public.test_clock)")
    small = {"KEPT_UNFINISHED": 6, "KEPT_ENDED": {"skip": 2, "allow": 5}}
    monkeypatch.setattr(statements, "DROPPED_TOGETHER", 1)  # at once, as the reference does
    for name, value in small.items():
        monkeypatch.setattr(statements, name, value)
        monkeypatch.setattr(f"tenure.decision.{name}", value)
    with server.connect() as clock:
        async with (
            MemoryBackend(MemoryStore(lambda: now[0])) as reference,
            PostgresBackend(server.url(), schema=server.schema(), functions=functions) as backend,
        ):
            for _ in range(steps):
                now[0] += rng.choice([0, 0, 1, 40, 200])
                clock.execute("update public.test_clock set ms = %s", (now[0],))
                method, *arguments = random_call(rng, now[0])
                expected = await getattr(reference, method)(*arguments)
                assert await getattr(backend, method)(*arguments) == expected, (method, arguments)


def random_call(rng, now):
    job, slot = rng.choice("ab"), now // 10 * 10 - rng.randrange(JOB_SLOTS) * 10
    token = f"{slot % 1000}-{rng.randrange(3)}"
    match rng.randrange(8):
        case 0:
            return "heartbeat", job, slot, token
        case 1:
            return "finish", job, slot, token, rng.choice(["success", "failed"])
        case 2:
            return "release", job, slot, token
        case 3:
            return "active", ["a", "b"]
    changes = {
        "lease_ms": rng.choice([30, 100, 2_000]),
        "mode": rng.choice(["scheduled", "catch-up", "takeover"]),
        "overlap": rng.choice(["skip", "allow", "allow"]),
        "max_attempts": rng.randint(1, 3),
        "max_late_ms": rng.choice([None, None, 300]),
        "after": rng.choice([0, 0, 1, 2]),
    }
    return "claim", claim(job, slot, token, **changes)


def test_both_ways_to_claim_share_one_store(url):
    async def main():
        async with PostgresBackend(url) as first, PostgresBackend(url, functions=False) as second:
            for slot in range(LONG_AGO, LONG_AGO + 60):
                tokens = [new_token() for _ in range(10)]
                claims = [(first, second)[n % 2].claim(claim(slot=slot, token=token)) for n, token in enumerate(tokens)]
                outcomes = [result.outcome for result in await asyncio.gather(*claims)]
                assert sorted(outcomes) == ["running"] * 9 + ["won"]
                (run,) = (await first.active(["sync"])).runs
                assert run.slot == slot
                assert await second.finish("sync", slot, tokens[outcomes.index("won")], "success")

    asyncio.run(main())


@pytest.mark.parametrize("functions", [True, False])
def test_a_heartbeat_and_a_takeover_at_the_instant_of_expiry_never_both_succeed(url, functions):
    """Race 3: a claim that locked the job alone would decide by a run that is renewed while it decides."""

    async def beating(holder, slot):
        await asyncio.sleep(random.choice((0, 0, 0, 0.001)))  # it is quicker than a claim: mostly it would be first
        return await holder.heartbeat("sync", slot, "one")

    async def main():
        async with (
            PostgresBackend(url, functions=functions) as holder,
            PostgresBackend(url, functions=functions) as other,
        ):
            taken = 0
            for slot in range(LONG_AGO, LONG_AGO + 150):
                won = await holder.claim(claim(slot=slot, lease_ms=15))
                expiry = won.now_ms + 15
                await asyncio.sleep((won.lease_left_ms or 0) / 1_000 + random.uniform(-0.003, 0.003))
                takeover = claim(slot=slot, token="two", mode="takeover", after=1)
                held, answer = await asyncio.gather(beating(holder, slot), other.claim(takeover))
                if answer.outcome == "won":
                    taken += 1
                    (lost,) = answer.previous
                    assert answer.now_ms >= lost.ended_at
                    assert not held or lost.ended_at > expiry, "the takeover overlooked a heartbeat that was confirmed"
                await (other if answer.outcome == "won" else holder).finish("sync", slot, "two", "success")
            assert taken > 0

    asyncio.run(main())


@pytest.mark.parametrize("functions", [True, False])
def test_who_waits_for_the_job_s_lock_decides_by_the_time_after(url, sql, functions):
    async def main():
        async with PostgresBackend(url, functions=functions) as backend:
            await backend.claim(claim(lease_ms=200))
            with psycopg.connect(url) as locking:
                locking.execute("select from tenure.jobs for update")
                waiting = asyncio.ensure_future(backend.claim(claim(token="two", mode="takeover", after=1)))
                await wait_until(lambda: sql("select 1 from pg_locks where not granted"), "the claim waits")
                await asyncio.sleep(0.3)
                locking.rollback()
            answer = await waiting
            assert (answer.outcome, answer.attempt) == ("won", 2)
            assert answer.now_ms >= answer.previous[0].ended_at

    asyncio.run(main())


@pytest.mark.parametrize("functions", [True, False])
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_the_database_s_isolation_level_changes_nothing(url, sql, isolation, functions):
    (name,) = sql("select current_database()")[0]
    sql(f"alter database {name} set default_transaction_isolation = '{isolation}'")

    async def main():
        async with (
            PostgresBackend(url, functions=functions) as first,
            PostgresBackend(url, functions=functions) as second,
            AsyncConnectionPool(url, min_size=0, max_size=3, open=False) as pool,
            PostgresBackend(pool=pool, functions=functions, connections=3) as third,
        ):
            for slot in range(LONG_AGO, LONG_AGO + 20):
                one_each = [claim(f"job {slot}", token=new_token()) for _ in range(12)]
                claims = [b.claim(each) for b, each in zip((first, second, third) * 4, one_each, strict=True)]
                outcomes = [result.outcome for result in await asyncio.gather(*claims)]
                assert sorted(outcomes) == ["running"] * 11 + ["won"]
            async with pool.connection() as connection:
                row = await (await connection.execute("show transaction_isolation")).fetchone()
                assert row == (isolation,)

    asyncio.run(main())


def test_a_claim_under_another_isolation_level_is_refused_by_the_function(url):
    entering(PostgresBackend(url))
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.errors.InvalidTransactionState, match="read committed"):
            connection.execute("select tenure.claim('n', 'j', 1, 't', 'i', 1, false, true, 1, null, 0)")


# State


def test_state_is_bounded_and_heartbeats_and_ends_write_no_index(url, sql):
    async def main():
        async with PostgresBackend(url, keep_results=5) as backend, PostgresBackend(url, namespace="b") as neighbour:
            await neighbour.claim(claim())
            for slot in range(LONG_AGO, LONG_AGO + 200):
                for job, overlap in (("one", "skip"), ("many", "allow")):
                    await backend.claim(claim(job, slot, overlap=overlap))
                    await backend.heartbeat(job, slot, "one")
                    await backend.finish(job, slot, "one", "success")
                    await backend.save_result(job, RunResult(slot, 1, 1, "success", "i", 1, 2))
            assert [result.slot for result in await backend.results("one")] == [
                *range(LONG_AGO + 199, LONG_AGO + 194, -1)
            ]

    asyncio.run(main())
    kept = dict(sql("select job, count(*) from tenure.runs where namespace = 'tenure' group by 1"))
    assert 129 <= kept["many"] < 129 + statements.DROPPED_TOGETHER
    assert 17 <= kept["one"] < 17 + statements.DROPPED_TOGETHER
    assert sql("select count(*) from tenure.runs where namespace = 'b'") == [(1,)]
    assert sql("select job, floor, records from tenure.jobs where namespace = 'tenure' order by 1") == [
        (job, LONG_AGO + 199 - kept[job], kept[job]) for job in ("many", "one")
    ]
    ((kept,),) = sql("select max(count) from (select count(*) from tenure.results group by job) as counted")
    assert kept < 5 + 16 * 12, "results that are not shown are removed now and then"


def test_an_update_of_a_heartbeat_is_heap_only(url, sql):
    async def main():
        async with PostgresBackend(url) as backend:
            await backend.claim(claim())
            for _ in range(50):
                await backend.heartbeat("sync", LONG_AGO, "one")
            await backend.finish("sync", LONG_AGO, "one", "success")

    asyncio.run(main())
    told = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'runs'"
    limit = time.monotonic() + PATIENCE_S
    while (found := sql(told)) != [(51, 51)]:
        assert time.monotonic() < limit, found
        time.sleep(0.05)


def test_integers_that_postgres_cannot_store_are_refused_or_as_good_as_endless(url):
    async def main():
        async with PostgresBackend(url) as backend:
            won = await backend.claim(claim(lease_ms=10**30, max_attempts=10**30, max_late_ms=10**30))
            assert won.outcome == "won"
            assert (await backend.claim(claim(token="two", after=10**30))).outcome == "running"
            with pytest.raises(InvalidClaim, match="fence: 1000000000000000000000 is more than"):
                await backend.save_result("sync", RunResult(1, 1, 10**21, "success", "i", 1, 2))

    asyncio.run(main())
