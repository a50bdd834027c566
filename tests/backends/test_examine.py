"""What `tenure doctor` is told of each store: good and bad, with a remedy."""

import asyncio
from types import SimpleNamespace

import pytest
from tenure.errors import BackendMisconfigured
from tenure_dynamodb import examine as dynamodb
from tenure_etcd import examine as etcd
from tenure_mongo import examine as mongo
from tenure_postgres import examine as postgres
from tenure_redis import examine as redis
from tenure_redis.server import server_of
from tenure_sqlite import SqliteBackend
from tenure_sqlite import examine as sqlite

from .servers_mongo import create_user, serving

# SQLite


def examined(backend):
    async def main():
        async with backend as entered:
            return {finding.what: finding for finding in await entered.examine()}

    return asyncio.run(main())


def test_a_full_disk_and_a_file_system_of_a_network_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite.shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    monkeypatch.setattr(sqlite, "file_system_of", lambda _: "nfs4")
    found = examined(SqliteBackend(tmp_path / "jobs.db"))
    assert (found["disk"].state, found["file system"].state) == ("warning", "wrong")
    assert "1 MB free" in found["disk"].text
    assert found["schema"].state == found["journal"].state == found["rights"].state == "ok"


def test_the_file_system_of_a_path_is_that_of_its_deepest_mount(tmp_path):
    mounts = tmp_path / "mounts"
    lines = ["dev / ext4 rw 0 0", f"host:/x {tmp_path} nfs4 rw 0 0", f"dev {tmp_path}/a/local xfs rw 0 0", "odd"]
    mounts.write_text("\n".join(lines))
    assert sqlite.file_system_of(tmp_path / "a" / "jobs.db", mounts) == "nfs4"
    assert sqlite.file_system_of(tmp_path / "a" / "local" / "jobs.db", mounts) == "xfs"
    assert sqlite.file_system_of(tmp_path / "jobs.db", tmp_path / "none") is None


# MongoDB

USER = {"authenticatedUsers": [{"user": "app", "db": "app"}]}


def privilege(collection, *actions, database="app"):
    return {"resource": {"db": database, "collection": collection}, "actions": list(actions)}


@pytest.mark.parametrize(
    ("privileges", "state", "says"),
    [
        ([privilege(name, *actions) for name, actions in mongo.NEEDED.items()], "ok", ""),
        ([privilege("", "find", "insert", "update", "remove")], "ok", ""),
        ([privilege("", "find", "insert", "update", "remove", database="")], "ok", ""),
        ([{"resource": {"anyResource": True}, "actions": ["anyAction"]}], "ok", ""),
        ([privilege("", "find")], "wrong", "insert on tenure_jobs"),
        ([privilege("", "find", "insert", "update", "remove", database="other")], "wrong", "find on tenure_jobs"),
        ([privilege("", "find", "insert", "update")], "wrong", "remove on tenure_cards"),
    ],
)
def test_rights_that_a_user_of_mongodb_lacks_are_named(privileges, state, says):
    (found,) = mongo._rights({"authInfo": {**USER, "authenticatedUserPrivileges": privileges}}, "app")
    assert found.state == state
    assert says in found.text


@pytest.mark.parametrize(
    ("hello", "state", "says"),
    [
        ({"setName": "rs", "hosts": ["a", "b", "c"]}, "ok", "'rs' of 3"),
        ({"setName": "rs", "hosts": ["a"], "arbiters": ["b"]}, "warning", "'rs' of 1"),
        ({"msg": "isdbgrid"}, "ok", "sharded"),
        ({}, "warning", "standalone"),
    ],
)
def test_the_servers_of_mongodb_are_described(hello, state, says):
    (found,) = mongo._servers(hello, "7.0.1")
    assert (found.state, "7.0.1" in found.text, says in found.text) == (state, True, True)


def test_the_role_of_the_page_is_enough_for_the_doctor_too():
    from pathlib import Path

    from tenure.registry import connect

    page = (Path(__file__).parents[2] / "docs/mongo.md").read_text("utf-8")
    with serving(users=True) as server:
        user = create_user(server, "app", page)
        found = examined(connect(server.url("app", user, authSource="app")))
    assert found["rights"].state == "ok"
    assert found["servers"].state == "warning"


# DynamoDB


class Table:
    def __init__(self, told=None, expires=True, error=None):
        self.told, self.expiring, self.error = told or {}, expires, error

    def describe(self):
        if self.error:
            raise self.error
        return self.told

    def expires(self):
        if self.error:
            raise self.error
        return self.expiring

    def put(self, *_, **__):
        raise dynamodb.Refused(None)

    def update(self, *_, **__):
        raise dynamodb.Refused(None)

    def newest(self, *_):
        return []

    get_all = delete_all = newest


