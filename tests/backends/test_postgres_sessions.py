"""Sessions of the Postgres backend: pools, poolers, pipelines, deadlines, errors, hints, forks."""

import asyncio
import os
import re
import threading
import time
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from tenure.errors import BackendClosed, BackendError, BackendMisconfigured, BackendUnavailable
from tenure.model import RunResult, new_token
from tenure_conformance.faults.proxy import Proxy
from tenure_postgres import PostgresBackend
from tenure_postgres.failures import translated
from tenure_postgres.session import Session

from .servers_postgres import HOST, PGBOUNCER, pooled, serving, standby_of
from .test_postgres import LONG_AGO, TICK_S, claim, entering, misconfigured, server, sql, url, wait_until

__all__ = ["server", "sql", "url"]


def opened(sql):
    """Connections of tenure's to the test's database."""
    asked = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'tenure'"
    return sql(asked)[0][0]


async def unavailable_within(timeout_s, call):
    started = time.monotonic()
    with pytest.raises(BackendUnavailable) as caught:
        await call()
    assert time.monotonic() - started < timeout_s + TICK_S
    return caught.value


async def wins(*backends, slots=15):
    """Of many claims of a slot one wins, through whichever backend, slot by slot."""
    for slot in range(LONG_AGO, LONG_AGO + slots):
        tokens = [new_token() for _ in range(30)]
        claims = [backends[n % len(backends)].claim(claim(slot=slot, token=token)) for n, token in enumerate(tokens)]
        outcomes = [result.outcome for result in await asyncio.gather(*claims)]
        assert sorted(outcomes) == ["running"] * 29 + ["won"]
        assert await backends[0].finish("sync", slot, tokens[outcomes.index("won")], "success")


# Pools of the application's


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"autocommit": False, "row_factory": dict_row, "prepare_threshold": None},
        {"autocommit": True, "prepare_threshold": 0, "cursor_factory": psycopg.AsyncClientCursor},
    ],
)
@pytest.mark.parametrize("functions", [True, False])
def test_a_pool_works_whatever_its_settings_are_and_keeps_them(url, settings, functions):
    async def main():
        async with AsyncConnectionPool(url, min_size=1, max_size=2, kwargs=settings, open=False) as pool:
            async with PostgresBackend(pool=pool, functions=functions) as backend, PostgresBackend(url) as other:
                await wins(backend, other)
                await backend.save_result("sync", RunResult(LONG_AGO, 1, 1, "success", "i", 1, 2))
                assert len(await backend.results("sync")) == 1
            async with pool.connection() as connection:
                assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
                assert connection.autocommit is settings.get("autocommit", False)
                (row,) = await (await connection.execute("select 5 as five")).fetchall()
                assert row == ({"five": 5} if "row_factory" in settings else (5,))

    asyncio.run(main())


@pytest.mark.parametrize("functions", [True, False])
def test_a_pool_that_discards_all_between_its_users_is_noticed(url, functions):
    async def reset(connection):
        await connection.set_autocommit(True)
        await connection.execute("discard all")
        await connection.set_autocommit(False)

    async def main():
        async with (
            AsyncConnectionPool(url, min_size=1, max_size=2, reset=reset, open=False) as pool,
            PostgresBackend(pool=pool, functions=functions) as backend,
        ):
            await wins(backend, slots=5)

    asyncio.run(main())


def test_a_pool_is_never_asked_for_more_than_it_has_and_stays_open(url, sql):
    async def main():
        async with AsyncConnectionPool(url, min_size=1, max_size=2, open=False) as pool:
            async with PostgresBackend(pool=pool, connections=8, timeout="20s") as backend:
                await asyncio.gather(*[backend.claim(claim(f"job {n}")) for n in range(500)])
                assert pool.get_stats()["pool_max"] == 2
            async with pool.connection() as connection:
                await connection.execute("select 1")

    asyncio.run(main())


def test_a_pool_that_is_not_open_is_named(url):
    async def main():
        pool = AsyncConnectionPool(url, open=False)
        with pytest.raises(BackendMisconfigured, match="open the pool before"):
            await PostgresBackend(pool=pool).__aenter__()

    asyncio.run(main())


# PgBouncer


@pytest.fixture(scope="module")
def bouncer(server):
    assert PGBOUNCER, "these tests need pgbouncer; apt-get install pgbouncer brings it"
    with pooled(server) as port:
        yield port


def behind(bouncer, url):
    return re.sub(r":\d+/", f":{bouncer}/", url)


