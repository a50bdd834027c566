"""What is Redis's own: keys, scripts, permissions, what servers answer, and what is said of it."""

import asyncio
import inspect
import logging
import os
import random
import re
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import redis
import redis.asyncio
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot
from tenure.errors import (
    BackendClosed,
    BackendError,
    BackendMisconfigured,
    BackendUnavailable,
    InvalidUrl,
)
from tenure.memory import MemoryBackend, MemoryStore
from tenure.model import Claim, JobCard, RunResult, new_token
from tenure.registry import connect
from tenure_conformance.servers.recipe import free_port
from tenure_redis import RedisBackend, node
from tenure_redis.errors import COMMANDS, acl_rules
from tenure_redis.keys import Keys
from tenure_redis.settings import CONNECTION_OPTIONS

from .certificates import certificates
from .conftest import Redis
from .servers_redis import HOST, PROGRAMS, answering, replicated, serving, tls_front, wait_until

PAST = 1_700_000_000_000
RECORD = RunResult(PAST, 1, 1, "success", "i", 1, 2)
CARD = JobCard(
    job="sync", schedule="every 10s", words="every 10 seconds", lease_ms=30_000, overlap="skip", max_attempts=3,
    max_late_ms=None, next_slot=None, instance="i", seen_at_ms=int(time.time() * 1_000),
)  # fmt: skip
NAMES = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=20) | st.text(
    "a:{}%*?[]\\ ", min_size=1, max_size=8
)


def claim(job="sync", slot=PAST, token=None, **changes):
    fields = {"instance": "here", "lease_ms": 10_000, "mode": "manual", "overlap": "skip", "max_attempts": 3}
    return Claim(job=job, slot=slot, token=token or new_token(), **{**fields, "max_late_ms": None, **changes})


@pytest.fixture
def server(redis_server):
    """The session's server, empty and as it was started."""
    with redis_server.client() as client:
        client.flushall()
        client.script_flush()
    return redis_server


@asynccontextmanager
async def entered(server, **options):
    async with connect(server.url, **options) as backend:
        yield backend


def running(scenario, server, **options):
    async def main():
        async with entered(server, **options) as backend:
            return await scenario(backend)

    return asyncio.run(main())


async def every_call(backend, job="sync"):
    """Each of the calls, once, with what it should answer."""
    request = claim(job)
    assert (await backend.claim(request)).outcome == "won"
    assert await backend.heartbeat(job, PAST, request.token)
    assert [run.job for run in (await backend.active([job, "other"])).runs] == [job]
    assert await backend.release(job, PAST, request.token)
    taken = claim(job, mode="takeover", after=1)
    assert (await backend.claim(taken)).attempt == 2
    assert await backend.finish(job, PAST, taken.token, "success")
    await backend.save_result(job, RECORD)
    assert await backend.results(job) == [RECORD]
    old = replace(CARD, job="old", seen_at_ms=0)
    await backend.save_cards([CARD, old])
    assert await backend.cards() == [CARD]


async def hears(backend, job="sync"):
    """Whether a release is heard."""
    heard = asyncio.Event()

    async def listen():
        async for _ in backend.changes([job]):
            heard.set()

    task = asyncio.create_task(listen())
    slot = PAST
    try:
        async with asyncio.timeout(10):
            while not heard.is_set():
                request = claim(job, slot)
                assert (await backend.claim(request)).outcome == "won"
                assert await backend.release(job, slot, request.token)
                slot += 1
                await asyncio.wait([task], timeout=0.01)
                if task.done():
                    return task.result()
        return True
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# The same answers as the reference


def random_call(chance, slots):
    job, slot, token = chance.choice("ab"), chance.choice(slots), chance.choice(["t1", "t2", "t\n3", "ü"[:0] + "%"])
    kind = chance.choices(["claim", "heartbeat", "finish", "release", "active", "tick"], [10, 1, 4, 1, 1, 3])[0]
    if kind == "claim":
        overlap = "allow" if slot % 3 else chance.choice(["skip", "allow"])
        return kind, claim(
            job,
            slot,
            token,
            overlap=overlap,
            lease_ms=chance.choice([1, 500, 2**53 + 1]) if slot % 5 else 1,
            mode=chance.choice(["scheduled", "takeover"]),
            after=chance.choice([0, 0, 1, 2]),
            max_attempts=chance.choice([1, 2, 3]),
            max_late_ms=chance.choice([None, 10**6, 10**30]),
        )
    if kind == "tick":
        return kind, chance.choice([0, 1, 1_000, -700])
    if kind == "active":
        return kind, ["b", "a"]
    return kind, job, slot, token, *(["failed"] if kind == "finish" else [])


