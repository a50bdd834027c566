"""What a rule works at: two clients of one store, more if it wants, in a namespace of its own."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self, Unpack

from tenure.model import ActiveRuns, Claim, new_token, round_lease

from tenure_conformance.client import CALL_SECONDS, ClaimOptions, Client
from tenure_conformance.target import Target
from tenure_conformance.timing import LONG_MS, Deadline, Span, monotonic_ms
from tenure_conformance.verdict import Call

SLOT = 1_750_000_000_000
"""A slot of the year 2025, so that by every store's clock it is due."""


class Seen(dict[tuple[str, int], tuple[Any, ...]]):
    """Unfinished runs by job and slot: attempt, fence, holder, whether live, started_at, expires_at (0 if over)."""

    def __missing__(self, run: tuple[str, int]) -> tuple[Any, ...]:
        """Say which run is not there."""
        raise AssertionError(f"{run} is not among the unfinished runs {list(self)}")


@dataclass
class Bench:
    """Two clients ``a`` and ``b`` on one store, what they called, and the lease for timed statements."""

    target: Target
    url: str
    namespace: str
    lease_ms: int
    seed: int
    random: random.Random
    stack: AsyncExitStack
    calls: list[Call]
    begun_ms: float
    a: Client = field(init=False)
    b: Client = field(init=False)

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, target: Target, url: str, namespace: str, *, lease_ms: int, seed: int, calls: list[Call], salt: str = ""
    ) -> AsyncIterator[Self]:
        """A bench with its two clients entered; all its clients are left at the end."""
        async with AsyncExitStack() as stack:
            chance = random.Random(f"{seed} {salt}")
            bench = cls(target, url, namespace, lease_ms, seed, chance, stack, calls, monotonic_ms())
            bench.a = await bench.client("a")
            bench.b = await bench.client("b")
            yield bench

    async def client(self, name: str, *, namespace: str | None = None, url: str | None = None) -> Client:
        """One more backend object on the store, left at the end of the rule."""
        opening = self.target.open(url or self.url, self.namespace if namespace is None else namespace)
        return Client(name, await self.stack.enter_async_context(_in_time(opening)), self)

    async def clients(self, count: int | None = None) -> list[Client]:
        """So many clients, ``a`` and ``b`` among them; as many as the target allows if no number is given."""
        wanted = self.target.limits.clients if count is None else count
        return [self.a, self.b, *[await self.client(f"c{n}") for n in range(3, wanted + 1)]][:wanted]

    @asynccontextmanager
    async def visitor(
        self, name: str, *, namespace: str | None = None, url: str | None = None
    ) -> AsyncIterator[Client]:
        """A client that leaves before the rule ends."""
        opening = self.target.open(url or self.url, self.namespace if namespace is None else namespace)
        async with _in_time(opening) as backend:
            yield Client(name, backend, self)

    def elapsed_ms(self) -> float:
        """Milliseconds since the rule began."""
        return monotonic_ms() - self.begun_ms

    def span(self, call: Call) -> Span:
        """When a call that has ended began and ended, on the monotonic clock."""
        assert call.end_ms is not None
        return Span(self.begun_ms + call.begin_ms, self.begun_ms + call.end_ms)

    def claim(self, **options: Unpack[ClaimOptions]) -> Claim:
        """A claim with what is not said filled in."""
        return Claim(
            job=options.get("job", "job"),
            slot=options.get("slot", SLOT),
            # Short enough to be read in a transcript, and random enough for the few of one rule.
            token=options["token"] if "token" in options else new_token()[:10],
            instance=options.get("instance", "instance"),
            lease_ms=options.get("lease_ms", LONG_MS),
            mode=options.get("mode", "scheduled"),
            overlap=options.get("overlap", "skip"),
            max_attempts=options.get("max_attempts", 3),
            max_late_ms=options.get("max_late_ms"),
            after=options.get("after", 0),
        )

    @property
    def scale(self) -> int:
        """How often the lease was doubled so far, as a factor for whatever else must be longer on a slow machine."""
        return max(1, self.lease_ms // self.target.lease_ms)

    @property
    def short_ms(self) -> int:
        """The lease of a run that is only waited for to lapse."""
        return self.target.short_ms

    @property
    def loose_ms(self) -> int:
        """How far two readings of one moment by the store's clock may differ; 0 where it is exact."""
        promised = self.a.capabilities
        coarse = promised.lease_granularity_ms if promised.lease_granularity_ms > 1 else 0
        return 2 * promised.clock_error_ms + coarse

    def granted(self, lease_ms: int) -> int:
        """The lease that the store grants for one that was asked for."""
        return round_lease(lease_ms, self.a.capabilities)

    def deadline(self, since: Span, lease_ms: int) -> Deadline:
        """The end of a lease that a call within ``since`` began."""
        slack_ms = self.target.timing.slack_ms + 2 * self.a.capabilities.clock_error_ms
        return Deadline(since, self.granted(lease_ms), slack_ms)

    def same_time(self, one: int | None, other: int | None) -> bool:
        """Whether two readings of one moment agree, as far as the store's clock allows."""
        return one is not None and other is not None and abs(one - other) <= self.loose_ms

    async def look(self, *jobs: str, by: Client | None = None) -> Seen:
        """The unfinished runs as a client sees them now, with moments instead of what is left."""
        return seen(await (by or self.b).active(*jobs))

    @asynccontextmanager
    async def unchanged(self, *jobs: str) -> AsyncIterator[None]:
        """What happens inside must change nothing that either client can see, neither runs nor history."""
        asked = jobs or ("job",)
        before = await self.look(*asked)
        history = {job: await self.a.results(job, limit=1_000) for job in asked}
        yield
        for client in (self.a, self.b):
            self.assert_same(before, await self.look(*asked, by=client))
            assert {job: await client.results(job, limit=1_000) for job in asked} == history

    def assert_same(self, before: Mapping[tuple[str, int], tuple[Any, ...]], after: Seen) -> None:
        """The same runs with the same leases."""
        assert before.keys() == after.keys(), f"the unfinished runs were {before}, and are {after}"
        for run, was in before.items():
            now = after[run]
            assert was[:-1] == now[:-1], f"{run} was {was}, and is {now}"
            assert self.same_time(was[-1], now[-1]), f"the lease of {run} ended at {was[-1]}, and does now at {now[-1]}"


@asynccontextmanager
async def _in_time(opening: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
    """The backend, entered and left; AssertionError if either hangs."""
    backend = await _ends("entering", opening.__aenter__())
    try:
        yield backend
    finally:
        await _ends("leaving", opening.__aexit__(None, None, None))


async def _ends(what: str, call: Awaitable[Any]) -> Any:
    limit = asyncio.timeout(CALL_SECONDS)
    try:
        async with limit:
            return await call
    except TimeoutError as error:
        if limit.expired():
            raise AssertionError(f"{what} did not end within {CALL_SECONDS} s") from error
        raise


def seen(active: ActiveRuns) -> Seen:
    """An answer of ``active`` as a table that can be compared with a later one."""
    return Seen(
        (
            (run.job, run.slot),
            (
                run.attempt,
                run.fence,
                run.holder,
                run.live,
                run.started_at,
                active.now_ms + run.lease_left_ms if run.live else 0,
            ),
        )
        for run in active.runs
    )
