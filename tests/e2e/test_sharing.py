"""Several processes on one file: each slot is run once, whatever their clocks, starts and forks."""

import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

HOUR_MS = 3_600_000
PERIOD_MS = 500


def begins(*processes, job="pay"):
    """How often each slot of the job was begun."""
    return Counter(report["slot"] for process in processes for report in process.of("begin", job=job))


def each_slot_once(counts, period_ms=PERIOD_MS):
    assert set(counts.values()) == {1}, counts
    slots = sorted(counts)
    assert slots == list(range(slots[0], slots[-1] + 1, period_ms))


def test_processes_that_share_a_schedule_run_each_slot_once(cluster):
    processes = cluster.start_together({}, {}, {})
    for process in processes:
        process.ask("add", name="pay", period=f"{PERIOD_MS}ms", jitter="60ms")
    cluster.wait_until(lambda: len(begins(*processes)) >= 8, "eight slots are run")
    each_slot_once(begins(*processes))
    assert not [report for process in processes for report in process.of("error")]
    assert all(process.of("begin", "skip") for process in processes)


def test_two_applications_in_one_file_do_not_see_each_other(cluster):
    slot = cluster.now_ms() - 1
    job = {"name": "pay", "slots": [slot], "catch_up": "1h", "seconds": 0.5}
    one, other = cluster.start_together({"namespace": "one", "jobs": [job]}, {"namespace": "other", "jobs": [job]})
    for process in (one, other):
        assert process.wait("success")["slot"] == slot
        assert process.of("begin")[0]["attempt"] == 1
    namespaces = cluster.rows("select namespace, slot from tenure_results order by namespace")
    assert namespaces == [("one", slot), ("other", slot)]


def test_a_start_inside_a_slot_that_was_run_does_not_run_it_again(cluster):  # DR03, MS10
    slot = cluster.now_ms() - 1
    job = {"name": "pay", "slots": [slot], "catch_up": "1h"}
    first = cluster.start(jobs=[job], host="start")
    first.wait("success")
    first.ask("stop")
    again = cluster.start(jobs=[job])
    again.wait("skip", reason="taken")
    assert again.ask("trigger", name="pay") == "won"
    assert [begun["slot"] == slot for begun in again.of("begin")] == [False]


def test_of_processes_that_start_together_on_an_empty_place_one_runs(cluster):  # DR08
    slot = cluster.now_ms()
    job = {"name": "pay", "slots": [slot], "catch_up": "1h", "jitter": "0s", "seconds": 0.5}
    processes = [cluster.start(ready=False, wait_until_ms=slot + 1_500, jobs=[job]) for _ in range(6)]
    for process in processes:
        process.wait("ready")
    cluster.wait_until(lambda: begins(*processes), "one runs")
    for process in processes:
        assert process.ask("trigger", name="pay") in ("won", "overlap")
    assert begins(*processes)[slot] == 1
    assert not [report for process in processes for report in process.of("error")]


def test_a_clock_that_is_an_hour_off_steals_nothing_loses_nothing_and_starts_nothing_early(cluster):  # CK05
    lease = {"lease": "1s", "heartbeat": "200ms"}
    right, fast, slow = cluster.start_together({}, {"clock_ahead_ms": HOUR_MS}, {"clock_ahead_ms": -HOUR_MS})
    for process in (right, fast, slow):
        process.ask("add", name="pay", period=f"{PERIOD_MS}ms")
    slot = cluster.now_ms() - 1
    for process in (right, fast, slow):
        process.ask("add", name="long", slots=[slot], seconds=3, **{**lease, "catch_up": "12h", "max_late": "12h"})
        if process is right:
            right.wait("begin", job="long")
    for holder in (fast, slow):
        holder.ask("add", name=f"of {holder.pid}", slots=[], seconds=3, **lease)
        assert holder.ask("trigger", name=f"of {holder.pid}") == "won"
    right.wait("success", job="long")
    assert not fast.of("begin", "takeover", job="long")
    assert not slow.of("begin", "takeover", job="long")
    for holder in (fast, slow):
        success = holder.wait("success", job=f"of {holder.pid}")
        assert success["attempt"] == 1
        assert abs(success["slot"] - cluster.now_ms()) < HOUR_MS / 2  # the slot of a trigger is the store's time
        (started_at, ended_at), *_ = cluster.rows(
            f"select started_at, ended_at from tenure_results where job = 'of {holder.pid}'"
        )
        assert abs(started_at - cluster.now_ms()) < HOUR_MS / 2
        assert 2_500 < ended_at - started_at < 30_000
    for process in (fast, slow):
        assert not process.of("begin", job="pay")  # an hour early, or an hour late
    assert fast.of("skip", job="pay", reason="early")
    assert slow.of("skip", job="pay", reason="taken") or slow.of("skip", job="pay", reason="late")
    each_slot_once(begins(right))
    for report in right.of("begin", job="pay"):
        assert report["at"] >= report["slot"]


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
def test_a_backup_whose_clock_is_an_hour_off_takes_a_dead_holder_s_run_over_in_time(cluster, ahead_ms):
    lease = {"lease": "1s", "heartbeat": "200ms", "max_late": "12h"}
    slot = cluster.now_ms() - 1
    holder, backup = cluster.start_together({}, {"clock_ahead_ms": ahead_ms})
    holder.ask("add", name="pay", slots=[slot], seconds=60, catch_up="1h", **lease)
    holder.wait("begin")
    backup.ask("add", name="pay", slots=[slot], **lease)
    time.sleep(1)
    assert not backup.of("begin")
    killed_at = holder.kill()
    begun = backup.wait("begin")
    assert begun["attempt"] == 2
    assert begun["at"] > killed_at
    cluster.within(begun["at"] - killed_at, 1_000 + 1_500, "the takeover")


