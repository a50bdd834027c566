"""The etcd backend beyond the shared rules: what it sends and keeps, races made to happen, its clock and its limits."""

import asyncio
import itertools
import random
import threading
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tenure import connect
from tenure.errors import BackendClosed, BackendMisconfigured, BackendUnavailable, InvalidClaim, InvalidUrl
from tenure.memory import MemoryBackend, MemoryStore
from tenure.model import CARD_KEPT_MS, MAX_SLOT, Claim, JobCard, LostAttempt, RunResult
from tenure_etcd import EtcdBackend, Settings, Tls, backend, cluster, dates, leases, runs
from tenure_etcd.keys import Layout, quoted

from .servers_etcd import HOST, etcd, free_port, programs

SLOT = 1_750_000_000_000
LONG_MS = 600_000


@pytest.fixture(scope="module", params=programs(), ids=lambda path: Path(path).parts[1])
def server(request):
    with etcd(request.param) as (member,):
        yield member


@pytest.fixture
def namespace(request):
    return f"{request.node.name} {random.getrandbits(40):x}"


def claim(slot=SLOT, token="one", *, job="job", **changes):
    fields = {"instance": f"at {token}", "lease_ms": LONG_MS, "mode": "scheduled", "overlap": "skip"}
    limits = {"max_attempts": 3, "max_late_ms": None}
    return Claim(job=job, slot=slot, token=token, **{**fields, **limits, **changes})


def takeover(token, after=1, slot=SLOT, **changes):
    return claim(slot, token, mode="takeover", after=after, **changes)


@asynccontextmanager
async def opened(server, namespace, count=2, **options):
    """So many objects on one store, which shares nothing between them but the cluster's clock."""
    async with AsyncExitStack() as stack:
        url = f"etcd://{server.address}"
        yield [
            await stack.enter_async_context(connect(url, namespace=namespace, timeout="20s", **options))
            for _ in range(count)
        ]


def run(server, namespace, scenario, count=2, **options):
    async def main():
        async with opened(server, namespace, count, **options) as backends:
            await scenario(*backends)

    asyncio.run(main())


def end_leases(server, namespace, job="job"):
    """As if all leases of the job had run out now."""
    server.delete(Layout("tenure", namespace).job(job).lives)


async def until(told, what, seconds=20):
    async with asyncio.timeout(seconds):
        while not (found := await told()):
            await asyncio.sleep(0.01)
    assert found, what
    return found


class Sent:
    """What a backend has sent, by method, while the test looks."""

    def __init__(self, monkeypatch):
        self.methods = []
        call = cluster.Cluster.call

        async def counted(one, method, request):
            if method != "revoke":
                self.methods.append(method)
            return await call(one, method, request)

        monkeypatch.setattr(cluster.Cluster, "call", counted)

    def take(self):
        found, self.methods = sorted(self.methods), []
        return found


# What is sent


def test_each_call_takes_the_round_trips_that_the_page_says(server, namespace, monkeypatch):
    sent = Sent(monkeypatch)

    async def scenario(a, b):
        sent.take()
        assert (await a.claim(claim())).outcome == "won"
        assert sent.take() == ["grant", "read", "txn"]  # the first two at once: nothing is known of the job
        assert (await b.claim(claim(token="two"))).outcome == "running"
        assert (await b.claim(claim(token="two"))).outcome == "running"
        assert sent.take()[-3:] == ["grant", "read", "read"][-3:]  # who has lost looks first
        assert await a.heartbeat("job", SLOT, "one")
        assert sent.take() == ["keep_alive", "txn"]
        assert await a.finish("job", SLOT, "one", "success")
        assert sent.take() == ["txn"]
        assert (await a.claim(claim(SLOT + 1))).outcome == "won"
        assert sent.take() == ["keep_alive", "txn"]  # at once: the lease is that of the run that has ended
        assert (await a.claim(claim(SLOT + 1, "two", job="other"))).outcome == "won"
        assert (await a.claim(claim(SLOT + 2, "two", job="other", overlap="allow"))).outcome == "won"
        assert sent.take() == ["grant", "grant", "read", "txn", "txn"]  # none is left
        assert await a.release("job", SLOT + 1, "one")
        assert sent.take() == ["txn"]
        await a.active(["job", "other"])
        assert sent.take() == ["read", "read"]  # at once
        await a.save_result("job", RunResult(SLOT, 1, 7, "success", "i", 1, 2))
        assert sent.take() == ["txn"]
        assert len(await b.results("job")) == 1
        assert sent.take() == ["read"]

    run(server, namespace, scenario)


