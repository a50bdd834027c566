"""Starts the store and the processes, measures them all the while, and ends them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from chaos.stores import Server, Store, lease_ms_of, served, target_of
from tenure_conformance.faults.kit import with_option

from . import gauges
from .line import Bound, Line, Sample, fitted
from .wounds import Sever, way_to

KEEP_RESULTS = 20
"""Few, so that the history is full before the warm-up is over."""
_TESTS = Path(__file__).parents[1]
_SAMPLES = 60
_LEAST_INTERVAL_S = 0.4
_BETWEEN_RUNS_S = 1.0
"""Between samples where runs are made without a pause: they may all be made soon."""
_APART_S = {"mongo": 5.0}
_APART_OF_OTHERS_S = 1.5
"""Connections are not ended more often. pymongo waits half a second before it looks for the server again, and on a busy
machine what has queued up by then takes its time: a store that is nearly always away shows the queue, not a leak."""
_END_S = 30

BOUNDS = {
    "memory KB": Bound(2_048, 0.02),
    "open files": Bound(3),
    "threads": Bound(3),
    "bytes": Bound(262_144, 0.05),
    "bytes of the log": Bound(4_500_000),  # SQLite begins it again after a thousand pages
    "bytes on disk": Bound(
        32_000_000
    ),  # MongoDB uses what is free again after a checkpoint, of which there is one a minute
}
OF_CALLS = {"open files": Bound(60)}
"""Fifty calls at once may each have a connection of the driver's pool, now or later."""
OF_SERVER = {"mongo": Bound(320 * 1_024), "dynamodb": Bound(256 * 1_024)}
"""Its cache of 256 MB and its oplog of 64 MB may fill; dynalite is a program of Node, which collects late."""
OF_ANY_SERVER = Bound(8_192, 0.1)
"""Servers keep caches, and logs of what changed, that fill until their own bounds."""
RECORDS = Bound(10, 0.02)
"""Rows, keys, documents, items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked for."""

    target: str
    seconds: float = 120.0
    runs: int = 0
    """Calls of the backend without a pause, until there were so many runs, instead of instances for a time."""
    reconnects: int = 200
    instances: int = 2
    every: str = "100ms"
    leak: int = 0
    """Bytes that each run of the handler leaves behind, to see that it is found."""


@dataclass(slots=True)
class Report:
    """What was done, and what each measure did."""

    options: Options
    seconds: float = 0.0
    severed: int = 0
    done: list[dict[str, int]] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    @property
    def grows(self) -> bool:
        """Whether anything did."""
        return any(line.grows for line in self.lines)

    @property
    def runs(self) -> int:
        """Runs that ended well."""
        return sum(done.get("success", 0) for done in self.done)

    def __str__(self) -> str:
        head = f"{self.options.target}: {self.runs} runs in {self.seconds:.0f} s, {self.severed} times disconnected"
        told = [f"  {done}" for done in self.done]
        return "\n".join([head, *told, *(f"  {line}" for line in self.lines)])


class Process:
    """A process that is measured."""

    def __init__(self, options: Options, url: str, number: int, lease_ms: int) -> None:
        asked = {"runs": options.runs, "every": options.every, "leak": options.leak, "lease": f"{lease_ms}ms"}
        config = {"url": url, "name": f"endure-{number}", **asked}
        command = [sys.executable, "-m", "endurance.application", json.dumps(config)]
        path = os.pathsep.join([str(_TESTS), *sys.path])
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, **pipes)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self._process.stdout.readline()  # that it is ready, as far as it gets

    @property
    def runs(self) -> bool:
        """Whether it still does."""
        return self._process.poll() is None

    def end(self) -> dict[str, int]:
        """What it says of itself at its end, which it is asked for if it has not come."""
        if self.runs:
            self._process.send_signal(signal.SIGTERM)
        said, errors = self._process.communicate(timeout=_END_S)
        if self._process.returncode or not said:
            raise RuntimeError(f"a measured process ended with {self._process.returncode}: {errors[-2_000:]}")
        return json.loads(said)

    def kill(self) -> None:
        """End it in any case."""
        self._process.kill()
        self._process.wait()


def endure(options: Options) -> Report:
    """One run on a store of its own."""
    target = target_of(options.target)
    with served(target) as store:
        return asyncio.run(_run(options, store, lease_ms_of(target)))


async def _run(options: Options, store: Store, lease_ms: int) -> Report:
    store.url = with_option(store.url, "keep_results", str(KEEP_RESULTS))
    async with way_to(options.target, store) as (url, sever):
        with ExitStack() as stack:
            processes = []
            for number in range(1 if options.runs else options.instances):
                processes.append(Process(options, url, number + 1, lease_ms))
                stack.callback(processes[-1].kill)
            report = Report(options)
            samples = await _measured(report, store, processes, sever)
            report.done = [await asyncio.to_thread(process.end) for process in processes]
    report.lines = [fitted(name, found, _bound_of(name, options)) for name, found in samples.items()]
    return report


async def _measured(
    report: Report, store: Store, processes: list[Process], sever: Sever | None
) -> dict[str, list[Sample]]:
    """Samples of everything until the time is over, or the calls are made."""
    options, samples, begin = report.options, {}, time.monotonic()
    interval = _BETWEEN_RUNS_S if options.runs else max(options.seconds / _SAMPLES, _LEAST_INTERVAL_S)
    alone = asyncio.Lock()  # or the samples' own connections would be ended, too
    severing = asyncio.create_task(_sever(report, sever, alone)) if sever else None
    while time.monotonic() - begin < options.seconds and any(process.runs for process in processes):
        await asyncio.sleep(interval)
        async with alone:
            found = await _sample(options.target, store, processes)
        for name, value in found.items():
            samples.setdefault(name, []).append((time.monotonic() - begin, value))
    report.seconds = time.monotonic() - begin
    if severing:
        severing.cancel()
    return samples


async def _sample(target: str, store: Store, processes: list[Process]) -> dict[str, float]:
    found: dict[str, float] = {}
    for number, process in enumerate(processes, 1):
        if process.runs:
            found |= {f"instance {number}, {what}": value for what, value in gauges.of_process(process.pid).items()}
    if isinstance(store, Server):
        found |= {f"server, {what}": value for what, value in gauges.of_server(store.pid).items()}
    return found | {f"store, {what}": value for what, value in (await gauges.OF_STORE[target](store.url)).items()}


async def _sever(report: Report, sever: Sever, alone: asyncio.Lock) -> None:
    """End all connections, again and again, evenly over the time."""
    options = report.options
    evenly_s = 0.0 if options.runs else options.seconds / (options.reconnects + 1)
    while report.severed < options.reconnects:
        await asyncio.sleep(max(evenly_s, _APART_S.get(options.target, _APART_OF_OTHERS_S)))
        async with alone:
            await sever()
        report.severed += 1


def _bound_of(name: str, options: Options) -> Bound:
    whose, _, what = name.rpartition(", ")
    if whose == "server":
        return OF_SERVER.get(options.target, OF_ANY_SERVER)
    if options.runs and what in OF_CALLS:
        return OF_CALLS[what]
    return BOUNDS.get(what, RECORDS)
