"""Time without lies: something is said of a lease only where it is certain."""

import asyncio
import time
from dataclasses import dataclass

RATE = 0.01
"""How much the clocks of client and store may differ in speed."""
TICK_MS = 1
"""Stores count in milliseconds, so that a moment is known to one of them."""
LONG_MS = 600_000
"""A lease that does not end while a rule runs."""


class Uncertain(Exception):
    """The machine was too slow for a statement that must be certain: repeat with a longer lease."""


@dataclass(frozen=True, slots=True)
class Span:
    """When something began and ended, on the monotonic clock, in milliseconds."""

    begin: float
    end: float


def monotonic_ms() -> float:
    """This process's monotonic clock."""
    return time.monotonic_ns() / 1_000_000


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of a lease, as far as a client can know it: the call that set it happened somewhere in ``set``."""

    set: Span
    lease_ms: int
    slack_ms: int

    @property
    def alive_ms(self) -> float:
        """Until this moment the lease is surely alive."""
        return self.set.begin + self.lease_ms * (1 - RATE) - TICK_MS

    @property
    def over_ms(self) -> float:
        """From this moment on the lease is surely over."""
        return self.set.end + self.lease_ms * (1 + RATE) + TICK_MS + self.slack_ms

    def surely_alive(self, probe: Span) -> bool:
        """Whether the probe surely happened within the lease, wherever in their spans both calls took effect."""
        return probe.end < self.alive_ms

    def surely_over(self, probe: Span) -> bool:
        """Whether the probe surely happened after the lease."""
        return probe.begin >= self.over_ms

    async def wait(self, part: float) -> None:
        """Sleep until that part of the lease is gone."""
        await sleep_until(self.set.begin + self.lease_ms * part)

    async def wait_over(self) -> None:
        """Sleep until the lease is surely over."""
        await sleep_until(self.over_ms)


async def sleep_until(moment_ms: float) -> None:
    """Sleep until the monotonic clock says so; a timer may wake early, this does not."""
    while (left_ms := moment_ms - monotonic_ms()) > 0:  # noqa: ASYNC110  # nothing else tells the time
        await asyncio.sleep(left_ms / 1000)
