"""What is DynamoDB's own: the interval of its clock, conditions, replies, permissions, and what is said of it."""

import asyncio
import json
import os
import random
import re
import socketserver
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

import pytest
from boto3.session import Session
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from hypothesis import given
from hypothesis import strategies as st
from tenure.dateclock import DateClock
from tenure.decision import EMPTY, JobState, RunState
from tenure.errors import BackendClosed, BackendError, BackendMisconfigured, BackendUnavailable, InvalidUrl
from tenure.model import Claim, RunResult, new_token
from tenure.registry import connect
from tenure_dynamodb import DynamoBackend, StoreClock, client_config, item, keys, store
from tenure_dynamodb.clock import BEHIND_MS, Moment, clock_of
from tenure_dynamodb.faults import BUSY, CREATE_ACTIONS, TABLE_ACTIONS, policy, translated

from .servers_dynamodb import KEY, REGION, SECRET, client_of, fronted, serving

ROOT = Path(__file__).parents[2]
NOON = 1_796_126_400_000
PAST = 1_700_000_000_000
HOUR_MS = 3_600_000
NAMES = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=20) | st.text(
    '[],"\\ a', min_size=1, max_size=8
)


def claim(job="sync", slot=PAST, token=None, **changes):
    fields = {"instance": "here", "lease_ms": 10_000, "mode": "scheduled", "overlap": "skip", "max_attempts": 3}
    return Claim(job=job, slot=slot, token=token or new_token(), **{**fields, "max_late_ms": None, **changes})


@pytest.fixture(scope="session")
def moto_server():
    with serving("moto") as server:
        yield server


@pytest.fixture(params=["dynalite", "moto"])
def server(request):
    """Each of the two servers, which are different programs."""
    return request.getfixturevalue("dynamodb_server" if request.param == "dynalite" else "moto_server")


@asynccontextmanager
async def entered(server, *, query="create=true&timeout=20s", endpoint=None, **options):
    options.setdefault("namespace", f"test {new_token()}")
    options.setdefault("clock", server.clock)
    url = server.url(query=query, endpoint=endpoint)
    async with connect(url, **options) as backend:
        yield backend


def running(scenario, server, **options):
    async def main():
        async with entered(server, **options) as backend:
            return await scenario(backend)

    return asyncio.run(main())


@pytest.fixture
def requests(monkeypatch):
    """The operations that were sent, in order."""
    sent = []
    request = store.Table._request

    def noted(self, method, **arguments):
        sent.append(method)
        return request(self, method, **arguments)

    monkeypatch.setattr(store.Table, "_request", noted)
    return sent


# The store's clock


