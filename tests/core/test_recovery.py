"""What a start does before a job's first claim: unfinished runs, and the one slot that may have been missed."""

from datetime import timedelta

import pytest
from tenure.errors import BackendUnavailable
from tenure.memory import MemoryBackend
from tenure.model import Claim
from tenure.schedule import cron, every

ONCE = cron("10 0 12 * * *")


def of_kind(instance, kind):
    return [event for event in instance.events if event.kind == kind]


def unfinished(world, slot_s, lease_ms=30_000, job="sync"):
    """A run of a holder that is not there any more."""
    claim = Claim(
        job=job, slot=world.start_ms + slot_s * 1000, token=f"t{slot_s}", instance="gone", lease_ms=lease_ms,
        mode="manual", overlap="allow", max_attempts=9, max_late_ms=None,
    )  # fmt: skip
    with pytest.raises(StopIteration) as answered:
        world._backend.claim(claim).send(None)
    assert answered.value.value.outcome == "won"


class Noting(MemoryBackend):
    """Notes what it is asked, and can be away."""

    def __init__(self, world, away_s=0):
        super().__init__(world.store)
        self.world = world
        self.away_s = away_s
        self.asked = []

    async def active(self, jobs):
        self.asked.append(("active", self.world.elapsed_s, sorted(jobs)))
        if self.world.elapsed_s < self.away_s:
            raise BackendUnavailable("away")
        return await super().active(jobs)

    async def claim(self, claim):
        self.asked.append((claim.mode, self.world.elapsed_s, claim.slot - self.world.start_ms))
        return await super().claim(claim)


def test_one_call_asks_for_all_jobs_before_the_first_claim(world, work, jobs):
    backend = Noting(world)
    world.start([job for n in range(50) for job in jobs(work, name=f"job{n}")], backend=backend)
    world.advance("9s")
    assert backend.asked == [("active", 0, sorted(f"job{n}" for n in range(50)))]


def test_recovery_is_repeated_until_it_succeeds_and_timers_run_meanwhile(world, work, jobs):
    backend = Noting(world, away_s=25)
    a = world.start(jobs(work, max_late="1m"), backend=backend)
    world.advance("24s")
    assert work.executions == []
    assert {call for call, _, _ in backend.asked} == {"active"}
    world.advance("15s")
    assert sorted({slot for call, _, slot in backend.asked if call == "scheduled"})[:2] == [10_000, 20_000]
    assert len(work.executions) >= 1
    assert {event.call for event in of_kind(a, "error")} == {"active"}


def test_slots_that_wait_for_recovery_are_given_up_like_claims_that_fail(world, work, jobs):
    a = world.start(jobs(work, max_late="20s"), backend=Noting(world, away_s=10**9))
    world.advance("1h")
    assert len(a._engine._instance._tasks) < 10
    late = [event.slot for event in of_kind(a, "skip") if event.reason == "late"]
    assert len(late) >= 355
    assert len(set(late)) == len(late)


def test_a_live_run_is_watched_and_taken_over_when_its_lease_is_over(world, work, jobs):
    world.advance("10s")
    unfinished(world, 10)
    world.advance("5s")
    a = world.start(jobs(work, schedule=ONCE))
    world.advance("24900ms")
    assert work.executions == []
    world.advance("1s")
    (done,) = work.executions
    assert (done.attempt, done.mode) == (2, "takeover")
    assert of_kind(a, "takeover")[0].previous[0].holder == "gone"


@pytest.mark.parametrize("overlap", ["skip", "allow"])
def test_the_newest_run_is_taken_over_at_once_if_its_lease_is_over(world, work, jobs, overlap):
    """MS06: the slot's marker was committed, the work was not: after the restart that slot was never executed."""
    world.advance("10s")
    unfinished(world, 10, lease_ms=3_000)
    world.advance("5s")
    world.start(jobs(work, schedule=ONCE, overlap=overlap))
    world.advance("100ms")
    assert [(done.slot_s, done.attempt) for done in work.executions] == [(10, 2)]


