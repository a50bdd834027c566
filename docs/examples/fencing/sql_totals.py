"""Totals in SQLite that refuse a stale attempt: each statement compares the fence of the row."""

import sqlite3

from tenure import Context

TABLE = "create table if not exists totals (region text primary key, total integer not null, fence integer not null)"
TAKE = """
insert into totals values (:region, 0, :fence)
on conflict (region) do update set fence = excluded.fence where totals.fence <= excluded.fence
"""
SAVE = """
insert into totals values (:region, :total, :fence)
on conflict (region) do update set total = excluded.total, fence = excluded.fence where totals.fence <= excluded.fence
"""


class Stale(Exception):
    """A newer attempt has taken or written the row."""


def connect(path: str) -> sqlite3.Connection:
    """Open the database, with its table."""
    database = sqlite3.connect(path, timeout=30)
    database.execute(TABLE)
    return database


def take(database: sqlite3.Connection, region: str, ctx: Context) -> int:
    """Give the total; from here on no older attempt can write."""
    with database:
        _change(database, TAKE, region=region, fence=ctx.fence)
        (total,) = database.execute("select total from totals where region = ?", (region,)).fetchone()
        return int(total)


def save(database: sqlite3.Connection, region: str, total: int, ctx: Context) -> None:
    """Write the total; Stale if a newer attempt was here."""
    with database:
        _change(database, SAVE, region=region, total=total, fence=ctx.fence)


def _change(database: sqlite3.Connection, statement: str, **values: str | int) -> None:
    if database.execute(statement, values).rowcount == 0:
        raise Stale(values["region"])
