"""A holder that dies, freezes or stops is replaced within its lease; one that is alive is not."""

import random
import signal
import time

import pytest
from tenure.demo.ledger import Ledger

LEASE_MS = 1_000
LEASE = {"lease": f"{LEASE_MS}ms", "heartbeat": "200ms", "max_attempts": 10, "max_late": "1h"}
SLACK_MS = 1_500
"""What a loaded machine may add to a takeover."""


def holder_and_backup(cluster, handler="polite", seconds=60, backup_seconds=0.0, job="pay", host="run", **config):
    """Two processes, the first of which executes a run and the second of which watches it."""
    slot = cluster.now_ms() - 1
    holder, backup = cluster.start_together(
        {"host": host, "instance": "holder", **config}, {"instance": "backup", **config, "grace": "5s"}
    )
    holder.ask("add", name=job, handler=handler, seconds=seconds, slots=[slot], catch_up="1h", **LEASE)
    begun = holder.wait("begin")
    back_up(backup, slot, job=job, seconds=backup_seconds)
    return holder, backup, begun["slot"]


def back_up(backup, slot, job="pay", seconds=0.0):
    """A job that is added finds the run under way, and watches it."""
    backup.ask("add", name=job, seconds=seconds, slots=[slot], **LEASE)


def test_the_run_of_a_killed_holder_starts_elsewhere_within_its_lease(cluster):
    holder, backup, slot = holder_and_backup(cluster)
    killed_at = holder.kill()
    begun = backup.wait("begin")
    assert (begun["slot"], begun["attempt"]) == (slot, 2)
    cluster.within(begun["at"] - killed_at, LEASE_MS + SLACK_MS, "the takeover")
    backup.wait("success")
    cluster.wait_until(
        lambda: cluster.history("pay") == [(slot, 1, "crashed"), (slot, 2, "success")], "both attempts are recorded"
    )


@pytest.mark.slow
def test_ten_killed_holders_are_each_replaced_within_the_lease(cluster, record_property):
    slots = {f"job-{number}": cluster.now_ms() - 1 - number for number in range(10)}
    backup, *started = cluster.start_together({}, *({} for _ in slots))
    holders = dict(zip(slots, started, strict=True))
    for job, holder in holders.items():
        holder.ask("add", name=job, seconds=60, slots=[slots[job]], catch_up="1h", **LEASE)
    for job, holder in holders.items():
        holder.wait("begin")
        back_up(backup, slots[job], job=job)
    killed_at = {}
    for job, holder in holders.items():
        time.sleep(random.uniform(0, 0.2))  # at any moment between two heartbeats
        killed_at[job] = holder.kill()
    begun = {job: backup.wait("begin", job=job) for job in slots}
    assert {report["attempt"] for report in begun.values()} == {2}
    took = [report["at"] - killed_at[job] for job, report in begun.items()]
    took.sort()
    record_property("takeovers_ms", took)
    print(f"\ntakeover after SIGKILL, lease {LEASE_MS} ms: {took} ms, median {took[len(took) // 2]} ms")
    cluster.within(took[-1], LEASE_MS + SLACK_MS, "the slowest takeover")
    assert took[0] > 0


def test_handlers_that_block_their_loop_or_thread_for_three_leases_are_not_taken_over(cluster):
    seconds = 3 * LEASE_MS / 1000
    ways = {"main loop": ("serve", "blocking"), "own loop": ("run", "blocking"), "thread": ("run", "deaf")}
    slots = {way: cluster.now_ms() - 1 for way in ways}
    backup, *started = cluster.start_together({}, *({"host": host} for host, _ in ways.values()))
    holders = dict(zip(ways, started, strict=True))
    for way, holder in holders.items():
        job = {"name": way, "slots": [slots[way]], "handler": ways[way][1], "seconds": seconds}
        holder.ask("add", **job, catch_up="1h", **LEASE)
        holder.wait("begin")
        back_up(backup, slots[way], job=way)
    for way, holder in holders.items():
        holder.wait("success")
        assert [begun["attempt"] for begun in holder.of("begin")] == [1]
        assert holder.wait("end")["told"] is None
        assert cluster.history(way) == [(slots[way], 1, "success")]
    assert not backup.of("begin", "takeover")


