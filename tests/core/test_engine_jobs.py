"""Jobs come and go while an instance runs, are triggered, and schedules misbehave."""

from datetime import timedelta

import pytest
from tenure.errors import BackendError, BackendUnavailable, InvalidJob, UnknownJob
from tenure.job import make_job
from tenure.memory import MemoryBackend
from tenure.model import Capabilities
from tenure.schedule import cron, every

ONCE = cron("10 0 12 * * *")


def of_kind(instance, kind):
    return [event for event in instance.events if event.kind == kind]


# Come and go


def test_a_job_that_is_added_serves_from_its_next_slot(world, work, jobs):
    a = world.start([])
    world.advance("3s")
    a.add("sync", every("10s"), work, jitter="0s")
    world.advance("20s")
    assert work.slots == [10, 20]


def test_a_removed_job_lets_its_handler_end_and_finishes_it_normally(world, work, jobs):
    work.takes_s = 45
    a = world.start(jobs(work, lease="6s"), "a")
    world.advance("12s")
    a.remove("sync")
    world.advance("5m")
    (done,) = work.executions
    assert (done.ended_s, done.how, done.reason) == (55, "returned", None)
    assert a.count("success") == 1
    assert [result.status for result in world.results("sync")] == ["success"]


def test_a_removed_job_is_not_taken_over_any_more(world, work, jobs):
    work.takes_s = 1_000
    a = world.start(jobs(work, schedule=ONCE), "a")
    b = world.start(jobs(work, schedule=ONCE), "b", clock_ahead=timedelta(seconds=-1))
    world.advance("15s")
    b.remove("sync")
    a.crash()
    world.advance("10m")
    assert len(work.executions) == 1


def test_a_job_removed_while_its_claim_is_on_its_way_is_neither_run_nor_watched(world, work, jobs):
    a = world.start(jobs(work, schedule=ONCE), "a")
    a.slow_down("1s")
    world.advance("10500ms")
    a.remove("sync")
    world.advance("10m")
    assert work.executions == []
    (run,) = world.active("sync")
    assert not run.live


def test_a_run_that_is_lost_after_its_job_was_removed_is_not_watched(world, work, jobs):
    work.takes_s = 100
    a = world.start(jobs(work, schedule=ONCE), "a")
    world.advance("12s")
    a.remove("sync")
    a.cut_off()
    world.advance("40s")
    a.reconnect()
    world.advance("10m")
    assert [done.attempt for done in work.executions] == [1]


def test_a_removed_job_keeps_its_stored_state(world, work, jobs):
    work.takes_s = 0
    a = world.start(jobs(work, catch_up="10m"))
    world.advance("35s")
    a.remove("sync")
    fences = [done.fence for done in work.executions]
    a.add("sync", every("10s"), work, jitter="0s", catch_up="10m")
    world.advance("10s")
    assert work.slots == [0, 10, 20, 30, 40]  # 30 is not caught up again
    assert work.executions[-1].fence > max(fences)


def test_a_renamed_job_is_a_new_one(world, work, jobs):
    work.takes_s = 0
    a = world.start(jobs(work, schedule=ONCE))
    world.advance("15s")
    a.remove("sync")
    a.add("renamed", ONCE, work, catch_up="1m", jitter="0s")
    world.advance("1s")
    assert work.slots == [10, 10]


def test_a_replaced_handler_serves_from_the_next_slot(world, work, jobs):
    seen = []
    work.takes_s = 4
    a = world.start(jobs(work))
    world.advance("12s")
    a.replace("sync", every("10s"), lambda ctx: seen.append(ctx.slot_ms - world.start_ms), jitter="0s")
    world.advance("20s")
    assert work.slots == [10]
    assert work.executions[0].how == "returned"
    assert seen == [20_000, 30_000]


def test_a_replaced_handler_serves_from_the_next_attempt(world, work, jobs):
    """Of a run that was lost meanwhile, and of one that was watched."""
    seen = []
    work.takes_s = 1_000
    a = world.start(jobs(work, schedule=ONCE), "a")
    b = world.start(jobs(work, schedule=ONCE), "b", clock_ahead=timedelta(seconds=-1))
    world.advance("12s")
    a.replace("sync", ONCE, lambda ctx: seen.append((ctx.instance, ctx.attempt)), jitter="0s")
    a.cut_off()
    world.advance("20s")
    b.crash()
    world.advance("60s")
    a.reconnect()
    world.advance("60s")
    assert seen == [("a", 2)]


