"""The engine on a backend that only decides who runs a slot."""

import asyncio
from datetime import timedelta

import pytest
from tenure.errors import BackendUnavailable
from tenure.schedule import cron, every

ONCE = cron("10 0 12 * * *")


class Claims:
    """The smallest shared store: who has claimed which run, and the records."""

    def __init__(self):
        self.tokens = {}
        self.results = []


class ClaimOnly:
    """A claim-only backend: nothing but claim and save_result."""

    def __init__(self, claims):
        self.claims = claims
        self.entered = 0
        self.asked = []
        self.fails = 0
        self.answer = None

    async def __aenter__(self):
        self.entered += 1
        return self

    async def __aexit__(self, *exc):
        self.entered -= 1

    async def claim(self, job, slot, token):
        self.asked.append((job, slot, token))
        if self.fails:
            self.fails -= 1
            raise BackendUnavailable("away")
        won = self.claims.tokens.setdefault((job, slot), token) == token
        return won if self.answer is None else self.answer

    async def save_result(self, job, result):
        self.claims.results.append(result)


@pytest.fixture
def claims():
    return Claims()


@pytest.fixture
def backend(claims):
    return ClaimOnly(claims)


def kinds(instance):
    return [event.kind for event in instance.events]


def of_kind(instance, kind):
    return [event for event in instance.events if event.kind == kind]


def test_claim_then_handler_then_record(world, work, jobs, backend):
    a = world.start(jobs(work, schedule=ONCE), "a", backend=backend)
    world.advance("1m")
    assert kinds(a) == ["start", "success"]
    (done,) = work.executions
    assert (done.attempt, done.fence, done.mode) == (1, 0, "scheduled")
    (result,) = backend.claims.results
    assert (result.status, result.attempt, result.instance) == ("success", 1, "a")
    assert (result.started_at - world.start_ms, result.ended_at - world.start_ms) == (10_000, 13_000)
    assert len(backend.asked) == 1  # no heartbeats, no backups


def test_each_slot_is_run_once_among_instances_and_the_others_skip_it(world, work, jobs, claims):
    instances = [world.start(jobs(work, jitter="500ms"), backend=ClaimOnly(claims)) for _ in range(3)]
    world.advance("605s")
    assert sorted(work.slots) == list(range(10, 601, 10))
    skipped = [event for instance in instances for event in of_kind(instance, "skip")]
    assert len(skipped) == 2 * 60
    assert {event.reason for event in skipped} == {"taken"}


def test_a_claim_that_fails_is_repeated_with_its_token(world, work, jobs, backend):
    backend.fails = 4
    a = world.start(jobs(work, schedule=ONCE), backend=backend)
    world.advance("1m")
    assert kinds(a) == ["error"] * 4 + ["start", "success"]
    assert len({token for _, _, token in backend.asked}) == 1


def test_a_claim_that_fails_until_the_run_is_too_late_is_given_up(world, work, jobs, backend):
    backend.fails = 10**6
    a = world.start(jobs(work, schedule=ONCE, max_late="20s"), backend=backend)
    world.advance("10m")
    assert set(kinds(a)) == {"error"}
    assert a._engine._instance._tasks == set()


@pytest.mark.parametrize("answer", ["yes", 1, {}, object()])
def test_a_truthy_answer_that_is_not_true_is_no_win(world, work, jobs, backend, answer):
    """LL06: a claim-only backend returned truthy junk."""
    backend.answer = answer
    a = world.start(jobs(work), backend=backend)
    world.advance("1m")
    assert work.executions == []
    assert "neither True nor False" in str(a.events[0].error)


def test_there_is_no_recovery_and_no_takeover(world, work, jobs, claims):
    work.takes_s = 1_000
    a = world.start(jobs(work, schedule=ONCE), "a", backend=ClaimOnly(claims))
    world.advance("15s")
    a.crash()
    world.start(jobs(work, schedule=ONCE), "b", backend=ClaimOnly(claims))
    world.advance("10m")
    assert len(work.executions) == 1


