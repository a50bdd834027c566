"""Observers see events, calls of the store, and each handler from around it; whatever they do, runs go on."""

import asyncio
import logging
import threading
from contextlib import contextmanager
from contextvars import ContextVar

import pytest
from tenure import BackendUnavailable, MemoryBackend, Scheduler, SchedulerStateError
from tenure.observe import Observers

from .waiting import wait_until

here = ContextVar("here", default=None)


class Looking:
    """Keeps all that it sees."""

    def __init__(self):
        self.events = []
        self.calls = []
        self.around_them = []

    def event(self, event):
        self.events.append(event)

    def called(self, call, took_ms, error):
        self.calls.append((call, took_ms, error))

    @contextmanager
    def around(self, ctx):
        before = here.set(ctx)
        error = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            here.reset(before)
            self.around_them.append((ctx, error))

    def kinds(self):
        return [event.kind for event in self.events]


class Raising:
    """Raises wherever it can."""

    def event(self, event):
        raise ZeroDivisionError

    def called(self, call, took_ms, error):
        raise ZeroDivisionError

    def around(self, ctx):
        raise ZeroDivisionError


class RaisingAtTheEnd(Raising):
    @contextmanager
    def around(self, ctx):
        yield
        raise ZeroDivisionError


def run_once(scheduler, looking, kind="success"):
    with scheduler:
        wait_until(lambda: kind in looking.kinds(), f"{kind} in {looking.kinds()}")


def observed(*observers, backend="memory://"):
    scheduler = Scheduler(backend, jitter="0s")
    for observer in observers:
        scheduler.observe(observer)
    return scheduler


def test_a_sync_and_an_async_handler_run_inside_of_the_observers_context():
    looking, seen = Looking(), {}
    scheduler = observed(looking)

    @scheduler.every("sync", "100ms")
    def sync(ctx):
        seen["sync"] = here.get() is ctx, threading.current_thread().name.startswith("tenure-sync@")

    @scheduler.every("async", "100ms")
    async def async_(ctx):
        await asyncio.sleep(0)
        seen["async"] = here.get() is ctx, True

    with scheduler:
        wait_until(lambda: len(seen) == 2, "both ran")
    assert seen == {"sync": (True, True), "async": (True, True)}


def test_what_a_handler_raises_passes_through_and_its_run_has_failed():
    looking = Looking()
    scheduler = observed(looking)
    scheduler.every("sync", "100ms", lambda: 1 / 0)
    run_once(scheduler, looking, "failure")
    ctx, error = looking.around_them[0]
    assert (ctx.job, ctx.attempt) == ("sync", 1)
    assert type(error) is ZeroDivisionError


@pytest.mark.parametrize("raising", [Raising, RaisingAtTheEnd])
def test_an_observer_that_raises_is_logged_and_changes_nothing(caplog, raising):
    looking, ran = Looking(), []
    scheduler = observed(raising(), looking)
    scheduler.every("sync", "100ms", lambda: ran.append(1))
    with caplog.at_level(logging.ERROR, "tenure"):
        run_once(scheduler, looking)
    assert ran
    assert "failure" not in looking.kinds()
    words = [record.getMessage() for record in caplog.records]
    assert any("around the handler of 'sync'" in word for word in words)
    assert any("on a call of enter" in word for word in words)


def test_the_contexts_of_several_observers_are_left_in_reverse_order():
    order = []

    class Named(Raising):
        def __init__(self, name):
            self.name = name

        @contextmanager
        def around(self, ctx):
            order.append(f"in {self.name}")
            yield
            order.append(f"out {self.name}")

    class Ctx:
        job = "sync"

    with Observers([Named("a"), Named("b")]).around(Ctx()):
        order.append("handler")
    assert order == ["in a", "in b", "handler", "out b", "out a"]


def test_each_call_of_the_store_is_told_with_its_time_and_its_error():
    class Slow(MemoryBackend):
        async def finish(self, *args):
            await asyncio.sleep(0.02)
            return await super().finish(*args)

        async def save_result(self, *args):
            raise BackendUnavailable("away")

    looking = Looking()
    scheduler = observed(looking, backend=Slow())
    scheduler.every("sync", "100ms", lambda: None)
    with scheduler:
        wait_until(lambda: "save_result" in [call for call, _, _ in looking.calls], "a record could not be saved")
    assert [call for call, _, _ in looking.calls][:4] == ["enter", "active", "claim", "finish"]
    took = {call: (took_ms, error) for call, took_ms, error in looking.calls}
    assert took["finish"][0] >= 15
    assert took["claim"][1] is None
    assert type(took["save_result"][1]) is BackendUnavailable


def test_the_calls_of_a_claim_only_backend_are_told_as_well(tmp_path):
    looking = Looking()
    scheduler = observed(looking, backend=f"dir:///{tmp_path}")
    scheduler.every("sync", "100ms", lambda: None)
    run_once(scheduler, looking)
    assert {"enter", "claim", "save_result"} <= {call for call, _, _ in looking.calls}


def test_a_running_scheduler_takes_no_observer():
    scheduler = Scheduler("memory://")
    with scheduler, pytest.raises(SchedulerStateError, match="before it is started"):
        scheduler.observe(Looking())


def test_the_lateness_of_a_start_is_from_its_slot_to_its_win():
    looking = Looking()
    scheduler = observed(looking)
    scheduler.every("sync", "100ms", lambda: None)
    run_once(scheduler, looking)
    start = next(event for event in looking.events if event.kind == "start")
    assert 0 <= start.late_ms < 10_000


def test_results_are_those_of_all_instances():
    backend = MemoryBackend()
    looking = Looking()
    one = observed(looking, backend=backend)
    one.every("sync", "100ms", lambda: None)
    with pytest.raises(SchedulerStateError, match="start it first"):
        one.results("sync")
    run_once(one, looking)
    other = Scheduler(backend)
    with other:
        records = other.results("sync", limit=1).result("10s")
    assert [record.status for record in records] == ["success"]


def test_a_claim_only_backend_gives_no_results(tmp_path):
    scheduler = Scheduler(f"dir:///{tmp_path}")
    with scheduler:
        assert scheduler.results("sync").result("10s") == []
