"""The protocol's methods on a Postgres database: each is one statement, decided by the server under its own clock."""

import asyncio
import hashlib
import json
import logging
import random
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from psycopg import pq
from tenure import decision
from tenure.codec import decode_cards, encode_card
from tenure.decision import DEFAULT_KEEP_RESULTS
from tenure.duration import Duration, to_ms
from tenure.errors import BackendClosed, InvalidClaim, InvalidUrl
from tenure.model import (
    CARD_KEPT_MS,
    ActiveRun,
    ActiveRuns,
    Capabilities,
    Claim,
    ClaimResult,
    Ending,
    Finding,
    JobCard,
    LostAttempt,
    ResultStatus,
    RunResult,
    check_ending,
    check_limit,
    check_name,
    check_run,
)
from tenure.urls import hide_in_error

from tenure_postgres import schema as schemas
from tenure_postgres.address import Address, read_url
from tenure_postgres.client import Client, Work
from tenure_postgres.connections import Connections, OwnConnections, PoolConnections, Settings
from tenure_postgres.examine import examine
from tenure_postgres.failures import translated
from tenure_postgres.inline import claiming
from tenure_postgres.session import Query, Session, rows
from tenure_postgres.statements import Statement, statements

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

logger: logging.Logger = logging.getLogger("tenure.postgres")

_FOREVER_MS = 2**60
"""As good as any longer lease or limit, and far from the end of Postgres's integers."""
_LARGEST = 2**63 - 1
_REMOVALS = 1 / 16
"""How often saving a result also removes those that are not kept; they are never shown meanwhile."""
_TRUE = (b"f", b"t")
_IDENTIFIER_BYTES = 63
_CARDS_AT_ONCE = 1_000


def from_url(url: str, *, namespace: str = "tenure", create: bool | None = None, **options: Any) -> "PostgresBackend":
    """``postgresql://user:password@host/database`` as libpq reads it, with the options of PostgresBackend.

    What else libpq knows may stand in the query: ``sslmode=verify-full``, ``target_session_attrs``, several hosts.
    InvalidUrl for an option that neither knows.
    """
    if create is not None:
        options["create"] = create
    address, known = read_url(url, options)
    return PostgresBackend(address, namespace=namespace, **known)


