"""A job's history as a reader shows it: with the holes that crashes have left, and what still runs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tenure.decision import DEFAULT_KEEP_RESULTS
from tenure.model import ActiveRun, RunResult


@dataclass(frozen=True, slots=True)
class Row:
    """One attempt, or with attempt 0 why a slot was not run; what nobody recorded is None."""

    slot: int
    attempt: int
    status: str
    fence: int | None = None
    instance: str | None = None
    started_at: int | None = None
    ended_at: int | None = None
    error: str | None = None

    @property
    def duration_ms(self) -> int | None:
        """How long it took; None while it runs, and where nobody knows."""
        return None if self.started_at is None or self.ended_at is None else self.ended_at - self.started_at


def read_rows(results: Sequence[RunResult], active: Iterable[ActiveRun], limit: int) -> list[Row]:
    """The newest rows first. An attempt without a record, below one that was recorded or still runs, has crashed.

    Why somebody did not run a slot is left out where somebody else has ended its run after all.

    ``active`` must have been read before ``results``: a run that ends in between is then in both, not in neither.
    """
    rows = {(result.slot, result.attempt): _recorded(result) for result in results}
    for run in active:
        rows.setdefault((run.slot, run.attempt), _unfinished(run))
    # What was cut off may have been the first attempts of the oldest slot, and is no hole.
    cut = len(results) >= min(limit, DEFAULT_KEEP_RESULTS)
    oldest = min((result.slot for result in results), default=None) if cut else None
    for slot, attempt in list(_holes(rows, oldest)):
        rows[slot, attempt] = Row(slot, attempt, "crashed")
    for slot in {row.slot for row in rows.values() if row.status in ("success", "failed")}:
        rows.pop((slot, 0), None)
    return [rows[key] for key in sorted(rows, reverse=True)][:limit]


def _holes(rows: Iterable[tuple[int, int]], cut_slot: int | None) -> Iterator[tuple[int, int]]:
    known: dict[int, set[int]] = {}
    for slot, attempt in rows:
        if attempt:
            known.setdefault(slot, set()).add(attempt)
    for slot, attempts in known.items():
        first = min(attempts) if slot == cut_slot else 1
        yield from ((slot, attempt) for attempt in range(first, max(attempts)) if attempt not in attempts)


def _recorded(result: RunResult) -> Row:
    return Row(
        result.slot,
        result.attempt,
        result.status,
        result.fence if result.attempt else None,
        result.instance,
        result.started_at,
        result.ended_at,
        result.error,
    )


def _unfinished(run: ActiveRun) -> Row:
    status = "running" if run.live else "lease over"
    return Row(run.slot, run.attempt, status, run.fence, run.holder, run.started_at)