@pytest.mark.parametrize(
    ("table", "states"),
    [
        (Table({"ItemCount": 7}), {"table": "ok", "expiry": "ok"}),
        (Table({"ProvisionedThroughput": {"WriteCapacityUnits": 5}}), {"table": "warning", "expiry": "ok"}),
        (Table({"Replicas": [{}]}, expires=False), {"table": "ok", "replicas": "warning", "expiry": "warning"}),
        (Table(error=BackendMisconfigured("denied")), {"table": "ok", "expiry": "ok"}),
    ],
)
def test_what_a_table_of_dynamodb_lacks_is_told(table, states):
    found = dynamodb.examine(table, {"pk": {"S": "p"}}, SimpleNamespace(doubt_ms=80), 200)
    assert {finding.what: finding.state for finding in found} == {"time": "ok", "rights": "ok", **states}


# etcd


def cluster(endpoints=1, user=None, tls=None):
    return SimpleNamespace(settings=SimpleNamespace(endpoints=("host",) * endpoints, user=user, tls=tls))


@pytest.mark.parametrize(
    ("members", "endpoints", "state"), [(1, 1, "warning"), (3, 1, "warning"), (3, 2, "ok"), (5, 5, "ok")]
)
def test_members_that_could_not_be_failed_over_to_are_told(members, endpoints, state):
    (found,) = etcd._members(cluster(endpoints), SimpleNamespace(members=[None] * members))
    assert found.state == state


def test_a_database_near_its_quota_is_told():
    full = SimpleNamespace(dbSize=int(1.9 * 2**30), version="3.5.9")
    (found,) = etcd._status(full)
    assert found.state == "warning"
    assert "compact" in found.remedy
    (found,) = etcd._status(SimpleNamespace(dbSize=2**20, version="3.5.9"))
    assert (found.state, found.text) == ("ok", "1 MB, etcd 3.5.9")
    (found,) = etcd._status(None)
    assert found.state == "warning"


def test_a_password_in_the_clear_is_told():
    assert [found.state for found in etcd._way(cluster(user="app"))] == ["warning"]
    assert list(etcd._way(cluster(user="app", tls="…"))) == []


# Redis


@pytest.mark.parametrize(
    ("info", "states"),
    [
        ("redis_version:7.2\naof_enabled:1\nconnected_slaves:1\nmaxmemory_policy:noeviction", "ok ok ok"),
        ("valkey_version:8.0\naof_enabled:0\nmaxmemory_policy:volatile-lru", "ok warning warning"),
        ("redis_version:7.2\naof_enabled:1\nconnected_slaves:1\nmaxmemory_policy:allkeys-lru", "warning ok ok"),
        (
            "redis_version:7.2\naof_enabled:1\nconnected_slaves:1\nmaxmemory_policy:allkeys-lru\nmaxmemory:100"
            "\nused_memory:95",
            "wrong ok ok warning",
        ),
    ],
)
def test_what_a_redis_may_lose_is_told(info, states):
    *found, rights = redis.examine([server_of(info.encode())], "", "")
    assert ([finding.state for finding in found], rights.state) == (states.split(), "ok")
    assert all((finding.remedy is None) == (finding.state == "ok") for finding in found)
    assert any(("Redis 7.2" in finding.text) or ("Valkey 8.0" in finding.text) for finding in found)


def test_a_redis_that_may_not_be_asked_is_warned_of():
    found, rights = redis.examine(None, "HSET: NOPERM", "+hset")
    assert (rights.state, "HSET" in rights.text, "+hset" in rights.remedy) == ("wrong", True, True)
    assert (found.state, "+info" in found.remedy) == ("warning", True)


# Postgres


def row(commit="on", fsync="on", lacking=None, oldest_s="1.5"):
    fields = ("16.4", commit, fsync, "100", lacking, oldest_s)
    return [None if field is None else field.encode() for field in fields]


@pytest.mark.parametrize(
    ("found", "pooler", "unwell"),
    [
        (row(), False, {}),
        (row(commit="remote_apply", oldest_s=None), False, {}),
        (row(commit="off"), False, {"durability": "warning"}),
        (row(fsync="off"), False, {"durability": "wrong"}),
        (row(lacking="insert on jobs"), False, {"rights": "wrong"}),
        (row(oldest_s="7200.1"), False, {"vacuum": "warning"}),
        (row(), True, {"hints": "warning"}),
    ],
)
def test_what_is_not_well_with_a_postgres_is_told(found, pooler, unwell):
    findings = postgres.examine(found, 3, pooler=pooler, functions=True)
    assert {finding.what: finding.state for finding in findings if finding.state != "ok"} == unwell
    assert all((finding.remedy is None) == (finding.state == "ok") for finding in findings)
