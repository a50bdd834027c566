"""What version 0.1.0 stored is read by every later one, and what a later one stores is refused by a running older one.

The texts below are never changed: a later format is added beside them.
"""

import asyncio
import json
import sqlite3
import zlib
from contextlib import closing

import pytest
import redis
from bson.datetime_ms import DatetimeMS
from tenure import BackendMisconfigured, connect
from tenure.model import Claim, RunResult
from tenure_dynamodb import DynamoBackend

from .servers_dynamodb import TestClock
from .servers_etcd import etcd

SLOT = 1_700_000_000_000
T = 1_796_146_272_000
"""When it was written."""
STATE = (
    f'[1,{T + 676},-1,[[{SLOT + 1000},2,1,{T + 676},"t3","host-1",1000,{T + 676},{T + 1676},"open",'
    f'[[{SLOT + 1000},1,{T + 670},"host-1",{T + 670},{T + 674},true]]]],'
    f'[[{SLOT},1,1,{T + 659},"t1","host-1",1000,{T + 659},{T + 1659},"success",[]]]]'
).encode()
RECORDS = [
    RunResult(SLOT + 1000, 1, T + 670, "interrupted", "host-1", T + 670, T + 675, "told to stop"),
    RunResult(SLOT, 1, T + 659, "success", "host-1", T + 659, T + 664),
]


class Sqlite:
    def __init__(self, tmp_path, _):
        self._path = tmp_path / "jobs.db"

    def open(self):
        return connect(f"sqlite:///{self._path}", namespace="app")

    def write(self, state=STATE):
        with closing(sqlite3.connect(self._path)) as file, file:
            file.execute("create table if not exists tenure_schema (version integer not null)")
            file.execute("insert into tenure_schema select 1 where not exists (select 1 from tenure_schema)")
            file.execute(
                "create table if not exists tenure_jobs (namespace text not null, job text not null,"
                " state blob not null, unique (namespace, job))"
            )
            file.execute(
                "create table if not exists tenure_results (namespace text not null, job text not null, slot integer"
                " not null, attempt integer not null, fence integer not null, status text not null, instance text not"
                " null, started_at integer, ended_at integer, error text, primary key (namespace, job, slot, attempt))"
                " without rowid"
            )
            file.execute("insert or replace into tenure_jobs values ('app', 'pay', ?)", (state,))
            for one in RECORDS:
                row = (one.slot, one.attempt, one.fence, one.status, one.instance, one.started_at, one.ended_at)
                sql = "insert or replace into tenure_results values ('app', 'pay', ?, ?, ?, ?, ?, ?, ?, ?)"
                file.execute(sql, (*row, one.error))

    def write_newer(self):
        self.write(STATE.replace(b"[1,", b"[2,", 1))


class Redis:
    def __init__(self, _, request):
        server = request.getfixturevalue("redis_server")
        server.call("FLUSHALL")
        self._url = server.url

    def open(self):
        return connect(self._url, namespace="app")

    def write(self):
        ended, unfinished = f"{SLOT:015}", f"{SLOT + 1000:015}"
        run = f"{ended} success 1 1 {T + 659} 1000 {T + 659} {T + 659} host-1\nt1"
        lost = f"{unfinished} released 1 0 {T + 670} 0 {T + 674} {T + 670} host-1"
        newest = f"{unfinished} open 2 1 {T + 676} 1000 {T + 676} {T + 676} host-1\nt3\n{lost}"
        fields = {"format": "1", "fence": str(T + 676), "floor": "", "open": unfinished, "ended": ended}
        records = {
            f"{one.slot:015}0011[1,[[{one.slot},1,{one.fence},"
            f'"{one.status}","host-1",{one.started_at},{one.ended_at},{json.dumps(one.error)}]]]': 0
            for one in RECORDS
        }
        with redis.Redis.from_url(self._url) as client:
            client.set("tenure:{app:}", "1")
            client.hset("tenure:{app:pay}:runs", mapping={**fields, ended: run, unfinished: newest})
            client.zadd("tenure:{app:pay}:results", records)

    def write_newer(self):
        with redis.Redis.from_url(self._url) as client:
            client.hset("tenure:{app:pay}:runs", "format", "2")


