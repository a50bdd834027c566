"""A process is killed in the middle of a run at night; in the morning one command tells what became of it."""

import subprocess
import sys

import pytest

from .conftest import wait_until

pytest.importorskip("click")
pytest.importorskip("rich")

TENURE = [sys.executable, "-c", "import sys; from tenure.cli import main; sys.exit(main())"]
APP = """
import os, signal, sys
from tenure import Scheduler

scheduler = Scheduler(sys.argv[1], instance=sys.argv[2])


@scheduler.every("bill", "1s", lease="1s", jitter="50ms")
async def bill(ctx):
    if sys.argv[2] == "doomed":
        os.kill(os.getpid(), signal.SIGKILL)


scheduler.run()
"""

ENDS = ("had started (told by other)", "taken over by other: attempt 2")
"""The other comes before the next slot, or after it."""


def why(url, *arguments):
    done = subprocess.run(
        [*TENURE, "why", "bill", *arguments, "--url", url], capture_output=True, text=True, timeout=60
    )
    return done.stdout if done.returncode == 0 else ""


def test_the_morning_after(tmp_path):
    app = tmp_path / "app.py"
    app.write_text(APP)
    url = f"sqlite:///{tmp_path}/jobs.db"
    doomed = subprocess.Popen([sys.executable, str(app), url, "doomed"])
    other = None
    try:
        assert doomed.wait(60) == -9
        slot = why(url).split("slot ")[1][:19].replace(" ", "T")
        told = why(url, slot)  # once: the lease may be over a moment later
        assert "its lease is over" in told or "runs still" in told
        other = subprocess.Popen([sys.executable, str(app), url, "other"])
        wait_until(lambda: any(words in why(url, slot) for words in ENDS), "it is taken over, or a newer run started")
    finally:
        for process in (doomed, other):
            if process is not None:
                process.kill()
                process.wait()
    told = why(url, slot)
    assert "claimed by doomed: attempt 1" in told
    assert "its lease was over: doomed had been silent for it" in told
    assert any(words in told for words in ENDS)
