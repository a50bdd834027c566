"""Plays the plan: starts store, journal and instances, does to them what is planned, and gathers the evidence."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from tenure import RunResult, connect
from tenure_conformance.faults.kit import with_option
from tenure_conformance.faults.proxy import Proxy
from tenure_conformance.target import Target
from tenure_conformance.timing import monotonic_ms, sleep_until

from . import instances
from .application import GRACE_MS
from .evidence import Done, Evidence, Life, Settings, Span, entry_of, lines, note_of
from .instances import Instance, LostReplies, Slow, python
from .plan import POSITIONS, START_MS, Fault, plan
from .probe import Probe
from .stores import KEEP_RESULTS, Store, lease_ms_of, served, target_of
from .workload import jobs_of

NAMESPACE = "chaos"
TIMEOUTS_MS = (2_000, 3_000, 5_000)
_REST_LEASES = 4
_LOST_PERCENT = 30
_EACH_MS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a run is told."""

    target: str
    seed: int
    minutes: float
    instances: int = len(POSITIONS)
    broken: str = ""
    unfenced: bool = False


Say = Callable[[str], None]


def run(options: Options, directory: Path, say: Say) -> Evidence:
    """Play it all, in a directory of its own."""
    target = target_of(options.target)
    with served(target) as store:
        return asyncio.run(_run(options, target, store, directory, say))


async def _run(options: Options, target: Target, store: Store, directory: Path, say: Say) -> Evidence:
    timeout_ms = TIMEOUTS_MS[options.seed % len(TIMEOUTS_MS)]
    async with Director(options, target, store, directory, timeout_ms, say) as director:
        return await director.play()


