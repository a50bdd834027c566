"""What the page says of a job: its facts, its recent slots, when it is overdue."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from tenure.duration import to_text
from tenure.history import Row
from tenure.model import ActiveRun, JobCard
from tenure.outlook import is_gone, newest_success, next_slot, overdue_at_ms
from tenure.story import Known, tell

Document = dict[str, Any]

SLOTS_SHOWN = 72
"""So many of a job's slots are sent to everyone; a job that is opened shows all that are kept."""


@dataclass(frozen=True, slots=True)
class Health:
    """A job's last success, and when the next one is overdue."""

    success: Row | None = None
    overdue_at_ms: int | None = None


def job_document(name: str, card: JobCard | None, rows: Sequence[Row], health: Health, now_ms: int) -> Document:
    """All that is shown of a job in the list of jobs; without a card, what its records alone tell."""
    slots = slot_documents(rows)
    return {
        "job": name,
        "slots": slots[:SLOTS_SHOWN],
        "more": len(slots) > SLOTS_SHOWN,
        "success_at_ms": health.success and health.success.ended_at,
        "overdue_at_ms": health.overdue_at_ms,
        "due_slot": card and next_slot(card, rows[0].slot if rows else now_ms),
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
    """The slots, the newest first, each with its attempts in order, and last why it was not run or given up.

    They are lists, since there are thousands.
    """
    return [
        [slot, [[row.attempt, row.status, row.started_at, row.ended_at] for row in sorted(group, key=_in_story)]]
        for slot, group in groupby(rows, key=lambda row: row.slot)
    ]


def _in_story(row: Row) -> tuple[bool, int]:
    return not row.attempt, row.attempt


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


def story_document(known: Known, slot: int) -> Document:
    """All that is known of one slot: its attempts, and its story in sentences."""
    return {**asdict(tell(known, slot)), "attempts": [asdict(row) for row in known.of(slot) if row.attempt]}


def health_of(card: JobCard | None, rows: Sequence[Row], before: Health) -> Health:
    """A job's health by its records; where they tell of no success, what was known before is not forgotten."""
    success = newest_success(rows)
    if success is None and before.overdue_at_ms is not None:
        return before
    return Health(success, None if card is None else overdue_at_ms(card, rows))


def known_cards(cards: Sequence[JobCard]) -> dict[str, JobCard]:
    """The cards by job, without those that nobody tells any more."""
    newest_ms = max((card.seen_at_ms for card in cards), default=0)
    return {card.job: card for card in cards if not is_gone(card, newest_ms)}
