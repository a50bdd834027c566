"""Concurrent random histories: many clients call what they like, and the answers must fit one order of the calls."""

import asyncio
import math
import random
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tenure.errors import BackendUnavailable
from tenure.model import ActiveRuns, Claim, ClaimResult, Ending, Mode, Overlap

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import Client
from tenure_conformance.linearize import JobModel, Operation, Search, shrunk
from tenure_conformance.timing import LONG_MS
from tenure_conformance.verdict import Call

Kind = Literal["long", "lapsing", "cut off", "faulty"]
"""Long leases only; some that lapse meanwhile; some calls cut off, or failed, whose outcome nobody knows."""

CLIENTS = 8
CALLS = 25
SLOTS = 4
OVERLAP_MIXES: tuple[tuple[Overlap, ...], ...] = (("skip",), ("skip",), ("allow",), ("skip", "allow"))


@dataclass
class _Player:
    """A client that makes random calls and remembers what it was told."""

    client: Client
    chance: random.Random
    kind: Kind
    overlaps: Sequence[Overlap]
    jobs: Sequence[str]
    claims: list[Claim]
    """What was claimed by anyone, so that tokens of others are tried too."""
    told: dict[tuple[str, int], int] = field(default_factory=dict)

    async def play(self) -> None:
        """Make the calls, one after another."""
        for number in range(CALLS):
            await asyncio.sleep(self.chance.choice((0, 0, 0.0005, 0.002)))
            claim, call = self._call(number)
            if self.kind == "cut off" and self.chance.random() < 0.15:
                await self._cut_off(call)
            else:
                answer = await self._answer(call)
                if isinstance(answer, ClaimResult) and answer.attempt is not None:
                    self.told[claim.job, claim.slot] = answer.attempt

    async def _answer(self, call: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await call
        except BackendUnavailable:
            if self.kind != "faulty":
                raise
            return None

    def _call(self, number: int) -> tuple[Claim, Coroutine[Any, Any, Any]]:
        what = self.chance.random()
        if what < 0.45 or not self.claims:
            claim = self._claim(number)
            return claim, self.client.claim(claim)
        claim = self.chance.choice(self.claims[-12:])
        if what < 0.52:
            return claim, self.client.claim(claim)
        if what < 0.62:
            return claim, self.client.active(claim.job)
        if what < 0.72 and claim.lease_ms == LONG_MS:
            return claim, self.client.heartbeat(claim.job, claim.slot, claim.token)
        if what < 0.84:
            status: Ending = self.chance.choice(("success", "failed"))
            return claim, self.client.finish(claim.job, claim.slot, claim.token, status)
        return claim, self.client.release(claim.job, claim.slot, claim.token)

    def _claim(self, number: int) -> Claim:
        job, slot = self.chance.choice(self.jobs), SLOT + self.chance.randrange(SLOTS)
        short = self.kind == "lapsing" and self.chance.random() < 0.5
        modes: tuple[Mode, ...] = ("scheduled", "takeover", "takeover")
        claim = self.client.bench.claim(
            job=job,
            slot=slot,
            instance=f"{self.client.name}-{number}",
            lease_ms=self.client.bench.short_ms if short else LONG_MS,
            mode=self.chance.choice(modes),
            overlap=self.chance.choice(self.overlaps),
            max_attempts=self.chance.choice((1, 2, 9, 9)),
            after=self.told.get((job, slot), self.chance.choice((0, 0, 0, 0, 1, 2))),
        )
        self.claims.append(claim)
        return claim

    async def _cut_off(self, call: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(call)
        for _ in range(self.chance.randrange(6)):
            await asyncio.sleep(0)
        if self.chance.random() < 0.5:
            await asyncio.sleep(self.chance.random() / 500)
        task.cancel()
        told = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(told, BaseException) and not isinstance(told, asyncio.CancelledError | BackendUnavailable):
            raise told


async def play(bench: Bench, kind: Kind, clients: Sequence[Client], number: int) -> list[Call]:
    """One history in fresh jobs; gives its calls, which are all that is left in the bench's transcript."""
    chance = random.Random(f"{bench.random.random()} {number}")
    overlaps = chance.choice(OVERLAP_MIXES)
    jobs = [f"{number} one", f"{number} two"]
    claims: list[Claim] = []
    bench.calls.clear()
    players = [_Player(one, random.Random(chance.random()), kind, overlaps, jobs, claims) for one in clients]
    await asyncio.gather(*(player.play() for player in players))
    return list(bench.calls)


def assert_linearizable(bench: Bench, calls: Sequence[Call]) -> None:
    """AssertionError with a short history if the calls of a job fit no order; Uncertain if too many to know."""
    for job in sorted({_job(call) for call in calls}):
        operations = [_operation(call) for call in calls if _job(call) == job]
        model = _model(bench, operations)
        search = Search(operations, model)
        if not search.found():
            short = sorted(shrunk(operations, model), key=lambda one: one.begin)
            bench.calls[:] = [operation.call for operation in short]
            raise AssertionError(_told(job, short, model))


def _job(call: Call) -> str:
    claim = call.arguments.get("claim")
    if claim is not None:
        return str(claim.job)
    return str(call.arguments["job"] if "job" in call.arguments else call.arguments["jobs"][0])


def _operation(call: Call) -> Operation:
    known = call.error is None and call.end_ms is not None
    return Operation(call, required=known, known=known)


def _model(bench: Bench, operations: Sequence[Operation]) -> JobModel:
    answers = [operation.call.answer for operation in operations if operation.known]
    clocks = [answer.now_ms for answer in answers if isinstance(answer, ClaimResult | ActiveRuns)]
    unknown_wins = any(not operation.known and operation.call.name == "claim" for operation in operations)
    return JobModel(
        granted=lambda claim: replace(claim, lease_ms=bench.granted(claim.lease_ms)),
        slop_ms=_span_ms(operations) + bench.loose_ms + 1,
        clock_ms=min(clocks, default=0),
        fences_told=bench.target.fences == "clock" and bench.loose_ms == 0 and not unknown_wins,
        observed=_observed(answers),
    )


def _span_ms(operations: Sequence[Operation]) -> int:
    """How long the history took: what is not known to have been earlier or later than all answers was within it."""
    moments = [moment for one in operations for moment in (one.begin, one.call.end_ms) if moment is not None]
    return math.ceil(max(moments) - min(moments)) if moments else 0


def _observed(answers: Sequence[Any]) -> dict[str, tuple[int, int]]:
    """Fence and start of each holder that an answer showed."""
    shown: dict[str, tuple[int, int]] = {}
    for answer in answers:
        runs = answer.runs if isinstance(answer, ActiveRuns) else getattr(answer, "previous", ())
        shown.update({run.holder: (run.fence, run.started_at) for run in runs})
    return shown


def _told(job: str, operations: Sequence[Operation], model: JobModel) -> str:
    search = Search(operations, model)
    search.found()
    lines = [f"the answers of {len(operations)} calls on job {job!r} fit no order of them:"]
    lines += [f"  {operation.call}" for operation in operations]
    left = [n for n in range(len(operations)) if n not in search.best and operations[n].required][:3]
    for n in left:
        operations[n].call.suspect = True
    lines.append(f"after {len(search.best)} of them in an order that fits, none of these does:")
    lines += [
        f"  {operations[n].call.client}.{operations[n].call.name} was told {operations[n].call.answer}, "
        f"the model says {model.expected(search.best_state, operations[n])}"
        for n in left
    ]
    return "\n".join(lines)