def test_many_who_ask_at_once_share_a_read(server, namespace, monkeypatch):
    sent = Sent(monkeypatch)

    async def scenario(a, b):
        assert (await a.claim(claim())).outcome == "won"
        assert (await b.claim(claim(token="b"))).outcome == "running"
        sent.take()
        answers = await asyncio.gather(*(b.claim(claim(token=f"b{number}")) for number in range(50)))
        assert {answer.outcome for answer in answers} == {"running"}
        assert len(sent.take()) <= 3

    run(server, namespace, scenario)


# Answers, against the reference


class Both:
    """The same calls on two objects of ours and on the reference; leases run out only when the test says so."""

    def __init__(self, server, namespace, ours, chance):
        self.now_ms = 0
        self.reference = MemoryBackend(MemoryStore(lambda: self.now_ms), namespace=namespace)
        self.server, self.namespace, self.ours, self.chance = server, namespace, ours, chance
        self.fences = {}

    async def call(self, name, *arguments):
        one = self.chance.choice(self.ours)
        # The reference has the very clock of the answer, so that all times are comparable.
        self.now_ms = max(self.now_ms + 1, (await one.active([])).now_ms)
        expected = await getattr(self.reference, name)(*arguments)
        told = await getattr(one, name)(*arguments)
        assert self.shown(told) == self.shown(expected), (name, arguments)

    def shown(self, answer):
        """The answer without what two clocks say differently, and fences as the order in which they were given."""
        if hasattr(answer, "outcome"):
            left = answer.lease_left_ms if not answer.lease_left_ms else "some"
            previous = sorted(map(self.lost, answer.previous), key=lambda one: one.slot)
            wait = answer.wait_ms is not None
            fence = self.order(answer.fence)
            return replace(answer, now_ms=0, lease_left_ms=left, wait_ms=wait, fence=fence, previous=previous)
        if hasattr(answer, "runs"):
            return [
                (one.job, one.slot, one.attempt, self.order(one.fence), one.holder, one.live) for one in answer.runs
            ]
        return answer

    def lost(self, one: LostAttempt):
        return replace(one, fence=self.order(one.fence), started_at=0, ended_at=0)

    def order(self, fence):
        if fence is None:
            return None
        kind = "clock" if fence > 10**12 else "revision"
        known = self.fences.setdefault(kind, {})
        return known.setdefault(fence, len(known))

    async def end_leases(self):
        self.now_ms += 10 * LONG_MS
        for job in ("job", "other"):
            await asyncio.to_thread(end_leases, self.server, self.namespace, job)


@pytest.mark.parametrize("seed", range(12))
def test_random_calls_get_the_reference_s_answers(server, namespace, seed):
    chance = random.Random(seed)
    slots = [SLOT + number * 1_000 for number in range(5)] + [MAX_SLOT]
    tokens = ["a", "b", "c"]

    async def scenario(*ours):
        both = Both(server, namespace, ours, chance)
        async with both.reference:
            for _ in range(120):
                job, slot, token = chance.choice(["job", "other"]), chance.choice(slots), chance.choice(tokens)
                kind = chance.choice(["claim"] * 5 + ["heartbeat", "finish", "release", "active", "lapse"])
                if kind == "claim":
                    changes = {"mode": chance.choice(["scheduled", "manual", "takeover"]), "after": chance.randrange(3)}
                    changes |= {"overlap": chance.choice(["skip", "skip", "allow"])}
                    changes |= {"max_attempts": chance.randrange(1, 4), "max_late_ms": chance.choice([None, None, 5])}
                    changes |= {"lease_ms": chance.choice([LONG_MS, LONG_MS * 2])}
                    await both.call("claim", claim(slot, token, job=job, **changes))
                elif kind == "finish":
                    await both.call("finish", job, slot, token, chance.choice(["success", "failed"]))
                elif kind in ("heartbeat", "release"):
                    await both.call(kind, job, slot, token)
                elif kind == "active":
                    await both.call("active", ["job", "other"])
                elif chance.random() < 0.5:
                    await both.end_leases()

    run(server, namespace, scenario, 3)