def test_a_watched_run_is_taken_over_by_the_replaced_handler(world, work, jobs):
    seen = []
    work.takes_s = 1_000
    a = world.start(jobs(work, schedule=ONCE), "a")
    b = world.start(jobs(work, schedule=ONCE), "b", clock_ahead=timedelta(seconds=-1))
    world.advance("12s")
    b.replace("sync", ONCE, lambda ctx: seen.append((ctx.instance, ctx.attempt)), jitter="0s")
    a.crash()
    world.advance("60s")
    assert seen == [("b", 2)]


def test_a_job_replaced_before_it_is_recovered_serves_the_recovered_run(world, work, jobs):
    seen = []
    work.takes_s = 1_000
    a = world.start(jobs(work, schedule=ONCE), "a")
    world.advance("12s")
    a.crash()
    b = world.start([], "b")
    b.cut_off()
    b.add("sync", ONCE, work, jitter="0s")
    world.advance("60s")
    b.replace("sync", ONCE, lambda ctx: seen.append(ctx.attempt), jitter="0s")
    b.reconnect()
    world.advance("60s")
    assert seen == [2]


def test_a_changed_schedule_serves_at_once(world, work, jobs):
    """DJ01: a changed schedule was used only after the old next run."""
    work.takes_s = 0
    a = world.start(jobs(work, schedule=cron("0 9 * * *")))
    world.advance("63s")
    a.replace("sync", every("10s"), work, jitter="0s")
    world.advance("30s")
    assert work.slots == [70, 80, 90]
    a.replace("sync", cron("0 9 * * *"), work, jitter="0s")
    world.advance("1h")
    assert work.slots == [70, 80, 90]


def test_adding_the_same_job_again_and_again_postpones_nothing(world, work, jobs):
    """SS04: re-registering unchanged jobs every 10 s postponed a 60 s job for ever."""
    work.takes_s = 0
    a = world.start(jobs(work, schedule=every("1m")))
    for _ in range(60):
        world.advance("10s")
        a.replace("sync", every("1m"), work, jitter="0s")
    assert len(work.slots) in (9, 10)
    assert work.slots == list(range(60, 60 * len(work.slots) + 1, 60))


def test_editing_a_cron_after_todays_run_does_not_run_it_again_at_once(world, work, jobs):
    """MS11: editing a cron (01:15 to 02:15) after today's run made the job run again immediately."""
    work.takes_s = 0
    for catch_up, expected in ((None, []), ("24h", [2.25])):
        work.executions.clear()
        with type(world)("2026-12-01T01:00:00Z") as other:
            work.world = other
            a = other.start(jobs(work, schedule=cron("15 1 * * *")))
            other.advance("4h")
            assert [slot / 3_600 + 1 for slot in work.slots] == [1.25]
            a.stop()
            other.start(jobs(work, schedule=cron("15 2 * * *"), catch_up=catch_up))
            other.advance("1h")
            assert [slot / 3_600 + 1 for slot in work.slots[1:]] == expected
            other.advance("21h")
            assert [slot / 3_600 + 1 for slot in work.slots[1:]] == [*expected, 26.25]


def test_two_versions_with_different_schedules_run_the_union_once_each(world, work, jobs):
    """DR11: two versions register the same job name with different schedules."""
    work.takes_s = 0
    world.start(jobs(work, schedule=cron("*/5 * * * *")), "a")
    world.start(jobs(work, schedule=cron("*/10 * * * *")), "b")
    world.advance("1799s")
    assert work.slots == [300, 600, 900, 1200, 1500]


def test_a_job_added_and_removed_while_the_store_is_away_leaves_nothing_behind(world, work, jobs):
    a = world.start([])
    a.cut_off()
    for number in range(20):
        a.add(f"job{number}", every("1s"), work)
        world.advance("3s")
        a.remove(f"job{number}")
    world.advance("65s")
    a.reconnect()
    world.advance("20s")
    assert a._engine._instance._tasks == set()
    a.stop()
    assert work.executions == []


def test_removing_one_of_several_jobs_that_wait_for_recovery_keeps_the_others(world, work, jobs):
    a = world.start([])
    a.cut_off()
    a.add("one", every("10s"), work, jitter="0s")
    a.add("two", every("10s"), work, jitter="0s")
    a.remove("one")
    a.add("one", every("1h"), work, jitter="0s")
    world.advance("5s")
    a.reconnect()
    world.advance("20s")
    assert work.slots == [10, 20]


