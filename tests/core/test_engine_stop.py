"""Stopping: nothing new, a signal, a grace, and what is given back."""

from datetime import timedelta

import pytest
from tenure.errors import SchedulerStateError
from tenure.memory import MemoryBackend
from tenure.schedule import cron

ONCE = cron("10 0 12 * * *")


def of_kind(instance, kind):
    return [event for event in instance.events if event.kind == kind]


def test_an_idle_instance_stops_at_once(world, work, jobs):
    a = world.start(jobs(work))
    world.advance("5s")
    a.stop()
    assert world.elapsed_s == 5
    world.advance("1m")
    assert a.events == []


def test_heartbeats_go_on_until_the_handler_returns_within_the_grace(world, work, jobs):
    """SD01: SIGINT stopped the heartbeat first, the job ran on for 60 s, another node started it too."""
    work.takes_s = 20
    a = world.start(jobs(work, schedule=ONCE, lease="3s"), "a")
    b = world.start(jobs(work, schedule=ONCE, lease="3s"), "b", clock_ahead=timedelta(seconds=-1))
    world.advance("12s")
    a.stop("30s")
    assert world.elapsed_s == 30
    assert [event.kind for event in a.events] == ["start", "success"]
    assert work.executions[0].reason == "stop"
    world.advance("1m")
    assert b.count("start") == 0


def test_after_the_grace_a_handler_is_cancelled_and_its_run_released(world, work, jobs):
    work.takes_s = 100
    a = world.start(jobs(work, schedule=ONCE), "a")
    world.advance("12s")
    a.stop("5s")
    (done,) = work.executions
    assert (done.told_s, done.ended_s, done.how) == (12, 17, "CancelledError")
    assert 17 <= world.elapsed_s <= 17.5
    assert [event.reason for event in of_kind(a, "interrupted")] == ["stop"]
    (run,) = world.active("sync")
    assert not run.live
    assert [result.status for result in world.results("sync")] == ["interrupted"]


def test_a_handler_that_raises_when_told_is_released_and_a_backup_runs_it_at_once(world, jobs):
    began = []

    async def handler(ctx):
        began.append((ctx.instance, ctx.attempt, world.elapsed_s))
        await ctx.signal.wait_async()
        raise InterruptedError

    a = world.start(jobs(handler, schedule=ONCE, lease="30s"), "a")
    world.advance("11s")
    world.start(jobs(handler, schedule=ONCE, lease="30s"), "b")
    world.advance("4s")
    a.stop()
    assert world.elapsed_s == 15
    world.advance("20s")
    assert [(name, attempt) for name, attempt, _ in began] == [("a", 1), ("b", 2)]
    assert began[1][2] <= 15 + 20


def test_a_stubborn_handler_does_not_hold_the_stop_up_and_keeps_its_lease(world, work, jobs):
    """CT01: CancelledError swallowed by user code or a library."""
    work.takes_s, work.stubborn = 100, True
    a = world.start(jobs(work, schedule=ONCE, lease="6s"), "a")
    b = world.start(jobs(work, schedule=ONCE, lease="6s"), "b", clock_ahead=timedelta(seconds=-1))
    world.advance("12s")
    a.stop("2s")
    assert 14 <= world.elapsed_s <= 14.6
    assert a.stopped
    world.advance("2m")
    assert [(done.instance, done.ended_s) for done in work.executions] == [("a", 110)]
    assert a.count("success") == 1
    assert b.count("takeover") == 0


def test_a_second_stop_does_not_wait(world, work, jobs):
    work.takes_s = 100
    a = world.start(jobs(work, schedule=ONCE), "a")
    world.advance("12s")
    a.stop("1h", wait=False)
    world.advance("3s")
    assert not a.stopped
    a.stop("1h")
    assert world.elapsed_s <= 15.5
    world.advance("1s")
    assert a.stopped
    assert work.executions[0].how == "CancelledError"
    assert not world.active("sync")[0].live  # released all the same


def test_a_second_stop_does_not_wait_for_a_stubborn_handler_either(world, work, jobs):
    work.takes_s, work.stubborn = 1_000, True
    a = world.start(jobs(work, schedule=ONCE), "a")
    world.advance("12s")
    a.stop("1h", wait=False)
    a.stop("1h")
    assert world.elapsed_s <= 12.5
    assert world.active("sync")[0].live


def test_nothing_is_claimed_after_a_stop(world, work, jobs):
    work.takes_s, work.stubborn = 45, True
    a = world.start(jobs(work, overlap="allow"))
    world.advance("12s")
    a.stop("100s")
    assert [done.slot_s for done in work.executions] == [10]
    assert {event.kind for event in a.events} == {"start", "success"}


def test_a_claim_on_its_way_at_the_stop_is_given_back(world, work, jobs):
    a = world.start(jobs(work, schedule=ONCE), "a")
    a.slow_down("500ms")
    world.advance("10200ms")  # the claim is on its way to the store
    a.stop()
    assert work.executions == []
    (run,) = world.active("sync")
    assert (run.attempt, run.live) == (1, False)
    assert a.events == []


def test_a_trigger_on_its_way_at_the_stop_is_given_back(world, work, jobs):
    a = world.start(jobs(work, schedule=ONCE), "a")
    world.advance("1s")
    a.slow_down("500ms")
    triggering = a._begin(a._engine.trigger("sync"))
    world.advance("100ms")
    a.stop()
    assert world.elapsed_s == pytest.approx(1 + 1 + 1)  # its way, and the way of its release
    assert work.executions == []
    (run,) = world.active("sync")
    assert not run.live
    assert triggering.done()