class Host:
    """A host and a store whose clock is ahead of the host's; time passes when the test says so."""

    def __init__(self, ahead_ms=NOON):
        self.now_ms = 1_000.0
        self.ahead_ms = ahead_ms
        self.clock = StoreClock(lambda: self.now_ms)

    @property
    def store_ms(self):
        return self.now_ms + self.ahead_ms

    def look(self, way_ms=1.0, lag_ms=0.0):
        sent = self.now_ms
        self.now_ms += way_ms / 2
        date = formatdate((self.store_ms - lag_ms) // 1_000, usegmt=True)
        self.now_ms += way_ms / 2
        self.clock.learn(date, sent, self.now_ms)

    def assert_known(self):
        moment = self.clock.moment()
        assert moment.early <= self.store_ms <= moment.late, (moment, self.store_ms)


@pytest.mark.parametrize("seed", range(10))
def test_the_interval_contains_the_clock_of_a_server_whose_dates_lag(seed):
    chance = random.Random(seed)
    host = Host(NOON + chance.random() * 1_000)
    for _ in range(200):
        host.now_ms += chance.expovariate(1 / 200)
        host.look(chance.uniform(0.5, 5), chance.uniform(0, BEHIND_MS - 1))
        host.assert_known()
    assert host.clock.epoch == 0
    assert host.clock.moment().doubt_ms < 150


@pytest.mark.parametrize("ahead_ms", [NOON + HOUR_MS, NOON - HOUR_MS, NOON + 1_500])
def test_a_clock_that_was_set_starts_a_new_epoch(ahead_ms):
    host = Host()
    for _ in range(100):
        host.look(10)
    before = host.clock.moment()
    host.ahead_ms = ahead_ms
    host.look()
    host.assert_known()
    assert host.clock.moment().epoch == before.epoch + 1


@pytest.fixture
def passing(monkeypatch):
    """A host whose time passes when somebody sleeps."""
    host = Host()
    monkeypatch.setattr(time, "sleep", lambda seconds: setattr(host, "now_ms", host.now_ms + seconds * 1_000))
    monkeypatch.setattr(time, "monotonic", lambda: host.now_ms / 1_000)
    return host


@pytest.mark.parametrize("offset_ms", range(0, 1_000, 83))
def test_the_clock_is_known_within_a_second_of_entering(passing, offset_ms):
    passing.ahead_ms += offset_ms
    looks = []
    begun = passing.now_ms

    def look():
        looks.append(passing.now_ms)
        passing.look()

    passing.clock.measure(look, 100, time.monotonic() + 5)
    assert passing.clock.moment().doubt_ms <= 100
    passing.assert_known()
    assert passing.now_ms - begun < 1_100
    assert len(looks) < 55


def test_a_faded_clock_is_looked_at_only_when_the_second_turns(passing):
    passing.clock.measure(passing.look, 100, time.monotonic() + 5)
    passing.now_ms += 60_000
    assert passing.clock.moment().doubt_ms > 120
    looks = []
    passing.clock.measure(lambda: (looks.append(1), passing.look()), 100, time.monotonic() + 5)
    assert len(looks) <= 8
    passing.assert_known()


def test_measuring_ends_by_the_deadline(passing):
    with pytest.raises(TimeoutError, match="known only within"):
        passing.clock.measure(lambda: passing.look(300), 100, time.monotonic() + 3)
    assert time.monotonic() <= 4.4


def test_a_second_thread_does_not_measure_beside_the_first():
    clock = StoreClock()
    begun, release = threading.Event(), threading.Event()

    def look():
        begun.set()
        release.wait(10)
        raise ConnectionError

    def measure():
        with pytest.raises(ConnectionError):
            clock.measure(look, 100, time.monotonic() + 10)

    thread = threading.Thread(target=measure)
    thread.start()
    begun.wait(10)
    with pytest.raises(TimeoutError, match="another thread"):
        clock.measure(look, 100, time.monotonic() + 0.05)
    release.set()
    thread.join()


def test_backends_of_a_process_share_the_clock_of_an_endpoint():
    assert clock_of("http://one") is clock_of("http://one")
    assert clock_of("http://one") is not clock_of("http://two")
    first = clock_of("http://one")
    for number in range(40):
        clock_of(f"http://{number}")
    assert clock_of("http://one") is not first, "no more than some are kept"


# Decisions by an interval

MOMENT = Moment(NOON, NOON + 100)


def won(claim, moment=MOMENT, state=EMPTY):
    state, answer = item.claim(state, claim, moment)
    assert answer.outcome == "won"
    return state, answer


def test_a_win_is_granted_from_the_late_end():
    state, answer = won(claim(lease_ms=1_000))
    assert (answer.now_ms, answer.lease_left_ms, answer.fence) == (NOON + 100, 1_000, NOON + 100)
    (run,) = state.unfinished
    assert (run.started_at, run.expires_at, run.lease_ms, run.fence) == (NOON + 100, NOON + 1_100, 1_000, NOON + 100)
    assert state.fence == NOON + 100


def test_a_lease_is_over_by_the_early_end():
    state, _ = won(claim(lease_ms=1_000))
    taker = claim(mode="takeover", after=1)
    for early, outcome in ((NOON + 1_099, "running"), (NOON + 1_100, "won")):
        assert item.claim(state, taker, Moment(early, early + 100))[1].outcome == outcome


def test_a_claim_again_keeps_the_start_and_the_fence():
    first = claim(lease_ms=1_000)
    state, answer = won(first)
    later = Moment(NOON + 500, NOON + 560)
    state, again = won(first, later, state)
    assert (again.attempt, again.fence, again.now_ms, again.lease_left_ms) == (1, answer.fence, later.late, 1_000)
    assert (state.unfinished[0].started_at, state.unfinished[0].expires_at) == (NOON + 100, later.late + 1_000)


@pytest.mark.parametrize(
    ("slot", "max_late_ms", "outcome"),
    [
        (NOON - 1_000, 1_000, "won"),
        (NOON - 1_001, 1_000, "late"),
        (NOON + 1_100, None, "won"),
        (NOON + 1_101, None, "none"),
    ],
)
def test_in_doubt_a_run_starts(slot, max_late_ms, outcome):
    asked = claim(slot=slot, max_late_ms=max_late_ms)
    assert store._of_a_job_without_runs(asked, MOMENT).outcome == outcome


def test_a_heartbeat_that_was_held_up_takes_nothing_from_a_later_one():
    held = claim(lease_ms=1_000)
    state, _ = won(held)
    state, _ = item.heartbeat(state, PAST, held.token, NOON + 900)
    after, answer = item.heartbeat(state, PAST, held.token, NOON + 300)
    assert answer is True
    assert after is state
    assert state.unfinished[0].expires_at == NOON + 1_900


# Items and conditions


def full(runs=1_000, ended=128, name="n"):
    """As many runs as are ever kept, with random tokens and instances."""
    chance = random.Random(1)

    def run(slot, status):
        instance = "".join(chance.choice("abcdefghijklmnopqrstuvwxyz0123456789-") for _ in range(200))[: len(name) * 25]
        token = f"{chance.getrandbits(128):032x}"
        return RunState(PAST + slot, 3, 3, PAST + slot, token, instance, 30_000, PAST, PAST + 30_000, status)

    unfinished = tuple(run(number, "open") for number in range(ended, runs + ended))
    return JobState(PAST + 10_000, PAST - 1, unfinished, tuple(run(number, "success") for number in range(ended)))


def size_of(attributes):
    """The size of an item as DynamoDB counts it, nearly."""
    total = 0
    for name, typed in attributes.items():
        ((kind, value),) = typed.items()
        total += len(name)
        total += sum(map(len, value)) if kind == "BS" else len(value) if kind in "SB" else 22
    return total


def test_the_largest_state_fits_into_an_item():
    attributes = item.encode(full(name="instance"), b"12345678")
    assert size_of(attributes) < 300_000
    assert item.decode(attributes).state == full(name="instance")
    assert size_of(item.encode(full(), b"12345678")) < 70_000


def test_an_item_is_the_state_it_was_made_of_and_what_conditions_ask():
    state = full(3, 2)
    attributes = item.encode(state, b"stamp")
    known = item.decode(attributes)
    assert (known.state, known.stamp, known.calls, known.exists) == (state, b"stamp", 0, True)
    assert attributes["newest"] == {"N": str(PAST + 4)}
    assert attributes["unfinished"] == {"N": "3"}
    assert set(attributes["held"]["BS"]) == {item.holder(run.slot, run.token) for run in state.unfinished}
    assert "held" not in item.encode(EMPTY, b"stamp")
    assert item.encode(EMPTY, b"stamp")["newest"] == {"N": "-1"}


@pytest.mark.parametrize(
    "foreign",
    [
        {"anything": {"S": "else"}},
        {"calls": {"L": [{"S": '["drop"]'}]}},
        {"calls": {"L": [{"S": "no json"}]}},
        {"calls": {"L": []}, "base": {"B": b"no zlib"}},
        {"calls": {"S": "a text"}},
        {"calls": {"L": []}, "layout": {"S": "a text"}},
    ],
)
def test_what_is_not_ours_is_refused(foreign):
    with pytest.raises(BackendMisconfigured, match="use another table"):
        item.decode({"pk": {"S": "x"}, **foreign})


def test_a_newer_layout_is_refused():
    attributes = {**item.encode(EMPTY, b"stamp"), "layout": {"N": str(item.LAYOUT + 1)}}
    with pytest.raises(BackendMisconfigured, match="upgrade tenure-dynamodb"):
        item.decode(attributes)


@given(one=st.tuples(NAMES, NAMES), other=st.tuples(NAMES, NAMES))
def test_different_names_have_different_keys(one, other):
    assert (keys.state(*one) == keys.state(*other)) == (one == other)
    assert keys.job_of(keys.partition(*one)) == one[1]
    assert keys.layout(one[0])["pk"] not in (keys.state(*one)["pk"], keys.state(*other)["pk"])


@given(st.lists(st.tuples(st.integers(0, 10**14), st.integers(0, 10**20)), min_size=2, max_size=2))
def test_history_is_sorted_by_slot_and_attempt(pair):
    def sort_key(slot, attempt):
        record = RunResult(
            slot, attempt, 1, "success" if attempt else "late", "i", *((1, 2) if attempt else (None, None))
        )
        return keys.record("n", "j", record, 1)["sk"]["S"]

    assert sorted(pair) == sorted(pair, key=lambda run: sort_key(*run))


# Round trips


def test_one_request_a_call(server, requests, monkeypatch):
    monkeypatch.setattr(store, "PRUNE_EVERY", 10**9)

    async def scenario(backend):
        async def cost(call):
            requests.clear()
            answer = await call
            return answer, list(requests)

        first, other = claim(), claim()
        answer, sent = await cost(backend.claim(first))
        assert (answer.outcome, sent) == ("won", ["update_item"])
        answer, sent = await cost(backend.claim(other))
        tells = sent == ["update_item"]
        assert answer.outcome == "running"
        assert tells or sent == ["update_item", "get_item"], "a server that does not tell is asked"
        assert await cost(backend.heartbeat("sync", PAST, first.token)) == (True, ["update_item"])
        assert (await cost(backend.active(["sync", "none"])))[1] == ["batch_get_item"]
        assert await cost(backend.finish("sync", PAST, first.token, "success")) == (True, ["update_item"])
        second = claim(slot=PAST + 1)
        assert (await cost(backend.claim(second)))[1] == ["update_item"]
        assert await cost(backend.release("sync", PAST + 1, second.token)) == (True, ["update_item"])
        backup = claim(slot=PAST + 1, mode="takeover", after=0)
        assert (await cost(backend.claim(backup)))[1] == ["get_item"]
        taken, sent = await cost(backend.claim(replace(backup, after=1)))
        assert (taken.attempt, sent) == (2, ["get_item", "put_item"])
        record = RunResult(PAST, 1, 1, "success", "i", 1, 2)
        assert (await cost(backend.save_result("sync", record)))[1] == ["put_item"]
        assert await cost(backend.results("sync")) == ([record], ["query"])
        return tells

    assert running(scenario, server) is _is_moto(server), "moto tells, dynalite does not"


def _is_moto(server):
    return "server" in server.client.list_tables()["ResponseMetadata"]["HTTPHeaders"]


def test_any_instance_wins_in_one_request_whoever_ran_last(dynamodb_server, requests):
    async def scenario(first):
        async with entered(dynamodb_server, namespace=first._settings.namespace) as second:
            for number, backend in enumerate([first, second, second, first]):
                requests.clear()
                won = claim(slot=PAST + number)
                assert (await backend.claim(won)).outcome == "won"
                assert await backend.finish("sync", won.slot, won.token, "success")
                assert requests == ["update_item", "update_item"]

    running(scenario, dynamodb_server)


def test_an_item_holds_few_calls_and_then_their_outcome(dynamodb_server, requests):
    async def scenario(backend):
        held = claim()
        await backend.claim(held)
        requests.clear()
        for _ in range(3 * (item.MOST_CALLS + 1)):
            assert await backend.heartbeat("sync", PAST, held.token)
        assert requests.count("put_item") == 3
        key = keys.state(backend._settings.namespace, "sync")
        stored = dynamodb_server.client.get_item(TableName="tenure", Key=key)["Item"]
        assert len(stored["calls"]["L"]) <= item.MOST_CALLS
        assert "base" in stored

    running(scenario, dynamodb_server)


def test_states_never_expire_and_records_do(server):
    async def scenario(backend):
        await backend.claim(claim())
        await backend.save_result("sync", RunResult(PAST, 1, 1, "success", "i", PAST, PAST + 1))
        partition = keys.partition(backend._settings.namespace, "sync")
        return {found["sk"]["S"]: found for found in server.items() if found["pk"]["S"] == partition}

    found = running(scenario, server, keep_for="10d")
    assert "expires" not in found.pop("state")
    (record,) = found.values()
    assert int(record["expires"]["N"]) == PAST // 1_000 + 10 * 86_400


def test_old_records_are_removed(server, monkeypatch):
    monkeypatch.setattr(store, "PRUNE_EVERY", 1)

    async def scenario(backend):
        for number in range(12):
            await backend.save_result("sync", RunResult(PAST + number, 1, 1, "success", "i", 1, 2))
        partition = keys.partition(backend._settings.namespace, "sync")
        kept = [found["sk"]["S"] for found in server.items() if found["pk"]["S"] == partition]
        assert len(kept) == 5
        assert [one.slot - PAST for one in await backend.results("sync")] == [11, 10, 9, 8, 7]

    running(scenario, server, keep_results=5)


def test_of_many_that_change_a_job_at_once_none_is_lost(server):
    async def scenario(backend):
        claims = [claim(slot=PAST + number, overlap="allow") for number in range(12)]
        random.Random(3).shuffle(claims)
        answers = await asyncio.gather(*map(backend.claim, claims))
        assert {answer.outcome for answer in answers} == {"won"}
        assert len({answer.fence for answer in answers}) == 12
        ended = [backend.finish("sync", one.slot, one.token, "success") for one in claims[:6]]
        assert all(await asyncio.gather(*ended))
        assert len((await backend.active(["sync"])).runs) == 6

    running(scenario, server)


# What replies say


def test_of_a_reply_that_was_cut_nothing_is_believed(dynamodb_server):
    async def scenario(backend):
        held = claim()
        assert (await backend.claim(held)).outcome == "won"
        with fronted(dynamodb_server) as front:
            namespace = backend._settings.namespace
            async with entered(dynamodb_server, endpoint=front.endpoint, namespace=namespace) as near:
                for part in (0.01, 0.06, 0.09, 0.1, 0.13, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99):
                    front.cut = part
                    for call in (near.active, near.results):
                        with pytest.raises(BackendUnavailable):
                            await call(["sync"] if call == near.active else "sync")
                    with pytest.raises(BackendUnavailable):
                        await near.claim(claim(mode="takeover"))
                front.cut = None
                assert len((await near.active(["sync"])).runs) == 1

    running(scenario, dynamodb_server)


@pytest.mark.parametrize("shift_s", [3_600, -3_600])
def test_an_instance_whose_own_clock_is_an_hour_off_signs_and_decides_by_the_store_s(dynamodb_server, shift_s):
    with fronted(dynamodb_server) as front:
        front.shift_s = shift_s

        async def scenario(backend):
            told = await backend.claim(claim())
            assert told.outcome == "won"
            return told.now_ms - time.time() * 1_000

        off_ms = running(scenario, dynamodb_server, endpoint=front.endpoint, clock=StoreClock())
        assert abs(off_ms - shift_s * 1_000) < 5_000
        assert front.refused <= 2


def test_what_was_decided_by_a_clock_that_the_reply_contradicts_is_decided_again(dynamodb_server):
    with fronted(dynamodb_server) as front:

        async def scenario(backend):
            held = claim(lease_ms=60_000)
            front.shift_s = 200  # the store's clock is set, and nobody knows yet
            told = await backend.claim(held)
            ahead_ms = told.now_ms - time.time() * 1_000
            assert (told.outcome, told.attempt) == ("won", 1)
            assert abs(ahead_ms - 200_000) < 5_000
            (run,) = (await backend.active(["sync"])).runs
            assert 50_000 < run.lease_left_ms <= 60_200
            front.shift_s = 0
            assert await backend.heartbeat("sync", PAST, held.token)
            assert (await backend.active(["sync"])).now_ms < told.now_ms - 100_000

        running(scenario, dynamodb_server, endpoint=front.endpoint, clock=StoreClock())


def test_a_clock_that_cannot_be_known_so_exactly_is_said(dynamodb_server, monkeypatch):
    async def scenario(backend):
        served = backend._service.store
        monkeypatch.setattr(store.Table, "_learn", lambda *_: None)
        monkeypatch.setattr(served._table, "clock", StoreClock())
        with pytest.raises(BackendUnavailable, match=r"known only within .* clock_error=200ms was promised"):
            served.moment(time.monotonic() + 0.1)

    running(scenario, dynamodb_server)


def test_replies_without_a_date_are_refused(dynamodb_server, monkeypatch):
    monkeypatch.setattr(StoreClock, "learn", lambda *_: (_ for _ in ()).throw(ValueError("no date")))
    with pytest.raises(BackendMisconfigured, match="no Date"):
        running(lambda backend: None, dynamodb_server, clock=StoreClock())


# Errors


def client_error(code, status=400, message="told so"):
    reply = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(reply, "UpdateItem")


@pytest.mark.parametrize("code", [*sorted(BUSY), "503", "AnythingElse"])
def test_what_passes_is_unavailable(code):
    status = 500 if code in ("503", "AnythingElse") else 400
    error = translated("place", "jobs", REGION, client_error(code, status))
    assert isinstance(error, BackendUnavailable)
    assert isinstance(error.__cause__, ClientError)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("ResourceNotFoundException", r"create=true.*dynamodb:CreateTable.*table/jobs"),
        ("AccessDeniedException", r"dynamodb:GetItem.*dynamodb:UpdateItem.*table/jobs"),
        ("UnrecognizedClientException", "credentials"),
        ("ExpiredTokenException", "credentials"),
        ("InvalidSignatureException", "credentials"),
        ("ValidationException", "keys pk and sk"),
        ("UnknownOperationException", "as DynamoDB does"),
    ],
)
def test_what_stays_is_misconfigured_with_the_remedy(code, remedy):
    error = translated("place", "jobs", REGION, client_error(code))
    assert isinstance(error, BackendMisconfigured)
    assert re.search(remedy, str(error), re.DOTALL), error
    assert isinstance(error.__cause__, ClientError)