def test_the_bounds_are_the_reference_s(server, namespace):
    chance = random.Random(7)

    async def scenario(*ours):
        both = Both(server, namespace, ours, chance)
        async with both.reference:
            for number in range(150):
                overlap = "allow" if number < 140 else "skip"
                await both.call("claim", claim(SLOT + number, "t", overlap=overlap))
                if number % 10:
                    await both.call("finish", "job", SLOT + number, "t", "success")
            for number in range(150):
                await both.call("claim", claim(SLOT + number, "u", overlap="allow", mode="takeover"))

    run(server, namespace, scenario, 1)


# Races, made to happen


def test_a_state_that_changed_since_it_was_read_is_decided_anew(server, namespace, monkeypatch):
    """Between the read of one claim and its transaction another one wins."""

    async def scenario(a, b):
        replaced = runs.Runs._replace

        async def late(one, *arguments, **options):
            if one is a._session.runs and not entered:
                entered.append(True)
                assert (await b.claim(claim(token="two"))).outcome == "won"
            return await replaced(one, *arguments, **options)

        entered = []
        monkeypatch.setattr(runs.Runs, "_replace", late)
        told = await a.claim(claim())
        assert (told.outcome, told.holder) == ("running", "at two")
        assert entered

    run(server, namespace, scenario)


@pytest.mark.parametrize("ending", ["finish", "release", "takeover"])
def test_a_heartbeat_of_who_no_longer_holds_is_refused_though_its_lease_lives(server, namespace, ending, monkeypatch):
    """The lease of the former holder is not revoked, as if that message were still on its way."""
    monkeypatch.setattr(cluster.Cluster, "give_back", lambda *_: None)

    async def scenario(a, b):
        assert (await a.claim(claim())).outcome == "won"
        if ending == "finish":
            assert await b.finish("job", SLOT, "one", "success")
        elif ending == "release":
            assert await b.release("job", SLOT, "one")
        else:
            await asyncio.to_thread(end_leases, server, namespace)
            assert (await b.claim(takeover("two"))).outcome == "won"
        assert not await a.heartbeat("job", SLOT, "one")

    run(server, namespace, scenario)


def test_a_heartbeat_revives_a_run_that_nobody_took(server, namespace):
    async def scenario(a, b):
        won = await a.claim(claim())
        await asyncio.to_thread(end_leases, server, namespace)
        assert [one.live for one in (await b.active(["job"])).runs] == [False]
        assert await a.heartbeat("job", SLOT, "one")
        (shown,) = (await b.active(["job"])).runs
        assert (shown.live, shown.fence, shown.attempt, shown.started_at) == (True, won.fence, 1, won.now_ms)
        assert (await b.claim(takeover("two"))).outcome == "running"
        assert await a.heartbeat("job", SLOT, "one")

    run(server, namespace, scenario)


def test_the_own_token_is_not_believed_to_be_alive_from_memory(server, namespace):
    """Its lease ran out beside a newer run of the same instance, and nothing else changed."""

    async def scenario(a, b):
        assert (await a.claim(claim(overlap="allow"))).outcome == "won"
        assert (await a.claim(claim(SLOT + 1, "two", overlap="allow"))).outcome == "won"
        await asyncio.to_thread(server.delete, Layout("tenure", namespace).job("job").live(0))
        assert (await a.claim(claim())).status == "superseded"

    run(server, namespace, scenario)


def test_who_else_is_alive_is_not_known_from_an_own_change(server, namespace):
    """Two calls at once: the change of the first one says nothing of a lease that ran out before."""

    async def scenario(a, b):
        assert (await a.claim(claim(overlap="allow"))).outcome == "won"
        await asyncio.to_thread(end_leases, server, namespace)
        other, taken = await asyncio.gather(
            a.claim(claim(SLOT + 1, "two", overlap="allow")), a.claim(takeover("three", overlap="allow"))
        )
        assert (other.outcome, taken.outcome, taken.attempt) == ("won", "won", 2)

    run(server, namespace, scenario)


