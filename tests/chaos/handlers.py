"""What the jobs do: each handler writes to the journal, and each is bad in a way of its own."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tenure import Context

from .journal import Journal
from .workload import JobSpec

Tell = Callable[..., None]


class Broken(Exception):
    """A handler fails, as handlers do."""


class Stopped(Exception):
    """A handler heeds its signal."""


class Pen:
    """Writes of one attempt: to the journal with its fence, and to the instance's own log when it is told to stop."""

    def __init__(self, journal: Journal, tell: Tell, ctx: Context) -> None:
        self._journal = journal
        self._tell = tell
        self._ctx = ctx

    def __enter__(self) -> "Pen":
        # When exactly a handler is told is what the checker asks; a thread that waits for it would come later.
        self._ctx.signal._when_set(self._told)
        self.write("start")
        return self

    def __exit__(self, *_: object) -> None:
        self._tell("handler end", **self._run())
        self.write("end")

    def write(self, kind: str) -> None:
        ctx = self._ctx
        scope = ctx.job if ctx.fence_scope == "job" else f"{ctx.job}@{ctx.slot_ms}"
        self._journal.write(scope, ctx.fence, kind=kind, **self._run())

    def _told(self) -> None:
        self._tell("told", reason=self._ctx.signal.reason, **self._run())

    def _run(self) -> dict[str, Any]:
        ctx = self._ctx
        return {"job": ctx.job, "slot": ctx.slot_ms, "attempt": ctx.attempt, "instance": ctx.instance}


def handler_of(job: JobSpec, journal: Journal, tell: Tell) -> Callable[[Context], Any]:
    """The handler of a job."""
    return _MAKERS[job.handler](job.work_ms / 1000, lambda ctx: Pen(journal, tell, ctx))


def _sleeping(seconds: float, pen: Callable[[Context], Pen]) -> Callable[[Context], Any]:
    async def handler(ctx: Context) -> None:
        with pen(ctx) as journal:
            await asyncio.sleep(seconds / 2)
            journal.write("middle")
            await asyncio.sleep(seconds / 2)

    return handler


def _raising(seconds: float, pen: Callable[[Context], Pen]) -> Callable[[Context], Any]:
    async def handler(ctx: Context) -> None:
        with pen(ctx):
            await asyncio.sleep(seconds)
            raise Broken("as handlers do")

    return handler


def _stubborn(seconds: float, pen: Callable[[Context], Pen]) -> Callable[[Context], Any]:
    async def handler(ctx: Context) -> None:
        until = time.monotonic() + seconds
        with pen(ctx) as journal:
            while (left := until - time.monotonic()) > 0:
                try:
                    await asyncio.sleep(left)
                except asyncio.CancelledError:
                    journal.write("uncancelled")

    return handler


def _hanging(_seconds: float, pen: Callable[[Context], Pen]) -> Callable[[Context], Any]:
    async def handler(ctx: Context) -> None:
        with pen(ctx):
            await asyncio.Event().wait()

    return handler


def _blocking(seconds: float, pen: Callable[[Context], Pen]) -> Callable[[Context], Any]:
    async def handler(ctx: Context) -> None:
        with pen(ctx):
            time.sleep(seconds)

    return handler


def _polite(seconds: float, pen: Callable[[Context], Pen]) -> Callable[[Context], Any]:
    def handler(ctx: Context) -> None:
        with pen(ctx):
            if ctx.signal.wait(f"{round(seconds * 1000)}ms"):
                raise Stopped(ctx.signal.reason)

    return handler


def _deaf(seconds: float, pen: Callable[[Context], Pen]) -> Callable[[Context], Any]:
    def handler(ctx: Context) -> None:
        with pen(ctx) as journal:
            time.sleep(seconds / 2)
            journal.write("middle")
            time.sleep(seconds / 2)

    return handler


_MAKERS = {
    "sleeping": _sleeping,
    "raising": _raising,
    "stubborn": _stubborn,
    "hanging": _hanging,
    "blocking": _blocking,
    "polite": _polite,
    "deaf": _deaf,
}
