"""The machine: what it is, and how a measure is kept from what else runs on it."""

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

PRIORITY = 50
ROOT = Path(__file__).parents[3]


def described() -> dict:
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "tenure": version("tenure"),
        "commit": _commit(),
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


def _commit() -> str:
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def first_in_line() -> bool:
    """Let this process and what it starts go before all others; whether that is allowed here."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
        return True
    return False


@contextmanager
def on_one_core() -> Iterator[None]:
    """Keep this process, its servers, and what it starts on the last core.

    A call takes one time where client and server share a core and another where they don't; the system moves them.
    """
    everywhere = os.sched_getaffinity(0)
    _bind({max(everywhere)})
    try:
        yield
    finally:
        _bind(everywhere)


def _bind(cores: set[int]) -> None:
    for process in _family(os.getpid()):
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


def _family(process: int) -> Iterator[int]:
    """A process and all that it has started."""
    yield process
    with suppress(FileNotFoundError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in (thread / "children").read_text("ascii").split():
                yield from _family(int(child))
