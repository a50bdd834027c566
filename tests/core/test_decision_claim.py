"""The rows of docs/protocol.md, section 3, each alone and wherever two could fit, and the sentences below them."""

from dataclasses import dataclass, field, replace

import pytest
from tenure import decision
from tenure.decision import EMPTY, KEPT_ENDED, KEPT_UNFINISHED, JobState, RunState
from tenure.model import Claim, ClaimResult, LostAttempt

NOW = 1_000_000
LEASE = 5_000
SLOT = NOW - 100
OLDER, NEWER = SLOT - 1_000, SLOT + 50
LIVE, OVER = NOW + 2_000, NOW - 1


def a_claim(**changes: object) -> Claim:
    given: dict[str, object] = {
        "job": "job",
        "slot": SLOT,
        "token": "mine",
        "instance": "me",
        "lease_ms": LEASE,
        "mode": "scheduled",
        "overlap": "skip",
        "max_attempts": 3,
        "max_late_ms": None,
        "after": 0,
    }
    return Claim(**(given | changes))


def a_run(slot: int = SLOT, expires_at: int = OVER, **changes: object) -> RunState:
    run = RunState(
        slot=slot,
        attempt=1,
        used=1,
        fence=50,
        token=f"their-{slot}",
        holder="them",
        lease_ms=LEASE,
        started_at=NOW - 7_000,
        expires_at=expires_at,
    )
    return replace(run, **changes)


def a_state(*runs: RunState, floor: int = -1, fence: int = 60) -> JobState:
    ordered = sorted(runs, key=lambda run: run.slot)
    unfinished = tuple(run for run in ordered if run.status in ("open", "released"))
    ended = tuple(run for run in ordered if run.status not in ("open", "released"))
    return JobState(fence, floor, unfinished, ended)


MINE = a_run(token="mine", holder="me")
LIVE_OTHER = a_run(NEWER, LIVE)
LIVE_OLDER = a_run(OLDER, LIVE)
DEAD_NEWER = a_run(NEWER, OVER)


@dataclass(frozen=True)
class Case:
    """A state, a claim and its answer; ``expected`` names the fields that must be so."""

    state: JobState
    claim: Claim
    expected: dict[str, object] = field(default_factory=dict)


def won(attempt: int, **more: object) -> dict[str, object]:
    return {"outcome": "won", "attempt": attempt, "lease_left_ms": LEASE, **more}


SUPERSEDED = {"outcome": "done", "status": "superseded"}
NONE_DUE = {"outcome": "none", "wait_ms": None}

