"""``tenure demo``: it shows what it promises, its verdict bites, and no process outlives it."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tenure.model import RunResult
from tenure_conformance.targets.redis import target as redis

pytest.importorskip("click")
pytest.importorskip("rich")

from tenure.demo.ledger import Entry, Ledger, StaleFence
from tenure.demo.picture import slot_table, verdict
from tenure.demo.story import Story, WorkerStory, expected_slots, faults

COMMAND = [sys.executable, "-c", "import sys; from tenure.cli import main; sys.exit(main())", "demo"]
SLOT = 1_780_315_200_000  # 2026-06-01T12:00:00Z


# The verdict


def ended(slot: int, attempt: int, status: str = "success") -> RunResult:
    return RunResult(slot, attempt, slot + attempt, status, "ABC"[attempt - 1], slot, slot + 700)


def paid(slot: int, attempt: int, entry: str = "paid") -> Entry:
    return Entry(slot, slot + attempt, attempt, "ABC"[attempt - 1], entry)


def test_the_verdict_is_well_with_one_success_per_slot_whatever_its_attempts() -> None:
    slots = expected_slots(SLOT, SLOT + 1_000)
    history = [ended(SLOT, 1, "crashed"), ended(SLOT, 2), ended(SLOT + 1_000, 1)]
    assert faults(slots, history, {SLOT: paid(SLOT, 2), SLOT + 1_000: paid(SLOT + 1_000, 1)}) == []


def test_the_verdict_finds_a_slot_that_ran_twice_to_success() -> None:
    assert faults([SLOT], [ended(SLOT, 1), ended(SLOT, 2)], {SLOT: paid(SLOT, 2)}) == [
        "12:00:00 ran 2 times to success: attempt 1 by A, attempt 2 by B"
    ]


def test_the_verdict_finds_a_lost_slot() -> None:
    slots = expected_slots(SLOT, SLOT + 2_000)
    history = [ended(SLOT, 1), ended(SLOT + 1_000, 1, "crashed"), ended(SLOT + 2_000, 1)]
    ledger = {slot: paid(slot, 1) for slot in (SLOT, SLOT + 2_000)}
    assert faults(slots, history, ledger) == ["12:00:01 was lost: no attempt ended in success"]
    assert faults([SLOT], [], {}) == ["12:00:00 was lost: no attempt ended in success"]


def test_the_verdict_finds_a_stale_write_that_went_through() -> None:
    assert faults([SLOT], [ended(SLOT, 2)], {SLOT: paid(SLOT, 1)}) == [
        "12:00:00 was written by attempt 1, while attempt 2 owned it"
    ]


@pytest.mark.parametrize("ledger", [{}, {SLOT: paid(SLOT, 1, "begun")}], ids=["none", "begun"])
def test_the_verdict_finds_a_success_that_did_not_write(ledger: dict[int, Entry]) -> None:
    assert faults([SLOT], [ended(SLOT, 1)], ledger) == [
        "12:00:00 ended in success, but its handler's last write is missing"
    ]


def test_the_verdict_judges_slots_that_nobody_expected_too() -> None:
    assert faults([], [ended(SLOT, 1), ended(SLOT, 2)], {SLOT: paid(SLOT, 2)})[0].startswith("12:00:00 ran 2 times")


# What it is made of


def test_the_ledger_refuses_a_smaller_fence_than_it_has_seen(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create()
    ledger.write(paid(SLOT, 1, "begun"))
    ledger.write(paid(SLOT, 2, "begun"))
    with pytest.raises(StaleFence):
        ledger.write(paid(SLOT, 1))
    ledger.write(paid(SLOT, 2))
    ledger.write(paid(SLOT + 1_000, 1))
    assert ledger.entries() == {SLOT: paid(SLOT, 2), SLOT + 1_000: paid(SLOT + 1_000, 1)}


def report(kind: str, attempt: int, at_ms: int, **more: object) -> dict[str, object]:
    return {"kind": kind, "slot": SLOT, "attempt": attempt, "fence": SLOT + attempt, "at": SLOT + at_ms, **more}


def test_the_story_puts_a_takeover_together_from_reports_in_any_order() -> None:
    story = Story()
    story.workers = {name: WorkerStory(name, pid=1) for name in "AB"}
    story.take_in("A", report("begun", 1, 20))
    story.take_in("A", report("start", 1, 10))
    act = story.act("killed", story.attempts[SLOT, 1])
    assert story.takeover_ms(act) is None
    story.take_in("B", report("start", 2, act.at_ms - SLOT + 1_500))
    story.take_in("B", report("success", 2, act.at_ms - SLOT + 2_200))
    assert story.takeover_ms(act) == 1_500
    assert [(run.worker, run.fate) for run in story.by_slot()[SLOT]] == [("A", "killed"), ("B", "success")]
    assert story.attempts[SLOT, 1].started_ms == SLOT + 10
    assert story.held_by("A") == []


def test_the_last_lines_are_the_faults_if_there_are_any() -> None:
    story = Story()
    assert [str(line) for line in verdict(story, ["12:00:00 was lost"])] == ["12:00:00 was lost"]
    assert "exactly once" in str(verdict(story, [])[0])
    assert slot_table(story).row_count == 0


# The whole of it


@pytest.mark.slow
def test_the_demo_shows_a_takeover_a_refused_owner_and_a_release(tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    began = time.monotonic()
    done = subprocess.run([*COMMAND, "--record", str(picture)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert re.search(r"» SIGKILL to (\w), .*\n(?s:.*?)takes over from \1, killed: attempt 2", done.stdout)
    assert re.search(r"takes over from (\w), frozen: attempt 2(?s:.*)\1 is refused by the ledger: fence", done.stdout)
    assert re.search(r"(\w) releases the run: attempt 1\n(?s:.*?)takes over from \1, stopped: attempt 2", done.stdout)
    rows = re.findall(r"^(\d\d):(\d\d):(\d\d)  (\d)\s+(.*?)\s*$", done.stdout, re.MULTILINE)
    seconds = [int(hour) * 3_600 + int(minute) * 60 + int(second) for hour, minute, second, *_ in rows]
    assert len(seconds) >= 8
    assert [(second - seconds[0]) % 86_400 for second in seconds] == list(range(len(seconds)))
    assert all(" done" in owners and owners.count(" done") == 1 for *_, owners in rows)
    assert sum(attempts != "1" for *_, attempts, _ in rows) >= 3
    assert f"{len(rows)} slots, each ran to success exactly once; none was lost" in done.stdout
    assert "1 stale owner refused" in done.stdout.splitlines()[-1]
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    assert time.monotonic() - began < 100  # it aims at 20 s; this machine may be busy


@pytest.mark.slow
def test_the_demo_plays_on_a_store_that_is_there_and_tells_nobody_its_password() -> None:
    with redis.serving(None, "binary") as url:
        secret = url.replace("redis://", "redis://default:sesame@", 1)
        play = [*COMMAND, "--backend", secret]
        lines = []
        with subprocess.Popen(play, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
            assert demo.stdout is not None
            for line in demo.stdout:  # it ends by itself: each of its steps has a limit
                lines.append(line)
                if ready := re.search(r"is ready, pid (\d+)", line):
                    assert "sesame" not in Path(f"/proc/{ready[1]}/cmdline").read_text()
        assert demo.returncode == 0, "".join(lines)
    assert re.search(r"3 processes, redis://.* \(namespace tenure-demo-\w{6}\)", lines[0])
    assert "sesame" not in "".join(lines)
    assert re.search(r"\d+ slots, each ran to success exactly once; none was lost", "".join(lines))


def test_a_store_that_processes_cannot_share_is_refused() -> None:
    done = subprocess.run([*COMMAND, "--backend", "memory://"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "share leases" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_no_process_outlives_a_demo_that_is_interrupted(signum: signal.Signals, tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    watchdog = threading.Timer(60, demo.kill)
    watchdog.start()
    assert demo.stdout is not None
    pids = []
    for line in demo.stdout:
        if ready := re.search(r"is ready, pid (\d+)", line):
            pids.append(int(ready[1]))
        if "SIGSTOP" in line:  # now one is dead, and one is frozen
            break
    demo.send_signal(signum)
    demo.communicate(timeout=60)
    watchdog.cancel()
    assert demo.returncode == 130
    assert len(pids) == 4
    assert not any(map(exists, pids))
    assert list(tmp_path.iterdir()) == []


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
