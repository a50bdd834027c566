"""What is MongoDB's own: documents, commands, permissions, what servers answer, and what is said of it."""

import asyncio
import dataclasses
import gc
import inspect
import logging
import os
import random
import time
from contextlib import asynccontextmanager
from pathlib import Path

import bson
import pytest
from pymongo import AsyncMongoClient
from pymongo.monitoring import CommandListener
from tenure.decision import KEPT_ENDED
from tenure.errors import (
    BackendClosed,
    BackendError,
    BackendMisconfigured,
    BackendUnavailable,
    InvalidClaim,
    InvalidUrl,
)
from tenure.memory import MemoryBackend, MemoryStore
from tenure.model import Claim, JobCard, RunResult, new_token
from tenure.registry import connect
from tenure_mongo import MongoBackend, backend, pipeline
from tenure_mongo.link import AGAIN, Link

from .certificates import certificates
from .servers_mongo import HOST, create_user, put_clock_in, serving

PAST = 1_700_000_000_000
RECORD = RunResult(PAST, 1, 1, "success", "i", 1, 2)
CARD = JobCard(
    job="sync", schedule="every 10s", words="every 10 seconds", lease_ms=30_000, overlap="skip", max_attempts=3,
    max_late_ms=None, next_slot=None, instance="i", seen_at_ms=int(time.time() * 1_000),
)  # fmt: skip
LEAVES_SOCKETS = pytest.mark.filterwarnings("ignore:(.|\\n)*unclosed <socket:pytest.PytestUnraisableExceptionWarning")
"""The driver leaves a socket to the garbage collector that it was cancelled over while it connected."""
PAGE = Path(__file__).parents[2] / "docs/mongo.md"


def claim(job="sync", slot=PAST, token=None, **changes):
    fields = {"instance": "here", "lease_ms": 10_000, "mode": "manual", "overlap": "skip", "max_attempts": 3}
    return Claim(job=job, slot=slot, token=token or new_token(), **{**fields, "max_late_ms": None, **changes})


@pytest.fixture
def database(mongo_server):
    """The name of a database of the test's own."""
    return mongo_server.database()


@pytest.fixture
def raw(mongo_server, database):
    """The test's database, past any backend."""
    with mongo_server.client() as client:
        yield client[database]


@pytest.fixture
def running(mongo_server, database):
    """Runs a scenario with an entered backend."""

    def run(scenario, **options):
        async def main():
            async with connect(mongo_server.url(database), **options) as entered:
                return await scenario(entered)

        return asyncio.run(main())

    return run


def enter(entered):
    async def main():
        async with entered:
            pass

    asyncio.run(main())


async def every_call(entered, job="sync"):
    """Each of the calls, once, with what it should answer."""
    request = claim(job)
    assert (await entered.claim(request)).outcome == "won"
    assert await entered.heartbeat(job, PAST, request.token)
    assert [run.job for run in (await entered.active([job, "other"])).runs] == [job]
    assert await entered.release(job, PAST, request.token)
    taken = claim(job, mode="takeover", after=1)
    assert (await entered.claim(taken)).attempt == 2
    assert await entered.finish(job, PAST, taken.token, "success")
    await entered.save_result(job, RECORD)
    assert await entered.results(job) == [RECORD]
    await entered.save_cards([CARD])
    assert await entered.cards() == [CARD]


@asynccontextmanager
async def listening(entered, *jobs):
    """What is heard of the jobs, once a release was heard for certain."""
    heard = asyncio.Queue()

    async def listen():
        async for job in entered.changes([*jobs, "warm"]):
            heard.put_nowait(job)

    task = asyncio.create_task(listen())
    slot = time.time_ns() // 1_000_000 - 1_000_000  # new ones for each listener
    try:
        async with asyncio.timeout(60):
            while heard.empty():
                request = claim("warm", slot)
                assert (await entered.claim(request)).outcome == "won"
                assert await entered.release("warm", slot, request.token)
                slot += 1
                await asyncio.wait([task], timeout=0.02)
                if task.done():
                    task.result()
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def news(heard):
    """The next job that is heard of, past the releases that made sure that one hears."""
    async with asyncio.timeout(60):
        while (job := await heard.get()) == "warm":
            pass
    return job


# The same answers as the reference