@pytest.mark.parametrize("functions", [True, False])
@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_behind_pgbouncer_in_transaction_mode_all_works(bouncer, url, sql, functions, isolation):
    """Forty clients share four server processes; so nothing may rely on what a session has set or prepared."""
    (name,) = sql("select current_database()")[0]
    sql(f"alter database {name} set default_transaction_isolation = '{isolation}'")

    async def main():
        backends = [PostgresBackend(behind(bouncer, url), functions=functions, timeout="30s") for _ in range(10)]
        await asyncio.gather(*[backend.__aenter__() for backend in backends])
        async with PostgresBackend(url) as direct:
            await wins(*backends, direct)
            await asyncio.gather(*[b.claim(claim(f"{n}")) for b in backends for n in range(40)])
            assert len((await direct.active([str(n) for n in range(40)])).runs) == 40
            beats = [b.heartbeat(str(n), LONG_AGO, "one") for b in backends for n in range(40)]
            assert all(await asyncio.gather(*beats))
            assert opened(sql) <= 4 + 4
        await asyncio.gather(*[backend.__aexit__(None, None, None) for backend in backends])

    asyncio.run(main())


def test_a_transaction_pooler_is_found_out_and_nobody_listens_behind_it(bouncer, url, sql):
    async def main():
        async with PostgresBackend(behind(bouncer, url)) as backend, PostgresBackend(url) as direct:
            hints = backend.changes(["sync"])
            hint = asyncio.ensure_future(anext(hints))
            heard = asyncio.ensure_future(anext(direct.changes(["sync"])))
            await wait_until(
                lambda: sql("select 1 from pg_stat_activity where query like 'listen%%' and state = 'idle'"),
                "direct listens",
            )
            await backend.claim(claim())
            assert await backend.release("sync", LONG_AGO, "one")
            assert await asyncio.wait_for(heard, 30) == "sync", (
                "what releases behind the pooler is heard by who may listen"
            )
            assert not hint.done()
        with pytest.raises(StopAsyncIteration):
            await hint

    asyncio.run(main())


def test_no_session_behind_a_pooler_is_left_with_settings_of_ours(bouncer, url):
    entering(PostgresBackend(behind(bouncer, url)))
    with psycopg.connect(behind(bouncer, url), autocommit=True, prepare_threshold=None) as connection:
        for _ in range(8):
            assert connection.execute("show statement_timeout").fetchone() == ("0",)
            assert connection.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)


# Pipelines


def test_calls_that_wait_together_travel_together(url, monkeypatch):
    sizes = []
    ask = Session.ask

    async def counted(self, queries, **options):
        sizes.append(len(queries))
        return await ask(self, queries, **options)

    async def main():
        async with PostgresBackend(url, connections=1) as backend:
            monkeypatch.setattr(Session, "ask", counted)
            results = await asyncio.gather(*[backend.claim(claim(f"job {n}")) for n in range(200)])
            assert {result.outcome for result in results} == {"won"}
            assert len(sizes) <= 6
            assert max(sizes) == 64

    asyncio.run(main())


def test_one_call_s_failure_spoils_no_neighbour_in_its_pipeline(url, sql):
    entering(PostgresBackend(url))
    sql("create function refuse() returns trigger language plpgsql as 'begin raise exception ''no''; end'")
    sql(
        "create trigger refuse before insert on tenure.runs for each row when (new.job = 'broken')"
        " execute function refuse()"
    )

    async def main():
        async with PostgresBackend(url, connections=1) as backend:
            names = ["a", "broken", "b", "broken", "c"] * 10
            results = await asyncio.gather(*[backend.claim(claim(job)) for job in names], return_exceptions=True)
            for job, result in zip(names, results, strict=True):
                if job == "broken":
                    assert isinstance(result, BackendUnavailable)
                    assert isinstance(result.__cause__, psycopg.errors.RaiseException)
                else:
                    assert result.outcome == "won"

    asyncio.run(main())


def test_an_answer_larger_than_any_buffer_and_a_question_as_large_pass(url):
    async def main():
        async with PostgresBackend(url, keep_results=400, timeout="30s") as backend:
            text = "x" * 60_000
            saved = [RunResult(slot, 1, 1, "failed", "i", 1, 2, text) for slot in range(300)]
            await asyncio.gather(*[backend.save_result("sync", result) for result in saved])
            assert await backend.results("sync", limit=400) == saved[::-1]

    asyncio.run(main())


