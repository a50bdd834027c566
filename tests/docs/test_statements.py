"""What the pages say of times and attempts, seen in virtual time."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tenure import Claim, decision
from tenure.job import make_job
from tenure.schedule import every
from tenure.testing import World

README = " ".join((Path(__file__).parents[2] / "README.md").read_text("utf-8").split())
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp()) * 1000


def job(handler, **options):
    return make_job("sync", every("1h"), handler, options)


async def long_run(ctx):
    await asyncio.sleep(40)


def outcomes(world):
    return [(result.attempt, result.status) for result in reversed(world.results("sync"))]


def world_before_noon(seed=0):
    return World(NOON - timedelta(seconds=1), seed=seed)


def running_alone(world, the_job):
    """An instance that runs the job of noon, and one that came later and watches it."""
    holder = world.start([the_job], "holder")
    world.run_until(lambda: holder.count("start") == 1)
    return holder, world.start([the_job], "backup")


# docs/claims.md


def claim(second, token, **changes):
    fields = {"mode": "scheduled", "overlap": "skip", "max_attempts": 3, "max_late_ms": 60_000, **changes}
    return Claim(job="sync", slot=NOON_MS + second * 1000, token=token, instance=token[0], lease_ms=30_000, **fields)


def test_the_example_of_the_claims_page():
    state, won = decision.claim(decision.EMPTY, claim(10, "A1"), NOON_MS + 10_100)
    assert (won.outcome, won.attempt, won.fence) == ("won", 1, 1796126410100)
    state, taken = decision.claim(state, claim(10, "B1"), NOON_MS + 10_300)
    assert (taken.outcome, taken.lease_left_ms) == ("running", 29_800)
    state, way = decision.claim(state, claim(20, "B2"), NOON_MS + 20_200)
    assert (way.outcome, way.slot) == ("overlap", NOON_MS + 10_000)
    state, renewed = decision.heartbeat(state, NOON_MS + 10_000, "A1", NOON_MS + 20_300)
    assert renewed
    state, way = decision.claim(state, claim(30, "B3"), NOON_MS + 30_100)
    assert (way.outcome, way.lease_left_ms) == ("overlap", 20_200)
    takeover = claim(10, "B4", mode="takeover", after=1)
    newer, first = decision.claim(state, claim(50, "B5"), NOON_MS + 50_350)
    assert first.outcome == "won"
    assert decision.claim(newer, takeover, NOON_MS + 50_400)[1].status == "superseded"
    state, won = decision.claim(state, takeover, NOON_MS + 50_400)
    assert (won.outcome, won.attempt, won.fence) == ("won", 2, 1796126450400)
    assert decision.claim(state, claim(50, "B5"), NOON_MS + 50_600)[1].outcome == "overlap"
    assert not decision.heartbeat(state, NOON_MS + 10_000, "A1", NOON_MS + 57_000)[1]


# docs/leases.md


@pytest.mark.parametrize("seed", range(20))
def test_a_takeover_comes_at_most_a_lease_and_a_fiftieth_after_the_last_heartbeat(seed):
    with world_before_noon(seed) as world:
        holder, _ = running_alone(world, job(long_run))
        world.start([job(long_run)], "third")
        world.advance("15s")
        crashed_ms = world.true_ms()
        holder.crash()
        world.advance("2m")
        second, first = world.results("sync")
        assert (first.status, second.status, second.attempt) == ("crashed", "success", 2)
        assert 0 <= second.started_at - first.ended_at <= 600
        assert 20_000 <= second.started_at - crashed_ms <= 31_000


def test_a_holder_that_is_cut_off_stops_before_a_backup_starts():
    with world_before_noon() as world:
        holder, backup = running_alone(world, job(long_run))
        world.advance("15s")
        holder.cut_off()
        world.run_until(lambda: backup.count("takeover") == 1)
        holder.reconnect()
        world.advance("1m")
        second, first = world.results("sync")
        assert (first.status, second.status) == ("interrupted", "success")
        assert first.ended_at <= second.started_at


@pytest.mark.parametrize("heartbeat_s", [10, 2])
def test_a_release_is_seen_within_two_heartbeats_without_hints(heartbeat_s):
    with world_before_noon() as world:
        holder, backup = running_alone(world, job(long_run, heartbeat=f"{heartbeat_s}s"))
        world.advance("5s")
        holder.stop("0s")
        released_ms = world.true_ms()
        world.run_until(lambda: backup.count("start") == 1)
        assert world.true_ms() - released_ms <= 2_000 * heartbeat_s


def test_at_most_once_holds_over_a_crash():
    with world_before_noon() as world:
        holder, backup = running_alone(world, job(long_run, max_attempts=1))
        holder.crash()
        world.advance("5m")
        assert outcomes(world) == [(0, "exhausted"), (1, "crashed")]
        assert backup.count("start") == 0


def test_an_interrupted_run_starts_again_also_with_one_attempt():
    with world_before_noon() as world:
        holder, _ = running_alone(world, job(long_run, max_attempts=1))
        holder.stop("1s")
        world.advance("5m")
        assert outcomes(world) == [(1, "interrupted"), (2, "success")]


def test_a_run_that_was_lost_does_not_start_again_with_one_attempt():
    with world_before_noon() as world:
        holder, _ = running_alone(world, job(long_run, max_attempts=1))
        holder.cut_off()
        world.advance("31s")
        holder.reconnect()
        world.advance("5m")
        assert outcomes(world) == [(0, "exhausted"), (1, "interrupted")]


def test_a_run_that_returns_when_it_is_told_to_stop_does_not_start_again():
    async def returns(ctx):
        await ctx.signal.wait_async()

    with world_before_noon() as world:
        holder, _ = running_alone(world, job(returns, max_attempts=1))
        holder.stop("1s")
        world.advance("5m")
        assert outcomes(world) == [(1, "success")]


# README.md


def test_a_fast_clock_waits_for_the_stores():
    with world_before_noon() as world:
        fast = world.start([job(long_run)], "fast", clock_ahead=timedelta(minutes=10))
        world.run_until(lambda: fast.count("start") == 1, within="2h")
        skip, _ = fast.events
        assert skip.reason == "early"
        assert NOON_MS + 3_600_000 - 1_000 <= world.store_ms() <= NOON_MS + 3_600_000 + 1_000


def test_owners_that_gave_a_run_back_in_a_graceful_stop_do_not_count():
    assert "not counting those that gave the run back in a graceful stop" in README
    with world_before_noon() as world:
        holder, backup = running_alone(world, job(long_run, max_attempts=2))
        holder.stop("1s")
        world.run_until(lambda: backup.count("start") == 1)
        third = world.start([job(long_run, max_attempts=2)], "third")
        backup.crash()
        world.run_until(lambda: third.count("start") == 1)
        world.start([job(long_run, max_attempts=2)], "fourth")
        third.crash()
        world.advance("5m")
        assert outcomes(world) == [(0, "exhausted"), (1, "interrupted"), (2, "crashed"), (3, "crashed")]


def test_a_handler_that_raises_is_not_repeated():
    def fails(ctx):
        raise RuntimeError

    with world_before_noon() as world:
        running_alone(world, job(fails))
        world.advance("50m")
        assert outcomes(world) == [(1, "failed")]


def test_slots_of_an_outage_are_gone_except_for_the_latest_with_catch_up():
    for catch_up, slots in ((None, 0), ("2h", 1)):
        with World(NOON + timedelta(hours=5, minutes=30)) as world:
            world.start([job(long_run, catch_up=catch_up)])
            world.advance("20m")
            assert len(world.results("sync")) == slots


def test_a_slow_start_within_max_late_runs_and_a_later_one_is_skipped():
    for frozen, kind in (("59s", "start"), ("62s", "skip")):
        with world_before_noon() as world:
            instance = world.start([job(long_run)])
            instance.freeze()
            world.advance(frozen)
            instance.thaw()
            world.advance("2s")
            assert [event.kind for event in instance.events][:1] == [kind]
