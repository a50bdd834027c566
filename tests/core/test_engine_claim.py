"""From a slot to a claim and its answer, in virtual time."""

import asyncio
import itertools
import logging
from datetime import timedelta

import pytest
from tenure.errors import BackendUnavailable
from tenure.job import make_job
from tenure.memory import MemoryBackend
from tenure.model import ClaimResult
from tenure.schedule import cron, every
from tenure.testing import World


def kinds(instance):
    return [event.kind for event in instance.events]


def skips(instance, reason):
    return [event for event in instance.events if event.kind == "skip" and event.reason == reason]


# Slots


def test_every_instance_computes_the_same_slots_from_the_schedule_alone(world, work, jobs):
    work.takes_s = 0
    world.start(jobs(work), "a")
    world.advance("3.7s")
    b = world.start(jobs(work), "b")
    world.advance("57s")
    assert work.slots == [10, 20, 30, 40, 50, 60]
    assert {event.slot for event in b.events} <= {world.start_ms + slot * 1000 for slot in range(10, 70, 10)}


def test_each_slot_is_run_once_among_three_instances(world, work, jobs):
    instances = [world.start(jobs(work, jitter="500ms"), name) for name in "abc"]
    world.advance("1h")
    assert sorted(work.slots) == list(range(10, 3_600, 10))
    assert sum(instance.count("start") for instance in instances) == len(work.slots)
    assert min(instance.count("start") for instance in instances) > 0


def test_the_next_slot_is_armed_before_the_current_one_is_handled(world, work, jobs):
    """A long run never delays the schedule: under allow the next run starts beside it."""
    work.takes_s = 35
    world.start(jobs(work, overlap="allow"))
    world.advance("41s")
    assert [done.began_s for done in work.executions] == [10, 20, 30, 40]


def test_a_slot_reached_too_late_by_the_own_clock_is_skipped_and_nothing_is_sent(world, work, jobs):
    a = world.start(jobs(work, max_late="5s"))
    world.advance("8s")
    a.freeze()
    a.cut_off()  # whatever were sent would be an error
    world.advance("8s")
    a.thaw()
    world.advance("1s")
    assert [event.slot for event in skips(a, "late")] == [world.start_ms + 10_000]
    assert {event.kind for event in a.events if event.job} == {"skip"}  # a look at what it watches names no job


def test_a_jump_backward_never_runs_a_slot_twice(world, work, jobs):
    work.takes_s = 1
    a = world.start(jobs(work))
    world.advance("35s")
    a.jump_clock(timedelta(seconds=-30))
    world.advance("90s")
    assert sorted(set(work.slots)) == sorted(work.slots)
    assert work.slots[:3] == [10, 20, 30]


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_wrong_by_an_hour_neither_steals_nor_starts_early_nor_loses(world, work, jobs, hours):
    """A wrong clock makes an instance useless for starts, but it can take nothing away and keeps what it holds."""
    work.takes_s = 8
    world.start(jobs(work), "right")
    world.start(jobs(work), "wrong", clock_ahead=timedelta(hours=hours))
    world.advance("599s")
    assert work.slots == list(range(10, 600, 10))
    assert {done.how for done in work.executions[:-1]} == {"returned"}
    assert all(done.began_s >= done.slot_s for done in work.executions)


def test_a_holder_whose_wall_clock_jumps_keeps_its_run(world, work, jobs):
    work.takes_s = 100
    a, b = world.start(jobs(work), "a"), world.start(jobs(work), "b")
    world.advance("15s")
    holder = a if a.count("start") else b
    holder.jump_clock(timedelta(hours=2))
    world.advance("50s")
    holder.jump_clock(timedelta(hours=-5))
    world.run_until(lambda: holder.count("success") == 1)
    assert work.executions[0].ended_s == 110
    assert work.executions[0].attempt == 1
    assert [done.slot_s for done in work.executions if done.began_s < 110] == [10]


# The claim and its answers


