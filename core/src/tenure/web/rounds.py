"""What is read in a round: who holds what, and the records of jobs at which something may have happened."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from tenure.clock import Clock
from tenure.history import read_rows
from tenure.model import ActiveRun, JobCard
from tenure.outlook import next_slot
from tenure.protocol import JobCards, LeaseBackend
from tenure.web.board import Board
from tenure.web.data import Health, health_of, held_document, job_document, known_cards

_CARDS_MS = 10_000
_SWEEP_ROUNDS = 30
"""In so many rounds the records of all jobs are read: one at which nothing seems to happen may have been triggered."""
_LEAST_SWEPT = 4
_ROUNDS_AFTER_A_CHANGE = 4
"""A run ends in the store before its record is saved, and a slot that is due starts a moment later."""
_AT_ONCE = 8
_RECORDS = 100

Held = frozenset[tuple[int, int, bool]]


@dataclass(slots=True)
class _Look:
    """How a job is looked after."""

    rounds: int = 1
    """Its records are read in so many rounds more."""
    held: Held = frozenset()
    next_slot: int | None = None
    health: Health = field(default_factory=Health)
    read_ms: float = float("-inf")


class Rounds:
    """Brings a board up to date, round by round; ``jobs`` are named besides those that the store has cards of."""

    def __init__(self, board: Board, jobs: Sequence[str], clock: Clock) -> None:
        self._board = board
        self._named = jobs
        self._clock = clock
        self._ahead_ms: float | None = None
        self._cards: dict[str, JobCard] = {}
        self._cards_ms = float("-inf")
        self._looks: dict[str, _Look] = {}

    def now_ms(self) -> int:
        """The store's time, as the last answer told; before the first, this machine's."""
        if self._ahead_ms is None:
            return self._clock.wall_ms()
        return int(self._clock.monotonic_ms() + self._ahead_ms)

    def forget(self) -> None:
        """Begin anew: what is known is too old."""
        self._cards, self._cards_ms, self._looks = {}, float("-inf"), {}
        self._board.clear()

    def card(self, job: str) -> JobCard | None:
        """The job's card, as far as it was read."""
        return self._cards.get(job)

    async def round(self, backend: LeaseBackend) -> None:
        """Read once; raises BackendError, and what was read before that stays."""
        await self._read_cards(backend)
        runs: tuple[ActiveRun, ...] = ()
        if self._looks:
            active = await backend.active(list(self._looks))
            self._ahead_ms = active.now_ms - self._clock.monotonic_ms()
            runs = active.runs
            self._board.put("held", [held_document(run, active.now_ms) for run in runs])
        by_job = _by_job(runs)
        wanted = self._wanted(by_job)
        for start in range(0, len(wanted), _AT_ONCE):
            part = wanted[start : start + _AT_ONCE]
            await asyncio.gather(*(self._read_job(backend, job, by_job.get(job, [])) for job in part))

    async def _read_cards(self, backend: LeaseBackend) -> None:
        if self._looks and self._clock.monotonic_ms() - self._cards_ms < _CARDS_MS:
            return  # as long as there are none, they may come at any moment
        if isinstance(backend, JobCards):
            self._learn_cards(await backend.cards())
        names = sorted({*self._named, *self._cards})
        for gone in self._looks.keys() - set(names):
            self._board.drop(f"job {gone}")
        self._looks = {name: self._looks.get(name) or _Look() for name in names}
        self._board.put("names", names)
        self._cards_ms = self._clock.monotonic_ms()

    def _learn_cards(self, cards: Sequence[JobCard]) -> None:
        known, self._cards = self._cards, known_cards(cards)
        for job, card in self._cards.items():
            if job in self._looks and card != known.get(job):
                self._looks[job].rounds = max(self._looks[job].rounds, 1)

    def expect(self, job: str) -> None:
        """Something will have happened to the job."""
        if look := self._looks.get(job):
            look.rounds = _ROUNDS_AFTER_A_CHANGE

    def _wanted(self, runs: Mapping[str, Sequence[ActiveRun]]) -> list[str]:
        """The jobs whose records are to be read in this round."""
        changed = [job for job, look in self._looks.items() if self._changes(look, runs.get(job, ()))]
        count = max(len(self._looks) // _SWEEP_ROUNDS, _LEAST_SWEPT)
        oldest = nsmallest(count, self._looks.keys() - set(changed), key=lambda job: self._looks[job].read_ms)
        return changed + oldest

    def _changes(self, look: _Look, runs: Iterable[ActiveRun]) -> bool:
        held = frozenset((run.slot, run.attempt, run.live) for run in runs)
        due = look.next_slot is not None and look.next_slot <= self.now_ms()
        if held != look.held or due:
            look.held, look.rounds = held, _ROUNDS_AFTER_A_CHANGE
        return look.rounds > 0

    async def _read_job(self, backend: LeaseBackend, job: str, runs: Sequence[ActiveRun]) -> None:
        rows = read_rows(await backend.results(job, limit=_RECORDS), runs, _RECORDS)
        look, card = self._looks[job], self._cards.get(job)
        look.rounds = max(look.rounds - 1, 0)
        look.read_ms = self._clock.monotonic_ms()
        look.next_slot = None if card is None else next_slot(card, self.now_ms())
        look.health = health_of(card, rows, look.health)
        self._board.put(f"job {job}", job_document(job, card, rows, look.health, self.now_ms()))


def _by_job(runs: Iterable[ActiveRun]) -> dict[str, list[ActiveRun]]:
    found: dict[str, list[ActiveRun]] = {}
    for run in runs:
        found.setdefault(run.job, []).append(run)
    return found