def test_a_lease_that_ended_on_the_way_is_had_again(server, namespace, monkeypatch):
    async def scenario(a, b):
        grant, revoked = cluster.Cluster.grant, []

        async def ended(one, ttl_s):
            lease, left_s = await grant(one, ttl_s)
            if not revoked:
                revoked.append(lease)
                await asyncio.to_thread(server.ask, "/v3/lease/revoke", {"ID": str(lease)})
            return lease, left_s

        monkeypatch.setattr(cluster.Cluster, "grant", ended)
        assert (await a.claim(claim())).outcome == "won"
        assert revoked
        assert (await b.claim(claim(token="two"))).outcome == "running"

    run(server, namespace, scenario)


def test_a_claim_without_an_answer_keeps_its_lease(server, namespace, monkeypatch):
    """It may have been stored: a lease that is given back then would end a run that its token has won."""

    async def scenario(a, b):
        replaced = runs.Runs._replace

        async def unanswered(one, *arguments, **options):
            await replaced(one, *arguments, **options)
            raise BackendUnavailable("the answer was lost")

        with monkeypatch.context() as patch:
            patch.setattr(runs.Runs, "_replace", unanswered)
            with pytest.raises(BackendUnavailable):
                await a.claim(claim())
        await asyncio.sleep(0.1)
        assert [one.live for one in (await b.active(["job"])).runs] == [True]
        assert (await a.claim(claim())).attempt == 1

    run(server, namespace, scenario)


def test_leases_that_nobody_needs_are_given_back_but_one_for_the_next_run(server, namespace, monkeypatch):
    monkeypatch.setattr(leases, "SPARES", 1)

    async def scenario(a, b):
        known = server.leases()
        for slot in range(SLOT, SLOT + 3):
            for job in ("job", "other"):
                assert (await a.claim(claim(slot, job=job))).outcome == "won"
                for number in range(2):
                    assert (await b.claim(claim(slot, f"loser {number}", job=job))).outcome == "running"
            for job in ("job", "other"):
                assert await a.finish(job, slot, "one", "success")
        await until(lambda: asyncio.to_thread(lambda: len(server.leases() - known) == 1), "leases are left over")

    run(server, namespace, scenario)


def test_a_lease_that_another_run_had_is_renewed_by_the_win(server, namespace):
    """It is the win that the lease begins with, whatever was left of it."""

    async def scenario(a, b):
        assert (await a.claim(claim(lease_ms=3_000))).outcome == "won"
        lease = a._session.runs._views["job"].places[SLOT].lease
        await asyncio.sleep(1)  # of the former run's lease
        assert await a.finish("job", SLOT, "one", "success")
        told = await a.claim(claim(SLOT + 1, "two", lease_ms=3_000))
        assert a._session.runs._views["job"].places[SLOT + 1].lease == lease
        begun = time.monotonic()
        while (await b.claim(takeover("three", told.attempt, SLOT + 1))).outcome == "running":
            await asyncio.sleep(0.05)
        assert time.monotonic() - begun >= 2.9

    run(server, namespace, scenario)


@pytest.mark.parametrize("ended", ["before it is renewed", "after the run hung on it"])
def test_a_lease_that_another_run_had_and_that_has_ended_is_had_again(server, namespace, monkeypatch, ended):
    keep_alive, replace = cluster.Cluster.keep_alive, runs.Runs._replace

    async def scenario(a, b):
        assert (await a.claim(claim())).outcome == "won"
        lease = a._session.runs._views["job"].places[SLOT].lease
        assert await a.finish("job", SLOT, "one", "success")
        stored, revoked = asyncio.Event(), []

        async def revoke():
            if not revoked:
                revoked.append(lease)
                await asyncio.to_thread(server.ask, "/v3/lease/revoke", {"ID": str(lease)})

        async def kept(one, asked):
            if ended.startswith("after"):
                await stored.wait()
                await revoke()
            return await keep_alive(one, asked)

        async def replaced(one, *arguments, **changes):
            if ended.startswith("before"):
                await revoke()
            answer = await replace(one, *arguments, **changes)
            stored.set()
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(cluster.Cluster, "keep_alive", kept)
            patch.setattr(runs.Runs, "_replace", replaced)
            told = await a.claim(claim(SLOT + 1, "two"))
        assert (told.outcome, told.attempt, revoked) == ("won", 1, [lease])
        (shown,) = (await b.active(["job"])).runs
        assert (shown.live, shown.fence) == (True, told.fence)
        assert await a.heartbeat("job", SLOT + 1, "two")

    run(server, namespace, scenario)


