"""docs/tutorial.md, done by two real processes as its reader does it: on SQLite, and on Redis."""

import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest
from tenure_conformance.targets import redis

from .test_blocks import LONGEST_WAIT_S, file_block, running

PAGE = "docs/tutorial.md"
BIN = Path(sys.executable).parent
COMMAND = (sys.executable, "shop.py")
BILLED = r"slot (\d\d:\d\d:\d\d)  attempt (\d)  (ada|bob|cyd|dan)"
"""Not from the line's beginning: what is logged may come in between."""


def sqlite(_):
    return nullcontext("sqlite:///jobs.db")


def program(name):
    """The page's, in less of the reader's time; its slots are so far apart that none is due before the takeover."""
    code = file_block(PAGE, name)
    for told, sooner in {'"10s"': '"5s"', 'lease="2s"': 'lease="1s"', 'wait("1s")': 'wait("300ms")'}.items():
        assert code.count(told) == 1
        code = code.replace(told, sooner)
    return code


def ended_amid_a_run(one, two, signum=signal.SIGKILL):
    """End whichever says bob first; it, the survivor, and the slot."""
    end = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < end:
        for victim, survivor in ((one, two), (two, one)):
            if found := victim.find(r"slot (\S+)  attempt 1  bob"):
                victim.end(signum)
                return victim, survivor, found[-1][1]
        time.sleep(0.01)
    raise AssertionError("nobody billed Bob")


def billed(process, slot):
    return [(found[2], found[3]) for found in process.find(BILLED) if found[1] == slot]


def statuses(url, slot):
    """What the command of the page shows for the slot, the newest attempt first."""
    command = [BIN / "tenure", "runs", "bill", "--url", url]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [re.search(r"crashed|success|running", line)[0] for line in shown.splitlines() if slot in line]


@pytest.mark.parametrize("store", [sqlite, redis.server.serve], ids=["sqlite", "redis"])
def test_the_first_program_is_done_again_by_the_survivor_and_both_attempts_are_recorded(store, tmp_path, monkeypatch):
    (tmp_path / "shop.py").write_text(program("shop.py"))
    monkeypatch.chdir(tmp_path)
    with store("binary") as url:
        monkeypatch.setenv("JOBS", url)
        with running(*COMMAND, cwd=tmp_path) as one, running(*COMMAND, cwd=tmp_path) as two:
            _, survivor, slot = ended_amid_a_run(one, two)
            survivor.wait_for(rf"slot {slot}  attempt 2  dan")
            assert billed(survivor, slot) == [("2", name) for name in ("ada", "bob", "cyd", "dan")]
            end = time.monotonic() + LONGEST_WAIT_S
            while (shown := statuses(url, slot)) != ["success", "crashed"]:
                assert time.monotonic() < end, shown
            assert survivor.end(signal.SIGINT) == 0


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_the_second_program_goes_on_where_the_ended_one_was(signum, tmp_path):
    (tmp_path / "shop.py").write_text(program("shop_twice_safe.py"))
    with running(*COMMAND, cwd=tmp_path) as one, running(*COMMAND, cwd=tmp_path) as two:
        victim, survivor, slot = ended_amid_a_run(one, two, signum)
        survivor.wait_for(rf"slot {slot}  attempt 2  dan")
        both = Counter(name for _, name in billed(victim, slot) + billed(survivor, slot))
        assert both == dict.fromkeys(("ada", "bob", "cyd", "dan"), 1)
        assert survivor.end() == 0