@pytest.mark.parametrize("seed", range(3))
def test_a_long_life_of_many_runs_is_the_reference_s(redis_server, monkeypatch, request, seed):
    """Long enough that runs are dropped and floors rise, with leases and integers past 2^53."""
    store = request.getfixturevalue("redis_store")
    chance = random.Random(seed)
    clock = [PAST]

    async def main():
        async with store.open() as backend, MemoryBackend(MemoryStore(lambda: clock[0])) as reference:
            for turn in range(1_500):
                newest = PAST + turn * 7
                slots = [newest - chance.randrange(2_000) for _ in range(2)] + [newest, newest]
                kind, *arguments = random_call(chance, slots)
                if kind == "tick":
                    clock[0] += arguments[0]
                    store.set_clock(clock[0])
                    continue
                expected = await getattr(reference, kind)(*arguments)
                assert await getattr(backend, kind)(*arguments) == expected, (turn, kind, arguments)

    store.set_clock(PAST)
    asyncio.run(main())


@pytest.fixture
def redis_store(redis_server, monkeypatch):
    from tenure_redis import scripts

    from .conftest import with_test_clock

    monkeypatch.setattr(Redis, "server", redis_server, raising=False)
    for name in ("CLAIM", "HOLD", "ACTIVE"):
        monkeypatch.setattr(scripts, name, with_test_clock(getattr(scripts, name)))
    return Redis(None)


def test_more_than_a_thousand_unfinished_runs_are_superseded_like_the_reference_s(redis_store):
    clock = [PAST]

    async def main():
        async with redis_store.open() as backend, MemoryBackend(MemoryStore(lambda: clock[0])) as reference:
            answers = []

            async def both(request):
                answers.append(await reference.claim(request))
                assert await backend.claim(request) == answers[-1]

            for number in range(1_010):
                await both(claim(slot=PAST - 1_010 + number, lease_ms=1, overlap="allow"))
            clock[0] += 1_000
            redis_store.set_clock(clock[0])
            await both(claim(slot=PAST + 1, overlap="allow"))
            assert len(answers[-1].previous) == 11
            await both(claim(slot=PAST + 2))
            assert answers[-1].outcome == "overlap"
            clock[0] += 10_000
            redis_store.set_clock(clock[0])
            for _ in range(2):
                await both(claim(slot=PAST + 3, token="same"))
                assert len(answers[-1].previous) == 1_000
            assert await backend.active(["sync"]) == await reference.active(["sync"])

    redis_store.set_clock(PAST)
    asyncio.run(main())


@pytest.mark.parametrize("overlap", ["skip", "allow"])
def test_as_many_ended_runs_are_kept_as_by_the_reference(redis_store, overlap):
    async def main():
        async with redis_store.open() as backend, MemoryBackend(MemoryStore(lambda: PAST)) as reference:
            for number in range(140):
                request = claim(slot=PAST - 140 + number, overlap=overlap)
                assert await backend.claim(request) == await reference.claim(request)
                assert await backend.finish("sync", request.slot, request.token, "failed")
                assert await reference.finish("sync", request.slot, request.token, "failed")
            told = []
            for number in range(140):
                request = claim(slot=PAST - 140 + number, overlap="allow")
                told.append(await reference.claim(request))
                assert await backend.claim(request) == told[-1]
            kept = {"skip": 17, "allow": 129}[overlap]  # the newest ended after the last win
            assert [answer.status for answer in told] == ["superseded"] * (140 - kept) + ["failed"] * kept
        assert len(redis_store.server.call("HKEYS", Keys("tenure").runs("sync"))) == 5 + kept

    redis_store.set_clock(PAST)
    asyncio.run(main())


@pytest.mark.parametrize("program", [name for name, path in PROGRAMS.items() if path])
def test_every_call_on_every_server_at_hand(program):
    with serving(program=program) as server:

        async def scenario(backend):
            await every_call(backend)
            assert await hears(backend, "hinted")

        running(scenario, server)


# Keys


@given(NAMES, NAMES, NAMES, NAMES)
def test_no_two_jobs_share_a_key_and_each_has_one_hash_tag(namespace, job, other_namespace, other_job):
    keys, others = Keys(namespace), Keys(other_namespace)
    runs, results = keys.runs(job), keys.results(job)
    tags = re.findall(r"\{[^{}]+\}", runs)
    assert len(tags) == 1
    assert key_slot(runs.encode()) == key_slot(results.encode()) == key_slot(tags[0].encode())
    assert len({runs, results, keys.store}) == 3
    if (namespace, job) != (other_namespace, other_job):
        assert not {runs, results} & {others.runs(other_job), others.results(other_job)}
    if namespace != other_namespace:
        assert not others.runs(other_job).startswith(keys.prefix)
        assert not others.store.startswith(keys.prefix)


def test_names_that_look_like_encoded_ones_share_no_key():
    names = ["a", "b", "a:b", "a:", ":b", "a%3Ab", "%3A", ":", "{", "}", "%7B", "%257B", "%", "%25", "*", "%2A", "a b"]
    spaces = [Keys(name) for name in names]
    keys = [key(name) for space in spaces for key in (space.runs, space.results) for name in names]
    assert len({*keys, *(space.store for space in spaces)}) == len(names) * (2 * len(names) + 1)


