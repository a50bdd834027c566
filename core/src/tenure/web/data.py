"""What the page says of a job: its facts, its recent slots, when it is overdue."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

from tenure.duration import to_text
from tenure.history import Row
from tenure.model import ActiveRun, JobCard
from tenure.schedule import schedule_of

Document = dict[str, Any]

SLOTS_SHOWN = 72
"""So many of a job's slots are sent to everyone; a job that is opened shows all that are kept."""
_NEVER_LATE_MS = 60_000
"""A run that is never too late to start is expected to start within this time."""
_GONE_MS = 3 * 3_600_000
"""Cards are told again each hour or so: one that is older by this than the newest has nobody who would tell it."""


_schedule = lru_cache(maxsize=4_096)(schedule_of)


@dataclass(frozen=True, slots=True)
class Health:
    """A job's last success, and when the next one is overdue."""

    success: Row | None = None
    overdue_at_ms: int | None = None


def job_document(
    name: str, card: JobCard | None, rows: Sequence[Row], health: Health, next_slot: int | None
) -> Document:
    """All that is shown of a job in the list of jobs; without a card, what its records alone tell."""
    slots = slot_documents(rows)
    return {
        "job": name,
        "slots": slots[:SLOTS_SHOWN],
        "more": len(slots) > SLOTS_SHOWN,
        "success_at_ms": health.success and health.success.ended_at,
        "overdue_at_ms": health.overdue_at_ms,
        "next_slot": next_slot,
        "card": card and card_document(card),
    }


def card_document(card: JobCard) -> Document:
    """What an instance said of the job, for people."""
    return {
        "words": card.words,
        "schedule": card.schedule,
        "lease_ms": card.lease_ms,
        "lease": to_text(card.lease_ms),
        "overlap": card.overlap,
        "max_attempts": card.max_attempts,
        "max_late": None if card.max_late_ms is None else to_text(card.max_late_ms),
        "instance": card.instance,
        "seen_at_ms": card.seen_at_ms,
    }


def slot_documents(rows: Iterable[Row]) -> list[list[Any]]:
    """The slots, the newest first, each with its attempts in order; as lists, since there are thousands."""
    return [
        [slot, [[row.attempt, row.status, row.started_at, row.ended_at] for row in reversed(list(attempts))]]
        for slot, attempts in groupby(rows, key=lambda row: row.slot)
    ]


def held_document(run: ActiveRun, now_ms: int) -> Document:
    """Who holds a run, until when."""
    return {
        "job": run.job,
        "slot": run.slot,
        "attempt": run.attempt,
        "fence": run.fence,
        "holder": run.holder,
        "live": run.live,
        "started_at": run.started_at,
        "expires_at_ms": now_ms + run.lease_left_ms,
    }


def story_document(job: str, slot: int, rows: Iterable[Row]) -> Document:
    """All that is known of one slot: its attempts in order, and its story in sentences."""
    attempts = [row for row in reversed(list(rows)) if row.slot == slot]
    lines = [line for row in attempts for line in _lines(row)]
    lines.sort(key=lambda line: float("inf") if line["at_ms"] is None else line["at_ms"])
    return {"job": job, "slot": slot, "attempts": [asdict(row) for row in attempts], "lines": lines}


_UNSTARTED = {
    "late": "not started: every instance came to it later than its max_late allows",
    "overlap": "not started: an earlier run of the job was still going",
    "superseded": "not run any more: a newer run of the job had started",
    "exhausted": "given up: all its attempts were used up",
}
_ENDS = {
    "success": ("good", "succeeded"),
    "failed": ("bad", "failed: the handler raised, or took longer than its timeout"),
    "interrupted": ("lost", "was interrupted: its instance stopped, or had lost the run"),
    "crashed": ("lost", "lost its lease: the holder died, froze, or did not reach the store"),
    "running": ("start", "is running now"),
    "lease over": ("lost", "has no lease any more, and nobody has taken it over yet"),
}


def _lines(row: Row) -> list[Document]:
    if not row.attempt:
        return [_line(None, "bad" if row.status == "exhausted" else "soft", _UNSTARTED[row.status])]
    if row.started_at is None:
        return [_line(None, "bad", f"attempt {row.attempt} crashed, and nobody was left to record it")]
    began = "started" if row.attempt == 1 else "took over with"
    tone, ended = _ENDS[row.status]
    return [
        _line(row.started_at, "start", f"{row.instance} {began} attempt {row.attempt}, fence {row.fence}"),
        _line(row.ended_at, tone, f"attempt {row.attempt} {ended}"),
    ]


def _line(at_ms: int | None, tone: str, text: str) -> Document:
    return {"at_ms": at_ms, "tone": tone, "text": text}


def newest_success(rows: Iterable[Row]) -> Row | None:
    """The newest run that succeeded, of rows in their order."""
    return next((row for row in rows if row.status == "success"), None)


def next_slot(card: JobCard, now_ms: int) -> int | None:
    """The first slot after now; of a schedule of the user's own, the one on the card if it is yet to come."""
    schedule = _schedule(card.schedule)
    if schedule is not None:
        return schedule.next_slot(now_ms)
    return card.next_slot if card.next_slot is not None and card.next_slot > now_ms else None


def health_of(card: JobCard | None, rows: Sequence[Row], before: Health) -> Health:
    """A job's health by its records; where they tell of no success, what was known before is not forgotten."""
    success = newest_success(rows)
    if success is None and before.overdue_at_ms is not None:
        return before
    return Health(success, None if card is None else _overdue_at_ms(card, rows, success))


def _overdue_at_ms(card: JobCard, rows: Sequence[Row], success: Row | None) -> int | None:
    """When a success is overdue, if none comes before; None where nobody can tell.

    It is expected of the first slot after the last success, or of the oldest one known: that may start until it is too
    late, be taken over after a lease, and take as long as the last success took.
    """
    missed = _expected_slot(card, rows, success)
    if missed is None:
        return None
    starts_ms = _NEVER_LATE_MS if card.max_late_ms is None else card.max_late_ms
    return missed + starts_ms + card.lease_ms + ((success and success.duration_ms) or 0)


def _expected_slot(card: JobCard, rows: Sequence[Row], success: Row | None) -> int | None:
    if not rows:
        return card.next_slot
    after_ms = success.slot if success else rows[-1].slot - 1
    schedule = _schedule(card.schedule)
    if schedule is not None:
        return schedule.next_slot(after_ms)
    return card.next_slot if card.next_slot is not None and card.next_slot > after_ms else None


def known_cards(cards: Sequence[JobCard]) -> dict[str, JobCard]:
    """The cards by job; not those of jobs that were removed: instances tell of others, and no more of these."""
    newest_ms = max((card.seen_at_ms for card in cards), default=0)
    return {card.job: card for card in cards if card.seen_at_ms >= newest_ms - _GONE_MS}
