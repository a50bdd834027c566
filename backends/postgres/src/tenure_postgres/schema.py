"""The schema in the database: what is there of it, and how it is made what it must be."""

import hashlib
from collections.abc import Sequence

import psycopg
from psycopg import pq

from tenure_postgres.failures import Unfit
from tenure_postgres.session import Outcome, Query, Session, rows
from tenure_postgres.statements import MIGRATIONS, literal, migration, needs_function, quoted, statements

VERSION = len(MIGRATIONS)
"""Of the schema that this code makes and works with; a newer one is refused, an older one is migrated."""

_ABSENT = ("3F000", "42P01")
_GRANTS = """\
-- What the role of the application needs, and no more:
-- grant usage on schema {schema} to app;
-- grant select on {schema}.migrations to app;
-- grant select, insert, update, delete on {schema}.jobs, {schema}.runs, {schema}.results, {schema}.cards,
--     {schema}.fences to app;
-- grant execute on all functions in schema {schema} to app;
"""


async def prepare(session: Session, schema: str, *, create: bool, functions: bool) -> None:
    """Make the schema what it must be, if it is not that; Unfit if it cannot be used or made."""
    (outcome,) = await session.ask([Query(statements(schema).applied, ())])
    absent = isinstance(outcome, psycopg.Error) and outcome.sqlstate in _ABSENT
    missing = _missing(schema, () if absent else _numbers(_good(outcome)), functions)
    if missing and not create:
        there = "holds no store of tenure's" if absent else f"lacks {MIGRATIONS[missing[0] - 1]}"
        raise Unfit(f"schema {schema!r} {there}; run `tenure migrate URL`")
    if missing:
        await migrate(session, schema, functions=functions)


async def migrate(session: Session, schema: str, *, functions: bool) -> list[str]:
    """Make the schema what it must be, in one transaction; the names of what was done, none if it was that already.

    Of any number of processes one does it, and the others wait for it.
    """
    await _done(session, f"begin isolation level read committed; set local statement_timeout = 0; {_lock(schema)}")
    missing = _missing(schema, await _applied_under_lock(session, schema), functions)
    exists = await _holds(session, f"pg_namespace where nspname = {literal(schema)}")
    await _done(session, f"{_script(schema, missing, exists=exists)}\ncommit")
    return [MIGRATIONS[number - 1] for number in missing]


def migration_sql(schema: str, *, functions: bool) -> str:
    """Plain SQL that makes the schema in a database without it, and the grants for another role than its owner."""
    script = _script(schema, _missing(schema, (), functions), exists=False)
    return f"begin;\n{_lock(schema)};\n{script}\ncommit;\n\n{_GRANTS.format(schema=quoted(schema))}"


def _missing(schema: str, applied: Sequence[int], functions: bool) -> list[int]:
    """The numbers of the migrations that are still to be done."""
    if max(applied, default=0) > VERSION:
        raise Unfit(
            f"schema {schema!r} has version {max(applied)} and this tenure-postgres knows up to {VERSION}; upgrade"
            " tenure-postgres here"
        )
    needed = [number for number in range(1, VERSION + 1) if functions or not needs_function(number)]
    return [number for number in needed if number not in applied]


def _lock(schema: str) -> str:
    digest = hashlib.sha256(f"tenure:{schema}".encode()).digest()
    return f"select pg_advisory_xact_lock({int.from_bytes(digest[:8], signed=True)})"


def _script(schema: str, numbers: Sequence[int], *, exists: bool) -> str:
    parts = [] if exists else [f"create schema {quoted(schema)};"]
    for number in numbers:
        parts.append(f"-- {MIGRATIONS[number - 1]}\n{migration(number, schema)}")
        parts.append(f"insert into {quoted(schema)}.migrations (version) values ({number});")  # noqa: S608  quoted
    return "\n".join(parts)


async def _applied_under_lock(session: Session, schema: str) -> Sequence[int]:
    """What was applied, asked inside a transaction, which an error would end."""
    there = f"pg_class where oid = to_regclass({literal(quoted(schema) + '.migrations')})"
    if not await _holds(session, there):
        return ()
    (found,) = await _done(session, statements(schema).applied.text.decode())
    return _numbers(found)


async def _holds(session: Session, what: str) -> bool:
    (found,) = await _done(session, f"select 1 from pg_catalog.{what}")  # noqa: S608  quoted
    return found.ntuples > 0


def _numbers(found: pq.abc.PGresult) -> list[int]:
    return [int(number or 0) for (number,) in rows(found)]


async def _done(session: Session, script: str) -> Sequence[pq.abc.PGresult]:
    return [_good(outcome) for outcome in await session.run(script)]


def _good(outcome: Outcome) -> pq.abc.PGresult:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
