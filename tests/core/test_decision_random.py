"""Random calls in random order, repeated and late, over a clock that jumps: what must hold after each of them."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tenure import decision
from tenure.decision import EMPTY, KEPT_ENDED, KEPT_UNFINISHED, JobState, RunState
from tenure.model import Claim, ClaimResult

LEASE = 50
SLOTS = st.integers(0, 40)
ENDED = ("success", "failed", "exhausted", "superseded")


def runs_of(state: JobState) -> dict[int, RunState]:
    return {run.slot: run for run in (*state.unfinished, *state.ended)}


class Calls(RuleBasedStateMachine):
    """Claims under one overlap rule, with every earlier claim ready to arrive again."""

    overlap = "skip"

    def __init__(self) -> None:
        super().__init__()
        self.state = EMPTY
        self.now = 1_000
        self.sent: list[Claim] = []
        self.fences: list[int] = []
        self.wins: dict[str, tuple[int | None, int | None]] = {}
        self.ends: dict[int, str] = {}
        self.floor = -1

    @rule(
        slot=SLOTS,
        after=st.integers(0, 3),
        told=st.booleans(),
        limit=st.integers(1, 4),
        mode=st.sampled_from(["scheduled", "takeover"]),
        lease=st.integers(1, LEASE),
    )
    def claim(self, slot: int, after: int, told: bool, limit: int, mode: str, lease: int) -> None:
        known = runs_of(self.state).get(slot)
        claim = Claim(
            job="job",
            slot=slot,
            token=f"t{len(self.sent)}",
            instance="me",
            lease_ms=lease,
            mode=mode,
            overlap=self.overlap,
            max_attempts=limit,
            max_late_ms=None,
            after=0 if known is None else known.attempt if told else after,
        )
        self.sent.append(claim)
        self.arrive(claim)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def claim_again(self, data: st.DataObject) -> None:
        self.arrive(data.draw(st.sampled_from(self.sent)))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), call=st.sampled_from(["heartbeat", "finish", "release"]), newest=st.booleans())
    def other_call(self, data: st.DataObject, call: str, newest: bool) -> None:
        sent = self.sent[-1] if newest else data.draw(st.sampled_from(self.sent))
        known = runs_of(self.state).get(sent.slot)
        before = self.state
        if call == "heartbeat":
            self.state, held = decision.heartbeat(before, sent.slot, sent.token, self.now)
        elif call == "finish":
            self.state, held = decision.finish(before, sent.slot, sent.token, "success")
        else:
            self.state, held = decision.release(before, sent.slot, sent.token, self.now)
        if not held:
            assert self.state is before
            return
        assert known is not None
        assert known.token == sent.token
        if call != "finish":
            assert known.status in ("open", "released")
        self.others_are_unchanged(before, {sent.slot})

    @rule(by=st.integers(-2 * LEASE, 2 * LEASE))
    def time_passes_or_jumps(self, by: int) -> None:
        self.now = max(self.now + by, 100)

    def arrive(self, claim: Claim) -> None:
        before, known = self.state, runs_of(self.state).get(claim.slot)
        self.state, result = decision.claim(before, claim, self.now)
        assert result.now_ms == self.now
        if result.outcome == "won":
            self.check_win(before, claim, known, result)
        elif result.status == "exhausted" and known is not None and known.status not in ENDED:
            self.others_are_unchanged(before, {claim.slot})
        else:
            assert self.state is before

    def check_win(self, before: JobState, claim: Claim, known: RunState | None, result: ClaimResult) -> None:
        assert known is None or known.status not in ENDED, "an ended run stays ended"
        if claim.token in self.wins:
            assert self.wins[claim.token] == (result.attempt, result.fence), "a claim wins one attempt, with one fence"
            self.others_are_unchanged(before, {claim.slot})
            return
        assert known is None or not known.live(self.now), "a live lease is not taken"
        assert result.attempt == (claim.after + 1 if known else 1)
        assert not self.fences or result.fence > self.fences[-1], "fences rise over wins"
        assert len(self.state.ended) <= KEPT_ENDED[self.overlap], "state is bounded"
        self.fences.append(result.fence)
        self.wins[claim.token] = (result.attempt, result.fence)
        if self.overlap == "skip":
            assert not any(run.live(self.now) for run in before.unfinished), "one live lease"

    def others_are_unchanged(self, before: JobState, changed: set[int]) -> None:
        old, new = runs_of(before), runs_of(self.state)
        assert {slot: run for slot, run in old.items() if slot not in changed} == {
            slot: run for slot, run in new.items() if slot not in changed
        }
        assert (self.state.fence, self.state.floor) == (before.fence, before.floor)

    @invariant()
    def ended_runs_stay_ended(self) -> None:
        runs = runs_of(self.state)
        for slot, status in self.ends.items():
            known = runs.get(slot)
            assert known.status == status if known else slot <= self.state.floor
        self.ends.update({run.slot: run.status for run in self.state.ended})

    @invariant()
    def the_floor_only_rises_and_the_fence_is_the_last_won(self) -> None:
        assert self.state.floor >= self.floor
        self.floor = self.state.floor
        assert self.state.fence == (self.fences[-1] if self.fences else 0)

    @invariant()
    def state_is_ordered(self) -> None:
        for runs in (self.state.unfinished, self.state.ended):
            assert [run.slot for run in runs] == sorted({run.slot for run in runs})
        assert not {run.slot for run in self.state.unfinished} & {run.slot for run in self.state.ended}
        assert all(run.used <= run.attempt for run in self.state.unfinished)

    @invariant()
    def active_agrees_with_the_state(self) -> None:
        listed = {run.slot: run for run in decision.active("job", self.state, self.now)}
        assert listed.keys() == {run.slot for run in self.state.unfinished}
        for run in self.state.unfinished:
            assert listed[run.slot].live is run.live(self.now)
            assert listed[run.slot].lease_left_ms == (run.expires_at - self.now if run.live(self.now) else 0)

    @invariant()
    def one_lease_is_live_under_skip(self) -> None:
        live = [run for run in self.state.unfinished if run.live(self.now)]
        assert len(live) <= 1 or self.overlap == "allow"


class CallsUnderAllow(Calls):
    """The same under allow."""

    overlap = "allow"


TestCallsUnderSkip = Calls.TestCase
TestCallsUnderAllow = CallsUnderAllow.TestCase
TestCallsUnderSkip.settings = TestCallsUnderAllow.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)


def test_state_stays_bounded_when_nothing_ever_ends_under_allow() -> None:
    state = EMPTY
    for slot in range(KEPT_UNFINISHED + 400):
        claim = Claim(
            job="job",
            slot=slot,
            token="t",
            instance="me",
            lease_ms=1,
            mode="scheduled",
            overlap="allow",
            max_attempts=1,
            max_late_ms=None,
        )
        state, result = decision.claim(state, claim, 10 * slot)
        assert result.outcome == "won"
    assert len(state.unfinished) == KEPT_UNFINISHED
    assert len(state.ended) == KEPT_ENDED["allow"]
    assert state.floor == 271  # of the 400 superseded ones the newest 128 are kept
