"""What happened to others on real stores, in reports from the field, each named after the race or the fault it pins."""

import asyncio
import json
import time
from pathlib import Path

import pytest
from tenure import BackendMisconfigured, connect
from tenure.model import Claim

from .servers_etcd import etcd

SLOT = 1_750_000_000_000


def claim(token, *, after=0, job="job", lease_ms=60_000, mode="manual"):
    asked = {"overlap": "skip", "max_attempts": 3, "max_late_ms": None, "after": after, "mode": mode}
    return Claim(job=job, slot=SLOT, token=token, instance="host-1", lease_ms=lease_ms, **asked)


def on(url, scenario, **options):
    async def main():
        async with connect(url, **options) as a, connect(url, **options) as b:
            await scenario(a, b)

    asyncio.run(main())


def test_a_run_whose_lease_alone_was_taken_away_is_taken_over_and_its_holder_is_told():
    """SL03: an entry was active and its lease record gone, by eviction, a restore or a hand; nobody recovered it."""
    with etcd() as (member,):

        async def scenario(a, b):
            assert (await a.claim(claim("one"))).outcome == "won"
            state = json.loads(next(value for key, value in member.keys().items() if key.endswith(b"/state")))
            lease = str(state[2][0][11])
            assert int(lease) in member.leases()
            await asyncio.to_thread(member.ask, "/v3/lease/revoke", {"ID": lease})
            told = await b.claim(claim("two", after=1, mode="takeover"))
            assert (told.outcome, told.attempt) == ("won", 2)
            assert not await a.heartbeat("job", SLOT, "one")
            assert not await a.finish("job", SLOT, "one", "success")

        on(f"etcd://{member.address}?timeout=20s", scenario)


@pytest.mark.parametrize("functions", [True, False])
def test_a_lease_counts_from_when_the_lock_was_had_and_not_from_the_transaction_s_start(postgres_server, functions):
    """CK07: now() is when the transaction began; who had waited for a row got a lease that was over, or never ended."""
    schema = postgres_server.schema()

    async def scenario(a, b):
        assert (await a.claim(claim("one", lease_ms=300))).outcome == "won"
        other = postgres_server.connect()
        try:
            other.autocommit = False
            await asyncio.to_thread(other.execute, f"select * from {schema}.jobs for update")
            waiting = asyncio.create_task(b.claim(claim("two", after=1, mode="takeover", lease_ms=2_000)))
            await waits_for_a_lock(postgres_server)
            await asyncio.sleep(1.0)  # what it waits for: longer than the first lease, not the second
            await asyncio.to_thread(other.rollback)
        finally:
            other.close()
        told = await waiting
        assert (told.outcome, told.attempt) == ("won", 2)
        (run,) = (await a.active(["job"])).runs
        assert run.live
        assert run.lease_left_ms > 1_200

    on(postgres_server.url(), scenario, schema=schema, functions=functions, timeout="20s")


async def waits_for_a_lock(server):
    limit = time.monotonic() + 20
    while not server.sql(
        "select 1 from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'tenure'"
    ):
        assert time.monotonic() < limit, "the claim does not wait for the lock"
        await asyncio.sleep(0.02)


def test_losers_of_a_race_leave_no_error_in_the_server_s_log(postgres_server):
    """DR10: every loser of the race logged a duplicate key; operators learned to ignore the log."""
    log = Path(postgres_server._directory) / "log"

    async def scenario(a, b):
        before = log.read_text().count("ERROR")
        for number in range(20):
            asked = [claim(f"t{n}", job=f"race {number}") for n in range(20)]
            told = await asyncio.gather(*(one.claim(each) for one in (a, b) for each in asked))
            assert {answer.outcome for answer in told} == {"won", "running"}
        assert log.read_text().count("ERROR") == before

    on(postgres_server.url(), scenario, schema=postgres_server.schema(), timeout="30s")


@pytest.mark.parametrize("path", ["a.b", "a$b", "a b", "a/b", "$cmd"])
def test_a_database_s_name_that_means_something_to_the_store_is_refused(path):
    """NK02: names went into keys and paths as they were."""
    with pytest.raises((BackendMisconfigured, ValueError), match=r"cannot name a database"):
        connect(f"mongodb://host/{path.replace('/', '%2F').replace(' ', '%20').replace('$', '%24')}")