@pytest.mark.parametrize(("overlap", "taken"), [("skip", []), ("allow", [(10, 2)])])
def test_an_older_run_whose_lease_is_over_is_left_under_skip_and_taken_under_allow(world, work, jobs, overlap, taken):
    world.advance("10s")
    unfinished(world, 10, lease_ms=3_000)
    world.advance("15s")  # 12:00:20 was due
    world.start(jobs(work, overlap=overlap))
    world.advance("4s")
    assert [(done.slot_s, done.attempt) for done in work.executions] == taken
    world.advance("5s")
    assert [(done.slot_s, done.attempt) for done in work.executions] == [*taken, (30, 1)]


def test_several_instances_that_start_together_recover_a_run_once(world, work, jobs):
    world.advance("10s")
    unfinished(world, 10, lease_ms=3_000)
    world.advance("5s")
    for _ in range(5):
        world.start(jobs(work, schedule=ONCE))
    world.advance("1m")
    assert [(done.slot_s, done.attempt) for done in work.executions] == [(10, 2)]


def test_a_run_that_executes_in_the_same_process_is_only_watched(world, work, jobs):
    """DR13: recovery at launch adopted a run that was executing in the same process."""
    work.takes_s = 60
    world.start(jobs(work, schedule=ONCE, lease="9s"), "a")
    world.advance("15s")
    world.start(jobs(work, schedule=ONCE, lease="9s", catch_up="10m"), "b")
    world.advance("2m")
    assert [(done.instance, done.attempt, done.how) for done in work.executions] == [("a", 1, "returned")]


def test_a_restart_while_the_handler_drains_does_not_run_it_beside(world, work, jobs):
    """DR13: also stop() and start() while the handler drains."""
    work.takes_s, work.stubborn = 60, True
    a = world.start(jobs(work, schedule=ONCE, lease="9s"), "a")
    world.advance("15s")
    a.stop("2s", wait=False)
    world.start(jobs(work, schedule=ONCE, lease="9s", catch_up="10m"), "a")
    world.advance("2m")
    assert [(done.attempt, done.how) for done in work.executions] == [(1, "returned")]


def test_a_job_added_again_while_its_handler_executes_here_is_not_run_beside_it(world, work, jobs):
    work.takes_s = 60
    a = world.start(jobs(work, schedule=ONCE, lease="9s"), "a")
    world.advance("15s")
    a.remove("sync")
    a.add("sync", ONCE, work, lease="9s", catch_up="10m", jitter="0s")
    world.advance("2m")
    assert [(done.attempt, done.how) for done in work.executions] == [(1, "returned")]


def test_one_killed_job_does_not_keep_the_others_from_being_armed(world, work, jobs):
    """MS08: a schedule left 'acquired' by a killed process was ignored when computing the wake-up."""
    work.takes_s = 1_000
    both = [
        *jobs(work, name="minutely", schedule=cron("* * * * *")),
        *jobs(work, name="daily", schedule=cron("0 9 * * *")),
    ]
    a = world.start(both, "a")
    world.advance("65s")
    a.crash()
    b = world.start(both, "b")
    assert b._engine.next_slot("minutely") == world.start_ms + 120_000
    world.advance("60s")
    assert [(done.slot_s, done.attempt) for done in work.executions] == [(60, 1), (60, 2)]
    assert [(event.job, event.slot) for event in of_kind(b, "skip")] == [("minutely", world.start_ms + 120_000)]


# Catching up


def test_the_latest_slot_is_caught_up_after_a_jitter_and_only_that_one(world, work, jobs):
    world.advance("95s")
    a = world.start(jobs(work, catch_up="1h", jitter="4s"))
    world.advance("4s")
    (done,) = work.executions
    assert (done.slot_s, done.mode) == (90, "catch-up")
    assert 95 < done.began_s < 99
    world.advance("10s")
    assert sorted(work.slots) == [90, 100]
    assert of_kind(a, "error") == []


