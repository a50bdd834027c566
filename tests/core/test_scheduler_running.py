"""Starting, stopping and changing a scheduler: from any thread, loop, handler or listener, leaving nothing behind."""

import asyncio
import contextvars
import gc
import logging
import os
import threading
import time
import traceback
from collections import Counter
from contextlib import contextmanager, suppress

import pytest
from tenure import (
    BackendUnavailable,
    InvalidJob,
    MemoryBackend,
    MemoryStore,
    Scheduler,
    SchedulerStateError,
    UnknownJob,
)
from tenure.engine import Engine

from .waiting import PATIENCE_S, wait_until


async def until(predicate, description):
    end = time.monotonic() + PATIENCE_S
    while not (found := predicate()):
        assert time.monotonic() < end, f"waited in vain until {description}"
        await asyncio.sleep(0.005)
    return found


def own_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tenure-")]


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def _nothing_is_left_behind():
    gc.collect()
    files = open_files()
    yield
    wait_until(lambda: not own_threads(), f"no thread is left: {own_threads()}")
    wait_until(lambda: open_files() <= files, "no file is left open")


class Events:
    """A listener that keeps what it is told."""

    def __init__(self):
        self.all = []

    def __call__(self, event):
        self.all.append(event)

    def of(self, *kinds):
        return [event for event in self.all if event.kind in kinds]

    def wait(self, *kinds, count=1):
        return wait_until(lambda: len(self.of(*kinds)) >= count and self.of(*kinds), f"{count} {kinds}")


@pytest.fixture
def events():
    return Events()


@pytest.fixture
def scheduler(events):
    scheduler = Scheduler("memory://", on_event=events, grace="10s")
    yield scheduler
    scheduler.stop("0s")


def noop(ctx):
    """Returns at once."""


class Store(MemoryBackend):
    """A backend that counts how often it is entered, and may fail or hang then."""

    def __init__(self, store=None):
        super().__init__(store)
        self.open = self.entered = self.left = 0
        self.fails = []
        self.hangs = threading.Event()
        self.reached = threading.Event()

    async def __aenter__(self):
        self.entered += 1
        self.reached.set()
        while self.hangs.is_set():
            await asyncio.sleep(0.005)
        if self.fails:
            raise self.fails.pop()
        self.open += 1
        return await super().__aenter__()

    async def __aexit__(self, *exc_info):
        self.open -= 1
        self.left += 1
        await super().__aexit__(*exc_info)


# Forms of running


def runs(scheduler):
    thread = scheduler._thread
    return thread is not None and thread.started.done()


@contextmanager
def started(scheduler):
    scheduler.start()
    yield
    scheduler.stop()


def run_with_start(scheduler, work):
    with started(scheduler):
        work()


def run_with_block(scheduler, work):
    with scheduler:
        work()


def run_with_async_block(scheduler, work):
    async def main():
        async with scheduler:
            await asyncio.to_thread(work)

    asyncio.run(main())


def run_with_serve(scheduler, work):
    async def main():
        serving = asyncio.create_task(scheduler.serve())
        await asyncio.to_thread(wait_until, lambda: runs(scheduler), "it runs")
        await asyncio.to_thread(work)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    asyncio.run(main())


def run_with_run(scheduler, work):
    running = threading.Thread(target=scheduler.run)
    running.start()
    wait_until(lambda: runs(scheduler), "it runs")
    work()
    scheduler.stop()
    running.join(PATIENCE_S)
    assert not running.is_alive()


FORMS = [run_with_start, run_with_block, run_with_async_block, run_with_serve, run_with_run]
each_form = pytest.mark.parametrize("form", FORMS)


@each_form
@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/jobs.db"])
def test_each_form_runs_jobs_of_both_kinds_and_leaves_nothing_behind(form, url, tmp_path, events):
    scheduler = Scheduler(url.format(tmp_path), on_event=events)
    ran = []

    @scheduler.every("async", "1h")
    async def async_handler(ctx):
        ran.append(ctx.job)

    @scheduler.every("sync", "1h")
    def sync_handler():
        ran.append("sync")

    def work():
        assert scheduler.trigger("async").result("20s").outcome == "won"
        assert scheduler.trigger("sync").result("20s").outcome == "won"
        events.wait("success", count=2)

    form(scheduler, work)
    assert sorted(ran) == ["async", "sync"]
    assert scheduler.instance is None
    wait_until(lambda: not own_threads(), "no thread is left")
    assert not events.of("error")