def test_batches_that_meet_the_same_jobs_in_opposite_order_never_deadlock(url):
    async def main():
        async with PostgresBackend(url, timeout="60s") as first, PostgresBackend(url, timeout="60s") as second:
            names = [f"job {n}" for n in range(120)]
            for slot in range(LONG_AGO, LONG_AGO + 5):
                orders = ((first, names), (second, names[::-1]))
                claims = [
                    b.claim(claim(job, slot, overlap="allow", token=f"{id(b)}")) for b, order in orders for job in order
                ]
                outcomes = [result.outcome for result in await asyncio.gather(*claims)]
                assert (outcomes.count("won"), outcomes.count("running")) == (120, 120)

    asyncio.run(main())


def test_connections_are_bounded_and_reused(url, sql):
    async def main():
        async with PostgresBackend(url, connections=3, timeout="60s") as backend:
            for _ in range(3):
                await asyncio.gather(*[backend.claim(claim(f"job {n}")) for n in range(400)])
                assert opened(sql) <= 3
        await wait_until(lambda: opened(sql) == 0, "closed on leaving")

    asyncio.run(main())


# Deadlines and cancellation


def test_a_connection_that_swallows_packets_is_left_in_time_and_later_all_works(url):
    async def main():
        port = int(re.search(r":(\d+)/", url)[1])
        async with Proxy.between(HOST, port) as proxy:
            through = re.sub(r":\d+/", f":{proxy.port}/", url)
            async with PostgresBackend(through, timeout="1s") as backend:
                await backend.claim(claim())
                await proxy.silence()
                calls = [lambda: backend.heartbeat("sync", LONG_AGO, "one"), lambda: backend.claim(claim("x"))]
                for call in calls:
                    error = await unavailable_within(1, call)
                    assert "no answer within 1s" in str(error)
                await proxy.heal()
                for _ in range(3):
                    assert await backend.heartbeat("sync", LONG_AGO, "one")

    asyncio.run(main())


def test_a_lock_that_is_held_for_good_ends_no_call_late_and_leaves_no_statement_behind(url, sql):
    async def main():
        async with PostgresBackend(url, timeout="1s") as backend:
            await backend.claim(claim())
            with psycopg.connect(url) as locking:
                locking.execute("select from tenure.runs for update")
                for call in (
                    lambda: backend.heartbeat("sync", LONG_AGO, "one"),
                    lambda: backend.claim(claim(token="two")),
                    lambda: backend.finish("sync", LONG_AGO, "one", "success"),
                ):
                    await unavailable_within(1, call)
                waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"
                await wait_until(lambda: not sql(waiting), "the server has given up, too")
                locking.rollback()
            assert await backend.heartbeat("sync", LONG_AGO, "one")

    asyncio.run(main())


def test_cancelled_calls_leave_the_backend_usable_and_no_connection_behind(url, sql):
    async def main():
        async with PostgresBackend(url, connections=2, timeout="20s") as backend:
            await backend.claim(claim("shown"))
            with psycopg.connect(url) as locking:
                locking.execute("select from tenure.jobs for update")
                for _ in range(5):
                    calls = [asyncio.ensure_future(backend.claim(claim("shown", token="t"))) for _ in range(20)]
                    await asyncio.sleep(0.01)
                    for call in calls:
                        call.cancel()
                    await asyncio.gather(*calls, return_exceptions=True)
                locking.rollback()
            answer = await backend.claim(claim("shown", token="two"))
            assert (answer.outcome, answer.holder) == ("running", "i")
            assert not await backend.heartbeat("shown", LONG_AGO, "two")
            assert opened(sql) <= 2

    asyncio.run(main())


def test_leaving_amid_calls_answers_them_or_fails_them(url):
    async def main():
        backend = await PostgresBackend(url, timeout="2s").__aenter__()
        with psycopg.connect(url) as locking:
            await backend.claim(claim())
            locking.execute("select from tenure.jobs for update")
            calls = [asyncio.ensure_future(backend.claim(claim(token=f"{n}"))) for n in range(10)]
            await asyncio.sleep(0.05)
            started = time.monotonic()
            await backend.__aexit__(None, None, None)
            assert time.monotonic() - started < 2 + TICK_S
            told = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(each, BackendError) for each in told)
        with pytest.raises(BackendClosed):
            await backend.claim(claim())

    asyncio.run(main())


@contextmanager
def nothing_leaked():
    """No more threads and open files after than before."""
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    yield
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) <= before