class Etcd:
    def __init__(self, _, request):
        self._member = request.getfixturevalue("member")
        self._member.delete(b"tenure/")

    def open(self):
        return connect(f"etcd://{self._member.address}?timeout=20s", namespace="app")

    def write(self, number=1):
        lost = f'[[{SLOT + 1000},1,2,"host-1",{T + 670},{T + 674},true]]'
        run = f'[{SLOT + 1000},2,1,0,"t3","host-1",2000,{T + 676},{T + 2676},false,0,3592643466231722516,{lost}]'
        state = f'[{number},-1,[{run}],[[{SLOT},1,"t1","s"]]]'
        self._member.put(b"tenure/app/format", b"1")
        self._member.put(b"tenure/app/run/pay/state", state.encode())
        for one in RECORDS:
            key = f"tenure/app/log/pay/{253402300799999 - one.slot:015}/0999999999999999"
            row = [one.slot, 1, one.fence, one.status, "host-1", one.started_at, one.ended_at, one.error]
            self._member.put(key.encode(), json.dumps([1, [row]], separators=(",", ":")).encode())

    def write_newer(self):
        self.write(2)


class Dynamodb:
    def __init__(self, _, request):
        self._server = request.getfixturevalue("dynamodb_server")
        self._table = f"stored-{request.node.name.translate(str.maketrans('[]', '--'))}"

    def open(self):
        given = {"client": self._server.client, "clock": TestClock(T + 3_600_000), "create": True}
        return DynamoBackend(self._table, namespace="app", timeout="60s", **given)

    def write(self, layout="1"):
        asyncio.run(_entered(self.open()))  # the table
        key = {"pk": {"S": '["app","pay"]'}}
        item = {
            **key,
            "sk": {"S": "state"},
            "layout": {"N": layout},
            "stamp": {"B": b"0123456789abcdef"},
            "base": {"B": zlib.compress(STATE)},
            "calls": {"L": []},
            "newest": {"N": str(SLOT + 1000)},
            "fence": {"N": str(T + 676)},
            "unfinished": {"N": "1"},
        }
        self._put(item)
        for one in RECORDS:
            row = [one.slot, 1, one.fence, one.status, "host-1", one.started_at, one.ended_at, one.error]
            record = {"B": json.dumps([1, [row]], separators=(",", ":")).encode()}
            self._put({**key, "sk": {"S": f"run {one.slot:015d} 001 1"}, "record": record})

    def write_newer(self):
        self.write("2")

    def _put(self, item):
        self._server.client.put_item(TableName=self._table, Item=item)


class Postgres:
    def __init__(self, _, request):
        server = request.getfixturevalue("postgres_server")
        self._schema = server.schema()
        self._sql = server.sql
        self._url = server.url()

    def open(self):
        return connect(self._url, namespace="app", schema=self._schema)

    def write(self):
        asyncio.run(_entered(self.open()))  # the schema, which a later version migrates
        lost = json.dumps([[SLOT + 1000, 1, T + 670, "host-1", T + 670, T + 674, True]])
        self._insert("jobs", "app", "pay", T + 676, -1, SLOT + 1000, 2, [SLOT + 1000])
        ended = (SLOT, 1, 1, T + 659, "t1", "host-1", 1000, T + 659, T + 1659, "success", None)
        unfinished = (SLOT + 1000, 2, 1, T + 676, "t3", "host-1", 1000, T + 676, T + 1676, "open", lost)
        for run in (ended, unfinished):
            self._insert("runs", "app", "pay", *run)
        for one in RECORDS:
            row = (one.slot, one.attempt, one.fence, one.status, one.instance, one.started_at, one.ended_at, one.error)
            self._insert("results", "app", "pay", *row)

    def _insert(self, table, *values):
        self._sql(f"insert into {self._schema}.{table} values ({', '.join(['%s'] * len(values))})", *values)


