"""Clocks that are not the store's, and promises about leases that are not kept."""

from collections import Counter
from dataclasses import replace
from typing import Any

from tenure import decision
from tenure.decision import EMPTY
from tenure.memory import MemoryBackend
from tenure.model import ActiveRuns, Capabilities, Claim, ClaimResult

from tenure_conformance.mutants.reference import broken

HOUR_MS = 3_600_000


class _Skewed(MemoryBackend):
    """Every second object of a namespace has a wall clock that is ``skew_ms`` fast."""

    skew_ms = HOUR_MS

    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace=namespace)
        opened: Counter[str] = vars(store).setdefault("opened", Counter())
        self.ahead_ms = self.skew_ms if opened[namespace] % 2 else 0
        opened[namespace] += 1


@broken("now-of-the-client", "`now_ms` is the client's clock.", "result-now claim-now time-store-clock")
class _NowOfTheClient(_Skewed):
    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        return replace(answer, now_ms=answer.now_ms + self.ahead_ms)


@broken(
    "clock-of-the-client",
    "The client's clock decides what is live.",
    "time-store-clock time-instance-wrong word-live claim-now",
    seen="ShedLock#231, db-scheduler#433, client-go#448",
)
class _ClockOfTheClient(_Skewed):
    async def claim(self, claim: Claim) -> ClaimResult:
        key = self._key(claim.job)
        state, now = self.store.states.get(key, EMPTY), self.store.now_ms() + self.ahead_ms
        self.store.states[key], answer = decision.claim(state, claim, now)
        return answer


@broken(
    "late-by-the-client",
    "The client's clock, an hour fast, decides what is late.",
    "claim-row-12 time-store-clock",
    seen="multica#4384",
)
class _LateByTheClient(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        if claim.max_late_ms is not None:
            claim = replace(claim, max_late_ms=max(claim.max_late_ms - HOUR_MS, 0))
        return await super().claim(claim)


@broken(
    "heartbeat-by-the-client",
    "A heartbeat writes an end that the client's clock, an hour slow, names.",
    "heartbeat-holds time-store-clock",
)
class _HeartbeatByTheClient(MemoryBackend):
    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        return self._decide(job, lambda state, now: decision.heartbeat(state, slot, token, now - HOUR_MS))


@broken("now-in-seconds", "`now_ms` counts whole seconds.", "result-now claim-now")
class _NowInSeconds(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        return replace(answer, now_ms=answer.now_ms // 1_000 * 1_000)


@broken("now-of-entering", "`active` tells the time at which the client entered.", "result-now active-live")
class _NowOfEntering(MemoryBackend):
    async def __aenter__(self) -> Any:
        self.entered_at = self.store.now_ms()
        return await super().__aenter__()

    async def active(self, jobs: Any) -> ActiveRuns:
        return replace(await super().active(jobs), now_ms=self.entered_at)


@broken("now-of-the-win", "A claim that is sent again is told the time of the win.", "claim-now claim-row-2")
class _NowOfTheWin(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        known = {run.fence: run.started_at for run in self.store.states[self._key(claim.job)].unfinished}
        started_at = known.get(answer.fence or 0, answer.now_ms)
        return replace(answer, now_ms=started_at)


@broken("clock-too-fast", "The store's clock gains a tenth.", "claim-now time-store-clock")
class _ClockTooFast(MemoryBackend):
    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace=namespace)
        if "begun" not in vars(store):
            vars(store)["begun"], right = store.now_ms(), store.now_ms
            store.now_ms = lambda: right() + (right() - vars(store)["begun"]) // 10


@broken("clock-goes-back", "The store's clock goes back by a fifth of a second now and then.", "claim-now result-now")
class _ClockGoesBack(MemoryBackend):
    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace=namespace)
        if "right" not in vars(store):
            vars(store)["right"] = right = store.now_ms
            store.now_ms = lambda: right() - (200 if right() // 100 % 3 == 0 else 0)


@broken("clock-in-tens", "The store's clock counts in tens of milliseconds.", "claim-now result-now word-live")
class _ClockInTens(MemoryBackend):
    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace=namespace)
        if "right" not in vars(store):
            vars(store)["right"] = right = store.now_ms
            store.now_ms = lambda: right() // 10 * 10


@broken(
    "least-lease-not-checked",
    "A lease below the least that the backend promises is granted.",
    "time-min-lease",
    capabilities=Capabilities(min_lease_ms=20),
    seen="etcd's TTL floor",
)
class _LeastLeaseNotChecked(MemoryBackend):
    capabilities = Capabilities(min_lease_ms=20)


@broken(
    "grain-rounds-down",
    "Leases are rounded down to the granularity that the backend declares.",
    "time-round-up",
    capabilities=Capabilities(lease_granularity_ms=1_000),
    seen="locksmith#17",
)
class _GrainRoundsDown(MemoryBackend):
    capabilities = Capabilities(lease_granularity_ms=1_000)

    async def claim(self, claim: Claim) -> ClaimResult:
        return await super().claim(replace(claim, lease_ms=max(claim.lease_ms // 1_000, 1) * 1_000))


@broken("promises-other-things", "`capabilities` are not those that were declared.", "capabilities-final")
class _PromisesOtherThings(MemoryBackend):
    capabilities = Capabilities(clock_error_ms=1)


@broken("promises-change", "`capabilities` change after a win.", "capabilities-final")
class _PromisesChange(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        self.capabilities = Capabilities(lease_granularity_ms=7)
        return answer