def test_a_claim_that_fails_is_sent_again_with_its_token_until_it_is_answered(world, work, jobs):
    sent = []

    class Flaky(MemoryBackend):
        async def claim(self, claim):
            sent.append((world.elapsed_s, claim.token))
            if len(sent) <= 5:
                raise BackendUnavailable("refused")
            return await super().claim(claim)

    a = world.start(jobs(work), backend=Flaky(world.store))
    world.advance("18s")
    assert work.slots == [10]
    assert len({token for _, token in sent}) == 1
    assert kinds(a)[:6] == ["error"] * 5 + ["start"]
    assert [event.call for event in a.events[:5]] == ["claim"] * 5
    pauses = [later - sooner for (sooner, _), (later, _) in itertools.pairwise(sent)]
    for number, pause in enumerate(pauses):
        assert 0.05 * 2**number <= pause <= 0.1 * 2**number + 0.001


def test_a_claim_is_given_up_when_the_run_is_too_late(world, work, jobs):
    a = world.start(jobs(work, max_late="20s", schedule=every("1h", anchor=world.now)))
    world.advance("3599s")
    a.cut_off()
    world.advance("25s")
    errors = a.count("error")
    assert errors > 3
    assert {event.slot for event in a.events if event.call == "claim"} == {world.start_ms + 3_600_000}
    a.reconnect()
    world.advance("10m")
    assert work.slots == []


@pytest.mark.parametrize(("overlap", "gives_up_s"), [("skip", 1_800), ("allow", 300)])
def test_without_a_limit_a_claim_is_repeated_until_the_next_slot_or_for_ten_leases(
    world, work, jobs, overlap, gives_up_s
):
    sent = []

    class Away(MemoryBackend):
        async def claim(self, claim):
            if claim.mode == "scheduled" and claim.slot == world.start_ms + 1_800_000:
                sent.append(world.elapsed_s)
            raise BackendUnavailable("refused")

    a = world.start(
        jobs(work, max_late=None, overlap=overlap, schedule=every("30m", anchor=world.now)), backend=Away(world.store)
    )
    world.advance("90m")
    assert a.count("error") > 0
    assert gives_up_s - 25 < sent[-1] - sent[0] <= gives_up_s + 1


def test_a_run_given_up_with_an_unknown_answer_is_watched(world, work, jobs):
    """Its claim may have been carried out; nobody else is there to take such a run over."""
    a = world.start(jobs(work, max_late="10s", lease="30s", schedule=cron("10 0 12 * * *")))
    world.advance("9s")
    a.cut_off("replies lost")
    world.advance("13s")  # won without knowing it, given up
    a.reconnect()
    assert work.slots == []
    world.advance("40s")
    assert [(done.slot_s, done.attempt) for done in work.executions] == [(10, 2)]


def test_a_schedule_that_raises_does_not_end_a_claim_that_is_being_repeated(world, work, jobs):
    class Tired:
        def next_slot(self, after_ms):
            if after_ms >= world.start_ms + 10_000:
                raise RuntimeError("tired")
            return world.start_ms + 10_000

        def latest_slot(self, at_ms):
            return None

    a = world.start(jobs(work, max_late=None, schedule=Tired()))
    world.advance("9s")
    a.cut_off()
    world.advance("3s")
    a.reconnect()
    world.advance("10s")
    assert work.slots == [10]


def test_the_answer_running_makes_a_backup_and_an_event(world, work, jobs):
    a = world.start(jobs(work), "a")
    b = world.start(jobs(work), "b")
    world.advance("11s")
    holder, other = (a, b) if a.count("start") else (b, a)
    assert [(event.reason, event.holder) for event in skips(other, "taken")] == [("taken", holder.name)]


