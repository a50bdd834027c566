"""Where sessions come from: connections of our own, or a pool of the application's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import psycopg
from psycopg.conninfo import make_conninfo

from tenure_postgres.failures import Unfit
from tenure_postgres.session import Query, Session, rows
from tenure_postgres.statements import Statement

OLDEST = 140_000
"""Older servers are refused: nothing is known of how they do."""


class Connections(Protocol):
    """Sessions, one user each at a time; psycopg.Error or Unfit if there is none to be had."""

    async def take(self) -> Session:
        """A session that is idle."""

    def idle(self) -> Session | None:
        """A session that can be had without waiting, None if there is none."""

    async def give(self, session: Session) -> None:
        """Have it back, or close it if it was closed or is broken."""

    async def listening(self) -> Session:
        """A session of its own that is closed after its use."""

    async def close(self) -> None:
        """Close what is idle."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked of each new connection, and what is assumed of it."""

    statement: Statement
    timeout_ms: int
    pooler: bool | None
    """Whether each transaction may get another server process; None: look."""


class OwnConnections:
    """Opens connections as they are needed and keeps them; how many, the caller bounds."""

    def __init__(self, conninfo: Mapping[str, Any], settings: Settings) -> None:
        self._conninfo = make_conninfo("", **conninfo)
        self._settings = settings
        self._idle: list[Session] = []

    async def take(self) -> Session:
        """See Connections."""
        while self._idle:
            session = self._idle.pop()
            if session.usable:
                return session
            await session.close()
        return await self._connected()

    def idle(self) -> Session | None:
        """See Connections."""
        return self._idle.pop() if self._idle and self._idle[-1].usable else None

    async def give(self, session: Session) -> None:
        """See Connections."""
        if session.usable:
            self._idle.append(session)
        else:
            await session.close()

    async def listening(self) -> Session:
        """See Connections."""
        return await self._connected()

    async def close(self) -> None:
        """See Connections."""
        idle, self._idle = self._idle, []
        for session in idle:
            await session.close()

    async def _connected(self) -> Session:
        connection = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
        session = Session(connection)
        try:
            await _settle(session, self._settings, own=True)
        except BaseException:
            await session.close()
            raise
        return session


class PoolConnections:
    """Takes connections of a psycopg_pool.AsyncConnectionPool and leaves its settings alone."""

    def __init__(self, pool: Any, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings
        self._known: WeakKeyDictionary[psycopg.AsyncConnection[Any], Session] = WeakKeyDictionary()

    async def take(self) -> Session:
        """See Connections."""
        connection = await self._pool.getconn(timeout=self._settings.timeout_ms / 1_000)
        try:
            return await self._session(connection)
        except BaseException:
            await connection.close()
            await self._pool.putconn(connection)
            raise

    def idle(self) -> Session | None:
        """See Connections; a pool is always waited for."""
        return None

    async def give(self, session: Session) -> None:
        """See Connections."""
        if not session.usable:
            await session.close()
        await self._pool.putconn(session.connection)

    async def listening(self) -> Session:
        """See Connections; of the pool's settings and class, but not one of its connections."""
        conninfo, kwargs = self._pool.conninfo, self._pool.kwargs
        if callable(conninfo) or callable(kwargs):
            raise Unfit("a pool whose settings are made by functions cannot be listened beside")
        connection = await self._pool.connection_class.connect(conninfo, **{**(kwargs or {}), "autocommit": True})
        session = Session(connection)
        try:
            await _settle(session, self._settings, own=False)
        except BaseException:
            await session.close()
            raise
        return session

    async def close(self) -> None:
        """See Connections; the pool stays open, it is the application's."""

    async def _session(self, connection: psycopg.AsyncConnection[Any]) -> Session:
        session = self._known.get(connection)
        if session is None:
            session = Session(connection, prepares=connection.prepare_threshold is not None)
            await _settle(session, self._settings, own=False)
            self._known[connection] = session
        return session


async def _settle(session: Session, settings: Settings, *, own: bool) -> None:
    """Learn what the connection leads to, refuse what will not do, and set what an own session may keep."""
    limit = str(settings.timeout_ms).encode() if own and not settings.pooler else None
    process = str(session.pgconn.backend_pid).encode()
    settled, prepares = session.settled, session.prepares
    session.settled, session.prepares = True, False
    (outcome,) = await session.ask([Query(settings.statement, (process, limit))])
    if isinstance(outcome, Exception):
        raise outcome
    ((version, encoding, standby, elsewhere, was_set),) = rows(outcome)
    assert version is not None
    if int(version) < OLDEST:
        raise Unfit(f"the server has version number {int(version)}; PostgreSQL 14 or later is needed")
    if encoding != b"UTF8" or session.connection.info.encoding != "utf-8":
        raise Unfit(
            f"the database's encoding is {(encoding or b'').decode()} and the connection's"
            f" {session.connection.info.encoding}; both must be UTF8"
        )
    if standby == b"t":
        raise Unfit(
            "the server is a read-only standby; name the primary, or all hosts with target_session_attrs=read-write"
        )
    pooler = settings.pooler if settings.pooler is not None else elsewhere == b"t"
    session.settled = settled or was_set is not None
    session.prepares = prepares and not pooler
    session.pooled = pooler
