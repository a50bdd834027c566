"""``tenure run`` as a process of its own: how it starts, and how it ends by signals."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tenure.model import ActiveRuns, RunResult
from tenure.registry import connect

pytest.importorskip("click")
pytest.importorskip("rich")

PATIENCE_S = 30
COMMAND = [sys.executable, "-c", "import sys; from tenure.cli import main; sys.exit(main())", "run"]

APP = """
import asyncio, time
from pathlib import Path
from tenure import Scheduler

scheduler = Scheduler("sqlite:///jobs.db", grace="{grace}")

@scheduler.every("sync", "1s", jitter="0s")
{handler}
"""

HEEDS_IN_A_THREAD = """
def sync(ctx):
    Path("started").touch()
    ctx.signal.wait("60s")
    raise RuntimeError("told to " + ctx.signal.reason)
"""

HEEDS_IN_A_TASK = """
async def sync(ctx):
    Path("started").touch()
    raise RuntimeError("told to " + await ctx.signal.wait_async())
"""

HEEDS_NOTHING = """
def sync(ctx):
    Path("started").touch()
    ctx.signal.wait("60s")
    Path("told").touch()
    time.sleep(60)
"""

Launch = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts the command on an application in the current directory; no process is left behind."""
    started: list[subprocess.Popen[str]] = []

    def launch(code: str) -> subprocess.Popen[str]:
        (tmp_path / "app.py").write_text(code, encoding="utf-8")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen([*COMMAND, "app:scheduler"], cwd=tmp_path, **pipes)
        started.append(process)
        return process

    yield launch
    for process in started:
        process.kill()
        process.communicate()


def wait_until(seen: Callable[[], bool], description: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not seen():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {description}"
        time.sleep(0.01)


def wait_for_file(path: Path) -> None:
    wait_until(path.exists, str(path))


def stored(directory: Path) -> tuple[list[RunResult], ActiveRuns]:
    async def read() -> tuple[list[RunResult], ActiveRuns]:
        async with connect(f"sqlite:///{directory}/jobs.db") as backend:
            return await backend.results("sync"), await backend.active(["sync"])

    return asyncio.run(read())


@pytest.mark.parametrize("handler", [HEEDS_IN_A_THREAD, HEEDS_IN_A_TASK], ids=["thread", "task"])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_it_with_exit_code_0_and_its_run_is_released(
    launch: Launch, tmp_path: Path, handler: str, signum: signal.Signals
) -> None:
    process = launch(APP.format(grace="60s", handler=handler))
    wait_for_file(tmp_path / "started")
    process.send_signal(signum)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert out.splitlines()[-1] == "stopped"
    (result,), active = stored(tmp_path)
    assert (result.status, result.error.splitlines()[-1]) == ("interrupted", "RuntimeError: told to stop")
    assert [(run.slot, run.live) for run in active.runs] == [(result.slot, False)]


def test_a_second_signal_does_not_wait_for_a_handler(launch: Launch, tmp_path: Path) -> None:
    process = launch(APP.format(grace="10m", handler=HEEDS_NOTHING))
    wait_for_file(tmp_path / "started")
    process.send_signal(signal.SIGTERM)
    wait_for_file(tmp_path / "told")
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    _, active = stored(tmp_path)
    assert [run.live for run in active.runs] == [True]


SWALLOWS_CANCELLATION = """
async def sync():
    Path("started").touch()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            Path("told").touch()
"""


def test_a_task_that_swallows_its_cancellation_does_not_hold_up_the_end(launch: Launch, tmp_path: Path) -> None:
    process = launch(APP.format(grace="500ms", handler=SWALLOWS_CANCELLATION))
    wait_for_file(tmp_path / "started")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)  # without a second signal
    assert (process.returncode, out.splitlines()[-1]) == (0, "stopped")
    assert (tmp_path / "told").exists()
    assert "outlived the stop" in err


def test_it_tells_what_it_runs(launch: Launch, tmp_path: Path) -> None:
    process = launch(APP.format(grace="60s", handler=HEEDS_IN_A_THREAD))
    wait_for_file(tmp_path / "started")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE_S)
    version, store, instance, _, header, job, _, stopped = out.splitlines()
    assert "time zone data" in version
    assert store == f"store    sqlite:///{tmp_path}/jobs.db (namespace tenure)"
    (result,), _ = stored(tmp_path)
    assert instance == f"instance {result.instance}"
    assert header.split()[:2] == ["job", "schedule"]
    assert job.startswith("sync  every second  2")
    assert stopped == "stopped"


UNREACHABLE = """
import asyncio
from tenure import MemoryBackend, Scheduler

class Hangs(MemoryBackend):
    async def __aenter__(self):
        await asyncio.sleep(3_600)

scheduler = Scheduler(Hangs())
"""


def test_a_signal_ends_it_also_while_it_starts(launch: Launch) -> None:
    process = launch(UNREACHABLE)
    assert process.stdout is not None
    assert "time zone data" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert out.splitlines()[-1] == "stopped"


def test_a_store_that_cannot_be_used_is_one_line_and_exit_code_1(launch: Launch) -> None:
    process = launch('from tenure import Scheduler\nscheduler = Scheduler("sqlite:///no/jobs.db")\n')
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    (line,) = err.splitlines()
    assert line.startswith("tenure: ")
    assert line.endswith("does not exist; create it")