def test_errors_before_a_reply():
    for exc, kind in ((NoCredentialsError(), BackendMisconfigured), (KeyError("Item"), BackendMisconfigured)):
        assert isinstance(translated("place", "jobs", None, exc), kind)
    refused = EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
    said = translated("place", "jobs", None, refused)
    assert isinstance(said, BackendUnavailable)
    assert str(said).endswith("look at the region, the endpoint and the network")


@contextmanager
def answering(reply):
    """A server that gives this answer to everything."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), socketserver.StreamRequestHandler)
    server.daemon_threads = True

    def handle(self):
        while self.rfile.readline() not in (b"", b"\r\n"):
            pass
        self.wfile.write(reply)

    server.RequestHandlerClass = type("Handler", (socketserver.StreamRequestHandler,), {"handle": handle})
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def reply_of(status, kind, body, *headers):
    lines = [f"HTTP/1.1 {status} Told", f"Content-Length: {len(body)}", f"Content-Type: {kind}", *headers]
    return "\r\n".join([*lines, "Connection: close", "", body]).encode()


DATE = f"Date: {formatdate(usegmt=True)}"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (reply_of(200, "text/html", "<p>It works!</p>", DATE), BackendMisconfigured),
        (reply_of(404, "text/html", "<p>Not found</p>", DATE), BackendMisconfigured),
        (reply_of(403, "text/html", "<p>No</p>", DATE), BackendMisconfigured),
        (reply_of(502, "text/html", "<p>Bad gateway</p>"), BackendUnavailable),
        (reply_of(503, "text/html", "", DATE), BackendUnavailable),
        (
            b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n',
            BackendUnavailable,
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", BackendUnavailable),
        (reply_of(200, "application/x-amz-json-1.0", "{}"), BackendMisconfigured),
    ],
    ids=["a web server", "its 404", "a 403", "a gateway", "an outage", "a cut chunk", "another protocol", "no date"],
)
def test_what_answers_otherwise_is_never_believed(reply, kind):
    async def main(endpoint):
        async with connect(f"dynamodb://key:secret@local/jobs?endpoint={endpoint}", clock=StoreClock()):
            pass

    with answering(reply) as endpoint, pytest.raises(BackendError) as caught:
        asyncio.run(main(endpoint))
    assert type(caught.value) is kind, caught.value
    assert caught.value.__cause__ is not None


def test_jobs_that_a_throttled_table_leaves_out_are_asked_for_again(dynamodb_server, monkeypatch):
    request = store.Table._request
    left_out = []

    def throttled(self, method, **arguments):
        asked = arguments.get("RequestItems", {}).get("tenure", {})
        if method != "batch_get_item" or len(asked["Keys"]) == 1:
            return request(self, method, **arguments)
        left_out.append(asked["Keys"][1:])
        arguments["RequestItems"] = {"tenure": {**asked, "Keys": asked["Keys"][:1]}}
        return {**request(self, method, **arguments), "UnprocessedKeys": {"tenure": {"Keys": asked["Keys"][1:]}}}

    async def scenario(backend):
        for job in ("a", "b", "c"):
            await backend.claim(claim(job))
        monkeypatch.setattr(store.Table, "_request", throttled)
        assert [run.job for run in (await backend.active(["a", "b", "c"])).runs] == ["a", "b", "c"]
        monkeypatch.setattr(time, "monotonic", lambda: float("inf"))
        with pytest.raises(BackendUnavailable, match="jobs were not read"):
            backend._service.store._table.get_all([keys.state("n", job) for job in "ab"], 0)

    running(scenario, dynamodb_server)
    assert len(left_out) == 3


def test_a_table_that_is_missing_is_not_made_unless_told_to(server):
    async def enter(query):
        async with connect(server.url("missing-table", query), clock=server.clock):
            pass

    with pytest.raises(BackendMisconfigured, match=r"there is no table 'missing-table'.*create=true.*CreateTable"):
        asyncio.run(enter("create=false"))
    assert "missing-table" not in server.client.list_tables()["TableNames"]


def test_a_table_is_made_by_many_at_once(server):
    table = f"made-{new_token()}"

    async def main():
        backends = [connect(server.url(table, "create=true&timeout=20s"), clock=server.clock) for _ in range(5)]
        await asyncio.gather(*(backend.__aenter__() for backend in backends))
        answers = await asyncio.gather(*(backend.claim(claim()) for backend in backends))
        assert sorted(answer.outcome for answer in answers) == ["running"] * 4 + ["won"]
        await asyncio.gather(*(backend.__aexit__(None, None, None) for backend in backends))

    asyncio.run(main())
    described = server.client.describe_table(TableName=table)["Table"]
    assert described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    if _is_moto(server):  # dynalite knows no expiry
        expiry = server.client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
        assert (expiry["TimeToLiveStatus"], expiry["AttributeName"]) == ("ENABLED", "expires")


def test_a_newer_version_s_namespace_is_refused_and_others_are_not(server):
    newer = {**keys.layout("newer"), "layout": {"N": "7"}}
    running(_nothing, server)
    server.client.put_item(TableName="tenure", Item=newer)
    with pytest.raises(BackendMisconfigured, match=r"layout 7 .* upgrade tenure-dynamodb"):
        running(_nothing, server, namespace="newer")
    running(_nothing, server, namespace="older")


async def _nothing(backend):
    pass


# Permissions: moto looks at the actions of policies, and at signatures


@pytest.fixture
def guarded(moto_server):
    """Gives a URL, by a policy, of a user that may do that and nothing else."""
    iam = Session(aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name=REGION).client(
        "iam", endpoint_url=moto_server.endpoint
    )
    running(_nothing, moto_server)

    def guard(on):
        host = moto_server.endpoint.removeprefix("http://")
        connection = HTTPConnection(host)
        connection.request("POST", "/moto-api/reset-auth", "0" if on else "inf", {"Content-Type": "text/plain"})
        connection.getresponse().read()
        connection.close()

    def url_of(policy, table="tenure", query="timeout=20s"):
        guard(on=False)
        document = json.loads(policy)
        document["Statement"][0]["Resource"] = "*"  # moto does not say which table is asked for
        user = f"user-{new_token()}"
        iam.create_user(UserName=user)
        iam.put_user_policy(UserName=user, PolicyName="tenure", PolicyDocument=json.dumps(document))
        key = iam.create_access_key(UserName=user)["AccessKey"]
        guard(on=True)
        secret = quote(key["SecretAccessKey"], safe="")
        endpoint = moto_server.endpoint
        return f"dynamodb://{key['AccessKeyId']}:{secret}@{REGION}/{table}?{query}&endpoint={endpoint}"

    yield url_of
    guard(on=False)


async def every_call(url, clock):
    async with connect(url, namespace=f"test {new_token()}", keep_results=1, clock=clock) as backend:
        held = claim()
        assert (await backend.claim(held)).outcome == "won"
        assert await backend.heartbeat("sync", PAST, held.token)
        assert await backend.release("sync", PAST, held.token)
        assert (await backend.claim(claim(mode="takeover", after=1))).attempt == 2
        assert len((await backend.active(["sync"])).runs) == 1
        for slot in (PAST, PAST + 1):
            await backend.save_result("sync", RunResult(slot, 1, 1, "success", "i", 1, 2))
        assert len(await backend.results("sync")) == 1


def policy_of(page):
    return re.search(r"<!-- policy -->\n```json\n(.*?)\n```", page, re.DOTALL)[1]


def test_the_policy_that_the_page_tells_is_enough(guarded, moto_server, monkeypatch):
    monkeypatch.setattr(store, "PRUNE_EVERY", 1)
    told = policy_of((ROOT / "docs" / "dynamodb.md").read_text("utf-8"))
    assert told == policy("tenure", REGION)
    asyncio.run(every_call(guarded(told), moto_server.clock))


@pytest.mark.parametrize("missing", TABLE_ACTIONS)
def test_each_of_its_actions_is_needed_and_told_where_it_is_missing(guarded, moto_server, monkeypatch, missing):
    monkeypatch.setattr(store, "PRUNE_EVERY", 1)
    allowed = tuple(action for action in TABLE_ACTIONS if action != missing)
    url = guarded(policy("tenure", REGION, allowed))
    with pytest.raises(BackendMisconfigured, match=rf"(?s)AccessDenied.*allow .*dynamodb:{missing}"):
        asyncio.run(every_call(url, moto_server.clock))


@pytest.mark.parametrize("missing", ["PutItem", "UpdateItem", "Query", "BatchGetItem", "BatchWriteItem"])
def test_the_doctor_is_told_what_the_credentials_do_not_allow(guarded, moto_server, missing):
    async def rights(url):
        async with connect(url, clock=moto_server.clock) as backend:
            return {finding.what: finding for finding in await backend.examine()}["rights"]

    assert asyncio.run(rights(guarded(policy("tenure", REGION)))).state == "ok"
    allowed = tuple(action for action in TABLE_ACTIONS if action != missing)
    found = asyncio.run(rights(guarded(policy("tenure", REGION, allowed))))
    assert (found.state, found.text.endswith(f"not allow {missing}")) == ("wrong", True)
    assert f"dynamodb:{missing}" in found.remedy


def test_making_the_table_needs_what_its_error_says(guarded, moto_server):
    table = f"made-{new_token()}"
    query = "create=true&timeout=20s"
    with pytest.raises(BackendMisconfigured, match=r"(?s)not authorized.*CreateTable"):
        asyncio.run(every_call(guarded(policy(table, REGION), table, query), moto_server.clock))
    both = policy(table, REGION, (*TABLE_ACTIONS, *CREATE_ACTIONS))
    asyncio.run(every_call(guarded(both, table, query), moto_server.clock))


# URLs, clients, loops, processes


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("dynamodb://eu-west-1/jobs", "dynamodb://eu-west-1/jobs (namespace tenure)"),
        ("dynamodb://eu-west-1", "dynamodb://eu-west-1/tenure (namespace tenure)"),
        ("dynamodb:///jobs", "dynamodb:///jobs (namespace tenure)"),
        (
            "dynamodb://key:s%2Fecret@eu-west-1/jobs?endpoint=http://user:secret@localhost:8000",
            "dynamodb://eu-west-1/jobs?endpoint=http://localhost:8000 (namespace tenure)",
        ),
    ],
)
def test_urls_and_how_they_are_shown(url, shown):
    backend = connect(url)
    assert str(backend) == shown
    assert "secret" not in f"{backend} {backend!r} {backend._account!r}"


def test_the_keys_of_a_url_are_the_client_s(dynamodb_server):
    backend = connect(f"dynamodb://AKID:a%2Fb@eu-west-1/jobs?endpoint={dynamodb_server.endpoint}")
    assert (backend._account.access_key, backend._account.secret_key) == ("AKID", "a/b")
    assert (backend._account.region, backend._table) == ("eu-west-1", "jobs")


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("dynamodb://eu-west-1/no", "no name of a table"),
        ("dynamodb://eu-west-1/a/b", "no name of a table"),
        ("dynamodb://key@eu-west-1/jobs", "both keys"),
        ("dynamodb://eu-west-1/jobs?endpoint=localhost:8000", "endpoint"),
        ("dynamodb://localhost:8000/jobs", r"no region; a server is named by its endpoint"),
        ("dynamodb://eu-west-1/jobs?retries=3", "unknown option 'retries'"),
        ("dynamodb://eu-west-1/jobs?create=maybe", "neither true nor false"),
    ],
)
def test_urls_that_cannot_be_used(url, fault):
    with pytest.raises(InvalidUrl, match=fault):
        connect(url)


def test_a_secret_of_the_url_is_in_no_error():
    url = "dynamodb://AKID:a-secret-word@eu-west-1/jobs?timeout=500ms&endpoint=http://127.0.0.1:1"

    async def main():
        async with connect(url):
            pass

    with pytest.raises(BackendUnavailable) as caught:
        asyncio.run(main())
    assert "a-secret-word" not in f"{caught.value} {caught.value.__cause__!r}"


def test_a_client_of_one_s_own_is_used_and_not_closed(server):
    client = client_of(server.endpoint)

    async def main():
        for _ in range(2):
            async with DynamoBackend("tenure", client=client, clock=server.clock, create=True) as backend:
                await backend.active(["sync"])

    asyncio.run(main())
    assert client.list_tables()["TableNames"]
    shown = str(DynamoBackend("tenure", client=client))
    assert shown == f"dynamodb://{REGION}/tenure?endpoint={server.endpoint} (namespace tenure)"


def test_a_client_that_tries_again_is_refused():
    session = Session(aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name=REGION)
    with pytest.raises(InvalidUrl, match=r"client_config\(\)"):
        DynamoBackend("tenure", client=session.client("dynamodb"))
    DynamoBackend("tenure", client=session.client("dynamodb", config=client_config("2s")))


def test_without_credentials_it_is_said(dynamodb_server, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")

    async def main():
        async with connect(f"dynamodb://eu-west-1/jobs?endpoint={dynamodb_server.endpoint}"):
            pass

    with pytest.raises(BackendMisconfigured, match="give AWS credentials"):
        asyncio.run(main())


def test_other_loops_and_closed_backends_are_refused(dynamodb_server):
    backend = connect(dynamodb_server.url(), clock=dynamodb_server.clock)

    async def call():
        return await backend.active(["sync"])

    async def main():
        async with backend, backend:
            await call()
            with pytest.raises(BackendError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, call())
        with pytest.raises(BackendClosed, match="not entered"):
            await call()

    with pytest.raises(BackendClosed):
        asyncio.run(call())
    asyncio.run(main())
    asyncio.run(main())


def test_entering_and_leaving_leaves_nothing(dynamodb_server):
    async def visits(count):
        for _ in range(count):
            async with entered(dynamodb_server) as backend:
                await backend.claim(claim())

    def open_files():
        return len(list(Path("/proc/self/fd").iterdir()))

    asyncio.run(visits(2))
    before = open_files(), threading.active_count()
    asyncio.run(visits(20))
    assert open_files() <= before[0] + 2
    assert threading.active_count() <= before[1] + 2


def test_the_clock_is_kept_known_while_nobody_calls(dynamodb_server, monkeypatch):
    monkeypatch.setattr("tenure_dynamodb.backend._KEEPING_S", 0.01)
    looked = threading.Event()
    look = store.Store.look

    def noted(self, deadline):
        look(self, deadline)
        looked.set()

    async def scenario(backend):
        monkeypatch.setattr(store.Store, "look", noted)
        backend._service.store._table.clock._clock = DateClock(lag_ms=50)  # all is forgotten
        assert await asyncio.to_thread(looked.wait, 10)
        for _ in range(1_000):
            if backend._service.store.until_a_look_s() is None:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the clock is not known yet")

    running(scenario, dynamodb_server, clock=StoreClock())
