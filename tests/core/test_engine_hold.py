"""A run that was won: its lease, its handler, its end, and who takes it over."""

import asyncio
import itertools
from datetime import timedelta

import pytest
from tenure.errors import BackendUnavailable
from tenure.job import make_job
from tenure.memory import MemoryBackend
from tenure.model import Claim
from tenure.schedule import cron, every
from tenure.testing import World

ONCE = cron("10 0 12 * * *")  # the world begins at noon: one slot, ten seconds later


def of_kind(instance, kind):
    return [event for event in instance.events if event.kind == kind]


def pair(world, jobs, **options):
    """Two instances, the holder of the first run first."""
    a, b = world.start(jobs, "a", **options), world.start(jobs, "b", **options)
    world.run_until(lambda: a.count("start") + b.count("start"), within="1m")
    return (a, b) if a.count("start") else (b, a)


def records(world):
    return [(result.attempt, result.status) for result in world.results("sync")]


def steal(world, slot, after=1, **changes):
    """What another owner does whose takeover the store granted."""
    values = {"job": "sync", "slot": slot, "token": "thief", "instance": "thief", "lease_ms": 600_000}
    values |= {"mode": "takeover", "overlap": "skip", "max_attempts": 9, "max_late_ms": None, "after": after}
    claim = Claim(**{**values, **changes})
    with pytest.raises(StopIteration) as answered:
        world._backend.claim(claim).send(None)
    return answered.value.value


# Won


def test_the_lease_counts_from_the_start_of_the_call_that_brought_it(world, work, jobs):
    """The store's count starts later, so the holder's can only be shorter."""
    work.takes_s = 100
    a = world.start(jobs(work, schedule=ONCE, lease="10s"))
    a.slow_down("2s")
    world.run_until(lambda: work.executions)
    assert world.elapsed_s == 14
    a.cut_off()
    world.run_until(lambda: work.executions[0].told_s)
    assert world.elapsed_s == 20


def test_a_win_that_was_answered_too_late_starts_nothing_is_released_and_watched(world, work, jobs):
    """The answer is slower than the lease: whoever asks next gets the run, here the same instance, once it is quick."""
    a = world.start(jobs(work, schedule=ONCE, lease="3s"))
    a.slow_down("1600ms")
    world.run_until(lambda: world.active("sync"))
    assert world.active("sync")[0].live
    world.advance("3s")
    assert work.executions == []
    a.slow_down("0s")
    world.advance("10s")
    assert [(done.attempt, done.how) for done in work.executions] == [(2, "returned")]
    assert a.count("error") == 0


def test_the_answer_of_a_call_that_was_given_up_is_dropped(world, work, jobs):
    """The lease counts from the call that was answered, not from the first one, nor is the late answer used."""
    work.takes_s = 100
    a = world.start(jobs(work, schedule=ONCE, lease="10s", heartbeat="5s"))
    a.cut_off("replies lost")
    world.advance("12s")
    a.reconnect()
    world.run_until(lambda: work.executions)
    began = world.elapsed_s
    assert 15 <= began <= 15.2  # the first call had its five seconds
    a.cut_off()
    world.run_until(lambda: work.executions[0].told_s)
    assert work.executions[0].told_s == pytest.approx(began + 10)


def test_a_win_is_given_back_when_an_earlier_handler_of_the_job_turned_out_to_go_on(world, work, jobs):
    """The claim of the next slot is on its way while the first run reaches its timeout."""
    work.takes_s, work.stubborn = 30, True
    a = world.start(jobs(work, timeout="9900ms"))
    a.slow_down("300ms")
    world.advance("44s")
    assert [done.slot_s for done in work.executions] == [10]
    world.advance("15s")
    spans = [(done.began_s, done.ended_s) for done in work.executions]
    assert all(later[0] >= sooner[1] for sooner, later in itertools.pairwise(spans))


# Holder


def test_heartbeats_come_every_third_of_the_lease_and_hold_the_run_for_as_long_as_it_takes(world, work, jobs):
    """DR16: any job longer than a fixed time was started again. LL15: extensions were limited."""
    beats = []

    class Counting(MemoryBackend):
        async def heartbeat(self, job, slot, token):
            beats.append(world.elapsed_s)
            return await super().heartbeat(job, slot, token)

    work.takes_s = 600
    a = world.start(jobs(work, schedule=ONCE, lease="30s"), "a", backend=Counting(world.store))
    for name in "bcd":
        world.start(jobs(work, schedule=ONCE, lease="30s"), name, clock_ahead=timedelta(seconds=-1))
    world.advance("700s")
    assert [(done.instance, done.attempt, done.how) for done in work.executions] == [("a", 1, "returned")]
    assert beats == [10 + 10 * number for number in range(1, 61)][: len(beats)]
    assert len(beats) >= 59
    assert a.count("success") == 1


def test_heartbeats_do_not_change_when_a_run_started_or_how_long_it_took(world, work, jobs):
    """OB03: heartbeats changed the timestamp from which durations were computed."""
    work.takes_s = 200
    a = world.start(jobs(work, schedule=ONCE))
    world.advance("300s")
    (result,) = world.results("sync")
    assert (result.started_at - world.start_ms, result.ended_at - world.start_ms) == (10_000, 210_000)
    assert of_kind(a, "success")[0].duration_ms == 200_000


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_duration_is_right_although_the_clock_is_set_in_between(world, work, jobs, hours):
    """CK08: durations of 8 h, or negative, for short jobs, from two clocks being subtracted."""
    work.takes_s = 2
    a = world.start(jobs(work, schedule=ONCE))
    world.advance("11s")
    a.jump_clock(timedelta(hours=hours))
    world.advance("10s")
    result = world.results("sync")[0]
    assert of_kind(a, "success")[0].duration_ms == 2_000
    assert result.ended_at - result.started_at == 2_000
    assert result.started_at == world.start_ms + 10_000


