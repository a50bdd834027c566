"""What rules of level ``faults`` work at: a client whose store is harmed, another one, calls that must end in time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Unpack

from tenure.errors import BackendError, BackendUnavailable

from tenure_conformance.bench import Bench
from tenure_conformance.client import ClaimOptions, Client, Held
from tenure_conformance.faults.kit import Faults
from tenure_conformance.faults.proxy import Proxy
from tenure_conformance.timing import Uncertain, monotonic_ms

TIMEOUT_MS = 500
"""The timeout of harmed clients to begin with; it is doubled with the lease."""
GRACE_MS = 250
"""How long after its timeout a call may still end (section 6)."""
NOISE_MS = 100
"""What measuring may add, besides the loop's own stalls."""
HANGS_MS = 2_000
"""What ends later than this after its deadline is no matter of a busy machine."""
GIVE_UP_MS = 20_000
"""A machine that stands still for so long says nothing of a backend."""
LOOKS = 3
"""A call that ended a little late is looked at so often; a busy machine is not late each time."""
STEP_MS = 5

Calls = Mapping[str, Callable[[], Coroutine[Any, Any, Any]]]
"""Calls by their names in messages; each can be made several times."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A store that can be harmed; ``near`` is the client that feels it, ``far`` another one, on the direct way."""

    bench: Bench
    faults: Faults
    near: Client
    far: Client

    @property
    def network(self) -> Proxy:
        """The proxy on the way of ``near``."""
        return self.faults.network

    async def silence(self) -> None:
        """The store gives ``near`` no answer from now on."""
        await self.faults.silence()

    async def heal(self) -> None:
        """All is well again."""
        await self.faults.heal()


async def faults_of(bench: Bench, *, timeout_ms: int = TIMEOUT_MS) -> Faults:
    """A store of the rule's own that can be harmed; it is there until all clients of the rule are left."""
    kit = bench.target.faults
    assert kit is not None, "the target declares the level 'faults' and offers none"
    return await bench.stack.enter_async_context(kit.open(bench.url, timeout_ms * bench.scale))


async def scene(bench: Bench, *, timeout_ms: int = TIMEOUT_MS) -> Scene:
    """The store and its two clients, entered; the timeout of ``near`` grows with the lease."""
    faults = await faults_of(bench, timeout_ms=timeout_ms)
    with healthy("entering"):
        return Scene(
            bench, faults, await bench.client("near", url=faults.url), await bench.client("far", url=faults.direct)
        )


@contextmanager
def healthy(what: str) -> Iterator[None]:
    """Around calls that nothing harms: their short timeout may still be too short for a busy machine."""
    try:
        yield
    except BackendUnavailable as error:
        raise Uncertain(f"{what}, unharmed, did not answer within the timeout: {error}") from error


async def win(client: Client, **options: Unpack[ClaimOptions]) -> Held:
    """A claim that nothing harms and that must be won."""
    with healthy("a claim"):
        return await client.win(**options)


@dataclass(slots=True)
class Stall:
    """How long the loop stood still, as a task beside sees it."""

    ms: float = 0.0


@asynccontextmanager
async def stalls() -> AsyncIterator[Stall]:
    """Measures how long the loop stands still meanwhile."""
    stall = Stall()

    async def look() -> None:
        while True:
            begun = monotonic_ms()
            await asyncio.sleep(STEP_MS / 1_000)
            stall.ms += max(0.0, monotonic_ms() - begun - STEP_MS - 1)

    task = asyncio.create_task(look())
    try:
        yield stall
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def in_time(calls: Calls, timeout_ms: int) -> dict[str, Any]:
    """What the calls, made at once, answered or raised; AssertionError if one did not end by its deadline."""
    limit_ms = timeout_ms + GRACE_MS + NOISE_MS
    for look in range(LOOKS):
        async with stalls() as stall:
            took_ms, told = await _timed(calls, limit_ms + HANGS_MS)
        name = max(took_ms, key=lambda one: took_ms[one])
        excess_ms = took_ms[name] - stall.ms - limit_ms
        if excess_ms <= 0 and told.keys() == calls.keys():
            return told
        said = f"{name} had a timeout of {timeout_ms} ms and took {took_ms[name]:.0f} ms"
        if stall.ms > HANGS_MS:
            raise Uncertain(f"{said}, of which this machine stood still for {stall.ms:.0f} ms")
        if look == LOOKS - 1 or excess_ms > HANGS_MS / 2:
            raise AssertionError(f"{said}; every call ends within its timeout and {GRACE_MS} ms")
    raise AssertionError("unreachable")


async def _timed(calls: Calls, give_up_ms: float) -> tuple[dict[str, float], dict[str, Any]]:
    """How long each call took, and what came of it; those that hang are cancelled and left alone."""
    took: dict[str, float] = {}

    async def timed(name: str) -> Any:
        begun = monotonic_ms()
        try:
            return await calls[name]()
        finally:
            took[name] = monotonic_ms() - begun

    tasks = {name: asyncio.create_task(timed(name)) for name in calls}
    begun = monotonic_ms()
    _, hanging = await asyncio.wait(tasks.values(), timeout=give_up_ms / 1_000)
    for task in hanging:
        task.cancel()
    took |= {name: monotonic_ms() - begun for name, task in tasks.items() if task in hanging}
    done = await asyncio.gather(*(task for task in tasks.values() if task not in hanging), return_exceptions=True)
    names = [name for name, task in tasks.items() if task not in hanging]
    return took, dict(zip(names, done, strict=True))


def assert_unavailable(what: str, told: object) -> None:
    """A call that could not be asked says so, with its cause, and gives no answer of the protocol."""
    assert isinstance(told, BaseException), f"{what}: the store could not be asked, and yet it answered {told!r}"
    if isinstance(told, AssertionError | Uncertain):
        raise told
    assert isinstance(told, BackendUnavailable), (
        f"{what}: raised {type(told).__name__} ({told}) where trying again may help, not BackendUnavailable"
    )
    assert told.__cause__ is not None, f"{what}: {told!r} carries no cause"


async def told_of(call: Awaitable[Any]) -> Any:
    """The call's answer, or the BackendError that it raised; whatever else it raises is an AssertionError."""
    try:
        return await call
    except BackendError as error:
        return error
    except (AssertionError, Uncertain, asyncio.CancelledError):
        raise
    except Exception as error:
        raise AssertionError(f"raised {type(error).__name__} ({error}), which is no BackendError") from error


async def recovered(scene: Scene, what: str, call: Callable[[], Awaitable[Any]]) -> Any:
    """The answer of a call of ``near`` once all is well again; AssertionError if the object stays broken."""
    begun, limit_ms = monotonic_ms(), 2 * scene.faults.timeout_ms + 1_000
    async with stalls() as stall:
        while isinstance(told := await told_of(call()), BackendError):
            assert isinstance(told, BackendUnavailable), f"{what}: raised {told!r}"
            gone_ms = monotonic_ms() - begun
            if stall.ms > GIVE_UP_MS:
                raise Uncertain(f"{what}: no answer yet, and this machine stood still for {stall.ms:.0f} ms")
            still = f"{what}: the store is well for {gone_ms:.0f} ms, and the object is not: {told}"
            assert gone_ms - stall.ms <= limit_ms, still
            await asyncio.sleep(STEP_MS / 1_000)
    return told