def test_without_catch_up_nothing_is(world, work, jobs):
    world.advance("95s")
    world.start(jobs(work))
    world.advance("4s")
    assert work.executions == []


@pytest.mark.parametrize(("catch_up", "slots"), [("29s", []), ("31s", [10])])
def test_a_slot_due_longer_ago_than_catch_up_is_not_caught_up(world, work, jobs, catch_up, slots):
    world.advance("40s")
    world.start(jobs(work, schedule=ONCE, catch_up=catch_up))
    world.advance("10s")
    assert work.slots == slots


def test_catch_up_is_the_lateness_limit_of_what_is_caught_up(world, work, jobs):
    world.advance("40s")
    world.start(jobs(work, schedule=ONCE, catch_up="10m", max_late="1s"))
    world.advance("1s")
    assert work.slots == [10]


def test_catching_up_is_judged_by_the_stores_time(world, work, jobs):
    world.advance("40s")
    world.start(jobs(work, schedule=ONCE, catch_up="10m"), clock_ahead=timedelta(hours=-3))
    world.advance("1s")
    assert work.slots == [10]


def test_a_slot_that_succeeded_is_not_run_again_by_catching_up(world, work, jobs):
    """MS10: after a restart the 'missed jobs' pass re-ran a slot that had already succeeded."""
    a = world.start(jobs(work, schedule=ONCE))
    world.advance("20s")
    a.stop()
    world.advance("10m")
    b = world.start(jobs(work, schedule=ONCE, catch_up="1h"))
    world.advance("10m")
    assert [done.attempt for done in work.executions] == [1]
    assert [event.reason for event in of_kind(b, "skip")] == ["taken"]
    assert of_kind(b, "error") == []


def test_a_monthly_job_does_not_run_on_a_fresh_store_in_the_middle_of_the_month(world, work, jobs):
    """MS03: a monthly job ran after every deploy: no history on the new store, the old slot looked missed."""
    with type(world)("2026-12-04T12:00:00Z") as other:
        work.world = other
        other.start(jobs(work, schedule=cron("0 0 1 * *"), catch_up="10m"))
        other.advance("1h")
    assert work.executions == []


def test_an_unfinished_latest_run_is_taken_over_and_not_caught_up_besides(world, work, jobs):
    world.advance("10s")
    unfinished(world, 10, lease_ms=3_000)
    world.advance("5s")
    backend = Noting(world)
    world.start(jobs(work, schedule=ONCE, catch_up="1h"), backend=backend)
    world.advance("10s")
    assert [(done.slot_s, done.attempt) for done in work.executions] == [(10, 2)]
    assert {call for call, _, _ in backend.asked} == {"active", "takeover"}


def test_a_job_added_later_is_recovered_and_caught_up_too(world, work, jobs):
    a = world.start([])
    world.advance("10s")
    unfinished(world, 10, lease_ms=3_000)
    world.advance("5s")
    a.add("sync", ONCE, work, jitter="0s")
    a.add("other", every("8s"), work, jitter="0s", catch_up="1m")
    world.advance("500ms")
    assert sorted((done.slot_s, done.mode) for done in work.executions) == [(8, "catch-up"), (10, "takeover")]


def test_a_job_replaced_before_it_is_recovered_is_caught_up_as_it_is_now(world, work, jobs):
    seen = []
    world.advance("15s")
    a = world.start([])
    a.cut_off()
    a.add("sync", ONCE, work, jitter="0s", catch_up="1h")
    a.replace("sync", ONCE, lambda ctx: seen.append(ctx.mode), jitter="0s", catch_up="1h")
    a.reconnect()
    world.advance("5s")
    assert (seen, work.executions) == (["catch-up"], [])


def test_a_job_removed_before_its_catch_up_is_not_run(world, work, jobs):
    world.advance("15s")
    a = world.start(jobs(work, schedule=ONCE, catch_up="1h", jitter="30s"))
    a.remove("sync")
    world.advance("1h")
    assert work.executions == []