@each_form
def test_it_starts_again_after_a_stop(form, events):
    backend = Store()
    scheduler = Scheduler(backend, on_event=events)
    scheduler.every("a", "1h", noop)
    instances = []
    for _ in range(2):
        form(scheduler, lambda: instances.append(scheduler.instance))
    assert len(set(instances)) == 2
    assert (backend.entered, backend.left, backend.open) == (2, 2, 0)


def test_a_url_is_connected_anew_at_each_start():
    scheduler = Scheduler("memory://")  # a store of its own each time it is connected
    scheduler.every("a", "1h", noop)
    with scheduler:
        slot = scheduler.trigger("a").result("20s").slot
    with scheduler:
        assert scheduler.trigger("a").result("20s").outcome == "won"
        assert slot


def fail_to_start(form, scheduler):
    if form is run_with_run:
        scheduler.run()
    elif form is run_with_serve:
        asyncio.run(scheduler.serve())
    else:
        form(scheduler, lambda: pytest.fail("it started"))


@each_form
def test_a_start_that_fails_says_why_leaves_nothing_and_can_be_repeated(form):
    backend = Store()
    backend.fails = [BackendUnavailable("refused")]
    scheduler = Scheduler(backend)
    scheduler.every("a", "1h", noop)
    with pytest.raises(BackendUnavailable, match="refused"):
        fail_to_start(form, scheduler)
    wait_until(lambda: not own_threads(), "no thread is left")
    assert scheduler.instance is None
    form(scheduler, lambda: scheduler.trigger("a").result("20s"))
    assert backend.open == 0


def test_the_error_of_a_script_comes_without_what_led_to_it_which_is_logged(caplog):
    caplog.set_level(logging.DEBUG, "tenure")

    class Unreachable(Store):
        async def __aenter__(self):
            raise BackendUnavailable("refused") from OSError("the driver's own words")

    scheduler = Scheduler(Unreachable())
    with pytest.raises(BackendUnavailable, match="refused") as raised:
        scheduler.run()
    shown = "".join(traceback.format_exception(raised.value))
    assert "the driver's own words" not in shown
    assert len(shown.splitlines()) < 15
    assert "the driver's own words" in caplog.text


def test_a_misconfigured_store_leaves_no_thread(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path}/missing/jobs.db")
    for _ in range(2):
        with pytest.raises(Exception, match="does not exist; create it"):
            scheduler.start()
        wait_until(lambda: not own_threads(), "no thread is left")
    (tmp_path / "missing").mkdir()
    with scheduler:
        assert scheduler.instance


def test_a_second_start_is_refused_and_the_first_goes_on(scheduler):
    scheduler.every("a", "1h", noop)
    scheduler.start()
    threads = len(own_threads())
    with pytest.raises(SchedulerStateError, match="runs already; stop it before"):
        scheduler.start()
    assert len(own_threads()) == threads
    assert scheduler.trigger("a").result("20s").outcome == "won"


def test_a_stop_without_a_start_does_nothing(scheduler):
    scheduler.stop()
    asyncio.run(scheduler.aclose())
    scheduler.start()
    scheduler.stop()
    scheduler.stop()


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (Scheduler.start, "`async with scheduler:`"),
        (Scheduler.run, "`await scheduler.serve\\(\\)`"),
        (Scheduler.stop, "`await scheduler.aclose\\(\\)`"),
    ],
)
def test_what_would_block_a_loop_is_refused_there_and_names_the_remedy(scheduler, call, remedy):
    async def main():
        with pytest.raises(SchedulerStateError, match=f"would block the event loop; use {remedy}"):
            call(scheduler)

    asyncio.run(main())
    assert scheduler.instance is None


def test_a_bad_grace_stops_nothing(scheduler):
    scheduler.start()
    with pytest.raises(ValueError, match="no unit"):
        scheduler.stop(5)
    assert scheduler.instance
    scheduler.stop("5s")
    assert scheduler.instance is None


# Starts and stops that meet