ROWS = {
    "1 success": Case(
        a_state(a_run(status="success")), a_claim(), {"outcome": "done", "status": "success", "attempt": 1}
    ),
    "1 failed": Case(a_state(a_run(status="failed")), a_claim(after=1), {"outcome": "done", "status": "failed"}),
    "1 superseded": Case(a_state(a_run(status="superseded")), a_claim(), SUPERSEDED | {"attempt": 1}),
    "1 exhausted": Case(a_state(a_run(status="exhausted")), a_claim(), {"outcome": "done", "status": "exhausted"}),
    "1 the finisher's own token": Case(a_state(replace(MINE, status="success")), a_claim(), {"outcome": "done"}),
    "2 live": Case(a_state(replace(MINE, expires_at=LIVE)), a_claim(), won(1, fence=50)),
    "2 over": Case(a_state(MINE), a_claim(), won(1, fence=50)),
    "2 over, in any mode": Case(a_state(MINE), a_claim(mode="takeover"), won(1, fence=50)),
    "3": Case(
        a_state(a_run(expires_at=LIVE)),
        a_claim(),
        {"outcome": "running", "attempt": 1, "holder": "them", "lease_left_ms": LIVE - NOW},
    ),
    "3 one millisecond left": Case(a_state(a_run(expires_at=NOW + 1)), a_claim(after=1), {"outcome": "running"}),
    "8 nothing left": Case(a_state(a_run(expires_at=NOW)), a_claim(after=1), won(2)),
    "4": Case(a_state(a_run(), DEAD_NEWER), a_claim(after=1), SUPERSEDED | {"attempt": 1}),
    "4 the newer one ended": Case(a_state(a_run(), a_run(NEWER, status="success")), a_claim(after=1), SUPERSEDED),
    "4 the newer one was dropped": Case(a_state(a_run(), floor=NEWER), a_claim(after=1), SUPERSEDED),
    "4 not under allow": Case(a_state(a_run(), DEAD_NEWER), a_claim(after=1, overlap="allow"), won(2)),
    "5 not told yet": Case(
        a_state(a_run()), a_claim(after=0), {"outcome": "running", "attempt": 1, "lease_left_ms": 0}
    ),
    "5 told of an older one": Case(a_state(a_run(attempt=3)), a_claim(after=2), {"outcome": "running", "attempt": 3}),
    "5 told of one the store lost": Case(
        a_state(a_run(attempt=1)), a_claim(after=2), {"outcome": "running", "attempt": 1}
    ),
    "6": Case(
        a_state(a_run(attempt=3, used=3)), a_claim(after=3), {"outcome": "done", "status": "exhausted", "attempt": 3}
    ),
    "6 the smallest limit that asks": Case(
        a_state(a_run(attempt=1)), a_claim(after=1, max_attempts=1), {"outcome": "done", "status": "exhausted"}
    ),
    "7": Case(
        a_state(a_run(), LIVE_OLDER),
        a_claim(after=1),
        {"outcome": "overlap", "slot": OLDER, "holder": "them", "lease_left_ms": LIVE - NOW, "attempt": 1},
    ),
    "7 not under allow": Case(a_state(a_run(), LIVE_OLDER), a_claim(after=1, overlap="allow"), won(2)),
    "7 not beside one that is over": Case(a_state(a_run(), a_run(OLDER)), a_claim(after=1), won(2)),
    "8": Case(a_state(a_run()), a_claim(after=1), won(2, fence=NOW)),
    "8 in takeover": Case(a_state(a_run()), a_claim(after=1, mode="takeover"), won(2)),
    "8 a released one": Case(a_state(a_run(status="released")), a_claim(after=1), won(2)),
    "8 a released one of its own": Case(a_state(replace(MINE, status="released")), a_claim(after=1), won(2)),
    "8 never late": Case(a_state(a_run()), a_claim(after=1, max_late_ms=0), won(2)),
    "9 at the floor": Case(a_state(floor=SLOT), a_claim(overlap="allow"), SUPERSEDED | {"attempt": None}),
    "9 below the floor": Case(a_state(floor=SLOT + 1), a_claim(overlap="allow"), SUPERSEDED),
    "9 just above the floor": Case(a_state(floor=SLOT - 1), a_claim(), won(1)),
    "9 a newer one started": Case(a_state(DEAD_NEWER), a_claim(), SUPERSEDED),
    "9 not under allow": Case(a_state(DEAD_NEWER), a_claim(overlap="allow"), won(1)),
    "10": Case(EMPTY, a_claim(mode="takeover"), NONE_DUE),
    "10 an attempt of a run that is not there": Case(EMPTY, a_claim(after=1), NONE_DUE),
    "10 not due yet": Case(EMPTY, a_claim(mode="takeover", slot=NOW + 9), {"outcome": "none", "wait_ms": 9}),
    "11": Case(EMPTY, a_claim(slot=NOW + 1_001), {"outcome": "none", "wait_ms": 1_001}),
    "11 a second early is not early": Case(EMPTY, a_claim(slot=NOW + 1_000), won(1)),
    "12": Case(EMPTY, a_claim(max_late_ms=99), {"outcome": "late"}),
    "12 just in time": Case(EMPTY, a_claim(max_late_ms=100), won(1)),
    "12 no limit": Case(EMPTY, a_claim(slot=0), won(1)),
    "13": Case(a_state(LIVE_OLDER), a_claim(), {"outcome": "overlap", "slot": OLDER, "attempt": 0}),
    "13 not under allow": Case(a_state(LIVE_OLDER), a_claim(overlap="allow"), won(1)),
    "13 not beside a released one": Case(a_state(replace(LIVE_OLDER, status="released")), a_claim(), won(1)),
    "13 not beside an ended one": Case(a_state(replace(LIVE_OLDER, status="success")), a_claim(), won(1)),
    "14": Case(EMPTY, a_claim(), won(1, fence=NOW, previous=())),
    "14 slot 0": Case(EMPTY, a_claim(slot=0), won(1)),
    "14 catch-up": Case(EMPTY, a_claim(mode="catch-up"), won(1)),
    "14 manual": Case(EMPTY, a_claim(mode="manual"), won(1)),
}

