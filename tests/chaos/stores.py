"""A real store for each target: served by the conformance suite's recipe, and harmed as a host harms its processes."""

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from tenure_conformance.faults.kit import endpoint_of, rewritten, with_option
from tenure_conformance.servers import binary
from tenure_conformance.servers.recipe import free_port, wait_until_it_answers
from tenure_conformance.target import Target, load

KEEP_RESULTS = 20_000
TARGETS = ("sqlite", "redis", "postgres", "mongo", "dynamodb", "etcd")
_LEASE_MS = 1_500
_REAPED_S = 10


class Store(Protocol):
    """A store that runs."""

    url: str
    endpoint: tuple[str, int] | None
    """Where its clients connect, if it has a network."""

    def through(self, host: str, port: int) -> str:
        """The URL that leads through there."""

    def pause(self) -> None:
        """Nobody is answered until ``resume``."""

    def resume(self) -> None:
        """Go on."""

    def restart(self) -> None:
        """End it as an operator does, and start it again; returns when it answers."""

    def kill(self) -> None:
        """SIGKILL to all of it."""

    def start(self) -> None:
        """Start it after a kill; returns when it answers."""

    def disturbed_by(self, pid: int) -> bool:
        """Whether a process that is frozen right now holds up all others."""


class File:
    """A SQLite file; it is paused as another program does that keeps a write transaction open."""

    endpoint = None

    def __init__(self, directory: Path) -> None:
        self._path = directory / "jobs.db"
        self.url = f"sqlite:///{self._path}?keep_results={KEEP_RESULTS}&synchronous=normal"
        self._writer: sqlite3.Connection | None = None

    def through(self, host: str, port: int) -> str:
        return self.url

    def pause(self) -> None:
        writer = sqlite3.connect(self._path, timeout=10, isolation_level=None, check_same_thread=False)
        writer.execute("begin immediate")
        self._writer = writer

    def resume(self) -> None:
        if self._writer is not None:
            self._writer.execute("rollback")
            self._writer.close()
            self._writer = None

    def restart(self) -> None:
        raise NotImplementedError("a file has no server")

    kill = start = restart

    def disturbed_by(self, pid: int) -> bool:
        if self._writer is not None:
            return False
        try:
            with closing(sqlite3.connect(self._path, timeout=0.3, isolation_level=None)) as connection:
                connection.execute("begin immediate")
                connection.execute("rollback")
        except sqlite3.OperationalError:
            return True
        return False


class Server:
    """A server as a process of this host, with all processes that it started."""

    def __init__(self, target: Target, program: binary.Program, port: int) -> None:
        module = _module_of(target)
        self._recipe = module.server
        self._program = program
        self._place = self._recipe.url(port)
        self.url = with_option(self._place, "keep_results", str(KEEP_RESULTS))
        self._through = getattr(module, "through", rewritten)
        self.endpoint: tuple[str, int] | None = getattr(module, "endpoint_of", endpoint_of)(self.url, 0)
        wait_until_it_answers(self._recipe, self._place, program)

    @property
    def pid(self) -> int:
        """The process that was started, whose descendants are the server's, too."""
        return self._program._process.pid

    def through(self, host: str, port: int) -> str:
        return self._through(self.url, host, port)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        self._program.restart()
        self._wait()

    def kill(self) -> None:
        started = descendants(self.pid)
        self._signal(signal.SIGSTOP)  # first: none of them may see another die and do something about it
        self._signal(signal.SIGKILL)
        self._program._process.wait()
        _await_end(started)  # a server that finds its predecessor's process refuses to start

    def start(self) -> None:
        # A recipe's program knows how to restart; after a kill there is nothing to be stopped first.
        self._program._process = self._program._started()
        self._wait()

    def disturbed_by(self, pid: int) -> bool:
        return False

    def _wait(self) -> None:
        wait_until_it_answers(self._recipe, self._place, self._program)

    def _signal(self, number: int) -> None:
        for pid in (self.pid, *descendants(self.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


@contextmanager
def served(target: Target) -> Iterator[Store]:
    """The target's store, running until the context is left."""
    with ExitStack() as stack:
        if target.name == "sqlite":
            yield File(Path(stack.enter_context(TemporaryDirectory(prefix="tenure-chaos-"))))
            return
        port = free_port()
        yield Server(target, stack.enter_context(binary.started(_module_of(target).server, port, "")), port)


def target_of(name: str) -> Target:
    """The conformance suite's target of that name."""
    return load(name)


def lease_ms_of(target: Target) -> int:
    """The lease of all jobs, one that the store can grant."""
    return max(_LEASE_MS, target.capabilities.min_lease_ms)


def _module_of(target: Target) -> Any:
    return import_module(f"tenure_conformance.targets.{target.name.replace('-', '_')}")


def descendants(pid: int) -> list[int]:
    """All processes that it started, and those that they started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def _await_end(pids: list[int]) -> None:
    """Return when none of the processes is there any more, reaped by whoever inherited them."""
    end = time.monotonic() + _REAPED_S
    while time.monotonic() < end and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.01)


def await_freeze(pid: int) -> None:
    """Return when the process that was sent SIGSTOP does stand still."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state in "TZX":
            return
        time.sleep(0.005)