@pytest.fixture
def bounded_by_three(monkeypatch):
    """Few runs are kept, so that a short life meets every bound."""
    monkeypatch.setitem(KEPT_ENDED, "skip", 2)
    monkeypatch.setitem(KEPT_ENDED, "allow", 3)
    monkeypatch.setattr("tenure.decision.KEPT_UNFINISHED", 3)
    monkeypatch.setattr(pipeline, "KEPT_UNFINISHED", 3)


def random_call(chance, newest):
    job, token = chance.choice(["a", "$b"]), chance.choice(["t1", "$t2", "$fence"])
    slot = max(newest - 1_000 * chance.choice([0, 0, 0, 1, 2, 3, 5]), 0)
    kind = chance.choices(["claim", "heartbeat", "finish", "release", "active", "tick"], [12, 1, 3, 2, 2, 5])[0]
    if kind == "claim":
        return kind, claim(
            job,
            slot,
            token,
            instance=f"${token}",
            overlap=chance.choice(["skip", "allow"]),
            lease_ms=chance.choices([1, 500, 1_000, 2**53 + 1], [9, 9, 9, 1])[0],
            mode=chance.choice(["scheduled", "takeover"]),
            after=chance.choice([0, 0, 1, 2, 10**30]),
            max_attempts=chance.choice([1, 2, 3, 10**30]),
            max_late_ms=chance.choice([None, 10**6, 10**30]),
        )
    if kind == "tick":
        return kind, chance.choice([1, 499, 500, 1_000])
    if kind == "active":
        return kind, ["$b", "a"]
    return kind, job, slot, token, *(["failed"] if kind == "finish" else [])