PRECEDENCE = {
    "1 before 9": Case(a_state(a_run(status="failed"), DEAD_NEWER, floor=SLOT), a_claim(), {"status": "failed"}),
    "1 before 10": Case(a_state(a_run(status="success")), a_claim(mode="takeover"), {"status": "success"}),
    "1 before 11": Case(
        a_state(a_run(NOW + 5_000, status="success")), a_claim(slot=NOW + 5_000), {"status": "success"}
    ),
    "1 before 12": Case(a_state(a_run(status="success")), a_claim(max_late_ms=0), {"status": "success"}),
    "1 before 13": Case(a_state(a_run(status="success"), LIVE_OLDER), a_claim(), {"status": "success"}),
    "2 live before 3": Case(a_state(replace(MINE, expires_at=LIVE)), a_claim(), won(1)),
    "2 live although a newer one started": Case(a_state(replace(MINE, expires_at=LIVE), LIVE_OTHER), a_claim(), won(1)),
    "2 live beside another live one": Case(a_state(replace(MINE, expires_at=LIVE), LIVE_OLDER), a_claim(), won(1)),
    "2 live before 6": Case(a_state(replace(MINE, expires_at=LIVE)), a_claim(max_attempts=1), won(1)),
    "4 before 2 over": Case(a_state(MINE, DEAD_NEWER), a_claim(), SUPERSEDED),
    "2 over before 4 under allow": Case(a_state(MINE, DEAD_NEWER), a_claim(overlap="allow"), won(1)),
    "7 forbids 2 over, and 5 answers": Case(
        a_state(MINE, LIVE_OLDER), a_claim(), {"outcome": "running", "attempt": 1, "lease_left_ms": 0}
    ),
    "7 before 2 over, once told": Case(
        a_state(MINE, LIVE_OLDER), a_claim(after=1), {"outcome": "overlap", "slot": OLDER}
    ),
    "2 over beside a live one under allow": Case(a_state(MINE, LIVE_OLDER), a_claim(overlap="allow"), won(1)),
    "2 over before 5": Case(a_state(replace(MINE, attempt=2)), a_claim(after=1), won(2)),
    "2 over before 6": Case(a_state(MINE), a_claim(max_attempts=1), won(1)),
    "2 over before 8": Case(a_state(MINE), a_claim(after=1), won(1, fence=50)),
    "3 before 4": Case(a_state(a_run(expires_at=LIVE), DEAD_NEWER), a_claim(), {"outcome": "running"}),
    "3 before 5": Case(
        a_state(a_run(expires_at=LIVE)), a_claim(after=9), {"outcome": "running", "lease_left_ms": 2_000}
    ),
    "3 before 6": Case(a_state(a_run(expires_at=LIVE)), a_claim(after=1, max_attempts=1), {"outcome": "running"}),
    "3 before 7": Case(a_state(a_run(expires_at=LIVE), LIVE_OLDER), a_claim(), {"outcome": "running"}),
    "4 before 5": Case(a_state(a_run(), DEAD_NEWER), a_claim(after=0), SUPERSEDED),
    "4 before 6": Case(a_state(a_run(), DEAD_NEWER), a_claim(after=1, max_attempts=1), SUPERSEDED),
    "4 before 7": Case(a_state(a_run(), LIVE_OTHER), a_claim(after=1), SUPERSEDED),
    "5 before 6": Case(a_state(a_run()), a_claim(after=0, max_attempts=1), {"outcome": "running", "lease_left_ms": 0}),
    "5 before 7": Case(a_state(a_run(), LIVE_OLDER), a_claim(after=0), {"outcome": "running", "lease_left_ms": 0}),
    "6 before 7": Case(a_state(a_run(), LIVE_OLDER), a_claim(after=1, max_attempts=1), {"status": "exhausted"}),
    "9 before 10": Case(a_state(floor=SLOT), a_claim(mode="takeover"), SUPERSEDED),
    "9 before 11": Case(a_state(floor=NOW + 5_000), a_claim(slot=NOW + 5_000), SUPERSEDED),
    "9 before 12": Case(a_state(DEAD_NEWER), a_claim(max_late_ms=0), SUPERSEDED),
    "9 before 13": Case(a_state(LIVE_OTHER), a_claim(), SUPERSEDED),
    "10 before 11": Case(EMPTY, a_claim(mode="takeover", slot=NOW + 5_000), {"outcome": "none", "wait_ms": 5_000}),
    "10 before 12": Case(EMPTY, a_claim(mode="takeover", max_late_ms=0), NONE_DUE),
    "10 before 13": Case(a_state(LIVE_OLDER), a_claim(mode="takeover"), NONE_DUE),
    "11 before 13": Case(a_state(LIVE_OLDER), a_claim(slot=NOW + 5_000), {"outcome": "none", "wait_ms": 5_000}),
    "12 before 13": Case(a_state(LIVE_OLDER), a_claim(max_late_ms=0), {"outcome": "late"}),
}

