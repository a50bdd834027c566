"""Hints: pushed news that a poll would find too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from tenure.errors import BackendUnavailable

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import Client, answered
from tenure_conformance.faults.scene import Scene, scene, win
from tenure_conformance.rule import rule
from tenure_conformance.timing import monotonic_ms

PATIENCE_SECONDS = 20
"""A hint that takes longer never comes; how fast it is a benchmark says, not a rule on a loaded machine."""


class _Listener:
    """Collects a client's hints until it is left."""

    def __init__(self, client: Client, *jobs: str) -> None:
        self._hints: AsyncIterator[str] = client.changes(*jobs)
        self._task = asyncio.create_task(self._listen())
        self.heard: list[str] = []
        self._news = asyncio.Event()

    async def _listen(self) -> None:
        async for job in self._hints:
            assert type(job) is str, f"a hint is a job's name, not {job!r}"
            self.heard.append(job)
            self._news.set()

    async def __aenter__(self) -> "_Listener":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        close = getattr(self._hints, "aclose", None)
        if close is not None:
            await close()

    @property
    def ended(self) -> bool:
        """Whether the hints ended by themselves."""
        if not self._task.done():
            return False
        error = self._task.exception()
        if error is not None and not isinstance(error, AssertionError):
            raise AssertionError(f"the hints raised {type(error).__name__}: {error}") from error
        self._task.result()
        return True

    async def hears(self, job: str) -> None:
        """Wait for a hint of that job."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while job not in self.heard:
                    self._news.clear()
                    if self.ended:
                        raise AssertionError("the hints ended by themselves")
                    await self._news.wait()
        except TimeoutError as error:
            raise AssertionError(f"no hint of {job!r} within {PATIENCE_SECONDS} s, heard {self.heard}") from error


async def _ready(bench: Bench, listener: _Listener, job: str, slot: int = SLOT) -> int:
    """Wait until the listener surely hears: what was released before it listened may be missed. The next slot."""
    limit = slot + PATIENCE_SECONDS * 100
    while job not in listener.heard:
        held = await bench.a.win(job=job, slot=slot)
        assert await held.release()
        slot += 1
        await asyncio.sleep(0.01)
        assert slot < limit, "no hint of many releases"
    return slot


@rule(
    "HNT-001",
    level="hints",
    spec=("hint-what", "hint-fast"),
    catches=("hints-are-bytes", "hints-end", "hints-never", "hints-of-the-wrong-job"),
)
async def release_is_hinted(bench: Bench) -> None:
    """A release by one client is heard by another that listens to the job."""
    async with _Listener(bench.b, "job", "warm") as listener:
        await _ready(bench, listener, "warm")
        held = await bench.a.win()
        assert await held.release()
        await listener.hears("job")
    assert (await bench.b.win(mode="takeover", after=1)).attempt == 2


@rule(
    "HNT-002",
    level="hints",
    spec=("hint-what", "namespace-only", "names-exact"),
    catches=(
        "hints-of-other-namespaces",
        "hints-by-prefix",
        "hints-stop-after-one",
        "hints-are-bytes",
        "hints-end",
        "hints-never",
    ),
)
async def hints_are_of_the_named(bench: Bench) -> None:
    """Hints are of the jobs asked for in this namespace, and not of those with like names or of other namespaces."""
    other = await bench.client("other", namespace=bench.namespace + "2")
    async with _Listener(bench.b, "sync", "last") as listener:
        await _ready(bench, listener, "last")
        for job in ("sync2", "Sync", "syn", "sync:eu", "*"):
            assert await (await bench.a.win(job=job)).release()
        assert await (await other.win(job="sync")).release()
        listener.heard.clear()
        held = await bench.a.win(job="last", slot=SLOT + 9_000)
        assert await held.release()
        await listener.hears("last")
        assert set(listener.heard) == {"last"}
        assert await (await bench.a.win(job="sync")).release()
        await listener.hears("sync")


@rule("HNT-003", level="hints", spec=("hint-never-trusted", "errors-cancel"), catches=("listening-blocks",))
@answered("beside a listener")
async def listening_disturbs_nothing(bench: Bench) -> None:
    """A client that listens works as before meanwhile, and after its listener was cancelled and closed, again
    and again."""
    for turn in range(10):
        async with _Listener(bench.a, "job") as listener:
            for _ in range(turn):
                await asyncio.sleep(0)
            held = await bench.a.win(slot=SLOT + turn)
            assert await held.heartbeat()
            assert (await bench.a.ask(slot=SLOT + turn)).outcome == "running"
            assert await held.finish()
            assert listener.heard in ([], ["job"]) or set(listener.heard) == {"job"}
    assert await bench.look() == {}


@rule(
    "HNT-004",
    level="hints",
    spec=("hint-what", "hint-never-trusted"),
    catches=("hints-to-one-listener", "hints-are-bytes", "hints-end", "hints-never", "hints-of-the-wrong-job"),
)
async def every_listener_hears(bench: Bench) -> None:
    """Every listener hears a release, of any client, and one that left does not keep the others from hearing."""
    third = await bench.client("c")
    async with _Listener(bench.a, "job", "w") as one, _Listener(bench.b, "job", "w") as two:
        slot = SLOT
        async with _Listener(third, "job", "w") as gone:
            for listener in (one, two, gone):
                slot = await _ready(bench, listener, "w", slot)
        held = await third.win()
        assert await held.release()
        await one.hears("job")
        await two.hears("job")


@rule(
    "HNT-005",
    level="hints",
    spec=("hint-what", "hint-never-trusted"),
    catches=("hints-stop-after-one", "hints-are-bytes", "hints-end", "hints-never", "hints-of-the-wrong-job"),
)
async def hints_go_on(bench: Bench) -> None:
    """Hints go on for as long as one listens: each of many releases of several jobs is heard or found by the
    next poll."""
    jobs = ["one", "two", "three"]
    async with _Listener(bench.b, *jobs, "warm") as listener:
        await _ready(bench, listener, "warm")
        for turn in range(10):
            for job in jobs:
                listener.heard.clear()
                held = await bench.a.win(job=job, slot=SLOT + turn)
                assert await held.release()
                await listener.hears(job)
                taken = await bench.b.win(job=job, slot=SLOT + turn, mode="takeover", after=1)
                assert await taken.finish()


@rule("HNT-006", level="hints", needs="restart", spec=("hint-what", "hint-never-trusted"), pace="heavy")
async def hints_come_back(bench: Bench) -> None:
    """A listener hears releases again after a restart of the store, by the same iterator."""
    stage = await scene(bench)
    assert stage.faults.restart is not None
    async with _Listener(stage.near, "job", "warm") as listener:
        await _hears_of(stage, listener, "warm", slot=SLOT)
        await stage.faults.restart()
        listener.heard.clear()
        await _hears_of(stage, listener, "job", slot=SLOT)


@rule("HNT-007", level="hints", needs="silence", spec=("hint-what", "hint-never-trusted"), pace="heavy")
async def hints_outlast_silence(bench: Bench) -> None:
    """A listener hears releases again after its store gave no answer for longer than a call may take."""
    stage = await scene(bench)
    async with _Listener(stage.near, "job", "warm") as listener:
        await _hears_of(stage, listener, "warm", slot=SLOT)
        await stage.silence()
        with suppress(BackendUnavailable):
            await stage.near.active("job")
        await stage.heal()
        listener.heard.clear()
        await _hears_of(stage, listener, "job", slot=SLOT)


async def _hears_of(stage: Scene, listener: _Listener, job: str, *, slot: int) -> None:
    """Release run after run until the listener hears of one; those before it listened, or listens again, are missed."""
    limit = monotonic_ms() + PATIENCE_SECONDS * 1_000
    while job not in listener.heard:
        assert monotonic_ms() < limit, f"no hint of {job!r} within {PATIENCE_SECONDS} s, heard {listener.heard}"
        if listener.ended:
            raise AssertionError("the hints ended by themselves")
        with suppress(BackendUnavailable):
            held = await win(stage.far, job=job, slot=slot)
            await held.release()
        slot += 1
        await asyncio.sleep(0.05)