@pytest.mark.parametrize("seed", range(3))
def test_a_long_life_within_narrow_bounds_is_the_reference_s(running, monkeypatch, database, bounded_by_three, seed):
    clocks = put_clock_in(monkeypatch, Link)
    clocks[database] = PAST
    chance = random.Random(seed)

    async def scenario(entered):
        async with MemoryBackend(MemoryStore(lambda: clocks[database])) as reference:
            for turn in range(600):
                kind, *arguments = random_call(chance, PAST + turn // 4 * 1_000)
                if kind == "tick":
                    clocks[database] += arguments[0]
                    continue
                expected = await getattr(reference, kind)(*arguments)
                assert await getattr(entered, kind)(*arguments) == expected, (turn, kind, arguments)

    running(scenario)


@pytest.mark.parametrize("overlap", ["skip", "allow"])
@pytest.mark.parametrize("max_attempts", [1, 3])
@pytest.mark.parametrize("blocked", [False, True])
def test_what_a_token_is_told_of_its_own_run_is_the_reference_s(
    running, monkeypatch, database, overlap, max_attempts, blocked
):
    """Row 2 comes before rows 5 to 8, also where the token knows its attempt, and not where another is in the way."""
    clocks = put_clock_in(monkeypatch, Link)
    clocks[database] = PAST

    async def scenario(entered):
        async with MemoryBackend(MemoryStore(lambda: clocks[database])) as reference:

            async def both(request):
                expected = await reference.claim(request)
                assert await entered.claim(request) == expected

            await both(claim(token="own", lease_ms=1_000, max_attempts=max_attempts))
            if blocked:
                await both(claim(slot=PAST - 1, overlap="allow", lease_ms=100_000))
            clocks[database] += 2_000
            for after in (0, 1, 1, 0):
                for mode in ("takeover", "manual"):
                    again = claim(token="own", lease_ms=500, after=after, mode=mode, overlap=overlap)
                    await both(dataclasses.replace(again, max_attempts=max_attempts))
                    clocks[database] += 600
            assert await entered.active(["sync"]) == await reference.active(["sync"])

    running(scenario)


def test_more_than_a_thousand_unfinished_runs_are_superseded_like_the_reference_s(running, monkeypatch, database):
    """One document holds them with the longest names there are, and stays far below what a document may be."""
    clocks = put_clock_in(monkeypatch, Link)
    clocks[database] = PAST
    names = {"instance": "i" * 200}

    async def scenario(entered):
        async with MemoryBackend(MemoryStore(lambda: clocks[database])) as reference:

            async def both(request):
                expected = await reference.claim(request)
                assert await entered.claim(request) == expected
                return expected

            for number in range(1_003):
                slot, token = PAST - 1_003 + number, f"{number:064}"
                await both(claim(slot=slot, token=token, lease_ms=1, overlap="allow", **names))
            clocks[database] += 10_000
            told = await both(claim(slot=PAST + 1, overlap="allow", **names))
            assert len(told.previous) == 4
            for _ in range(2):
                told = await both(claim(slot=PAST + 3, token="same", **names))
                assert len(told.previous) == 1_000 or told.outcome == "overlap"
            clocks[database] += 20_000
            for _ in range(2):
                told = await both(claim(slot=PAST + 3, token="same", **names))
                assert len(told.previous) == 1_000
            assert await entered.active(["sync"]) == await reference.active(["sync"])

    running(scenario)


def test_a_renewal_that_waited_sets_no_later_one_back(running, monkeypatch, database):
    """A command's clock is that of its start: one that waited for another comes with an older time than is stored."""
    clocks = put_clock_in(monkeypatch, Link)
    clocks[database] = PAST

    async def scenario(entered):
        request = claim()
        await entered.claim(request)
        for late in (entered.heartbeat("sync", PAST, request.token), entered.claim(request)):
            clocks[database] = PAST + 8_000
            assert await entered.heartbeat("sync", PAST, request.token)
            clocks[database] = PAST + 1_000
            assert await late
            clocks[database] = PAST + 17_999
            assert (await entered.claim(claim())).lease_left_ms == 1

    running(scenario)


# Documents


def test_a_job_s_document_keeps_few_ended_runs_and_only_what_is_asked_of_them(running, raw):
    async def scenario(entered):
        for number in range(40):
            request = claim(slot=PAST + number)
            await entered.claim(request)
            await entered.finish("sync", PAST + number, request.token, "success")

    running(scenario)
    document = raw.tenure_jobs.find_one({"_id": {"namespace": "tenure", "job": "sync"}})
    assert len(document["runs"]) == 17
    assert all(set(run) == {"slot", "attempt", "token", "status"} for run in document["runs"][:-1])
    assert document["floor"] == PAST + 22
    assert len(bson.encode(document)) < 2_500


def test_no_text_is_taken_for_an_expression_or_an_operator(running, raw):
    names = ["$set", "$$NOW", "$fence", "a.b", "{'$gt': ''}", "$", "\N{SNOWMAN}"]

    async def scenario(entered):
        for name in names:
            assert (await entered.claim(claim(name, token="$fence", instance="$$ROOT"))).outcome == "won"
            told = await entered.claim(claim(name, token="$floor"))
            assert (told.outcome, told.holder) == ("running", "$$ROOT")
            assert not await entered.heartbeat(name, PAST, "$ne")
            assert await entered.heartbeat(name, PAST, "$fence")
            await entered.save_result(name, RunResult(PAST, 1, 1, "failed", "$$NOW", 1, 2, "$error"))
            assert [(one.instance, one.error) for one in await entered.results(name)] == [("$$NOW", "$error")]

    running(scenario, namespace="$ns")
    assert raw.tenure_jobs.count_documents({"_id.namespace": "$ns"}) == len(names)
    assert {document["runs"][0]["token"] for document in raw.tenure_jobs.find({"runs": {"$exists": 1}})} == {"$fence"}


def test_records_beyond_the_newest_are_removed(running, raw, monkeypatch):
    monkeypatch.setattr(backend.random, "randrange", lambda _: 0)

    async def scenario(entered):
        for slot in [*range(10), 3]:
            await entered.save_result("sync", RunResult(slot, 1, 1, "success", "i", 1, 2))
            await entered.save_result("sync2", RunResult(slot, 1, 1, "success", "i", 1, 2))
        assert [one.slot for one in await entered.results("sync")] == [9, 8, 7]

    running(scenario, keep_results=3)
    assert sorted(one["_id"]["slot"] for one in raw.tenure_results.find({"_id.job": "sync"})) == [7, 8, 9]


@pytest.mark.parametrize("document", [{"runs": "text"}, {"fence": "text"}])
def test_a_job_s_document_of_somebody_else_s_is_refused(running, raw, document):
    async def scenario(entered):
        raw.tenure_jobs.insert_one({"_id": {"namespace": "tenure", "job": "sync"}, **document})
        for overlap in ("skip", "allow"):
            with pytest.raises(BackendMisconfigured, match="use another database"):
                await entered.claim(claim(overlap=overlap))

    running(scenario)


def test_a_collection_of_somebody_else_s_is_refused(mongo_server, database, raw):
    raw.tenure_jobs.insert_one({"_id": "schema", "title": "mine"})
    with pytest.raises(BackendMisconfigured, match="not tenure's; use another database"):
        enter(connect(mongo_server.url(database)))


def test_a_newer_format_is_refused_with_the_remedy(mongo_server, database, raw):
    raw.tenure_jobs.insert_one({"_id": "schema", "format": 2})
    with pytest.raises(BackendMisconfigured, match=r"format 2 .* upgrade tenure-mongo here"):
        enter(connect(mongo_server.url(database)))


def test_without_create_only_a_store_that_is_there_is_opened(mongo_server, database, raw):
    with pytest.raises(BackendMisconfigured, match="there is no store"):
        enter(connect(mongo_server.url(database), create=False))
    assert raw.list_collection_names() == []
    enter(connect(mongo_server.url(database)))
    enter(connect(mongo_server.url(database, create="false")))


def test_a_store_that_was_removed_is_told_of_and_comes_back_by_entering(running, raw):
    async def scenario(entered):
        raw.client.drop_database(raw.name)
        with pytest.raises(BackendMisconfigured, match="enter the backend again"):
            await entered.active(["sync"])
        async with entered:
            assert (await entered.active(["sync"])).runs == ()

    running(scenario)


# Commands


class Commands(CommandListener):
    def __init__(self):
        self.sent = []

    def started(self, event):
        self.sent.append(event.command)

    def succeeded(self, event):
        pass

    def failed(self, event):
        pass

    def of_calls(self):
        return [command for command in self.sent if next(iter(command)) not in ("hello", "endSessions")]


WEAK = {"w": "0", "journal": "false", "readPreference": "secondary", "readConcernLevel": "local", "retryWrites": "true"}


def test_majority_and_primary_whatever_the_url_says_and_one_round_trip_each(mongo_server, database, monkeypatch):
    monkeypatch.setattr(backend.random, "randrange", lambda _: 1)
    commands = Commands()
    url = mongo_server.url(database, **WEAK)

    async def main():
        made = MongoBackend(lambda: AsyncMongoClient(url, event_listeners=[commands]), database=database)
        async with made as entered:
            commands.sent.clear()
            await every_call(entered)
            assert (await entered.claim(claim())).status == "success"
            assert not await entered.finish("sync", PAST, "nobody", "success")

    asyncio.run(main())
    told = [next(iter(command)) for command in commands.of_calls()]
    asked = ["claim", "heartbeat", "active", "release", "claim", "finish", "save_result", "results"]
    of_call = {"claim": "findAndModify", "active": "find", "results": "find"}
    cards = ["update", "delete", "find"]
    looked_again = ["find"]  # whether the finish that found nothing to end is a repeated one
    assert told == [of_call.get(call, "update") for call in asked] + cards + ["findAndModify", "update"] + looked_again
    for command in commands.of_calls():
        kind = next(iter(command))
        if kind == "find":
            assert command["readConcern"] == {"level": "majority"}
        else:
            assert command["writeConcern"] == {"w": "majority", "j": True}
        assert "txnNumber" not in command, "the driver would send it again by itself"
        assert command.get("$readPreference", {"mode": "primaryPreferred"})["mode"] in ("primary", "primaryPreferred")


def test_a_job_that_never_ran_has_no_document(mongo_server, database, raw):
    """A claim that cannot win by what is known of the clock is one read."""
    commands = Commands()
    now = int(time.time() * 1_000)
    cannot_win = [
        claim(slot=now - 100_000, max_late_ms=1_000),
        claim(slot=now + 100_000),
        claim(slot=now, mode="takeover"),
    ]

    async def main():
        url = mongo_server.url(database)
        made = MongoBackend(lambda: AsyncMongoClient(url, event_listeners=[commands]), database=database)
        async with made as entered:
            commands.sent.clear()
            return [(await entered.claim(one)).outcome for one in cannot_win]

    assert asyncio.run(main()) == ["late", "none", "none"]
    assert [next(iter(command)) for command in commands.of_calls()] == ["find"] * 3
    assert raw.tenure_jobs.find_one({"_id.job": "sync"}) is None


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
def test_a_wrong_guess_of_the_clock_costs_a_command_and_changes_no_answer(running, ahead_ms):
    now = int(time.time() * 1_000)

    async def scenario(entered):
        async def told(one):
            entered._link.learn_clock(now + ahead_ms)
            return (await entered.claim(one)).outcome

        assert await told(claim("late", now - 100_000, max_late_ms=1_000)) == "late"
        assert await told(claim("early", now + 100_000)) == "none"
        assert await told(claim("won", now, max_late_ms=100_000)) == "won"
        assert await told(claim("won", now, max_late_ms=100_000)) == "running"

    running(scenario)


def test_a_run_that_was_never_won_can_be_ended_by_nobody(running, raw):
    """Also where its job has a document: a claim that came a little too late may have made it."""

    async def scenario(entered):
        now = int(time.time() * 1_000)
        entered._link.learn_clock(now - 100_000)
        assert (await entered.claim(claim(slot=now - 100_000, max_late_ms=1_000))).outcome == "late"
        assert not await entered.finish("sync", now - 100_000, "nobody", "success")
        assert not await entered.release("sync", now - 100_000, "nobody")
        assert not await entered.heartbeat("sync", now - 100_000, "nobody")

    running(scenario)
    assert raw.tenure_jobs.find_one({"_id.job": "sync"})["runs"] == []


def test_a_reply_without_the_projection_is_asked_for_again(running, monkeypatch):
    """So the server answers a findAndModify that was repeated on the way: with the document as it is stored."""
    command, stripped = Link.command, []

    async def repeated(self, document):
        reply = await command(self, document)
        if "findAndModify" in document and len(stripped) < fail:
            stripped.append(reply["value"].pop("now"))
        return reply

    monkeypatch.setattr(Link, "command", repeated)

    async def scenario(entered):
        told = await entered.claim(claim())
        assert (told.outcome, told.attempt, told.previous) == ("won", 1, ())
        assert len(stripped) == AGAIN - 1

    fail = AGAIN - 1
    running(scenario)

    async def always(entered):
        with pytest.raises(BackendUnavailable, match="repeats writes"):
            await entered.claim(claim(slot=PAST + 1))

    fail = 10**6
    running(always)


@asynccontextmanager
async def failing(client, *commands, times=1, **data):
    """The server fails the next ones of these commands so."""
    mode = {"times": times}
    data = {"failCommands": list(commands), **data}
    client.admin.command("configureFailPoint", "failCommand", mode=mode, data=data)
    try:
        yield
    finally:
        client.admin.command("configureFailPoint", "failCommand", mode="off")


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (10107, BackendUnavailable, "not the primary"),
        (189, BackendUnavailable, "not the primary"),
        (50, BackendUnavailable, "mongodb://"),
        (112, BackendUnavailable, "mongodb://"),
        (13, BackendMisconfigured, "docs/mongo.md"),
        (59, BackendMisconfigured, "6.0 or newer"),
    ],
)
def test_what_the_server_says_is_told_with_its_remedy(running, raw, code, kind, says):
    async def scenario(entered):
        async with failing(raw.client, "findAndModify", errorCode=code):
            with pytest.raises(kind, match=says) as told:
                await entered.claim(claim())
        assert told.value.__cause__ is not None
        async with asyncio.timeout(30):
            while True:
                try:
                    assert (await entered.claim(claim())).outcome == "won"
                    return
                except BackendUnavailable:  # the driver looks at the server again first
                    await asyncio.sleep(0.05)

    running(scenario)


