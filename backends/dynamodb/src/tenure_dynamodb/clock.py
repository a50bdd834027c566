"""The store's clock, known as an interval: DynamoDB tells the time only in the Date headers of replies, in seconds."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tenure.dateclock import DateClock

BEHIND_MS = 50
"""A Date may be told so long after its second is over: servers keep the header's text for a while."""
AHEAD_MS = 5
"""The hosts behind one address differ by less than this."""
STEP_MS = 20
"""How often the time is looked at while the second may turn."""
UNKNOWN_MS = 2_000
"""With a doubt of more than this nothing is known yet."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The store's clock now, in milliseconds since the Unix epoch: surely not before ``early``, nor after ``late``."""

    early: int
    late: int
    epoch: int = 0
    """How often the clock had been learned anew by then."""

    @property
    def doubt_ms(self) -> int:
        """How far apart the two ends are."""
        return self.late - self.early


class StoreClock:
    """Learns the store's clock from the Date of every reply; this host's own wall clock has no part in it.

    Each reply says that the store's clock was within one second, somewhere between sending and receiving; what all of
    them allow is the interval. Where they contradict each other (the store's clock was set, or this host slept) it
    starts over with the last one. Usable from any thread.
    """

    def __init__(self, now_ms: "Callable[[], float] | None" = None) -> None:
        self._now_ms = now_ms or local_ms
        self.epoch: int = 0
        """Rises each time the clock is learned anew; what was decided in an older epoch is in doubt."""
        self._clock = DateClock(lag_ms=BEHIND_MS)
        self._lock = threading.Lock()
        self._measuring = threading.Lock()

    def learn(self, date: str, sent: float, received: float) -> None:
        """A request sent and answered at these moments of ``local_ms`` told that Date; ValueError if it is none."""
        latest = received + AHEAD_MS
        with self._lock:
            before = self._clock.at(latest) if self._clock.known else None
            self._clock.observe(date, sent, latest)
            after = self._clock.at(latest)
            if before is not None and not before.begin <= after.begin <= after.end <= before.end:
                self.epoch += 1

    def moment(self) -> Moment:
        """The store's clock now; ``measure`` makes it known."""
        with self._lock:
            if not self._clock.known:
                return Moment(0, 2**62, self.epoch)
            now = self._clock.at(self._now_ms())
            return Moment(now.begin, now.end, self.epoch)

    def until_a_look_s(self, enough_ms: int) -> float | None:
        """How long to wait with the next look, None where the doubt is small enough."""
        moment = self.moment()
        return _until_the_turn_ms(moment) / 1_000 if moment.doubt_ms > enough_ms else None

    def measure(self, look: Callable[[], None], enough_ms: int, deadline: float) -> None:
        """Look at the store's Date, just when its second turns, until the doubt is small enough; blocks, 1 s at most.

        ``look`` makes any request. Raises TimeoutError where ``deadline`` (of ``time.monotonic``) comes first.
        """
        if not self._measuring.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise TimeoutError("another thread still measures the store's clock")
        try:
            while (pause_s := self.until_a_look_s(enough_ms)) is not None:
                if time.monotonic() + pause_s >= deadline:
                    raise TimeoutError(f"the store's clock is known only within {self.moment().doubt_ms} ms so far")
                time.sleep(pause_s)
                look()
        finally:
            self._measuring.release()


def _until_the_turn_ms(moment: Moment) -> int:
    """How long no reply can tell anything new, since all of the interval is in one second."""
    latest = moment.late + AHEAD_MS
    if moment.doubt_ms > UNKNOWN_MS:
        return 0
    if moment.early // 1_000 != latest // 1_000:
        return STEP_MS
    return 1_000 - latest % 1_000


def local_ms() -> float:
    """A clock that nobody sets, and that goes on while the machine sleeps, where the system has one."""
    return time.clock_gettime_ns(_CLOCK) / 1_000_000


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_KEPT = 32
_clocks: dict[str, StoreClock] = {}
"""Of each endpoint that this process has used lately: the clock is the store's, and it takes a while to learn it."""


def clock_of(endpoint: str) -> StoreClock:
    """The clock that all backends of this process share on one endpoint."""
    clock = _clocks.pop(endpoint, None) or StoreClock()
    _clocks[endpoint] = clock
    while len(_clocks) > _KEPT:
        _clocks.pop(next(iter(_clocks)))
    return clock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_clocks.clear)  # another thread may hold a lock meanwhile