def test_neither_failing_nor_entering_again_leaks_anything(url):
    async def enter_and_fail():
        async with PostgresBackend(url) as backend:
            hints = backend.changes(["sync"])
            listening = asyncio.ensure_future(anext(hints))
            await asyncio.gather(*[backend.claim(claim(f"job {n}")) for n in range(20)])
        with pytest.raises(StopAsyncIteration):
            await listening
        for wrong in (f"{url}_missing", url.replace("postgres@", "nobody@"), "postgresql://127.0.0.1:1/x"):
            with pytest.raises(BackendError):
                await PostgresBackend(wrong).__aenter__()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(enter_and_fail())
    with nothing_leaked():
        for _ in range(5):
            asyncio.run(enter_and_fail())


# Other loops and processes


def test_another_loop_and_a_forked_child_are_refused_and_the_parent_goes_on(url):
    backend = PostgresBackend(url)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(backend.__aenter__())
    with pytest.raises(BackendMisconfigured, match="another event loop"):
        asyncio.run(backend.claim(claim()))
    if (child := os.fork()) == 0:
        code = 1
        try:
            asyncio.run(backend.claim(claim()))
        except BackendMisconfigured as error:
            code = 0 if "before a fork" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert loop.run_until_complete(backend.claim(claim())).outcome == "won"
    loop.run_until_complete(backend.__aexit__(None, None, None))
    loop.close()


# Errors


def test_what_is_wrong_for_good_is_told_with_its_remedy_and_without_secrets(server, url):
    host = url.rpartition("@")[2]
    for wrong, words in (
        (f"{url}_missing", ["does not exist", "create the database"]),
        (f"postgresql://stranger:se-cret@{host}", ["authentication failed", '"***"', "pg_hba.conf"]),
        (f"postgresql://nobody-known@{host}", ["does not exist", "look at the user"]),
        (f"{url}?sslmode=verify-full", ["sslmode"]),
    ):
        error = misconfigured(PostgresBackend(wrong), *words)
        assert isinstance(error.__cause__, psycopg.Error)
        assert "se-cret" not in f"{error}{error!r}{error.__cause__}"


def test_a_server_that_is_not_there_is_unavailable():
    async def main():
        error = await unavailable_within(5, PostgresBackend("postgresql://127.0.0.1:1/app").__aenter__)
        assert "127.0.0.1" in str(error)
        assert isinstance(error.__cause__, psycopg.OperationalError)

    asyncio.run(main())


def test_a_server_without_a_connection_to_spare_is_unavailable_and_later_works(url):
    with serving(max_connections=8, superuser_reserved_connections=1) as small:
        small.sql("create role app login")
        small.sql("grant create on database postgres to app")
        place = small.url(user="app")

        async def main():
            taken = [psycopg.connect(place) for _ in range(6)]
            with pytest.raises(BackendUnavailable, match="lower connections="):
                await PostgresBackend(place).__aenter__()
            for connection in taken:
                connection.close()
            await asyncio.sleep(0.2)
            async with PostgresBackend(place) as backend:
                assert (await backend.claim(claim())).outcome == "won"

        asyncio.run(main())


def test_connections_that_the_server_ended_while_idle_cost_no_call(url, sql):
    ended = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tenure'"

    async def main():
        async with PostgresBackend(url) as backend:
            for turn in range(5):
                await asyncio.gather(*[backend.claim(claim(f"job {turn} {n}")) for n in range(8)])
                sql(ended)
                await asyncio.sleep(0.05)
                assert await backend.heartbeat(f"job {turn} 0", LONG_AGO, "one")

    asyncio.run(main())


def test_a_connection_that_ends_amid_a_call_is_unavailable_and_the_next_call_works(url, sql):
    async def main():
        async with PostgresBackend(url) as backend:
            await backend.claim(claim())
            with psycopg.connect(url) as locking:
                locking.execute("select from tenure.runs for update")
                call = asyncio.ensure_future(backend.heartbeat("sync", LONG_AGO, "one"))
                waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock'"
                await wait_until(lambda: sql(waiting), "it waits")
                sql("select pg_terminate_backend(%s)", sql(waiting)[0][0])
                with pytest.raises(BackendUnavailable, match="administrator command") as caught:
                    await call
                assert caught.value.__cause__.sqlstate == "57P01"
                locking.rollback()
            assert await backend.heartbeat("sync", LONG_AGO, "one")

    asyncio.run(main())


def test_the_same_object_works_after_the_server_was_restarted():
    with serving() as own:

        async def main():
            async with PostgresBackend(own.url()) as backend:
                await backend.claim(claim())
                await asyncio.to_thread(own.stop)
                with pytest.raises(BackendUnavailable):
                    await backend.heartbeat("sync", LONG_AGO, "one")
                await asyncio.to_thread(own.start)
                assert await backend.heartbeat("sync", LONG_AGO, "one")
                assert (await backend.claim(claim(token="two"))).outcome == "running"

        asyncio.run(main())