def test_a_claim_whose_answer_never_came_is_released_after_the_call_has_ended(world, work, jobs):
    a = world.start(jobs(work, schedule=ONCE), "a")
    a.cut_off("replies lost")
    world.advance("11s")
    assert world.active("sync")[0].live
    a.stop(wait=False)
    world.advance("1s")
    assert world.active("sync")[0].live
    world.advance("10s")
    assert not world.active("sync")[0].live
    assert a.stopped


def test_a_check_on_its_way_at_the_stop_is_given_back(world, work, jobs):
    work.takes_s = 1_000
    a = world.start(jobs(work, schedule=ONCE), "a")
    b = world.start(jobs(work, schedule=ONCE), "b", clock_ahead=timedelta(seconds=-1))
    world.advance("12s")
    a.crash()
    b.slow_down("1s")
    world.run_until(lambda: world.active("sync")[0].attempt == 2)  # won, and the answer is on its way
    b.stop()
    assert [done.attempt for done in work.executions] == [1]
    assert not world.active("sync")[0].live
    assert [result.status for result in world.results("sync")] == ["crashed"]


def test_watchers_end_with_the_stop(world, work, jobs):
    asked = []

    class Noting(MemoryBackend):
        async def claim(self, claim):
            asked.append(world.elapsed_s)
            return await super().claim(claim)

        async def active(self, jobs):
            asked.append(world.elapsed_s)
            return await super().active(jobs)

    work.takes_s = 1_000
    world.start(jobs(work, schedule=ONCE), "a")
    b = world.start(jobs(work, schedule=ONCE), "b", backend=Noting(world.store), clock_ahead=timedelta(seconds=-1))
    world.advance("100s")
    b.stop()
    assert len(asked) > 3
    asked.clear()
    world.advance("10m")
    assert asked == []


def test_the_store_is_closed_last(world, work, jobs):
    """SD02: the connection was closed before the lock was released: exception on every shutdown."""
    order = []

    class Noting(MemoryBackend):
        async def finish(self, *args):
            order.append("finish")
            return await super().finish(*args)

        async def save_result(self, *args):
            order.append("save")
            return await super().save_result(*args)

        async def __aexit__(self, *args):
            order.append("close")
            await super().__aexit__(*args)

    work.takes_s = 1
    a = world.start(jobs(work, schedule=ONCE), backend=Noting(world.store))
    world.advance("10500ms")
    a.stop()
    assert order == ["finish", "save", "close"]
    assert {event.kind for event in a.events} == {"start", "success"}


def test_a_store_that_fails_to_close_is_told(world, work, jobs):
    class Broken(MemoryBackend):
        async def __aexit__(self, *args):
            raise OSError("gone")

    a = world.start(jobs(work), backend=Broken(world.store))
    a.stop()
    assert [event.call for event in of_kind(a, "error")] == ["close"]


@pytest.mark.parametrize("fault", ["refused", "silent", "replies lost"])
def test_a_stop_without_a_store_ends_once_the_lease_is_over(world, work, jobs, fault):
    work.takes_s = 100
    a = world.start(jobs(work, schedule=ONCE, lease="30s"), "a")
    world.advance("15s")
    a.cut_off(fault)
    a.stop("2s", wait=False)
    world.advance("60s")
    assert a.stopped
    assert [event.reason for event in of_kind(a, "interrupted")] == ["stop"]
    assert a._engine._instance._tasks == set()


def test_a_stop_while_the_store_has_not_answered_recovery_yet(world, work, jobs):
    a = world.start(jobs(work), "a", backend=Unreachable())
    world.advance("25s")
    a.stop()
    assert world.elapsed_s < 31
    assert work.executions == []


class Unreachable(MemoryBackend):
    async def active(self, jobs):
        raise OSError("unreachable")


def test_after_a_stop_nothing_is_triggered(world, work, jobs):
    work.takes_s, work.stubborn = 100, True
    a = world.start(jobs(work, schedule=ONCE))
    world.advance("11s")
    a.stop("1h", wait=False)
    with pytest.raises(SchedulerStateError, match="claims no more"):
        a.trigger("sync")


def test_stop_and_start_within_a_minute_do_not_run_the_minutes_slot_again(world, work, jobs):
    """DR03: a scheduler restarted inside the minute sent the minute's task again."""
    a = world.start(jobs(work, schedule=cron("* * * * *"), catch_up="5m"))
    world.advance("80s")
    a.stop()
    world.start(jobs(work, schedule=cron("* * * * *"), catch_up="5m"))
    world.advance("39s")
    assert work.slots == [0, 60]


def test_a_rolling_deploy_runs_every_slot_once(world, work, jobs):
    work.takes_s = 1.5
    live = [world.start(jobs(work, lease="6s", max_late="30s"), f"v1-{n}") for n in range(3)]
    for number in range(12):
        world.advance("11s")
        live.append(world.start(jobs(work, lease="6s", max_late="30s"), f"v2-{number}"))
        live.pop(0).stop("1s")
    world.advance("20s")
    succeeded = [event.slot for instance in world.instances for event in of_kind(instance, "success")]
    assert len(set(succeeded)) == len(succeeded)
    assert sorted(succeeded) == list(range(world.start_ms + 10_000, world.start_ms + 151_000, 10_000))
