"""Two versions of an application on one store, side by side and one after another, with other jobs and schedules."""

import signal
from collections import Counter

import pytest

LEASE = {"lease": "1s", "heartbeat": "200ms"}


def begun(*processes, job="pay"):
    """How often each slot of the job was begun."""
    return Counter(report["slot"] for process in processes for report in process.of("begin", job=job))


def alive(process):
    return process._popen.poll() is None


def test_of_a_changed_schedule_the_slots_of_both_versions_run_each_once(cluster):
    old, new = cluster.start_together(
        {"jobs": [{"name": "pay", "period": "400ms", "overlap": "allow"}]},
        {"jobs": [{"name": "pay", "period": "600ms", "overlap": "allow"}]},
    )
    cluster.wait_until(lambda: len(begun(old, new)) >= 10, "ten slots are begun")
    assert set(begun(old, new).values()) == {1}
    assert {slot for slot in begun(old) if slot % 400} == set()
    assert {slot for slot in begun(new) if slot % 600} == set()
    assert len({slot for slot in begun(old) if slot % 600}) >= 2
    assert len({slot for slot in begun(new) if slot % 400}) >= 2
    assert not old.of("error") + new.of("error")


def test_jobs_that_the_other_version_does_not_know_are_left_alone(cluster):
    slot = cluster.now_ms() - 1
    legacy = {"name": "legacy", "slots": [slot], "seconds": 60, "catch_up": "1h", "max_late": "1h", **LEASE}
    old = cluster.start(jobs=[legacy])
    old.wait("begin", job="legacy")
    new = cluster.start(jobs=[{"name": "pay", "period": "300ms"}])
    old.kill()
    new.wait("success", job="pay", count=8)  # the lease of the killed one is over by then
    assert [report for report in new.reports if report.get("job") == "legacy"] == []
    back = cluster.start(jobs=[{**legacy, "seconds": 0}])  # the deploy is rolled back
    assert back.wait("begin", job="legacy")["attempt"] == 2
    back.wait("success", job="legacy")
    assert [status for _, _, status in cluster.history("legacy")] == ["crashed", "success"]


def test_instances_that_are_replaced_one_by_one_lose_no_slot_and_run_none_twice(cluster):
    both = {"name": "pay", "period": "300ms", "overlap": "allow"}
    before = {"jobs": [both, {"name": "legacy", "period": "300ms"}]}
    after = {"jobs": [both, {"name": "fresh", "period": "300ms"}]}
    old = cluster.start_together(before, before, before)
    new = []
    cluster.wait_until(lambda: len(begun(*old)) >= 3, "the old version runs")
    for number, process in enumerate(old):
        new.append(cluster.start(**after))
        process.signal(signal.SIGTERM)
        assert process.code() == 0, process.errors
        so_far = sum(begun(*new).values())
        cluster.wait_until(lambda: sum(begun(*old, *new).values()) > so_far + 2, "slots go on")  # noqa: B023
        assert len([one for one in old if alive(one)]) == 2 - number
    counted = begun(*old, *new)
    assert set(counted.values()) == {1}
    assert sorted(counted) == list(range(min(counted), max(counted) + 1, 300))
    assert not begun(*new, job="legacy")
    assert not begun(*old, job="fresh")
    cluster.wait_until(lambda: begun(*new, job="fresh"), "the new job runs")


def test_a_run_that_a_stopping_version_gives_back_is_done_by_the_next_one_s_handler(cluster):
    slot = cluster.now_ms() - 1
    job = {"name": "pay", "slots": [slot], "catch_up": "1h", "max_late": "1h", "lease": "30s", "heartbeat": "200ms"}
    old = cluster.start(jobs=[{**job, "handler": "polite", "seconds": 60}])
    old.wait("begin")
    new = cluster.start(jobs=[{**job, "handler": "sleeping", "seconds": 0, "max_attempts": 1}])
    stopped_at = old.signal(signal.SIGTERM)
    taken = new.wait("begin")
    assert (taken["slot"], taken["attempt"]) == (slot, 2)  # given back, it is not used up
    cluster.within(taken["at"] - stopped_at, 10_000, "the hand-over")  # a third of the lease
    new.wait("success")


def test_a_version_that_finds_a_newer_store_does_not_start_and_says_what_to_do(cluster):
    cluster.start(jobs=[{"name": "pay", "period": "300ms"}], newer=True).wait("success")
    late = cluster.start(jobs=[{"name": "pay", "period": "300ms"}], ready=False)
    assert late.code() != 0
    assert "upgrade tenure-sqlite here" in late.errors
    assert not late.of("begin")


def test_a_version_whose_job_a_newer_one_has_written_runs_its_other_jobs_and_not_this_one(cluster):
    old = cluster.start(jobs=[{"name": name, "period": "300ms"} for name in ("pay", "other")])
    old.wait("success", job="pay")
    new = cluster.start(jobs=[{"name": "pay", "period": "300ms"}], newer=True)
    new.wait("success", job="pay")  # what the older one had written was read
    told = old.wait("error", job="pay")
    assert "upgrade" in told["error"]
    so_far = begun(old), len(old.of("success", job="other"))
    old.wait("success", job="other", count=so_far[1] + 4)
    new.wait("success", job="pay", count=4)
    assert max(begun(old)) <= max(so_far[0])
    assert not set(begun(old)) & set(begun(new))
    assert not new.of("error")


@pytest.mark.parametrize("changes", [{"max_attempts": 1, "lease": "2s"}, {"overlap": "allow"}])
def test_versions_that_differ_in_an_option_never_both_hold_a_run(cluster, changes):
    job = {"name": "pay", "period": "300ms", "seconds": 0.1, **LEASE}
    old, new = cluster.start_together({"jobs": [job]}, {"jobs": [{**job, **changes}]})
    cluster.wait_until(lambda: len(begun(old, new)) >= 8, "eight slots are begun")
    assert set(begun(old, new).values()) == {1}
    assert not old.of("error") + new.of("error")