@pytest.mark.parametrize("name", ["findAndModify", "update"])
def test_a_write_that_no_majority_has_is_no_answer(running, raw, name):
    """It may be carried out all the same, and is repeated with its token."""
    request = claim()

    async def scenario(entered):
        if name == "update":
            await entered.claim(request)
        call = (
            entered.claim
            if name == "findAndModify"
            else lambda _: entered.finish("sync", PAST, request.token, "failed")
        )
        async with failing(raw.client, name, writeConcernError={"code": 64, "errmsg": "waited too long"}):
            with pytest.raises(BackendUnavailable, match="waited too long"):
                await call(request)
        told = await call(request)
        assert told is True or (told.outcome, told.attempt) == ("won", 1)

    running(scenario)


def test_a_number_beyond_64_bits_is_refused(running):
    async def scenario(entered):
        with pytest.raises(InvalidClaim, match="shorter one"):
            await entered.claim(claim(lease_ms=2**62 + 1))
        with pytest.raises(InvalidClaim, match="64 bits"):
            await entered.save_result("sync", RunResult(PAST, 1, 2**63, "success", "i", 1, 2))
        assert (await entered.claim(claim(lease_ms=2**62))).lease_left_ms == 2**62

    running(scenario)


# Cancellation, loops, processes, clients


