"""What is the SQLite backend's own: its URL, its file, its thread, its deadlines and its errors."""

import asyncio
import os
import sqlite3
import threading
import time
from contextlib import contextmanager

import pytest
from tenure.errors import BackendMisconfigured, BackendUnavailable, InvalidClaim, InvalidDuration, InvalidUrl
from tenure.model import Claim, JobCard, RunResult
from tenure.registry import connect
from tenure_sqlite import SqliteBackend, worker
from tenure_sqlite.database import VERSION, Database

LONG_AGO = 1_700_000_000_000
TICK_S = 1.0  # over its timeout: a quarter is promised, the rest is for a machine that is busy with other things


def claim(job="sync", slot=LONG_AGO, token="one", **changes):
    fields = {"instance": "i", "lease_ms": 60_000, "mode": "manual", "overlap": "skip", "max_attempts": 3}
    return Claim(job=job, slot=slot, token=token, **{**fields, "max_late_ms": None, **changes})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@contextmanager
def raw(path):
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def locked(path, how="immediate"):
    """Another connection holds the file's lock."""
    with raw(path) as connection:
        connection.execute(f"begin {how}")
        yield
        connection.execute("rollback")


async def unavailable_within(timeout_s, call):
    started = time.monotonic()
    with pytest.raises(BackendUnavailable) as caught:
        await call()
    assert time.monotonic() - started < timeout_s + TICK_S
    return caught.value


def entering(backend):
    async def main():
        async with backend:
            pass

    asyncio.run(main())


def held():
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


@contextmanager
def nothing_leaked():
    """No more threads and open files after than before; a thread that was told to end may take a moment."""
    threads, descriptors = held()
    yield
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and (held()[0] > threads or held()[1] > descriptors):
        time.sleep(0.001)
    assert threading.active_count() <= threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors


# URLs and options


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///jobs.db", "{cwd}/jobs.db"),
        ("sqlite:///a/b.db", "{cwd}/a/b.db"),
        ("sqlite:////var/lib/jobs.db", "/var/lib/jobs.db"),
        ("sqlite:////tmp/a%20%3F%23b.db?synchronous=normal", "/tmp/a ?#b.db"),
        ("SQLITE:////tmp/Jobs.DB", "/tmp/Jobs.DB"),
    ],
)
def test_a_url_names_the_file(monkeypatch, tmp_path, url, expected):
    monkeypatch.chdir(tmp_path)
    assert connect(url)._database.path == expected.format(cwd=tmp_path)


def test_a_relative_path_stays_what_it_was_when_the_directory_changes(monkeypatch, tmp_path, path):
    monkeypatch.chdir(tmp_path)
    backend = connect("sqlite:///jobs.db")
    monkeypatch.chdir("/")
    entering(backend)
    assert path.exists()


@pytest.mark.parametrize("name", ["jobs.db", "a b?#%.db"])
def test_it_names_its_store_the_same_from_everywhere(monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    backend = SqliteBackend(name, namespace="app", timeout="7s")
    url, namespace = str(backend).split(" ", 1)
    assert namespace == "(namespace app)"
    assert url.startswith("sqlite:////")
    monkeypatch.chdir("/")
    assert connect(url)._database.path == str(tmp_path / name)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://", "memory://"),
        ("sqlite:///", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite://jobs.db", '"sqlite:///jobs.db"'),
        ("sqlite://localhost/jobs.db", "three slashes"),
        ("sqlite:///a%00b", "no NUL"),
        ("sqlite:///jobs.db?mode=ro", "'mode'.*create, keep_results, synchronous, timeout"),
        ("sqlite:///jobs.db?create=no", "'create': 'no' is neither true nor false"),
        ("sqlite:///jobs.db?synchronous=off", "'off' is not one of full, normal"),
        ("sqlite:///jobs.db?keep_results=x", "'x' is not a whole number"),
    ],
)
def test_a_url_that_cannot_be_used_is_answered_with_the_remedy(url, message):
    with pytest.raises(InvalidUrl, match=message):
        connect(url)


def test_options_are_checked_before_anything_is_opened(path):
    with pytest.raises(InvalidDuration, match="timeout: '5' "):
        connect(f"sqlite:///{path}?timeout=5")
    with pytest.raises(InvalidClaim, match="limit: 0"):
        connect(f"sqlite:///{path}?keep_results=0")
    assert not path.exists()


