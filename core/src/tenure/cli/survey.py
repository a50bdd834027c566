"""What the store tells of all jobs at one moment."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tenure.cli.store import cards_of, jobs_of
from tenure.history import Row, read_rows
from tenure.model import ActiveRun, JobCard
from tenure.outlook import expected_slot, is_gone, newest_success, next_slot, overdue_at_ms
from tenure.protocol import LeaseBackend

_AT_ONCE = 16
_RECORDS = 40


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job as a list of jobs shows it."""

    job: str
    schedule: str | None
    next_slot: int | None
    last_slot: int | None
    last_status: str | None
    success_at_ms: int | None
    overdue_ms: int
    """For how long a success has been overdue; 0 if it is not, or if nobody can tell."""
    overdue_slot: int | None
    """The first slot whose success is overdue."""
    holders: tuple[str, ...]
    seen_at_ms: int | None
    seen_by: str | None
    heard_at_ms: int | None
    """When an instance last told of the job, or of a run of it."""
    gone: bool
    """No instance tells of it any more, while some tell of other jobs."""

    @property
    def state(self) -> str:
        """In a word."""
        if self.gone:
            return "gone"
        if self.overdue_ms:
            return "overdue"
        return "running" if self.holders else self.last_status or "waiting"


@dataclass(frozen=True, slots=True)
class Survey:
    """The jobs in the order of their names, their unfinished runs, and the store's clock."""

    now_ms: int
    jobs: tuple[JobLine, ...]
    active: tuple[ActiveRun, ...]


async def survey(backend: LeaseBackend, named: Sequence[str] = ()) -> Survey:
    """Look at the jobs named, or at all of which there are cards."""
    names = await jobs_of(backend, named)
    cards = {card.job: card for card in await cards_of(backend)}
    active = await backend.active(names)
    turns = asyncio.Semaphore(_AT_ONCE)
    newest_ms = max((card.seen_at_ms for card in cards.values()), default=0)

    async def look(name: str) -> JobLine:
        held = [run for run in active.runs if run.job == name]
        async with turns:
            results = await backend.results(name, limit=_RECORDS)
        return _line(name, cards.get(name), read_rows(results, held, _RECORDS), held, active.now_ms, newest_ms)

    lines = await asyncio.gather(*map(look, sorted(set(names))))
    return Survey(active.now_ms, tuple(lines), active.runs)


def _line(
    name: str, card: JobCard | None, rows: list[Row], held: list[ActiveRun], now_ms: int, newest_ms: int
) -> JobLine:
    success = newest_success(rows)
    gone = card is not None and is_gone(card, newest_ms)
    overdue = None if card is None or gone else overdue_at_ms(card, rows)
    is_overdue = overdue is not None and overdue < now_ms
    return JobLine(
        job=name,
        schedule=None if card is None else card.words,
        next_slot=None if card is None or gone else next_slot(card, now_ms),
        last_slot=rows[0].slot if rows else None,
        last_status=rows[0].status if rows else None,
        success_at_ms=None if success is None else success.ended_at,
        overdue_ms=0 if overdue is None else max(now_ms - overdue, 0),
        overdue_slot=expected_slot(card, rows) if card is not None and is_overdue else None,
        holders=tuple(run.holder for run in held if run.live),
        seen_at_ms=None if card is None else card.seen_at_ms,
        seen_by=None if card is None else card.instance,
        heard_at_ms=max(_heard(card, rows), default=None),
        gone=gone,
    )


def _heard(card: JobCard | None, rows: list[Row]) -> Iterator[int]:
    if card is not None:
        yield card.seen_at_ms
    for row in rows:
        yield max(row.slot, row.started_at or 0, row.ended_at or 0)