@pytest.mark.parametrize("after_ms", [50, 249, 251, 5_000])
def test_a_frozen_holder_is_told_before_its_handler_takes_another_step(world, jobs, after_ms):
    """However soon after the win it was frozen."""
    steps = []

    async def handler(ctx):
        while True:
            steps.append((world.elapsed_s, ctx.signal.is_set()))
            await asyncio.sleep(0.02)

    a = world.start(jobs(handler, schedule=ONCE, lease="30s"))
    world.advance(timedelta(milliseconds=10_000 + after_ms))
    a.freeze()
    world.advance("31s")
    a.thaw()
    world.advance("1s")
    assert all(at <= 10 + after_ms / 1000 for at, told in steps if not told)


def test_there_are_never_two_heartbeats_at_once(world, work, jobs):
    under_way, most = set(), 0

    class Slow(MemoryBackend):
        async def heartbeat(self, job, slot, token):
            nonlocal most
            mine = object()
            under_way.add(mine)
            most = max(most, len(under_way))
            await asyncio.sleep(2.7)
            under_way.discard(mine)
            return await super().heartbeat(job, slot, token)

    work.takes_s = 60
    world.start(jobs(work, schedule=ONCE, lease="6s", heartbeat="1s"), backend=Slow(world.store))
    world.advance("80s")
    assert most == 1
    assert [(done.attempt, done.how) for done in work.executions] == [(1, "returned")]


def test_a_heartbeat_answered_after_the_lease_is_too_late(world, work, jobs):
    under_way = 0

    class Slow(MemoryBackend):
        async def heartbeat(self, job, slot, token):
            nonlocal under_way
            under_way += 1
            assert under_way == 1  # no second one, although it is overdue
            answer = await super().heartbeat(job, slot, token)
            await asyncio.sleep(8)
            under_way -= 1
            return answer

    work.takes_s = 60
    a = world.start(jobs(work, schedule=ONCE, lease="6s"), backend=Slow(world.store))
    world.advance("17s")
    assert work.executions[0].told_s == 16
    assert work.executions[0].reason == "lost"
    assert of_kind(a, "error") == []


@pytest.mark.parametrize("fault", ["refused", "silent", "replies lost"])
def test_a_holder_that_cannot_reach_the_store_stops_before_a_backup_may_start(world, work, jobs, fault):
    """LL03: the holder was not told that its lock was gone and worked on next to the new owner."""
    work.takes_s = 150
    a, b = pair(world, jobs(work, schedule=ONCE, lease="30s"))
    world.advance("25s")
    a.cut_off(fault)
    world.advance("95s")
    first, second = work.executions
    assert (first.instance, second.instance, second.attempt) == (a.name, b.name, 2)
    assert first.reason == "lost"
    assert first.told_s <= first.ended_s <= second.began_s
    renewed_s = 30 if fault == "replies lost" else 0  # the store heard the heartbeats that a gave up
    assert second.began_s <= first.began_s + 25 + 30 + 10 + 1 + renewed_s
    assert a.count("interrupted") == 0  # the store has not answered yet
    a.reconnect()
    world.advance("200s")
    assert [event.reason for event in of_kind(a, "interrupted")] == ["takeover"]
    assert b.count("success") == 1
    assert records(world) == [(2, "success"), (1, "interrupted")]


def test_one_failed_heartbeat_or_every_second_one_loses_nothing(world, work, jobs):
    """LL01: one failed renewal ended all renewals."""
    count = itertools.count()

    class Flaky(MemoryBackend):
        async def heartbeat(self, job, slot, token):
            if next(count) % 2 == 0:
                raise BackendUnavailable("throttled")
            return await super().heartbeat(job, slot, token)

    work.takes_s = 150
    a = world.start(jobs(work, schedule=ONCE), backend=Flaky(world.store))
    world.advance("170s")
    assert [(done.attempt, done.how) for done in work.executions] == [(1, "returned")]
    assert len([event for event in of_kind(a, "error") if event.call == "heartbeat"]) >= 10


def test_a_heartbeat_that_failed_is_tried_again_within_the_lease(world, work, jobs):
    """LL10: lease lost although nobody else wanted it."""
    work.takes_s = 100
    a = world.start(jobs(work, schedule=ONCE, lease="30s"))
    world.advance("11s")
    a.cut_off()
    world.advance("26s")
    a.reconnect()
    world.advance("100s")
    assert [(done.attempt, done.how) for done in work.executions] == [(1, "returned")]


def test_a_refused_heartbeat_stops_the_handler_at_once(world, work, jobs):
    """SO11: a rolled-back election kept the old 'I am leader' belief: duplicates for 19 days."""
    work.takes_s = 300
    a = world.start(jobs(work, schedule=ONCE, lease="30s"))
    world.advance("12s")
    a.cut_off()  # heartbeats fail while another takes over
    world.jump_store_clock(timedelta(seconds=40))
    assert steal(world, world.start_ms + 10_000).outcome == "won"
    world.advance("10s")
    assert work.executions[0].told_s is None
    a.reconnect()
    world.advance("3s")
    assert work.executions[0].reason == "lost"
    assert [event.reason for event in of_kind(a, "interrupted")] == ["takeover"]


