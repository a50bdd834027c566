"""Processes of the application: started in their positions, harmed, and none left behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tenure_conformance.faults.proxy import Cut, Fault, Proxy
from tenure_conformance.timing import monotonic_ms

from .evidence import NEVER, Harm, HarmKind, Life, Span
from .stores import Store, await_freeze

TESTS = Path(__file__).parents[1]
READY_S = 60
_LOOK_S = 0.02
_MOST_TRIES = 200


@dataclass
class LostReplies(Fault):
    """Some replies are lost, each with its connection."""

    percent: int
    number: int = 0

    async def reply(self, proxy: Proxy, data: bytes) -> bytes:
        """See Fault."""
        self.number += 1
        if self.number * self.percent % 100 < self.percent:
            raise Cut
        return data


@dataclass
class Slow(Fault):
    """Each way takes so long."""

    each_ms: float

    async def request(self, proxy: Proxy, data: bytes) -> bytes:
        """See Fault."""
        await asyncio.sleep(self.each_ms / 1000)
        return data

    async def reply(self, proxy: Proxy, data: bytes) -> bytes:
        """See Fault."""
        await asyncio.sleep(self.each_ms / 1000)
        return data


def python(module: str, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
    """A process of a module of this package, in a group of its own: a Ctrl-C is for the director alone."""
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-m", f"chaos.{module}", *arguments]
    return subprocess.Popen(command, env=environment, process_group=0, stdin=subprocess.DEVNULL, **options)


@dataclass
class Instance:
    """One process of the application, and what is known of its life."""

    life: Life
    process: "subprocess.Popen[bytes]"
    log: Path
    errors: Path
    harms: list[Harm] = field(default_factory=list)

    async def ready(self) -> None:
        """Wait until its scheduler runs, or it has ended."""
        for _ in range(int(READY_S / _LOOK_S)):
            if self.process.poll() is not None or (self.log.exists() and '"ready"' in self.log.read_text()):
                return
            await asyncio.sleep(_LOOK_S)
        raise TimeoutError(f"{self.life.instance} was not ready after {READY_S} s")

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self.process.kill()
        self.process.wait()
        self._ended("killed")

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        self.life = replace(self.life, stopping=min(self.life.stopping, monotonic_ms()))
        self.process.send_signal(signal.SIGTERM)

    async def stopped(self) -> None:
        """Wait until it has ended by itself."""
        code = await asyncio.to_thread(self.process.wait, READY_S)
        self._ended("stopped", code)

    async def freeze(self, store: Store) -> Span:
        """SIGSTOP, but not where that holds up everybody else; the span goes on until ``thaw``."""
        for _ in range(_MOST_TRIES):
            begin = monotonic_ms()
            self.process.send_signal(signal.SIGSTOP)
            await asyncio.to_thread(await_freeze, self.process.pid)
            if not await asyncio.to_thread(store.disturbed_by, self.process.pid):
                return Span(begin)
            self.thaw(Span(begin))
            await asyncio.sleep(_LOOK_S)
        raise TimeoutError(f"{self.life.instance} is always in the middle of a write")

    def thaw(self, span: Span) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)
        self.harm("frozen", Span(span.begin, monotonic_ms()))

    def harm(self, kind: HarmKind, span: Span) -> None:
        """Keep in mind what was done to it."""
        self.harms.append(Harm(kind, span))

    def lived(self) -> Life:
        """Its life, now that it is over."""
        return replace(self.life, harms=tuple(self.harms), said=self.errors.read_text(errors="replace")[-20_000:])

    def _ended(self, how: Any, code: int | None = None) -> None:
        if self.life.end == NEVER:
            self.life = replace(self.life, end=monotonic_ms(), how=how, code=code)


def start(config: dict[str, Any], directory: Path) -> Instance:
    """Start an instance; its files are in the directory."""
    name = config["name"]
    log, errors = directory / f"{name}.log", directory / f"{name}.err"
    with errors.open("wb") as file:
        process = python("application", json.dumps({**config, "log": str(log)}), stdout=file, stderr=file)
    life = Life(
        instance=name, version=config["version"], spawned=monotonic_ms(), clock_ahead_ms=config["clock_ahead_ms"]
    )
    return Instance(life, process, log, errors)