@pytest.mark.slow
def test_many_jobs_of_one_slot_spread_over_the_jitter_and_none_is_late(cluster):  # SS01, light
    jobs = [f"job-{number}" for number in range(100)]
    processes = cluster.start_together({}, {}, {})
    slot = cluster.now_ms() + 3_000
    for process in processes:
        for job in jobs:
            process.send("add", name=job, slots=[slot], jitter="2s")
    for process in processes:
        process.wait("answer", count=len(jobs))
    assert cluster.now_ms() < slot, "adding took three seconds"
    for process in processes:
        process.wait("begin", "skip", count=len(jobs))
    delays = sorted(report["at"] - slot for process in processes for report in process.of("begin"))
    print(f"\n100 jobs, 3 processes, jitter 2 s: started after {delays[0]} to {delays[-1]} ms")
    assert Counter(report["job"] for process in processes for report in process.of("begin")) == dict.fromkeys(jobs, 1)
    assert not [report for process in processes for report in process.of("error", "skip", reason="late")]
    cluster.within(delays[-1], 2_000 + 1_500, "the last start")
    assert delays[-1] - delays[0] > 500


@pytest.mark.slow
def test_many_processes_at_one_slot_do_not_queue(cluster):  # SS03, light
    processes = cluster.start_together(*({} for _ in range(6)))
    for process in processes:
        process.ask("add", name="pay", period=f"{PERIOD_MS}ms")
    seen_by_all = defaultdict(int)

    def eight_slots():
        seen_by_all.clear()
        for process in processes:
            for slot in {report["slot"] for report in process.of("begin", "skip")}:
                seen_by_all[slot] += 1
        return sum(count == 6 for count in seen_by_all.values()) >= 8

    cluster.wait_until(eight_slots, "eight slots were met by all")
    each_slot_once(begins(*processes))
    decided = [
        report["at"] - report["slot"] for process in processes for report in process.of("start", "skip", job="pay")
    ]
    decided = sorted(decided)[: -len(decided) // 100]
    print(f"\n6 processes, the same slots: decided within {decided[-1]} ms")
    assert not [report for process in processes for report in process.of("error")]
    cluster.within(decided[-1], 1_500, "a claim")


def test_workers_that_are_forked_from_a_started_scheduler_start_their_own(cluster):  # DR07
    program = [sys.executable, "-X", "dev", "-W", "error", str(Path(__file__).with_name("preload.py"))]
    ended = subprocess.run(
        [*program, cluster.url, "300ms", "3"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    lines = [line.split() for line in ended.stdout.splitlines()]
    instances = {instance for kind, _, _, instance in lines if kind == "ready"}
    pids = {pid for kind, _, pid, _ in lines if kind == "stopped"}
    assert len(instances) == len(pids) == 4
    runs = Counter(slot for kind, slot, *_ in lines if kind == "start")
    assert len(runs) >= 5
    assert set(runs.values()) == {1}
    assert len({pid for kind, _, pid, _ in lines if kind == "start"}) > 1
