"""Opens and prepares the file, and says what is wrong with it."""

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tenure.errors import BackendError, BackendMisconfigured, BackendUnavailable

from tenure_sqlite import queries

Synchronous = Literal["full", "normal"]

VERSION = 1
"""Of the schema; a file of a newer one is refused."""
PATIENCE_MS = 50
"""How long SQLite waits for a lock by itself; then the thread looks whether anybody still waits for the answer."""

_MISCONFIGURED = frozenset(
    (
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    )
)
_REMEDIES = {
    sqlite3.SQLITE_NOTADB: "it is not a SQLite database; name another file, or move this one away",
    sqlite3.SQLITE_CORRUPT: "it is damaged; restore it from a backup, or move it away to begin anew",
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_IOERR: "the disk failed; look at it and at the space that is left",
}


@dataclass(frozen=True, slots=True)
class Database:
    """The file and how it is written to."""

    path: str
    synchronous: Synchronous
    create: bool = True

    def open(self) -> sqlite3.Connection:
        """A prepared connection, usable from any thread, one at a time; sqlite3.Error or BackendError if it fails."""
        if not self.create and not Path(self.path).exists():
            remedy = "look at the path, or start an instance, which makes one unless it has create=false"
            raise BackendMisconfigured(f"there is no store at {self.path}; {remedy}")
        fault = _fault_of(Path(self.path))
        if fault is not None:
            raise BackendMisconfigured(f"{self.path}: {fault}")
        connection = self._connect()
        try:
            if self.create:
                self._switch_to_wal(connection)
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def identity(self) -> tuple[int, int] | None:
        """What tells the file from another one put in its place; None if there is none."""
        try:
            status = Path(self.path).stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def translate(self, error: Exception) -> BackendError:
        """The error as a caller gets it, with the path and the remedy."""
        if isinstance(error, BackendError):
            return error
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
        remedy = _fault_of(Path(self.path)) or _REMEDIES.get(code)
        kind = BackendMisconfigured if code in _MISCONFIGURED else BackendUnavailable
        if code == sqlite3.SQLITE_CANTOPEN and remedy is not None:
            kind = BackendMisconfigured
        return kind(f"{self.path}: {error}" + (f": {remedy}" if remedy else ""))

    def _connect(self) -> sqlite3.Connection:
        mode = "rwc" if self.create else "rw"
        return sqlite3.connect(
            f"{Path(self.path).as_uri()}?mode={mode}",
            uri=True,
            timeout=PATIENCE_MS / 1_000,
            isolation_level=None,
            check_same_thread=False,
        )

    def _switch_to_wal(self, connection: sqlite3.Connection) -> None:
        # WAL: readers do not wait for the writer, and a commit is one write and one sync.
        (mode,) = connection.execute("pragma journal_mode=wal").fetchone()
        if mode != "wal":
            raise BackendMisconfigured(
                f"{self.path}: its file system cannot share memory between processes (journal mode {mode});"
                " put the file on a local disk"
            )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"pragma synchronous={self.synchronous}")
        version = _version(connection)
        if version is None and not self.create:
            raise BackendMisconfigured(f"there is no store in {self.path}: it has none of tenure's tables")
        if version is None:
            _create(connection)
            version = _version(connection)
        if version is None or version > VERSION:
            raise BackendMisconfigured(
                f"{self.path}: it has schema {version} and this tenure-sqlite knows up to {VERSION};"
                " upgrade tenure-sqlite here"
            )
        if self.create and not has_table(connection, "tenure_cards"):  # one that came later, beside the others
            _create_tables(connection)


def is_busy(error: Exception) -> bool:
    """Whether another connection holds a lock, so that trying again may help soon."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether the file has the table."""
    asked = "select 1 from sqlite_master where type = 'table' and name = ?"
    return connection.execute(asked, (name,)).fetchone() is not None


def _version(connection: sqlite3.Connection) -> int | None:
    """The schema's version, None before there is one."""
    if not has_table(connection, "tenure_schema"):
        return None
    (version,) = connection.execute("select max(version) from tenure_schema").fetchone()
    return int(version)


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("begin immediate")
    try:
        if _version(connection) is None:  # another process may have been first
            _create_tables(connection)
            connection.execute("insert into tenure_schema (version) values (?)", (VERSION,))
        connection.execute("commit")
    except BaseException:
        connection.execute("rollback")
        raise


def _create_tables(connection: sqlite3.Connection) -> None:
    for statement in queries.SCHEMA:
        connection.execute(statement)


def _fault_of(path: Path) -> str | None:
    """What keeps the file from being used, and the remedy; None if nothing can be seen from here."""
    directory = path.parent
    if path.is_dir():
        return "it is a directory; name a file in it"
    if not directory.is_dir():
        return f"its directory {str(directory)!r} does not exist; create it"
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"its directory {str(directory)!r} may not be written to, and SQLite keeps files beside it; allow that"
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return "it may not be read and written by this user; allow that"
    return None