def test_who_had_a_lease_before_is_not_taken_for_who_has_it_now(server, namespace):
    """Another object has ended its run and put the next one on the same lease, in the same place."""

    async def scenario(a, b):
        assert (await a.claim(claim())).outcome == "won"
        assert await b.finish("job", SLOT, "one", "success")
        assert (await b.claim(claim(SLOT + 1, "two"))).outcome == "won"
        known = a._session.runs._views["job"].places[SLOT]
        assert b._session.runs._views["job"].places[SLOT + 1] == known
        assert not await a.heartbeat("job", SLOT, "one")

    run(server, namespace, scenario)


def test_a_takeover_waits_for_etcd_to_end_the_lease_and_hears_of_it(server, namespace):
    """No key was harmed: the lease of two seconds runs out by itself, and a watch tells of it at once."""

    async def scenario(a, b):
        loop = asyncio.get_running_loop()
        hints = b.changes(["job"])
        heard = asyncio.ensure_future(anext(hints))
        await until(lambda: listening(server, b), "no watch")
        begun = loop.time()
        assert (await a.claim(claim(lease_ms=2_000))).outcome == "won"
        assert (await b.claim(takeover("two"))).outcome == "running"
        assert await heard == "job"
        hinted = loop.time()
        assert hinted - begun >= 1.9, "etcd ended the lease early"
        told = await b.claim(takeover("two"))
        assert (told.outcome, told.attempt) == ("won", 2)
        assert loop.time() - hinted < 2, "the hint came, and the run could not be taken"
        (lost,) = told.previous
        assert abs(lost.ended_at - lost.started_at - 2_000) <= 100
        await hints.aclose()

    async def listening(_server, one):
        return one._session.cluster._member is not None

    run(server, namespace, scenario)


# Keys


def test_names_meet_nowhere():
    names = ["a", "a/b", "a%2Fb", "a%", "%2F", "%252F", "run", "log", "a/live/0", "state", "ü", "/", "//", "a "]
    assert len({quoted(name) for name in names}) == len(names)
    prefixes = [Layout("tenure", space).job(job).prefix for space, job in itertools.product(names, names)]
    assert not [(one, other) for one, other in itertools.permutations(prefixes, 2) if other.startswith(one)]


def test_nothing_outside_of_the_namespace_is_touched(server, namespace):
    others = {f"tenure/{namespace}0/x".encode(): b"1", f"tenure/{namespace}".encode(): b"2", b"tenure": b"3"}
    for key, value in others.items():
        server.put(key, value)
    before = {key: value for key, value in server.keys().items() if not key.startswith(f"tenure/{namespace}/".encode())}

    async def scenario(a, b):
        for job in ("job", "job/2", "job%2F2"):
            assert (await a.claim(claim(job=job))).attempt == 1
            await a.save_result(job, RunResult(SLOT, 1, 7, "success", "i", 1, 2))
        assert await b.finish("job", SLOT, "one", "success")
        assert [one.job for one in (await b.active(["job", "job/2"])).runs] == ["job/2"]

    run(server, namespace, scenario)
    after = {key: value for key, value in server.keys().items() if not key.startswith(f"tenure/{namespace}/".encode())}
    assert after == before


def test_ended_runs_leave_no_keys_behind(server, namespace):
    async def scenario(a):
        for number in range(40):
            assert (await a.claim(claim(SLOT + number))).outcome == "won"
            assert await a.heartbeat("job", SLOT + number, "one")
            assert await a.finish("job", SLOT + number, "one", "success")

    run(server, namespace, scenario, 1)
    keys = server.keys(f"tenure/{namespace}/run/".encode())
    assert sorted(key.rpartition(b"/job/")[2] for key in keys) == [b"beat/0", b"state"]
    assert max(map(len, keys.values())) < 1_200


