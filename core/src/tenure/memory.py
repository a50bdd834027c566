"""The in-memory backend: the state machine behind a lock, the protocol's reference implementation."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Self

from tenure import decision
from tenure.clock import SystemClock
from tenure.decision import DEFAULT_KEEP_RESULTS, EMPTY, JobState
from tenure.errors import BackendClosed, InvalidUrl
from tenure.model import (
    CARD_KEPT_MS,
    ActiveRuns,
    Capabilities,
    Claim,
    ClaimResult,
    Ending,
    JobCard,
    RunResult,
    check_ending,
    check_limit,
    check_name,
    check_run,
)
from tenure.urls import hide_secrets, split_url, url_options, whole_number

Key = tuple[str, str]


class MemoryStore:
    """What several backends of one process share; ``now_ms`` is the store's clock, the machine's unless given."""

    def __init__(self, now_ms: Callable[[], int] | None = None, *, name: str = "") -> None:
        self.name = name
        self.now_ms: Callable[[], int] = now_ms or SystemClock().wall_ms
        self.lock: threading.Lock = threading.Lock()
        self.states: dict[Key, JobState] = {}
        self.histories: dict[Key, tuple[RunResult, ...]] = {}
        self.cards: dict[Key, JobCard] = {}
        self.listeners: set[Callable[[Key], None]] = set()

    def hint(self, key: Key) -> None:
        """Tell who listens that a lease of the job is over; called without the lock."""
        for listener in tuple(self.listeners):
            listener(key)


_named: dict[str, MemoryStore] = {}
"""The stores that ``memory://name`` has made, for as long as the process lives."""


def from_url(url: str, *, namespace: str = "tenure", **options: object) -> "MemoryBackend":
    """``memory://`` is a store of its own, ``memory://name`` the store of that name in this process.

    Its only option is ``keep_results``. InvalidUrl if there is more to the URL than that.
    """
    parts = split_url(url)
    if parts.path not in ("", "/") or "@" in parts.netloc:
        raise InvalidUrl(f"{hide_secrets(url)}: write memory:// or memory://name; it has no user and no path")
    store = _named.setdefault(parts.netloc, MemoryStore(name=parts.netloc)) if parts.netloc else None
    return MemoryBackend(store, namespace=namespace, **url_options(url, options, {"keep_results": whole_number}))


class MemoryBackend:
    """A lease backend in this process's memory, for tests, for one process, and to learn the protocol from.

    Objects on one ``store`` see each other, from any thread and event loop; one object may be entered several times.
    """

    capabilities: Capabilities = Capabilities()

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        namespace: str = "tenure",
        keep_results: int = DEFAULT_KEEP_RESULTS,
    ) -> None:
        check_name(namespace, "namespace")
        check_limit(keep_results)
        self.store: MemoryStore = store or MemoryStore()
        self._namespace = namespace
        self._keep_results = keep_results
        self._entered = 0

    def __str__(self) -> str:
        return f"memory://{self.store.name} (namespace {self._namespace})"

    async def __aenter__(self) -> Self:
        """See Entered."""
        self._entered += 1
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """See Entered."""
        self._entered -= 1

    async def claim(self, claim: Claim) -> ClaimResult:
        """See LeaseBackend."""
        key = self._key(claim.job)
        store = self.store
        with store.lock:
            state, result = decision.claim(store.states.get(key, EMPTY), claim, store.now_ms())
            store.states[key] = state
        return result

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        return self._decide(job, lambda state, now: decision.heartbeat(state, slot, token, now))

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        check_ending(status)
        return self._decide(job, lambda state, _: decision.finish(state, slot, token, status))

    async def release(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        held = self._decide(job, lambda state, now: decision.release(state, slot, token, now))
        self.store.hint(self._key(job))
        return held

    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        """See LeaseBackend."""
        self._check_entered()
        keys = {job: self._key(job) for job in sorted(set(jobs))}
        with self.store.lock:
            now = self.store.now_ms()
            states = {job: self.store.states.get(key, EMPTY) for job, key in keys.items()}
        return ActiveRuns(now, tuple(run for job, state in states.items() for run in decision.active(job, state, now)))

    async def save_result(self, job: str, result: RunResult) -> None:
        """See LeaseBackend."""
        key = self._key(job)
        with self.store.lock:
            history = self.store.histories.get(key, ())
            self.store.histories[key] = decision.record(history, result, self._keep_results)

    async def results(self, job: str, *, limit: int = 20) -> list[RunResult]:
        """See LeaseBackend."""
        check_limit(limit)
        key = self._key(job)
        with self.store.lock:
            return list(self.store.histories.get(key, ())[:limit])

    async def save_cards(self, cards: Sequence[JobCard]) -> None:
        """See JobCards."""
        self._check_entered()
        saved = {self._key(card.job): card for card in cards}
        with self.store.lock:
            self.store.cards.update(saved)
            self._forget_cards(self.store.now_ms() - CARD_KEPT_MS)

    async def cards(self) -> list[JobCard]:
        """See JobCards."""
        self._check_entered()
        with self.store.lock:
            found = [card for (namespace, _), card in self.store.cards.items() if namespace == self._namespace]
        return sorted(found, key=lambda card: card.job)

    async def changes(self, jobs: Sequence[str]) -> AsyncIterator[str]:
        """See Hints."""
        wanted = {self._key(job): job for job in jobs}
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str] = asyncio.Queue()

        def listen(key: Key) -> None:
            if key in wanted:
                loop.call_soon_threadsafe(queue.put_nowait, wanted[key])

        self.store.listeners.add(listen)
        try:
            while True:
                yield await queue.get()
        finally:
            self.store.listeners.discard(listen)

    def _forget_cards(self, before_ms: int) -> None:
        for key, card in list(self.store.cards.items()):
            if key[0] == self._namespace and card.seen_at_ms < before_ms:
                del self.store.cards[key]

    def _key(self, job: str) -> Key:
        check_name(job, "job")
        self._check_entered()
        return self._namespace, job

    def _check_entered(self) -> None:
        if not self._entered:
            raise BackendClosed("the in-memory backend is not entered; use it inside `async with`")

    def _decide(self, job: str, decide: Callable[[JobState, int], tuple[JobState, bool]]) -> bool:
        key = self._key(job)
        store = self.store
        with store.lock:
            state, held = decide(store.states.get(key, EMPTY), store.now_ms())
            store.states[key] = state
        return held