@pytest.mark.parametrize(("option", "level"), [("", 2), ("?synchronous=full", 2), ("?synchronous=normal", 1)])
def test_the_file_is_written_to_as_asked(path, option, level):
    backend = connect(f"sqlite:///{path}{option}")
    entering(backend)
    with_it = backend._database.open()
    assert with_it.execute("pragma synchronous").fetchone() == (level,)
    assert with_it.execute("pragma journal_mode").fetchone() == ("wal",)
    with_it.close()


# The file


def test_leaving_leaves_one_whole_file_no_thread_and_no_descriptor(path):
    async def main():
        async with SqliteBackend(path) as first, SqliteBackend(path) as second:
            await first.claim(claim())
            await second.claim(claim("other"))

    entering(SqliteBackend(path))
    with nothing_leaked():
        for _ in range(20):
            asyncio.run(main())
            assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_failing_for_long_leaks_nothing(path):  # RC01
    backend = SqliteBackend(path.parent / "missing" / "jobs.db")

    async def fail_in_use():
        async with SqliteBackend(path) as other:
            with locked(path):
                other._timeout_ms = 1
                for _ in range(20):
                    with pytest.raises(BackendUnavailable):
                        await other.claim(claim())

    entering(SqliteBackend(path))
    with nothing_leaked():
        for _ in range(30):
            with pytest.raises(BackendMisconfigured):
                entering(backend)
        asyncio.run(fail_in_use())


def test_rows_of_history_are_pruned_in_their_own_job_alone(path):
    async def main():
        async with SqliteBackend(path, keep_results=3) as backend, SqliteBackend(path, namespace="b") as neighbour:
            for slot in range(10):
                result = RunResult(slot, 1, 1, "success", "i", 1, 2)
                await neighbour.save_result("sync", result)
                await backend.save_result("other", result)
                await backend.save_result("sync", result)

    asyncio.run(main())
    with raw(path) as connection:
        rows = connection.execute("select namespace, job, count(*), min(slot) from tenure_results group by 1, 2")
        assert set(rows) == {("b", "sync", 10, 0), ("tenure", "other", 3, 7), ("tenure", "sync", 3, 7)}


def test_a_file_with_the_user_s_own_tables_keeps_them(path):
    with raw(path) as connection:
        connection.execute("create table jobs (state)")
        connection.execute("insert into jobs values ('mine')")
        connection.execute("pragma user_version=77")

    async def main():
        async with SqliteBackend(path) as backend:
            assert (await backend.claim(claim())).outcome == "won"

    asyncio.run(main())
    with raw(path) as connection:
        assert connection.execute("select * from jobs").fetchall() == [("mine",)]
        assert connection.execute("pragma user_version").fetchone() == (77,)


def test_entering_finds_what_was_there_before(path):  # DR09
    async def main(outcome):
        async with SqliteBackend(path) as backend:
            for slot in range(LONG_AGO, LONG_AGO + 30):
                assert (await backend.claim(claim(slot=slot, token=str(slot)))).outcome == outcome
                await backend.finish("sync", slot, str(slot), "success")

    asyncio.run(main("won"))
    asyncio.run(main("done"))


def test_a_file_that_was_moved_away_is_not_written_to_any_more(path):
    async def main():
        async with SqliteBackend(path) as first, SqliteBackend(path) as second:
            assert (await first.claim(claim())).outcome == "won"
            for suffix in ("", "-wal", "-shm"):
                os.rename(f"{path}{suffix}", f"{path}.old{suffix}")
            assert (await second.claim(claim(token="two"))).outcome == "won"
            assert (await first.claim(claim())).outcome == "running"

    asyncio.run(main())


# The clock


def test_the_clock_is_the_machine_s_whatever_this_process_believes(path, monkeypatch):
    async def main():
        async with SqliteBackend(path) as backend:
            before = time.time_ns() // 1_000_000
            with monkeypatch.context() as patched:
                patched.setattr(time, "time", lambda: 0.0)
                patched.setattr(time, "time_ns", lambda: 0)
                won = await backend.claim(claim())
                runs = await backend.active(["sync"])
            after = time.time_ns() // 1_000_000
            assert before - 1 <= won.now_ms <= runs.now_ms <= after + 1
            assert won.fence == won.now_ms

    asyncio.run(main())


