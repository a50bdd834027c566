"""Whether a measure grew: a line is fitted to its samples after the warm-up."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WARM_UP = 0.3
"""This part of a run is left out: caches, pools and the kept history fill."""
_FEW = 6
"""Fewer samples say nothing."""
_CERTAIN = 3.0
"""A slope counts if it is so many times its own error."""

Sample = tuple[float, float]
"""Seconds since the start, and what was measured then."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How much a measure may grow in the measured time: so much, and so large a part of what it was."""

    absolute: float
    part: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """What the samples of one measure say."""

    name: str
    first: float
    last: float
    grown: float
    """By the fitted line, from the end of the warm-up to the end."""
    error: float
    """What the scatter of the samples alone may make of it."""
    allowed: float

    @property
    def grows(self) -> bool:
        """More than it may, and more than by chance."""
        return self.grown > self.allowed and self.grown > _CERTAIN * self.error

    def __str__(self) -> str:
        verdict = "GREW" if self.grows else "flat"
        return f"{self.name:34} {self.first:12.1f} -> {self.last:12.1f}   line {self.grown:+10.2f}   {verdict}"


def fitted(name: str, samples: Sequence[Sample], bound: Bound) -> Line:
    """The line of the samples after the warm-up; too few of them are a ValueError, never flat."""
    kept = list(_after_warm_up(samples))
    if len(kept) < _FEW:
        raise ValueError(f"{name}: {len(kept)} samples after the warm-up are too few to fit a line; run for longer")
    times, values = zip(*kept, strict=True)
    slope, intercept = statistics.linear_regression(times, values)
    lasted = times[-1] - times[0]
    scatter = math.sqrt(sum((value - slope * at - intercept) ** 2 for at, value in kept) / (len(kept) - 2))
    spread = math.sqrt(sum((at - statistics.fmean(times)) ** 2 for at in times))
    allowed = bound.absolute + bound.part * abs(values[0])
    return Line(name, values[0], values[-1], slope * lasted, scatter / spread * lasted, allowed)


def _after_warm_up(samples: Sequence[Sample]) -> Iterable[Sample]:
    if samples:
        begin, end = samples[0][0], samples[-1][0]
        yield from (one for one in samples if one[0] >= begin + WARM_UP * (end - begin))
