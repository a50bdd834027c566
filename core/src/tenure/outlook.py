"""What a reader makes of a job's card and its history: when it is due next, and whether a success is overdue."""

from collections.abc import Sequence

from tenure.history import Row
from tenure.model import JobCard
from tenure.schedule import schedule_of

NEVER_LATE_MS = 60_000
"""A run that is never too late to start is expected to start within this time."""
_GONE_MS = 3 * 3_600_000
"""Cards are told again each hour or so: one that is older by this than the newest has nobody who would tell it."""


def next_slot(card: JobCard, now_ms: int) -> int | None:
    """The first slot after now; of a schedule of the user's own, the one on the card if it is yet to come."""
    schedule = schedule_of(card.schedule)
    if schedule is not None:
        return schedule.next_slot(now_ms)
    return card.next_slot if card.next_slot is not None and card.next_slot > now_ms else None


def newest_success(rows: Sequence[Row]) -> Row | None:
    """The newest run that succeeded, of rows in their order."""
    return next((row for row in rows if row.status == "success"), None)


def overdue_at_ms(card: JobCard, rows: Sequence[Row]) -> int | None:
    """When a success is overdue, if none comes before; None where nobody can tell.

    It is expected of the first slot after the last success, or of the oldest one known: that may start until it is too
    late, be taken over after a lease, and take as long as the last success took.
    """
    slot = expected_slot(card, rows)
    if slot is None:
        return None
    success = newest_success(rows)
    took_ms = 0 if success is None else success.duration_ms or 0
    return slot + starts_within_ms(card) + card.lease_ms + took_ms


def starts_within_ms(card: JobCard) -> int:
    """How long after its slot a run is expected to start at the latest."""
    return NEVER_LATE_MS if card.max_late_ms is None else card.max_late_ms


def is_gone(card: JobCard, newest_ms: int) -> bool:
    """Whether instances tell of other jobs, the last at ``newest_ms``, and of this one no more."""
    return card.seen_at_ms < newest_ms - _GONE_MS


def expected_slot(card: JobCard, rows: Sequence[Row]) -> int | None:
    """The first slot of which a success is expected; None where nobody can tell."""
    if not rows:
        return card.next_slot
    success = newest_success(rows)
    after_ms = success.slot if success else rows[-1].slot - 1
    schedule = schedule_of(card.schedule)
    if schedule is not None:
        return schedule.next_slot(after_ms)
    return card.next_slot if card.next_slot is not None and card.next_slot > after_ms else None