def test_a_cancelled_start_leaves_nothing_behind_and_can_be_repeated():
    backend = Store()
    backend.hangs.set()
    scheduler = Scheduler(backend)

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await scheduler.__aenter__()
        await until(lambda: not own_threads(), "the threads ended")
        backend.hangs.clear()
        async with scheduler:
            assert backend.open == 1

    asyncio.run(main())
    assert backend.open == 0


def test_a_stop_ends_a_start_under_way():
    backend = Store()
    backend.hangs.set()
    scheduler = Scheduler(backend)
    failed = []

    def start():
        try:
            scheduler.start()
        except SchedulerStateError as error:
            failed.append(str(error))

    starting = threading.Thread(target=start)
    starting.start()
    wait_until(backend.reached.is_set, "the store is asked")
    scheduler.stop()
    starting.join(PATIENCE_S)
    assert failed == ["the scheduler was stopped while it started"]
    wait_until(lambda: not own_threads(), "no thread is left")


def test_serve_ends_when_it_is_stopped_elsewhere(scheduler):
    async def main():
        serving = asyncio.create_task(scheduler.serve())
        await until(lambda: runs(scheduler), "it runs")
        await asyncio.to_thread(scheduler.stop)
        async with asyncio.timeout(PATIENCE_S):
            await serving

    asyncio.run(main())


def test_a_cancelled_stop_goes_on(scheduler):
    going = threading.Event()

    @scheduler.every("a", "1h")
    async def handler(ctx):
        going.set()
        await ctx.signal.wait_async()
        await asyncio.sleep(0.3)

    async def main():
        await scheduler.__aenter__()
        await scheduler.trigger("a")
        await until(going.is_set, "the handler runs")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await scheduler.aclose()
        await until(lambda: scheduler.instance is None, "it is stopped")

    asyncio.run(main())


def test_the_second_stop_hurries_the_first(scheduler, events):
    going, end = threading.Event(), threading.Event()

    @scheduler.every("a", "1h")
    def handler():
        going.set()
        end.wait(PATIENCE_S)

    scheduler.start()
    scheduler.trigger("a").result("20s")
    wait_until(going.is_set, "the handler runs")
    began = time.monotonic()
    first = threading.Thread(target=scheduler.stop, args=("1h",))
    first.start()
    wait_until(lambda: scheduler._thread is None or scheduler._thread._stops, "the first stop is under way")
    scheduler.stop("1h")
    first.join(PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S
    assert scheduler.instance is None
    end.set()
    events.wait("success")


def test_what_a_hurried_stop_cancels_is_still_given_back(events):
    backend = Store()
    scheduler = Scheduler(backend, on_event=events)
    going = threading.Event()

    @scheduler.every("a", "1h")
    async def handler():
        going.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.1)

    scheduler.start()
    scheduler.trigger("a").result("20s")
    wait_until(going.is_set, "the handler runs")
    first = threading.Thread(target=scheduler.stop, args=("1h",))
    first.start()
    wait_until(lambda: scheduler._thread._stops, "the first stop is under way")
    scheduler.stop()
    first.join(PATIENCE_S)
    assert [event.kind for event in events.all] == ["start", "interrupted"]
    assert backend.open == 0  # it has waited for that


def test_a_handler_that_outlives_the_stop_keeps_its_lease_until_it_ends(events, caplog):
    store = MemoryStore()
    backend = Store(store)
    scheduler = Scheduler(backend, on_event=events)
    going, end = threading.Event(), threading.Event()

    @scheduler.every("a", "1h", lease="300ms", heartbeat="50ms")
    def handler(ctx):
        going.set()
        end.wait(PATIENCE_S)

    scheduler.start()
    slot = scheduler.trigger("a").result("20s").slot
    wait_until(going.is_set, "the handler runs")
    scheduler.stop("0s")
    assert "outlived the stop; its lease is kept until it ends" in caplog.text
    assert backend.open == 1

    time.sleep(0.6)  # two leases: nothing can be seen of a lease that stays but its staying
    other = Scheduler(MemoryBackend(store), on_event=events)
    other.every("a", "1h", noop, lease="300ms", heartbeat="50ms")
    with other:
        assert other.trigger("a").result("20s").outcome == "overlap"
    scheduler.start()  # also in the same process there is no second execution
    assert scheduler.trigger("a").result("20s").outcome == "overlap"
    scheduler.stop()
    end.set()
    (success,) = events.wait("success")
    assert (success.slot, success.attempt) == (slot, 1)
    wait_until(lambda: backend.open == 0, "the store is left")


