"""What an instance tells of its jobs, so that readers know them from the store alone."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from tenure.calls import asked
from tenure.errors import BackendUnavailable
from tenure.instance import Instance
from tenure.job import Job
from tenure.model import JobCard
from tenure.protocol import JobCards
from tenure.schedule import Cron, Schedule

_SOON_MS = 1_000
"""Cards are told a random part of this after a change: many changes are one call, and first claims go before."""
_AGAIN_MS = 3_600_000
_FRESH_MS = _AGAIN_MS // 2
"""A card that somebody told since then, and that says the same, is not told again: one instance an hour does it."""
_RETRY_MS = 60_000
_PART = 100
"""So many cards are written at a time; words for a cron expression take a quarter of a millisecond."""


class Cards:
    """Tells the store what this instance's jobs are, where the backend keeps cards; never in the way of a claim."""

    def __init__(
        self,
        instance: Instance,
        backend: object,
        jobs: Mapping[str, Job],
        next_slot: Callable[[str], int | None],
    ) -> None:
        self._instance = instance
        self._backend = backend if isinstance(backend, JobCards) else None
        self._jobs = jobs
        self._next_slot = next_slot
        self._untold: set[str] = set()
        self._on_its_way = False
        self._refreshes = False

    def tell(self, names: Iterable[str]) -> None:
        """Tell of the jobs as they are then, soon."""
        if self._backend is None or self._instance.stopping.is_set():
            return
        self._untold.update(names)
        if self._untold:
            self._tell_after(self._instance.rng.random() * _SOON_MS)
        if not self._refreshes:
            self._refreshes = True
            self._instance.spawn(self._refresh())

    def _tell_after(self, delay_ms: float) -> None:
        if not self._on_its_way:
            self._on_its_way = True
            self._instance.spawn(self._tell(delay_ms))

    async def _refresh(self) -> None:
        while not await self._instance.pause(_AGAIN_MS * (0.75 + self._instance.rng.random() / 2)):
            self.tell(self._jobs)

    async def _tell(self, delay_ms: float) -> None:
        if await self._instance.pause(delay_ms):
            return
        self._on_its_way = False
        names, self._untold = self._untold, set()
        try:
            await self._save(names)
        except Exception as error:  # noqa: BLE001 - readers miss something, and nothing else does
            self._instance.error("save_cards", error)
            if isinstance(error, BackendUnavailable):
                self._untold |= names
                self._tell_after(_RETRY_MS)

    async def _save(self, names: Iterable[str]) -> None:
        assert self._backend is not None
        known = {card.job: card for card in await asked(self._backend.cards())}
        news = []
        for count, job in enumerate([self._jobs[name] for name in names if name in self._jobs], start=1):
            card = self._card(job)
            if not _says_the_same(known.get(job.name), card):
                news.append(card)
            if count % _PART == 0:
                await asyncio.sleep(0)
        if news:
            await asked(self._backend.save_cards(news))

    def _card(self, job: Job) -> JobCard:
        return JobCard(
            job=job.name,
            schedule=str(job.schedule),
            words=_words(job.schedule),
            lease_ms=job.lease_ms,
            overlap=job.overlap,
            max_attempts=job.max_attempts,
            max_late_ms=job.max_late_ms,
            next_slot=self._next_slot(job.name),
            instance=self._instance.name,
            seen_at_ms=self._instance.contact.store_clock.now_ms(),
        )


def _says_the_same(known: JobCard | None, card: JobCard) -> bool:
    if known is None or card.seen_at_ms - known.seen_at_ms > _FRESH_MS:
        return False
    return card == replace(known, next_slot=card.next_slot, instance=card.instance, seen_at_ms=card.seen_at_ms)


def _words(schedule: Schedule) -> str:
    return _cron_words(schedule) if isinstance(schedule, Cron) else _described(schedule)


@lru_cache(maxsize=1_024)
def _cron_words(schedule: Cron) -> str:
    return _described(schedule)


def _described(schedule: Schedule) -> str:
    from tenure.words import describe  # late: few need it, and it is not there to slow down `import tenure`

    try:
        return describe(schedule)
    except Exception:  # noqa: BLE001 - its library may be missing, or have no words for this
        return str(schedule)