@LEAVES_SOCKETS
def test_no_moment_of_a_cancellation_is_swallowed(running):
    """asyncio.wait_for of Python 3.11, which the driver waits by, forgets one that comes together with the answer."""

    async def scenario(entered):
        async def listen():
            async for _ in entered.changes(["sync"]):
                pass

        async def ask():
            while True:
                await entered.heartbeat("sync", PAST, "nobody")

        for make in (listen, ask):
            for turn in range(40):
                task = asyncio.create_task(make())
                for _ in range(turn):
                    await asyncio.sleep(0)
                task.cancel()
                done, _ = await asyncio.wait([task], timeout=10)
                assert done, f"cancelled after {turn} turns of the loop, it goes on"
                assert task.cancelled()

    running(scenario)


def test_calls_that_are_cancelled_again_and_again_leave_the_driver_s_pool_usable(mongo_server, database):
    """asyncio.wait_for of Python 3.11, cancelled twice, leaves who waits for a condition behind with its lock held."""

    async def main():
        async with connect(mongo_server.url(database, maxPoolSize=1)) as entered:
            for turn in range(30):
                tasks = [asyncio.create_task(entered.heartbeat("sync", PAST, "nobody")) for _ in range(8)]
                for _ in range(turn):
                    await asyncio.sleep(0)
                for _ in range(3):
                    for task in tasks:
                        task.cancel()
                    await asyncio.sleep(0)
                await asyncio.wait(tasks, timeout=10)
                assert all(task.done() for task in tasks)
            assert (await entered.claim(claim())).outcome == "won"

    asyncio.run(main())