def test_a_frozen_holder_is_replaced_and_told_when_it_wakes_and_can_do_nothing_more(cluster):
    Ledger(cluster.ledger).create()
    holder, backup, slot = holder_and_backup(cluster, seconds=8, ledger=str(cluster.ledger))
    holder.wait("written")
    cluster.freeze(holder)
    success = backup.wait("success")
    assert success["attempt"] == 2
    assert not holder.of("interrupted", "signal")
    holder.signal(signal.SIGCONT)
    assert holder.wait("signal")["reason"] == "lost"
    assert holder.wait("refused")["attempt"] == 1
    interrupted = holder.wait("interrupted")
    assert (interrupted["reason"], interrupted["attempt"]) == ("takeover", 1)
    assert Ledger(cluster.ledger).entries()[slot].worker == "backup"
    cluster.wait_until(
        lambda: cluster.history("pay") == [(slot, 1, "interrupted"), (slot, 2, "success")], "both are recorded"
    )


def test_a_frozen_holder_whose_handler_returns_when_it_wakes_has_its_finish_refused(cluster):
    holder, backup, slot = holder_and_backup(cluster, "deaf", seconds=0.8)
    cluster.freeze(holder)
    backup.wait("success")
    holder.signal(signal.SIGCONT)
    assert holder.wait("interrupted")["reason"] == "takeover"
    assert not holder.of("success")
    cluster.wait_until(
        lambda: cluster.history("pay") == [(slot, 1, "interrupted"), (slot, 2, "success")], "both are recorded"
    )


def test_a_frozen_backup_or_bystander_disturbs_nobody(cluster):
    holder, backup, _ = holder_and_backup(cluster, seconds=2)
    cluster.freeze(backup)
    holder.wait("success")
    backup.signal(signal.SIGCONT)
    assert backup.ask("trigger", name="pay") == "won"
    assert not backup.of("takeover")


def test_a_stopped_holder_hands_its_run_over_at_once(cluster):
    lease_ms = 20_000
    slot = cluster.now_ms() - 1
    job = {"name": "pay", "slots": [slot], "lease": f"{lease_ms}ms", "heartbeat": "300ms"}
    holder, backup = cluster.start_together({"instance": "holder"}, {"instance": "backup"})
    holder.ask("add", seconds=60, catch_up="1h", **job)
    holder.wait("begin")
    backup.ask("add", **job)
    sent_at = holder.signal(signal.SIGTERM)
    begun = backup.wait("begin")
    assert begun["attempt"] == 2
    cluster.within(begun["at"] - sent_at, 600 + SLACK_MS, "the handover")  # within two heartbeats
    assert holder.wait("interrupted")["reason"] == "stop"
    assert holder.code() == 0


def test_a_stop_whose_grace_is_shorter_than_its_handler_is_handed_over_too(cluster):  # SD03
    holder, backup, _ = holder_and_backup(cluster, "sleeping", seconds=60, grace="300ms")
    sent_at = holder.signal(signal.SIGTERM)
    begun = backup.wait("begin")
    assert begun["attempt"] == 2
    cluster.within(begun["at"] - sent_at, 300 + 400 + SLACK_MS, "the handover")
    assert holder.code() == 0


# Slots around a death


@pytest.mark.parametrize("killed", ["before its slot", "after its win"])
def test_a_slot_around_which_an_instance_dies_is_run_once(cluster, killed):  # MS05
    first, second = cluster.start_together({"instance": "first"}, {"instance": "second"})
    slot = cluster.now_ms() + 700
    first.ask("add", name="pay", seconds=60, slots=[slot], **LEASE)
    second.ask("add", name="pay", slots=[slot], **{**LEASE, "jitter": "100ms"})
    if killed == "before its slot":
        time.sleep(max(slot - 100 - cluster.now_ms(), 0) / 1000)
        first.kill()
        if first.of("begin"):
            raise AssertionError("it ran before its slot")
    else:
        cluster.wait_until(lambda: first.of("start") or second.of("begin"), "somebody has won")
        first.kill()
    begun = second.wait("begin")
    assert begun["slot"] == slot
    assert begun["attempt"] == (2 if first.of("start") else 1)
    second.wait("success")
    cluster.wait_until(lambda: cluster.history("pay")[-1:] == [(slot, begun["attempt"], "success")], "it is recorded")


