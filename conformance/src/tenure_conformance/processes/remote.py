"""A client of the store in a process of its own: it is called as any other, and can be killed and frozen."""

import asyncio
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from tenure import errors
from tenure.model import ActiveRuns, Capabilities, Claim, ClaimResult, Ending, RunResult

from tenure_conformance.bench import Bench
from tenure_conformance.client import CALL_SECONDS, Client
from tenure_conformance.processes import worker
from tenure_conformance.processes.wire import answer_of, to_plain
from tenure_conformance.timing import Uncertain, monotonic_ms

T = TypeVar("T")

HOUR_MS = 3_600_000
START_SECONDS = 60
"""A machine that takes longer to start a process says nothing of a backend."""


class Gone(Exception):
    """The process ended before it answered."""


class Remote:
    """The backend of another process, as an object with the protocol's methods.

    No call begins before ``not_before_ms``, by the monotonic clock, which all processes of a host share.
    """

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.not_before_ms: float = 0.0
        self.capabilities: Capabilities = Capabilities()
        self._input, self._output = process.stdin, process.stdout
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._numbers = itertools.count()
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def started(cls, reference: str, url: str, namespace: str, environment: Mapping[str, str]) -> Self:
        """A process that has loaded the target and not entered it yet."""
        path = os.pathsep.join(entry for entry in sys.path if entry)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", worker.__file__, reference, url, namespace),
            stdin=PIPE,
            stdout=PIPE,
            limit=worker.LINE_BYTES,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )
        remote = cls(process)
        await remote._said("loaded")
        return remote

    async def entered(self) -> None:
        """Enter the backend there; raises what that raised."""
        self._say({"not_before_ms": self.not_before_ms})
        self.capabilities = Capabilities(**(await self._said("capabilities")))
        self._reading = asyncio.create_task(self._read())

    async def claim(self, claim: Claim) -> ClaimResult:
        """See LeaseBackend."""
        return await self.call("claim", claim)  # type: ignore[no-any-return]  # checked by the client

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        return await self.call("heartbeat", job, slot, token)  # type: ignore[no-any-return]  # likewise

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        """See LeaseBackend."""
        return await self.call("finish", job, slot, token, status)  # type: ignore[no-any-return]  # likewise

    async def release(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        return await self.call("release", job, slot, token)  # type: ignore[no-any-return]  # likewise

    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        """See LeaseBackend."""
        return await self.call("active", list(jobs))  # type: ignore[no-any-return]  # likewise

    async def save_result(self, job: str, result: RunResult) -> None:
        """See LeaseBackend."""
        await self.call("save_result", job, result)

    async def results(self, job: str, **limit: int) -> list[RunResult]:
        """See LeaseBackend."""
        return await self.call("results", job, **limit)  # type: ignore[no-any-return]  # likewise

    async def call(self, call: str, *arguments: Any, **options: Any) -> Any:
        """A call of the backend there, or of the worker itself; raises what it raised, Gone if the process ended."""
        number = next(self._numbers)
        self._waiting[number] = future = asyncio.get_running_loop().create_future()
        told = [to_plain(one) for one in arguments]
        request = {"id": number, "call": call, "arguments": told, "options": options}
        self._say({**request, "not_before_ms": self.not_before_ms})
        reply = await future
        if "error" in reply:
            raise _error(reply["error"])
        return answer_of(call, reply["answer"])

    async def ended(self) -> None:
        """Kill it, if it lives, and wait for its end."""
        with suppress(ProcessLookupError):
            self.process.kill()
        if self._reading is not None:
            await self._reading
        self._input.close()
        await self.process.communicate()

    def _say(self, told: Mapping[str, Any]) -> None:
        self._input.write(json.dumps(told).encode() + b"\n")

    async def _said(self, name: str) -> Any:
        """What the process says of itself while it starts."""
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await self._output.readline()
        except TimeoutError as error:
            raise Uncertain(f"a process took {START_SECONDS} s to start") from error
        assert line, "a process of the target ended while it started; its last words are on standard error"
        told = json.loads(line)
        if "error" in told:
            raise _error(told["error"])
        return told[name]

    async def _read(self) -> None:
        while (line := await self._output.readline()).endswith(b"\n"):
            reply = json.loads(line)
            future = self._waiting.pop(reply["id"])
            if not future.done():
                future.set_result(reply)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Gone("the process ended"))
                future.exception()  # whether anybody still asks or not


class Worker(Client):
    """A client in a process of its own."""

    backend: Remote

    def not_before(self, moment_ms: float) -> None:
        """No call begins before this moment of the monotonic clock."""
        self.backend.not_before_ms = moment_ms

    async def kill(self) -> None:
        """SIGKILL; the process is gone when this returns."""
        self.backend.process.send_signal(signal.SIGKILL)
        await self.backend.process.wait()

    async def freeze(self) -> None:
        """SIGSTOP; the process stands still when this returns."""
        self.backend.process.send_signal(signal.SIGSTOP)
        while not _stands_still(self.backend.process.pid):  # noqa: ASYNC110  # nothing else tells
            await asyncio.sleep(0.001)

    def thaw(self) -> None:
        """SIGCONT."""
        self.backend.process.send_signal(signal.SIGCONT)


def _stands_still(pid: int) -> bool:
    """Whether a process is stopped, or its system does not tell."""
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] in "Tt"


async def hire(
    bench: Bench,
    *names: str,
    skews_ms: Sequence[int] = (),
    zones: Sequence[str] = (),
    url: str | None = None,
    namespace: str | None = None,
    at_once: bool = False,
) -> list[Worker]:
    """Clients in processes of their own, with wall clocks that are wrong by ``skews_ms`` and in these time zones.

    They end with the rule. ``at_once`` lets them all enter at the same moment.
    """
    target = bench.target
    reference = target.reference or target.name
    environments: list[dict[str, str]] = [{} for _ in names]
    for environment, skew_ms in zip(environments, skews_ms, strict=False):
        environment["TENURE_SKEW_MS"] = str(skew_ms)
    for environment, zone in zip(environments, zones, strict=False):
        environment["TZ"] = zone

    async def start(environment: Mapping[str, str]) -> Remote:
        remote = await Remote.started(reference, url or bench.url, namespace or bench.namespace, environment)
        bench.stack.push_async_callback(remote.ended)
        return remote

    remotes = await _all(start(environment) for environment in environments)
    for remote in remotes:
        remote.not_before_ms = monotonic_ms() + 50 if at_once else 0.0
    async with asyncio.timeout(CALL_SECONDS + START_SECONDS):
        await _all(remote.entered() for remote in remotes)
    return [Worker(name, remote, bench) for name, remote in zip(names, remotes, strict=True)]


async def _all(started: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Each one's result; the first error once all have ended, so that none is left behind."""
    told = await asyncio.gather(*started, return_exceptions=True)
    if errors_told := [one for one in told if isinstance(one, BaseException)]:
        raise errors_told[0]
    return cast(list[T], told)


def _error(told: Mapping[str, str]) -> Exception:
    """The error that was raised there, as far as it is one of tenure's; its cause by name."""
    kind: Any = getattr(errors, told["type"], None)
    if not (isinstance(kind, type) and issubclass(kind, errors.TenureError)):
        return RuntimeError(f"{told['type']}: {told['text']}")
    error: Exception = kind(told["text"])
    if told["cause"] != "None":
        error.__cause__ = RuntimeError(told["cause"])
    return error
