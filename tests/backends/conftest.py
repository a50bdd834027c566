"""The stores that the shared behaviour tests run over, each with a clock the test moves."""

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from tenure.cas import CasBackend, Key, Loaded
from tenure.memory import MemoryBackend, MemoryStore
from tenure.protocol import LeaseBackend
from tenure.registry import connect
from tenure_dynamodb import DynamoBackend
from tenure_mongo.link import Link
from tenure_postgres import PostgresBackend, statements
from tenure_redis import scripts
from tenure_sqlite import SqliteBackend, queries

from . import servers_dynamodb, servers_mongo, servers_postgres
from .servers_redis import Server, serving

NOON = 1_796_126_400_000  # 2026-12-01T12:00:00Z


class Store(Protocol):
    """One store; every object that ``open`` gives works on it."""

    def open(self, **options: Any) -> LeaseBackend: ...

    def set_clock(self, now_ms: int) -> None: ...


class Memory:
    def __init__(self, _: Path) -> None:
        self.now_ms = NOON
        self._store = MemoryStore(lambda: self.now_ms)

    def open(self, **options):
        return MemoryBackend(self._store, **options)

    def set_clock(self, now_ms):
        self.now_ms = now_ms


class DictCas:
    """The smallest CasStore there is: the version is the value itself."""

    def __init__(self) -> None:
        self.now_ms = NOON
        self.values: dict[Key, bytes] = {}

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def load(self, keys):
        return Loaded(self.now_ms, [(self.values.get(key), self.values.get(key)) for key in keys])

    async def replace(self, key, value, version):
        if self.values.get(key) != version:
            return False
        self.values[key] = value
        return True


class Cas:
    def __init__(self, _: Path) -> None:
        self._store = DictCas()

    def open(self, **options):
        return CasBackend(self._store, **options)

    def set_clock(self, now_ms):
        self._store.now_ms = now_ms


class Sqlite:
    """Its clock is a row of the file, put in place of SQLite's own by ``test_clock_of_sqlite``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with_clock = sqlite3.connect(path, isolation_level=None)
        with_clock.execute("create table test_clock (now_ms integer)")
        with_clock.execute("insert into test_clock values (?)", (NOON,))
        with_clock.close()

    def open(self, **options):
        return SqliteBackend(self._path, synchronous="normal", **options)

    def set_clock(self, now_ms):
        clock = sqlite3.connect(self._path, isolation_level=None)
        clock.execute("update test_clock set now_ms = ?", (now_ms,))
        clock.close()


class Redis:
    """Its clock is a key of the server, put in place of the server's own by ``make_store``."""

    server: Server

    def __init__(self, _: Path) -> None:
        self.server.call("FLUSHALL")
        self.set_clock(NOON)

    def open(self, **options):
        return connect(self.server.url, **options)

    def set_clock(self, now_ms):
        self.server.call("SET", "test-clock", now_ms)


class Postgres:
    """Its clock is a row of the database, put in place of the server's own by ``make_store``."""

    server: servers_postgres.Server

    def __init__(self, _: Path) -> None:
        self._schema = self.server.schema()
        self.server.sql("create table if not exists public.test_clock as select 0::bigint as ms")
        self.set_clock(NOON)

    def open(self, **options):
        return PostgresBackend(self.server.url(), schema=self._schema, **options)

    def set_clock(self, now_ms):
        self.server.sql("update public.test_clock set ms = %s", now_ms)


class Mongo:
    """Its clock is put into the commands instead of the server's own, by ``make_store``."""

    server: servers_mongo.Server
    clocks: dict[str, int]

    def __init__(self, _: Path) -> None:
        self._database = self.server.database()
        self.set_clock(NOON)

    def open(self, **options):
        return connect(self.server.url(self._database), **options)

    def set_clock(self, now_ms):
        self.clocks[self._database] = now_ms


class Dynamodb:
    """A table of its own, and the clock of each object is the test's."""

    server: servers_dynamodb.Server
    tables = itertools.count()

    def __init__(self, _: Path) -> None:
        self._table = f"behaviour-{next(self.tables)}"
        self._clock = servers_dynamodb.TestClock(NOON)

    def open(self, **options):
        options = {"timeout": "60s", **options}  # asked for 40,000 jobs, dynalite takes its time
        return DynamoBackend(self._table, client=self.server.client, clock=self._clock, create=True, **options)

    def set_clock(self, now_ms):
        self._clock.now_ms = now_ms


STORES = {
    "memory": Memory,
    "cas": Cas,
    "sqlite": Sqlite,
    "redis": Redis,
    "postgres": Postgres,
    "mongo": Mongo,
    "dynamodb": Dynamodb,
}
_CLOCK = "cast(round((julianday('now') - 2440587.5) * 86400000) as integer)"


_TIME = "time[1] * 1000 + math.floor(time[2] / 1000)"


def with_test_clock(script: scripts.Script) -> scripts.Script:
    assert script.source.count(_TIME) == 1
    return scripts.Script(script.source.replace(_TIME, 'tonumber(redis.call("GET", "test-clock"))'))


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[servers_postgres.Server]:
    with servers_postgres.serving() as server:
        yield server


@pytest.fixture(scope="session")
def mongo_server() -> Iterator[servers_mongo.Server]:
    with servers_mongo.serving() as server:
        yield server


@pytest.fixture(scope="session")
def dynamodb_server() -> Iterator[servers_dynamodb.Server]:
    with servers_dynamodb.serving("dynalite") as server:
        yield server


@pytest.fixture(params=STORES)
def make_store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Store]:
    """Makes a fresh store of one kind, as often as it is called."""
    if request.param == "sqlite":
        for name in ("LOAD", "ACTIVE"):
            query = getattr(queries, name)
            assert query.count(_CLOCK) == 1
            monkeypatch.setattr(queries, name, query.replace(_CLOCK, "(select now_ms from test_clock)"))
    if request.param == "redis":
        monkeypatch.setattr(Redis, "server", request.getfixturevalue("redis_server"), raising=False)
        for name in ("CLAIM", "HOLD", "ACTIVE"):
            monkeypatch.setattr(scripts, name, with_test_clock(getattr(scripts, name)))
    if request.param == "postgres":
        monkeypatch.setattr(Postgres, "server", request.getfixturevalue("postgres_server"), raising=False)
        monkeypatch.setattr(statements, "NOW_MS", "(select ms from public.test_clock)")
    if request.param == "mongo":
        monkeypatch.setattr(Mongo, "server", request.getfixturevalue("mongo_server"), raising=False)
        monkeypatch.setattr(Mongo, "clocks", servers_mongo.put_clock_in(monkeypatch, Link), raising=False)
    if request.param == "dynamodb":
        monkeypatch.setattr(Dynamodb, "server", request.getfixturevalue("dynamodb_server"), raising=False)
    numbers = itertools.count()
    return lambda: STORES[request.param](tmp_path / f"{next(numbers)}.db")


@pytest.fixture
def store(make_store: Callable[[], Store]) -> Store:
    return make_store()
