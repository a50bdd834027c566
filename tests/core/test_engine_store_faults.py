"""What an instance makes of a store that lost writes or answers, was away for long, or has a poor driver."""

import asyncio
import logging
from contextvars import ContextVar
from dataclasses import replace

import pytest
from tenure.clock import SystemClock
from tenure.errors import BackendUnavailable
from tenure.events import Error, Events
from tenure.job import make_job
from tenure.memory import MemoryBackend
from tenure.schedule import cron, every
from tenure.testing import World

ONCE = cron("10 0 12 * * *")  # the world begins at noon: one slot, ten seconds later


def failing_over(world, jobs, work):
    """The holder is dead; another was told of its takeover's attempt before the store lost that."""
    work.takes_s = 600
    a = world.start(jobs(work, schedule=ONCE, lease="30s"), "a")
    world.run_until(lambda: work.executions)
    others = [world.start(jobs(work, schedule=ONCE, lease="30s"), name) for name in "bc"]
    world.advance("5s")
    before = dict(world.store.states)
    a.crash()
    world.run_until(lambda: any(run.attempt == 2 for run in world.active("sync")))
    world.advance("11s")
    b, c = others if others[0].count("takeover") else reversed(others)
    b.crash()
    world.store.states.update(before)
    return c


def counted(world, monkeypatch):
    """The claims that reach the store from now on; far too many are an error."""
    claims = []
    through = world._backend.claim

    async def claim(asked):
        claims.append(asked)
        assert len(claims) < 1_000, "claims without a pause"
        return await through(asked)

    monkeypatch.setattr(world._backend, "claim", claim)
    return claims


def test_a_run_is_taken_over_from_a_store_that_forgot_an_attempt(world, work, jobs, monkeypatch):
    c = failing_over(world, jobs, work)
    claims = counted(world, monkeypatch)
    world.advance("1m")
    assert c.count("takeover") == 1
    assert [claim.after for claim in claims if claim.slot == claims[0].slot] == [1]  # it has looked before


def test_a_takeover_of_unknown_outcome_is_given_back_when_the_watch_ends(world, work, jobs):
    """Its reply was lost, and before it is asked for again the instance stops."""
    work.takes_s = 600
    a = world.start(jobs(work, schedule=ONCE, lease="30s"), "a")
    world.run_until(lambda: work.executions)
    b = world.start(jobs(work, schedule=ONCE, lease="30s"), "b")
    world.advance("1s")
    a.crash()
    world.advance("25s")
    b.cut_off("replies lost")
    world.run_until(lambda: any(run.attempt == 2 for run in world.active("sync")))
    world.run_until(lambda: b.count("error"))
    b.reconnect()
    b.stop()
    assert [(run.attempt, run.live) for run in world.active("sync")] == [(2, False)]


def test_many_runs_in_line_do_not_push_the_one_in_the_way_out_of_the_watches(world, work, jobs):
    work.takes_s = 600
    a = world.start(jobs(work, schedule=ONCE), "a")
    world.run_until(lambda: work.executions)
    b = world.start(jobs(work, schedule=ONCE), "b")
    world.advance("1s")
    for _ in range(20):
        assert b.trigger("sync").outcome == "overlap"
        world.advance("10ms")
    a.crash()
    world.advance("1m")
    assert b.count("takeover") == 1


@pytest.mark.parametrize("call", ["claim", "heartbeat", "finish", "active", "save_result"])
def test_a_driver_that_cancels_its_own_call_is_a_store_that_failed(world, work, jobs, monkeypatch, call):
    through, calls = getattr(world._backend, call), []

    async def cancelled_once(*args, **options):
        calls.append(call)
        if len(calls) == 1:
            raise asyncio.CancelledError
        return await through(*args, **options)

    monkeypatch.setattr(world._backend, call, cancelled_once)
    work.takes_s = 15
    a = world.start(jobs(work, schedule=ONCE))
    world.advance("1m")
    assert [event.call for event in a.events if isinstance(event, Error)] == [call]
    assert [(result.attempt, result.status) for result in world.results("sync")] == [(1, "success")]


def test_what_became_late_in_line_for_a_slow_store_is_not_claimed(world, work, jobs, monkeypatch):
    many = [job for number in range(100) for job in jobs(work, name=f"j{number}", schedule=every("1s"), max_late="10s")]
    a = world.start(many)
    a.cut_off("silent")
    world.advance("3m")
    sent, through = [], world._backend.claim

    async def claim(asked):
        if asked.mode == "scheduled":
            sent.append(world.true_ms() - asked.slot)
        return await through(asked)

    monkeypatch.setattr(world._backend, "claim", claim)
    a.reconnect()
    world.advance("20s")
    assert sent
    assert max(sent) <= 15_000  # ten seconds, and a claim that was on its way for five
    assert any(event.reason == "late" for event in a.events if event.kind == "skip")