def test_all_it_leaves_has_the_prefix_and_never_expires(server):
    async def scenario(backend):
        await every_call(backend)
        await every_call(backend, "{a}:b *")

    running(scenario, server, namespace="billing [eu]")
    keys = server.call("KEYS", "*")
    assert len(keys) == 6
    assert all(key.startswith(Keys("billing [eu]").prefix) for key in keys)
    assert {server.call("TTL", key) for key in keys} == {-1}


def test_a_namespace_is_an_acl_pattern_by_itself(server):
    server.call("ACL", "SETUSER", "me", "reset", "on", ">pw", *acl_rules(Keys("a*").prefix).split())
    url = f"redis://me:pw@{HOST}:{server.port}"
    asyncio.run(_enter(connect(url, namespace="a*")))
    with pytest.raises(BackendMisconfigured):
        asyncio.run(_enter(connect(url, namespace="ab")))


async def _enter(backend):
    async with backend:
        pass


def test_history_is_bounded_in_the_server_too(server):
    async def scenario(backend):
        for number in range(10):
            await backend.save_result("sync", RunResult(PAST + number, 1, 1, "success", "i", 1, 2))
            await backend.save_result("sync", RunResult(PAST + number, 1, 1, "failed", "i", 1, 2))
        assert server.call("ZCARD", Keys("tenure").results("sync")) == 3

    running(scenario, server, keep_results=3)


# State that is lost


def test_a_vanished_record_is_lost_and_never_made_again(server):
    async def scenario(backend):
        request = claim()
        first = await backend.claim(request)
        server.call("DEL", Keys("tenure").runs("sync"))
        assert not await backend.heartbeat("sync", PAST, request.token)
        assert not await backend.finish("sync", PAST, request.token, "success")
        assert not await backend.release("sync", PAST, request.token)
        assert server.call("EXISTS", Keys("tenure").runs("sync")) == 0
        assert (await backend.claim(claim())).fence > first.fence

    running(scenario, server)


def test_a_fence_rises_over_a_state_that_went_back(server):
    key = Keys("tenure").runs("sync")

    async def scenario(backend):
        await backend.claim(claim())
        with redis.Redis(port=server.port) as raw:
            before = raw.dump(key)
            request = claim(slot=PAST + 1)
            assert (await backend.claim(claim())).outcome == "running"
            raw.hset(key, "open", "")
            lost = await backend.claim(request)
            raw.restore(key, 0, before, replace=True)
        await asyncio.sleep(0.002)
        again = await backend.claim(claim(slot=PAST + 1, overlap="allow"))
        assert again.fence > lost.fence

    running(scenario, server)


# Scripts


def test_a_flush_of_the_scripts_costs_one_exchange_for_a_whole_batch(server, monkeypatch):
    exchanges = []
    exchange = node._exchange

    async def counted(connection, requests):
        exchanges.append([request.words[0] for request in requests])
        return await exchange(connection, requests)

    monkeypatch.setattr(node, "_exchange", counted)

    async def scenario(backend):
        await backend.claim(claim())
        server.call("SCRIPT", "FLUSH")
        exchanges.clear()
        answers = await asyncio.gather(*(backend.claim(claim(f"job {number}")) for number in range(64)))
        assert {answer.outcome for answer in answers} == {"won"}
        assert exchanges == [["EVALSHA"] * 64, ["EVAL", *["EVALSHA"] * 63]]
        exchanges.clear()
        await backend.claim(claim("later"))
        assert exchanges == [["EVALSHA"]]

    running(scenario, server)


def test_the_error_of_one_call_is_not_its_neighbours(server):
    server.call("SET", Keys("tenure").runs("job 7"), "somebody's")
    server.call("HSET", Keys("tenure").runs("job 9"), "field", "somebody's")

    async def scenario(backend):
        calls = (backend.claim(claim(f"job {number}")) for number in range(20))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for number in (7, 9):
            assert isinstance(answers[number], BackendMisconfigured), answers[number]
            assert "another application" in str(answers[number])
        assert [answer.outcome for number, answer in enumerate(answers) if number not in (7, 9)] == ["won"] * 18

    running(scenario, server)


@pytest.mark.parametrize(
    ("field", "value", "words"), [("format", "2", "upgrade"), (f"{PAST:015d}", "rubbish", "another application")]
)
def test_a_job_that_cannot_be_read_is_refused_with_the_remedy(server, field, value, words):
    async def scenario(backend):
        await backend.claim(claim())
        server.call("HSET", Keys("tenure").runs("sync"), field, value)
        with pytest.raises(BackendMisconfigured, match=words):
            await backend.claim(claim())
        with pytest.raises(BackendMisconfigured, match=words):
            await backend.active(["sync"])

    running(scenario, server)


def test_a_store_of_a_newer_format_or_of_somebody_else_is_refused(server):
    for stored, words in (("2", "upgrade"), ("somebody's", "another application")):
        server.call("SET", Keys("tenure").store, stored)
        with pytest.raises(BackendMisconfigured, match=words):
            asyncio.run(_enter(connect(server.url)))
    server.call("DEL", Keys("tenure").store)
    server.call("LPUSH", Keys("tenure").store, "x")
    with pytest.raises(BackendMisconfigured, match="another application"):
        asyncio.run(_enter(connect(server.url)))