def test_a_lease_lost_once_does_not_keep_later_runs_from_being_renewed(world, work, jobs):
    """LL02: after a lock was lost by a network break, later locks of that name were never renewed."""
    work.takes_s = 120
    a = world.start(jobs(work, schedule=cron("0 */5 * * * *"), lease="30s"))
    world.advance("301s")
    a.cut_off()
    world.advance("60s")
    a.reconnect()
    world.advance("360s")
    later = [done for done in work.executions if done.slot_s == 600]
    assert [(done.attempt, done.how) for done in later] == [(1, "returned")]


def test_only_the_run_whose_lease_is_lost_is_interrupted(world, work, jobs):
    """LL05: a lost lock raised out of the main loop: 430 process restarts in two weeks."""
    slow = {"job7"}

    class Spiky(MemoryBackend):
        async def heartbeat(self, job, slot, token):
            if job in slow:
                await asyncio.sleep(7)
                raise BackendUnavailable("too slow")
            return await super().heartbeat(job, slot, token)

    work.takes_s = 40
    all_jobs = [job for n in range(20) for job in jobs(work, name=f"job{n}", schedule=ONCE, lease="10s")]
    a = world.start(all_jobs, backend=Spiky(world.store))
    world.advance("55s")
    assert {event.job for event in of_kind(a, "success")} == {f"job{n}" for n in range(20)} - slow
    assert {event.job for event in of_kind(a, "interrupted")} == slow


def test_the_lease_is_never_given_up_under_a_running_handler(world, work, jobs):
    """SD01: the heartbeat was stopped first, the job ran on, another node started it too."""
    work.takes_s, work.stubborn = 200, True
    a, b = pair(world, jobs(work, schedule=ONCE, lease="9s"))
    a.stop("5s", wait=False)
    world.advance("195s")
    assert a.stopped
    assert work.executions[0].ended_s is None
    assert world.active("sync")[0].live
    assert [done.attempt for done in work.executions] == [1]
    world.advance("10s")
    assert [done.attempt for done in work.executions] == [1]
    assert a.count("success") == 1  # it returned: the signal does not make that a failure
    assert b.count("start") == 0


# Ending


def test_a_handler_that_raises_has_failed_and_is_not_run_again(world, work, jobs):
    work.raises = ValueError("boom")
    a, _ = pair(world, jobs(work, schedule=ONCE))
    world.advance("5m")
    assert [done.attempt for done in work.executions] == [1]
    (failure,) = of_kind(a, "failure")
    assert "ValueError: boom" in failure.error
    assert "conftest.py" in failure.error  # with its traceback
    assert (failure.timeout, failure.going_on) == (False, ())
    (result,) = world.results("sync")
    assert (result.status, result.error) == ("failed", failure.error)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
def test_whatever_a_handler_raises_is_a_failed_run_and_the_timers_go_on(world, work, jobs, error):
    """EX03: an exception outside the handler's try block ended the schedule thread."""
    work.raises = error
    a = world.start(jobs(work))
    world.advance("34s")
    assert [type(error).__name__ in event.error for event in of_kind(a, "failure")] == [True] * 3
    assert len(work.executions) == 3


@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_that_gives_a_coroutine_which_nobody_awaited_has_failed(world, jobs, is_async):
    """EX03: returns an un-awaited coroutine."""

    async def inner():
        pass

    async def forgets_async(ctx):
        return inner()

    def forgets(ctx):
        return inner()

    a = world.start(jobs(forgets_async if is_async else forgets, schedule=ONCE))
    world.advance("1m")
    assert "coroutine" in of_kind(a, "failure")[0].error


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Hostile(Exception):
    @property
    def __notes__(self):
        raise RuntimeError("no notes")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a\x00b"),
        ValueError("\ud800"),
        ValueError("x" * 10_000_000),
        ValueError(b"\xff"),
        Unprintable(),
        Hostile(),
        ExceptionGroup("many", [ValueError("\x00")]),
    ],
    ids=["nul", "surrogate", "10 MB", "bytes", "unprintable", "hostile", "group"],
)
def test_no_text_of_an_error_keeps_its_run_from_ending(world, work, jobs, error):
    """SE03: error text with NUL or a lone surrogate was refused by the database; the run stayed claimed."""
    work.raises = error
    a = world.start(jobs(work, schedule=ONCE))
    world.advance("1m")
    (result,) = world.results("sync")
    assert result.status == "failed"
    assert type(error).__name__ in result.error
    assert len(result.error.encode()) <= 65_536
    assert of_kind(a, "failure")[0].error == result.error
    assert world.active("sync") == ()


def test_a_timeout_ends_the_run_as_failed_whatever_the_handler_does(world, work, jobs):
    """SL07: a hung handler was renewed for ever."""
    work.takes_s = 10_000
    a, b = pair(world, jobs(work, schedule=ONCE, timeout="2s"))
    world.advance("2m")
    (done,) = work.executions
    assert (done.ended_s - done.began_s, done.reason, done.how) == (2, "timeout", "CancelledError")
    (failure,) = of_kind(a, "failure")
    assert (failure.timeout, failure.going_on, failure.duration_ms) == (True, (), 2_000)
    assert "2000 ms" in failure.error
    assert records(world) == [(1, "failed")]
    assert b.count("start") == 0