def test_overlap_makes_an_event_and_a_record_and_a_backup_of_both_runs(world, work, jobs):
    work.takes_s = 25
    a = world.start(jobs(work), "a")
    world.advance("22s")
    assert [(event.slot - world.start_ms, event.holder) for event in skips(a, "overlap")] == [(20_000, "a")]
    assert [(result.slot - world.start_ms, result.status) for result in world.results("sync")] == [(20_000, "overlap")]
    world.advance("60s")
    assert work.slots[:2] == [10, 40]


def test_late_by_the_stores_clock_is_a_skip(world, work, jobs):
    a = world.start(jobs(work, max_late="5s"))
    world.jump_store_clock(timedelta(minutes=1))
    world.advance("11s")
    assert [event.reason for event in a.events] == ["late"]
    assert [result.status for result in world.results("sync")] == ["late"]


def test_done_is_a_skip_and_nothing_is_watched(world, work, jobs):
    work.takes_s = 0
    a = world.start(jobs(work), "a")
    world.advance("5s")
    b = world.start(jobs(work), "b", clock_ahead=timedelta(seconds=-2))
    world.advance("13s")
    assert kinds(a) == ["start", "success"]
    assert [event.slot for event in skips(b, "taken")] == [world.start_ms + 10_000]
    assert world.start_ms + 10_000 not in b._engine._level._watches.watched("sync")


# Early


def test_a_fast_clock_skips_early_waits_once_and_claims_again(world, work, jobs, caplog):
    a = world.start(jobs(work), clock_ahead=timedelta(seconds=35))
    with caplog.at_level(logging.WARNING, "tenure"):
        world.advance("9s")
        early = skips(a, "early")
        assert len(early) >= 1
        assert work.slots == []
        world.advance("60s")
    assert len([record for record in caplog.records if "ahead of the store" in record.message]) == 1
    assert len(work.slots) >= 1
    assert all(done.began_s >= done.slot_s for done in work.executions)


def test_there_is_one_wait_per_job_at_a_time(world, work, jobs):
    a = world.start(jobs(work, schedule=every("1s")), clock_ahead=timedelta(hours=1))
    world.advance("10m")
    assert len(skips(a, "early")) >= 590
    assert len(a._engine._instance._tasks) < 5
    assert work.slots == []


def test_a_job_removed_while_it_waits_is_not_run(world, work, jobs):
    a = world.start(jobs(work), clock_ahead=timedelta(seconds=35))
    world.advance("6s")
    assert skips(a, "early")
    a.remove("sync")
    world.advance("10m")
    assert work.slots == []
    assert world.active("sync") == ()


# Rubbish


def won(now_ms, **changes):
    return ClaimResult(
        **{"outcome": "won", "now_ms": now_ms, "attempt": 1, "fence": 5, "lease_left_ms": 30_000, **changes}
    )


RUBBISH = {
    "None": lambda now: None,
    "True": lambda now: True,
    "won as text": lambda now: "won",
    "an outcome unknown": lambda now: ClaimResult(outcome="perhaps", now_ms=now),
    "no outcome": lambda now: ClaimResult(outcome=None, now_ms=now),
    "a win without attempt": lambda now: won(now, attempt=None),
    "a win without fence": lambda now: won(now, fence=None),
    "a win with text for a fence": lambda now: won(now, fence="7"),
    "a win of attempt 0": lambda now: won(now, attempt=0),
    "a time that is none": lambda now: won("soon"),
}


@pytest.mark.parametrize("rubbish", RUBBISH.values(), ids=RUBBISH)
def test_an_answer_that_is_none_of_the_protocol_is_an_error_and_never_a_win(world, work, jobs, rubbish):
    """LL06: an exception in acquire was swallowed, or the result ignored: worked without a lock."""

    class Broken(MemoryBackend):
        async def claim(self, claim):
            return rubbish(world.store_ms())

    a = world.start(jobs(work), backend=Broken(world.store))
    world.advance("1m")
    assert work.slots == []
    assert a.count("error") > 3
    assert {event.call for event in a.events if event.kind == "error"} == {"claim"}
    assert all(str(event.error) for event in a.events if event.kind == "error")