def test_another_loop_is_refused_and_may_have_an_object_of_its_own(mongo_server, database):
    backend = connect(mongo_server.url(database))

    async def main():
        async with backend:
            with pytest.raises(BackendMisconfigured, match="another event loop"):
                await asyncio.to_thread(asyncio.run, backend.active(["sync"]))
            with pytest.raises(BackendMisconfigured, match="another event loop"):
                await asyncio.to_thread(enter, backend)
            assert (await backend.active(["sync"])).runs == ()

    asyncio.run(main())
    asyncio.run(main())


def test_a_forked_child_is_refused_and_the_parent_goes_on(mongo_server, database):
    async def main():
        async with connect(mongo_server.url(database)) as backend:
            await backend.claim(claim())
            reading, writing = os.pipe()
            if (pid := os.fork()) == 0:
                told = "nothing"
                try:
                    backend.active(["sync"]).send(None)
                except BaseException as error:
                    told = f"{type(error).__name__}: {error}"
                os.write(writing, told.encode())
                os._exit(0)
            os.waitpid(pid, 0)
            told = os.read(reading, 1_000).decode()
            os.close(reading)
            os.close(writing)
            assert told.startswith("BackendMisconfigured"), told
            assert "enter it after the fork" in told
            assert (await backend.claim(claim())).outcome == "running"

    asyncio.run(main())


def test_a_client_given_is_used_and_left_open(mongo_server, database):
    async def main():
        client = AsyncMongoClient(mongo_server.url())
        made = MongoBackend(client, database=database, namespace="mine")
        assert str(made) == f"mongodb://{mongo_server.place}/{database} (namespace mine)"
        for _ in range(2):
            async with made as entered:
                assert (await entered.claim(claim(token="mine"))).outcome == "won"
        await client.admin.command("ping")
        await client.close()
        with pytest.raises(BackendClosed, match="give the backend a client that is open"):
            async with made:
                pass

    asyncio.run(main())


