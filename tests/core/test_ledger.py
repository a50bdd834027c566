"""The slot ledger: of each slot there is a record of what became of it, also where nobody ran it."""

import pytest
from tenure.history import read_rows
from tenure.job import make_job
from tenure.model import RunResult
from tenure.schedule import cron, every


def ledger(world, job="sync"):
    """What the store says of each slot, in seconds since the world began."""
    told = {}
    for result in reversed(world.results(job)):
        told.setdefault((result.slot - world.start_ms) // 1_000, []).append(result.status)
    return told


def test_slots_of_an_outage_are_run_late_or_superseded(world, work, jobs):
    """While the store is away their claims are repeated; the one that comes first supersedes the older ones."""
    work.takes_s = 1
    a = world.start(jobs(work, lease="3s"))
    world.advance("15s")
    a.cut_off()
    world.advance("50s")
    a.reconnect()
    world.advance("60s")
    told = ledger(world)
    assert sorted(told) == list(range(10, 130, 10))
    assert {status for slot in range(20, 70, 10) for status in told[slot]} <= {"success", "superseded", "overlap"}
    assert [told[slot] for slot in (10, 110, 120)] == [["success"]] * 3


def test_slots_that_an_outage_made_too_late_are_told_of_once_it_is_over(world, work, jobs):
    work.takes_s = 1
    a = world.start(jobs(work, lease="3s", max_late="15s"))
    world.advance("15s")
    a.cut_off()
    world.advance("65s")
    a.reconnect()
    world.advance("30s")
    told = ledger(world)
    assert {status for slot in (20, 30, 40) for status in told[slot]} <= {"late", "superseded"}
    assert sorted(told) == list(range(10, 110, 10))


def test_a_slot_that_an_outage_made_too_late_is_late_if_no_newer_one_was_started(world, work, jobs):
    a = world.start(jobs(work, schedule=cron("10 0 12 * * *"), lease="3s", max_late="15s"))
    world.advance("5s")
    a.cut_off()
    world.advance("65s")
    a.reconnect()
    world.advance("30s")
    assert ledger(world) == {10: ["late"]}


def test_a_slot_that_the_own_thread_of_a_timed_out_run_keeps_from_starting_is_an_overlap(world, work):
    work.stubborn, work.takes_s = True, 25
    world.start([make_job("sync", every("10s"), work, {"jitter": "0s", "timeout": "3s"})])
    world.advance("61s")
    told = ledger(world)
    assert [told[slot] for slot in (10, 20, 30)] == [["failed"], ["overlap"], ["overlap"]]


def test_what_was_superseded_unseen_is_told_by_who_watched_it(world, work, jobs):
    """Its claim was never answered, a newer run was started by another, and the store is back."""
    work.takes_s = 100
    a = world.start(jobs(work, max_late="5s", lease="30s"), "a")
    world.advance("9s")
    a.cut_off()
    world.advance("16s")  # its claims of 10 and 20 have been given up
    world.start([make_job("sync", every("10s"), work, {"jitter": "0s"})], "b")
    world.advance("6s")
    a.reconnect()
    world.advance("60s")
    told = ledger(world)
    assert (told[10], told[20]) in [(["superseded"], ["superseded"]), (["late"], ["late"])]
    assert told[10] == ["superseded"]


@pytest.mark.parametrize("seed", range(6))
def test_no_slot_is_without_a_record_whatever_the_instances_go_through(world, work, jobs, seed):
    """One is cut off, one is frozen, one is killed and one stopped; another is up all the while, but may be cut off."""
    work.takes_s = 4
    chance = world._rng
    chance.seed(seed)
    options = {"lease": "6s", "max_late": "20s", "jitter": "500ms"}
    steady = world.start(jobs(work, **options), "steady")
    for turn in range(8):
        one = world.start(jobs(work, **options), f"one-{turn}")
        other = world.start(jobs(work, **options), f"other-{turn}")
        world.advance(f"{chance.randrange(1, 30)}s")
        one.cut_off()
        other.freeze()
        world.advance(f"{chance.randrange(1, 40)}s")
        steady.cut_off()
        world.advance(f"{chance.randrange(1, 40)}s")
        steady.reconnect()
        one.reconnect()
        other.thaw()
        world.advance(f"{chance.randrange(1, 20)}s")
        one.crash()
        other.stop(wait=False)
    world.advance("1m")
    due = (world.true_ms() - world.start_ms) // 1_000 - 30
    missing = [slot for slot in range(10, due, 10) if slot not in ledger(world)]
    assert missing == []


def test_a_slot_that_was_run_after_all_keeps_its_record(world, work, jobs):
    """Who could not run it told why, and another ran it."""
    work.stubborn, work.takes_s = True, 25
    world.start([make_job("sync", every("10s"), work, {"jitter": "0s", "timeout": "3s"})], "a")
    world.advance("15s")
    quick = make_job("sync", every("10s"), lambda ctx: None, {"jitter": "0s"})
    world.start([quick], "b")
    world.advance("10s")
    assert sorted(ledger(world)[20]) == ["overlap", "success"]


def test_a_reader_leaves_out_why_one_did_not_run_what_another_did():
    results = [
        RunResult(20, 1, 7, "success", "b", 21, 22),
        RunResult(20, 0, 0, "overlap", "a", None, None),
        RunResult(10, 0, 0, "overlap", "a", None, None),
    ]
    assert [(row.slot, row.status) for row in read_rows(results, [], 20)] == [(20, "success"), (10, "overlap")]
