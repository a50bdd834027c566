"""One rule broken at a time, to see that the model check finds out."""

from dataclasses import dataclass, replace

from tenure import decision
from tenure.decision import EMPTY, JobState, RunState
from tenure.model import Claim, ClaimResult

from .configs import BIG, SMALL
from .store import Decision
from .world import Budget, Config

Decided = tuple[JobState, ClaimResult]


def _run(state: JobState, slot: int) -> RunState | None:
    return next((run for run in state.unfinished if run.slot == slot), None)


def _with(state: JobState, run: RunState) -> JobState:
    unfinished = tuple(run if known.slot == run.slot else known for known in state.unfinished)
    return replace(state, unfinished=unfinished)


class NoRow1(Decision):
    def claim(self, state: JobState, claim: Claim) -> Decided:
        return decision.claim(replace(state, ended=()), claim, 0)


class NoRow2(Decision):
    def claim(self, state: JobState, claim: Claim) -> Decided:
        run = _run(state, claim.slot)
        hidden = _with(state, replace(run, token="nobody's")) if run else state
        decided, result = decision.claim(hidden, claim, 0)
        return (state if decided is hidden else decided), result


class Row2WithoutRows4And7(Decision):
    def claim(self, state: JobState, claim: Claim) -> Decided:
        run = _run(state, claim.slot)
        if run and run.held_by(claim.token):
            renewed = replace(run, expires_at=claim.lease_ms)
            return _with(state, renewed), decision._won(renewed, 0)
        return decision.claim(state, claim, 0)


class Row2Released(Decision):
    def claim(self, state: JobState, claim: Claim) -> Decided:
        run = _run(state, claim.slot)
        if run and run.token == claim.token:
            state = _with(state, replace(run, status="open"))
        return decision.claim(state, claim, 0)


class NoRow3(Decision):
    def claim(self, state: JobState, claim: Claim) -> Decided:
        run = _run(state, claim.slot)
        over = replace(run, expires_at=0) if run and run.token != claim.token else None
        return decision.claim(_with(state, over) if over else state, claim, 0)


class NoRow5(Decision):
    def claim(self, state: JobState, claim: Claim) -> Decided:
        run = _run(state, claim.slot)
        return decision.claim(state, replace(claim, after=run.attempt) if run else claim, 0)


class NoRow6(Decision):
    def claim(self, state: JobState, claim: Claim) -> Decided:
        return decision.claim(state, replace(claim, max_attempts=99), 0)


class NoRow7Or13(Decision):
    def claim(self, state: JobState, claim: Claim) -> Decided:
        return decision.claim(state, replace(claim, overlap="allow"), 0)


class NoSuperseding(Decision):
    def claim(self, state: JobState, claim: Claim) -> Decided:
        decided, result = decision.claim(state, claim, 0)
        if result.outcome == "won":
            older = tuple(run for run in state.unfinished if run.slot < claim.slot)
            newer = tuple(run for run in decided.unfinished if run.slot >= claim.slot)
            ended = tuple(run for run in decided.ended if run.slot not in {run.slot for run in older})
            decided = replace(decided, unfinished=older + newer, ended=ended)
        return decided, result


class FenceStays(Decision):
    def claim(self, state: JobState, claim: Claim) -> Decided:
        decided, result = decision.claim(state, claim, 0)
        if result.outcome != "won" or decided.fence == state.fence or state == EMPTY:
            return decided, result
        run = _run(decided, claim.slot)
        assert run
        stays = _with(replace(decided, fence=state.fence), replace(run, fence=state.fence))
        return stays, replace(result, fence=state.fence)


class HeartbeatOfAnyToken(Decision):
    def heartbeat(self, state: JobState, slot: int, token: str) -> tuple[JobState, bool]:
        run = _run(state, slot)
        return decision.heartbeat(state, slot, run.token if run else token, 0)


class HeartbeatLies(Decision):
    def heartbeat(self, state: JobState, slot: int, token: str) -> tuple[JobState, bool]:
        return state, True


class FinishOfAnyToken(Decision):
    def finish(self, state: JobState, slot: int, token: str) -> tuple[JobState, bool]:
        run = _run(state, slot)
        return decision.finish(state, slot, run.token if run else token, "success")


class FinishNotRepeatable(Decision):
    def finish(self, state: JobState, slot: int, token: str) -> tuple[JobState, bool]:
        decided, held = decision.finish(state, slot, token, "success")
        return decided, held and decided is not state


class ReleaseOfAnyToken(Decision):
    def release(self, state: JobState, slot: int, token: str) -> tuple[JobState, bool]:
        run = _run(state, slot)
        return decision.release(state, slot, run.token if run else token, 0)


class ReleaseUsesUp(Decision):
    def release(self, state: JobState, slot: int, token: str) -> tuple[JobState, bool]:
        run = _run(state, slot)
        decided, held = decision.release(state, slot, token, 0)
        after = _run(decided, slot)
        return (_with(decided, replace(after, used=run.used)), held) if run and after else (decided, held)