def test_without_a_timeout_a_hung_handler_stays_visible(world, work, jobs):
    """SL07, its other half."""
    work.takes_s = 100_000
    world.start(jobs(work, schedule=ONCE))
    world.advance("2h")
    (run,) = world.active("sync")
    assert run.live
    assert world.store_ms() - run.started_at == 2 * 3_600_000 - 10_000


def test_a_handler_that_swallows_its_cancellation_has_failed_and_blocks_the_jobs_later_runs_here(world, work, jobs):
    """CT01, CT03: a timed-out run could not be killed; its retry ran beside it."""
    work.takes_s, work.stubborn = 30, True
    a = world.start(jobs(work, timeout="2s"))
    world.advance("39s")
    (failure,) = of_kind(a, "failure")
    assert failure.going_on == ("sync@2026-12-01T12:00:10Z",)
    assert world.results("sync")[-1].ended_at - world.start_ms == 12_000
    assert [done.slot_s for done in work.executions] == [10]
    assert {event.reason for event in of_kind(a, "skip")} == {"overlap"}
    world.advance("20s")
    assert work.executions[1].began_s >= 40


def test_another_instance_is_not_blocked_by_a_handler_that_goes_on(world, work, jobs):
    work.takes_s, work.stubborn = 65, True
    a, b = pair(world, jobs(work, timeout="2s"))
    world.advance("15s")
    assert [(done.instance, done.slot_s) for done in work.executions] == [(a.name, 10), (b.name, 20)]


def test_under_allow_a_handler_that_goes_on_blocks_nothing(world, work, jobs):
    work.takes_s, work.stubborn = 25, True
    a = world.start(jobs(work, timeout="2s", overlap="allow"))
    world.advance("33s")
    assert work.slots == [10, 20, 30]
    assert [len(failure.going_on) for failure in of_kind(a, "failure")] == [1, 2, 3]


@pytest.mark.parametrize("grace", ["0s", "1s", "30s"])
def test_a_stop_at_the_moment_of_a_timeout_leaves_one_record_and_never_a_success(world, work, jobs, grace):
    """CT02: timeout and explicit cancel at the same moment: the wrong exception won."""
    work.takes_s = 100
    a = world.start(jobs(work, schedule=ONCE, timeout="2s"))
    world.advance("11900ms")
    a.stop(grace, wait=False)
    world.advance("100ms")
    world.advance("1m")
    ends = [event for event in a.events if event.kind in ("success", "failure", "interrupted")]
    assert len(ends) == 1
    assert len(world.results("sync")) == 1
    assert ends[0].kind != "success"
    if ends[0].kind == "failure":
        assert ends[0].timeout


def test_a_return_after_the_signal_is_a_success(world, work, jobs):
    async def polite(ctx):
        assert await ctx.signal.wait_async() == "stop"

    a = world.start(jobs(polite, schedule=ONCE))
    world.advance("15s")
    a.stop()
    assert [event.kind for event in a.events] == ["start", "success"]


def test_finish_comes_before_the_record_and_the_record_before_the_event(world, work, jobs):
    order = []

    class Noting(MemoryBackend):
        async def finish(self, *args):
            order.append("finish")
            return await super().finish(*args)

        async def save_result(self, *args):
            order.append(("save", a.count("success")))
            return await super().save_result(*args)

    a = world.start(jobs(work, schedule=ONCE), backend=Noting(world.store))
    world.advance("20s")
    assert order == ["finish", ("save", 0)]
    assert a.count("success") == 1


def test_a_finish_that_fails_is_repeated_while_heartbeats_go_on_and_the_run_is_not_run_again(world, work, jobs):
    """SO02: the store was unreachable at completion, for half a lease."""
    work.takes_s = 5
    a, b = pair(world, jobs(work, schedule=ONCE, lease="30s"))
    world.advance("4900ms")
    a.cut_off()
    world.advance("15s")
    assert a.count("success") == 0
    a.reconnect()
    world.advance("3500ms")
    assert a.count("success") == 1
    world.advance("2m")
    assert [done.attempt for done in work.executions] == [1]
    assert of_kind(a, "success")[0].duration_ms == 5_000
    assert b.count("start") == 0


def test_a_finish_that_comes_after_a_takeover_is_refused_and_both_are_visible(world, work, jobs):
    """SO02: ... and for three leases."""
    work.takes_s = 5
    a, b = pair(world, jobs(work, schedule=ONCE, lease="30s"))
    world.advance("4900ms")
    a.cut_off()
    world.advance("90s")
    assert b.count("success") == 1
    a.reconnect()
    world.advance("11s")
    assert [event.reason for event in of_kind(a, "interrupted")] == ["takeover"]
    assert records(world) == [(2, "success"), (1, "interrupted")]


def test_a_finish_after_a_long_outage_counts_if_nobody_took_the_run(world, work, jobs):
    """Also where this instance alone could: it does not run again what has ended in it."""
    work.takes_s = 5
    a = world.start(jobs(work, schedule=ONCE, lease="30s"))
    world.advance("12s")
    a.cut_off()
    world.advance("100s")
    assert work.executions[0].ended_s == 15
    a.reconnect()
    world.advance("30s")
    assert a.count("success") == 1
    assert [done.attempt for done in work.executions] == [1]


