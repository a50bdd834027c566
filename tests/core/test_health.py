"""Whether a scheduler is alive and ready: told at once, whatever hangs, and as probes want to hear it."""

import asyncio
import json
import threading

import pytest
from tenure import BackendUnavailable, Health, MemoryBackend, Scheduler
from tenure.health import Contact, asgi, wsgi
from tenure.observe import Observers

from .waiting import PATIENCE_S, wait_until


class Clock:
    now = 1_000.0
    wall = 5_000

    def wall_ms(self):
        return self.wall

    def monotonic_ms(self):
        return self.now


class Unsteady(MemoryBackend):
    """A store that may be away, or hang the whole loop."""

    away = False
    hangs: threading.Event | None = None

    async def claim(self, claim):
        if self.hangs is not None:
            self.hangs.wait(PATIENCE_S)
        if self.away:
            raise BackendUnavailable("away")
        return await super().claim(claim)


def healthy(**changes):
    return Health(**{"state": "running", "tick_age_ms": 10, "store_answer_age_ms": 10, **changes})


async def answered(answer):
    return answer


async def failing(error):
    raise error


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def contact(clock):
    return Contact(clock, Observers())


# The rules


def test_a_running_instance_that_reaches_its_store_is_alive_and_ready():
    assert (healthy().alive, healthy().ready) == (True, True)


@pytest.mark.parametrize("state", ["starting", "stopping"])
def test_an_instance_that_starts_or_stops_is_alive_and_not_ready(state):
    assert (healthy(state=state).alive, healthy(state=state).ready) == (True, False)


@pytest.mark.parametrize("tick_age_ms", [None, 10_000])
def test_an_instance_whose_loop_is_stuck_is_neither_alive_nor_ready(tick_age_ms):
    health = healthy(tick_age_ms=tick_age_ms)
    assert (health.alive, health.ready) == (False, False)


@pytest.mark.parametrize("fault", [{"store_error": "BackendUnavailable"}, {"store_answer_age_ms": None}])
def test_a_store_that_is_away_makes_it_unready_and_leaves_it_alive(fault):
    """To start it again would help nobody."""
    assert (healthy(**fault).alive, healthy(**fault).ready) == (True, False)


# What is noted of the store


def test_a_call_that_fails_makes_the_store_unreachable_until_one_is_answered(clock, contact):
    def health():
        return contact.health("running", "a", clock.now)

    assert not health().store_reachable
    assert asyncio.run(contact.note("claim", answered(7))) == 7
    assert health().store_reachable
    clock.now += 250
    with pytest.raises(BackendUnavailable):
        asyncio.run(contact.note("claim", failing(BackendUnavailable("away"))))
    assert (health().store_error, health().store_answer_age_ms) == ("BackendUnavailable", 250)
    assert not health().store_reachable
    asyncio.run(contact.note("claim", answered(None)))
    assert (health().store_error, health().store_answer_age_ms) == (None, 0)


def test_a_failure_of_more_than_a_minute_ago_counts_no_more(clock, contact):
    """Otherwise one lost record would make the instance of a nightly job unready until the next night."""
    asyncio.run(contact.note("claim", answered(None)))
    with pytest.raises(OSError, match="away"):
        asyncio.run(contact.note("save_result", failing(OSError("away"))))
    clock.now += 59_999
    assert not contact.health("running", "a", clock.now).ready
    clock.now += 1
    assert contact.health("running", "a", clock.now).ready


def test_a_cancelled_call_says_nothing_of_the_store(clock, contact):
    async def main():
        await contact.note("claim", answered(None))
        clock.now += 100
        waiting = asyncio.create_task(contact.note("claim", asyncio.Event().wait()))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])

    asyncio.run(main())
    health = contact.health("running", "a", clock.now)
    assert (health.store_reachable, health.store_answer_age_ms) == (True, 100)


def test_the_clock_offset_is_the_store_s_time_minus_this_machine_s(clock, contact):
    assert contact.health("running", "a", clock.now).clock_offset_ms is None
    contact.store_clock.learn(5_300)
    clock.now += 1_000
    clock.wall += 1_000
    assert contact.health("running", "a", clock.now).clock_offset_ms == 300
    clock.wall += 2_000  # this machine's clock is set forward: seen before the store's next answer
    assert contact.health("running", "a", clock.now).clock_offset_ms == -1_700