@pytest.mark.parametrize("answer", [None, "yes", 1, {}])
def test_a_heartbeat_that_answers_rubbish_keeps_no_lease(world, work, jobs, answer):
    work.takes_s = 100

    class Broken(MemoryBackend):
        async def heartbeat(self, job, slot, token):
            return answer

    a = world.start(jobs(work), backend=Broken(world.store))
    world.advance("45s")
    assert work.executions[0].told_s == 40  # its own deadline
    assert {event.call for event in a.events if event.kind == "error"} == {"heartbeat"}


@pytest.mark.parametrize("answer", [None, [], "nothing"])
def test_recovery_that_gets_rubbish_asks_again(world, work, jobs, answer):
    class Broken(MemoryBackend):
        answers = [answer] * 4

        async def active(self, names):
            return self.answers.pop() if self.answers else await super().active(names)

    a = world.start(jobs(work), backend=Broken(world.store))
    world.advance("12s")
    assert [event.call for event in a.events if event.kind == "error"] == ["active"] * 4
    assert work.slots == [10]


@pytest.mark.parametrize("error", [BackendUnavailable("away"), ValueError("bug"), KeyError("k"), AssertionError()])
def test_whatever_a_backend_raises_is_told_and_survived(world, work, jobs, error):
    class Broken(MemoryBackend):
        broken = True

        async def claim(self, claim):
            if self.broken:
                raise error
            return await super().claim(claim)

    backend = Broken(world.store)
    a = world.start(jobs(work), backend=backend)
    world.advance("25s")
    assert a.events[0].error is error
    backend.broken = False
    world.advance("25s")
    assert len(work.slots) >= 2


# Jobs that are many


def test_hundreds_of_jobs_at_one_slot_spread_over_the_jitter_and_none_is_late():
    """SS01: hundreds of jobs fired in the same millisecond and overloaded the store."""
    claims = []

    class Counting(MemoryBackend):
        async def claim(self, claim):
            claims.append(world.elapsed_s)
            return await super().claim(claim)

    started = []

    def note(ctx):
        started.append(world.elapsed_s - (ctx.slot_ms - world.start_ms) / 1000)

    with World("2026-12-01T12:00:00Z") as world:
        all_jobs = [make_job(f"j{n}", cron("* * * * *"), note, {"jitter": "5s"}) for n in range(600)]
        backends = [Counting(world.store) for _ in range(3)]
        instances = [world.start(all_jobs, backend=backend) for backend in backends]
        world.advance("299s")
        per_second = [0] * 10
        for at in claims:
            per_second[int(at % 60)] += 1
        assert max(per_second[:5]) < 2 * min(per_second[:5])
        assert sum(per_second[5:]) < sum(per_second) / 5  # backups of what ran
        assert len(started) == 600 * 4
        assert sorted(started)[len(started) * 99 // 100] < 5 + 1
        assert not any(skips(instance, "late") for instance in instances)


def test_two_thousand_jobs_due_at_once_all_start_in_time(jobs):
    """MS04: jobs were examined one after another with a 60 s window; the last ones fell out of it and never ran."""
    started = []
    with World("2026-12-01T12:00:00Z", latency="10ms") as world:
        all_jobs = [
            make_job(f"j{n}", cron("1 12 * * *"), lambda ctx: started.append(ctx.job), {"jitter": "0s"})
            for n in range(2_000)
        ]
        a = world.start(all_jobs)
        world.advance("61s")
        assert len(set(started)) == len(started) == 2_000
        assert not skips(a, "late")


def test_async_code_of_the_test_itself_runs_in_the_worlds_time(world, jobs):
    """The bench's own ground: a second of asyncio.sleep is a second of the world."""
    seen = []

    async def handler(ctx):
        began = world.elapsed_s
        await asyncio.sleep(7)
        seen.append(world.elapsed_s - began)

    world.start(jobs(handler))
    world.advance("20s")
    assert seen == [7]