def test_catching_up_works(world, work, jobs, claims):
    world.advance("35s")
    world.start(jobs(work, catch_up="1m"), backend=ClaimOnly(claims))
    world.start(jobs(work, catch_up="1m"), backend=ClaimOnly(claims))
    world.advance("1s")
    assert [(done.slot_s, done.mode) for done in work.executions] == [(30, "catch-up")]


def test_a_timeout_fails_the_run(world, work, jobs, backend):
    work.takes_s = 100
    a = world.start(jobs(work, schedule=ONCE, timeout="2s"), backend=backend)
    world.advance("1m")
    (failure,) = of_kind(a, "failure")
    assert (failure.timeout, failure.duration_ms, failure.going_on) == (True, 2_000, ())


def test_a_handler_that_goes_on_after_its_timeout_blocks_the_jobs_later_runs_here(world, work, jobs, backend):
    work.takes_s, work.stubborn = 35, True
    a = world.start(jobs(work, timeout="2s"), backend=backend)
    world.advance("44s")
    assert work.slots == [10]
    assert [event.reason for event in of_kind(a, "skip")] == ["overlap"] * 3
    assert a.trigger("sync").outcome == "overlap"
    world.advance("10s")
    assert work.slots == [10, 50]


def test_a_failure_is_recorded(world, work, jobs, backend):
    work.raises = ValueError("boom")
    a = world.start(jobs(work, schedule=ONCE), backend=backend)
    world.advance("1m")
    assert kinds(a) == ["start", "failure"]
    assert "boom" in backend.claims.results[0].error


def test_a_stop_tells_waits_and_cancels(world, work, jobs, backend):
    work.takes_s = 100
    a = world.start(jobs(work, schedule=ONCE), backend=backend)
    world.advance("12s")
    a.stop("5s")
    (done,) = work.executions
    assert (done.told_s, done.ended_s) == (12, 17)
    assert [event.reason for event in of_kind(a, "interrupted")] == ["stop"]
    assert [result.status for result in backend.claims.results] == ["interrupted"]
    assert backend.entered == 0


def test_a_win_that_arrives_during_a_stop_is_run_within_the_grace_since_it_cannot_be_given_back(
    world, work, jobs, claims
):
    class Slow(ClaimOnly):
        async def claim(self, job, slot, token):
            await asyncio.sleep(1)
            return await super().claim(job, slot, token)

    a = world.start(jobs(work, schedule=ONCE), backend=Slow(claims))
    world.advance("10500ms")
    a.stop("30s")
    (done,) = work.executions
    assert (done.reason, done.how) == ("stop", "returned")
    assert kinds(a) == ["start", "success"]


def test_a_trigger_runs_now_and_takes_the_next_free_slot(world, work, jobs, claims):
    a = world.start(jobs(work, schedule=every("1h")), backend=ClaimOnly(claims))
    world.advance("5s")
    assert [a.trigger("sync").outcome for _ in range(3)] == ["won"] * 3
    world.advance("1s")
    assert sorted(work.slots) == [5, 5.001, 5.002]
    assert {done.mode for done in work.executions} == {"manual"}


def test_jobs_come_and_go(world, work, jobs, backend):
    a = world.start([], backend=backend)
    a.add("sync", every("10s"), work, jitter="0s")
    world.advance("15s")
    a.replace("sync", every("5s"), work, jitter="0s")
    world.advance("6s")
    a.remove("sync")
    world.advance("1m")
    assert work.slots == [10, 20]


def test_a_clock_set_back_runs_no_slot_twice(world, work, jobs, backend):
    work.takes_s = 0
    a = world.start(jobs(work), backend=backend)
    world.advance("35s")
    a.jump_clock(timedelta(seconds=-30))
    world.advance("80s")
    assert sorted(set(work.slots)) == sorted(work.slots)