def test_of_many_rows_one_clock_is_read(path):
    async def main():
        async with SqliteBackend(path, timeout="60s") as backend:
            names = [f"job {n}" for n in range(2_000)]
            await asyncio.gather(*[backend.claim(claim(name)) for name in names])
            found = await backend.active(names)
            assert len(found.runs) == len(names)
            assert {run.started_at + 60_000 - found.now_ms == run.lease_left_ms for run in found.runs} == {True}

    asyncio.run(main())


# The thread


def test_calls_that_wait_together_share_a_transaction(path):
    async def main():
        async with SqliteBackend(path) as backend:
            statements = []
            backend._worker._connection.set_trace_callback(statements.append)
            with locked(path):
                calls = [asyncio.ensure_future(backend.claim(claim(f"job {n}"))) for n in range(worker.BATCH)]
                await asyncio.sleep(0)  # all are queued
            assert {result.outcome for result in await asyncio.gather(*calls)} == {"won"}
            assert statements.count("commit") <= 2

    asyncio.run(main())


def test_a_state_that_cannot_be_read_fails_its_own_call_alone(path):
    async def main():
        async with SqliteBackend(path) as backend:
            await backend.claim(claim("broken"))
            with raw(path) as connection:
                connection.execute("update tenure_jobs set state = x'00'")
            calls = [backend.claim(claim(job)) for job in ("a", "broken", "b")]
            a, broken, b = await asyncio.gather(*calls, return_exceptions=True)
            assert (a.outcome, b.outcome) == ("won", "won")
            assert isinstance(broken, BackendMisconfigured)

    asyncio.run(main())


def test_the_loop_goes_on_while_the_file_is_locked(path):
    async def main():
        async with SqliteBackend(path, timeout="500ms") as backend:
            with locked(path):
                call = asyncio.ensure_future(unavailable_within(0.5, lambda: backend.claim(claim())))
                turns = 0
                while not call.done():
                    await asyncio.sleep(0.005)
                    turns += 1
                await call
            assert turns > 5

    asyncio.run(main())


def test_reading_does_not_wait_for_who_writes(path):
    async def main():
        async with SqliteBackend(path, timeout="10s") as backend:
            await backend.claim(claim())
            with locked(path):
                assert len((await backend.active(["sync"])).runs) == 1
                assert await backend.results("sync") == []

    asyncio.run(main())


# Deadlines


@pytest.mark.parametrize("how", ["immediate", "exclusive"])
def test_on_a_file_that_stays_locked_every_call_ends_in_time_and_later_works(path, how):
    async def main():
        async with SqliteBackend(path, timeout="200ms") as backend:
            with locked(path, how):
                for call in (
                    lambda: backend.claim(claim(token="given up")),
                    lambda: backend.heartbeat("sync", LONG_AGO, "one"),
                    lambda: backend.finish("sync", LONG_AGO, "one", "success"),
                    lambda: backend.release("sync", LONG_AGO, "one"),
                    lambda: backend.save_result("sync", RunResult(1, 0, 0, "late", "i", None, None)),
                ):
                    error = await unavailable_within(0.2, call)
                    assert str(path) in str(error)
            assert (await backend.claim(claim())).outcome == "won"
            assert await backend.results("sync") == []

    asyncio.run(main())


def test_entering_an_empty_file_that_stays_locked_ends_in_time_and_later_works(path):
    async def main():
        backend = SqliteBackend(path, timeout="200ms")
        with locked(path, "exclusive"):
            await unavailable_within(0.2, backend.__aenter__)
        async with backend:
            assert (await backend.claim(claim())).outcome == "won"

    asyncio.run(main())


def test_entering_a_file_whose_lock_is_kept_for_good_ends_in_time(path):
    entering(SqliteBackend(path))

    async def main():
        with raw(path) as connection:
            connection.execute("pragma locking_mode=exclusive")
            connection.execute("begin exclusive")
            connection.execute("insert into tenure_schema values (0)")
            connection.execute("commit")
            await unavailable_within(0.2, SqliteBackend(path, timeout="200ms").__aenter__)

    asyncio.run(main())