def test_a_run_that_overlaps_with_the_next_is_not_repeated_after_an_outage_at_its_end(world, work, jobs):
    """The slot that was skipped for it must not make this instance a backup of its own run."""
    for seed_s in range(10):
        work.executions.clear()
        with World("2026-12-01T12:00:00Z", seed=seed_s) as other:
            work.world, work.takes_s = other, 15
            a = other.start(jobs(work, lease="20s", schedule=cron("10,20 0 12 * * *")))
            other.advance("24s")
            a.cut_off()
            other.advance("40s")
            a.reconnect()
            other.advance("40s")
            assert [(done.slot_s, done.attempt) for done in work.executions] == [(10, 1)]


@pytest.mark.parametrize(
    ("steal_it", "reason"),
    [
        (lambda world, slot: steal(world, slot), "takeover"),
        (lambda world, slot: steal(world, slot + 1_000, 0, mode="manual"), "superseded"),
        (lambda world, slot: steal(world, slot, max_attempts=1), "exhausted"),
    ],
    ids=["takeover", "superseded", "exhausted"],
)
@pytest.mark.parametrize("raises", [False, True])
def test_a_frozen_holders_late_finish_is_refused_with_its_reason(world, work, jobs, steal_it, reason, raises):
    work.takes_s = 5
    work.raises = ValueError() if raises else None
    a = world.start(jobs(work, schedule=ONCE, lease="30s"))
    world.advance("12s")
    a.freeze()
    world.advance("40s")
    steal_it(world, world.start_ms + 10_000)
    a.thaw()
    world.advance("1s")
    assert [event.reason for event in of_kind(a, "interrupted")] == [reason]
    assert a.count("success") == a.count("failure") == 0


def test_a_run_lost_with_nobody_to_take_it_is_lost_and_taken_again_here(world, work, jobs):
    """LL17: a run whose lease had lapsed was acquired again by the SAME process while it still ran."""
    work.takes_s, work.stubborn = 100, True
    a = world.start(jobs(work, schedule=ONCE, lease="30s"))
    world.advance("11s")
    a.freeze()
    world.advance("40s")
    a.thaw()
    world.advance("30s")
    assert len(work.executions) == 1  # it goes on, so it is not started again beside itself
    work.stubborn = False
    work.takes_s = 3
    world.advance("60s")
    assert [done.attempt for done in work.executions] == [1]
    assert a.count("success") == 1  # it returned in the end, and nobody had taken it


def test_a_cancelled_handler_that_lost_its_lease_is_run_again_here_when_nobody_else_is(world, work, jobs):
    work.takes_s = 60
    a = world.start(jobs(work, schedule=ONCE, lease="30s"))
    world.advance("11s")
    a.cut_off()
    world.advance("40s")
    a.reconnect()
    world.advance("100s")
    assert [(done.attempt, done.how) for done in work.executions] == [(1, "CancelledError"), (2, "returned")]
    assert [event.reason for event in of_kind(a, "interrupted")] == ["takeover"]  # by itself
    assert records(world) == [(2, "success"), (1, "interrupted")]


def test_a_heartbeat_under_way_at_the_finish_is_nobodys_warning(world, work, jobs):
    """OB02: daily warnings about a harmless race, heartbeat just after finish."""

    class Racing(MemoryBackend):
        async def heartbeat(self, job, slot, token):
            await asyncio.sleep(0.5)
            return await super().heartbeat(job, slot, token)

        async def finish(self, *args):
            answer = await super().finish(*args)
            await asyncio.sleep(0.7)
            return answer

    work.takes_s = 2.1
    a = world.start(jobs(work, lease="6s", heartbeat="2s"), backend=Racing(world.store))
    world.advance("1000s")
    assert {event.kind for event in a.events} == {"start", "success"}
    assert a.count("success") >= 98
    assert {done.reason for done in work.executions if done.how} == {None}


# Backup


@pytest.mark.parametrize("lease_s", [3, 30, 300])
def test_a_killed_holder_is_replaced_within_its_lease_and_a_fiftieth(world, work, jobs, lease_s):
    for seed in range(8):
        with World("2026-12-01T12:00:00Z", seed=seed) as other:
            work.world, work.takes_s = other, 1_000
            work.executions.clear()
            a, b = pair(other, jobs(work, schedule=ONCE, lease=f"{lease_s}s"))
            other.advance(timedelta(seconds=lease_s * (1 + seed / 8)))
            left_ms = other.active("sync")[0].lease_left_ms
            a.crash()
            before = other.elapsed_s
            other.run_until(lambda: len(work.executions) == 2)
            took_s = other.elapsed_s - before
            assert left_ms / 1000 <= took_s <= left_ms / 1000 + max(lease_s / 50, 0.05) + 0.001
            assert work.executions[1].attempt == 2
            assert work.executions[1].fence > work.executions[0].fence
            (takeover,) = of_kind(b, "takeover")
            assert [(lost.attempt, lost.holder) for lost in takeover.previous] == [(1, a.name)]
            assert records(other) == [(1, "crashed")]


def test_a_check_that_failed_does_not_make_the_next_one_miss_the_leases_end(work, jobs):
    for seed in range(8):
        with World("2026-12-01T12:00:00Z", seed=seed) as world:
            work.world, work.takes_s = world, 1_000
            work.executions.clear()
            a, b = pair(world, jobs(work, schedule=ONCE, lease="30s"))
            world.advance("1s")
            a.crash()
            b.cut_off()
            world.advance("28s")
            assert b.count("error") >= 1
            b.reconnect()
            world.advance("1700ms")
            assert [done.attempt for done in work.executions] == [1, 2]