def test_a_finish_that_the_store_does_not_take_outlives_the_stop_too(events):
    class Away(Store):
        away = threading.Event()

        async def finish(self, job, slot, token, status):
            if self.away.is_set():
                raise BackendUnavailable("refused")
            return await super().finish(job, slot, token, status)

    backend = Away()
    backend.away.set()
    scheduler = Scheduler(backend, on_event=events)
    scheduler.every("a", "1h", noop, lease="10m")
    scheduler.start()
    scheduler.trigger("a").result("20s")
    events.wait("error")
    began = time.monotonic()
    scheduler.stop("100ms")
    assert time.monotonic() - began < PATIENCE_S
    assert not events.of("success")
    backend.away.clear()  # the lease is still held
    events.wait("success")
    wait_until(lambda: backend.open == 0, "the store is left")


def test_a_handler_that_goes_on_after_its_timeout_does_not_hold_up_the_stop(scheduler, events):
    end = threading.Event()

    @scheduler.every("a", "1h", timeout="50ms")
    async def handler():
        while not end.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    scheduler.start()
    scheduler.trigger("a").result("20s")
    (failure,) = events.wait("failure")
    assert failure.timeout
    began = time.monotonic()
    scheduler.stop("0s")
    assert time.monotonic() - began < 4, "it waited for the loop of the handler"
    end.set()


def test_a_stop_leaves_the_handlers_of_another_scheduler_alone(scheduler, events):
    going, end = threading.Event(), threading.Event()

    @scheduler.every("a", "1h")
    def handler():
        with Scheduler("memory://"):
            going.set()
        end.wait(PATIENCE_S)

    scheduler.start()
    scheduler.trigger("a").result("20s")
    wait_until(going.is_set, "the handler runs")
    end.set()
    events.wait("success")


def test_an_error_in_the_block_comes_through_and_the_scheduler_is_stopped(scheduler):
    with pytest.raises(KeyboardInterrupt), scheduler:
        raise KeyboardInterrupt
    assert scheduler.instance is None

    async def main():
        async with scheduler:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())
    assert scheduler.instance is None


def test_an_engine_that_breaks_is_no_silent_end(scheduler, monkeypatch, caplog):
    async def broken(self, grace_ms):
        raise ZeroDivisionError

    monkeypatch.setattr(Engine, "stop", broken)
    scheduler.start()
    with pytest.raises(ZeroDivisionError):
        scheduler.stop()
    assert "the scheduler ended by an error" in caplog.text
    assert scheduler.instance is None


def test_nobody_needs_to_keep_a_running_scheduler(events):
    scheduler = Scheduler("memory://", on_event=events)
    scheduler.every("a", "100ms", noop, jitter="0s")
    scheduler.start()
    thread = scheduler._thread
    del scheduler
    gc.collect()
    events.wait("success", count=2)
    thread.stop(0)
    thread.wait_stopped()


def test_many_schedulers_in_one_process():
    schedulers = [Scheduler("memory://") for _ in range(30)]
    for scheduler in schedulers:
        scheduler.every("a", "1h", noop)
        scheduler.start()
    assert all(scheduler.trigger("a").result("20s").outcome == "won" for scheduler in schedulers)
    for scheduler in schedulers:
        scheduler.stop()