def test_without_create_only_a_store_that_is_there_is_opened(server):
    with pytest.raises(BackendMisconfigured, match=r"there is no store at redis://127.0.0.1:\d+ \(namespace tenure\)"):
        asyncio.run(_enter(connect(server.url, create=False)))
    assert server.call("DBSIZE") == 0
    asyncio.run(_enter(connect(server.url)))
    asyncio.run(_enter(connect(server.url, create=False)))


# What servers answer

ERRORS = [
    ("READONLY You can't write against a read only replica.", BackendUnavailable, "replica"),
    ("LOADING Redis is loading the dataset in memory", BackendUnavailable, "just started"),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", BackendUnavailable, "lost"),
    ("CLUSTERDOWN The cluster is down", BackendUnavailable, "failover"),
    ("TRYAGAIN Multiple keys request during rehashing of slot", BackendUnavailable, "moved"),
    ("BUSY Redis is busy running a script. You can only call SCRIPT KILL", BackendUnavailable, "SCRIPT KILL"),
    ("OOM command not allowed when used memory > 'maxmemory'.", BackendUnavailable, "maxmemory"),
    ("NOREPLICAS Not enough good replicas to write.", BackendUnavailable, "min-replicas-to-write"),
    ("MISCONF Redis is configured to save RDB snapshots, but", BackendUnavailable, "disk"),
    ("ERR max number of clients reached", BackendUnavailable, "maxclients"),
    ("ERR something new", BackendUnavailable, "something new"),
    ("MOVED 5 10.0.0.1:7001", BackendMisconfigured, "redis\\+cluster"),
    ("CROSSSLOT Keys in request don't hash to the same slot", BackendMisconfigured, "one node"),
    ("NOAUTH Authentication required.", BackendMisconfigured, "password"),
    ("WRONGPASS invalid username-password pair or user is disabled.", BackendMisconfigured, "user or password"),
    ("NOPERM this user has no permissions to run the 'evalsha' command", BackendMisconfigured, "ACL SETUSER .*evalsha"),
    ("ERR unknown command 'EVALSHA', with args beginning with", BackendMisconfigured, "lacks a command"),
    ("WRONGTYPE Operation against a key holding the wrong kind of value", BackendMisconfigured, "another application"),
]


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "of a script, as Redis 6.2 words it"])
@pytest.mark.parametrize(("text", "kind", "words"), ERRORS, ids=[error[0].split()[0] for error in ERRORS])
def test_each_error_of_a_server_is_of_its_class_and_has_its_remedy(text, kind, words, wrapped):
    said = f"ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -{text}" if wrapped else text
    with answering(f"-{said}\r\n".encode()) as port, pytest.raises(kind, match=words) as caught:
        asyncio.run(_enter(connect(f"redis://user:hunter2@{HOST}:{port}", timeout="20s")))
    assert caught.value.__cause__ is not None
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_a_refused_connection_says_where_to_look():
    with pytest.raises(BackendUnavailable, match=r"[^.]: is it running there\? look at host and port$"):
        asyncio.run(_enter(connect(f"redis://{HOST}:{free_port()}")))


@pytest.mark.parametrize(
    ("user", "remedy"),
    [("", "it asks for a password and was given none; write"), (":wrong-word@", "user or password is wrong")],
)
def test_a_server_with_a_password_says_what_is_wrong_with_the_urls(server, user, remedy):
    server.call("CONFIG", "SET", "requirepass", "hunter2")
    try:
        with pytest.raises(BackendMisconfigured, match=remedy) as caught:
            asyncio.run(_enter(connect(f"redis://{user}{HOST}:{server.port}")))
        assert ".:" not in str(caught.value)
    finally:
        server.call("CONFIG", "SET", "requirepass", "", password="hunter2")


def test_a_server_without_tls_that_never_answered_is_doubted_to_speak_it(server):
    with pytest.raises(BackendUnavailable, match=r"no answer within 500ms: does it speak TLS on this port\?"):
        asyncio.run(_enter(connect(f"rediss://{HOST}:{server.port}", timeout="500ms")))


def test_what_does_not_speak_the_protocol_is_no_such_server():
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port, pytest.raises(BackendMisconfigured, match="protocol"):
        asyncio.run(_enter(connect(f"redis://{HOST}:{port}")))


