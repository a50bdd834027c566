"""The protocol's methods on an etcd cluster: arguments are checked here, deadlines kept, and errors translated."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from tenure import decision
from tenure.codec import decode_history, encode_history
from tenure.decision import DEFAULT_KEEP_RESULTS
from tenure.duration import Duration, to_ms, to_text
from tenure.errors import BackendClosed, BackendMisconfigured, BackendUnavailable, InvalidUrl
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
    check_lease,
    check_limit,
    check_name,
    check_run,
    round_lease,
)
from tenure.urls import Readers, true_or_false, url_options, whole_number

from tenure_etcd import errors, requests
from tenure_etcd.cards import AT_ONCE, Cards
from tenure_etcd.cluster import Cluster, is_wanted
from tenure_etcd.dates import CLOCK_ERROR_MS, Dates, clock_of, wrong_speech
from tenure_etcd.examine import examine
from tenure_etcd.hints import lease_ends
from tenure_etcd.keys import Layout, record_key
from tenure_etcd.runs import Runs
from tenure_etcd.settings import DEFAULT_ROOT, Settings, settings_of_client, settings_of_url
from tenure_etcd.state import FORMAT, check_format

Answer = TypeVar("Answer")

SECOND_MS = 1_000
LEAST_LEASE_S = 2
"""etcd grants no shorter lease; longer ones only, if its election timeout was raised."""
SPARE_RECORDS = 16
"""Records beyond those that are kept before they are dropped, so that not every save drops one."""
_OPTIONS: Readers = {
    "timeout": str,
    "keep_results": whole_number,
    "create": true_or_false,
    "cacert": str,
    "cert": str,
    "key": str,
    "http_port": whole_number,
}


def from_url(url: str, *, namespace: str = "tenure", create: bool | None = None, **options: object) -> "EtcdBackend":
    """``etcd://user:password@host:2379,host2:2379/root``, ``etcds://`` with TLS, and the options of EtcdBackend.

    InvalidUrl if it names no cluster, or has an option that is not known.
    """
    if create is not None:
        options["create"] = create
    given = url_options(url, options, _OPTIONS)
    return EtcdBackend(settings_of_url(url, given), namespace=namespace, **given)


class EtcdBackend:
    """A lease backend on an etcd cluster; it opens connections of its own, in the loop and process where it is entered.

    With ``create`` False only a store that is there is opened: BackendMisconfigured where there is none.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        namespace: str = "tenure",
        timeout: Duration = "5s",
        keep_results: int = DEFAULT_KEEP_RESULTS,
        create: bool = True,
    ) -> None:
        check_name(namespace, "namespace")
        check_limit(keep_results)
        if type(create) is not bool:
            raise InvalidUrl(f"create: {create!r} is neither True nor False")
        self.capabilities: Capabilities = Capabilities(
            min_lease_ms=LEAST_LEASE_S * SECOND_MS,
            lease_granularity_ms=SECOND_MS,
            clock_error_ms=CLOCK_ERROR_MS,
            durable=True,
            shared=True,
        )
        self._settings = settings
        self._namespace = namespace
        self._timeout_ms = to_ms(timeout, "timeout", minimum_ms=1)
        self._keep_results = keep_results
        self._create = create
        self._layout = Layout(settings.root, namespace)
        self._entered = 0
        self._session: _Session | None = None

    @classmethod
    def of(cls, client: Any, *, root: str = DEFAULT_ROOT, **options: Any) -> Self:
        """A backend for where an ``aetcd.Client`` leads to, which is left alone; with the options of EtcdBackend."""
        return cls(settings_of_client(client, root), **options)

    def __str__(self) -> str:
        return f"{self._settings} (namespace {self._namespace})"

    async def __aenter__(self) -> Self:
        """See Entered; the connection is opened with the first and closed with the last of several."""
        if self._session is None:
            self._session = _Session(self._settings, self._layout, self._timeout_ms / 1_000)
        session = self._session
        session.cluster.check()
        self._entered += 1
        try:
            await self._in_time(session, self._prepare)
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
        """See Entered; calls that are on their way are waited for, each for its timeout at most."""
        await self._leave()

    async def claim(self, claim: Claim) -> ClaimResult:
        """See LeaseBackend."""
        check_lease(claim.lease_ms, self.capabilities)
        lease_ms = round_lease(claim.lease_ms, self.capabilities)
        granted = claim if lease_ms == claim.lease_ms else replace(claim, lease_ms=lease_ms)
        return await self._call(lambda session: session.runs.claim(granted))

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        return await self._call(lambda session: session.runs.heartbeat(job, slot, token))

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        check_ending(status)
        return await self._call(lambda session: session.runs.finish(job, slot, token, status))

    async def release(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        return await self._call(lambda session: session.runs.release(job, slot, token))

    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        """See LeaseBackend."""
        for job in jobs:
            check_name(job, "job")
        names = sorted(set(jobs))
        return await self._call(lambda session: session.runs.active(names))

    async def save_result(self, job: str, result: RunResult) -> None:
        """See LeaseBackend."""
        check_name(job, "job")
        history = self._layout.history(job)
        key = record_key(history, result.slot, result.attempt)
        request = requests.save_record(history, key, encode_history((result,)), overwrites=decision.overwrites(result))

        async def save(session: _Session) -> None:
            answer = await session.cluster.call("txn", request)
            if answer.responses[-1].response_range.count > self._keep_results + SPARE_RECORDS:
                await self._prune(session.cluster, history)

        await self._call(save)

    async def results(self, job: str, *, limit: int = 20) -> list[RunResult]:
        """See LeaseBackend."""
        check_name(job, "job")
        check_limit(limit)
        request = requests.read_records(self._layout.history(job), min(limit, self._keep_results))
        answer = await self._call(lambda session: session.cluster.call("read", request))
        return [decode_history(kv.value)[0] for kv in answer.kvs]

    async def save_cards(self, cards: Sequence[JobCard]) -> None:
        """See JobCards; many are several calls, each with its own deadline."""
        for start in range(0, len(cards), AT_ONCE):
            await self._save_cards(cards[start : start + AT_ONCE])
        await self._call(lambda session: session.cards.forget())

    async def cards(self) -> list[JobCard]:
        """See JobCards."""
        return await self._call(lambda session: session.cards.read())

    async def examine(self) -> list[Finding]:
        """See Examines."""
        return await self._call(
            lambda session: examine(session.cluster, self._layout, self.capabilities.clock_error_ms)
        )

    async def changes(self, jobs: Sequence[str]) -> AsyncIterator[str]:
        """See Hints; a lease that ran out is told of too."""
        for job in jobs:
            check_name(job, "job")
        session = self._serving()
        numbered = {number: self._layout.job(job) for number, job in enumerate(dict.fromkeys(jobs), start=1)}
        async for name in lease_ends(session.cluster, numbered):
            yield name

    async def _save_cards(self, cards: Sequence[JobCard]) -> None:
        await self._call(lambda session: session.cards.save(cards))

    async def _prune(self, cluster: Cluster, history: bytes) -> None:
        """Drop all records but the newest; one that is saved meanwhile makes some more of them old, and none new."""
        request = requests.read_records(history, self._keep_results + 1, keys_only=True)
        found = (await cluster.call("read", request)).kvs
        if len(found) > self._keep_results:
            await cluster.call("drop", requests.drop_records(history, found[-1].key))

    async def _prepare(self, session: "_Session") -> None:
        try:
            cluster_id = await self._check_format(session.cluster)
        except Exception as exc:
            await session.explain(exc)
            raise
        await session.know_clock(cluster_id)
        _, ttl_s = await session.cluster.grant(1)  # it is not needed, and ends soon
        self.capabilities = replace(self.capabilities, min_lease_ms=ttl_s * SECOND_MS)

    async def _check_format(self, cluster: Cluster) -> int:
        """Have the namespace's format be one that is known here; the id of the cluster."""
        key = self._layout.format
        answer = await cluster.call("read", requests.read_key(key))
        cluster_id, found = int(answer.header.cluster_id), answer.kvs
        if not found and not self._create:
            raise BackendMisconfigured(f"there is no store at {self}: it has no key {key.decode()!r}")
        if not found:
            answer = await cluster.call("txn", requests.create_key(key, b"%d" % FORMAT))
            found = () if answer.succeeded else answer.responses[0].response_range.kvs
        for kv in found:
            check_format(kv.value, key)
        return cluster_id

    async def _call(self, work: "Work[Answer]") -> Answer:
        return await self._in_time(self._serving(), work)

    async def _in_time(self, session: "_Session", work: "Work[Answer]") -> Answer:
        """The answer, or a BackendError by the call's deadline."""
        session.begin()
        member = session.cluster.member
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                return await work(session)
        except asyncio.CancelledError as exc:
            if is_wanted():
                raise
            raise BackendUnavailable(f"{self._settings}: the backend was left amid the call") from exc
        except TimeoutError as exc:
            session.cluster.blame(member)
            raise BackendUnavailable(f"{self._settings}: no answer within {to_text(self._timeout_ms)}") from exc
        except Exception as exc:  # noqa: BLE001  whatever gRPC raises, a caller gets ours
            error = errors.translate(exc, str(self._settings), self._layout.prefix)
            raise error from (None if error is exc else exc)
        finally:
            session.end()

    def _serving(self) -> "_Session":
        if self._session is None or not self._entered:
            raise BackendClosed(f"{self._settings}: the backend is not entered; use it inside `async with`")
        self._session.cluster.check()
        return self._session

    async def _leave(self) -> None:
        self._entered -= 1
        if self._entered or self._session is None:
            return
        session, self._session = self._session, None
        with suppress(BackendMisconfigured):  # it was another process's or another loop's
            session.cluster.check()
            await session.aclose()


Work = Callable[["_Session"], Coroutine[Any, Any, Answer]]


class _Session:
    """What is open while the backend is entered."""

    runs: Runs
    cards: Cards

    def __init__(self, settings: Settings, layout: Layout, timeout_s: float) -> None:
        self.cluster = Cluster(settings, timeout_s)
        self._dates = Dates(settings)
        self._layout = layout
        self._timeout_s = timeout_s
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_ready = False

    async def explain(self, error: Exception) -> None:
        """Raise what is wrong about the way to the member that did not answer, if it can be seen."""
        endpoint = self.cluster.member.endpoint
        wrong = await wrong_speech(self.cluster.settings, endpoint) if errors.blames_member(error) else None
        if wrong is not None:
            raise BackendMisconfigured(f"{endpoint}: {wrong}") from error

    async def know_clock(self, cluster_id: int) -> None:
        """Learn the cluster's clock, and keep it fresh from then on; once."""
        clock = clock_of(cluster_id)
        await self._dates.measure(clock)
        if not self._is_ready:
            self._is_ready = True
            self.runs = Runs(self.cluster, self._layout, clock)
            self.cards = Cards(self.cluster, self._layout, clock)
            self.cluster.keep_up(self._dates.keep_fresh, clock)

    def begin(self) -> None:
        """A call is on its way."""
        self._calls += 1
        self._idle.clear()

    def end(self) -> None:
        """A call has ended."""
        self._calls -= 1
        if not self._calls:
            self._idle.set()

    async def aclose(self) -> None:
        """Wait for the calls that are on their way, each of which has a deadline, and end everything."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self._idle.wait()
        await self.cluster.aclose()
