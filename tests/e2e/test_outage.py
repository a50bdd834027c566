"""A store that cannot be reached for a while: what runs, what is retried, what is lost, and that nothing leaks."""

import time

import pytest

LEASE_MS = 1_000
LEASE = {"lease": f"{LEASE_MS}ms", "heartbeat": "200ms", "max_late": "1h", "catch_up": "1h"}


def test_every_job_fires_again_after_an_outage_across_several_slots(cluster):  # SO01
    url = f"{cluster.url}?timeout=400ms"
    config = {"url": url, "jobs": [{"name": "pay", "period": "500ms", "max_late": "300ms"}]}
    processes = cluster.start_together(config, config)
    cluster.wait_until(lambda: any(process.of("begin") for process in processes), "it runs")
    with cluster.blocked():
        began = cluster.now_ms()
        time.sleep(2.5)
        ended = cluster.now_ms()
    after = cluster.wait_until(
        lambda: [report for process in processes for report in process.of("begin") if report["slot"] > ended],
        "a slot after the outage is run",
    )
    cluster.within(after[0]["at"] - ended, 500 + 1_500, "the next run")
    for process in processes:
        errors = process.of("error")
        assert errors
        called = {"claim", "save_result", "heartbeat", "finish", "active", "results", "cards", "save_cards"}
        assert {error["call"] for error in errors} <= called
        assert process.errors.count("kind") + process.errors.count("Error(") <= 10  # the log is not flooded
    during = [
        report
        for process in processes
        for report in process.of("begin")
        if began + 100 < report["at"] < ended and report["slot"] > began
    ]
    assert not during, "a run began without a store"
    assert all(process.ask("trigger", name="pay") in ("won", "overlap") for process in processes)


def test_a_start_without_a_store_fails_with_the_reason(cluster):
    with cluster.blocked():
        process = cluster.start(url=f"{cluster.url}?timeout=300ms", ready=False, jobs=[{"name": "pay", "period": "1s"}])
        assert process.code() == 1
    assert "BackendUnavailable: " in process.errors
    assert str(cluster.path) in process.errors


def held(cluster, handler, seconds):
    slot = cluster.now_ms() - 1
    holder, backup = cluster.start_together({}, {})
    holder.ask("add", name="pay", handler=handler, seconds=seconds, slots=[slot], **LEASE)
    holder.wait("begin")
    backup.ask("add", name="pay", slots=[slot], **{**LEASE, "catch_up": None})
    return holder, backup, slot


def test_a_holder_that_is_cut_off_stops_before_its_backup_starts(cluster):  # LL03
    holder, backup, slot = held(cluster, "polite", 60)
    time.sleep(0.5)
    cut_at = cluster.now_ms()
    holder.ask("cut")
    told = holder.wait("signal")
    assert told["reason"] == "lost"
    begun = backup.wait("begin")
    assert begun["attempt"] == 2
    assert told["at"] <= begun["at"]
    cluster.within(told["at"] - cut_at, LEASE_MS + 500, "the holder's own deadline")
    holder.ask("mend")
    assert holder.wait("interrupted")["reason"] in ("takeover", "lost")
    backup.wait("success")
    cluster.wait_until(lambda: [run[2] for run in cluster.history("pay")][1:] == ["success"], "it is recorded")
    assert [run[:2] for run in cluster.history("pay")] == [(slot, 1), (slot, 2)]


def test_a_short_cut_at_the_handler_s_end_costs_nothing(cluster):  # SO02
    holder, backup, slot = held(cluster, "deaf", 1.2)
    time.sleep(0.9)
    holder.ask("cut")
    holder.wait("end")
    time.sleep(0.2)
    holder.ask("mend")
    holder.wait("success")
    assert not backup.of("begin", "takeover")
    assert cluster.history("pay") == [(slot, 1, "success")]


def test_a_long_cut_at_the_handler_s_end_is_a_takeover_and_both_are_on_record(cluster):  # SO02
    holder, backup, slot = held(cluster, "deaf", 1)
    time.sleep(0.7)
    holder.ask("cut")
    holder.wait("end")
    assert backup.wait("success")["attempt"] == 2
    holder.ask("mend")
    assert holder.wait("interrupted")["reason"] == "takeover"
    assert not holder.of("success")
    cluster.wait_until(lambda: len(cluster.history("pay")) == 2, "both are recorded")
    assert cluster.history("pay") == [(slot, 1, "interrupted"), (slot, 2, "success")]


@pytest.mark.slow
def test_outages_leak_neither_files_nor_threads(cluster):  # RC01
    jobs = [{"name": f"job-{number}", "period": "300ms", "max_late": "200ms", **QUICK} for number in range(20)]
    process = cluster.start(url=f"{cluster.url}?timeout=200ms", jobs=jobs)
    process.wait("success", count=40)
    threads, files = process.ask("counts")
    for _ in range(3):
        with cluster.blocked():
            time.sleep(1.5)
        seen = len(process.of("success"))
        process.wait("success", count=seen + 40)
    after = cluster.wait_until(
        lambda: (now := process.ask("counts")) and abs(now[0] - threads) <= 5 and abs(now[1] - files) <= 5 and now,
        "threads and files are as many as before",
    )
    print(f"\nthreads {threads} -> {after[0]}, files {files} -> {after[1]}; {len(process.of('error'))} error events")


QUICK = {"lease": "5s", "seconds": 0}