def test_a_loop_that_is_closed_under_a_scheduler_ends_it_and_says_so(scheduler, events, caplog):
    @scheduler.every("a", "1h")
    async def handler(ctx):
        pytest.fail("there is no loop")

    async def main():
        await scheduler.__aenter__()  # and no aclose

    asyncio.run(main())
    assert scheduler.instance
    scheduler.trigger("a").result("20s")
    wait_until(lambda: scheduler.instance is None, "it is stopped")
    assert "closed, so the scheduler stops; use `async with scheduler:`" in caplog.text
    events.wait("interrupted")
    assert [event.kind for event in events.all] == ["start", "interrupted"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of the loop that was stopped
def test_a_run_whose_loop_a_handler_ends_raises(scheduler):
    @scheduler.every("a", "100ms", jitter="0s")
    async def handler(ctx):
        asyncio.get_running_loop().stop()

    with pytest.raises(SchedulerStateError, match="was closed, so the scheduler stops"):
        scheduler.run()
    assert scheduler.instance is None


def test_a_handler_that_ends_with_its_loop_gives_its_lease_up(scheduler, events):
    going = threading.Event()

    @scheduler.every("a", "1h")
    async def handler(ctx):
        going.set()
        await asyncio.sleep(3600)

    async def main():
        await scheduler.__aenter__()
        await scheduler.trigger("a")
        await until(going.is_set, "the handler runs")

    asyncio.run(main())  # cancels what runs on it
    (failure,) = events.wait("failure")
    assert "CancelledError" in failure.error
    scheduler.stop()


# Changes while it runs


class Change:
    """Adds, replaces, triggers and removes a job."""

    def __init__(self, scheduler):
        self.scheduler = scheduler
        self.failed = None
        self.triggered = None
        self.done = threading.Event()

    def __call__(self, *_):
        if self.done.is_set() or self.failed:
            return
        try:
            self.change()
        except BaseException as error:
            self.failed = error
            raise
        finally:
            self.done.set()

    def change(self):
        self.scheduler.every("new", "1h", noop)
        self.scheduler.every("new", "2h", noop, replace=True)
        self.triggered = self.scheduler.trigger("new")
        self.scheduler.every("gone", "1h", noop)
        self.scheduler.remove("gone")
        with pytest.raises(UnknownJob):
            self.scheduler.trigger("gone")

    def check(self):
        wait_until(self.done.is_set, "the change is done")
        assert self.failed is None
        assert self.triggered.result("20s").outcome == "won"
        assert "new" in [job.name for job in self.scheduler.jobs]


@each_form
def test_jobs_change_from_any_thread(form):
    scheduler = Scheduler("memory://")
    change = Change(scheduler)
    form(scheduler, change)
    assert change.done.is_set()
    assert change.failed is None


@pytest.mark.parametrize("is_async", [False, True])
def test_jobs_change_from_inside_a_handler(scheduler, is_async):
    change = Change(scheduler)

    async def async_handler():
        change()

    scheduler.every("a", "1h", async_handler if is_async else change)
    with scheduler:
        scheduler.trigger("a")
        change.check()


def test_jobs_change_from_inside_a_listener():
    changes = []
    scheduler = Scheduler("memory://", on_event=lambda event: changes[0](event))
    changes.append(Change(scheduler))
    scheduler.every("a", "1h", noop)
    with scheduler:
        scheduler.trigger("a")
        changes[0].check()


def test_jobs_change_from_the_application_s_loop(scheduler):
    change = Change(scheduler)

    async def main():
        async with scheduler:
            change()
            assert (await change.triggered).outcome == "won"

    asyncio.run(main())


def test_a_job_added_while_it_starts_runs(events):
    backend = Store()
    backend.hangs.set()
    scheduler = Scheduler(backend, on_event=events)
    scheduler.every("a", "1h", noop)
    starting = threading.Thread(target=scheduler.start)
    starting.start()
    wait_until(backend.reached.is_set, "the store is asked")
    adding = threading.Thread(target=scheduler.every, args=("b", "1h", noop))
    adding.start()
    triggered = scheduler.trigger("a")
    backend.hangs.clear()
    starting.join(PATIENCE_S)
    adding.join(PATIENCE_S)
    assert triggered.result("20s").outcome == "won"
    assert scheduler.trigger("b").result("20s").outcome == "won"
    scheduler.stop()


def test_a_job_added_while_it_fails_to_start_is_kept():
    backend = Store()
    backend.hangs.set()
    backend.fails = [BackendUnavailable("refused")]
    scheduler = Scheduler(backend)

    def start():
        with pytest.raises(BackendUnavailable):
            scheduler.start()

    starting = threading.Thread(target=start)
    starting.start()
    wait_until(backend.reached.is_set, "the store is asked")
    adding = threading.Thread(target=scheduler.every, args=("b", "1h", noop))
    adding.start()
    backend.hangs.clear()
    starting.join(PATIENCE_S)
    adding.join(PATIENCE_S)
    assert [job.name for job in scheduler.jobs] == ["b"]
    with scheduler:
        assert scheduler.trigger("b").result("20s").outcome == "won"


def test_a_job_that_the_entered_store_refuses_is_not_added(scheduler):
    class Learns(MemoryBackend):
        async def __aenter__(self):
            self.capabilities = type(self.capabilities)(min_lease_ms=5_000)
            return await super().__aenter__()

    scheduler = Scheduler(Learns())
    scheduler.every("a", "1h", noop, lease="6s")
    with scheduler:
        with pytest.raises(ValueError, match=r"5s|5000"):
            scheduler.every("b", "1h", noop, lease="3s")
        with pytest.raises(ValueError, match=r"5s|5000"):
            scheduler.every("a", "1h", noop, lease="3s", replace=True)
        assert [job.lease_ms for job in scheduler.jobs] == [6_000]
    scheduler.every("b", "1h", noop, lease="3s")
    with pytest.raises(ValueError, match=r"5s|5000"):
        scheduler.start()
    wait_until(lambda: not own_threads(), "no thread is left")


def test_a_schedule_that_changes_the_scheduler_that_asks_it_is_told(scheduler, events):
    class Meddles:
        armed = False

        def next_slot(self, after_ms):
            if self.armed:
                scheduler.remove("a")
            return after_ms + 50

        def latest_slot(self, at_ms):
            return at_ms

    schedule = Meddles()
    scheduler.add("a", schedule, noop, jitter="0s")
    scheduler.start()
    schedule.armed = True
    error = events.wait("error")[0]
    assert isinstance(error.error, SchedulerStateError)
    assert "cannot change the scheduler that asks it" in str(error.error)


# Stops from inside


def test_a_handler_may_stop_its_scheduler(events):
    scheduler = Scheduler("memory://", on_event=events, grace="1h")

    @scheduler.every("a", "1h")
    def handler(ctx):
        scheduler.stop()
        assert ctx.signal.wait("20s")

    running = threading.Thread(target=scheduler.run)
    running.start()
    wait_until(lambda: runs(scheduler), "it runs")
    scheduler.trigger("a").result("20s")
    running.join(PATIENCE_S)
    assert not running.is_alive()
    assert [event.kind for event in events.all] == ["start", "success"]


def test_an_async_handler_may_close_its_scheduler(events):
    scheduler = Scheduler("memory://", on_event=events, grace="1h")

    @scheduler.every("a", "1h")
    async def handler(ctx):
        await scheduler.aclose()
        assert await ctx.signal.wait_async() == "stop"

    async def main():
        async with asyncio.timeout(PATIENCE_S):
            async with scheduler:
                await scheduler.trigger("a")
                await until(lambda: scheduler.instance is None, "it is stopped")
                await until(lambda: len(events.all) == 2, "its end is told")

    asyncio.run(main())
    assert [event.kind for event in events.all] == ["start", "success"]


def test_a_listener_may_stop_its_scheduler():
    stopped = threading.Event()

    def listener(event):
        if event.kind == "success":
            scheduler.stop()
            stopped.set()

    scheduler = Scheduler("memory://", on_event=listener)
    scheduler.every("a", "1h", noop)
    scheduler.start()
    began = time.monotonic()
    scheduler.trigger("a").result("20s")
    wait_until(stopped.is_set, "the listener has stopped it")
    assert time.monotonic() - began < 4, "the stop waited for the listener that asked for it"
    wait_until(lambda: scheduler.instance is None, "it is stopped")


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("is_async", [False, True])
def test_whatever_a_handler_raises_is_its_failure_alone(scheduler, events, error, is_async):  # EX03
    def handler():
        raise error("on purpose")

    async def async_handler():
        raise error("on purpose")

    scheduler.every("a", "1h", async_handler if is_async else handler)
    scheduler.every("b", "1h", noop)
    with scheduler:
        scheduler.trigger("a")
        (failure,) = events.wait("failure")
        assert error.__name__ in failure.error
        assert scheduler.trigger("b").result("20s").outcome == "won"
        events.wait("success")


# Trigger


def test_trigger_is_awaited_in_a_task_and_waited_for_in_a_thread(scheduler):
    end = threading.Event()
    scheduler.every("a", "1h", lambda: end.wait(PATIENCE_S))

    async def main():
        async with scheduler:
            won = await scheduler.trigger("a")
            assert won.outcome == "won"
            overlap = await asyncio.to_thread(scheduler.trigger("a").result)
            assert overlap.outcome == "overlap"
            end.set()

    asyncio.run(main())


class SlowClaims(MemoryBackend):
    def __init__(self):
        super().__init__()
        self.go = threading.Event()

    async def claim(self, claim):
        while not self.go.is_set():
            await asyncio.sleep(0.005)
        return await super().claim(claim)


def test_who_gives_up_waiting_for_a_trigger_stops_nothing(events):
    backend = SlowClaims()
    scheduler = Scheduler(backend, on_event=events)
    scheduler.every("a", "1h", noop)

    async def main():
        async with scheduler:
            pending = scheduler.trigger("a")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pending, 0.05)
            with pytest.raises(TimeoutError):
                pending.result("1ms")
            backend.go.set()
            assert (await pending).outcome == "won"
            await until(lambda: events.of("success"), "the run is done")

    asyncio.run(main())