def test_after_an_overlap_the_older_run_and_this_one_are_watched(world, work, jobs):
    work.takes_s = 1_000
    a, b = pair(world, jobs(work, lease="30s"))
    world.advance("11s")
    assert [event.reason for event in of_kind(b, "skip")] == ["taken", "overlap"]
    assert watched(b) == [0, 10, 20]  # an instance that was there before could start 0
    a.crash()
    world.advance("22s")
    assert watched(b)[-1] == 40 or work.executions[-1].slot_s == 40


def watched(instance):
    return [(slot - instance._world.start_ms) / 1000 for slot in instance._engine._level._watches.watched("sync")]


def test_a_run_that_a_newer_one_replaces_is_recorded_as_crashed_and_superseded(world, work, jobs):
    work.takes_s = 1_000
    a, b = pair(world, jobs(work, lease="10s"))  # it runs out when the next slot is due
    a.crash()
    world.advance("11s")
    assert [(done.instance, done.slot_s, done.attempt) for done in work.executions[1:]] == [(b.name, 20, 1)]
    recorded = [(result.slot - world.start_ms, result.attempt, result.status) for result in world.results("sync")]
    assert recorded == [(10_000, 1, "crashed"), (10_000, 0, "superseded")]


def test_an_attempt_is_recorded_in_the_stores_time(world, work, jobs):
    world.jump_store_clock(timedelta(seconds=30))
    world.start(jobs(work, schedule=ONCE), clock_ahead=timedelta(seconds=-10))
    world.advance("40s")
    (result,) = world.results("sync")
    assert (result.started_at - world.start_ms, result.ended_at - world.start_ms) == (50_000, 53_000)


def test_backups_do_not_all_ask_at_once(world, work, jobs):
    asked = []

    class Noting(MemoryBackend):
        async def active(self, jobs):
            if world.elapsed_s > 0:
                asked.append(world.elapsed_s)
            return await super().active(jobs)

    work.takes_s = 85
    for number in range(10):
        world.start(jobs(work, schedule=ONCE, lease="30s"), f"i{number}", backend=Noting(world.store))
    world.advance("94s")
    assert len(set(asked)) == len(asked)
    assert 9 * 80 / 20 - 9 <= len(asked) <= 9 * 80 / 10


def test_a_failed_check_is_repeated_with_its_token_and_never_ends_the_watch(world, work, jobs):
    tokens = []

    class Flaky(MemoryBackend):
        async def claim(self, claim):
            if claim.mode == "takeover":
                tokens.append(claim.token)
                if len(tokens) <= 4:
                    raise BackendUnavailable("away")
            return await super().claim(claim)

    work.takes_s = 1_000
    a = world.start(jobs(work, schedule=ONCE), "a")
    b = world.start(jobs(work, schedule=ONCE), "b", backend=Flaky(world.store), clock_ahead=timedelta(seconds=-1))
    world.advance("12s")
    a.crash()
    world.advance("2m")
    assert len(set(tokens[:5])) == 1
    assert b.count("takeover") == 1


def test_a_takeover_that_was_won_without_an_answer_is_won_again_by_its_token(world, work, jobs):
    work.takes_s = 1_000
    a, b = pair(world, jobs(work, schedule=ONCE, lease="30s"))
    world.advance("1s")
    b.cut_off("replies lost")
    a.crash()
    world.run_until(lambda: world.active("sync")[0].holder == b.name, within="70s")
    b.reconnect()
    world.advance("30s")
    assert [done.attempt for done in work.executions] == [1, 2]


def test_a_run_is_tried_max_attempts_times_and_then_exhausted(world, work, jobs):
    work.takes_s = 1_000
    instances = [world.start(jobs(work, schedule=ONCE, max_attempts=2), name) for name in "abc"]
    for number in (1, 2):
        world.run_until(lambda: len(work.executions) == number)  # noqa: B023 - used here and now
        holder = work.executions[-1].instance
        next(instance for instance in instances if instance.name == holder).crash()
    last = next(i for i in instances if i.name not in {done.instance for done in work.executions})
    world.advance("5m")
    assert [done.attempt for done in work.executions] == [1, 2]
    (exhausted,) = of_kind(last, "exhausted")
    assert exhausted.attempt == 2
    assert [lost.attempt for lost in exhausted.previous] == [2]
    assert records(world) == [(2, "crashed"), (1, "crashed"), (0, "exhausted")]
    assert world.active("sync") == ()


def test_at_most_once_is_not_run_again(world, work, jobs):
    """SL06: runs of killed pods counted as 'running': every new run was skipped."""
    work.takes_s = 25
    a, b = pair(world, jobs(work, max_attempts=1))
    a.crash()
    world.advance("80s")
    assert [(done.slot_s, done.attempt) for done in work.executions[:2]] == [(10, 1), (40, 1)]
    assert {event.slot - world.start_ms for event in of_kind(b, "skip") if event.reason == "overlap"} >= {
        20_000,
        30_000,
    }


def test_a_run_that_nobody_started_is_watched_only_while_it_could_be(world, work, jobs):
    asked = []

    class Away(MemoryBackend):
        async def claim(self, claim):
            raise BackendUnavailable("away")

        async def active(self, jobs):
            asked.append(world.elapsed_s)
            return await super().active(jobs)

    world.start(jobs(work, schedule=ONCE, max_late="60s", lease="6s"), backend=Away(world.store))
    world.advance("10m")
    assert max(asked) > 60  # besides the one at the start
    assert max(asked) < 10 + 60 + 6


