"""One instance of the application: it runs its jobs and writes down what it is told, a line each, until SIGTERM."""

import json
import os
import sys
import time

CONFIG = json.loads(sys.argv[1]) if __name__ == "__main__" else {}

if ahead_ms := CONFIG.get("clock_ahead_ms"):  # before anything has looked at the clock
    _right_ns, _right_s = time.time_ns, time.time
    time.time_ns = lambda: _right_ns() + ahead_ms * 1_000_000
    time.time = lambda: _right_s() + ahead_ms / 1_000

import asyncio  # noqa: E402 - the clock comes first
import gc  # noqa: E402
import logging  # noqa: E402
import signal  # noqa: E402
import threading  # noqa: E402
from typing import Any  # noqa: E402

from tenure import BackendError, Event, Scheduler, every  # noqa: E402

from .broken import BROKEN  # noqa: E402
from .handlers import handler_of  # noqa: E402
from .journal import Journal  # noqa: E402
from .orphans import end_with_parent  # noqa: E402
from .workload import jobs_of  # noqa: E402

GRACE_MS = 3_000
STALL_MS = 60
MORE_THREADS = 2
"""What the libraries of drivers keep for the process once they were used, as grpc does."""
_TICK_S = 0.02
_SAMPLE_S = 2.0
_START_AGAIN_S = 0.3
_LEAVE_S = 12.0
"""How long handlers that outlive a stop, and what a driver ends late, may take to be gone."""
_TASKS = "_scheduled_tasks" if hasattr(asyncio.tasks, "_scheduled_tasks") else "_all_tasks"
_FIELDS = ("reason", "mode", "call", "timeout", "holder", "going_on")


class Log:
    """The instance's lines; each is written at once, so that a kill loses none."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def tell(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.monotonic_ns() / 1e6, **fields})
        os.write(self._file, line.encode() + b"\n")

    def event(self, event: Event) -> None:
        """A scheduler's event."""
        fields = {name: value for name in _FIELDS if (value := getattr(event, name, None)) is not None}
        if lost := getattr(event, "previous", ()):
            fields["previous"] = [[one.slot, one.attempt, one.fence, one.holder, one.released] for one in lost]
        if error := getattr(event, "error", None):
            fields["error"] = str(error)[-300:]
            fields["type"] = type(error).__name__
        run = {"job": event.job, "slot": event.slot, "attempt": event.attempt, "fence": event.fence}
        self.tell(event.kind, **run, **fields)

    def counts(self, kind: str) -> tuple[int, int, int]:
        """Write down how many threads, open files and tasks there are."""
        files = _files()
        found = threading.active_count(), len(files), _tasks()
        names = [*sorted(thread.name for thread in threading.enumerate()), *files] if kind != "sample" else []
        self.tell(kind, threads=found[0], files=found[1], tasks=found[2], rss_kb=_rss_kb(), names=names)
        return found


def _files() -> list[str]:
    """What this process's open files lead to."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:  # the directory's own, closed by now
            continue
    return sorted(found)


def _tasks() -> int:
    """Tasks of all loops; other threads make and forget them meanwhile."""
    known: Any = getattr(asyncio.tasks, _TASKS)
    while True:
        try:
            return sum(not task.done() for task in list(known))
        except RuntimeError:
            continue


def _rss_kb() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def tick(log: Log, ended: threading.Event) -> None:
    """Write down how long this process was kept waiting, and now and then what it holds."""
    before = time.monotonic()
    sampled = before
    while not ended.wait(_TICK_S):
        now = time.monotonic()
        if (late_ms := (now - before - _TICK_S) * 1000) > STALL_MS:
            log.tell("stall", ms=late_ms)
        if now - sampled > _SAMPLE_S:
            sampled = now
            log.counts("sample")
        before = time.monotonic()


def main() -> None:
    """Run until SIGTERM, which this waits for rather than handles, so that it cannot come in between anything."""
    end_with_parent()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    logging.getLogger("tenure").addHandler(logging.NullHandler())
    logging.getLogger("tenure").propagate = False  # what it says is in the events; all else is unexpected
    if CONFIG.get("broken"):
        BROKEN[CONFIG["broken"]]()
    log, ended = Log(CONFIG["log"]), threading.Event()
    ticker = threading.Thread(target=tick, args=(log, ended), name="ticker")
    ticker.start()
    scheduler = _scheduler(log)
    before = log.counts("before")
    if _started(scheduler, log):
        log.tell("ready")
        signal.sigwait({signal.SIGTERM})
        log.tell("stopping")
        scheduler.stop()
        log.tell("stopped")
    _leave(log, before)
    ended.set()
    ticker.join()


def _scheduler(log: Log) -> Scheduler:
    scheduler = Scheduler(
        CONFIG["url"],
        namespace=CONFIG["namespace"],
        instance=CONFIG["name"],
        grace=f"{GRACE_MS}ms",
        on_event=log.event,
    )
    journal = Journal(CONFIG["journal"])
    for job in jobs_of(CONFIG["version"], CONFIG["lease_ms"]).values():
        scheduler.add(job.name, every(f"{job.period_ms}ms"), handler_of(job, journal, log.tell), **job.options())
    return scheduler


def _started(scheduler: Scheduler, log: Log) -> bool:
    """Start, again and again while the store is away as a supervisor would; False if SIGTERM came first."""
    while True:
        try:
            scheduler.start()
        except BackendError as error:
            log.tell("start failed", type=type(error).__name__, error=str(error)[-300:])
        else:
            return True
        if signal.sigtimedwait({signal.SIGTERM}, _START_AGAIN_S) is not None:
            return False


def _leave(log: Log, before: tuple[int, int, int]) -> None:
    """Write down what is left when all should be gone."""
    end = time.monotonic() + _LEAVE_S
    while time.monotonic() < end and (threading.active_count() > before[0] + MORE_THREADS or _tasks() > before[2]):
        time.sleep(0.05)
    gc.collect()  # a connection in a cycle of a driver's objects is closed sooner or later
    log.counts("after")


if __name__ == "__main__":
    main()