def test_a_client_that_another_loop_uses_is_refused_with_the_remedy(mongo_server, database):
    async def main():
        client = AsyncMongoClient(mongo_server.url())
        await client.admin.command("ping")
        with pytest.raises(BackendMisconfigured, match="a URL, or a client that is not used elsewhere"):
            await asyncio.to_thread(enter, MongoBackend(client, database=database))
        await client.close()

    asyncio.run(main())


def test_what_makes_a_client_is_asked_at_each_entering_and_its_client_closed(mongo_server, database):
    made = []

    def make():
        made.append(AsyncMongoClient(mongo_server.url()))
        return made[-1]

    async def main():
        backend = MongoBackend(make, database=database)
        for _ in range(2):
            async with backend:
                await every_call(backend, new_token())
        for client in made:
            with pytest.raises(Exception, match="after close"):
                await client.admin.command("ping")

    asyncio.run(main())
    assert len(made) == 2


# URLs and secrets


def test_a_url_s_options_are_ours_or_the_driver_s():
    url = "mongodb://u:hunter2@db1:27018,db2/app?replicaSet=rs0&maxPoolSize=3&timeout=2s&keep_results=7"
    made = connect(url, namespace="billing")
    assert str(made) == "mongodb://db1:27018,db2/app (namespace billing)"
    assert "hunter2" not in f"{made!r} {made.__dict__}"
    assert str(connect("mongodb://db1")) == "mongodb://db1/tenure (namespace tenure)"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mongodb://u:hunter2@db/app?colour=hunter2", "'colour' is unknown"),
        ("mongodb://u:hunter2@db/app?maxPoolSize=hunter2", "'maxPoolSize' is unknown or its value cannot be read"),
        ("mongodb://u:hunter2@db/app?timeout=1s&timeout=2s", "given twice"),
        ("mongodb://u:hunter2@db/app?keep_results=hunter2", "keep_results"),
        ("mongodb://u:hunter2@db/a.b", "cannot name a database"),
        ("mongodb://u:hunter2@db/app?create=maybe", "create"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(url, says):
    with pytest.raises(InvalidUrl, match=says) as told:
        connect(url)
    assert "hunter2" not in str(told.value) or "is not a whole number" in str(told.value)


@pytest.mark.parametrize("options", [{"colour": "red"}, {"create": 1}, {"timeout": 5}, {"keep_results": 0}])
def test_a_keyword_that_cannot_be_used_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options)).replace("keep_results", "limit")):
        connect("mongodb://db", **options)


def test_what_is_no_client_is_refused():
    with pytest.raises(InvalidUrl, match="str is neither an AsyncMongoClient nor a function"):
        MongoBackend("mongodb://db")


def test_nobody_who_listens_is_unavailable_in_time():
    async def main():
        begun = time.monotonic()
        with pytest.raises(BackendUnavailable) as told:
            async with connect(f"mongodb://u:hunter2@{HOST}:1/?timeout=300ms"):
                pass
        assert time.monotonic() - begun < 5
        assert "hunter2" not in f"{told.value} {told.value.__cause__}"

    asyncio.run(main())


# Servers


def test_a_standalone_server_works_with_a_warning(caplog):
    with serving(replica_set=None) as server, caplog.at_level(logging.WARNING, "tenure.mongo"):

        async def main():
            async with connect(server.url("app"), timeout="2s") as entered:
                await every_call(entered)
                hints = entered.changes(["sync"])
                listener = asyncio.create_task(anext(hints))
                done, _ = await asyncio.wait([listener], timeout=0.2)
                assert not done
            with pytest.raises(StopAsyncIteration):
                await listener

        asyncio.run(main())
    (record,) = caplog.records
    assert "standalone" in record.getMessage()
    assert "make it a replica set" in record.getMessage()


