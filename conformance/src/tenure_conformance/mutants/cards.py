"""Stores that keep the wrong cards."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tenure.memory import MemoryBackend
from tenure.model import JobCard, RunResult

from tenure_conformance.mutants.reference import broken, stores

_SAVED = "            self.store.cards.update(saved)\n"


@broken("cards-missing", "The level `cards` is declared, and there is no `save_cards`.", "cards-what backend-level")
class _CardsMissing(MemoryBackend):
    save_cards = None  # type: ignore[assignment]  # the defect


stores(
    "cards-keep-the-first",
    "The first card of a job is kept.",
    "cards-last",
    (_SAVED, "            self.store.cards.update({**saved, **self.store.cards})\n"),
    seen="INSERT … ON CONFLICT DO NOTHING",
)
stores(
    "cards-of-all-namespaces",
    "The cards of all namespaces are given.",
    "namespace-only",
    (" if namespace == self._namespace]", "]"),
)
stores(
    "cards-fold-case",
    "Cards are kept by their names in lower case.",
    "names-exact",
    ("self._key(card.job): card for", "self._key(card.job.lower()): card for"),
    seen="a collation",
)
stores(
    "cards-in-any-order",
    "Cards come in the order in which their jobs were first told of.",
    "cards-what",
    ("sorted(found, key=lambda card: card.job)", "found"),
)
stores(
    "cards-kept-for-ever",
    "No card is ever forgotten.",
    "cards-forgotten",
    ("            self._forget_cards(self.store.now_ms() - CARD_KEPT_MS)\n", ""),
)
stores(
    "cards-kept-for-a-week",
    "A card is forgotten after a week.",
    "cards-forgotten",
    ("self.store.now_ms() - CARD_KEPT_MS", "self.store.now_ms() - 7 * 86_400_000"),
)
stores(
    "cards-of-one-call-alone",
    "What is saved takes the place of all cards of the namespace.",
    "cards-last cards-forgotten",
    (
        _SAVED,
        "            for key in [key for key in self.store.cards if key[0] == self._namespace]:\n"
        "                del self.store.cards[key]\n" + _SAVED,
    ),
    seen="an instance that writes a list of its own jobs",
)


@broken("cards-lose-none", "What is None in a card becomes 0.", "cards-what", seen="a column that is not null")
class _CardsLoseNone(MemoryBackend):
    async def cards(self) -> list[JobCard]:
        return [replace(card, max_late_ms=card.max_late_ms or 0) for card in await super().cards()]


@broken("cards-are-the-client-s", "Cards are kept in the object that saved them.", "cards-what backend-level")
class _CardsAreTheClients(MemoryBackend):
    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace=namespace)
        self.mine: dict[str, JobCard] = {}

    async def save_cards(self, cards: Sequence[JobCard]) -> None:
        self.mine.update((card.job, card) for card in cards)

    async def cards(self) -> list[JobCard]:
        return [self.mine[job] for job in sorted(self.mine)]


@broken("cards-cut", "At most a hundred cards are given.", "cards-many", seen="a page of a scan taken for all of it")
class _CardsCut(MemoryBackend):
    async def cards(self) -> list[JobCard]:
        return (await super().cards())[:100]


@broken("cards-cleared-by-none", "A save of no card removes all of them.", "cards-many")
class _CardsClearedByNone(MemoryBackend):
    async def save_cards(self, cards: Sequence[JobCard]) -> None:
        if not cards:
            for card in await self.cards():
                del self.store.cards[self._key(card.job)]
        await super().save_cards(cards)


@broken("cards-clear-the-job", "Saving a card clears the job's state.", "cards-decide-nothing", seen="one row for both")
class _CardsClearTheJob(MemoryBackend):
    async def save_cards(self, cards: Sequence[JobCard]) -> None:
        await super().save_cards(cards)
        for card in cards:
            self.store.states.pop(self._key(card.job), None)


@broken("cards-by-results", "A record takes the place of the job's card.", "cards-decide-nothing")
class _CardsByResults(MemoryBackend):
    async def save_result(self, job: str, result: RunResult) -> None:
        await super().save_result(job, result)
        self.store.cards.pop(self._key(job), None)
