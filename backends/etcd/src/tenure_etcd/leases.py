"""Leases for runs that may be won: asked for once, perhaps ahead, or had by a run before that has ended."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import grpc  # type: ignore[import-untyped]  # grpcio has no annotations

from tenure_etcd import errors
from tenure_etcd.cluster import Cluster

Stored = TypeVar("Stored")

FRESH = 0.5
"""The part of its length that a lease may be old when a run is put on it; after that, another one is asked for."""
SPARES = 64
"""Leases of one length that are kept for other runs."""


class Spares:
    """Leases on which no run hangs any more. A win is stored while one of them is renewed, and waits for no new one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._leases: dict[int, list[tuple[int, float]]] = {}
        """By their length in seconds: each with the moment at which it is too old, the newest last."""

    def add(self, lease: int, ttl_s: int, left_s: float) -> None:
        """Keep a lease that lasts so long if it is not renewed, or give it back."""
        spares = self._leases.setdefault(ttl_s, [])
        spares.append((lease, self._cluster.loop.time() + left_s - ttl_s * (1 - FRESH)))
        if len(spares) > SPARES:
            self._cluster.give_back(spares.pop(0)[0], ttl_s)

    def take(self, ttl_s: int) -> int | None:
        """One that lasts for long enough to be renewed; None if there is none."""
        spares = self._leases.pop(ttl_s, [])
        while spares:
            lease, until = spares.pop()
            if until > self._cluster.loop.time():
                if spares:
                    self._leases[ttl_s] = spares
                return lease
            self._cluster.give_back(lease, ttl_s)
        return None


class Lease:
    """A lease for one run, given back if it was not used."""

    def __init__(self, cluster: Cluster, spares: Spares, lease_ms: int) -> None:
        self.used: bool = False
        """Whether a run hangs on it, or may."""
        self.is_spare: bool = False
        """Whether another run had it, so that it must be renewed."""
        self._cluster = cluster
        self._spares = spares
        self._ttl_s = -(-lease_ms // 1_000)
        self._asked_at = 0.0
        self._ahead: asyncio.Task[tuple[int, int]] | None = None
        self._id: int | None = None

    def ask(self) -> None:
        """Have it asked for while something else is done."""
        self._asked_at = self._cluster.loop.time()
        self._ahead = self._cluster.spawn(self._cluster.grant, self._ttl_s)

    async def take(self) -> int:
        """The lease, with most of its time left."""
        if self._ahead is not None:
            self._id, _ = await self._ahead
            self._ahead = None
        if self._id is not None and self._cluster.loop.time() - self._asked_at > self._ttl_s * FRESH:
            self.leave()
            self._forget()
        if self._id is None:
            self._asked_at = self._cluster.loop.time()
            self._id = self._spares.take(self._ttl_s)
            self.is_spare = self._id is not None
        if self._id is None:
            self._id, _ = await self._cluster.grant(self._ttl_s)
        return self._id

    async def carry(self, stored: Coroutine[Any, Any, Stored]) -> Stored | None:
        """What came of storing a run that hangs on the lease; None if that has ended, and then it is forgotten.

        A spare one is renewed at the same time: whichever comes first, the run has its full length from now on.
        """
        left_s, answer = 1, None
        try:
            if self.is_spare:
                left_s, answer = await asyncio.gather(self._cluster.keep_alive(self._id or 0), stored)
            else:
                answer = await stored
        except grpc.aio.AioRpcError as exc:
            if not errors.lease_is_gone(exc):
                raise
            left_s = 0  # it took longer than the lease to come here
        if left_s == 0:
            self._forget()
        return answer if left_s else None

    def _forget(self) -> None:
        """Ask for another one the next time."""
        self.used, self.is_spare, self._id = False, False, None

    def leave(self) -> None:
        """Give it back if it was not used, as soon as it is there."""
        if self._ahead is not None:
            self._ahead.add_done_callback(self._give_back)
        elif self._id is not None and not self.used:
            self._cluster.give_back(self._id, self._ttl_s)

    def _give_back(self, ahead: "asyncio.Task[tuple[int, int]]") -> None:
        if not ahead.cancelled() and ahead.exception() is None and not self._cluster.closed:
            self._cluster.give_back(*ahead.result())