class Coarse(MemoryBackend):
    """A store that cannot grant short leases, which it knows only when it is entered."""

    capabilities = Capabilities()

    async def __aenter__(self):
        self.capabilities = Capabilities(min_lease_ms=60_000)
        return await super().__aenter__()


def test_a_lease_that_the_store_cannot_grant_is_refused_by_start_which_leaves_the_store(world, work, jobs):
    backend = Coarse(world.store)
    with pytest.raises(InvalidJob, match="60000 ms or more"):
        world.start(jobs(work, lease="30s"), backend=backend)
    assert backend._entered == 0


def test_a_lease_that_the_store_cannot_grant_is_refused_when_the_job_is_added_and_nothing_changes(world, work, jobs):
    a = world.start(jobs(work, lease="1m"), backend=Coarse(world.store))
    with pytest.raises(InvalidJob, match="shorter than this store can grant"):
        a.add("short", every("10s"), work, lease="30s")
    with pytest.raises(InvalidJob, match="shorter than this store can grant"):
        a.replace("sync", every("10s"), work, lease="30s")
    world.advance("15s")
    assert {event.job for event in a.events} == {"sync"}


# trigger


def test_a_trigger_runs_a_job_now_at_the_stores_time(world, work, jobs):
    a = world.start(jobs(work, schedule=ONCE), clock_ahead=timedelta(hours=-5))
    world.advance("100500ms")
    triggered = a.trigger("sync")
    assert triggered.outcome == "won"
    world.advance("5s")
    (done,) = work.executions
    assert (done.mode, done.slot_s, done.how) == ("manual", 100.5, "returned")
    assert triggered.slot == world.start_ms + 100_500


def test_a_trigger_with_a_clock_that_is_ahead_takes_the_stores_time(world, work, jobs):
    a = world.start(jobs(work), clock_ahead=timedelta(hours=5))
    world.advance("4s")
    assert a.trigger("sync").outcome == "won"
    world.advance("1s")
    assert work.slots == [4]


def test_a_trigger_is_never_late(world, work, jobs):
    a = world.start(jobs(work, max_late="1s", schedule=ONCE), clock_ahead=timedelta(minutes=-10))
    world.jump_store_clock(timedelta(hours=1))
    assert a.trigger("sync").outcome == "won"


def test_a_trigger_keeps_to_the_overlap_rule(world, work, jobs):
    for overlap, outcome in (("skip", "overlap"), ("allow", "won")):
        with type(world)("2026-12-01T12:00:00Z") as other:
            work.world, work.takes_s = other, 8
            a = other.start(jobs(work, overlap=overlap))
            other.advance("12s")
            assert a.trigger("sync").outcome == outcome


def test_triggers_in_one_millisecond_take_slots_of_their_own(world, work, jobs):
    instances = [world.start(jobs(work, schedule=ONCE, overlap="allow")) for _ in range(3)]
    world.advance("20s")
    work.executions.clear()
    triggered = [instance.trigger("sync") for instance in instances for _ in range(2)]
    assert [answer.outcome for answer in triggered[:5]] == ["won"] * 5
    slots = [answer.slot for answer in triggered if answer.outcome == "won"]
    assert len(set(slots)) == len(slots)
    world.advance("1s")
    assert len(work.executions) == len(slots)


def test_a_trigger_gives_up_after_five_tries(world, work, jobs):
    asked = []

    class Busy(MemoryBackend):
        async def claim(self, claim):
            asked.append((claim.slot, claim.token))
            answer = await super().claim(claim)
            return type(answer)(outcome="running", now_ms=answer.now_ms, attempt=1, lease_left_ms=5, holder="x")

    a = world.start(jobs(work, schedule=ONCE), backend=Busy(world.store))
    world.advance("1s")
    assert a.trigger("sync").outcome == "running"
    assert len(asked) == 5
    assert len({slot for slot, _ in asked}) == len({token for _, token in asked}) == 5


def test_a_triggered_run_is_taken_over_like_any_other(world, work, jobs):
    work.takes_s = 20
    a = world.start(jobs(work, schedule=cron("0 15 * * *"), lease="6s"), "a")
    world.advance("5s")
    a.trigger("sync")
    world.start(jobs(work, schedule=cron("0 15 * * *"), lease="6s"), "b")
    world.advance("2s")
    a.crash()
    world.advance("1m")
    assert [(done.instance, done.attempt, done.mode) for done in work.executions] == [
        ("a", 1, "manual"),
        ("b", 2, "takeover"),
    ]


