"""One connection as the backend uses it: statements in a pipeline, each a transaction of its own."""

import asyncio
import select
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

from tenure_postgres.statements import Statement

Parameters = Sequence[bytes | None]
Outcome = pq.abc.PGresult | Exception

_READ_COMMITTED = b"set transaction isolation level read committed"
_NOT_PREPARED = frozenset(("26000", "42P05", "0A000"))
"""A statement that was prepared is gone, or there already, or its tables have changed since."""
_SYNC = pq.ExecStatus.PIPELINE_SYNC
_ROWS = pq.ExecStatus.TUPLES_OK
_FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_ABORTED)


@dataclass(frozen=True, slots=True)
class Query:
    """A statement and what it is asked with, in the text format of Postgres."""

    statement: Statement
    parameters: Parameters


class Session:
    """A connection, used below psycopg's own cursors.

    Those would neither give each statement of a pipeline its own error, nor be left at once while the server is silent.
    ``settled`` says that the session's transactions are READ COMMITTED by themselves, ``prepares`` that statements may
    be prepared, ``pooled`` that each transaction may get another server process.
    """

    def __init__(
        self, connection: psycopg.AsyncConnection[Any], *, settled: bool = False, prepares: bool = True
    ) -> None:
        self.connection = connection
        self.pgconn: pq.abc.PGconn = connection.pgconn
        self.settled = settled
        self.prepares: bool = prepares
        self.pooled = False
        self._wake: asyncio.Future[None] | None = None
        self._given_up = False
        self._prepared: set[bytes] = set()
        self._poll = select.poll()
        self._poll.register(self.pgconn.socket, select.POLLIN)

    @property
    def usable(self) -> bool:
        """Whether it can be used next. An idle server says nothing, unless that it ends."""
        return self.pgconn.transaction_status == pq.TransactionStatus.IDLE and not self._poll.poll(0)

    async def close(self) -> None:
        """Close the socket at once, whatever is under way."""
        await self.connection.close()

    def give_up(self) -> None:
        """Let what is waited for raise TimeoutError; the session must be closed then."""
        self._given_up = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def ask(self, queries: Sequence[Query], *, inside: bool = False) -> list[Outcome]:
        """Send all of them at once; the outcome of each, its own error or that of the connection included.

        Each is a transaction of its own, unless they are ``inside`` of one that was begun, or that the first begins.
        """
        if inside:
            return await self._exchange(queries, prepared=False)
        before = () if self.settled else (_READ_COMMITTED,)
        outcomes = await self._exchange(queries, *before, prepared=self.prepares)
        again = [place for place, outcome in enumerate(outcomes) if _sqlstate(outcome) in _NOT_PREPARED]
        if again and self.prepares:  # none of these was carried out
            self.prepares = False
            repeated = await self._exchange([queries[place] for place in again], *before, prepared=False)
            for place, outcome in zip(again, repeated, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def ask_alone(self, query: Query) -> Outcome:
        """The same of one query, without a pipeline if it can do without."""
        if self.settled and self.prepares and query.statement.name in self._prepared:
            self.pgconn.send_query_prepared(query.statement.name, query.parameters)
            *_, outcome = await self._received(None)
            if _sqlstate(outcome) not in _NOT_PREPARED:
                return outcome
        (outcome,) = await self.ask([query])
        return outcome

    async def run(self, script: str) -> list[Outcome]:
        """Send SQL of several statements, without parameters; the outcomes up to the first error."""
        self.pgconn.send_query(script.encode())
        return await self._received(None)

    async def notified(self, patience_s: float) -> list[str]:
        """What was notified since the last time, or is next; nothing if that takes longer than ``patience_s``."""
        if not (payloads := self._notifies()):
            with _Readiness(self) as ready, suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await ready.input()
            payloads = self._notifies()
        return payloads

    def _notifies(self) -> list[str]:
        return [notify.extra.decode() for notify in iter(self.pgconn.notifies, None)]

    async def _exchange(self, queries: Sequence[Query], *before: bytes, prepared: bool) -> list[Outcome]:
        """The queries in one pipeline, each behind the statements that come ``before`` it in its transaction."""
        pgconn = self.pgconn
        pgconn.enter_pipeline_mode()
        for query in queries:
            for text in before:
                pgconn.send_query_params(text, None)
            if prepared:
                self._send_prepared(query)
            else:
                pgconn.send_query_params(query.statement.text, query.parameters)
            pgconn.pipeline_sync()  # after each: so its error is nobody else's
        outcomes = await self._received(len(queries))
        if pgconn.status == pq.ConnStatus.OK:
            pgconn.exit_pipeline_mode()
        return outcomes

    def _send_prepared(self, query: Query) -> None:
        name = query.statement.name
        if name not in self._prepared:
            self._prepared.add(name)
            self.pgconn.send_prepare(name, query.statement.text)
        self.pgconn.send_query_prepared(name, query.parameters)

    async def _received(self, count: int | None) -> list[Outcome]:
        """What the server answers to that many queries, or to one script.

        The connection's end is the outcome of all that it left without one.
        """
        outcomes: list[Outcome] = []
        try:
            if count is None:
                await self._receive_script(outcomes)
            else:
                await self._receive(outcomes, count)
        except psycopg.Error as exc:
            outcomes.extend([exc] * ((count or 1) - len(outcomes)))
        return outcomes

    async def _receive(self, outcomes: list[Outcome], count: int) -> None:
        last: Outcome | None = None
        with _Readiness(self) as ready:
            try:
                while len(outcomes) < count:
                    result = await ready.result()
                    if result is not None and result.status != _SYNC:
                        last = last if isinstance(last, Exception) else _outcome(result)
                    elif result is not None and last is not None:
                        outcomes.append(last)
                        last = None
            except psycopg.Error:
                if isinstance(last, Exception):  # why the connection has ended, in the server's words
                    outcomes.append(last)
                raise

    async def _receive_script(self, outcomes: list[Outcome]) -> None:
        with _Readiness(self) as ready:
            while (result := await ready.result()) is not None:
                outcomes.append(_outcome(result))


class _Readiness:
    """Waits in the running loop until the server's answer is there."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pgconn = session.pgconn
        self._loop = asyncio.get_running_loop()
        self._socket = session.pgconn.socket
        self._writing = False

    def __enter__(self) -> "_Readiness":
        self._loop.add_reader(self._socket, self._ready)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._socket)
        if self._writing:
            self._loop.remove_writer(self._socket)

    async def result(self) -> pq.abc.PGresult | None:
        """The next result, None between those of two statements; psycopg.OperationalError at the connection's end."""
        pgconn = self._pgconn
        while True:
            self._write(pgconn.flush() != 0)
            if not pgconn.is_busy():
                break
            try:
                await self.input()
            except psycopg.OperationalError:
                if pgconn.is_busy():
                    raise
                break  # its last words came with its end
        result = pgconn.get_result()
        if result is None and pgconn.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(pgconn.get_error_message())
        return result

    async def input(self) -> None:
        """Wait until something was sent; psycopg.OperationalError at the connection's end."""
        self._session._wake = self._loop.create_future()
        await self._session._wake
        if self._session._given_up:
            raise TimeoutError
        self._pgconn.consume_input()

    def _write(self, writing: bool) -> None:
        """Wait for room for what is still to be sent, too."""
        if writing != self._writing:
            self._writing = writing
            if writing:
                self._loop.add_writer(self._socket, self._ready)
            else:
                self._loop.remove_writer(self._socket)

    def _ready(self) -> None:
        wake = self._session._wake
        if wake is not None and not wake.done():
            wake.set_result(None)


def rows(result: pq.abc.PGresult) -> list[list[bytes | None]]:
    """The rows of a result."""
    return [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]


def _outcome(result: pq.abc.PGresult) -> Outcome:
    return error_from_result(result) if result.status in _FAILED else result


def _sqlstate(outcome: Outcome) -> str | None:
    return outcome.sqlstate if isinstance(outcome, psycopg.Error) else None