@dataclass(frozen=True)
class Break:
    """A rule, the model in which it is broken, and what the checker must find."""

    anchor: str
    what: str
    config: Config
    fault: str


ONE_AT_A_TIME = "one handler at a time believes in its lease"
LIVE_LEASE = "a handler starts only with a live lease of its own; an ended run is not started again"
ONE_ATTEMPT = "one claim wins one attempt"
TOO_OFTEN = "a run is started at most max_attempts times, unless a stop gave an attempt back"
SUCCEEDS_ONCE = "a run succeeds once"
SAME_CLAIM = "a claim sent again is the same claim"
LEFT = "no run is left for ever while an instance is up"
EATEN = "late messages and stops leave a run its attempts"
BESIDE = "a claim under skip is not won beside another live lease"

_CALM = Config()
_LATE = SMALL["late and lost messages"]
_ALONE = SMALL["late and lost messages, alone"]
_COPIES = SMALL["copies, late messages, crash, restart"]
_STOP = SMALL["stop"]
_STOP_TWICE = Config(budget=Budget(stops=1))
_STOP_LOST = SMALL["stop, lost messages"]
_STOP_COPIES = SMALL["stop, copies, late messages"]
_TWO_SLOTS = SMALL["two slots"]
_TWO_SLOTS_ONCE = Config(slots=2, prompt=True, max_attempts=1)
_MIXED_COPIES = BIG["two slots, skip beside allow, copies"]
_RECOVERING = SMALL["two slots, alone, allow, crash and restart"]


def _decision(anchor: str, decide: Decision, config: Config, fault: str) -> Break:
    return Break(anchor, type(decide).__name__, replace(config, decide=decide), fault)


def _instance(anchor: str, rule: str, config: Config, fault: str) -> Break:
    return Break(anchor, rule, replace(config, broken=frozenset([rule])), fault)


BREAKS = [
    _decision("claim-row-1", NoRow1(), _CALM, SUCCEEDS_ONCE),
    _decision("claim-row-2", NoRow2(), _ALONE, SAME_CLAIM),
    _decision("claim-row-2", Row2WithoutRows4And7(), _MIXED_COPIES, BESIDE),
    _decision("claim-row-2", Row2Released(), _STOP_COPIES, "a released lease does not come back"),
    _decision("claim-row-3", NoRow3(), _CALM, LIVE_LEASE),
    _decision("claim-row-5", NoRow5(), _COPIES, ONE_ATTEMPT),
    _decision("claim-row-6", NoRow6(), _CALM, TOO_OFTEN),
    _decision("claim-row-13", NoRow7Or13(), _TWO_SLOTS, BESIDE),
    _decision("claim-supersedes", NoSuperseding(), _TWO_SLOTS_ONCE, LEFT),
    _decision("claim-fence", FenceStays(), _CALM, "fences rise in the order of starts"),
    _decision("claim-released-not-used", ReleaseUsesUp(), _STOP, EATEN),
    _decision("heartbeat-holds", HeartbeatLies(), _CALM, ONE_AT_A_TIME),
    _decision("heartbeat-refused", HeartbeatOfAnyToken(), _STOP_TWICE, ONE_AT_A_TIME),
    _decision("finish-refused", FinishOfAnyToken(), _CALM, LIVE_LEASE),
    _decision(
        "finish-repeat", FinishNotRepeatable(), _LATE, "the answer to finish says whether this token ended the run"
    ),
    _decision("release-refused", ReleaseOfAnyToken(), _LATE, LIVE_LEASE),
    _instance("instance-claim-retry", "fresh-token-on-retry", _ALONE, SAME_CLAIM),
    _instance("instance-lease-counts", "lease-from-answer", _CALM, ONE_AT_A_TIME),
    _instance("instance-given-up-answer", "takes-given-up-answers", _LATE, LIVE_LEASE),
    _instance("instance-late-won", "starts-late", _LATE, LIVE_LEASE),
    _instance(
        "instance-no-second", "claims-beside-its-handler", _CALM, "an instance executes one handler of a run at a time"
    ),
    _instance("instance-deadline", "no-deadline", _CALM, ONE_AT_A_TIME),
    _instance("instance-deadline", "ignores-refused-heartbeat", _STOP_TWICE, ONE_AT_A_TIME),
    _instance("instance-lease-kept", "releases-under-handler", _STOP_TWICE, ONE_AT_A_TIME),
    _instance("instance-ending-order", "event-before-finish", _CALM, SUCCEEDS_ONCE),
    _instance("instance-finish-decides", "success-anyway", _CALM, SUCCEEDS_ONCE),
    _instance("instance-stop-handlers", "releases-on-loss", _CALM, TOO_OFTEN),
    _instance("instance-watch", "no-watch", _CALM, LEFT),
    _instance("claim-after", "forgets-attempt", _CALM, LEFT),
    _instance("instance-recovery", "no-recovery", _RECOVERING, LEFT),
    _instance(
        "instance-stop-claims", "no-release-at-stop", _STOP_LOST, "a stop leaves no lease behind that nobody uses"
    ),
]
