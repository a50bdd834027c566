"""Where the demo's processes agree: a SQLite file of its own, or a namespace of its own in a store that is there."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from tenure.errors import BackendMisconfigured
from tenure.protocol import Backend, LeaseBackend
from tenure.registry import connect

LEASE_MS = 1_500


@dataclass(frozen=True, slots=True)
class Place:
    """A store as the demo uses it."""

    url: str
    namespace: str
    shown: str
    """How it is called on the screen; without secrets."""
    lease_ms: int = LEASE_MS
    file: Path | None = None
    """Whose lock a process that is frozen may hold."""

    @property
    def subtitle(self) -> str:
        """What is played, in a line."""
        return f"3 processes, {self.shown}, a job every second, leases of {self.lease_ms / 1_000:g} s"

    def connected(self) -> Backend:
        """The backend, not entered yet."""
        return connect(self.url, namespace=self.namespace)


def own_file(directory: Path) -> Place:
    """A SQLite file in the directory."""
    path = directory / "jobs.db"
    return Place(f"sqlite:///{path}?synchronous=normal&keep_results=1000", "tenure", "1 SQLite file", file=path)


def store_at(url: str) -> Place:
    """The store of a URL; BackendError if it does not answer, or is none that processes can share leases through."""
    namespace = f"tenure-demo-{os.urandom(3).hex()}"
    backend = connect(url, namespace=namespace)
    return Place(url, namespace, str(backend), asyncio.run(_lease_ms(backend)))


async def _lease_ms(backend: Backend) -> int:
    async with backend as entered:
        if not isinstance(entered, LeaseBackend) or not entered.capabilities.shared:
            raise BackendMisconfigured(f"{backend}: the demo's processes share leases, which it cannot give them")
        return max(LEASE_MS, entered.capabilities.min_lease_ms)
