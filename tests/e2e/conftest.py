"""Real processes: started, told, signalled, listened to, and none left behind."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

PATIENCE_S = 30
"""How long anything may take on a loaded machine before its test fails."""
STALL_S = 0.5
"""Where a thread waited for so long to run, a process may have lost its lease, and a test's failure tells nothing."""
_WORKER = Path(__file__).with_name("worker.py")


def wait_until(predicate, description, timeout_s=PATIENCE_S):
    end = time.monotonic() + timeout_s
    while not (found := predicate()):
        if time.monotonic() > end:
            pytest.fail(f"waited in vain until {description() if callable(description) else description}")
        time.sleep(0.01)
    return found


def now_ms():
    return time.time_ns() // 1_000_000


class Stalls:
    """Measures how long this machine keeps a thread waiting that should run."""

    def __init__(self):
        self.longest_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)
        self._thread.start()

    def _measure(self):
        before = time.monotonic()
        while not self._ended.wait(0.01):
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - before - 0.01)
            before = now

    def end(self):
        self._ended.set()
        self._thread.join()


class Process:
    """A worker; ``reports`` is what it told, in order."""

    def __init__(self, config, *options, env=None):
        self.reports = []
        self.errors = ""
        self._number = 0
        self._popen = subprocess.Popen(
            [sys.executable, *options, str(_WORKER), json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
            env={**os.environ, **(env or {})},
        )
        self.pid = self._popen.pid
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self):
        for line in self._popen.stdout:
            self.reports.append(json.loads(line))

    def _read_errors(self):
        for line in self._popen.stderr:
            self.errors += line

    def of(self, *kinds, **fields):
        """What it told of these kinds."""
        return [
            report
            for report in list(self.reports)
            if report["kind"] in kinds and all(report.get(name) == value for name, value in fields.items())
        ]

    def wait(self, *kinds, count=1, timeout_s=PATIENCE_S, **fields):
        """The last of ``count`` reports of these kinds, once it has come."""

        def description():
            return f"{count} x {kinds} {fields} in {self.reports}\n{self.errors}"

        def found():
            ended = self._popen.poll() is not None and not any(reader.is_alive() for reader in self._readers)
            reports = self.of(*kinds, **fields)[count - 1 :]
            if ended and not reports:
                pytest.fail(f"it ended without {description()}")
            return reports

        return wait_until(found, description, timeout_s)[0]

    def ask(self, do, **arguments):
        """Have it do something, and give its answer."""
        number = self._number = self._number + 1
        self.send(do, number, **arguments)
        answer = self.wait("answer", number=number)
        assert "error" not in answer, answer
        return answer["answer"]

    def send(self, do, number=0, **arguments):
        self._popen.stdin.write(json.dumps({"do": do, "number": number, **arguments}) + "\n")
        self._popen.stdin.flush()

    def signal(self, signum):
        """Send a signal; the time at which it was sent."""
        at = now_ms()
        self._popen.send_signal(signum)
        return at

    def kill(self):
        """End it in the middle of whatever it does; the time at which it was dead."""
        self._popen.kill()
        self._popen.wait()
        return now_ms()

    def code(self, timeout_s=PATIENCE_S):
        """Its exit code, once it has ended."""
        code = self._popen.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        return code

    def destroy(self):
        self._popen.kill()
        self._popen.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            with suppress(BrokenPipeError):
                stream.close()


class Cluster:
    """Processes on one SQLite file."""

    wait_until = staticmethod(wait_until)
    now_ms = staticmethod(now_ms)

    def __init__(self, directory):
        self._directory = directory
        self._files = 0
        self._processes = []
        self.reset()

    def reset(self):
        """Begin anew."""
        self.end()
        self._files += 1
        self.path = self._directory / f"jobs-{self._files}.db"
        self.ledger = self._directory / f"ledger-{self._files}.db"
        self.url = f"sqlite:///{self.path}"
        self.stalls = Stalls()

    def end(self):
        for process in self._processes:
            process.destroy()
        if self._processes:
            self._processes = []
        if hasattr(self, "stalls"):
            self.stalls.end()

    def start(self, *options, ready=True, env=None, **config):
        """Start a process, and wait until its scheduler runs."""
        process = Process({"url": self.url, **config}, *options, env=env)
        self._processes.append(process)
        if ready:
            process.wait("ready")
        return process

    def start_together(self, *configs):
        """Start a process for each config, and wait until all their schedulers run."""
        processes = [self.start(ready=False, **config) for config in configs]
        for process in processes:
            process.wait("ready")
        return processes

    def freeze(self, process):
        """SIGSTOP, but not in the middle of a write: SQLite's lock would be held for as long as the freeze lasts."""
        while True:
            process.signal(signal.SIGSTOP)
            if all(_is_free(path) for path in (self.path, self.ledger)):
                return
            process.signal(signal.SIGCONT)
            time.sleep(0.01)

    @contextmanager
    def blocked(self):
        """Another program holds the file's write lock: nobody's claim is answered, and no new file is prepared."""
        with closing(sqlite3.connect(self.path, timeout=PATIENCE_S, isolation_level=None)) as connection:
            connection.execute("pragma journal_mode = wal")
            connection.execute("begin immediate")
            yield
            connection.execute("rollback")

    def rows(self, query):
        with closing(sqlite3.connect(self.path, timeout=PATIENCE_S)) as connection:
            return connection.execute(query).fetchall()

    def history(self, job):
        """(slot, attempt, status) of each record."""
        return self.rows(f"select slot, attempt, status from tenure_results where job = '{job}' order by slot, attempt")

    def within(self, took_ms, limit_ms, what):
        """Whether something took no longer than it may."""
        assert took_ms <= limit_ms, f"{what} took {took_ms} ms, more than {limit_ms} ms"


def _is_free(path):
    if not path.exists():
        return True
    with closing(sqlite3.connect(path, timeout=0.5, isolation_level=None)) as connection:
        try:
            connection.execute("begin immediate")
        except sqlite3.OperationalError:
            return False
        connection.execute("rollback")
        return True


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.end()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Repeat a test with a cluster that failed while the machine stalled; skip it if that goes on."""
    cluster = pyfuncitem.funcargs.get("cluster")
    if cluster is None:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    for _ in range(3):
        try:
            pyfuncitem.obj(**arguments)
        except (AssertionError, pytest.fail.Exception) as error:
            if cluster.stalls.longest_s < STALL_S:
                raise
            reason = f"this machine stalled for {cluster.stalls.longest_s:.2f} s: {error}"
            cluster.reset()
        else:
            return True
    return pytest.skip(f"inconclusive: {reason}")