class Director:
    """One run."""

    def __init__(
        self, options: Options, target: Target, store: Store, directory: Path, timeout_ms: int, say: Say
    ) -> None:
        self._options = options
        self._target = target
        self._store = store
        self._directory = directory
        self._timeout_ms = timeout_ms
        self._say = say
        self._lease_ms = lease_ms_of(target)
        self._numbers = {who: itertools.count(1) for who in POSITIONS}
        self._versions = dict.fromkeys(POSITIONS, 1)
        self._locks = {who: asyncio.Lock() for who in (*POSITIONS, "store")}
        self._now: dict[str, Instance] = {}
        self._all: list[Instance] = []
        self._proxies: dict[str, Proxy] = {}
        self._done: list[Done] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Director":
        address = str(self._directory / "journal.sock")
        arguments = [address, str(self._directory / "journal.log"), *(["unfenced"] if self._options.unfenced else [])]
        journal = python("journal", *arguments, stdout=-1)
        self._stack.callback(journal.wait)
        self._stack.callback(journal.kill)
        assert journal.stdout is not None
        await asyncio.to_thread(journal.stdout.readline)
        self._journal = address
        self._stack.callback(journal.stdout.close)
        self._stack.callback(self._destroy)
        for who in self._positions:
            if self._store.endpoint is not None:
                self._proxies[who] = await self._stack.enter_async_context(Proxy.between(*self._store.endpoint))
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.aclose()

    @property
    def _positions(self) -> str:
        return POSITIONS[: self._options.instances]

    async def play(self) -> Evidence:
        """Carry the plan out."""
        # The store is prepared by one: what five of them do at once has a rule of its own in the conformance suite.
        async with connect(self._store.url, namespace=NAMESPACE):
            pass
        probe = Probe(with_option(self._store.url, "timeout", "1s"), NAMESPACE)
        with probe:
            await asyncio.gather(*(self._start(who) for who in self._positions))
            begin = monotonic_ms()
            await self._faults(begin)
            await asyncio.sleep(_REST_LEASES * self._lease_ms / 1000)
            end = monotonic_ms()
            self._say("all are stopped")
            await asyncio.gather(*(self._stop(who) for who in self._positions))
            records = await self._records()
        return self._evidence(begin, end, probe, records)

    async def _faults(self, begin: float) -> None:
        options = self._options
        faults = plan(options.seed, options.minutes, self._lease_ms, network=bool(self._proxies))
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                if fault.who not in (*self._positions, "store", "all"):
                    continue
                await sleep_until(begin + fault.at_ms)
                performed = group.create_task(self._perform(fault))
                if fault.who == "all":  # what follows waits, or it would all come at once
                    await performed
                    begin += max(monotonic_ms() - begin - fault.at_ms - fault.for_ms - START_MS, 0)
            await sleep_until(begin + options.minutes * 60_000 - _REST_LEASES * self._lease_ms)

    async def _perform(self, fault: Fault) -> None:
        names = self._positions if fault.who == "all" else fault.who
        held = [fault.who] if fault.who == "store" else list(names)
        async with AsyncExitStack() as stack:
            for name in held:
                await stack.enter_async_context(self._locks[name])
            self._say(str(fault))
            begin = monotonic_ms()
            await self._acts[fault.kind](self, fault)
            self._done.append(Done(fault.kind, fault.who, Span(begin, monotonic_ms())))

    # What is done to instances

    async def _kill(self, fault: Fault) -> None:
        self._now[fault.who].kill()
        await _sleep(fault.for_ms)
        await self._start(fault.who)

    async def _kill_all(self, fault: Fault) -> None:
        for who in self._positions:
            self._now[who].kill()
        await _sleep(fault.for_ms)
        await asyncio.gather(*(self._start(who) for who in self._positions))

    async def _freeze(self, fault: Fault) -> None:
        instance = self._now[fault.who]
        span = await instance.freeze(self._store)
        await _sleep(fault.for_ms)
        instance.thaw(span)

    async def _stop_and_start(self, fault: Fault) -> None:
        await self._stop(fault.who)
        await _sleep(fault.for_ms)
        await self._start(fault.who)

    async def _wrong_clock(self, fault: Fault) -> None:
        await self._stop(fault.who)
        await self._start(fault.who, fault.by)
        await _sleep(fault.for_ms)
        await self._stop(fault.who)
        await self._start(fault.who)

    async def _deploy(self, fault: Fault) -> None:
        for who in self._positions:
            self._versions[who] += 1
            await self._stop(who)
            await self._start(who)

    @asynccontextmanager
    async def _harmed(self, fault: Fault, kind: Any) -> AsyncIterator[Proxy]:
        instance, proxy, begin = self._now[fault.who], self._proxies[fault.who], monotonic_ms()
        yield proxy
        await _sleep(fault.for_ms)
        await proxy.heal()
        instance.harm(kind, Span(begin, monotonic_ms()))

    async def _cut(self, fault: Fault) -> None:
        async with self._harmed(fault, "cut") as proxy:
            await proxy.silence()

    async def _refuse(self, fault: Fault) -> None:
        async with self._harmed(fault, "cut") as proxy:
            await proxy.refuse()

    async def _lose_replies(self, fault: Fault) -> None:
        async with self._harmed(fault, "lossy") as proxy:
            proxy.fault = LostReplies(_LOST_PERCENT)

    async def _slow_down(self, fault: Fault) -> None:
        async with self._harmed(fault, "lossy") as proxy:
            proxy.fault = Slow(_EACH_MS)

    # What is done to the store

    async def _pause_store(self, fault: Fault) -> None:
        await asyncio.to_thread(self._store.pause)
        await _sleep(fault.for_ms)
        await asyncio.to_thread(self._store.resume)

    async def _restart_store(self, fault: Fault) -> None:
        await asyncio.to_thread(self._store.restart)

    async def _kill_store(self, fault: Fault) -> None:
        await asyncio.to_thread(self._store.kill)
        await _sleep(fault.for_ms)
        await asyncio.to_thread(self._store.start)

    _acts: ClassVar[dict[str, Callable[["Director", Fault], Awaitable[None]]]] = {
        "kill": _kill,
        "kill all": _kill_all,
        "freeze": _freeze,
        "blink": _freeze,
        "stop": _stop_and_start,
        "wrong clock": _wrong_clock,
        "deploy": _deploy,
        "cut": _cut,
        "refuse": _refuse,
        "lost replies": _lose_replies,
        "slow": _slow_down,
        "store pause": _pause_store,
        "store blink": _pause_store,
        "store restart": _restart_store,
        "store kill": _kill_store,
    }

    # Starting, stopping, gathering

    async def _start(self, who: str, clock_ahead_ms: int = 0) -> None:
        url = self._store.url
        if who in self._proxies:
            url = self._store.through(self._proxies[who].host, self._proxies[who].port)
        config = {
            "name": f"{who}{next(self._numbers[who])}",
            "url": with_option(url, "timeout", f"{self._timeout_ms}ms"),
            "namespace": NAMESPACE,
            "version": self._versions[who],
            "lease_ms": self._lease_ms,
            "journal": self._journal,
            "clock_ahead_ms": clock_ahead_ms,
            "broken": self._options.broken,
        }
        instance = self._now[who] = instances.start(config, self._directory)
        self._all.append(instance)
        await instance.ready()

    async def _stop(self, who: str) -> None:
        self._now[who].ask_to_stop()
        await self._now[who].stopped()

    def _destroy(self) -> None:
        for instance in self._all:
            instance.kill()

    async def _records(self) -> dict[str, list[RunResult]]:
        names = sorted({name for version in (1, 2) for name in jobs_of(version, self._lease_ms)})
        url = with_option(self._store.url, "timeout", "20s")
        async with connect(url, namespace=NAMESPACE) as backend:
            return {name: await backend.results(name, limit=KEEP_RESULTS) for name in names}

    def _evidence(self, begin: float, end: float, probe: Probe, records: dict[str, list[RunResult]]) -> Evidence:
        notes = [note_of(line, one.life.instance) for one in self._all for line in lines(one.log)]
        notes.sort(key=lambda note: note.at)
        ready = {note.instance: note.at for note in notes if note.kind == "ready"}
        capabilities = self._target.capabilities
        return Evidence(
            settings=Settings(
                target=self._options.target,
                store=self._target.store(),
                seed=self._options.seed,
                minutes=self._options.minutes,
                lease_ms=self._lease_ms,
                granularity_ms=capabilities.lease_granularity_ms,
                late_ms=self._target.timing.slack_ms if capabilities.lease_granularity_ms > 1 else 0,
                clock_error_ms=capabilities.clock_error_ms,
                timeout_ms=self._timeout_ms,
                grace_ms=GRACE_MS,
            ),
            begin=begin,
            end=end,
            wall_ahead=time.time_ns() / 1e6 - monotonic_ms(),
            lives=[_life(one, ready) for one in self._all],
            journal=[entry_of(line) for line in lines(self._directory / "journal.log")],
            notes=notes,
            records=records,
            faults=sorted(self._done, key=lambda done: done.span.begin),
            away=probe.away,
            stalls=probe.stalls,
        )


def _life(one: Instance, ready: dict[str, float]) -> Life:
    life = one.lived()
    return replace(life, ready=ready.get(life.instance, life.ready))


async def _sleep(for_ms: float) -> None:
    await asyncio.sleep(for_ms / 1000)