def test_a_trigger_without_a_store_raises(world, work, jobs):
    a = world.start(jobs(work, schedule=every("1m")))
    world.advance("1s")
    a.cut_off()
    with pytest.raises(BackendError, match="sync"):
        a.trigger("sync")
    assert world.elapsed_s <= 60


def test_a_trigger_before_the_store_has_ever_answered_raises_in_the_end(world, work, jobs):
    a = world.start([])
    a.cut_off()
    a.add("sync", every("1m"), work)
    with pytest.raises(BackendUnavailable, match="sync"):
        a.trigger("sync")
    assert world.elapsed_s <= 61


def test_a_trigger_of_an_unknown_job_is_an_error(world, work, jobs):
    a = world.start(jobs(work))
    with pytest.raises(UnknownJob, match="other"):
        a.trigger("other")


def test_a_trigger_does_not_run_beside_a_handler_that_goes_on_after_its_timeout(world, work, jobs):
    work.takes_s, work.stubborn = 100, True
    a = world.start(jobs(work, schedule=ONCE, timeout="2s"))
    world.advance("20s")
    assert a.trigger("sync").outcome == "overlap"
    assert len(work.executions) == 1


# Schedules of one's own


class Own:
    def __init__(self, answer):
        self.answer = answer

    def next_slot(self, after_ms):
        return self._answer(after_ms - after_ms % 10_000 + 10_000)

    def latest_slot(self, at_ms):
        return self._answer(at_ms - at_ms % 10_000)

    def _answer(self, slot):
        if isinstance(self.answer, Exception):
            raise self.answer
        return slot if self.answer is None else self.answer


@pytest.mark.parametrize("answer", [ZeroDivisionError(), "soon", 1.5, -1, 10**20, True])
def test_a_schedule_that_fails_is_told_and_keeps_no_other_job_from_running(world, work, jobs, answer):
    schedule = Own(answer)
    bad = make_job("bad", schedule, work, {"jitter": "0s", "catch_up": "1m"})
    a = world.start([bad, *jobs(work)])
    world.advance("95s")
    assert work.slots == [10 * number for number in range(1, 10)]
    errors = of_kind(a, "error")
    assert {event.call for event in errors} == {"schedule"}
    assert {event.job for event in errors} == {"bad"}
    assert 2 <= len(errors) <= 6
    schedule.answer = None
    world.advance("60s")
    assert any(event.job == "bad" for event in of_kind(a, "success"))


def test_a_schedule_without_slots_waits_for_nothing_and_can_be_triggered(world, work, jobs):
    class Never:
        def next_slot(self, after_ms):
            return None

        def latest_slot(self, at_ms):
            return None

    a = world.start(jobs(work, schedule=Never(), catch_up="1d"))
    world.advance("1d")
    assert a.events == []
    assert a.trigger("sync").outcome == "won"


# What an operator sees


def test_the_next_slot_is_always_ahead_and_the_same_everywhere(world, work, jobs):
    """OB01: 'next run' in the past on instances that lost the race or skipped."""
    a, b = world.start(jobs(work), "a"), world.start(jobs(work), "b")
    work.takes_s = 14
    for number in range(40):
        if number == 20:
            b.cut_off()
        world.advance("3700ms")
        slots = [instance._engine.next_slot("sync") for instance in (a, b)]
        assert slots[0] == slots[1] > world.true_ms()
    assert {event.kind for event in b.events} >= {"skip", "error"}


def test_every_slot_that_is_not_run_is_told_with_its_reason(world, work, jobs):
    """HG02: declined runs left no trace: a healthy hourly job looked dead for five days."""
    work.takes_s = 35
    a = world.start(jobs(work))
    world.advance("1005s")
    run = {event.slot for event in of_kind(a, "start")}
    skipped = {event.slot for event in of_kind(a, "skip")}
    assert run | skipped == set(range(world.start_ms + 10_000, world.start_ms + 1_001_000, 10_000))
    assert run & skipped == set()
    assert {event.reason for event in of_kind(a, "skip")} == {"overlap"}
    recorded = {result.slot for result in world.results("sync") if result.status == "overlap"}
    assert recorded == skipped