def test_the_role_of_the_page_is_enough_and_nothing_less_is():
    with serving(users=True) as server:
        user = create_user(server, "app", PAGE.read_text("utf-8"))
        url = server.url("app", user, authSource="app")

        async def main():
            async with connect(url, keep_results=1) as entered:
                await every_call(entered)
                async with listening(entered, "hinted") as heard:
                    request = claim("hinted")
                    await entered.claim(request)
                    await entered.finish("hinted", PAST, request.token, "success")
                    assert await news(heard) == "hinted"
                for slot in range(100):  # until old records were surely removed once
                    await entered.save_result("sync", RunResult(slot, 1, 1, "success", "i", 1, 2))

        asyncio.run(main())
        for wrong, says in (
            (server.url("elsewhere", user, authSource="app"), "docs/mongo.md"),
            (server.url("app", (user[0], "hunter2"), authSource="app"), "user, password and authSource"),
            (server.url("app"), "docs/mongo.md"),
        ):
            with pytest.raises(BackendMisconfigured, match=says) as told:
                enter(connect(wrong, timeout="10s"))
            assert not {"hunter2", user[1]} & set(f"{told.value} {told.value.__cause__}".split())
        with server.client() as client:
            (role,) = client.app.command("rolesInfo", "tenure", showPrivileges=True)["roles"]
            for privilege in role["privileges"]:
                _assert_each_action_is_needed(client, url, role, privilege)


def _assert_each_action_is_needed(client, url, role, privilege):
    for action in privilege["actions"]:
        less = {**privilege, "actions": [other for other in privilege["actions"] if other != action]}
        others = [other for other in role["privileges"] if other is not privilege]
        client.app.command("updateRole", "tenure", privileges=[less, *others])

        async def main():
            async with connect(url, namespace=new_token(), timeout="10s") as entered:
                await every_call(entered)
                await entered._prune(entered._serving(), "sync")
                task = asyncio.ensure_future(anext(entered.changes(["sync"])))
                await asyncio.wait([task], timeout=0.5)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                if not task.cancelled():
                    task.result()

        if action == "insert":
            client.app.drop_collection(privilege["resource"]["collection"])
        if action == "remove":
            continue  # needed from the first record on that is too old, see the test above
        with pytest.raises(BackendError, match="not authorized"):
            asyncio.run(main())
        client.app.command("updateRole", "tenure", privileges=role["privileges"])


@LEAVES_SOCKETS
def test_tls_is_verified_unless_the_url_says_otherwise():
    with certificates() as directory:
        both = directory / "both.pem"
        both.write_bytes((directory / "server.pem").read_bytes() + (directory / "server.key").read_bytes())
        tls = ["--tlsMode", "preferTLS", "--tlsCertificateKeyFile", str(both)]
        tls += ["--tlsCAFile", str(directory / "ca.pem"), "--tlsAllowConnectionsWithoutCertificates"]
        with serving(*tls) as server:
            with pytest.raises(BackendMisconfigured, match="tlsCAFile"):
                enter(connect(server.url("app", tls="true", timeout="2s")))
            enter(connect(server.url("app", tls="true", tlsCAFile=f"{directory}/ca.pem")))


# Hints


def test_releases_and_ends_are_heard_of_and_nothing_else(running, mongo_server, database):
    async def scenario(entered):
        async with (
            connect(mongo_server.url(database), namespace="other") as other,
            listening(entered, "released", "ended", "renewed") as heard,
        ):
            for job in ("released", "ended", "renewed"):
                await other.claim(claim(job, token="token"))
                await other.release(job, PAST, "token")
                await entered.claim(claim(job, token="token"))
                await entered.heartbeat(job, PAST, "token")
            assert await entered.finish("ended", PAST, "token", "failed")
            assert await news(heard) == "ended"
            begun = time.monotonic()
            assert await entered.release("released", PAST, "token")
            assert await news(heard) == "released"
            assert time.monotonic() - begun < 5
            assert heard.empty()

    running(scenario)


# Resources


def test_memory_and_files_stay_as_they_are_over_runs_and_reconnects(mongo_server, database):
    """A short part of what tests/endurance does."""

    def files():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    async def main():
        counts = []
        for turn in range(12):
            async with connect(mongo_server.url(database)) as entered:
                for number in range(10):
                    await every_call(entered, f"{turn} {number}")
            counts.append((files(), len(asyncio.all_tasks())))
        assert max(counts[2:]) <= (counts[2][0] + 2, counts[2][1] + 1), counts

    asyncio.run(main())


def test_the_page_names_every_option():
    page = PAGE.read_text("utf-8")
    for name in inspect.signature(MongoBackend).parameters:
        if name not in ("client", "place"):
            assert f"`{name}`" in page, name