# Of a scheduler


def test_a_scheduler_is_ready_from_its_start_to_its_stop():
    scheduler = Scheduler("memory://")
    assert scheduler.health() == Health(state="stopped")
    assert not scheduler.health().alive
    with scheduler:
        health = scheduler.health()
        assert health.ready
        assert health.instance == scheduler.instance
    assert scheduler.health() == Health(state="stopped")


def test_a_scheduler_whose_store_is_away_is_alive_and_not_ready_until_it_is_back():
    backend = Unsteady()
    scheduler = Scheduler(backend)
    scheduler.every("sync", "100ms", lambda: None, jitter="0s")
    with scheduler:
        wait_until(lambda: scheduler.health().clock_offset_ms is not None, "the store has told its time")
        backend.away = True
        health = wait_until(lambda: (health := scheduler.health()).store_error and health, "a call failed")
        assert (health.alive, health.ready, health.store_error) == (True, False, "BackendUnavailable")
        backend.away = False
        wait_until(lambda: scheduler.health().ready, "a call was answered")


def test_a_loop_that_hangs_is_seen_by_its_ticks(monkeypatch):
    monkeypatch.setattr("tenure.host.TICK_MS", 5)
    backend = Unsteady()
    scheduler = Scheduler(backend)
    scheduler.every("sync", "100ms", lambda: None, jitter="0s")
    with scheduler:
        wait_until(lambda: scheduler.health().tick_age_ms < 50, "the loop turns")
        backend.hangs = threading.Event()
        try:
            wait_until(lambda: scheduler.health().tick_age_ms > 500, "the loop is stuck")
        finally:
            hangs, backend.hangs = backend.hangs, None
            hangs.set()
        wait_until(lambda: scheduler.health().tick_age_ms < 50, "the loop turns again")


def test_health_is_told_while_it_stops():
    scheduler, entered, leave = Scheduler("memory://"), threading.Event(), threading.Event()

    def slow():
        entered.set()
        leave.wait(PATIENCE_S)

    scheduler.every("slow", "100ms", slow, jitter="0s")
    scheduler.start()
    assert entered.wait(PATIENCE_S)
    stopping = threading.Thread(target=scheduler.stop)
    stopping.start()
    try:
        health = wait_until(lambda: (health := scheduler.health()).state == "stopping" and health, "it stops")
        assert (health.alive, health.ready) == (True, False)
    finally:
        leave.set()
        stopping.join()


# Served


class Known:
    def __init__(self, health):
        self._health = health

    def health(self):
        return self._health


def over_wsgi(scheduler, path):
    started = []
    (body,) = wsgi(scheduler)({"PATH_INFO": path}, lambda status, headers: started.append((status, dict(headers))))
    ((status, headers),) = started
    assert headers["content-length"] == str(len(body))
    return int(status[:3]), json.loads(body)


def over_asgi(scheduler, path):
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(asgi(scheduler)({"type": "http", "path": path}, None, send))
    start, body = sent
    assert dict(start["headers"])[b"content-length"] == str(len(body["body"])).encode()
    return start["status"], json.loads(body["body"])


served = pytest.mark.parametrize("ask", [over_wsgi, over_asgi])


@served
@pytest.mark.parametrize("prefix", ["", "/health", "/internal/jobs"])
def test_probes_are_answered_below_any_prefix(ask, prefix):
    scheduler = Known(healthy(store_error="BackendUnavailable"))
    status, body = ask(scheduler, f"{prefix}/live")
    assert (status, body["alive"], body["ready"]) == (200, True, False)
    status, body = ask(scheduler, f"{prefix}/ready")
    assert (status, body["store_error"], body["state"]) == (503, "BackendUnavailable", "running")


@served
def test_a_scheduler_that_does_not_run_fails_both_probes(ask):
    assert [ask(Scheduler("memory://"), path)[0] for path in ("/live", "/ready")] == [503, 503]


@served
def test_another_path_is_not_found(ask):
    status, body = ask(Known(healthy()), "/healthz")
    assert status == 404
    assert "/live" in body["error"]


def test_asgi_answers_nothing_but_http():
    with pytest.raises(ValueError, match="lifespan"):
        asyncio.run(asgi(Known(healthy()))({"type": "lifespan"}, None, None))
