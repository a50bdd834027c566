"""One process of the demo: a scheduler with one job, which tells its parent what happens, a JSON line each."""

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from time import time_ns

from tenure.context import Context
from tenure.demo.ledger import Entry, Ledger, StaleFence
from tenure.events import Event, Interrupted, Start, Success
from tenure.job import JobOptions
from tenure.schedule import Every
from tenure.scheduler import Scheduler

JOB = "pay"
PERIOD_MS = 1_000
WORK_MS = 700

OPTIONS: JobOptions = {
    "heartbeat": "200ms",
    "overlap": "allow",  # a run that waits for its takeover holds up no later slot
    "max_attempts": 10,
    "jitter": "100ms",
}


class Stopped(Exception):
    """The handler gives up, because its scheduler stops."""


class UntilTold:
    """Every second, until the parent names the last slot: a schedule of one's own needs no more than two methods."""

    def __init__(self) -> None:
        self._every = Every(PERIOD_MS)
        self.last: int | None = None

    def next_slot(self, after_ms: int) -> int | None:
        """See Schedule."""
        slot = self._every.next_slot(after_ms)
        return None if slot is None or (self.last is not None and slot > self.last) else slot

    def latest_slot(self, at_ms: int) -> int | None:
        """See Schedule."""
        return self._every.latest_slot(at_ms if self.last is None else min(at_ms, self.last))


class Worker:
    """The job's handler, and what the parent is told."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self._name = name
        self._ledger = ledger

    def pay(self, ctx: Context) -> None:
        """Write to the ledger before and after some work.

        It heeds a stop and nothing else: when its lease is lost it writes all the same, and the ledger must refuse it.
        """
        self._write(ctx, "begun")
        if ctx.signal.wait(f"{WORK_MS}ms") and ctx.signal.reason == "stop":
            raise Stopped("asked to stop")
        self._write(ctx, "paid")

    def tell(self, event: Event) -> None:
        """Tell the parent what became of a run."""
        match event:
            case Start() | Success():
                report(event.kind, slot=event.slot, attempt=event.attempt, fence=event.fence)
            case Interrupted():
                report(event.kind, slot=event.slot, attempt=event.attempt, fence=event.fence, reason=event.reason)

    def _write(self, ctx: Context, entry: str) -> None:
        run = {"slot": ctx.slot_ms, "attempt": ctx.attempt, "fence": ctx.fence}
        try:
            self._ledger.write(Entry(ctx.slot_ms, ctx.fence, ctx.attempt, self._name, entry))
        except StaleFence:
            report("refused", **run)
            raise
        report(entry, **run)


def report(kind: str, **fields: object) -> None:
    """Tell the parent; a line is short enough to be written in one piece."""
    line = json.dumps({"kind": kind, "at": time_ns() // 1_000_000, **fields})
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def main(name: str, told: Mapping[str, str]) -> None:
    """Run until SIGTERM, which this waits for rather than handles, so that it cannot come in between anything."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    logging.getLogger("tenure").addHandler(logging.NullHandler())  # the parent tells what there is to tell
    schedule, worker = UntilTold(), Worker(name, Ledger(Path(told["TENURE_LEDGER"])))
    url, namespace = told["TENURE_URL"], told["TENURE_NAMESPACE"]
    scheduler = Scheduler(url, namespace=namespace, instance=name, grace="5s", on_event=worker.tell, **OPTIONS)
    scheduler.add(JOB, schedule, worker.pay, lease=told["TENURE_LEASE"])
    threading.Thread(target=_obey, args=(schedule,), daemon=True).start()
    scheduler.start()
    report("ready")
    signal.sigwait({signal.SIGTERM})
    scheduler.stop()


def _obey(schedule: UntilTold) -> None:
    """The parent says which slot is the last; when it is gone, so is the demo."""
    for line in sys.stdin:
        schedule.last = int(line)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], os.environ)