def test_a_server_without_memory_refuses_before_anything_has_changed(server):
    async def scenario(backend):
        for number in range(20):  # so that a win drops some
            request = claim("full", PAST - 20 + number)
            await backend.claim(request)
            await backend.finish("full", request.slot, request.token, "success")
        request = claim()
        await backend.claim(request)
        keys = [Keys("tenure").runs(job) for job in ("sync", "full")]
        before = [server.call("HGETALL", key) for key in keys]
        server.call("CONFIG", "SET", "maxmemory", 1)
        try:
            for call in (
                backend.claim(claim(slot=PAST + 1, overlap="allow")),
                backend.claim(claim("full")),
                backend.heartbeat("sync", PAST, request.token),
                backend.finish("sync", PAST, request.token, "success"),
                backend.save_result("sync", RECORD),
            ):
                with pytest.raises(BackendUnavailable, match="maxmemory"):
                    await call
            assert [server.call("HGETALL", key) for key in keys] == before
        finally:
            server.call("CONFIG", "SET", "maxmemory", 0)
        assert await backend.finish("sync", PAST, request.token, "success")

    running(scenario, server)


def test_a_busy_script_of_somebody_is_waited_for_by_trying_again(server):
    server.call("CONFIG", "SET", "busy-reply-threshold", 10)

    async def scenario(backend):
        endless = asyncio.create_task(asyncio.to_thread(_endless_script, server))
        with pytest.raises(BackendUnavailable, match=r"SCRIPT KILL|no answer"):
            await _claimed_again_and_again(backend)
        server.call("SCRIPT", "KILL")
        await endless
        assert (await backend.claim(claim(token="mine"))).outcome == "won"

    running(scenario, server)


async def _claimed_again_and_again(backend):
    while True:
        await backend.claim(claim(token="mine"))
        await asyncio.sleep(0.01)


def _endless_script(server):
    with pytest.raises(redis.ResponseError):
        server.call("EVAL", "while true do end", 0)


# What is said at entry


@pytest.mark.parametrize(
    ("policy", "warned"),
    [("noeviction", False), ("volatile-lru", False), ("allkeys-lru", True), ("allkeys-random", True)],
)
def test_a_server_that_may_evict_jobs_is_warned_of(server, caplog, policy, warned):
    server.call("CONFIG", "SET", "maxmemory-policy", policy)
    try:
        with caplog.at_level(logging.WARNING, "tenure"):
            asyncio.run(_enter(connect(server.url)))
    finally:
        server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert [policy in record.getMessage() for record in caplog.records] == ([True] if warned else [])


def test_where_the_policy_cannot_be_known_that_is_said(server, caplog):
    rules = acl_rules(Keys("tenure").prefix).split()
    server.call("ACL", "SETUSER", "me", "reset", "on", ">pw", *rules, "-info")
    with caplog.at_level(logging.WARNING, "tenure"):
        asyncio.run(_as_user(server, every_call))
    assert "INFO is not permitted" in caplog.text
    assert "maxmemory-policy" in caplog.text


async def _as_user(server, scenario):
    async with connect(f"redis://me:pw@{HOST}:{server.port}") as backend:
        await scenario(backend)
        return backend


def test_it_is_durable_if_the_server_keeps_a_log_of_its_writes(server):
    async def capabilities():
        async with connect(server.url) as backend:
            return backend.capabilities

    assert not asyncio.run(capabilities()).durable
    server.call("CONFIG", "SET", "appendonly", "yes")
    try:
        assert asyncio.run(capabilities()).durable
    finally:
        server.call("CONFIG", "SET", "appendonly", "no")


# Users and permissions


def test_the_user_of_the_page_may_do_everything_in_its_namespace_and_nothing_else(server):
    server.call("ACL", "SETUSER", "me", "reset", "on", ">pw", *acl_rules(Keys("tenure").prefix).split())

    async def main():
        async with connect(f"redis://me:pw@{HOST}:{server.port}") as backend:
            await every_call(backend)
            assert await hears(backend, "hinted")
        with pytest.raises(BackendMisconfigured, match=re.escape("~tenure:{elsewhere:*")):
            await _enter(connect(f"redis://me:pw@{HOST}:{server.port}", namespace="elsewhere"))

    asyncio.run(main())


NEEDED_BY_MORE = {"+wait", "+select", "+client|setinfo", "+client|setname", "+cluster|slots", "+ping", "+info", "+eval"}


@pytest.mark.parametrize("rule", sorted(set(COMMANDS.split()) - NEEDED_BY_MORE))
def test_no_command_of_the_page_can_be_left_out(server, rule):
    rules = [other for other in acl_rules(Keys("tenure").prefix).split() if other != rule]
    server.call("ACL", "SETUSER", "me", "reset", "on", ">pw", *rules)
    running(every_call, server, namespace="others")  # so that the scripts are known

    async def scenario(backend):
        await every_call(backend)
        await backend.save_result("sync", RunResult(PAST, 1, 1, "failed", "i", 1, 2))
        for number in range(20):
            request = claim(slot=PAST + 1 + number)
            await backend.claim(request)
            await backend.finish("sync", request.slot, request.token, "success")
        if rule in ("+publish", "+subscribe"):
            await asyncio.wait_for(hears(backend, "hinted"), 1)

    with pytest.raises((BackendMisconfigured, TimeoutError)):
        asyncio.run(_as_user(server, scenario))


