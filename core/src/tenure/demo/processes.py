"""The demo's processes: started, told, signalled, and none left behind."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from tenure.demo.place import Place

Report = Mapping[str, Any]

_GONE: Report = {"kind": "gone"}


class Process:
    """One worker; what it reports goes to a queue, in order, and at its end ``gone``."""

    def __init__(self, name: str, told: Mapping[str, str], reports: "SimpleQueue[tuple[str, Report]]") -> None:
        self.name = name
        self._reports = reports
        # A group of its own: a Ctrl-C is for the parent alone. Should the parent be killed, its workers see the end of
        # their stdin, and one that is frozen gets a SIGHUP from the kernel, since its group is orphaned.
        self._popen = subprocess.Popen(  # noqa: S603 - this very Python and our own module
            [sys.executable, "-m", "tenure.demo.worker", name],
            env={**os.environ, **told},  # a URL may hold a password, and arguments are seen by all users
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._popen.pid

    def signal(self, signum: signal.Signals) -> None:
        """Send a signal; nothing happens if the process has ended."""
        self._popen.send_signal(signum)

    def tell(self, line: str) -> None:
        """Write a line to its stdin."""
        assert self._popen.stdin is not None
        with suppress(BrokenPipeError):
            self._popen.stdin.write(f"{line}\n")
            self._popen.stdin.flush()

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code, None if it runs on."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def destroy(self) -> None:
        """Kill it, frozen or not, and reap it."""
        self._popen.kill()
        self._popen.wait()
        self._reader.join()
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        for stream in (self._popen.stdin, self._popen.stdout):
            with suppress(BrokenPipeError):
                stream.close()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self._reports.put((self.name, json.loads(line)))
        self._reports.put((self.name, _GONE))


class Processes:
    """All workers of a demo, the living and the dead; on leaving none lives."""

    def __init__(self, place: Place, ledger: Path) -> None:
        self._told = {
            "TENURE_URL": place.url,
            "TENURE_NAMESPACE": place.namespace,
            "TENURE_LEASE": f"{place.lease_ms}ms",
            "TENURE_LEDGER": str(ledger),
        }
        self._reports: SimpleQueue[tuple[str, Report]] = SimpleQueue()
        self._all: dict[str, Process] = {}

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all.values():
            process.destroy()

    def start(self, name: str) -> Process:
        """Start a worker."""
        process = self._all[name] = Process(name, self._told, self._reports)
        return process

    def __getitem__(self, name: str) -> Process:
        return self._all[name]

    def next_report(self, timeout_s: float) -> tuple[str, Report] | None:
        """The next report of any worker, None if none comes in time."""
        try:
            return self._reports.get(timeout=max(timeout_s, 0))
        except Empty:
            return None
