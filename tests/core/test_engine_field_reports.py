"""What happened to others, in reports from the field; each test names the report and what is to happen here."""

import asyncio
import logging
from itertools import pairwise

import pytest
from tenure.events import Events
from tenure.job import make_job
from tenure.memory import MemoryBackend
from tenure.schedule import cron, every
from tenure.testing import World

ONCE = cron("10 0 12 * * *")


def of_kind(instance, kind):
    return [event for event in instance.events if event.kind == kind]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), KeyboardInterrupt()])
def test_a_listener_that_raises_stops_neither_other_listeners_nor_the_schedule(world, work, jobs, caplog, error):
    """EX01: a throwing listener stopped other listeners and the schedule; on every type of event."""
    told = []

    def raises(event):
        raise error

    work.takes_s = 12
    work.raises = ValueError("a failure")
    instances = {name: world.start(jobs(work, lease="6s"), name) for name in "ab"}
    for instance in instances.values():
        instance._engine._instance._events = Events(instance._clock, (raises, told.append, instance.events.append))
    caplog.set_level(logging.CRITICAL, "tenure")
    world.advance("95s")
    instances["a"].cut_off()
    world.advance("10s")
    instances["a"].reconnect()
    world.advance("20s")
    count = len(work.executions)
    world.run_until(lambda: len(work.executions) > count)
    holder = instances.pop(work.executions[-1].instance)
    holder.crash()
    world.advance("100s")
    (other,) = instances.values()
    other.stop("1s")
    assert {event.kind for event in told} >= {"start", "failure", "skip", "takeover", "error"}
    assert len(work.executions) >= 10
    assert len(told) == len(holder.events) + len(other.events)


def test_a_stall_of_two_seconds_makes_a_run_late_and_does_not_lose_it(world, work, jobs):
    """MS07: the default tolerance of 1 s dropped runs on small stalls."""
    a = world.start(jobs(work, jitter="500ms"))
    world.advance("9s")
    a.freeze()
    world.advance("2800ms")
    a.thaw()
    world.advance("1s")
    (done,) = work.executions
    assert (done.slot_s, done.began_s) == (10, 11.8)


def test_after_an_outage_every_job_fires_again_at_its_next_slot(world, work, jobs, caplog):
    """SO01: the database was restarted; the app recovered, the schedule thread did not."""
    work.takes_s = 0
    all_jobs = [job for n in range(20) for job in jobs(work, name=f"job{n}", schedule=every("3s"), max_late="2s")]
    a = world.start(all_jobs)
    world.advance("10s")
    caplog.clear()
    a.cut_off()
    world.advance("10s")
    a.reconnect()
    during = a.count("error")
    assert 0 < during <= 20 * 4 * 8
    assert len(caplog.records) <= 4  # one line in ten seconds and kind
    work.executions.clear()
    world.advance("1500ms")
    assert sorted(work.slots) == [21] * 20
    assert a.count("error") == during


@pytest.mark.parametrize("fault", ["refused", "silent", "replies lost"])
def test_an_hour_of_suspension_and_a_dead_connection_leave_no_zombie(world, work, jobs, fault):
    """RC04: after host sleep the scheduler lived on, unregistered, doing nothing, unnoticed."""
    a = world.start(jobs(work))
    world.advance("12s")
    a.cut_off(fault)
    a.freeze()
    world.advance("1h")
    a.thaw()
    world.advance("20s")
    assert a.count("error") > 0
    a.reconnect()
    work.executions.clear()
    world.advance("25s")
    assert len(work.executions) >= 1
    assert work.executions[-1].how in ("returned", "")
    assert a.count("success") >= 1


def test_a_slot_whose_leader_dies_around_it_is_run_once(world, work, jobs):
    """MS05: the leader died around the minute boundary: nobody ran that slot. Before it, and before its claim."""
    for die_s in (9.9, 10.01):
        work.executions.clear()
        with type(world)("2026-12-01T12:00:00Z", latency="20ms") as other:
            work.world = other
            a = other.start(jobs(work, schedule=ONCE, jitter="0s"), "a")
            other.start(jobs(work, schedule=ONCE, jitter="1s"), "b")
            other.run_until(lambda: other.elapsed_s >= die_s or other._next(die_s) is None)  # noqa: B023
            other._run_until(die_s)
            a.crash()
            other.advance("1m")
            assert [(done.instance, done.how) for done in work.executions] in (
                [("b", "returned")],
                [("a", ""), ("b", "returned")],
            )