@pytest.mark.parametrize("rule", ["+hset", "+hgetall", "+zrem", "+hdel"])
def test_the_doctor_is_told_what_a_user_may_not_do_and_leaves_nothing_behind(server, rule):
    everything = acl_rules(Keys("tenure").prefix).split()
    running(every_call, server)  # the store is there
    before = server.call("DBSIZE")

    async def rights():
        async with connect(f"redis://me:pw@{HOST}:{server.port}") as backend:
            return {finding.what: finding for finding in await backend.examine()}["rights"]

    server.call("ACL", "SETUSER", "me", "reset", "on", ">pw", *everything)
    assert asyncio.run(rights()).state == "ok"
    server.call("ACL", "SETUSER", "me", "reset", "on", ">pw", *[other for other in everything if other != rule])
    found = asyncio.run(rights())
    assert (found.state, found.text.startswith(f"refused is {rule[1:].upper()}: ")) == ("wrong", True)
    assert server.call("DBSIZE") == before


def test_hints_that_may_not_be_listened_to_say_so(server):
    rules = [rule for rule in acl_rules(Keys("tenure").prefix).split() if not rule.startswith("&")]
    server.call("ACL", "SETUSER", "me", "reset", "on", ">pw", "resetchannels", *rules)

    async def main():
        async with connect(f"redis://me:pw@{HOST}:{server.port}") as backend:
            await every_call(backend)  # a release that may not be told is one all the same
            with pytest.raises(BackendMisconfigured, match="ACL SETUSER"):
                await hears(backend, "hinted")

    asyncio.run(main())


@pytest.mark.parametrize("user", ["nobody:hunter2", "me:hunter2", ":hunter2"])
def test_a_wrong_password_is_told_without_repeating_it(server, user):
    server.call("ACL", "SETUSER", "me", "reset", "on", ">pw")
    with pytest.raises(BackendMisconfigured) as caught:
        asyncio.run(_enter(connect(f"redis://{user}@{HOST}:{server.port}")))
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"


# URLs and clients


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://", "redis://localhost:6379"),
        ("redis://user:hunter2@host", "redis://host:6379"),
        ("rediss://:hunter2@host:1/2?client_name=x", "rediss://host:1/2"),
        ("valkey://host/0", "valkey://host:6379"),
        ("redis://[::1]:7", "redis://[::1]:7"),
        ("redis://[::1]", "redis://[::1]:6379"),
        ("redis+unix:///run/redis.sock?db=3", "redis+unix:///run/redis.sock?db=3"),
        ("redis+sentinel://u:hunter2@a,b:2/mymaster/1", "redis+sentinel://a:26379,b:2/mymaster/1"),
        ("rediss+cluster://:hunter2@a,b:2", "rediss+cluster://a:6379,b:2"),
    ],
)
def test_a_backend_shows_where_its_store_is_and_no_secret(url, shown):
    backend = connect(url, namespace="app")
    assert str(backend) == f"{shown} (namespace app)"
    assert "hunter2" not in f"{backend!r} {backend._settings!r}"


@pytest.mark.parametrize(
    "url",
    [
        "redis://host:port",
        "redis://host:0",
        "redis://host:99999",
        "redis://host/name",
        "redis://host/1/2",
        "redis://host?retries=3",
        "redis://host?ssl_ca_certs=x",
        "redis://host?sentinel_password=x",
        "rediss://host?ssl_cert_reqs=perhaps",
        "redis://host?db=1",
        "redis://host?connections=0",
        "redis://host?keep_results=0",
        "redis://host?wait_replicas=-1",
        "redis://host?timeout=5",
        "redis://,/0",
        "redis+sentinel://host",
        "redis+cluster://host/1",
        "redis+unix://host/path",
        "redis+unix://",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_before_anything_is_opened(url):
    with pytest.raises(ValueError, match=r"\w") as caught:
        connect(url.replace("://", "://me:hunter2@"))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis])
def test_a_client_s_settings_are_taken_whatever_it_decodes_and_wherever_it_runs(server, kind):
    server.call("ACL", "SETUSER", "me", "reset", "on", ">pw", *acl_rules(Keys("tenure").prefix).split())
    client = kind(host=HOST, port=server.port, db=3, username="me", password="pw", decode_responses=True)
    for given_client in (client, client.connection_pool):
        backend = RedisBackend(given_client)
        assert str(backend) == f"redis://{HOST}:{server.port}/3 (namespace tenure)"
        server.call("FLUSHALL")
        for _ in range(2):  # in one event loop after another
            asyncio.run(_enter(backend))

        async def scenario(backend=backend):
            async with backend:
                await every_call(backend)

        asyncio.run(scenario())


def test_what_is_no_client_is_refused():
    with pytest.raises(InvalidUrl, match="str is no client"):
        RedisBackend("redis://localhost")


def test_a_socket_of_this_host(tmp_path):
    path = tmp_path / "redis.sock"
    with serving("--unixsocket", str(path)) as server:
        asyncio.run(_uses(connect(f"redis+unix://{path}")))
        asyncio.run(_uses(RedisBackend(redis.Redis(unix_socket_path=str(path))), "again"))
        assert server.call("DBSIZE") == 6


