"""Virtual time as a tool for users: what a test may rely on."""

import asyncio
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tenure import Scheduler
from tenure.errors import DuplicateJob, InvalidInput, SchedulerStateError, UnknownJob
from tenure.memory import MemoryBackend
from tenure.schedule import every
from tenure.testing import World


def scheduler(handler=lambda: None, **options):
    made = Scheduler("memory://", jitter="0s")
    made.every("sync", "10s", handler, **options)
    return made


def test_an_hour_of_schedule_takes_an_instant(world):
    began = time.monotonic()
    a = world.start(scheduler())
    world.advance("1h")
    assert a.count("success") == 360
    assert time.monotonic() - began < 30


def test_the_time_is_what_was_asked_for():
    with World(datetime(2030, 1, 1, tzinfo=UTC)) as world:
        world.start(scheduler())
        world.advance("90s")
        assert world.now == datetime(2030, 1, 1, 0, 1, 30, tzinfo=UTC)
        world.advance(timedelta(milliseconds=1))
        assert world.true_ms() % 1000 == 1


def test_a_start_without_a_time_zone_is_refused():
    with pytest.raises(InvalidInput, match="time zone"):
        World("2026-01-01T00:00:00")
    with pytest.raises(InvalidInput, match="time zone"):
        World(datetime(2026, 1, 1))


def test_a_world_in_a_running_loop_says_where_it_belongs():
    async def main():
        World()

    with pytest.raises(SchedulerStateError, match="plain test function"):
        asyncio.run(main())


def test_events_are_seen_per_instance_and_of_all_in_order(world):
    a, b = world.start(scheduler(), "a"), world.start(scheduler(), "b")
    world.advance("25s")
    assert {event.instance for event in a.events} == {"a"}
    assert len(world.events) == len(a.events) + len(b.events)
    assert [event for event in world.events if event.instance == "b"] == b.events


def test_the_schedulers_own_listeners_are_told_and_its_backend_is_not_touched(world):
    told = []
    made = Scheduler("memory://", on_event=told.append, jitter="0s")
    made.every("sync", "10s", lambda: None)
    a = world.start(made)
    world.advance("25s")
    assert told == a.events
    assert made.instance is None


def test_one_scheduler_may_be_started_several_times(world):
    made = scheduler()
    instances = [world.start(made) for _ in range(3)]
    assert [instance.name for instance in instances] == ["instance-1", "instance-2", "instance-3"]
    world.advance("65s")
    assert len(world.results("sync")) == 6


def test_waiting_for_what_never_comes_says_so(world):
    world.start(scheduler())
    with pytest.raises(AssertionError, match="the moon did not come true within 1m"):
        world.run_until(lambda: False, within="1m", what="the moon")


def test_waiting_stops_at_the_moment_that_was_waited_for(world):
    a = world.start(scheduler())
    world.run_until(lambda: a.count("success") == 3)
    assert world.elapsed_s == 30


def test_a_crashed_instance_never_comes_back(world):
    a = world.start(scheduler())
    a.crash()
    world.advance("1m")
    assert a.events == []
    for call in (a.thaw, a.stop, lambda: a.trigger("sync"), lambda: a.remove("sync")):
        with pytest.raises(SchedulerStateError, match="crashed"):
            call()


def test_a_frozen_instance_cannot_be_asked_anything(world):
    a = world.start(scheduler())
    a.freeze()
    a.freeze()
    with pytest.raises(SchedulerStateError, match="is frozen"):
        a.trigger("sync")
    a.thaw()
    a.thaw()
    assert a.trigger("sync").outcome == "won"


def test_a_crash_runs_no_cleanup_of_a_handler_while_the_world_lives(world):
    cleaned = []

    async def handler():
        try:
            await asyncio.sleep(100)
        finally:
            cleaned.append(world.elapsed_s)

    a = world.start(scheduler(handler))
    world.advance("15s")
    a.crash()
    world.advance("10m")
    assert cleaned == []


@pytest.mark.parametrize(
    ("fault", "stored", "failed_after_s"), [("refused", False, 0), ("silent", False, 5), ("replies lost", True, 5)]
)
def test_the_three_ways_to_be_cut_off(world, fault, stored, failed_after_s):
    a = world.start(scheduler(max_late="1s"))
    world.advance("9s")
    a.cut_off(fault)
    world.run_until(lambda: a.count("error"))
    assert world.elapsed_s == 10 + failed_after_s
    assert bool(world.active("sync")) is stored