class PostgresBackend:
    """A lease backend on a Postgres database, by its address or through a pool of the application's.

    ``pool`` is a psycopg_pool.AsyncConnectionPool, open while the backend is used; none of its settings is relied upon
    or changed. Else at most ``connections`` are opened, and one more while hints are listened to. ``schema`` is the
    Postgres schema that holds the tables. With ``functions`` False a claim takes two round trips and needs no function
    in the database. ``pooler`` says whether a transaction pooler is in between, None that it is found out.
    """

    capabilities: Capabilities = Capabilities(durable=True, shared=True)

    def __init__(
        self,
        address: "str | Address | None" = None,
        *,
        pool: "AsyncConnectionPool[Any] | None" = None,
        namespace: str = "tenure",
        schema: str = "tenure",
        timeout: Duration = "5s",
        keep_results: int = DEFAULT_KEEP_RESULTS,
        connections: int = 4,
        create: bool = True,
        functions: bool = True,
        pooler: bool | None = None,
    ) -> None:
        check_name(namespace, "namespace")
        check_limit(keep_results)
        _check_options(schema, connections, create=create, functions=functions, pooler=pooler)
        if (address is None) == (pool is None):
            raise InvalidUrl("give either an address or a pool")
        self._address = read_url(address, {})[0] if isinstance(address, str) else address
        self._pool = pool
        self._namespace = namespace
        self._key = namespace.encode()
        self._schema = schema
        self._timeout_ms = to_ms(timeout, "timeout", minimum_ms=1)
        self._keep_results = keep_results
        self._lanes = connections
        self._create = create
        self._functions = functions
        self._pooler = pooler
        self._sql = statements(schema)
        self._place = str(self._address) if self._address is not None else "the pool's database"
        self._secrets = self._address.secrets if self._address is not None else ()
        self._passwords = self._address.passwords if self._address is not None else ()
        self._channel = _channel(schema, namespace)
        self._entered = 0
        self._client: Client | None = None

    def __str__(self) -> str:
        schema = f", schema {self._schema}" if self._schema != "tenure" else ""
        return f"{self._place} (namespace {self._namespace}{schema})"

    async def __aenter__(self) -> Self:
        """See Entered; connected with the first and closed with the last of several, all in one event loop."""
        if self._client is None:
            self._client = self._opened()
        self._entered += 1
        try:
            await self._ask(Work(self._prepare))
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        if self._address is not None and self._address.believes_any_server:
            logger.warning(
                "%s: sslmode=require looks at no certificate, so whoever is on the way could be the server; write"
                " sslmode=verify-full and sslrootcert=system, or the file of your authority",
                self,
            )
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """See Entered; what is under way is waited for, no longer than the timeout."""
        self._entered -= 1
        if self._entered or self._client is None:
            return
        left, self._client = self._client, None
        await left.close()

    async def claim(self, claim: Claim) -> ClaimResult:
        """See LeaseBackend."""
        if not self._functions:
            steps = claiming(self._sql, self._key, claim, self._timeout_ms)
            decided: ClaimResult = await self._ask(Work(steps))
            return decided
        result = await self._query(
            self._sql.claim,
            claim.job.encode(),
            b"%d" % claim.slot,
            claim.token.encode(),
            claim.instance.encode(),
            b"%d" % min(claim.lease_ms, _FOREVER_MS),
            _TRUE[claim.mode == "takeover"],
            _TRUE[claim.overlap == "skip"],
            b"%d" % min(claim.max_attempts, _FOREVER_MS),
            None if claim.max_late_ms is None else b"%d" % min(claim.max_late_ms, _FOREVER_MS),
            b"%d" % min(claim.after, _FOREVER_MS),
        )
        return _claim_result(result.get_value(0, 0))

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        result = await self._query(self._sql.heartbeat, job.encode(), b"%d" % slot, token.encode())
        return result.ntuples > 0

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        check_ending(status)
        result = await self._query(self._sql.finish, job.encode(), b"%d" % slot, token.encode(), status.encode())
        return result.ntuples > 0

    async def release(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        result = await self._query(self._sql.release, job.encode(), b"%d" % slot, token.encode(), self._channel)
        return result.ntuples > 0

    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        """See LeaseBackend."""
        for job in jobs:
            check_name(job, "job")
        result = await self._query(self._sql.active, json.dumps(list(jobs)).encode())
        found = rows(result)
        now_ms = int(found[0][0] or 0)
        return ActiveRuns(now_ms, tuple([_active_run(row, now_ms) for row in found if row[1] is not None]))

    async def save_result(self, job: str, result: RunResult) -> None:
        """See LeaseBackend."""
        check_name(job, "job")
        await self._query(
            self._sql.save_result,
            job.encode(),
            b"%d" % result.slot,
            _number("attempt", result.attempt),
            _number("fence", result.fence),
            result.status.encode(),
            result.instance.encode(),
            _number("started_at", result.started_at),
            _number("ended_at", result.ended_at),
            None if result.error is None else result.error.encode(),
            _TRUE[decision.overwrites(result)],
            _TRUE[random.random() < _REMOVALS],
            b"%d" % self._keep_results,
        )

    async def results(self, job: str, *, limit: int = 20) -> list[RunResult]:
        """See LeaseBackend."""
        check_name(job, "job")
        check_limit(limit)
        result = await self._query(self._sql.results, job.encode(), b"%d" % min(limit, self._keep_results))
        return [_run_result(row) for row in rows(result)]

    async def save_cards(self, cards: Sequence[JobCard]) -> None:
        """See JobCards; many are several statements, each with its own deadline."""
        for start in range(0, len(cards), _CARDS_AT_ONCE):
            part = cards[start : start + _CARDS_AT_ONCE]
            told = [{"job": card.job, "card": encode_card(card), "seen_at": card.seen_at_ms} for card in part]
            await self._query(self._sql.save_cards, json.dumps(told).encode())
        await self._query(self._sql.forget_cards, b"%d" % CARD_KEPT_MS)

    async def cards(self) -> list[JobCard]:
        """See JobCards."""
        return await decode_cards(_text(card) for (card,) in rows(await self._query(self._sql.cards)))

    async def examine(self) -> list[Finding]:
        """See Examines."""
        findings: list[Finding] = await self._ask(Work(self._examine))
        return findings

    async def changes(self, jobs: Sequence[str]) -> AsyncIterator[str]:
        """See Hints; behind a transaction pooler there are none."""
        for job in jobs:
            check_name(job, "job")
        heard: asyncio.Queue[str | None] = asyncio.Queue()
        listening = self._entered_client().listen(self._channel.decode(), jobs, heard.put_nowait)
        listening.add_done_callback(lambda _: heard.put_nowait(None))  # the backend was left
        try:
            while (job_or_end := await heard.get()) is not None:
                yield job_or_end
        finally:
            listening.cancel()

    async def migrate(self) -> list[str]:
        """See Migrates."""
        client = self._opened()
        try:
            done: list[str] = await self._asked(client, Work(self._migrate))
        finally:
            await client.close()
        return done

    def migration_sql(self) -> str:
        """See Migrates."""
        return schemas.migration_sql(self._schema, functions=self._functions)

    async def _migrate(self, session: Session) -> list[str]:
        return await schemas.migrate(session, self._schema, functions=self._functions)

    async def _prepare(self, session: Session) -> None:
        await schemas.prepare(session, self._schema, create=self._create, functions=self._functions)

    async def _examine(self, session: Session) -> list[Finding]:
        (outcome,) = await session.ask([Query(self._sql.examine, (self._schema.encode(),))])
        if isinstance(outcome, Exception):
            raise outcome
        (row,) = rows(outcome)
        return examine(row, schemas.VERSION, pooler=session.pooled, functions=self._functions)

    async def _query(self, statement: Statement, *parameters: bytes | None) -> pq.abc.PGresult:
        """One statement about this namespace."""
        result: pq.abc.PGresult = await self._ask(Query(statement, (self._key, *parameters)))
        return result

    async def _ask(self, request: Query | Work) -> Any:
        return await self._asked(self._entered_client(), request)

    async def _asked(self, client: Client, request: Query | Work) -> Any:
        try:
            return await client.ask(request)
        except Exception as exc:  # noqa: BLE001  whatever the driver raises becomes tenure's
            hide_in_error(exc, self._passwords)
            error = translated(exc, self._place, self._secrets)
            raise error from error.__cause__

    def _entered_client(self) -> Client:
        if self._client is None:
            raise BackendClosed(f"{self._place}: the backend is not entered; use it inside `async with`")
        return self._client

    def _opened(self) -> Client:
        settings = Settings(self._sql.settings, self._timeout_ms, self._pooler)
        connections: Connections
        if self._address is None:
            connections = PoolConnections(self._pool, settings)
        else:
            connections = OwnConnections(self._address.conninfo, settings)
        return Client(connections, timeout_ms=self._timeout_ms, lanes=self._lanes, place=self._place)


def _check_options(schema: str, connections: int, **switches: object) -> None:
    fault = _fault_of_schema(schema)
    if fault is not None:
        raise InvalidUrl(f"schema: {schema!r} {fault}")
    if type(connections) is not int or connections < 1:
        raise InvalidUrl(f"connections: {connections!r} is not a number of at least 1")
    for name, value in switches.items():
        if type(value) is not bool and not (name == "pooler" and value is None):
            raise InvalidUrl(f"{name}: {value!r} is neither True nor False")


def _fault_of_schema(schema: str) -> str | None:
    """What keeps it from being a schema's name; Postgres would cut a longer one without a word."""
    check_name(schema, "schema", InvalidUrl)
    if len(schema.encode()) > _IDENTIFIER_BYTES:
        return f"is longer than {_IDENTIFIER_BYTES} bytes"
    if schema.startswith("pg_") or "$tenure$" in schema:
        return "is a name that Postgres or tenure keeps to itself"
    return None


def _channel(schema: str, namespace: str) -> bytes:
    """What hints of this namespace are notified on: a name of its own, short enough for any schema and namespace."""
    digest = hashlib.sha256(f"{schema}\x00{namespace}".encode()).hexdigest()
    return f"tenure_{digest[:32]}".encode()


def _number(name: str, value: int | None) -> bytes | None:
    if value is None:
        return None
    if value > _LARGEST:
        raise InvalidClaim(f"{name}: {value} is more than the {_LARGEST} that Postgres can store")
    return b"%d" % value


def _claim_result(answer: bytes | None) -> ClaimResult:
    fields = json.loads(answer or b"")
    previous = fields.pop("previous", None)
    if previous:
        fields["previous"] = tuple([LostAttempt(*lost) for lost in previous])
    return ClaimResult(**fields)


def _active_run(row: list[bytes | None], now_ms: int) -> ActiveRun:
    job, slot, attempt, fence, holder, started_at, expires_at, status = map(_text, row[1:])
    left_ms = int(expires_at) - now_ms
    live = status == "open" and left_ms > 0
    return ActiveRun(job, int(slot), int(attempt), int(fence), holder, live, left_ms if live else 0, int(started_at))


def _run_result(row: list[bytes | None]) -> RunResult:
    slot, attempt, fence = map(int, map(_text, row[:3]))
    status, instance = _text(row[3]), _text(row[4])
    started_at, ended_at = [None if value is None else int(value) for value in row[5:7]]
    error = None if row[7] is None else row[7].decode()
    return RunResult(slot, attempt, fence, cast(ResultStatus, status), instance, started_at, ended_at, error)


def _text(value: bytes | None) -> str:
    assert value is not None, "a column that is never null"
    return value.decode()