def test_a_trigger_on_its_way_is_given_back_by_a_stop(events):
    backend = SlowClaims()
    scheduler = Scheduler(backend, on_event=events)
    scheduler.every("a", "1h", lambda: pytest.fail("it stops"))
    scheduler.start()
    pending = scheduler.trigger("a")
    stopping = threading.Thread(target=scheduler.stop)
    stopping.start()
    wait_until(lambda: scheduler.instance is None or scheduler._thread._stops, "it stops")
    backend.go.set()
    stopping.join(PATIENCE_S)
    assert pending.result("20s").outcome == "won"
    assert events.all == []

    async def lease_left():
        async with backend:
            (run,) = (await backend.active(["a"])).runs
            return run.live

    assert asyncio.run(lease_left()) is False


def test_a_trigger_without_a_store_gives_the_error(events):
    class Fails(MemoryBackend):
        async def claim(self, claim):
            raise BackendUnavailable("refused")

    scheduler = Scheduler(Fails(), on_event=events)
    scheduler.every("a", "150ms", noop, max_late=None)
    with scheduler, pytest.raises(Exception, match="did not answer the claim of 'a'; see the error events"):
        scheduler.trigger("a").result("20s")
    assert events.of("error")


def test_a_trigger_that_comes_too_late_is_refused(scheduler):
    scheduler.every("a", "1h", noop)
    scheduler.start()
    thread = scheduler._thread
    scheduler.stop()
    with pytest.raises(SchedulerStateError, match="start it first"):
        scheduler.trigger("a")
    with pytest.raises(SchedulerStateError, match="does not run any more"):
        thread.submit(lambda engine: engine.trigger("a"))


