"""Calls that are not one instant: they read, let others in, and write what they decided before."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tenure import decision
from tenure.decision import EMPTY, JobState
from tenure.memory import MemoryBackend
from tenure.model import ActiveRuns, Claim, ClaimResult, Ending, RunResult

from tenure_conformance.mutants.reference import broken

Decide = Callable[[JobState, int], tuple[JobState, Any]]


class _Racing(MemoryBackend):
    async def torn(self, job: str, decide: Decide) -> Any:
        """Read and decide, and write what changed a moment later, over whatever came between."""
        key = self._key(job)
        before = self.store.states.get(key, EMPTY)
        after, answer = decide(before, self.store.now_ms())
        await asyncio.sleep(0)
        if after is not before:
            self.store.states[key] = after
        return answer


@broken(
    "race-claim",
    "Two claims at the same time both win.",
    "claim-atomic",
    seen="ShedLock#3577; read, then write",
)
class _RaceClaim(_Racing):
    async def claim(self, claim: Claim) -> ClaimResult:
        answer: ClaimResult = await self.torn(claim.job, lambda state, now: decision.claim(state, claim, now))
        return answer


@broken(
    "race-first-claim",
    "Two first claims of a run at the same time both win; takeovers do not.",
    "claim-atomic claim-row-14",
    seen="find one, else insert one",
)
class _RaceFirstClaim(_Racing):
    async def claim(self, claim: Claim) -> ClaimResult:
        known = self.store.states.get(self._key(claim.job), EMPTY)
        if any(run.slot == claim.slot for run in (*known.unfinished, *known.ended)):
            return await super().claim(claim)
        answer: ClaimResult = await self.torn(claim.job, lambda state, now: decision.claim(state, claim, now))
        return answer


@broken(
    "race-takeover",
    "Two takeovers at the same time both win; first claims do not.",
    "claim-atomic claim-row-8",
    seen="ShedLock#3577",
)
class _RaceTakeover(_Racing):
    async def claim(self, claim: Claim) -> ClaimResult:
        if not claim.after:
            return await super().claim(claim)
        answer: ClaimResult = await self.torn(claim.job, lambda state, now: decision.claim(state, claim, now))
        return answer


@broken(
    "race-overlap",
    "Each run is decided by itself, and whether others are live is read before: two slots are won at once.",
    "claim-atomic claim-row-13",
    seen="a lock per run instead of one per job",
)
class _RaceOverlap(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        key = self._key(claim.job)
        before = self.store.states.get(key, EMPTY)
        await asyncio.sleep(0)
        state = self.store.states.get(key, EMPTY)
        mine = [run for run in state.unfinished if run.slot == claim.slot]
        stale = [run for run in before.unfinished if run.slot != claim.slot]
        seen = replace(state, unfinished=tuple(sorted(mine + stale, key=lambda run: run.slot)))
        after, answer = decision.claim(seen, claim, self.store.now_ms())
        new = [run for run in after.unfinished if run.slot == claim.slot]
        others = [run for run in state.unfinished if run.slot != claim.slot]
        self.store.states[key] = replace(
            state if after is seen else after, unfinished=tuple(sorted(new + others, key=lambda run: run.slot))
        )
        return answer


@broken(
    "race-heartbeat",
    "A heartbeat writes what it read, over a takeover or a finish that came between.",
    "claim-atomic calls-guarded heartbeat-refused",
    seen="etcd#11456, langgraph#8796",
)
class _RaceHeartbeat(_Racing):
    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        return bool(await self.torn(job, lambda state, now: decision.heartbeat(state, slot, token, now)))


@broken(
    "race-finish",
    "A finish writes what it read, over a takeover that came between.",
    "claim-atomic calls-guarded finish-holds finish-after-release",
)
class _RaceFinish(_Racing):
    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        return bool(await self.torn(job, lambda state, _: decision.finish(state, slot, token, status)))


@broken(
    "race-release",
    "A release writes what it read, over what came between.",
    "claim-atomic calls-guarded release-holds finish-after-release",
)
class _RaceRelease(_Racing):
    async def release(self, job: str, slot: int, token: str) -> bool:
        held = await self.torn(job, lambda state, now: decision.release(state, slot, token, now))
        self.store.hint(self._key(job))
        return bool(held)


@broken(
    "race-results",
    "Two records that are saved at the same time overwrite each other's history.",
    "claim-atomic results-one-record",
    seen="a JSON document that is read, changed and written",
)
class _RaceResults(MemoryBackend):
    async def save_result(self, job: str, result: RunResult) -> None:
        key = self._key(job)
        history = self.store.histories.get(key, ())
        await asyncio.sleep(0)
        self.store.histories[key] = decision.record(history, result, 100)


@broken(
    "race-active",
    "`active` reads the columns of a run one after another, so that they may be of two attempts.",
    "active-fresh claim-atomic",
)
class _RaceActive(MemoryBackend):
    async def active(self, jobs: Any) -> ActiveRuns:
        before = await super().active(jobs)
        await asyncio.sleep(0)
        after = await super().active(jobs)
        fences = {(run.job, run.slot): run.fence for run in before.runs}
        torn = tuple(replace(run, fence=fences.get((run.job, run.slot), run.fence)) for run in after.runs)
        return replace(after, runs=torn)


@broken(
    "race-fence",
    "The fence is counted outside the decision, so that two wins at the same time share one.",
    "word-fence claim-atomic",
)
class _RaceFence(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        key = self._key(claim.job)
        fence = max(self.store.states.get(key, EMPTY).fence + 1, self.store.now_ms())
        await asyncio.sleep(0)
        before = self.store.states.get(key, EMPTY)
        answer = await super().claim(claim)
        state = self.store.states[key]
        if answer.outcome != "won" or state.fence == before.fence:
            return answer
        fenced = tuple(replace(run, fence=fence) if run.fence == state.fence else run for run in state.unfinished)
        self.store.states[key] = replace(state, fence=fence, unfinished=fenced)
        return replace(answer, fence=fence)


@broken(
    "conflict-is-running",
    "A claim that meets another write is told `running`, whoever holds the run.",
    "errors-never-outcome claim-atomic",
    seen="serialization failures that count as a lost lock",
)
class _ConflictIsRunning(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        key = self._key(claim.job)
        before = self.store.states.get(key, EMPTY)
        await asyncio.sleep(0)
        if self.store.states.get(key, EMPTY) is not before:
            now = self.store.now_ms()
            return ClaimResult(outcome="running", now_ms=now, attempt=1, holder="somebody", lease_left_ms=1_000)
        return await super().claim(claim)


@broken(
    "conflict-is-false",
    "A heartbeat that meets another write of the job is refused.",
    "errors-never-outcome heartbeat-holds claim-atomic",
    seen="marm-memory#128",
)
class _ConflictIsFalse(MemoryBackend):
    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        key = self._key(job)
        before = self.store.states.get(key, EMPTY)
        await asyncio.sleep(0)
        return self.store.states.get(key, EMPTY) is before and await super().heartbeat(job, slot, token)
