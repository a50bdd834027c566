"""The SQLite backend of tenure: the processes of one host schedule together through one file."""

from tenure_sqlite.backend import SqliteBackend, from_url

__all__ = ["SqliteBackend", "from_url"]
