"""The protocol's methods on a DynamoDB table; the calls block, and are carried out on threads."""

import asyncio
import os
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import unquote, urlsplit

from tenure.decision import DEFAULT_KEEP_RESULTS, JobState, active
from tenure.duration import Duration, to_ms, to_text
from tenure.errors import BackendClosed, BackendError, InvalidUrl
from tenure.model import (
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
from tenure.urls import Readers, hide_secrets, split_url, true_or_false, url_options, whole_number

from tenure_dynamodb.clock import Moment, StoreClock, clock_of
from tenure_dynamodb.driver import Account, fit, new_client
from tenure_dynamodb.faults import translated, unavailable
from tenure_dynamodb.lanes import Lanes
from tenure_dynamodb.store import MOST_JOBS, Settings, Store
from tenure_dynamodb.table import Table

Answer = TypeVar("Answer")

_OPTIONS: Readers = {
    "endpoint": str,
    "profile": str,
    "create": true_or_false,
    "timeout": str,
    "keep_results": whole_number,
    "keep_for": str,
    "clock_error": str,
}
_REGION = re.compile(r"[a-z0-9-]+")
_TABLE = re.compile(r"[a-zA-Z0-9_.-]{3,255}")
_LEAST_CLOCK_ERROR_MS = 120
_CARDS_AT_ONCE = 250
"""Cards that are written within one deadline."""
_KEEPING_S = 5.0
"""How often it is seen to it that the clock is still known well enough."""


def from_url(
    url: str,
    *,
    namespace: str = "tenure",
    create: bool | None = None,
    clock: StoreClock | None = None,
    **options: object,
) -> "DynamoBackend":
    """``dynamodb://region/table``, with the options of DynamoBackend; ``dynamodb:///table`` in the region of boto3.

    Credentials are found as boto3 always does. For a local server ``key:secret@`` may stand before the region, and
    ``endpoint=http://127.0.0.1:8000`` in the query. InvalidUrl for what cannot be used.
    """
    if create is not None:
        options["create"] = create
    parts = split_url(url)
    table = unquote(parts.path[1:]) or "tenure"
    user, at, region = parts.netloc.rpartition("@")
    key, _, secret = user.partition(":")
    if at and not (key and secret):
        raise InvalidUrl(f"{hide_secrets(url)}: write both keys, key:secret@region, or none; none is better")
    given = url_options(url, options, _OPTIONS)
    if region and not _REGION.fullmatch(region):
        raise InvalidUrl(
            f"{hide_secrets(url)}: {region!r} is no region; a server is named by its endpoint, as in"
            ' "dynamodb://key:secret@local/tenure?endpoint=http://127.0.0.1:8000"'
        )
    return DynamoBackend(
        table,
        region=region or None,
        access_key=unquote(key) if at else None,
        secret_key=unquote(secret) if at else None,
        namespace=namespace,
        clock=clock,
        **given,
    )


class DynamoBackend:
    """A lease backend on a table of DynamoDB, or of a server that answers as it does.

    Without a ``client`` one is made of ``region``, ``endpoint``, ``profile`` and keys; what is not given boto3 finds.
    A ``client`` of one's own must not try again by itself: make it with ``config=client_config()``; it is not closed.
    With ``create`` a table that is missing is made. ``keep_for`` is how long a record stays at most where no newer ones
    drop it. ``clock_error`` is how exactly the store's clock must be known; more where the way to the table is long.
    """

    def __init__(
        self,
        table: str = "tenure",
        *,
        client: Any = None,
        region: str | None = None,
        endpoint: str | None = None,
        profile: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        namespace: str = "tenure",
        timeout: Duration = "5s",
        keep_results: int = DEFAULT_KEEP_RESULTS,
        keep_for: Duration = "400d",
        clock_error: Duration = "200ms",
        create: bool = False,
        clock: StoreClock | None = None,
    ) -> None:
        check_name(namespace, "namespace")
        check_limit(keep_results)
        if not isinstance(table, str) or not _TABLE.fullmatch(table):
            raise InvalidUrl(f"table: {table!r} is no name of a table; use 3 to 255 letters, digits, _, . and -")
        if type(create) is not bool:
            raise InvalidUrl(f"create: {create!r} is neither True nor False")
        self._account = Account(region, _checked_endpoint(endpoint), profile, access_key, secret_key)
        self._table = table
        self._client = None if client is None else fit(client)
        self.clock = clock
        """The store's clock as it is known here, once entered: for another backend on another way to this store."""
        self._timeout_ms = to_ms(timeout, "timeout", minimum_ms=1)
        self._settings = Settings(
            namespace,
            keep_results,
            to_ms(keep_for, "keep_for", minimum_ms=86_400_000),
            to_ms(clock_error, "clock_error", minimum_ms=_LEAST_CLOCK_ERROR_MS),
            create,
        )
        self.capabilities: Capabilities = Capabilities(
            clock_error_ms=self._settings.clock_error_ms, durable=True, shared=True
        )
        self._entered = 0
        self._service: _Service | None = None

    def __str__(self) -> str:
        return f"{self._place()} (namespace {self._settings.namespace})"

    async def __aenter__(self) -> Self:
        """See Entered; connections are opened with the first and closed with the last of several."""
        if self._service is None:
            self._service = _Service(self._place(), self._timeout_ms)
        service = self._service
        service.lanes.check_home()
        self._entered += 1
        try:
            await service.lanes.ask(lambda deadline: self._opened(service).enter(deadline))
        except BaseException:
            await self._leave()
            raise
        service.keep_the_time()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """See Entered."""
        await self._leave()

    async def claim(self, claim: Claim) -> ClaimResult:
        """See LeaseBackend."""
        return await self._ask(lambda store, deadline: store.claim(claim, deadline))

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        return await self._ask(lambda store, deadline: store.heartbeat(job, slot, token, deadline))

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        check_ending(status)
        return await self._ask(lambda store, deadline: store.finish(job, slot, token, status, deadline))

    async def release(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        return await self._ask(lambda store, deadline: store.release(job, slot, token, deadline))

    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        """See LeaseBackend."""
        for job in jobs:
            check_name(job, "job")
        names = sorted(set(jobs))
        parts = [names[at : at + MOST_JOBS] for at in range(0, max(len(names), 1), MOST_JOBS)]
        return _active(await asyncio.gather(*map(self._states, parts), return_exceptions=True))

    async def save_result(self, job: str, result: RunResult) -> None:
        """See LeaseBackend."""
        check_name(job, "job")
        await self._ask(lambda store, deadline: store.save_result(job, result, deadline))

    async def results(self, job: str, *, limit: int = 20) -> list[RunResult]:
        """See LeaseBackend."""
        check_name(job, "job")
        check_limit(limit)
        return await self._ask(lambda store, deadline: store.results(job, limit, deadline))

    async def save_cards(self, cards: Sequence[JobCard]) -> None:
        """See JobCards; many are several calls, each with its own deadline."""
        for at in range(0, max(len(cards), 1), _CARDS_AT_ONCE):
            part = cards[at : at + _CARDS_AT_ONCE]
            await self._ask(partial(_save_cards, part))

    async def cards(self) -> list[JobCard]:
        """See JobCards."""
        return await self._ask(lambda store, deadline: store.cards(deadline))

    async def examine(self) -> list[Finding]:
        """See Examines."""
        return await self._ask(lambda store, deadline: store.examine(deadline))

    async def _states(self, jobs: Sequence[str]) -> tuple[Moment, dict[str, JobState]]:
        return await self._ask(lambda store, deadline: store.states(jobs, deadline))

    async def _ask(self, call: Callable[[Store, float], Answer]) -> Answer:
        service = self._service
        if service is None or service.store is None:
            raise BackendClosed(f"{self._place()}: the backend is not entered; use it inside `async with`")
        return await service.lanes.ask(partial(call, service.store))

    def _opened(self, service: "_Service") -> Store:
        """The store, with its client made if this is the first to enter; on a thread, since it blocks."""
        with service.opening:
            if service.store is None:
                service.store = Store(self._connected(), self._settings)
            return service.store

    def _connected(self) -> Table:
        clock, client = self.clock, self._client
        try:
            if client is not None:
                clock = clock or clock_of(client.meta.endpoint_url)
            else:
                account = self._account
                clock = clock or clock_of(account.endpoint or f"dynamodb in {account.region or 'the default region'}")
                client = new_client(account, self._timeout_ms, clock)
        except Exception as exc:  # botocore raises errors of many kinds
            raise translated(self._place(), self._table, self._account.region, exc) from exc
        self.clock = clock
        return Table(client, self._table, self._place(), clock)

    async def _leave(self) -> None:
        self._entered -= 1
        if self._entered or self._service is None:
            return
        service, self._service = self._service, None
        if service.pid == os.getpid():
            await service.aclose(close=self._client is None)

    def _place(self) -> str:
        account = self._account
        region = account.region or ""
        endpoint = account.endpoint
        if self._client is not None:
            region, endpoint = self._client.meta.region_name, self._client.meta.endpoint_url
            endpoint = None if ".amazonaws.com" in endpoint else _shown(endpoint)
        query = f"?endpoint={_shown(endpoint)}" if endpoint else ""
        return f"dynamodb://{region}/{self._table}{query}"


class _Service:
    """What is open while the backend is entered: threads, the store, and a task that keeps the clock known."""

    def __init__(self, place: str, timeout_ms: int) -> None:
        self.pid = os.getpid()
        self.opening = threading.Lock()
        self.store: Store | None = None

        def silent() -> Exception:
            return unavailable(place, f"no answer within {to_text(timeout_ms)}", TimeoutError())

        self.lanes = Lanes(place, timeout_ms, silent)
        self._keeper: asyncio.Task[None] | None = None

    def keep_the_time(self) -> None:
        """Start the task, once."""
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def aclose(self, *, close: bool) -> None:
        """End the task, wait for calls on their way, close the connections."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self.lanes.aclose()
        if close and self.store is not None:
            self.store.close()

    async def _keep(self) -> None:
        """Look at the clock before a call has to wait for it; an idle instance's knowledge fades."""
        while True:
            await asyncio.sleep(_KEEPING_S)
            if self.store is not None and self.store.clock_fades():
                with suppress(BackendError):  # the next call will tell of it, or the next look succeed
                    await self._learn(self.store)

    async def _learn(self, store: Store) -> None:
        while (pause_s := store.until_a_look_s()) is not None:
            await asyncio.sleep(pause_s)
            await self.lanes.ask(store.look)


def _save_cards(cards: Sequence[JobCard], store: Store, deadline: float) -> None:
    store.save_cards(cards, deadline)


def _active(parts: Sequence[tuple[Moment, dict[str, JobState]] | BaseException]) -> ActiveRuns:
    """What all parts show; the moment is before all of them were read."""
    for part in parts:
        if isinstance(part, BaseException):
            raise part
    read = [part for part in parts if not isinstance(part, BaseException)]
    now = min(moment.early for moment, _ in read)
    states = {job: state for _, found in read for job, state in found.items()}
    return ActiveRuns(now, tuple([run for job in sorted(states) for run in active(job, states[job], now)]))


def _checked_endpoint(endpoint: str | None) -> str | None:
    if endpoint is None:
        return None
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidUrl(f"endpoint: {hide_secrets(endpoint)!r} is not http://host:port or https://host")
    return endpoint


def _shown(endpoint: str) -> str:
    """The endpoint without a user or a query that it may have."""
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