WRITING = {2, 6, 8, 14}
FIELDS = {
    "won": {"attempt", "fence", "lease_left_ms"},
    "running": {"attempt", "holder", "lease_left_ms"},
    "overlap": {"slot", "holder", "lease_left_ms", "attempt"},
    "late": set(),
    "done": {"status"},
    "none": set(),
}
OPTIONAL = {"done": {"attempt"}, "none": {"wait_ms"}}


def outcome_of(case: Case) -> tuple[JobState, ClaimResult]:
    return decision.claim(case.state, case.claim, NOW)


def row_of(name: str) -> int:
    return int(name.split()[0])


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS.keys())
def test_row(case: Case) -> None:
    _, result = outcome_of(case)
    assert {name: getattr(result, name) for name in case.expected} == case.expected


@pytest.mark.parametrize("case", PRECEDENCE.values(), ids=PRECEDENCE.keys())
def test_precedence(case: Case) -> None:
    _, result = outcome_of(case)
    assert {name: getattr(result, name) for name in case.expected} == case.expected


@pytest.mark.parametrize(
    "case",
    [case for name, case in ROWS.items() if row_of(name) not in WRITING and case.expected.get("outcome") != "won"],
)
def test_claim_writes_nothing_unless_rows_2_6_8_14(case: Case) -> None:
    state, _ = outcome_of(case)
    assert state is case.state


@pytest.mark.parametrize("case", [case for name, case in ROWS.items() if row_of(name) in WRITING])
def test_claim_of_rows_2_6_8_14_writes(case: Case) -> None:
    state, _ = outcome_of(case)
    assert state != case.state


@pytest.mark.parametrize("case", (ROWS | PRECEDENCE).values(), ids=(ROWS | PRECEDENCE).keys())
def test_result_carries_the_fields_of_its_outcome_and_no_others(case: Case) -> None:
    _, result = outcome_of(case)
    names = ("attempt", "fence", "slot", "status", "lease_left_ms", "wait_ms", "holder")
    given = {name for name in names if getattr(result, name) is not None}
    assert given - OPTIONAL.get(result.outcome, set()) == FIELDS[result.outcome]
    assert result.now_ms == NOW
    assert result.previous == () or result.outcome == "won" or result.status == "exhausted"


def test_claim_row_2_renews_with_the_claim_s_lease() -> None:
    state, result = decision.claim(a_state(replace(MINE, expires_at=LIVE)), a_claim(lease_ms=77), NOW)
    assert result.lease_left_ms == 77
    assert decision.heartbeat(state, SLOT, "mine", NOW + 10)[0].unfinished[0].expires_at == NOW + 10 + 77


def test_claim_row_6_ends_the_run_for_good() -> None:
    state, first = decision.claim(a_state(a_run(used=3)), a_claim(after=1), NOW)
    assert state.unfinished == ()
    again, second = decision.claim(state, a_claim(after=1, max_attempts=99), NOW + 5)
    assert (second.status, again) == ("exhausted", state)
    assert first.previous == second.previous == (a_run().lost(),)


@pytest.mark.parametrize(
    ("last", "now", "fence"), [(0, NOW, NOW), (NOW - 1, NOW, NOW), (NOW, NOW, NOW + 1), (NOW + 9, NOW, NOW + 10)]
)
def test_claim_fence_is_the_last_plus_one_or_now(last: int, now: int, fence: int) -> None:
    first_start, result = decision.claim(a_state(fence=last), a_claim(), now)
    assert result.fence == fence == first_start.fence
    takeover, result = decision.claim(a_state(a_run(), fence=last), a_claim(after=1), now)
    assert result.fence == fence == takeover.fence


