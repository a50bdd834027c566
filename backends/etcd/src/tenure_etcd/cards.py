"""Job cards: one key per job, for readers."""

from collections.abc import Sequence

from tenure.codec import decode_cards, encode_card
from tenure.dateclock import DateClock
from tenure.model import CARD_KEPT_MS, JobCard

from tenure_etcd import requests
from tenure_etcd.cluster import Cluster
from tenure_etcd.dates import monotonic_ms
from tenure_etcd.keys import Layout

AT_ONCE = 100
"""Keys that are written with one request; etcd takes 128 parts."""


class Cards:
    """The cards of a namespace."""

    def __init__(self, cluster: Cluster, layout: Layout, clock: DateClock) -> None:
        self._cluster = cluster
        self._layout = layout
        self._clock = clock

    async def save(self, cards: Sequence[JobCard]) -> None:
        """Keep at most ``AT_ONCE`` cards."""
        pairs = {self._layout.card(card.job): encode_card(card).encode() for card in cards}
        if pairs:
            await self._cluster.call("txn", requests.write_keys(pairs))

    async def forget(self) -> None:
        """Drop the cards of jobs that nobody has told of for long."""
        before_ms = self._clock.at(monotonic_ms()).begin - CARD_KEPT_MS
        old = [self._layout.card(card.job) for card in await self.read() if card.seen_at_ms < before_ms]
        for start in range(0, len(old), AT_ONCE):
            await self._cluster.call("txn", requests.drop_keys(old[start : start + AT_ONCE]))

    async def read(self) -> list[JobCard]:
        """All cards, by job."""
        answer = await self._cluster.call("read", requests.read_all(self._layout.cards))
        return await decode_cards(kv.value for kv in answer.kvs)
