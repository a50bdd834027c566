"""One process of an end-to-end test: a scheduler that obeys its stdin and tells what happens, a JSON line each."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

CONFIG = json.loads(sys.argv[1])

if ahead_ns := CONFIG.get("clock_ahead_ms", 0) * 1_000_000:  # before anything has looked at the clock
    right_ns = time.time_ns
    time.time_ns = lambda: right_ns() + ahead_ns
    right_s = time.time
    time.time = lambda: right_s() + ahead_ns / 1e9

import asyncio  # noqa: E402 - the clock comes first

from tenure import BackendUnavailable, Scheduler, every  # noqa: E402
from tenure.demo.ledger import Entry, Ledger, StaleFence  # noqa: E402
from tenure_sqlite import SqliteBackend  # noqa: E402

_out = threading.Lock()
_call = SqliteBackend._call


def tell(kind, **fields):
    line = json.dumps({"kind": kind, "at": now_ms(), **fields}) + "\n"
    with _out:
        os.write(1, line.encode())


def now_ms():
    return (time.time_ns() - CONFIG.get("clock_ahead_ms", 0) * 1_000_000) // 1_000_000


class Stopped(Exception):
    """The handler was told to stop."""


class Slots:
    """A schedule of the slots that the test names."""

    def __init__(self, slots):
        self.slots = sorted(slots)

    def next_slot(self, after_ms):
        return next((slot for slot in self.slots if slot > after_ms), None)

    def latest_slot(self, at_ms):
        return next((slot for slot in reversed(self.slots) if slot <= at_ms), None)


def on_event(event):
    fields = {name: getattr(event, name, None) for name in ("reason", "mode", "call", "duration_ms", "timeout")}
    fields = {name: value for name, value in fields.items() if value is not None}
    if hasattr(event, "error"):
        fields["error"] = str(event.error)
    tell(event.kind, job=event.job, slot=event.slot, attempt=event.attempt, fence=event.fence, **fields)


# Handlers: ``seconds`` is how long they take


def write(ctx, kind):
    if "ledger" in CONFIG:
        try:
            Ledger(Path(CONFIG["ledger"])).write(Entry(ctx.slot_ms, ctx.fence, ctx.attempt, ctx.instance, kind))
        except StaleFence:
            tell("refused", slot=ctx.slot_ms, attempt=ctx.attempt, fence=ctx.fence)
        else:
            tell("written", slot=ctx.slot_ms, attempt=ctx.attempt, fence=ctx.fence)


def begin(ctx):
    tell("begin", job=ctx.job, slot=ctx.slot_ms, attempt=ctx.attempt, fence=ctx.fence)


def end(ctx):
    tell("end", job=ctx.job, slot=ctx.slot_ms, attempt=ctx.attempt, told=ctx.signal.reason)


def polite(seconds):
    """Heeds its signal."""

    def handler(ctx):
        begin(ctx)
        write(ctx, "begun")
        if ctx.signal.wait(f"{int(seconds * 1000)}ms"):
            tell("signal", slot=ctx.slot_ms, attempt=ctx.attempt, reason=ctx.signal.reason)
            write(ctx, "late")
            raise Stopped
        write(ctx, "done")
        end(ctx)

    return handler


def deaf(seconds):
    """Looks at nothing."""

    def handler(ctx):
        begin(ctx)
        time.sleep(seconds)
        end(ctx)

    return handler


def blocking(seconds):
    """Blocks the loop that it runs on."""

    async def handler(ctx):
        begin(ctx)
        time.sleep(seconds)
        end(ctx)

    return handler


def sleeping(seconds):
    async def handler(ctx):
        begin(ctx)
        await asyncio.sleep(seconds)
        end(ctx)

    return handler


def stubborn(seconds):
    """Swallows its cancellation."""

    async def handler(ctx):
        begin(ctx)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                tell("swallowed", slot=ctx.slot_ms)
        end(ctx)

    return handler


HANDLERS = {function.__name__: function for function in (polite, deaf, blocking, sleeping, stubborn)}


# What the test asks for


class Commands:
    def __init__(self, scheduler):
        self.scheduler = scheduler

    def add(self, name, *, handler="polite", seconds=0, slots=None, period=None, **options):
        schedule = every(period) if slots is None else Slots(slots)
        self.scheduler.add(name, schedule, HANDLERS[handler](seconds), **{"jitter": "0s", **options})

    def trigger(self, name):
        return self.scheduler.trigger(name).result("30s").outcome

    def stop(self, grace=None):
        self.scheduler.stop(grace)

    def counts(self):
        """Threads and open files."""
        return [len(threading.enumerate()), len(os.listdir("/proc/self/fd"))]

    def cut(self):
        """Cut this process off from its store."""

        async def unreachable(*_, **__):
            raise BackendUnavailable("cut off")

        SqliteBackend._call = unreachable

    def mend(self):
        SqliteBackend._call = _call

    def obey(self):
        for line in sys.stdin:
            command = json.loads(line)
            call, number = command.pop("do"), command.pop("number")
            try:
                answer = getattr(self, call)(**command)
            except BaseException as error:
                tell("answer", number=number, error=f"{type(error).__name__}: {error}")
            else:
                tell("answer", number=number, answer=answer)


def become_newer():
    """Write what this version's successor might, which reads all that this one writes."""
    import tenure.codec
    import tenure_sqlite.database

    tenure.codec.FORMAT = 2
    tenure_sqlite.database.VERSION = 2


def watch_start(scheduler):
    while scheduler._thread is None:
        time.sleep(0.002)
    scheduler._thread.started.result()
    tell("ready", pid=os.getpid())


async def block(scheduler):
    async with scheduler:
        await asyncio.Event().wait()


def main():
    if CONFIG.get("newer"):
        become_newer()
    if wait_ms := CONFIG.get("wait_until_ms"):
        time.sleep(max(wait_ms - now_ms(), 0) / 1000)
    scheduler = Scheduler(
        CONFIG["url"],
        namespace=CONFIG.get("namespace"),
        instance=CONFIG.get("instance"),
        grace=CONFIG.get("grace", "5s"),
        on_event=on_event,
        **CONFIG.get("options", {}),
    )
    commands = Commands(scheduler)
    for job in CONFIG.get("jobs", ()):
        commands.add(**job)
    threading.Thread(target=commands.obey, daemon=True).start()
    threading.Thread(target=watch_start, args=(scheduler,), daemon=True).start()
    match CONFIG.get("host", "run"):
        case "run":
            scheduler.run()
        case "serve":
            asyncio.run(scheduler.serve())
        case "block":
            asyncio.run(block(scheduler))
        case "start":
            scheduler.start()
            signal.pause()
    tell("over")


if __name__ == "__main__":
    main()
