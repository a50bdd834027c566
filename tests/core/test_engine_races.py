"""Races that the simulation found (tests/simulation), each alone."""

import asyncio
from datetime import timedelta

import pytest
from tenure.errors import BackendUnavailable, SchedulerStateError
from tenure.memory import MemoryBackend
from tenure.model import ClaimResult
from tenure.schedule import cron

ONCE = cron("10 0 12 * * *")  # the world begins at noon: one slot, ten seconds later


def held(world, work, jobs, **options):
    """An instance that executes the run due at ten seconds."""
    a = world.start(jobs(work, schedule=ONCE, lease="3s", **options), "a")
    world.run_until(lambda: work.executions)
    return a


def test_an_end_that_waits_out_an_outage_is_sent_once_more_by_a_stop(world, work, jobs):
    """A heartbeat has renewed the lease since; else the run, which is complete, would be another's in three seconds."""
    a = held(world, work, jobs)
    world.advance("1s")
    a.cut_off()
    world.advance("40s")
    a.reconnect()
    world.run_until(lambda: world.active("sync")[0].live, within="2s", what="the heartbeat that renews the lease")
    assert a.count("success") == 0
    a.stop()
    assert a.count("success") == 1
    assert world.active("sync") == ()


def test_a_stop_does_not_wait_for_a_store_that_stays_away(world, work, jobs):
    a = held(world, work, jobs)
    world.advance("1s")
    a.cut_off()
    world.advance("40s")
    began_s = world.elapsed_s
    a.stop()
    assert world.elapsed_s - began_s < 1
    assert a.count("interrupted") == 1


def test_an_instance_does_not_take_over_a_run_whose_end_it_is_storing(world, work, jobs):
    """The slot after it was in its way, and made it a backup for its own run."""

    class WithoutFinish(MemoryBackend):
        away = True

        async def finish(self, job, slot, token, status):
            if self.away:
                raise BackendUnavailable("away")
            return await super().finish(job, slot, token, status)

        async def heartbeat(self, job, slot, token):
            if self.away:
                raise BackendUnavailable("away")
            return await super().heartbeat(job, slot, token)

    backend = WithoutFinish(world.store)
    twice = cron("10,13 0 12 * * *")
    a = world.start(jobs(work, schedule=twice, lease="4s", max_late="1s"), "a", backend=backend)
    world.run_until(lambda: any(event.kind == "skip" and event.reason == "overlap" for event in a.events), within="1m")
    assert [done.how for done in work.executions] == ["returned"]
    world.advance("20s")
    backend.away = False
    world.advance("30s")
    assert work.slots == [10]
    assert a.count("success") == 1


def test_a_backup_looks_when_another_answer_tells_that_the_lease_is_over_sooner(world, work, jobs):
    """Its watch, of a run that it lost itself, was told of no lease; recovery of the job added again is."""
    asked = []

    class Noting(MemoryBackend):
        async def claim(self, claim):
            asked.append(world.elapsed_s)
            return await super().claim(claim)

    work.takes_s = 600
    added = jobs(work, schedule=ONCE, lease="60s", heartbeat="30s")
    world.start(added, "a")
    world.run_until(lambda: work.executions)
    b = world.start(added, "b", backend=Noting(world.store))
    watches, slot = b._engine._level._watches, world.start_ms + 10_000
    b._call(lambda: watches.end("sync"))
    b._call(lambda: watches.watch(added[0], slot, after=1))
    world.advance("1s")
    told_s, before = world.elapsed_s, len(asked)
    b._call(lambda: watches.back_up(added[0], slot, after=1, lease_left_ms=2_000))
    world.advance("4s")
    assert [2 <= at - told_s <= 3.2 for at in asked[before:]] == [True]


def test_a_job_added_again_while_it_waits_for_recovery_is_recovered_first(world, work, jobs):
    """The slot that waited belongs to the job that was removed; the one added has not been asked for yet."""

    class Slow(MemoryBackend):
        def __init__(self, store):
            super().__init__(store)
            self.asked = []
            self.fails = True

        async def active(self, names):
            await asyncio.sleep(0.05)
            if self.fails:
                raise BackendUnavailable("away")
            self.asked.append("active")
            return await super().active(names)

        async def claim(self, claim):
            self.asked.append(claim.mode)
            return await super().claim(claim)

    backend = Slow(world.store)
    added = jobs(work, max_late="20s")
    a = world.start(added, "a", backend=backend)
    world.advance("10500ms")
    a.remove("sync")
    a._call(lambda: a._engine.add(added))
    backend.fails = False
    world.run_until(lambda: "scheduled" in backend.asked, within="30s")
    assert backend.asked == ["active", "active", "scheduled"]