def test_an_unknown_fault_is_refused(world):
    a = world.start(scheduler())
    with pytest.raises(InvalidInput, match="'replies lost'"):
        a.cut_off("lag")


def test_a_late_call_fails_and_arrives_all_the_same(world):
    a = world.start(scheduler())
    world.advance("9s")
    a.slow_down("7s")
    world.run_until(lambda: a.count("error"))
    assert world.elapsed_s == 15
    assert world.active("sync") == ()
    world.run_until(lambda: world.active("sync"))
    assert world.elapsed_s == 17


def test_latency_counts_both_ways():
    with World(latency="100ms") as world:
        began = []
        world.start(scheduler(lambda ctx: began.append(world.elapsed_s)))
        world.advance("15s")
        assert began == [10.2]


def test_a_backend_of_ones_own_is_used_and_has_to_fail_by_itself(world):
    calls = []

    class Noting(MemoryBackend):
        async def claim(self, claim):
            calls.append(claim)
            await asyncio.sleep(1)
            return await super().claim(claim)

    a = world.start(scheduler(), backend=Noting(world.store))
    world.advance("12s")
    assert len(calls) == 1
    assert a.count("success") == 1
    with pytest.raises(SchedulerStateError, match="backend of its own"):
        a.cut_off()
    with pytest.raises(SchedulerStateError, match="backend of its own"):
        a.slow_down("1s")


def test_names_of_jobs_are_checked_as_a_scheduler_does(world):
    a = world.start(scheduler())
    with pytest.raises(DuplicateJob, match="sync"):
        a.add("sync", every("1s"), print)
    for call in (lambda: a.remove("other"), lambda: a.replace("other", every("1s"), print)):
        with pytest.raises(UnknownJob, match=r"other.*sync"):
            call()
    a.remove("sync")
    a.add("sync", every("1s"), lambda: None)
    world.advance("5s")
    assert a.count("success") >= 4


def test_the_same_seed_is_the_same_world_and_another_is_not():
    def begins(seed):
        began = []
        with World(seed=seed) as world:
            made = Scheduler("memory://", jitter="5s")
            made.every("sync", "10s", lambda ctx: began.append((ctx.instance, world.elapsed_s)))
            for name in "abc":
                world.start(made, name)
            world.advance("1m")
        return began

    assert begins(1) == begins(1)
    assert begins(1) != begins(2)


def test_the_end_of_a_world_ends_all_handlers_also_stubborn_ones():
    ended = []

    async def stubborn():
        for _ in range(2):
            try:
                await asyncio.sleep(1_000)
            except asyncio.CancelledError:
                ended.append(True)

    with World() as world:
        a = world.start(scheduler(stubborn))
        b = world.start(scheduler(stubborn))
        world.advance("15s")
        a.crash()
        b.freeze()
    assert ended


def test_many_instances_come_and_go_without_a_file_or_a_thread():
    threads = threading.active_count()
    with World() as world:
        for _ in range(1_200):  # more than a process may have files open
            world.start(scheduler()).crash()
        world.start(scheduler())
        world.advance("1m")
        assert threading.active_count() == threads
        assert len(world.results("sync")) == 6


@pytest.mark.parametrize("name", ["a_killed_run_is_taken_over", "nothing_fails_in_a_day", "one_run_at_a_time"])
def test_the_pages_examples_work(name):
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text("utf-8")
    names = {}
    exec("".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)), names)
    arguments = [3] if name == "one_run_at_a_time" else []
    names[f"test_{name}"](*arguments)


def test_the_stores_clock_is_one_of_its_own(world):
    a = world.start(scheduler(lease="30s"))
    world.jump_store_clock(timedelta(hours=1))
    world.advance("11s")
    assert [event.reason for event in a.events] == ["late"]
    assert world.store_ms() - world.true_ms() == 3_600_000


def test_a_misspelt_kind_or_job_is_an_error_and_not_zero(world, jobs, work):
    a = world.start(jobs(work))
    for ask, error in (
        (lambda: a.count("sucess"), InvalidInput),
        (lambda: a.count("success", "snyc"), UnknownJob),
        (lambda: world.results("snyc"), UnknownJob),
        (lambda: world.active("sync", "snyc"), UnknownJob),
    ):
        with pytest.raises(error, match=r"sucess|snyc"):
            ask()
    a.remove("sync")
    assert (a.count("success", "sync"), world.results("sync"), world.active("sync")) == (0, [], ())