@pytest.mark.slow
def test_instances_that_die_around_the_slot_lose_no_run(cluster):  # MS05, at t + 10 ms before the claim
    delays_ms = (0, 5, 10, 20)
    second, *started = cluster.start_together({}, *({} for _ in delays_ms))
    firsts = dict(zip(delays_ms, started, strict=True))
    slot = cluster.now_ms() + 1_000
    for delay_ms, first in firsts.items():
        first.ask("add", name=f"pay {delay_ms}", seconds=60, slots=[slot], **LEASE)
        second.ask("add", name=f"pay {delay_ms}", slots=[slot], **{**LEASE, "jitter": "100ms"})
    for delay_ms, first in firsts.items():
        time.sleep(max(slot + delay_ms - cluster.now_ms(), 0) / 1000)
        first.kill()
    for delay_ms in delays_ms:
        second.wait("success", job=f"pay {delay_ms}", slot=slot)
        cluster.wait_until(
            lambda job=f"pay {delay_ms}": [run[2] for run in cluster.history(job)].count("success") == 1,
            "it succeeded once",
        )


def test_when_all_were_killed_the_next_start_recovers_the_run(cluster):  # MS06, SL01 (b)
    slot = cluster.now_ms() - 1
    job = {"name": "pay", "slots": [slot], **LEASE}
    alone = cluster.start(instance="first", jobs=[{**job, "seconds": 60, "catch_up": "1h"}])
    alone.wait("begin")
    killed_at = alone.kill()
    time.sleep(LEASE_MS / 1000)
    fresh = cluster.start(instance="fresh", jobs=[job])
    begun = fresh.wait("begin")
    assert (begun["slot"], begun["attempt"]) == (slot, 2)
    assert begun["at"] - killed_at > LEASE_MS / 2
    fresh.wait("success")
    cluster.wait_until(lambda: len(cluster.history("pay")) == 2, "both are recorded")
    assert cluster.history("pay") == [(slot, 1, "crashed"), (slot, 2, "success")]


def test_a_restart_within_the_lease_waits_for_its_end_also_under_the_same_name(cluster):  # SL05
    slot = cluster.now_ms() - 1
    job = {"name": "pay", "slots": [slot], **LEASE}
    killed = cluster.start(instance="pod-0", jobs=[{**job, "seconds": 60, "catch_up": "1h"}])
    killed.wait("begin")
    time.sleep(0.3)
    beaten_at = cluster.now_ms()
    killed.kill()
    restarted = cluster.start(instance="pod-0", jobs=[job])
    begun = restarted.wait("begin")
    assert (begun["slot"], begun["attempt"]) == (slot, 2)
    assert begun["at"] - beaten_at > LEASE_MS / 2  # the last heartbeat was at most 200 ms before, give or take
    restarted.wait("success")


def test_a_run_that_may_not_be_repeated_stands_in_nobody_s_way_for_longer_than_its_lease(cluster):  # SL06
    job = {"name": "pay", **LEASE, "max_attempts": 1}
    slot = cluster.now_ms() - 1
    killed = cluster.start(instance="first", jobs=[{**job, "slots": [slot], "seconds": 60, "catch_up": "1h"}])
    killed.wait("begin")
    other = cluster.start(instance="second", jobs=[{**job, "period": "500ms"}])
    other.wait("skip", reason="overlap")
    killed_at = killed.kill()
    begun = other.wait("begin")
    assert begun["slot"] > slot
    assert begun["attempt"] == 1
    cluster.within(begun["at"] - killed_at, LEASE_MS + 500 + SLACK_MS, "the next run")