def test_a_session_that_is_read_only_by_default_is_written_to_all_the_same(url, sql):
    (name,) = sql("select current_database()")[0]
    sql(f"alter database {name} set default_transaction_read_only = on")

    async def main():
        async with PostgresBackend(url) as backend:
            assert (await backend.claim(claim())).outcome == "won"
        async with (
            AsyncConnectionPool(url, min_size=0, max_size=2, open=False) as pool,
            PostgresBackend(pool=pool) as backend,
        ):
            with pytest.raises(BackendUnavailable, match="the server is read-only"):
                await backend.claim(claim())

    asyncio.run(main())


def test_a_standby_is_refused_and_of_several_hosts_the_primary_is_found(tmp_path):
    with serving() as primary, standby_of(primary) as port:
        replica = primary.url().replace(f":{primary.port}/", f":{port}/")
        misconfigured(PostgresBackend(replica), "read-only standby", "target_session_attrs=read-write")
        both = f"postgresql://postgres@{HOST}:{port},{HOST}:{primary.port}/postgres"

        async def main():
            async with PostgresBackend(both) as backend:
                assert (await backend.claim(claim())).outcome == "won"

        asyncio.run(main())


def test_the_two_lines_of_a_refused_connection_are_one_sentence():
    two = "connection to server failed: Connection refused\n\tIs the server running on that host?"
    said = str(translated(psycopg.OperationalError(two), "here"))
    assert said == "here: connection to server failed: Connection refused; is the server running on that host?"


def test_each_state_that_a_server_tells_has_its_kind_of_error():
    def kind(state):
        return type(translated(psycopg.errors.lookup(state)("words"), "here"))

    for state in ("57P01", "57P02", "57P03", "08006", "53300", "53100", "25006", "40P01", "40001", "57014", "XX000"):
        assert kind(state) is BackendUnavailable, state
    for state in ("28P01", "28000", "3D000", "42501", "3F000", "42P01", "42883", "42703"):
        assert kind(state) is BackendMisconfigured, state


# Hints


def test_a_release_is_heard_at_once_and_only_in_its_namespace_and_schema(url, sql):
    async def main():
        async with (
            PostgresBackend(url) as backend,
            PostgresBackend(url, namespace="other") as other,
            PostgresBackend(url, schema="other") as elsewhere,
        ):
            hints = backend.changes(["sync", "it's"])
            heard = asyncio.ensure_future(anext(hints))
            await wait_until(
                lambda: sql("select 1 from pg_stat_activity where query like 'listen%%' and state = 'idle'"),
                "it listens",
            )
            for neighbour in (other, elsewhere):
                await neighbour.claim(claim())
                assert await neighbour.release("sync", LONG_AGO, "one")
            await backend.claim(claim("it's"))
            released = time.monotonic()
            assert await backend.release("it's", LONG_AGO, "one")
            assert await heard == "it's"
            assert time.monotonic() - released < TICK_S
            await hints.aclose()

    asyncio.run(main())


def test_a_listener_whose_connection_ends_listens_again_by_itself(url, sql):
    listening = "select pid from pg_stat_activity where query like 'listen%%' and state = 'idle'"

    async def main():
        async with PostgresBackend(url) as backend:
            hints = backend.changes(["sync"])
            heard = asyncio.ensure_future(anext(hints))
            await wait_until(lambda: sql(listening), "it listens")
            ((first,),) = sql(listening)
            sql("select pg_terminate_backend(%s)", first)
            await wait_until(lambda: sql(listening) not in ([], [(first,)]), "it listens again")
            await backend.claim(claim())
            assert await backend.release("sync", LONG_AGO, "one")
            assert await heard == "sync"
            await hints.aclose()
            await wait_until(lambda: not sql(listening), "it listens no more")

    asyncio.run(main())


def test_beside_a_pool_it_listens_on_a_connection_of_its_own(url, sql):
    async def main():
        async with (
            AsyncConnectionPool(url, min_size=1, max_size=1, open=False) as pool,
            PostgresBackend(pool=pool) as backend,
        ):
            hints = backend.changes(["sync"])
            heard = asyncio.ensure_future(anext(hints))
            await wait_until(
                lambda: sql("select 1 from pg_stat_activity where query like 'listen%%' and state = 'idle'"),
                "it listens",
            )
            await backend.claim(claim())
            assert await backend.release("sync", LONG_AGO, "one")
            assert await heard == "sync"
            await hints.aclose()

    asyncio.run(main())