# Listeners


def test_a_slow_listener_delays_no_heartbeat_and_is_told_in_order():
    told = []

    def slow(event):
        time.sleep(0.1)
        told.append(event)

    scheduler = Scheduler("memory://", on_event=slow)
    reasons = []

    @scheduler.every("a", "1h", lease="300ms", heartbeat="50ms", overlap="allow")
    def handler(ctx):
        time.sleep(0.9)
        reasons.append(ctx.signal.reason)

    with scheduler:
        for _ in range(4):
            assert scheduler.trigger("a").result("20s").outcome == "won"
        wait_until(lambda: len(reasons) == 4, "all have returned")
    assert reasons == [None] * 4
    assert Counter(event.kind for event in told) == {"start": 4, "success": 4}
    slots = [event.slot for event in told if event.kind == "start"]
    assert slots == sorted(slots)


def test_events_come_in_order_to_each_listener_whatever_another_raises(caplog):
    first, second = Events(), Events()

    def raises(event):
        raise SystemExit("a listener's mistake")

    scheduler = Scheduler("memory://", on_event=[first, raises, second])
    scheduler.every("a", "1h", noop)
    with scheduler:
        for number in range(20):
            assert scheduler.trigger("a").result("20s").outcome == "won"
            first.wait("success", count=number + 1)
    assert first.all == second.all
    slots = [event.slot for event in first.of("success")]
    assert slots == sorted(slots)
    assert len([record for record in caplog.records if "failed on" in record.msg]) == len(first.all)


