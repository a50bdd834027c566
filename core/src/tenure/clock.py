"""The two clocks of an instance: the wall, which people set, and the monotonic one, which only goes on."""

import time
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """What an instance knows of time; sleeping is the event loop's."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC; it may jump."""

    def monotonic_ms(self) -> float:
        """Milliseconds since some moment; it never goes back, and goes on while the machine sleeps where it can."""


# A lease runs out in the store while this machine is suspended. Linux's CLOCK_MONOTONIC stands still then, and a
# holder that woke up would think it still had its lease; CLOCK_BOOTTIME goes on.
_monotonic_ns = (
    partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic_ns
)


class SystemClock:
    """The clocks of this machine."""

    def wall_ms(self) -> int:
        """See Clock."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """See Clock."""
        return _monotonic_ns() / 1_000_000
