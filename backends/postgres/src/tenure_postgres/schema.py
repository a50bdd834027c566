"""The schema in the database: which version is there, and how it is made what it must be."""

import hashlib
from collections.abc import Sequence

import psycopg
from psycopg import pq
from tenure.errors import BackendMisconfigured

from tenure_postgres.session import Outcome, Query, Session, rows
from tenure_postgres.statements import MIGRATIONS, literal, migration, quoted, statements

VERSION = len(MIGRATIONS)
"""Of the schema that this code makes and works with; a newer one is refused, an older one is migrated."""

_ABSENT = ("3F000", "42P01")
GRANTS = """\
-- What the role that runs needs, and no more:
-- grant usage on schema {schema} to app;
-- grant select on {schema}.migrations to app;
-- grant select, insert, update, delete on {schema}.jobs, {schema}.runs, {schema}.results, {schema}.fences to app;
-- grant execute on all functions in schema {schema} to app;
"""


async def prepare(session: Session, schema: str, *, create: bool) -> None:
    """Bring the schema to VERSION if it is not there; BackendMisconfigured if it cannot be used or made."""
    version = await _version(session, schema)
    if version == VERSION:
        return
    if version > VERSION:
        raise BackendMisconfigured(
            f"schema {schema!r} has version {version} and this tenure-postgres knows up to {VERSION}; upgrade"
            " tenure-postgres here"
        )
    if not create:
        there = f"has version {version} and {VERSION} is needed" if version else "holds no store of tenure's"
        raise BackendMisconfigured(f"schema {schema!r} {there}; run `tenure migrate URL`")
    await migrate(session, schema)


async def migrate(session: Session, schema: str) -> list[str]:
    """Bring the schema to VERSION in one transaction; the names of what was done, none if it was there already.

    Of any number of processes one does it, and the others wait for it.
    """
    await _done(session, f"begin isolation level read committed; set local statement_timeout = 0; {_lock(schema)}")
    version = await _version_under_lock(session, schema)
    if version > VERSION:
        await _done(session, "rollback")
        await prepare(session, schema, create=False)
    script = _script(schema, version, exists=await _holds(session, f"pg_namespace where nspname = {literal(schema)}"))
    await _done(session, f"{script}\ncommit")
    return list(MIGRATIONS[version:])


def migration_sql(schema: str) -> str:
    """Plain SQL that makes the schema in an empty database, and the grants for another role than its owner."""
    grants = GRANTS.format(schema=quoted(schema))
    return f"begin;\n{_lock(schema)};\n{_script(schema, 0, exists=False)}\ncommit;\n\n{grants}"


def _lock(schema: str) -> str:
    digest = hashlib.sha256(f"tenure:{schema}".encode()).digest()
    return f"select pg_advisory_xact_lock({int.from_bytes(digest[:8], signed=True)})"


def _script(schema: str, version: int, *, exists: bool) -> str:
    parts = [] if exists else [f"create schema {quoted(schema)};"]
    for number in range(version + 1, VERSION + 1):
        parts.append(f"-- {MIGRATIONS[number - 1]}\n{migration(number, schema)}")
        parts.append(f"insert into {quoted(schema)}.migrations (version) values ({number});")  # noqa: S608  quoted
    return "\n".join(parts)


async def _version(session: Session, schema: str) -> int:
    """The version that is there, 0 if none is."""
    (outcome,) = await session.ask([Query(statements(schema).version, ())])
    if isinstance(outcome, psycopg.Error) and outcome.sqlstate in _ABSENT:
        return 0
    ((version,),) = rows(_good(outcome))
    return int(version or 0)


async def _version_under_lock(session: Session, schema: str) -> int:
    """The same inside a transaction, which an error would end."""
    there = f"pg_class where oid = to_regclass({literal(quoted(schema) + '.migrations')})"
    if not await _holds(session, there):
        return 0
    (found,) = await _done(session, statements(schema).version.text.decode())
    return int(found.get_value(0, 0) or 0)


async def _holds(session: Session, what: str) -> bool:
    (found,) = await _done(session, f"select 1 from pg_catalog.{what}")  # noqa: S608  quoted
    return found.ntuples > 0


async def _done(session: Session, script: str) -> Sequence[pq.abc.PGresult]:
    return [_good(outcome) for outcome in await session.run(script)]


def _good(outcome: Outcome) -> pq.abc.PGresult:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