def test_history_is_pruned_and_its_newest_records_are_shown(server, namespace):
    async def scenario(a):
        for number in range(60):
            await a.save_result("job", RunResult(SLOT + number, 1, 7, "success", "i", 1, 2))
        await a.save_result("job", RunResult(SLOT - 1, 1, 7, "success", "i", 1, 2))
        shown = await a.results("job", limit=1_000)
        assert [one.slot - SLOT for one in shown] == list(range(59, 49, -1))

    run(server, namespace, scenario, 1, keep_results=10)
    assert len(server.keys(f"tenure/{namespace}/log/".encode())) <= 10 + backend.SPARE_RECORDS + 1


def test_a_history_of_the_longest_texts_is_read_whole(server, namespace):
    text = "ä" * 32_000

    async def scenario(a):
        for number in range(80):  # more than gRPC's usual 4 MB
            await a.save_result("job", RunResult(SLOT + number, 1, 7, "failed", "i", 1, 2, text))
        shown = await a.results("job", limit=80)
        assert [one.error for one in shown] == [text] * 80

    run(server, namespace, scenario, 1)


# Formats, entering, options


def test_an_unknown_format_and_a_foreign_value_are_refused(server, namespace):
    key, state = f"tenure/{namespace}/format".encode(), f"tenure/{namespace}/run/job/state".encode()

    async def scenario(a):
        for value, words in (
            (b'[2,"?"]', "upgrade tenure-etcd"),
            (b"hello", "tenure did not write"),
            (b"[]", "did not"),
        ):
            server.put(state, value)
            with pytest.raises(BackendMisconfigured, match=words):
                await a.claim(claim())
        for value, words in ((b"2", "upgrade tenure-etcd"), (b"hello", "tenure did not write")):
            server.put(key, value)
            with pytest.raises(BackendMisconfigured, match=words):
                async with opened(server, namespace, 1):
                    pass

    run(server, namespace, scenario, 1)


def test_without_create_only_what_is_there_is_opened(server, namespace):
    with pytest.raises(BackendMisconfigured, match="there is no store"):
        run(server, namespace, None, create=False)
    assert not server.keys(f"tenure/{namespace}".encode())
    run(server, namespace, lambda a: a.active(["job"]), 1)
    run(server, namespace, lambda a: a.active(["job"]), 1, create=False)


def test_the_least_lease_is_the_server_s():
    with etcd(None, "--heartbeat-interval", "200", "--election-timeout", "3000") as (slow,):

        async def scenario(a):
            assert a.capabilities.min_lease_ms == 5_000
            with pytest.raises(InvalidClaim, match="use 5000 ms or more"):
                await a.claim(claim(lease_ms=4_999))
            assert (await a.claim(claim(lease_ms=5_000))).lease_left_ms == 5_000

        run(slow, "slow", scenario, 1)


def test_the_clock_is_the_server_s_within_what_is_promised(server, namespace):
    async def scenario(a):
        for _ in range(20):
            before = dates.SystemClock().wall_ms()
            now_ms = (await a.active([])).now_ms
            after = dates.SystemClock().wall_ms()
            assert before - a.capabilities.clock_error_ms <= now_ms <= after + a.capabilities.clock_error_ms

    run(server, namespace, scenario, 1)


def test_a_loop_or_a_process_of_another_one_is_refused(server, namespace, monkeypatch):
    async def scenario(a):
        caught = []

        def elsewhere():
            try:
                asyncio.run(a.active(["job"]))
            except BackendMisconfigured as error:
                caught.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert "another event loop" in caught[0]
        with monkeypatch.context() as patch:
            patch.setattr(cluster.os, "getpid", lambda: -1)
            with pytest.raises(BackendMisconfigured, match="forked"):
                await a.active(["job"])
        assert (await a.active(["job"])).runs == ()

    run(server, namespace, scenario, 1)


