"""docs/protocol.md, section 4: heartbeat, finish, release, active and the history, sentence by sentence."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tenure import decision
from tenure.decision import EMPTY, JobState
from tenure.model import ActiveRun, Claim, RunResult

NOW, LEASE, SLOT = 1_000_000, 5_000, 999_900
OVER = NOW + LEASE

Step = Callable[[JobState, int], tuple[JobState, object]]


def claim(token: str, after: int = 0, *, slot: int = SLOT, max_attempts: int = 3, overlap: str = "skip") -> Step:
    given = Claim(
        job="job",
        slot=slot,
        token=token,
        instance=f"holder of {token}",
        lease_ms=LEASE,
        mode="scheduled",
        overlap=overlap,
        max_attempts=max_attempts,
        max_late_ms=None,
        after=after,
    )
    return lambda state, now: decision.claim(state, given, now)


def heartbeat(token: str, slot: int = SLOT) -> Step:
    return lambda state, now: decision.heartbeat(state, slot, token, now)


def finish(token: str, status: str = "success", slot: int = SLOT) -> Step:
    return lambda state, now: decision.finish(state, slot, token, status)


def release(token: str, slot: int = SLOT) -> Step:
    return lambda state, now: decision.release(state, slot, token, now)


def after(*steps: tuple[int, Step]) -> JobState:
    state = EMPTY
    for now, step in steps:
        state, _ = step(state, now)
    return state


HELD = after((NOW, claim("a")))
TAKEN = after((NOW, claim("a")), (OVER, claim("b", 1)))
RELEASED = after((NOW, claim("a")), (NOW, release("a")))
RETAKEN = after((NOW, claim("a")), (NOW, release("a")), (NOW, claim("b", 1)))
FINISHED = after((NOW, claim("a")), (NOW, finish("a")))
FAILED = after((NOW, claim("a")), (NOW, finish("a", "failed")))
EXHAUSTED = after((NOW, claim("a")), (OVER, claim("b", 1, max_attempts=1)))
SUPERSEDED = after((NOW, claim("a")), (OVER, claim("b", slot=SLOT + 1)))

# name: (state, step, now, held, whether the state changes)
ANSWERS = {
    "heartbeat-holds": (HELD, heartbeat("a"), NOW + 1, True, True),
    "heartbeat-revives: at the end of the lease": (HELD, heartbeat("a"), OVER, True, True),
    "heartbeat-revives: long after": (HELD, heartbeat("a"), OVER * 9, True, True),
    "heartbeat-refused: unknown job": (EMPTY, heartbeat("a"), NOW, False, False),
    "heartbeat-refused: unknown run": (HELD, heartbeat("a", SLOT + 1), NOW, False, False),
    "heartbeat-refused: another token": (HELD, heartbeat("b"), NOW, False, False),
    "heartbeat-refused: taken": (TAKEN, heartbeat("a"), OVER, False, False),
    "heartbeat-refused: taken, and that over too": (TAKEN, heartbeat("a"), OVER * 9, False, False),
    "heartbeat-refused: released": (RELEASED, heartbeat("a"), NOW, False, False),
    "heartbeat-refused: finished": (FINISHED, heartbeat("a"), NOW, False, False),
    "heartbeat-refused: exhausted": (EXHAUSTED, heartbeat("a"), OVER, False, False),
    "heartbeat-refused: superseded": (SUPERSEDED, heartbeat("a"), OVER, False, False),
    "finish-holds": (HELD, finish("a"), NOW, True, True),
    "finish-repeat": (FINISHED, finish("a"), NOW, True, False),
    "finish-repeat: the first status stays": (FINISHED, finish("a", "failed"), NOW, True, False),
    "finish-repeat: failed": (FAILED, finish("a"), NOW, True, False),
    "finish-after-release": (RELEASED, finish("a"), NOW, False, False),
    "finish-refused: unknown job": (EMPTY, finish("a"), NOW, False, False),
    "finish-refused: another token": (HELD, finish("b"), NOW, False, False),
    "finish-refused: another token, finished": (FINISHED, finish("b"), NOW, False, False),
    "finish-refused: taken": (TAKEN, finish("a"), OVER, False, False),
    "finish-refused: exhausted": (EXHAUSTED, finish("a"), OVER, False, False),
    "finish-refused: superseded": (SUPERSEDED, finish("a"), OVER, False, False),
    "release-holds": (HELD, release("a"), NOW, True, True),
    "release-holds: its lease over": (HELD, release("a"), OVER + 1, True, True),
    "release-repeat": (RELEASED, release("a"), NOW + 1, True, False),
    "release-repeat: not once it is taken": (RETAKEN, release("a"), NOW + 1, False, False),
    "release-after-finish": (FINISHED, release("a"), NOW, False, False),
    "release-refused: unknown job": (EMPTY, release("a"), NOW, False, False),
    "release-refused: another token": (HELD, release("b"), NOW, False, False),
    "release-refused: another token, released": (RELEASED, release("b"), NOW, False, False),
    "release-refused: taken": (TAKEN, release("a"), OVER, False, False),
    "release-refused: exhausted": (EXHAUSTED, release("a"), OVER, False, False),
    "release-refused: superseded": (SUPERSEDED, release("a"), OVER, False, False),
}


@pytest.mark.parametrize(("state", "step", "now", "held", "changes"), ANSWERS.values(), ids=ANSWERS.keys())
def test_answer(state: JobState, step: Step, now: int, held: bool, changes: bool) -> None:
    decided, answer = step(state, now)
    assert answer is held
    assert (decided is not state) is changes


def lease_of(state: JobState) -> int:
    return state.unfinished[0].expires_at


def test_heartbeat_counts_from_now_and_adds_nothing_up() -> None:
    state = HELD
    for now in (NOW + 1, NOW + 2, NOW + 3):
        state, _ = heartbeat("a")(state, now)
        assert lease_of(state) == now + LEASE


def test_heartbeat_changes_nothing_but_the_lease() -> None:
    state, _ = heartbeat("a")(HELD, NOW + 9)
    (before,), (run,) = HELD.unfinished, state.unfinished
    assert replace(run, expires_at=before.expires_at) == before


def test_heartbeat_revived_lease_is_live_again() -> None:
    state, _ = heartbeat("a")(HELD, OVER + 1)
    assert claim("b", 1)(state, OVER + 2)[1].outcome == "running"


def test_finish_lapsed_lease_that_nobody_took() -> None:
    assert finish("a")(HELD, OVER)[1] is True
    state, _ = heartbeat("a")(HELD, OVER * 2)
    assert finish("a")(state, OVER * 9)[1] is True


@pytest.mark.parametrize("status", ["success", "failed"])
def test_finish_ends_the_run_with_its_status(status: str) -> None:
    state, _ = finish("a", status)(HELD, NOW)
    assert state.unfinished == ()
    assert claim("b", 1)(state, OVER * 9)[1].status == status


def test_finish_repeat_is_false_once_the_record_was_dropped() -> None:
    state = FINISHED
    for slot in range(SLOT + 1, SLOT + 19):
        state, _ = claim("x", slot=slot)(state, NOW)
        state, _ = finish("x", slot=slot)(state, NOW)
    assert finish("a")(state, NOW)[1] is False
    assert claim("a")(state, NOW)[1].status == "superseded"


def test_release_ends_the_lease_at_once_and_leaves_the_run_unfinished() -> None:
    state, _ = release("a")(HELD, NOW + 7)
    assert decision.active("job", state, NOW + 7) == (
        ActiveRun("job", SLOT, 1, NOW, "holder of a", live=False, lease_left_ms=0, started_at=NOW),
    )
    assert claim("b", 1)(state, NOW + 7)[1].outcome == "won"


def test_release_does_not_say_that_a_lease_ended_later_than_it_did() -> None:
    state, _ = release("a")(HELD, OVER + 500)
    _, result = claim("b", 1)(state, OVER + 900)
    assert [lost.ended_at for lost in result.previous] == [OVER]


def test_release_repeated_gives_back_one_attempt_only() -> None:
    state, _ = release("a")(RELEASED, NOW)
    state, _ = claim("b", 1, max_attempts=1)(state, NOW)
    assert claim("c", 2, max_attempts=1)(state, OVER)[1].status == "exhausted"


def test_active_gives_every_unfinished_run_live_or_not_and_no_other() -> None:
    state = after(
        (NOW, claim("done", slot=1, overlap="allow")),
        (NOW, finish("done", slot=1)),
        (NOW, claim("over", slot=2, overlap="allow")),
        (OVER, claim("released", slot=3, overlap="allow")),
        (OVER, release("released", slot=3)),
        (OVER, claim("live", slot=4, overlap="allow")),
    )
    runs = decision.active("job", state, OVER + 1_000)
    assert [(run.slot, run.live, run.lease_left_ms) for run in runs] == [(2, False, 0), (3, False, 0), (4, True, 4_000)]
    live = runs[-1]
    assert (live.attempt, live.fence, live.holder, live.started_at) == (1, OVER + 1, "holder of live", OVER)


def test_active_gives_no_superseded_or_exhausted_run() -> None:
    assert [run.slot for run in decision.active("job", SUPERSEDED, OVER)] == [SLOT + 1]
    assert decision.active("job", EXHAUSTED, OVER) == ()


def result(slot: int, attempt: int = 1, status: str = "success", instance: str = "first") -> RunResult:
    times = (NOW, NOW + 1) if attempt else (None, None)
    return RunResult(slot, attempt, 7 if attempt else 0, status, instance, *times)


def recorded(*results: RunResult, keep: int = 100) -> list[tuple[int, int, str, str]]:
    history: tuple[RunResult, ...] = ()
    for each in results:
        history = decision.record(history, each, keep)
    return [(kept.slot, kept.attempt, kept.status, kept.instance) for kept in history]


def test_results_order_is_newest_first_by_slot_and_attempt() -> None:
    kept = recorded(result(5, 2), result(9), result(5, 10), result(7), result(5, 1))
    assert [entry[:2] for entry in kept] == [(9, 1), (7, 1), (5, 10), (5, 2), (5, 1)]


@pytest.mark.parametrize("status", ["success", "failed", "interrupted"])
@pytest.mark.parametrize("known", ["success", "failed", "interrupted", "crashed"])
def test_results_overwrite(known: str, status: str) -> None:
    assert recorded(result(5, 1, known), result(5, 1, status, "second")) == [(5, 1, status, "second")]


@pytest.mark.parametrize("known", ["success", "failed", "interrupted", "crashed"])
def test_results_crashed_yields(known: str) -> None:
    assert recorded(result(5, 1, known), result(5, 1, "crashed", "second")) == [(5, 1, known, "first")]


@pytest.mark.parametrize("status", ["late", "overlap", "exhausted", "superseded"])
def test_results_of_attempt_0_yield(status: str) -> None:
    assert recorded(result(5, 0, "late"), result(5, 0, status, "second")) == [(5, 0, "late", "first")]


def test_results_of_attempt_0_stand_beside_those_of_attempts() -> None:
    assert [entry[:2] for entry in recorded(result(5, 0, "exhausted"), result(5, 1, "crashed"))] == [(5, 1), (5, 0)]


def test_bounds_history_keeps_the_newest_and_drops_an_older_one_that_comes_late() -> None:
    kept = recorded(result(2), result(3), result(4), result(1), result(3, 2), keep=3)
    assert [entry[:2] for entry in kept] == [(4, 1), (3, 2), (3, 1)]