def test_a_job_replaced_while_its_takeover_is_on_its_way_keeps_the_lease_that_was_asked_for(world, work, jobs):
    """The new lease is longer by far, and a third of it would be too late for a heartbeat."""
    work.takes_s = 60
    a = world.start(jobs(work, schedule=ONCE, lease="3s"), "a")
    world.run_until(lambda: work.executions)
    b = world.start(jobs(work, schedule=ONCE, lease="3s"), "b")
    b.slow_down("100ms")
    world.advance("1s")
    a.crash()
    world.run_until(lambda: any(run.attempt == 2 for run in world.active("sync")))
    assert not b.count("takeover")  # the answer is on its way
    b.replace("sync", ONCE, work, lease="10m")
    world.advance("2m")
    assert [(result.attempt, result.status) for result in world.results("sync")] == [(2, "success"), (1, "crashed")]


def test_a_log_that_raises_changes_nothing():
    def refuse(record):
        raise ValueError("a filter of the application's own")

    told = []
    logger = logging.getLogger("tenure")
    logger.addFilter(refuse)
    try:
        Events(SystemClock(), (told.append,)).emit(
            Error(job="sync", slot=0, instance="a", call="claim", error=OSError())
        )
    finally:
        logger.removeFilter(refuse)
    assert len(told) == 1


WRONG_ANSWERS = {
    "now_ms": ("claim", {"now_ms": None}),
    "lease_left_ms": ("claim", {"outcome": "running", "attempt": 1, "lease_left_ms": "30s"}),
    "attempt": ("claim", {"outcome": "running", "attempt": "1"}),
    "wait_ms": ("claim", {"outcome": "none", "wait_ms": "soon"}),
    "no slot": ("claim", {"outcome": "overlap", "slot": None}),
    "slot": ("claim", {"outcome": "overlap", "slot": -5}),
    "runs": ("active", {"runs": None}),
}


@pytest.mark.parametrize(("call", "changes"), WRONG_ANSWERS.values(), ids=WRONG_ANSWERS)
def test_an_answer_that_is_none_of_the_protocol_is_an_error_and_asked_for_again(
    world, work, jobs, monkeypatch, call, changes
):
    through, answers = getattr(world._backend, call), []

    async def wrong_once(*args):
        answers.append(await through(*args))
        return answers[-1] if len(answers) > 1 else replace(answers[0], **changes)

    monkeypatch.setattr(world._backend, call, wrong_once)
    a = world.start(jobs(work, schedule=ONCE))
    world.advance("20s")
    assert [event.call for event in a.events if isinstance(event, Error)] == [call]
    assert a.count("success") == 1


def test_a_lease_with_less_than_nothing_left_is_not_asked_about_without_a_pause(world, work, jobs, monkeypatch):
    work.takes_s = 60
    world.start(jobs(work, schedule=ONCE), "a")
    world.run_until(lambda: work.executions)
    through, looks = world._backend.claim, world._backend.active

    async def claim(asked):
        answer = await through(asked)
        return replace(answer, lease_left_ms=-5) if answer.outcome == "running" else answer

    async def active(names):
        answer = await looks(names)
        return replace(answer, runs=tuple(replace(run, lease_left_ms=-5) for run in answer.runs))

    monkeypatch.setattr(world._backend, "claim", claim)
    monkeypatch.setattr(world._backend, "active", active)
    world.start(jobs(work, schedule=ONCE), "b")
    claims = counted(world, monkeypatch)
    world.advance("50s")
    assert 2 <= len(claims) <= 6


def test_a_driver_s_deadline_in_its_context_is_not_left_to_other_calls():  # as pymongo.timeout() keeps it
    deadline = ContextVar("deadline", default=float("inf"))

    class WithDeadline(MemoryBackend):
        calls = 0

        async def claim(self, claim):
            loop = asyncio.get_running_loop()
            before = deadline.set(min(deadline.get(), loop.time() + 1))
            self.calls += 1
            try:
                await asyncio.sleep(0.6 if self.calls % 2 else 0.3)  # calls overlap, and the first to begin ends last
                if loop.time() > deadline.get():
                    raise BackendUnavailable("its deadline is over")
                return await super().claim(claim)
            finally:
                deadline.reset(before)

    with World(start="2026-12-01T12:00:00Z") as world:
        instance = world.start(
            [make_job(f"job-{number}", every("10s"), lambda: None, {"jitter": "500ms"}) for number in range(3)],
            backend=WithDeadline(world.store),
        )
        world.advance("1m")
        assert instance.count("error") == 0
        assert instance.count("success") >= 15