def test_a_winner_that_dies_before_its_handler_starts_is_replaced(world, work, jobs):
    """MS05, MS06: right after its win; the marker was committed and the work was not."""
    a = world.start(jobs(work, schedule=ONCE, lease="30s"), "a")
    a.slow_down("200ms")
    world.run_until(lambda: world.active("sync"))
    a.crash()
    world.advance("5s")
    world.start(jobs(work, schedule=ONCE, lease="30s"), "b")
    world.advance("40s")
    assert [(done.instance, done.attempt, done.how) for done in work.executions] == [("b", 2, "returned")]
    assert work.executions[0].began_s <= 10 + 30 + 30 / 50 + 0.4


def test_a_blocked_loop_shorter_than_the_lease_loses_nothing(world, work, jobs):
    work.takes_s = 60
    a, b = world.start(jobs(work, schedule=ONCE, lease="30s"), "a"), world.start(jobs(work, schedule=ONCE), "b")
    world.advance("15s")
    holder = a if a.count("start") else b
    for _ in range(3):
        holder.freeze()
        world.advance("15s")
        holder.thaw()
        world.advance("1s")
    world.advance("30s")
    assert [(done.attempt, done.how) for done in work.executions] == [(1, "returned")]


def test_no_task_ends_with_an_exception_that_nobody_looked_at(world, work, jobs, caplog):
    """HB04: a future was left with an unretrieved exception."""
    complaints = []
    work.takes_s = 5
    instances = [world.start(jobs(work, lease="3s"), name) for name in "abc"]
    for instance in instances:
        instance._loop.set_exception_handler(lambda loop, context: complaints.append(context))
    for fault in ("refused", "silent", "replies lost"):
        for instance in instances:
            instance.cut_off(fault)
            world.advance("13s")
            instance.reconnect()
            world.advance("7s")
    for instance in instances:
        instance.stop("0s")
    assert complaints == []


def test_a_handler_may_wait_for_its_signal_with_a_timeout_for_a_day(world, jobs):
    """The usual loop of a long handler must not grow anything."""
    sizes = []

    async def handler(ctx):
        for _ in range(3_000):
            try:
                await asyncio.wait_for(ctx.signal.wait_async(), 30)
            except TimeoutError:
                sizes.append(len(ctx.signal._waiters or ()))

    world.start(jobs(handler, schedule=ONCE))
    world.advance("1d")
    assert len(sizes) > 2_800
    assert max(sizes) <= 1


# Schedulers that were run, in the versions of their day, with their processes frozen and killed


def test_an_instance_frozen_since_the_slot_before_last_does_not_run_it_again(world, work, jobs):
    """procrastinate 3.10: the mark of a slot was deleted at the next one, and who woke up then ran it a second time."""
    work.takes_s = 0
    a, b = (world.start(jobs(work, max_late="1h"), name) for name in "ab")
    world.advance("9900ms")
    b.freeze()
    world.advance("20s")
    assert work.slots == [10, 20]
    b.thaw()
    world.advance("5s")
    assert sorted(work.slots) == [10, 20, 30]
    assert {event.reason for event in of_kind(b, "skip")} == {"taken"}
    assert a.count("error") == b.count("error") == 0


def test_a_slot_claimed_by_a_message_that_was_on_its_way_for_two_slots_is_not_run_again(world, work, jobs):
    """The same with a store that is slow to one instance alone: its claims arrive when all is over."""
    work.takes_s = 0
    world.start(jobs(work, max_late="1h"), "a")
    late = world.start(jobs(work, max_late="1h"), "late")
    world.advance("9s")
    late.slow_down("2400ms")  # each way, just under the deadline of a call
    world.advance("56s")
    assert sorted(work.slots) == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize("frozen_s", [31, 45, 120])