def test_claim_fence_survives_a_store_that_lost_its_state() -> None:
    _, before = decision.claim(EMPTY, a_claim(), NOW)
    _, after = decision.claim(EMPTY, a_claim(), NOW + 1)
    assert before.fence is not None
    assert after.fence is not None
    assert after.fence > before.fence


def test_claim_released_attempts_are_not_used_up() -> None:
    state, after = EMPTY, 0
    for attempt in range(1, 6):
        state, result = decision.claim(state, a_claim(token=f"t{attempt}", after=after, max_attempts=1), NOW)
        assert (result.outcome, result.attempt) == ("won", attempt)
        state, held = decision.release(state, SLOT, f"t{attempt}", NOW)
        assert held
        after = attempt


def test_claim_released_attempts_give_back_only_their_own() -> None:
    state, _ = decision.claim(EMPTY, a_claim(token="t1"), NOW)
    later = NOW + LEASE
    state, _ = decision.claim(state, a_claim(token="t2", after=1), later)
    state, _ = decision.release(state, SLOT, "t2", later)
    _, result = decision.claim(state, a_claim(token="t3", after=2, max_attempts=1), later)
    assert result.status == "exhausted"
    _, result = decision.claim(state, a_claim(token="t3", after=2, max_attempts=2), later)
    assert (result.outcome, result.attempt) == ("won", 3)


def test_claim_once_means_that_a_lost_winner_is_not_replaced() -> None:
    state, _ = decision.claim(EMPTY, a_claim(max_attempts=1), NOW)
    _, result = decision.claim(state, a_claim(token="t2", after=1, max_attempts=1, mode="takeover"), NOW + LEASE)
    assert (result.outcome, result.status) == ("done", "exhausted")


def test_claim_supersedes_every_older_unfinished_run_under_skip() -> None:
    older = [a_run(OLDER), a_run(OLDER + 1, status="released"), a_run(OLDER + 2)]
    state, result = decision.claim(a_state(*older), a_claim(), NOW)
    assert [run.slot for run in state.unfinished] == [SLOT]
    assert [(run.slot, run.status) for run in state.ended] == [(run.slot, "superseded") for run in older]
    assert result.previous == tuple(run.lost() for run in older)


def test_claim_takeover_tells_of_its_own_lost_attempt_first() -> None:
    _, result = decision.claim(a_state(a_run(attempt=2), a_run(OLDER)), a_claim(after=2), NOW)
    own, superseded = result.previous
    assert own == LostAttempt(SLOT, 2, 50, "them", NOW - 7_000, OVER, released=False)
    assert superseded.slot == OLDER


def test_claim_supersedes_nothing_under_allow() -> None:
    state, result = decision.claim(a_state(a_run(OLDER), DEAD_NEWER), a_claim(overlap="allow"), NOW)
    assert [run.slot for run in state.unfinished] == [OLDER, SLOT, NEWER]
    assert result.previous == ()


def test_claim_supersedes_no_newer_run_left_by_allow() -> None:
    allowed, _ = decision.claim(a_state(LIVE_OTHER), a_claim(overlap="allow"), NOW)
    assert [run.slot for run in allowed.unfinished] == [SLOT, NEWER]
    _, result = decision.claim(allowed, a_claim(token="else"), NOW)
    assert result.outcome == "running"


def test_previous_is_told_again_to_the_same_token() -> None:
    state, first = decision.claim(a_state(a_run(), a_run(OLDER)), a_claim(after=1), NOW)
    _, live = decision.claim(state, a_claim(after=1), NOW + 1)
    _, over = decision.claim(state, a_claim(after=1), NOW + LEASE)
    assert first.previous == live.previous == over.previous != ()


def test_previous_says_what_was_released_and_when() -> None:
    released, _ = decision.release(a_state(a_run(expires_at=LIVE)), SLOT, f"their-{SLOT}", NOW)
    _, result = decision.claim(released, a_claim(after=1), NOW + 500)
    assert result.previous == (LostAttempt(SLOT, 1, 50, "them", NOW - 7_000, NOW, released=True),)