def test_leaving_does_not_wait_for_a_call_that_nobody_waits_for(path):
    async def main():
        with locked_after_entering(path) as enter:
            backend = await enter(timeout="60s")
            call = asyncio.ensure_future(backend.claim(claim()))
            await asyncio.sleep(0)
            call.cancel()
            started = time.monotonic()
            await backend.__aexit__(None, None, None)
            assert time.monotonic() - started < 10

    asyncio.run(main())


@contextmanager
def locked_after_entering(path):
    with raw(path) as connection:

        async def enter(**options):
            backend = await SqliteBackend(path, **options).__aenter__()
            connection.execute("begin immediate")
            return backend

        yield enter
        connection.execute("rollback")


def test_a_cancelled_call_is_not_carried_out_later_and_the_next_gets_its_own_answer(path):
    async def main():
        async with SqliteBackend(path) as backend:
            with locked(path):
                given_up = asyncio.ensure_future(backend.claim(claim(token="given up")))
                kept = asyncio.ensure_future(backend.heartbeat("sync", LONG_AGO, "one"))
                await asyncio.sleep(0.1)
                given_up.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await given_up
            assert await kept is False
            assert (await backend.active(["sync"])).runs == ()
            assert (await backend.claim(claim())).outcome == "won"

    asyncio.run(main())


# Errors


def misconfigured(backend, *words):
    with pytest.raises(BackendMisconfigured) as caught:
        entering(backend)
    for word in (backend._database.path, *words):
        assert word in str(caught.value)
    return caught.value


def test_a_file_that_is_no_database_is_refused_and_kept(path):
    path.write_text("important notes, not a database at all\n" * 100)
    error = misconfigured(SqliteBackend(path), "not a SQLite database", "another file")
    assert isinstance(error.__cause__, sqlite3.DatabaseError)
    assert path.read_text().startswith("important")


def test_a_missing_directory_is_named(tmp_path):
    misconfigured(SqliteBackend(tmp_path / "missing" / "jobs.db"), "missing", "does not exist; create it")


@pytest.mark.parametrize("place", ["typo.db", "missing/jobs.db"])
def test_without_create_a_store_that_is_not_there_is_refused_and_nothing_is_made(tmp_path, place):
    backend = connect(f"sqlite:///{tmp_path / place}?create=false")
    misconfigured(backend, f"there is no store at {tmp_path / place}; look at the path, or start an instance")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_without_create_a_file_of_others_is_refused_and_not_touched(path, mode):
    with raw(path) as connection:
        connection.execute(f"pragma journal_mode={mode}")
        connection.execute("create table theirs (something)")
    before = path.read_bytes()
    misconfigured(SqliteBackend(path, create=False), "there is no store in", "none of tenure's tables")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_without_create_an_empty_file_stays_empty(path):
    path.touch()
    misconfigured(SqliteBackend(path, create=False), "there is no store in")
    assert path.read_bytes() == b""


def test_without_create_a_store_that_is_there_serves_as_ever(path):
    entering(SqliteBackend(path))

    async def main():
        async with SqliteBackend(path, create=False) as backend:
            assert (await backend.claim(claim())).outcome == "won"
            os.rename(path, f"{path}.away")
            with pytest.raises(BackendMisconfigured, match="there is no store at"):
                await backend.claim(claim())
            assert not path.exists()

    asyncio.run(main())


def test_without_create_a_copy_keeps_its_journal_mode(path):
    entering(SqliteBackend(path))
    with raw(path) as connection:
        connection.execute("pragma journal_mode=delete")
    before = path.read_bytes()
    entering(SqliteBackend(path, create=False))
    assert path.read_bytes() == before


def test_a_keyword_create_wins_over_the_url_s_and_must_be_a_bool(path):
    misconfigured(connect(f"sqlite:///{path}?create=true", create=False), "there is no store at")
    with pytest.raises(InvalidUrl, match="create: 'no' is neither True nor False"):
        SqliteBackend(path, create="no")


@pytest.mark.parametrize("name", ["a b.db", "50%.db", "what?mode=memory.db", "#1.db", "ž.db"])
def test_a_file_may_have_any_name(tmp_path, name):
    entering(SqliteBackend(tmp_path / name))
    assert [each.name for each in tmp_path.iterdir()] == [name]
    entering(SqliteBackend(tmp_path / name, create=False))


def test_a_directory_is_no_file(tmp_path):
    misconfigured(SqliteBackend(tmp_path), "is a directory; name a file in it")