class Counting(MemoryBackend):
    """Notes its calls: when, which, and a claim's token."""

    def __init__(self, world):
        super().__init__(world.store)
        self.world = world
        self.calls = []
        self.away = ()

    async def claim(self, claim):
        self.calls.append((self.world.elapsed_s, claim.mode, claim.token))
        if claim.mode in self.away:
            raise BackendUnavailable("away")
        return await super().claim(claim)

    async def active(self, jobs):
        self.calls.append((self.world.elapsed_s, "active", len(jobs)))
        if "active" in self.away:
            raise BackendUnavailable("away")
        return await super().active(jobs)

    def since(self, second, *what):
        return [call for call in self.calls if call[0] >= second and (not what or call[1] in what)]


def test_one_look_is_for_all_runs_that_an_instance_watches(world, work, jobs):
    work.takes_s = 1_000
    all_jobs = [job for number in range(50) for job in jobs(work, name=f"job{number}", schedule=ONCE, lease="30s")]
    world.start(all_jobs, "a")
    backend = Counting(world)
    world.start(all_jobs, "b", backend=backend, clock_ahead=timedelta(seconds=-1))
    world.advance("311s")
    calls = backend.since(12)
    assert {(what, number) for _, what, number in calls} == {("active", 50)}
    assert 300 / 20 - 1 <= len(calls) <= 300 / 10 + 2


@pytest.mark.parametrize("away", [("active", "takeover", "scheduled"), ("takeover",)], ids=["all", "writes"])
def test_what_an_outage_left_to_watch_is_checked_one_at_a_time(world, work, jobs, away):
    """Four jobs of a second: without that it were dozens of claims that fail in each second."""
    work.takes_s = 1_000
    backend = Counting(world)
    options = {"schedule": every("1s"), "lease": "3s", "max_late": "5s", "overlap": "allow"}
    all_jobs = [job for number in range(4) for job in jobs(work, name=f"job{number}", **options)]
    a = world.start(all_jobs, "a")
    world.start(all_jobs, "b", backend=backend, clock_ahead=timedelta(milliseconds=-100))
    world.advance("20s")  # in which a comes to hold 80 runs
    backend.away = away
    a.crash()
    world.advance("40s")
    assert len(backend.since(world.elapsed_s - 20, "takeover", "active")) < 20 * 4
    backend.away = ()
    back_s = world.elapsed_s
    unfinished = {(run.job, run.slot) for run in world.active(*(job.name for job in all_jobs)) if not run.live}
    world.advance("1100ms")
    taken = {(event.job, event.slot) for event in world.events if event.kind == "takeover"}
    assert len(unfinished) >= 75
    assert unfinished <= taken
    assert len(backend.since(back_s, "takeover")) < 2 * len(unfinished)


def test_a_claim_that_failed_is_repeated_with_its_token_once_the_store_is_back(world, work, jobs):
    work.takes_s = 1_000
    backend = Counting(world)
    a = world.start(jobs(work, schedule=ONCE, lease="3s"), "a")
    world.start(jobs(work, schedule=ONCE, lease="3s"), "b", backend=backend, clock_ahead=timedelta(seconds=-1))
    world.advance("11s")
    backend.away = ("takeover",)
    a.crash()
    world.advance("60s")
    backend.away = ()
    world.run_until(lambda: len(work.executions) == 2, within="1s", what="the takeover")
    assert len({token for _, _, token in backend.since(11, "takeover")}) == 1


def test_one_job_whose_claims_fail_holds_no_other_up(world, work, jobs):
    """As with a record that cannot be read: the store itself answers."""
    work.takes_s = 1_000

    class OneFails(Counting):
        async def claim(self, claim):
            if claim.mode == "takeover" and claim.job == "bad":
                self.calls.append((world.elapsed_s, "bad", claim.token))
                raise BackendUnavailable("cannot be read")
            return await super().claim(claim)

    backend = OneFails(world)
    schedules = {"bad": ONCE, "good": cron("20 0 12 * * *"), "fine": cron("40 0 12 * * *")}
    all_jobs = [job for name, when in schedules.items() for job in jobs(work, name=name, schedule=when, lease="6s")]
    a = world.start([all_jobs[0]], "a")
    b, c = world.start([all_jobs[1]], "b"), world.start([all_jobs[2]], "c")
    world.start(all_jobs, "d", backend=backend, clock_ahead=timedelta(seconds=-1))
    world.advance("11s")
    a.crash()
    for dies, name in ((b, "good"), (c, "fine")):
        world.advance("14s")
        dies.crash()
        began_s = world.elapsed_s
        mine = lambda name=name: [event for event in world.events if event.kind == "takeover" and event.job == name]  # noqa: E731
        world.run_until(mine, within="10s", what=f"the takeover of {name}")
        assert world.elapsed_s - began_s < 6 + 0.2
    assert 5 < len(backend.since(0, "bad")) < 40