def test_a_trigger_of_a_job_added_again_meanwhile_waits_for_its_recovery(world, work, jobs):
    """It began to wait for the recovery of the one that was removed."""
    asked = []

    class Slow(MemoryBackend):
        async def active(self, names):
            await asyncio.sleep(1)
            asked.append("active")
            return await super().active(names)

        async def claim(self, claim):
            asked.append(claim.mode)
            return await super().claim(claim)

    added = jobs(work, schedule=ONCE)
    a = world.start(added, "a", backend=Slow(world.store))
    triggered = a._begin(a._engine.trigger("sync"))
    world.advance("500ms")
    a.remove("sync")
    a._call(lambda: a._engine.add(added))
    world.run_until(triggered.done, within="5s")
    assert asked == ["active", "active", "manual"]


def test_the_claims_of_a_fast_clock_are_not_sent_all_at_once_when_they_are_due(world, work, jobs):
    """All of them were early, and wait for the same moment."""

    class Counting(MemoryBackend):
        on_their_way = most = 0

        async def claim(self, claim):
            self.on_their_way += 1
            self.most = max(self.most, self.on_their_way)
            await asyncio.sleep(0.05)
            self.on_their_way -= 1
            return await super().claim(claim)

    backend = Counting(world.store)
    many = [job for n in range(200) for job in jobs(work, schedule=ONCE, name=f"job{n}")]
    a = world.start(many, "a", backend=backend, clock_ahead=timedelta(seconds=5))
    world.advance("20s")
    assert sum(event.kind == "skip" and event.reason == "early" for event in a.events) == 200
    assert len(work.executions) == 200
    assert backend.most == 64


def test_a_handler_is_told_the_overlap_rule_its_claim_was_won_under(world, work, jobs):
    """The job was replaced while the takeover's claim was repeated: beside another run, fences are compared per run."""
    scopes = []

    async def handler(ctx):
        scopes.append((ctx.overlap, ctx.fence_scope))

    a = world.start(jobs(work, schedule=ONCE, lease="3s", overlap="allow"), "a")
    world.run_until(lambda: work.executions)
    b = world.start(jobs(handler, schedule=ONCE, lease="3s", overlap="allow"), "b")
    world.advance("100ms")
    a.crash()
    b.cut_off("refused")

    def failed():
        return [event.call for event in b.events if event.kind == "error"]

    world.run_until(lambda: "claim" in failed(), within="10s", what="a claim that fails")
    b.replace("sync", ONCE, handler, lease="3s", overlap="skip")
    world.advance("3s")
    b.reconnect()
    world.run_until(lambda: b.count("success"), within="10s")
    assert scopes == [("allow", "run")]


@pytest.mark.parametrize("leases", [True, False], ids=["lease", "claim-only"])
def test_a_trigger_takes_no_other_slot_once_its_instance_stops(world, work, jobs, leases):
    """Its slot is another's; the answer comes when the stop has begun."""
    asked = []

    class ClaimOnly:
        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            pass

        async def save_result(self, job, result):
            pass

        async def claim(self, job, slot, token):
            asked.append(slot)
            await asyncio.sleep(1)
            return False

    class Leases(MemoryBackend):
        async def claim(self, claim):
            asked.append(claim.slot)
            await asyncio.sleep(1)
            return ClaimResult(outcome="done", now_ms=world.store_ms(), status="superseded")

    a = world.start(jobs(work, schedule=ONCE), "a", backend=Leases(world.store) if leases else ClaimOnly())
    world.advance("1s")
    triggered = a._begin(a._engine.trigger("sync"))
    world.advance("500ms")
    a.stop()
    assert len(asked) == 1
    with pytest.raises(SchedulerStateError, match="stops and claims no more"):
        triggered.result()