def test_a_newer_schema_is_refused_with_the_remedy(path):
    entering(SqliteBackend(path))
    with raw(path) as connection:
        connection.execute("update tenure_schema set version = ?", (VERSION + 1,))
    misconfigured(SqliteBackend(path), f"schema {VERSION + 1}", "upgrade tenure-sqlite")


def test_tables_of_our_names_that_are_not_ours_are_refused(path):
    with raw(path) as connection:
        connection.execute("create table tenure_jobs (something)")

    async def main():
        async with SqliteBackend(path) as backend:
            with pytest.raises(BackendMisconfigured, match="no such column"):
                await backend.claim(claim())
            with raw(path) as connection:  # and its lock is gone
                connection.execute("insert into tenure_jobs values ('theirs')")

    asyncio.run(main())


def as_nobody(check):
    """Run the check in a child without root's powers, which pass every permission."""
    if (pid := os.fork()) == 0:
        code = 1
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            check()
            code = 0
        except BaseException as exc:
            os.write(2, repr(exc).encode())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.fixture
def open_path(tmp_path_factory, request):
    """A file in a directory that everybody may reach."""
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o777)
        yield type(tmp_path_factory.getbasetemp())(directory) / "jobs.db"


def test_a_directory_without_permission_is_named(open_path):
    entering(SqliteBackend(open_path))
    os.chmod(open_path, 0o666)
    os.chmod(open_path.parent, 0o555)
    as_nobody(lambda: misconfigured(SqliteBackend(open_path), "its directory", "may not be written to"))


@pytest.mark.parametrize("mode", [0o444, 0o000])
def test_a_read_only_file_is_named(open_path, mode):
    entering(SqliteBackend(open_path))
    os.chmod(open_path, mode)
    as_nobody(lambda: misconfigured(SqliteBackend(open_path), "may not be read and written by this user"))


def test_a_full_disk_is_unavailable_and_later_works(path, monkeypatch):
    async def main():
        async with SqliteBackend(path) as backend:
            connection = backend._worker._connection
            connection.execute("pragma max_page_count=1")  # SQLite's own answer is that of a full disk then
            big = RunResult(1, 1, 1, "failed", "i", 1, 2, "x" * 60_000)
            with pytest.raises(BackendUnavailable, match=r"full.*free some space") as caught:
                await backend.save_result("sync", big)
            assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
            assert str(path) in str(caught.value)
            connection.execute("pragma max_page_count=1000000")
            await backend.save_result("sync", big)
            assert await backend.results("sync") == [big]

    asyncio.run(main())


def test_a_directory_that_vanishes_in_use_is_named_and_later_works(tmp_path):
    directory = tmp_path / "volume"
    directory.mkdir()

    async def main():
        async with SqliteBackend(directory / "jobs.db") as backend:
            await backend.claim(claim())
            os.rename(directory, tmp_path / "away")
            with pytest.raises(BackendMisconfigured, match="does not exist"):
                await backend.claim(claim())
            os.rename(tmp_path / "away", directory)
            assert (await backend.claim(claim())).outcome == "won"

    asyncio.run(main())


def test_a_connection_that_cannot_be_prepared_is_closed(path, monkeypatch):
    def refuse(self, connection):
        raise BackendMisconfigured("refused")

    monkeypatch.setattr(Database, "_prepare", refuse)
    with nothing_leaked():
        for _ in range(5):
            with pytest.raises(BackendMisconfigured, match="refused"):
                entering(SqliteBackend(path))


# Cards

CARD = JobCard(
    job="sync", schedule="every 10s", words="every 10 seconds", lease_ms=30_000, overlap="skip", max_attempts=3,
    max_late_ms=None, next_slot=None, instance="a", seen_at_ms=int(time.time() * 1_000),
)  # fmt: skip


def test_a_store_of_an_earlier_version_has_no_cards_until_it_is_written_to(path):
    async def cards(**options):
        async with SqliteBackend(path, **options) as backend:
            return await backend.cards()

    async def save():
        async with SqliteBackend(path) as backend:
            await backend.save_cards([CARD])

    asyncio.run(cards())
    with raw(path) as connection:
        connection.execute("drop table tenure_cards")
    assert asyncio.run(cards(create=False)) == []
    asyncio.run(save())
    assert asyncio.run(cards(create=False)) == [CARD]