@pytest.mark.parametrize("leaves", ["crash", "stop"])
def test_of_many_runs_that_are_over_at_once_each_backup_claims_a_few(leaves):
    """The others look first, and find most of them taken; each would else claim each."""
    with World("2026-12-01T12:00:00Z", latency="2ms", hints=leaves == "stop") as world:
        started = {}

        async def handler(ctx):
            started[ctx.job] = ctx.instance
            await ctx.signal.wait_async()
            raise InterruptedError

        all_jobs = [make_job(f"job{number}", ONCE, handler, {"lease": "30s", "jitter": "0s"}) for number in range(300)]
        a = world.start(all_jobs, "a")
        world.advance("11s")
        for name in "bcdef":
            world.start(all_jobs, name)
        world.advance("60s")
        claims = []
        through = world._backend.claim

        async def claim(asked):
            claims.append(asked)
            return await through(asked)

        world._backend.claim = claim
        over_s = 0 if leaves == "stop" else min(run.lease_left_ms for run in world.active("job0")) / 1000
        a.crash() if leaves == "crash" else a.stop(wait=False)
        world.advance(timedelta(seconds=over_s + 1))
        assert "a" not in started.values()
        assert len(claims) < 3 * 300
        assert min(list(started.values()).count(name) for name in "bcdef") > 10  # nobody has them all


def test_who_comes_between_a_slot_and_its_claim_is_a_backup_for_that_run(world, work, jobs):
    """Its holder is killed before anything else is due; the newcomer was told that nothing is unfinished."""
    work.takes_s = 1_000
    a = world.start(jobs(work, schedule=ONCE, lease="6s", jitter="400ms"), "a")
    world.advance("10s")
    assert not work.executions
    world.start(jobs(work, schedule=ONCE, lease="6s", jitter="400ms"), "b")
    world.run_until(lambda: work.executions, within="1s", what="the claim")
    world.advance("10s")
    a.crash()
    world.run_until(lambda: len(work.executions) == 2, within="6200ms", what="the takeover")


@pytest.mark.parametrize("max_late", ["25s", None])
def test_a_slot_that_somebody_could_start_is_watched_no_longer_than_that(world, work, jobs, max_late):
    backend = Counting(world)
    world.advance("11s")
    b = world.start(jobs(work, schedule=ONCE, max_late=max_late, lease="30s"), "b", backend=backend)
    world.advance("10m")
    assert b._engine._level._watches.watched("sync") == []
    assert 2 <= len(backend.since(12)) <= 4
    assert {what for _, what, _ in backend.calls} == {"active"}


def test_hints_let_a_backup_look_at_once():
    """With hints a released run is running elsewhere within 100 ms."""
    with World("2026-12-01T12:00:00Z", hints=True, latency="5ms") as world:
        started = []

        async def handler(ctx):
            started.append((ctx.instance, world.elapsed_s))
            await ctx.signal.wait_async()
            raise InterruptedError

        job = make_job("sync", ONCE, handler, {"lease": "30s", "jitter": "0s"})
        a, b = pair(world, [job])
        world.advance("5s")
        a.stop(wait=False)
        told = world.elapsed_s
        world.advance("3s")
        assert [name for name, _ in started] == [a.name, b.name]
        assert started[1][1] - told <= 0.1


def test_without_hints_a_released_run_is_found_by_the_next_poll(world, work, jobs):
    """SD03: SIGTERM then SIGKILL left jobs locked for hours or for ever."""
    work.takes_s = 100
    a, b = pair(world, jobs(work, schedule=ONCE, lease="30s"))
    world.advance("5s")
    a.stop("2s")
    released_s = work.executions[0].ended_s
    assert [event.reason for event in of_kind(a, "interrupted")] == ["stop"]
    world.run_until(lambda: len(work.executions) == 2)
    assert work.executions[1].began_s - released_s < 2 * 10
    a.crash()
    world.advance("110s")
    assert b.count("success") == 1
    assert records(world) == [(2, "success"), (1, "interrupted")]


def test_released_attempts_are_not_used_up(world, work, jobs):
    work.takes_s = 1_000
    everyone = jobs(work, schedule=ONCE, max_attempts=1)
    for number in range(5):
        holder = world.start(everyone, f"i{number}")
        world.run_until(lambda: len(work.executions) == number + 1)  # noqa: B023 - used here and now
        holder.stop("0s")
    assert [done.attempt for done in work.executions] == [1, 2, 3, 4, 5]


def test_a_phantom_claim_blocks_for_a_lease_and_no_longer(world, work, jobs):
    """SL09: the request reaches the store, the reply is lost, the client is gone."""
    a = world.start(jobs(work, schedule=ONCE, lease="30s"), "a")
    world.advance("9s")
    a.cut_off("replies lost")
    world.advance("2s")
    a.crash()
    world.start(jobs(work, schedule=ONCE, lease="30s"), "b")
    world.advance("60s")
    assert [(done.attempt, done.instance) for done in work.executions] == [(2, "b")]
    assert work.executions[0].began_s <= 10 + 30 + 30 / 50


def test_an_id_that_is_used_again_keeps_nothing_of_its_predecessor_alive(world, work, jobs):
    """SL05: a restarted pod re-used the worker id; its heartbeat kept the dead predecessor's jobs alive."""
    work.takes_s = 50
    a = world.start(jobs(work, schedule=ONCE, lease="30s"), "pod-0")
    world.advance("12s")
    a.crash()
    world.start(jobs(work, schedule=ONCE, lease="30s"), "pod-0")
    world.advance("100s")
    assert [(done.attempt, done.how) for done in work.executions] == [(1, ""), (2, "returned")]
    assert 40 <= work.executions[1].began_s <= 40.6