def test_claim_overlap_names_the_newest_of_several() -> None:
    state = a_state(LIVE_OLDER, a_run(OLDER + 5, LIVE), a_run(OLDER + 9))
    assert decision.claim(state, a_claim(), NOW)[1].slot == OLDER + 5


def test_a_late_duplicate_of_a_lost_claim_wins_nothing() -> None:
    first = a_claim(token="a")
    state, _ = decision.claim(EMPTY, first, NOW)
    taken, _ = decision.claim(state, a_claim(token="b", after=1), NOW + LEASE)
    over = NOW + 3 * LEASE
    assert decision.claim(taken, first, NOW + LEASE + 1)[0] is taken
    unchanged, result = decision.claim(taken, first, over)
    assert unchanged is taken
    assert (result.outcome, result.attempt, result.lease_left_ms) == ("running", 2, 0)


def test_a_late_duplicate_of_a_released_claim_wins_nothing() -> None:
    first = a_claim(token="a")
    state, _ = decision.claim(EMPTY, first, NOW)
    released, _ = decision.release(state, SLOT, "a", NOW + 1)
    unchanged, result = decision.claim(released, first, NOW + 2)
    assert unchanged is released
    assert result.outcome == "running"


def test_deploy_the_claim_s_own_overlap_decides() -> None:
    state, _ = decision.claim(EMPTY, a_claim(slot=OLDER, token="old"), NOW)
    assert decision.claim(state, a_claim(), NOW)[1].outcome == "overlap"
    beside, result = decision.claim(state, a_claim(overlap="allow"), NOW)
    assert result.outcome == "won"
    assert len(beside.unfinished) == 2
    assert decision.claim(beside, a_claim(slot=NEWER, token="new"), NOW)[1].slot == SLOT


def test_bounds_under_skip_keep_16_ended_runs_and_raise_the_floor() -> None:
    state = EMPTY
    for slot in range(100):
        state, result = decision.claim(state, a_claim(slot=slot), NOW)
        assert result.outcome == "won"
        state, _ = decision.finish(state, slot, "mine", "success")
    assert [run.slot for run in state.ended] == list(range(83, 100))  # 16 at the last win, and the run it started
    assert state.floor == 82
    assert decision.claim(state, a_claim(slot=82, overlap="allow"), NOW)[1].status == "superseded"


def test_bounds_under_allow_keep_128_ended_runs() -> None:
    state = EMPTY
    for slot in range(200):
        state, _ = decision.claim(state, a_claim(slot=slot, overlap="allow"), NOW)
        state, _ = decision.finish(state, slot, "mine", "failed")
    assert [run.slot for run in state.ended] == list(range(71, 200))
    assert state.floor == 70


def test_bounds_floor_does_not_fall_when_an_old_run_ends_late() -> None:
    newer = [a_run(slot, status="success") for slot in range(100, 100 + KEPT_ENDED["skip"])]
    state = a_state(a_run(5, LIVE), *newer, floor=99)
    state, _ = decision.finish(state, 5, "their-5", "success")
    state, _ = decision.claim(state, a_claim(), NOW)
    assert [run.slot for run in state.ended] == [run.slot for run in newer]
    assert state.floor == 99


def many(count: int, expires_at: int) -> tuple[RunState, ...]:
    return tuple(a_run(slot, expires_at) for slot in range(count))


def test_bounds_allow_excess_supersedes_the_oldest_that_are_over() -> None:
    state, result = decision.claim(a_state(*many(KEPT_UNFINISHED, OVER)), a_claim(overlap="allow"), NOW)
    assert len(state.unfinished) == KEPT_UNFINISHED
    assert [(run.slot, run.status) for run in state.ended] == [(0, "superseded")]
    assert [lost.slot for lost in result.previous] == [0]


def test_bounds_allow_excess_spares_live_runs() -> None:
    state, result = decision.claim(a_state(*many(KEPT_UNFINISHED + 5, LIVE)), a_claim(overlap="allow"), NOW)
    assert len(state.unfinished) == KEPT_UNFINISHED + 6
    assert (state.ended, result.previous) == ((), ())


def test_bounds_allow_excess_starts_with_the_thousand_and_first() -> None:
    state, result = decision.claim(a_state(*many(KEPT_UNFINISHED - 1, OVER)), a_claim(overlap="allow"), NOW)
    assert len(state.unfinished) == KEPT_UNFINISHED
    assert result.previous == ()
