"""A process that calls a backend as it is told, in lines of JSON: ``… worker.py TARGET URL NAMESPACE``.

Its wall clock is wrong by the milliseconds in the environment's ``TENURE_SKEW_MS``.
"""

import datetime
import os
import time


class _AnyDatetime(type):
    """Makes the skewed class recognise instances of the true one."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _TRUE_DATETIME)


_TRUE_DATETIME = datetime.datetime


def skew_wall_clock(skew_ms: int) -> None:
    """Make this process's wall clock wrong, for whatever is imported afterwards; monotonic clocks stay right."""
    true_ns, shift_ns = time.time_ns, skew_ms * 1_000_000
    true_local, true_utc = time.localtime, time.gmtime
    time.time_ns = lambda: true_ns() + shift_ns
    time.time = lambda: time.time_ns() / 1e9
    time.localtime = lambda seconds=None: true_local(time.time() if seconds is None else seconds)
    time.gmtime = lambda seconds=None: true_utc(time.time() if seconds is None else seconds)

    class Skewed(_TRUE_DATETIME, metaclass=_AnyDatetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]  # not Self
            return _TRUE_DATETIME.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> datetime.datetime:  # type: ignore[override]  # likewise
            return _TRUE_DATETIME.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

    datetime.datetime = Skewed  # type: ignore[misc]  # what a wrong clock is made of


if __name__ == "__main__" and os.environ.get("TENURE_SKEW_MS"):
    skew_wall_clock(int(os.environ["TENURE_SKEW_MS"]))

import asyncio  # noqa: E402  # all that follows sees the wrong clock
import json  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from collections.abc import Awaitable, Callable, Mapping  # noqa: E402
from dataclasses import asdict  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, BinaryIO  # noqa: E402

from tenure.errors import BackendError  # noqa: E402
from tenure.model import Claim, new_token  # noqa: E402

from tenure_conformance.processes.wire import arguments_of, to_plain  # noqa: E402
from tenure_conformance.target import load  # noqa: E402
from tenure_conformance.timing import sleep_until  # noqa: E402

LINE_BYTES = 1 << 24
RETRY_S = 0.002
STUCK_SECONDS = 30
"""A run of some milliseconds that is not over by then never will be, on any machine."""

Say = Callable[[Mapping[str, Any]], None]


async def main(target: str, url: str, namespace: str, out: BinaryIO) -> None:
    """Say that all is loaded, enter when told, then answer calls side by side until the input ends."""

    def say(told: Mapping[str, Any]) -> None:
        out.write(json.dumps(told).encode() + b"\n")
        out.flush()

    lines = asyncio.StreamReader(limit=LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    opened = load(target).open(url, namespace)
    say({"loaded": os.getpid()})
    order = await lines.readline()
    if order:
        await sleep_until(json.loads(order)["not_before_ms"])
        try:
            backend = await opened.__aenter__()
        except Exception as error:  # noqa: BLE001  # told to the rule, which judges it
            say({"error": _told(error)})
            return
        say({"capabilities": asdict(backend.capabilities)})
        await _serve(backend, lines, say)
        await opened.__aexit__(None, None, None)


async def _serve(backend: Any, lines: asyncio.StreamReader, say: Say) -> None:
    tasks: set[asyncio.Task[None]] = set()
    while line := await lines.readline():
        task = asyncio.create_task(_answer(backend, json.loads(line), say))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    for task in tuple(tasks):
        task.cancel()


async def _answer(backend: Any, request: Mapping[str, Any], say: Say) -> None:
    try:
        answer = await _call(backend, request)
    except Exception as error:  # noqa: BLE001  # told to the rule, which judges it
        say({"id": request["id"], "error": _told(error)})
    else:
        say({"id": request["id"], "answer": to_plain(answer)})


async def _call(backend: Any, request: Mapping[str, Any]) -> Any:
    name, arguments = request["call"], arguments_of(request["call"], request["arguments"])
    await sleep_until(request["not_before_ms"])
    if name == "count":
        return await count(backend, *arguments)
    if name == "forked":
        return await forked(backend, *arguments)
    call: Awaitable[Any] = getattr(backend, name)(*arguments, **request["options"])
    return await call


async def count(backend: Any, instance: str, first: int, runs: int, path: str) -> int:
    """Add one to the number in the file in each run that is won, not atomically; gives how many were won."""
    won = 0
    for slot in range(first, first + runs):
        won += await _counted(backend, instance, slot, Path(path))
    return won


async def _counted(backend: Any, instance: str, slot: int, path: Path) -> bool:
    """Whether the run was won here; tried until it is won or over."""
    claim = Claim(
        job="count",
        slot=slot,
        token=new_token(),
        instance=instance,
        lease_ms=600_000,
        mode="scheduled",
        overlap="skip",
        max_attempts=3,
        max_late_ms=None,
    )
    async with asyncio.timeout(STUCK_SECONDS):
        while (told := await backend.claim(claim)).outcome in ("running", "overlap"):  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(RETRY_S)
    if told.outcome != "won":
        return False
    number = int(path.read_text())  # noqa: ASYNC240  # a few bytes
    await asyncio.sleep(RETRY_S)
    path.write_text(str(number + 1))  # noqa: ASYNC240  # likewise
    return bool(await backend.finish("count", slot, claim.token, "success"))


async def forked(backend: Any, job: str) -> Any:
    """What `active` of the job told a forked child: the fences of its runs, or the name of an error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # it shares the parent's memory and files, and must not run the parent's code to its end
        try:
            os.write(writing, json.dumps(_told_in_child(backend, job)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    return json.loads(await asyncio.to_thread(_last_words, child, reading))


def _told_in_child(backend: Any, job: str) -> Any:
    async def call() -> Any:
        async with asyncio.timeout(STUCK_SECONDS):
            return await backend.active([job])

    signal.alarm(2 * STUCK_SECONDS)  # whatever it hangs in
    try:
        return [run.fence for run in asyncio.run(call()).runs]
    except BackendError:
        return "BackendError"
    except Exception as error:  # noqa: BLE001  # told to the rule, which judges it
        return f"{type(error).__name__}: {error}"


def _last_words(child: int, reading: int) -> bytes:
    with os.fdopen(reading, "rb") as pipe:
        words = pipe.read()
    os.waitpid(child, 0)
    return words or b'"the child died"'


def _told(error: Exception) -> dict[str, str | None]:
    return {"type": type(error).__name__, "text": str(error), "cause": repr(error.__cause__)}


if __name__ == "__main__":
    # What anything prints must not come between the lines.
    answers: BinaryIO = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], answers))
