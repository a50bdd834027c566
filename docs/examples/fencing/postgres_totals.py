"""Totals in Postgres, and the guard of tenure-postgres in the same transaction: no column, and any number of tables."""

import psycopg
from tenure import Context
from tenure_postgres import guard

TABLE = "create table if not exists totals (region text primary key, total bigint not null)"
READ = "select total from totals where region = %s"
SAVE = "insert into totals values (%s, %s) on conflict (region) do update set total = excluded.total"

Stale = psycopg.errors.CheckViolation
"""What the guard raises: a newer attempt was here, or has won the run."""


def connect(url: str) -> psycopg.Connection:
    """Open the database, with its table; ``tenure migrate`` has made tenure's own."""
    database = psycopg.connect(url)
    with database.transaction():
        database.execute("select pg_advisory_xact_lock(1)")  # two processes that create one table fail otherwise
        database.execute(TABLE)
    return database


def take(database: psycopg.Connection, region: str, ctx: Context) -> int:
    """Give the total; from here on no older attempt can commit."""
    with database.transaction():
        guard(database, ctx)
        row = database.execute(READ, (region,)).fetchone()
        return int(row[0]) if row else 0


def save(database: psycopg.Connection, region: str, total: int, ctx: Context) -> None:
    """Write the total; Stale, and nothing of the transaction stays, if a newer attempt was here."""
    with database.transaction():
        database.execute(SAVE, (region, total))
        guard(database, ctx)  # last: it holds a lock until the commit