async def _uses(backend, job="sync"):
    async with backend:
        await every_call(backend, job)


# TLS


@pytest.fixture(scope="module")
def tls():
    with certificates() as directory:
        yield directory


def test_tls_is_verified_unless_it_is_said_not_to_be(redis_server, tls):
    with tls_front(redis_server, tls) as port:
        asyncio.run(_uses(connect(f"rediss://{HOST}:{port}?ssl_ca_certs={tls}/ca.pem", namespace="tls")))
        asyncio.run(_uses(connect(f"rediss://{HOST}:{port}?ssl_cert_reqs=none", namespace="unverified")))
        client = redis.Redis(host=HOST, port=port, ssl=True, ssl_ca_certs=str(tls / "ca.pem"))
        asyncio.run(_uses(RedisBackend(client, namespace="client")))
        with pytest.raises(BackendMisconfigured, match="ssl_ca_certs"):
            asyncio.run(_enter(connect(f"rediss://{HOST}:{port}")))
        with pytest.raises(BackendMisconfigured, match="there is no file"):
            asyncio.run(_enter(connect(f"rediss://{HOST}:{port}?ssl_ca_certs=/nowhere.pem")))


def test_the_name_in_the_certificate_counts(redis_server, tls):
    with tls_front(redis_server, tls) as port:
        url = f"rediss://127.0.0.2:{port}?ssl_ca_certs={tls}/ca.pem"
        with pytest.raises((BackendMisconfigured, BackendUnavailable)) as caught:
            asyncio.run(_enter(connect(url)))
        if isinstance(caught.value, BackendMisconfigured):
            assert "name" in str(caught.value)


def test_a_client_s_certificate_is_shown_where_one_is_asked_for(redis_server, tls):
    with tls_front(redis_server, tls, asks_for_certificates=True) as port:
        url = f"rediss://{HOST}:{port}?ssl_ca_certs={tls}/ca.pem"
        asyncio.run(_uses(connect(f"{url}&ssl_certfile={tls}/client.pem&ssl_keyfile={tls}/client.key", namespace="c")))
        with pytest.raises(BackendError):
            asyncio.run(_enter(connect(url)))


# One loop, one process


def test_another_loop_is_refused_and_the_first_goes_on(server):
    async def main():
        async with connect(server.url) as backend:
            with pytest.raises(BackendMisconfigured, match="another event loop"):
                await asyncio.to_thread(lambda: asyncio.run(backend.active(["sync"])))
            with pytest.raises(BackendMisconfigured, match="another event loop"):
                await asyncio.to_thread(lambda: asyncio.run(_enter(backend)))
            await every_call(backend)
        with pytest.raises(BackendClosed):
            await backend.active(["sync"])

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 warns of forks beside threads
def test_a_forked_child_is_refused_and_harms_nothing(server):
    async def main():
        async with connect(server.url) as backend:
            await backend.claim(claim())
            child = os.fork()
            if child == 0:
                os._exit(_as_child(backend))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            for number in range(5):
                await every_call(backend, f"job {number}")

    asyncio.run(main())


def _as_child(backend):
    """0 if the parent's backend is refused at once, and leaving it is harmless."""
    try:
        call = backend.active(["sync"])
        try:
            call.send(None)
        except BackendMisconfigured as error:
            refused = "forked" in str(error)
        leaving = backend.__aexit__(None, None, None)
        try:
            leaving.send(None)
        except StopIteration:
            return 0 if refused else 1
    except BaseException:
        return 2
    return 3


# Hints


def test_a_release_is_heard_at_once_and_after_the_connection_was_lost(server):
    async def scenario(backend):
        assert await hears(backend)
        heard = asyncio.Queue()

        async def listen():
            async for job in backend.changes(["one", "two"]):
                heard.put_nowait(job)

        task = asyncio.create_task(listen())
        for turn in range(3):
            await _until_heard(backend, heard, "one", PAST + 1_000 * turn)
            assert server.call("CLIENT", "KILL", "TYPE", "pubsub") == 1
        await _until_heard(backend, heard, "two", PAST)
        assert not task.done()
        return task

    async def main():
        async with entered(server) as backend:
            task = await scenario(backend)
        await asyncio.wait_for(task, 5)  # leaving ends it

    asyncio.run(main())


async def _until_heard(backend, heard, job, slot):
    async with asyncio.timeout(20):
        while True:
            slot += 1
            request = claim(job, slot)
            assert (await backend.claim(request)).outcome == "won"
            assert await backend.release(job, slot, request.token)
            try:
                assert await asyncio.wait_for(heard.get(), 0.05) == job
            except TimeoutError:
                continue
            while not heard.empty():
                heard.get_nowait()
            return


# Replicas


