"""The protocol's methods on Redis and Valkey: each is one call of a script, which decides."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from redis.exceptions import ReadOnlyError, RedisError
from tenure.codec import decode_cards, encode_card
from tenure.decision import DEFAULT_KEEP_RESULTS, overwrites
from tenure.duration import Duration, to_ms, to_text
from tenure.errors import BackendClosed, BackendError, BackendMisconfigured, BackendUnavailable, InvalidUrl
from tenure.model import (
    CARD_KEPT_MS,
    ActiveRuns,
    Capabilities,
    Claim,
    ClaimResult,
    Ending,
    Finding,
    JobCard,
    RunResult,
    check_ending,
    check_limit,
    check_name,
    check_run,
)
from tenure.urls import Readers, hide_in_error, split_url, true_or_false, url_options, whole_number

from tenure_redis import scripts
from tenure_redis.errors import acl_rules, silent, translate
from tenure_redis.examine import examine
from tenure_redis.hints import listen
from tenure_redis.keys import Keys
from tenure_redis.node import NotReplicated, Replication, Request, scripted
from tenure_redis.replies import (
    active_run,
    claim_result,
    place_text,
    record,
    record_text,
    slot_text,
    token_text,
)
from tenure_redis.routes import Connector
from tenure_redis.server import Server, server_of
from tenure_redis.session import Session
from tenure_redis.settings import CONNECTION_OPTIONS, Settings, settings_of_client, settings_of_url

Answer = TypeVar("Answer")

logger: logging.Logger = logging.getLogger("tenure.redis")

FORMAT = 1
"""Of what is stored; a store of a newer one is refused."""
CONNECTIONS = 4
"""To a server, unless told otherwise: few, so that the calls of a burst travel together."""
CARDS_AT_ONCE = 500
"""Cards that are written by one call of a script: a server does nothing else meanwhile."""
LARGEST = 2**53
"""What a script compares exactly; a larger limit means the same as this one."""

_OPTIONS: Readers = {
    "timeout": str,
    "keep_results": whole_number,
    "create": true_or_false,
    "connections": whole_number,
    "wait_replicas": whole_number,
}


def from_url(url: str, *, namespace: str = "tenure", create: bool | None = None, **options: object) -> "RedisBackend":
    """A server, ``redis://user:password@host:6379/0``; a primary that sentinels name; or a cluster.

    ``redis+sentinel://host:26379,host2:26379/mymaster/0``, ``redis+cluster://host:6379,host2:6379`` and
    ``redis+unix:///run/redis.sock``; with TLS ``rediss``; ``valkey`` and ``valkeys`` mean the same. Options are those
    of RedisBackend and, for TLS, ``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile`` and ``ssl_cert_reqs``. InvalidUrl
    for what cannot be read, or is not known.
    """
    if create is not None:
        options["create"] = create
    known = {**_OPTIONS, **CONNECTION_OPTIONS}
    if split_url(url).scheme.endswith("+unix"):
        known["db"] = whole_number
    read = url_options(url, options, known)
    settings = settings_of_url(url, read)
    return RedisBackend(settings, namespace=namespace, **read)


class RedisBackend:
    """A lease backend on Redis 6.2 or later, or Valkey: a server, a primary under Sentinel, or a Cluster.

    ``client`` is a client of redis-py, asynchronous or not, or its pool: its settings are taken, not its connections,
    which may belong to another event loop. With ``wait_replicas`` a won claim is confirmed by so many replicas, or is
    given back and raises BackendUnavailable. ``connections`` bounds those to one server. With ``create`` False only a
    store that is there is opened.
    """

    def __init__(
        self,
        client: Any,
        *,
        namespace: str = "tenure",
        timeout: Duration = "5s",
        keep_results: int = DEFAULT_KEEP_RESULTS,
        connections: int = CONNECTIONS,
        wait_replicas: int = 0,
        create: bool = True,
    ) -> None:
        check_name(namespace, "namespace")
        check_limit(keep_results)
        _check_number("connections", connections, 1)
        _check_number("wait_replicas", wait_replicas, 0)
        if type(create) is not bool:
            raise InvalidUrl(f"create: {create!r} is neither True nor False")
        self.capabilities: Capabilities = Capabilities(shared=True)
        self._settings = client if isinstance(client, Settings) else settings_of_client(client)
        self._keys = Keys(namespace)
        self._timeout_ms = to_ms(timeout, "timeout", minimum_ms=1)
        self._keep_results = keep_results
        self._connections = connections
        self._wait_replicas = wait_replicas
        self._create = create
        self._entered = 0
        self._answered = False
        self._session: Session | None = None

    def __str__(self) -> str:
        return f"{self._settings.shown} (namespace {self._keys.namespace})"

    async def __aenter__(self) -> Self:
        """See Entered; connections are opened with the first and closed with the last of several."""
        if self._session is None:
            self._session = self._opened()
        session = self._serving()
        self._entered += 1
        try:
            await self._in_time(self._prepare(session))
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """See Entered; what is on its way is waited for, no longer than the timeout."""
        await self._leave()

    async def claim(self, claim: Claim) -> ClaimResult:
        """See LeaseBackend."""
        request = scripted(
            scripts.CLAIM,
            [self._keys.runs(claim.job)],
            slot_text(claim.slot),
            token_text(claim.token),
            claim.instance,
            claim.lease_ms,
            claim.mode,
            claim.overlap,
            min(claim.max_attempts, LARGEST),
            "" if claim.max_late_ms is None else min(claim.max_late_ms, LARGEST),
            min(claim.after, LARGEST),
        )
        if self._wait_replicas:
            return await self._in_time(self._claim_replicated(claim, request._replace(wins=_is_win)))
        return claim_result(claim, await self._ask(request))

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        return await self._hold("heartbeat", job, slot, token)

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        """See LeaseBackend."""
        check_ending(status)
        return await self._hold("finish", job, slot, token, status)

    async def release(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        return await self._hold("release", job, slot, token)

    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        """See LeaseBackend."""
        for job in jobs:
            check_name(job, "job")
        names = sorted(set(jobs))
        groups = [[name] for name in names] if self._serving().route.spread else [names]
        parts = await asyncio.gather(*(self._active(group) for group in groups or [[]]))
        now = max((part.now_ms for part in parts), default=0)
        return ActiveRuns(now, tuple([run for part in parts for run in part.runs]))

    async def save_result(self, job: str, result: RunResult) -> None:
        """See LeaseBackend."""
        check_name(job, "job")
        replaces = 1 if overwrites(result) else 0
        words = (place_text(result), record_text(result), replaces, self._keep_results)
        await self._ask(scripted(scripts.SAVE_RESULT, [self._keys.results(job)], *words))

    async def results(self, job: str, *, limit: int = 20) -> list[RunResult]:
        """See LeaseBackend."""
        check_name(job, "job")
        check_limit(limit)
        key = self._keys.results(job)
        last = min(limit, self._keep_results) - 1
        return [record(stored) for stored in await self._ask(Request(("ZREVRANGE", key, 0, last), key=key))]

    async def save_cards(self, cards: Sequence[JobCard]) -> None:
        """See JobCards; many are several calls, each with its own deadline."""
        parts = [cards[start : start + CARDS_AT_ONCE] for start in range(0, len(cards), CARDS_AT_ONCE)]
        for part in parts[:-1]:
            await self._save_cards(part, "")
        await self._save_cards(parts[-1] if parts else (), CARD_KEPT_MS)

    async def cards(self) -> list[JobCard]:
        """See JobCards."""
        key = self._keys.cards
        found = await self._ask(Request(("HGETALL", key), key=key))
        return await decode_cards(stored.partition(b" ")[2] for stored in found[1::2])

    async def examine(self) -> list[Finding]:
        """See Examines."""
        servers = await self._in_time(self._servers(self._serving()))
        refused = await self._ask(scripted(scripts.RIGHTS, [self._keys.probe]))
        return examine(servers, refused.decode(), acl_rules(self._keys.prefix))

    async def changes(self, jobs: Sequence[str]) -> AsyncIterator[str]:
        """See Hints; a released lease is told, over a connection of its own."""
        for job in jobs:
            check_name(job, "job")
        session = self._serving()
        by_channel = {self._keys.runs(job): job for job in jobs}
        heard: asyncio.Queue[str | None] = asyncio.Queue()
        listener = session.listen(
            listen(
                session.route.dial,
                list(by_channel),
                heard.put_nowait,
                silence_s=self._timeout_ms / 1_000,
                translate=self._translate,
            )
        )
        listener.add_done_callback(lambda _: heard.put_nowait(None))
        try:
            while (channel := await heard.get()) is not None:
                yield by_channel[channel]
            if not listener.cancelled():
                listener.result()
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    async def _save_cards(self, cards: Sequence[JobCard], kept_ms: int | str) -> None:
        words = [word for card in cards for word in (card.job, f"{card.seen_at_ms} {encode_card(card)}")]
        await self._ask(scripted(scripts.SAVE_CARDS, [self._keys.cards], kept_ms, *words))

    async def _hold(self, call: str, job: str, slot: int, token: str, status: str = "") -> bool:
        check_run(job, slot, token)
        key = self._keys.runs(job)
        words = (call, slot_text(slot), token_text(token), status, key)
        return bool(await self._ask(scripted(scripts.HOLD, [key], *words)))

    async def _active(self, jobs: list[str]) -> ActiveRuns:
        now, found = await self._ask(scripted(scripts.ACTIVE, [self._keys.runs(job) for job in jobs]))
        pairs = zip(found[::2], found[1::2], strict=True)
        return ActiveRuns(now, tuple([active_run(jobs[place - 1], line, now) for place, line in pairs]))

    async def _claim_replicated(self, claim: Claim, request: Request) -> ClaimResult:
        try:
            return claim_result(claim, await self._ask(request))
        except NotReplicated as error:
            with suppress(BackendError):
                await self.release(claim.job, claim.slot, claim.token)
            (have,) = error.args
            raise BackendUnavailable(
                f"{self}: {have} of {self._wait_replicas} replicas have the win of {claim.job!r}, so it was given back;"
                " look at the replicas, or ask for fewer with wait_replicas="
            ) from error

    async def _prepare(self, session: Session) -> None:
        """Look whether the store can be used; every entry does, the later ones cost two round trips."""
        self._settings.check_files()
        words = (FORMAT, 1 if self._create else 0)
        stored = await self._ask(scripted(scripts.ENTER, [self._keys.store], *words))
        self._answered = True
        self._check_format(stored)
        if self._wait_replicas:
            await self._ask(Request(("WAIT", 0, 1), key=self._keys.store))  # whether it may be asked
        self._take(await self._servers(session))

    async def _servers(self, session: Session) -> list[Server] | None:
        """What the servers say of themselves; None if they may not be asked."""
        try:
            return [server_of(info) for info in await session.route.ask_all(Request(("INFO",)))]
        except (RedisError, OSError) as error:
            translated = self._translate(error)
            if isinstance(translated, BackendMisconfigured):
                return None
            raise translated from error

    def _take(self, servers: list[Server] | None) -> None:
        if servers is None:
            logger.warning(
                "%s: INFO is not permitted, so it cannot be told whether this server may evict jobs (maxmemory-policy"
                " must be noeviction or volatile-…) nor whether they survive its restart",
                self,
            )
            return
        if any(server.replica for server in servers):
            raise self._translate(ReadOnlyError("READONLY You can't write against a read only replica."))
        for policy in {server.policy for server in servers if server.evicts}:
            logger.warning(
                "%s: maxmemory-policy is %s, so this server may evict jobs, whose runs then start again; set it to"
                " noeviction, or use a server of its own",
                self,
                policy,
            )
        self.capabilities = replace(self.capabilities, durable=all(server.durable for server in servers))

    def _check_format(self, stored: bytes | None) -> None:
        if stored is None:
            raise BackendMisconfigured(f"there is no store at {self}")
        if not stored.isdigit():
            raise BackendMisconfigured(
                f"{self}: another application uses the key {self._keys.store}; choose another namespace or database"
            )
        if int(stored) > FORMAT:
            raise BackendMisconfigured(
                f"{self}: it has format {int(stored)} and this tenure-redis knows up to {FORMAT}; upgrade it here"
            )

    async def _ask(self, request: Request) -> Any:
        try:
            return await self._serving().route.ask(request)
        except TimeoutError as error:
            raise self._silent() from error
        except (RedisError, OSError) as error:
            raise self._translate(error) from error

    async def _in_time(self, work: Awaitable[Answer]) -> Answer:
        """What the work gives, if all its calls together take no longer than the timeout."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                return await work
        except TimeoutError as error:
            raise self._silent() from error

    def _serving(self) -> Session:
        if self._session is None:
            raise BackendClosed(f"{self}: the backend is not entered; use it inside `async with`")
        self._session.check_here()
        return self._session

    def _opened(self) -> Session:
        replication = Replication(self._wait_replicas, self._timeout_ms // 2) if self._wait_replicas else None
        return Session(
            Connector(
                self._settings,
                timeout_ms=self._timeout_ms,
                connections=self._connections,
                silent=self._silent,
                replication=replication,
            )
        )

    async def _leave(self) -> None:
        self._entered -= 1
        if not self._entered and self._session is not None:
            session, self._session = self._session, None
            await session.aclose()

    def _silent(self) -> BackendUnavailable:
        return silent(self._settings.shown, to_text(self._timeout_ms), ever_answered=self._answered)

    def _translate(self, error: Exception) -> BackendError:
        hide_in_error(error, self._settings.passwords)
        return translate(error, self._settings.shown, self._keys.prefix)


def _is_win(reply: Any) -> bool:
    return isinstance(reply, list) and reply[0] == b"won"


def _check_number(name: str, value: object, lowest: int) -> None:
    if type(value) is not int or value < lowest:
        raise InvalidUrl(f"{name}: {value!r} is not a whole number of at least {lowest}")