def test_leaving_waits_for_calls_and_closes_everything(server, namespace):
    async def main():
        async with opened(server, namespace, 1) as (a,):
            calls = [asyncio.ensure_future(a.claim(claim(job=f"job {number}"))) for number in range(20)]
            await asyncio.sleep(0)
        assert {(await call).outcome for call in calls} == {"won"}
        with pytest.raises(BackendClosed):
            await a.active(["job"])
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("etcd://", "not host or host:port"),
        ("etcd://host:port", "not host or host:port"),
        ("etcd://host:70000", "not host or host:port"),
        ("etcd://a,,b", "not host or host:port"),
        ("etcd://:word@host", "a password without a user"),
        ("etcd://host?cacert=/ca.pem", "write etcds://"),
        ("etcds://host?cert=/c.pem", "belong together"),
        ("etcd://host?lease=3", "unknown option 'lease'"),
        ("etcd://host?timeout=3", "timeout"),
    ],
)
def test_a_url_that_names_no_cluster_is_refused(url, words):
    with pytest.raises(ValueError, match=words):
        connect(url)


def test_a_refused_connection_says_where_to_look():
    async def main():
        async with connect(f"etcd://{HOST}:{free_port()}"):
            pass

    with pytest.raises(BackendUnavailable, match=r"is it running there\? look at host and port$"):
        asyncio.run(main())


def test_what_is_shown_has_no_secret():
    one = connect("etcds://app:p%40ss@host,other:2380/apps/tenure?cacert=/ca.pem", namespace="billing")
    assert str(one) == "etcds://host:2379,other:2380/apps/tenure (namespace billing)"
    assert "p@ss" not in f"{one} {one!r} {one._settings!r}"
    assert one._settings.password == "p@ss"
    assert str(connect("etcd://[::1]")) == "etcd://[::1]:2379 (namespace tenure)"


def test_settings_and_a_client_serve_as_well_as_a_url(server, namespace):
    import aetcd

    async def main():
        host, _, port = server.address.partition(":")
        client = aetcd.Client(host=host, port=int(port))
        one = EtcdBackend(Settings((server.address,)), namespace=namespace)
        other = EtcdBackend.of(client, namespace=namespace)
        async with one, other:
            assert (await one.claim(claim())).outcome == "won"
            assert (await other.claim(claim(token="two"))).outcome == "running"

    asyncio.run(main())
    with pytest.raises(InvalidUrl, match=r"not an aetcd\.Client"):
        EtcdBackend.of(object())


def test_tls_files_are_looked_at():
    with pytest.raises(BackendMisconfigured, match="cannot be read"):
        asyncio.run(connect("etcds://host?cacert=/nonexistent").__aenter__())
    with pytest.raises(InvalidUrl, match="belong together"):
        Tls(cert="/c.pem")


def test_a_port_that_nobody_listens_on_is_unavailable(namespace):
    with pytest.raises(BackendUnavailable, match="onnect"):
        asyncio.run(connect(f"etcd://{HOST}:1", timeout="5s").__aenter__())


# Cards


def card(job, seen_at_ms):
    return JobCard(
        job=job, schedule="every 10s", words="every 10 seconds", lease_ms=30_000, overlap="skip", max_attempts=3,
        max_late_ms=None, next_slot=None, instance="ü", seen_at_ms=seen_at_ms,
    )  # fmt: skip


def test_cards_are_kept_by_job_the_last_of_each_and_the_old_are_forgotten(server, namespace):
    now = int(time.time() * 1_000)

    async def scenario(first, second):
        many = [card(f"job/{number:03}", now) for number in range(250)]
        await first.save_cards([*many, card("old", now - CARD_KEPT_MS - 60_000)])
        await second.save_cards([card("job/007", now + 1)])
        found = await first.cards()
        assert [card.job for card in found] == [card.job for card in many]
        assert found[7].seen_at_ms == now + 1

    run(server, namespace, scenario)


def test_a_cluster_of_one_is_warned_of_and_else_well(server, namespace):
    async def scenario(backend):
        found = {finding.what: finding for finding in await backend.examine()}
        assert {what: finding.state for what, finding in found.items()} == {
            "database": "ok", "members": "warning", "time": "ok", "rights": "ok",
        }  # fmt: skip
        assert "etcd 3." in found["database"].text

    run(server, namespace, scenario, count=1)