def test_a_win_that_too_few_replicas_have_is_given_back():
    with replicated(1) as (primary, (replica,), _):

        async def main():
            async with connect(primary.url, wait_replicas=1, timeout="1s") as backend:
                await every_call(backend)
                answers = await asyncio.gather(*(backend.claim(claim(f"job {number}")) for number in range(20)))
                assert {answer.outcome for answer in answers} == {"won"}
                assert replica.call("HGET", Keys("tenure").runs("job 0"), "open")
                replica.freeze()
                with pytest.raises(BackendUnavailable, match="0 of 1 replicas have the win of 'lost'"):
                    await backend.claim(claim("lost"))
                (run,) = (await backend.active(["lost"])).runs
                assert not run.live
                assert (await backend.claim(claim("job 0"))).outcome == "running"  # no win, so nothing to wait for
                replica.thaw()
                await _until_replicated(primary)
                taken = await backend.claim(claim("lost", mode="takeover", after=1, max_attempts=1))
                assert (taken.outcome, taken.previous[0].released) == ("won", True)

        asyncio.run(main())


async def _until_replicated(primary):
    async with asyncio.timeout(20):
        while await asyncio.to_thread(primary.call, "INFO", "replication") == {} or not _caught_up(primary):
            await asyncio.sleep(0.02)


def _caught_up(primary):
    state = primary.call("INFO", "replication")
    return state["connected_slaves"] == 1 and state["slave0"]["offset"] == state["master_repl_offset"]


def test_a_replica_is_refused_and_a_primary_that_became_one_too_until_it_is_back(server):
    with replicated(1) as (primary, (replica,), _):
        with pytest.raises(BackendUnavailable, match="it is a replica"):
            asyncio.run(_enter(connect(replica.url)))

        async def main():
            async with connect(f"{primary.url}?client_name=mine") as backend:
                request = claim()
                await backend.claim(request)
                assert _has_client(primary, "mine")
                primary.call("REPLICAOF", HOST, replica.port)
                with pytest.raises(BackendUnavailable, match="it is a replica"):
                    await backend.heartbeat("sync", PAST, request.token)
                # Its connection is given up, so that the next call may find another primary.
                await asyncio.to_thread(wait_until, lambda: not _has_client(primary, "mine"), "a closed connection")
                primary.call("REPLICAOF", "NO", "ONE")
                assert await backend.heartbeat("sync", PAST, request.token)

        asyncio.run(main())


def _has_client(server, name):
    return name in str(server.call("CLIENT", "LIST"))


# Connections


def test_connections_that_the_server_closed_cost_no_call(server):
    async def scenario(backend):
        await asyncio.gather(*(backend.claim(claim(f"job {number}")) for number in range(300)))
        for _ in range(3):
            assert server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") >= 1
            await asyncio.sleep(0.05)  # that is told by the kernel; what comes sooner is an error, and rightly
            assert (await backend.claim(claim("job 1"))).outcome == "running"

    running(scenario, server)


def test_entering_and_leaving_again_and_again_leaves_nothing_open(server):
    descriptors = Path("/proc/self/fd")

    async def main():
        open_before = None
        backend = connect(server.url)
        for turn in range(60):
            async with backend, backend:
                await backend.active(["sync"])
                task = asyncio.create_task(_first_of(backend.changes(["sync"])))
                await asyncio.sleep(0)
            assert await task is None
            if turn == 10:
                open_before = len(list(descriptors.iterdir()))
        assert len(list(descriptors.iterdir())) <= open_before
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


async def _first_of(jobs):
    return await anext(jobs, None)


# The page


def page():
    return (Path(__file__).parents[2] / "docs" / "redis.md").read_text("utf-8")


def test_the_user_on_the_page_has_what_is_needed():
    (shown,) = re.findall(r"<!-- acl -->\n```text\n(.*?)```", page(), re.DOTALL)
    assert acl_rules(Keys("tenure").prefix) == " ".join(
        word for word in shown.split() if word.startswith(("+", "~", "&"))
    )


def test_the_guard_on_the_page_refuses_a_stale_holder(server):
    (code,) = re.findall(r"<!-- example: guard -->\n```python\n(.*?)```", page(), re.DOTALL)
    names = {}
    exec(compile(code, "docs/redis.md", "exec"), names)
    save_total = names["save_total"]

    async def scenario(backend):
        async with server.async_client() as client:
            stale = await backend.claim(claim(lease_ms=1))
            await asyncio.sleep(0.01)  # the lease runs out: its holder is frozen, say
            newer = await backend.claim(claim(mode="takeover", after=1))
            assert newer.attempt == 2
            await save_total(client, newer.fence, 85)
            await save_total(client, newer.fence, 86)
            with pytest.raises(redis.ResponseError, match="STALE"):
                await save_total(client, stale.fence, 70)
            assert await client.get("{totals}:eu") == b"86"

    running(scenario, server)


def test_each_option_on_the_page_is_one():
    (table,) = re.findall(r"## Options\n\n(.*?)\n\n", page(), re.DOTALL)
    shown = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert shown == {*backend_options(), *CONNECTION_OPTIONS}


def backend_options():
    parameters = inspect.signature(RedisBackend).parameters.values()
    return {each.name for each in parameters if each.kind is each.KEYWORD_ONLY} - {"namespace"}
