"""What the demo's handler writes to: a table that refuses a write with a smaller fence than it has seen."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tenure.errors import TenureError

_TABLE = """
create table if not exists ledger (
    slot integer primary key, fence integer not null, attempt integer not null,
    worker text not null, entry text not null
)
"""
_WRITE = """
insert into ledger (slot, fence, attempt, worker, entry) values (:slot, :fence, :attempt, :worker, :entry)
on conflict (slot) do update set
    fence = excluded.fence, attempt = excluded.attempt, worker = excluded.worker, entry = excluded.entry
where excluded.fence >= ledger.fence
"""
_LOCK_S = 20.0  # a loaded machine may be slow


class StaleFence(TenureError):
    """A later attempt has written already: this one no longer owns the run."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the ledger holds for a slot: the write of the greatest fence."""

    slot: int
    fence: int
    attempt: int
    worker: str
    entry: str


class Ledger:
    """A table with one row per slot, in a file of its own; the ``where`` of its write is all that fencing asks for.

    The demo's runs may overlap, so that fences are compared per run.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self) -> None:
        """Create the table if it is not there."""
        with closing(self._connect()) as connection:
            connection.execute("pragma journal_mode = wal")
            connection.execute(_TABLE)

    def write(self, entry: Entry) -> None:
        """Write the slot's row; StaleFence if it was written with a greater fence."""
        row = {name: getattr(entry, name) for name in Entry.__slots__}
        with closing(self._connect()) as connection:
            if not connection.execute(_WRITE, row).rowcount:
                raise StaleFence(f"fence {entry.fence} is stale")

    def entries(self) -> dict[int, Entry]:
        """All rows, by slot."""
        with closing(self._connect()) as connection:
            rows = connection.execute("select slot, fence, attempt, worker, entry from ledger").fetchall()
        return {row[0]: Entry(*row) for row in rows}

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_LOCK_S, isolation_level=None)
        connection.execute("pragma synchronous = normal")
        return connection