def test_a_listener_that_never_ends_delays_the_stop_by_a_bounded_time(monkeypatch):
    monkeypatch.setattr("tenure.scheduler._THREAD_TIMEOUT_S", 0.2)
    end = threading.Event()
    scheduler = Scheduler("memory://", on_event=lambda event: end.wait(PATIENCE_S))
    scheduler.every("a", "1h", noop)
    scheduler.start()
    scheduler.trigger("a").result("20s")
    began = time.monotonic()
    scheduler.stop()
    assert time.monotonic() - began < PATIENCE_S / 2
    end.set()


# Handlers


def test_two_hundred_blocking_handlers_at_once_lose_no_lease(events):  # HB02
    scheduler = Scheduler("memory://", on_event=events)
    barrier = threading.Barrier(200)

    def handler(ctx):
        barrier.wait(PATIENCE_S)  # all execute at the same time
        time.sleep(2)
        assert not ctx.signal.is_set()

    for number in range(200):
        scheduler.every(f"job-{number}", "1h", handler, lease="1s", heartbeat="200ms")
    with scheduler:
        for number in range(200):
            scheduler.trigger(f"job-{number}")
        events.wait("success", "failure", "interrupted", count=200)
    assert Counter(event.kind for event in events.all) == {"start": 200, "success": 200}
    assert {event.attempt for event in events.all} == {1}


def test_at_most_so_many_sync_handlers_execute_at_once(events):
    scheduler = Scheduler("memory://", on_event=events, threads=3)
    lock, executing, most = threading.Lock(), [0], [0]

    def handler():
        with lock:
            executing[0] += 1
            most[0] = max(most[0], executing[0])
        time.sleep(0.05)
        with lock:
            executing[0] -= 1

    for number in range(12):
        scheduler.every(f"job-{number}", "1h", handler)
    with scheduler:
        for number in range(12):
            scheduler.trigger(f"job-{number}")
        events.wait("success", count=12)
    assert most[0] == 3


def test_each_run_has_context_variables_of_its_own(events):
    variable = contextvars.ContextVar("variable", default="clean")
    scheduler = Scheduler("memory://", on_event=events)
    seen = []

    @scheduler.every("async", "1h")
    async def async_handler():
        seen.append(variable.get())
        variable.set("dirty")

    @scheduler.every("sync", "1h")
    def handler():
        seen.append(variable.get())
        variable.set("dirty")

    with scheduler:
        for job in ("async", "sync", "async", "sync"):
            scheduler.trigger(job).result("20s")
            wait_until(lambda: len(events.of("success")) == len(seen) and seen, "it ran")
            events.wait("success", count=len(seen))
    assert seen == ["clean"] * 4


def test_tasks_that_handlers_leave_on_tenure_s_own_loop_are_cancelled_by_the_stop(scheduler):
    ended = []

    async def background():
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")

    tasks = []

    @scheduler.every("a", "1h")
    async def handler():
        tasks.append(asyncio.create_task(background()))
        await asyncio.sleep(0)

    with scheduler:
        scheduler.trigger("a").result("20s")
        wait_until(lambda: tasks, "the handler ran")
    assert ended == ["cancelled"]


def test_async_handlers_run_on_the_application_s_loop(scheduler):
    loops = []

    @scheduler.every("a", "1h")
    async def handler():
        loops.append(asyncio.get_running_loop())

    async def main():
        async with scheduler:
            await scheduler.trigger("a")
            await until(lambda: loops, "the handler ran")
        return asyncio.get_running_loop()

    assert loops == [asyncio.run(main())]


def test_an_ordinary_life_logs_one_line(scheduler, caplog):
    caplog.set_level(logging.INFO)
    scheduler.every("a", "100ms", noop, jitter="0s")
    with scheduler:
        scheduler.trigger("a").result("20s")
    (line,) = (record.getMessage() for record in caplog.records if record.name == "tenure")
    assert line.endswith("jobs: 1")


def test_a_scheduler_without_jobs_says_so(scheduler, caplog):
    with scheduler:
        pass
    assert any("has no jobs" in record.getMessage() for record in caplog.records)


def test_a_handler_that_is_none_is_no_decorator(scheduler):
    """``every("a", "5s", h())`` where h() gives None added no job and said nothing."""
    with pytest.raises(InvalidJob, match="None cannot be called"):
        scheduler.every("a", "5s", None)
