"""A store's clock as an interval that contains it, from Date headers, which count in whole seconds."""

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from math import ceil

SECOND_MS = 1_000
DRIFT = 0.000_5
"""How much the rates of two clocks may differ; NTP slews one by that at most."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The store's clock is somewhere between these two, in milliseconds since the Unix epoch, both included."""

    begin: int
    end: int

    def nearest(self, moment_ms: int) -> int:
        """The reading within it that is nearest to the moment: where it contains the moment, that very moment."""
        return min(max(self.begin, moment_ms), self.end)

    @property
    def middle(self) -> int:
        """The reading that is off by the least."""
        return (self.begin + self.end) // 2

    @property
    def error_ms(self) -> int:
        """How far ``middle`` may be off, either way."""
        return -(-(self.end - self.begin) // 2)


class DateClock:
    """Narrows the interval with each reply, widens it with time, and starts over when a reply contradicts it.

    Moments are milliseconds of a monotonic clock of the caller's, the same one each time. ``lag_ms`` is how much later
    than its second's beginning a store may still send the former date: some renew a cached text by a timer.
    """

    def __init__(self, *, lag_ms: float = 0) -> None:
        self._lag_ms = lag_ms
        self._offsets: tuple[float, float] | None = None
        """The least and the greatest that the store's clock can be ahead of the monotonic one."""
        self._at_ms = 0.0

    @property
    def known(self) -> bool:
        """Whether there was a reply yet."""
        return self._offsets is not None

    def observe(self, date: str, sent_ms: float, received_ms: float) -> None:
        """Learn from a reply's Date header; ValueError if it is no date."""
        second_ms = parsedate_to_datetime(date).timestamp() * SECOND_MS
        low, high = second_ms - received_ms, second_ms + SECOND_MS + self._lag_ms - sent_ms
        if self._offsets is not None:
            known_low, known_high = self._widened(received_ms)
            if max(low, known_low) <= min(high, known_high):  # else the store's clock was set: start over
                low, high = max(low, known_low), min(high, known_high)
        self._offsets, self._at_ms = (low, high), received_ms

    def at(self, moment_ms: float) -> Interval:
        """The store's clock at a moment not before the last reply; LookupError if there was none."""
        low, high = self._widened(moment_ms)
        return Interval(int(moment_ms + low), ceil(moment_ms + high))

    def best_moment_ms(self, after_ms: float) -> float:
        """The first moment after that at which a request is expected to halve the interval: its second may just end."""
        low, high = self._widened(after_ms)
        ahead_ms = (low + high + self._lag_ms) / 2
        return after_ms + (-(after_ms + ahead_ms)) % SECOND_MS

    def _widened(self, moment_ms: float) -> tuple[float, float]:
        if self._offsets is None:
            raise LookupError("the store's clock is not known yet; observe a reply first")
        low, high = self._offsets
        drift_ms = abs(moment_ms - self._at_ms) * DRIFT
        return low - drift_ms, high + drift_ms