class Mongo:
    def __init__(self, _, request):
        server = request.getfixturevalue("mongo_server")
        self._name = server.database()
        self._server = server
        self._url = server.url(self._name)

    def open(self):
        return connect(self._url, namespace="app")

    def write(self):
        job = {"namespace": "app", "job": "pay"}
        lost = {"slot": SLOT + 1000, "attempt": 1, "fence": T + 670, "holder": "host-1"}
        lost |= {"started_at": DatetimeMS(T + 670), "ended_at": DatetimeMS(T + 674), "released": True}
        lease = {"used": 1, "fence": T + 676, "holder": "host-1", "lease_ms": 1000, "previous": [lost]}
        lease |= {"started_at": DatetimeMS(T + 676), "expires_at": DatetimeMS(T + 1676)}
        ended = {"slot": SLOT, "attempt": 1, "token": "t1", "status": "success"}
        unfinished = {"slot": SLOT + 1000, "attempt": 2, "token": "t3", "status": "open", "lease": lease}
        with self._server.client() as client:
            database = client[self._name]
            database.tenure_jobs.insert_one({"_id": "schema", "format": 1})
            database.tenure_jobs.insert_one({"_id": job, "fence": T + 676, "floor": -1, "runs": [ended, unfinished]})
            for one in RECORDS:
                times = {"started_at": DatetimeMS(one.started_at), "ended_at": DatetimeMS(one.ended_at)}
                record = {"fence": one.fence, "status": one.status, "instance": one.instance, "error": one.error}
                place = {**job, "slot": one.slot, "attempt": one.attempt}
                database.tenure_results.insert_one({"_id": place, **record, **times})


STORES = {
    "sqlite": Sqlite,
    "redis": Redis,
    "postgres": Postgres,
    "mongo": Mongo,
    "dynamodb": Dynamodb,
    "etcd": Etcd,
}


@pytest.fixture(scope="module")
def member():
    with etcd() as (one,):
        yield one


async def _entered(backend):
    async with backend:
        pass


def claim(slot=SLOT + 1000, job="pay", after=0):
    asked = {"lease_ms": 5_000, "mode": "manual", "overlap": "skip", "max_attempts": 3, "max_late_ms": None}
    return Claim(job=job, slot=slot, token=f"new {job}", instance="host-2", after=after, **asked)


@pytest.mark.parametrize("kind", STORES)
def test_what_version_0_1_0_stored_is_read(kind, tmp_path, request):
    store = STORES[kind](tmp_path, request)
    store.write()

    async def main():
        async with store.open() as backend:
            (run,) = (await backend.active(["pay"])).runs
            assert (run.slot, run.attempt, run.holder, run.live) == (SLOT + 1000, 2, "host-1", False)
            assert await backend.results("pay") == RECORDS
            done = await backend.claim(claim(SLOT))
            assert (done.outcome, done.status) == ("done", "success")
            assert await backend.finish("pay", SLOT, "t1", "success")
            won = await backend.claim(claim(after=2))
            assert (won.outcome, won.attempt) == ("won", 3)
            assert won.fence > run.fence
            assert [(lost.attempt, lost.holder, lost.fence) for lost in won.previous] == [(2, "host-1", run.fence)]
            assert not await backend.heartbeat("pay", SLOT + 1000, "t3")
            assert await backend.finish("pay", SLOT + 1000, won_token(), "success")

    asyncio.run(main())


def won_token():
    return claim().token


@pytest.mark.parametrize("kind", ["sqlite", "redis", "dynamodb", "etcd"])
def test_a_running_version_that_meets_a_later_one_s_job_refuses_it_and_serves_the_others(kind, tmp_path, request):
    store = STORES[kind](tmp_path, request)
    store.write()

    async def main():
        async with store.open() as backend:
            assert (await backend.claim(claim(job="other"))).outcome == "won"
            await asyncio.to_thread(store.write_newer)
            for call, *words in (
                (backend.claim, claim(after=2)),
                (backend.active, ["pay"]),
                (backend.heartbeat, "pay", SLOT + 1000, "t3"),
                (backend.finish, "pay", SLOT + 1000, "t3", "success"),
                (backend.release, "pay", SLOT + 1000, "t3"),
            ):
                with pytest.raises(BackendMisconfigured, match="upgrade"):
                    await call(*words)
            assert await backend.heartbeat("other", SLOT + 1000, "new other")

    asyncio.run(main())
