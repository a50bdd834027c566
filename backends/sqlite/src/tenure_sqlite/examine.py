"""What an operator may want to know of the file and of the disk it is on."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from tenure.model import Finding

from tenure_sqlite.database import VERSION, Database

_LEAST_FREE = 256 * 2**20
_NETWORK = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "glusterfs", "ceph", "fuse.ceph"))
"""File systems whose locks SQLite cannot rely on."""


def examine(database: Database, connection: sqlite3.Connection) -> list[Finding]:
    """Findings on the file; it is read, and not written to."""
    return list(_findings(database, connection))


def _findings(database: Database, connection: sqlite3.Connection) -> Iterator[Finding]:
    (version,) = connection.execute("select max(version) from tenure_schema").fetchone()
    text = f"version {version}, SQLite {sqlite3.sqlite_version}"
    yield Finding("schema", "ok" if version == VERSION else "warning", text)
    (mode,) = connection.execute("pragma journal_mode").fetchone()
    if mode == "wal":
        yield Finding("journal", "ok", "write-ahead log: readers do not wait for the writer")
    else:
        remedy = "let an instance enter the store once, on a local disk, and it is switched to wal"
        yield Finding("journal", "warning", f"journal mode {mode}", remedy)
    yield _disk(Path(database.path))
    yield _file_system(Path(database.path))
    yield _rights(Path(database.path))


def _disk(path: Path) -> Finding:
    free = shutil.disk_usage(path.parent).free
    text = f"{free // 2**20} MB free, the file has {path.stat().st_size // 1024} KB"
    if free >= _LEAST_FREE:
        return Finding("disk", "ok", text)
    return Finding("disk", "warning", text, "free some space: once it is full, no run can start or end")


def _file_system(path: Path) -> Finding:
    kind = file_system_of(path)
    if kind not in _NETWORK:
        return Finding("file system", "ok", kind or "unknown, but it can share memory between processes")
    remedy = "put the file on a local disk: SQLite's locks do not work over a network"
    return Finding("file system", "wrong", f"{kind}, a network file system", remedy)


def file_system_of(path: Path, mounts: Path = Path("/proc/mounts")) -> str | None:
    """The kind of the file system that the path is on, where the system tells."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    places = [(fields[1], fields[2]) for fields in map(str.split, lines) if len(fields) > 2]
    real = str(path.resolve())
    within = [(place, kind) for place, kind in places if os.path.commonpath((real, place)) == place]
    return max(within, key=lambda mount: len(mount[0]))[1] if within else None


def _rights(path: Path) -> Finding:
    beside = [path, *(file for suffix in ("-wal", "-shm") if (file := Path(f"{path}{suffix}")).exists())]
    closed = [file.name for file in beside if not os.access(file, os.R_OK | os.W_OK)]
    if not closed:
        return Finding("rights", "ok", "this user may read and write the file")
    return Finding("rights", "wrong", f"this user may not read and write {', '.join(closed)}", "allow it")
