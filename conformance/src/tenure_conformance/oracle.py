"""What the reference would have answered: ``tenure.decision`` as the model of one job, moved along by what is seen."""

import asyncio
from dataclasses import replace

from tenure import decision
from tenure.decision import EMPTY, JobState, RunState
from tenure.model import ActiveRuns, Claim, ClaimResult, Ending, LostAttempt, RunResult

from tenure_conformance.bench import Bench
from tenure_conformance.client import Client
from tenure_conformance.timing import Uncertain

Window = tuple[int, int]


class Oracle:
    """A job's model, and two clients' calls compared with it to the field.

    The clock of the model is the store's, taken from the answers. Where a call does not tell it (heartbeat, release),
    ``active`` is asked before and after, and what it shows must lie between.
    """

    def __init__(self, bench: Bench, job: str = "job") -> None:
        self.bench = bench
        self.job = job
        self.state: JobState = EMPTY
        self.history: tuple[RunResult, ...] = ()
        self.ended_between: dict[tuple[int, int], Window] = {}
        """When the lease of a slot's attempt was over, where no answer told it to the millisecond."""

    async def claim(self, client: Client, claim: Claim) -> ClaimResult:
        """The claim's answer, which must be the model's."""
        if self.bench.a.capabilities.lease_granularity_ms > 1:
            await self._settled(client)
        answer = await client.claim(claim)
        if self._doubt_ms(answer.now_ms):
            raise Uncertain("a lease ended just when a run was claimed, and the store may not have noticed yet")
        state, expected = self.expect(claim, answer)
        self.compare(expected, answer)
        self.state = self._told(state, claim, answer)
        return answer

    def expect(self, claim: Claim, answer: ClaimResult) -> tuple[JobState, ClaimResult]:
        """The model's next state and answer, at the moment of the store's clock that fits the answer best."""
        assert type(answer.now_ms) is int, f"now_ms is {answer.now_ms!r}"
        granted = replace(claim, lease_ms=self.bench.granted(claim.lease_ms))
        loose = self.bench.loose_ms
        moments = [answer.now_ms, answer.now_ms - loose, answer.now_ms + loose] if loose else [answer.now_ms]
        answers = [decision.claim(self.state, granted, now) for now in moments]
        return next((one for one in answers if one[1].outcome == answer.outcome), answers[0])

    def compare(self, expected: ClaimResult, answer: ClaimResult) -> None:
        """Both answers say the same, to the field; AssertionError with both if they do not."""
        near = self.bench.same_time
        fits = answer
        if expected.lease_left_ms is not None and near(expected.lease_left_ms, answer.lease_left_ms):
            fits = replace(fits, lease_left_ms=expected.lease_left_ms)
        if expected.outcome == "won" and self.bench.target.fences == "revision":
            assert type(answer.fence) is int, f"fence is {answer.fence!r}"
            assert answer.fence > self.state.fence or answer.fence == expected.fence, f"{answer} after {self.state}"
            fits = replace(fits, fence=expected.fence)
        expected = replace(expected, previous=by_slot(expected.previous))
        if len(answer.previous) == len(expected.previous):
            pairs = zip(expected.previous, by_slot(answer.previous), strict=True)
            fits = replace(fits, previous=tuple(self._fitted(*pair) for pair in pairs))
        fits = replace(fits, now_ms=expected.now_ms if near(expected.now_ms, answer.now_ms) else answer.now_ms)
        assert fits == expected, f"expected {expected}, was told {answer}"
        for field in ("attempt", "fence", "slot", "lease_left_ms", "wait_ms"):
            assert type(getattr(answer, field)) in (int, type(None)), f"{field} is {getattr(answer, field)!r}"

    async def heartbeat(self, client: Client, slot: int, token: str) -> bool:
        """The heartbeat's answer, which must be the model's."""
        before = (await self.look(client)).now_ms
        held = await client.heartbeat(self.job, slot, token)
        state, expected = decision.heartbeat(self.state, slot, token, before)
        assert held is expected, f"heartbeat of {token!r} on {slot}: expected {expected}, was told {held}"
        self.state = state
        await self.look(client, {slot: before} if held else {})
        return held

    async def finish(self, client: Client, slot: int, token: str, status: Ending) -> bool:
        """The finish's answer, which must be the model's."""
        held = await client.finish(self.job, slot, token, status)
        self.state, expected = decision.finish(self.state, slot, token, status)
        assert held is expected, f"finish of {token!r} on {slot}: expected {expected}, was told {held}"
        await self.look(client)
        return held

    async def release(self, client: Client, slot: int, token: str) -> bool:
        """The release's answer, which must be the model's."""
        before = (await self.look(client)).now_ms
        held = await client.release(self.job, slot, token)
        earlier = _run(self.state, slot)
        self.state, expected = decision.release(self.state, slot, token, before)
        assert held is expected, f"release of {token!r} on {slot}: expected {expected}, was told {held}"
        after = (await self.look(client)).now_ms
        if held and earlier is not None and earlier.status == "open":
            known = self.ended_between.get((slot, earlier.attempt), (earlier.expires_at, earlier.expires_at))
            self.ended_between[slot, earlier.attempt] = (min(known[0], before), min(known[1], after))
        return held

    async def look(self, client: Client, renewed: dict[int, int] | None = None) -> ActiveRuns:
        """What ``active`` shows, which must be the model's runs; ``renewed``: slots, and when at earliest."""
        active = await self._settled(client)
        for slot, earliest in (renewed or {}).items():
            self._pin(slot, earliest, active)
        expected = decision.active(self.job, self.state, active.now_ms)
        told = {run.slot: run for run in active.runs}
        fits = [
            replace(run, lease_left_ms=told[run.slot].lease_left_ms)
            if run.slot in told and self.bench.same_time(run.lease_left_ms, told[run.slot].lease_left_ms)
            else run
            for run in expected
        ]
        assert list(active.runs) == fits, f"expected {expected}, active shows {active}"
        return active

    async def _settled(self, client: Client) -> ActiveRuns:
        """What ``active`` shows as soon as it is certain which leases the store sees as over."""
        while doubt_ms := self._doubt_ms((active := await client.active(self.job)).now_ms):  # noqa: ASYNC110  only time helps
            await asyncio.sleep(doubt_ms / 1_000)
        return active

    def _doubt_ms(self, now_ms: int) -> int:
        """How long a store that counts in coarse steps may still see a lease that is over by the clock."""
        if self.bench.a.capabilities.lease_granularity_ms == 1:
            return 0
        ends = (run.expires_at for run in self.state.unfinished if run.status == "open" and run.expires_at <= now_ms)
        return max(0, self.bench.target.timing.slack_ms - (now_ms - max(ends, default=0)))

    def _pin(self, slot: int, earliest: int, active: ActiveRuns) -> None:
        """Take a renewed lease's end from what is seen, if it lies where it must."""
        run = _run(self.state, slot)
        shown = next((one for one in active.runs if one.slot == slot), None)
        assert run is not None, f"the model lost {slot}"
        assert shown is not None, f"{slot} is not in {active}"
        window = (earliest + run.lease_ms, active.now_ms + run.lease_ms)
        if shown.live:
            end, loose = active.now_ms + shown.lease_left_ms, self.bench.loose_ms
            assert window[0] - loose <= end <= window[1] + loose, (
                f"the renewed lease of {slot} ends at {end}, not {window}"
            )
        else:
            assert active.now_ms >= window[0] - self.bench.loose_ms, f"{slot} was renewed and is over: {active}"
            end = min(window[1], active.now_ms)
            self.ended_between[slot, run.attempt] = (window[0], end)
        self._replace(replace(run, expires_at=end))

    def _told(self, state: JobState, claim: Claim, answer: ClaimResult) -> JobState:
        """The state with what only the answer knows: the fence of a revision, moments that were not told before."""
        run = _run(state, claim.slot)
        if run is None or answer.outcome != "won":
            ended = next((one for one in state.ended if one.slot == claim.slot), None)
            if ended is None or answer.outcome != "done" or ended.status != "exhausted":
                return state
            told = replace(ended, previous=answer.previous)
            return replace(state, ended=tuple(told if one is ended else one for one in state.ended))
        self.ended_between.pop((claim.slot, run.attempt), None)
        assert answer.fence is not None
        told = replace(run, previous=answer.previous, fence=answer.fence)
        runs = tuple(told if one is run else one for one in state.unfinished)
        return replace(state, unfinished=runs, fence=max(answer.fence, self.state.fence))

    def _fitted(self, expected: LostAttempt, told: LostAttempt) -> LostAttempt:
        """What was told of a lost attempt, with its end as the model has it if both may be right."""
        lowest, highest = self.ended_between.get(
            (expected.slot, expected.attempt), (expected.ended_at, expected.ended_at)
        )
        loose = self.bench.loose_ms
        if type(told.ended_at) is int and lowest - loose <= told.ended_at <= highest + loose:
            return replace(told, ended_at=expected.ended_at)
        return told

    def _replace(self, run: RunState) -> None:
        runs = tuple(run if one.slot == run.slot else one for one in self.state.unfinished)
        self.state = replace(self.state, unfinished=runs)


def by_slot(previous: tuple[LostAttempt, ...]) -> tuple[LostAttempt, ...]:
    """Lost attempts in an order that can be compared; the protocol names none."""
    return tuple(sorted(previous, key=lambda lost: (lost.slot, lost.attempt)))


def _run(state: JobState, slot: int) -> RunState | None:
    return next((run for run in state.unfinished if run.slot == slot), None)