def test_who_wakes_up_after_a_takeover_holds_nothing_and_no_third_one_starts(world, work, jobs, frozen_s):
    """pgqueuer 1.6, docket 0.27: heartbeat and finish of the one who woke up were accepted, its message was taken back,
    and a third one began beside the second."""
    work.takes_s = 300
    instances = [world.start(jobs(work, schedule=ONCE, lease="30s"), name) for name in "abc"]
    world.run_until(lambda: work.executions)
    holder = next(one for one in instances if one.count("start"))
    world.advance("5s")
    holder.freeze()
    world.advance(f"{frozen_s}s")
    holder.thaw()
    world.advance("400s")
    first, second = work.executions
    assert (first.attempt, second.attempt) == (1, 2)
    assert second.instance != first.instance
    assert first.how != "returned"
    assert first.reason == "lost"
    assert second.how == "returned"
    assert world.results("sync")[0].attempt == 2
    assert world.results("sync")[0].status == "success"


def test_two_who_both_believed_that_they_lead_share_the_slots_that_follow(world, work, jobs):
    """chancy 0.26: a leader that was frozen past its lease led on beside the new one, for all cycles that followed."""
    work.takes_s = 1
    instances = [world.start(jobs(work), name) for name in "abc"]
    world.advance("25s")
    leader = next(one for one in instances if one.name == work.executions[-1].instance)
    leader.freeze()
    world.advance("70s")
    leader.thaw()
    world.advance("2s")
    work.executions.clear()
    world.advance("60s")
    assert len(work.slots) >= 6
    assert len(set(work.slots)) == len(work.slots)


def test_who_lost_its_run_deletes_nothing_of_the_run_that_replaced_it(world, work, jobs):
    """APScheduler 4.0a6: the release of the one who had lost its job removed the row of the job that ran by then."""
    work.takes_s = 300
    a, b = (world.start(jobs(work, schedule=ONCE, lease="30s"), name) for name in "ab")
    world.run_until(lambda: work.executions)
    holder, other = (a, b) if a.count("start") else (b, a)
    holder.freeze()
    world.advance("40s")
    holder.thaw()
    holder.stop("0s")
    (run,) = world.active("sync")
    assert (run.holder, run.attempt, run.live) == (other.name, 2, True)
    world.advance("300s")
    assert other.count("success") == 1


def test_a_second_process_that_starts_during_a_run_does_not_start_it_too(world, work, jobs):
    """DBOS 3.4: a second process took the live run of the first for one that had been left, and did its steps again."""
    work.takes_s = 100
    world.start(jobs(work, schedule=ONCE, catch_up="1h"), "a")
    world.run_until(lambda: work.executions)
    for name in "bcd":
        world.advance("5s")
        world.start(jobs(work, schedule=ONCE, catch_up="1h"), name)
    world.advance("200s")
    assert [(done.instance, done.attempt, done.how) for done in work.executions] == [("a", 1, "returned")]


def test_attempts_that_were_lost_do_not_count_as_running(world, work, jobs):
    """APScheduler 4.0a6: a counter of running jobs stayed at one, and nobody ran the job any more."""
    work.takes_s = 300
    for number in range(5):
        instance = world.start(jobs(work, lease="3s", max_attempts=1), f"i{number}")
        world.run_until(lambda count=number: len(work.executions) > count, within="1m")
        instance.crash()
    assert len(work.executions) == 5
    assert len({done.slot_s for done in work.executions}) == 5


# Load


def test_thousands_of_runs_in_flight_are_each_renewed_in_time():
    """HB03: tens of thousands of leases were renewed in one command, which stalled the store."""
    beats, at_once = {}, []

    class Counting(MemoryBackend):
        underway = 0

        async def heartbeat(self, job, slot, token):
            Counting.underway += 1
            at_once.append(Counting.underway)
            beats.setdefault(job, []).append(world.elapsed_s)
            await asyncio.sleep(0.005)
            Counting.underway -= 1
            return await super().heartbeat(job, slot, token)

    async def handler():
        await asyncio.sleep(20)

    with World("2026-12-01T12:00:00Z") as world:
        count = 2_000
        every_job = [
            make_job(f"j{n}", cron("1 12 * * *"), handler, {"jitter": "2s", "lease": "6s"}) for n in range(count)
        ]
        a = world.start(every_job, backend=Counting(world.store))
        world.advance("90s")
        assert a.count("success") == count
        gaps = [later - one for times in beats.values() for one, later in pairwise(times)]
        assert len(beats) == count
        assert max(gaps) < 3
        assert max(at_once) < count / 4
