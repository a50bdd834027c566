"""The last success of each job of a scheduler, on whichever instance it was, and how overdue the next one is."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tenure.clock import Clock, SystemClock
from tenure.job import Job
from tenure.model import RunResult
from tenure.schedule import next_slot_of
from tenure.scheduler import Scheduler

_PATIENCE_MS = 2_000
"""Who looks must not wait long for a store that is away; what was known before is told again."""
_FRESH_MS = 1_000
"""Several looks at one moment ask once."""
_AT_ONCE = 50
_RECORDS = 20
_NEVER_LATE_MS = 60_000
"""A run that is never too late to start is expected to start within this time."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A job's last success; without ``ended_at`` there is none, and one is expected from ``slot`` on."""

    slot: int
    ended_at: int | None = None
    took_ms: int = 0


class Successes:
    """Looks the last success of each job up in the store, once a slot has come due since the one that is known."""

    def __init__(self, scheduler: Scheduler, clock: Clock | None = None) -> None:
        self._scheduler = scheduler
        self._clock = clock or SystemClock()
        self._known: dict[str, _Known] = {}
        self._asked_ms: dict[str, float] = {}
        self._looked_ms = float("-inf")

    def look(self) -> int | None:
        """Ask for what may have changed, and give the store's time; None while there is no store that could tell.

        A claim-only backend cannot. Blocks for two seconds at most.
        """
        offset_ms = self._scheduler.health().clock_offset_ms
        if offset_ms is None:
            return None
        now_ms = self._clock.wall_ms() + offset_ms
        if self._clock.monotonic_ms() - self._looked_ms >= _FRESH_MS:
            self._ask(now_ms)
            self._looked_ms = self._clock.monotonic_ms()
        return now_ms

    def age_ms(self, job: Job, now_ms: int) -> int | None:
        """Since the end of the job's last success; None if none is known."""
        known = self._known.get(job.name)
        return None if known is None or known.ended_at is None else max(now_ms - known.ended_at, 0)

    def overdue_ms(self, job: Job, now_ms: int) -> int | None:
        """For how long a success has been overdue, 0 if it is not; None if nothing is known.

        It is expected of the first slot after the last success: that may start until it is too late, be taken over
        after a lease, and take as long as the timeout allows or, without one, as long as the last success took.
        """
        known = self._known.get(job.name)
        if known is None:
            return None
        missed = _next_slot(job, known.slot)
        return 0 if missed is None else max(now_ms - missed - _expected_ms(job, known.took_ms), 0)

    def _ask(self, now_ms: int) -> None:
        """Some at a time, and those first that were not asked for longest: there may be too many for one look."""
        until_ms = self._clock.monotonic_ms() + _PATIENCE_MS
        changed = sorted((job.name for job in self._changed(now_ms)), key=lambda name: self._asked_ms.get(name, 0))
        for names in _batches(changed):
            if self._clock.monotonic_ms() >= until_ms:
                return
            with suppress(Exception):  # it stops
                self._ask_together(names, now_ms, until_ms)

    def _ask_together(self, names: Sequence[str], now_ms: int, until_ms: float) -> None:
        answers = [(name, self._scheduler.results(name, limit=_RECORDS)) for name in names]
        for name, answer in answers:
            self._asked_ms[name] = self._clock.monotonic_ms()
            left_ms = max(round(until_ms - self._clock.monotonic_ms()), 0)
            with suppress(Exception):  # what is known stays; that the store is away is told elsewhere
                self._learn(name, _known_of(answer.result(f"{left_ms}ms"), now_ms))

    def _changed(self, now_ms: int) -> Iterator[Job]:
        """The jobs that may have succeeded since, and those of which nothing is known."""
        jobs = self._scheduler.jobs
        for gone in self._known.keys() - {job.name for job in jobs}:
            del self._known[gone]
            self._asked_ms.pop(gone, None)
        for job in jobs:
            known = self._known.get(job.name)
            following = None if known is None else _next_slot(job, known.slot)
            if known is None or (following is not None and following <= now_ms):
                yield job

    def _learn(self, name: str, found: _Known) -> None:
        """Among the newest records there may be no success any more; the one that is known stays."""
        known = self._known.get(name)
        if known is None or (found.ended_at is not None and (known.ended_at is None or found.slot >= known.slot)):
            self._known[name] = found


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE))


def _known_of(records: Sequence[RunResult], now_ms: int) -> _Known:
    """A job without a success is expected to have one since its oldest record, or, if it has none, from now on."""
    for record in records:
        if record.status == "success" and record.ended_at is not None and record.started_at is not None:
            return _Known(record.slot, record.ended_at, record.ended_at - record.started_at)
    return _Known(min((record.slot - 1 for record in records), default=now_ms))


def _expected_ms(job: Job, took_ms: int) -> int:
    starts_ms = _NEVER_LATE_MS if job.max_late_ms is None else job.max_late_ms
    return starts_ms + job.lease_ms + (took_ms if job.timeout_ms is None else job.timeout_ms)


def _next_slot(job: Job, after_ms: int) -> int | None:
    try:
        return next_slot_of(job.schedule, after_ms)
    except Exception:  # noqa: BLE001 - a schedule of the user's own, which the timers complain about
        return None
