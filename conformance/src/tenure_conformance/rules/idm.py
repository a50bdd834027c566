"""Ambiguous failure: a call that is sent again, or comes late, has the effect of one."""

import asyncio

from tenure.model import ClaimResult

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import only
from tenure_conformance.records import attempted
from tenure_conformance.rule import rule


def _same_win(bench: Bench, first: ClaimResult, again: ClaimResult) -> None:
    assert (again.outcome, again.attempt, again.fence) == ("won", first.attempt, first.fence)
    assert again.previous == first.previous
    assert bench.same_time(again.lease_left_ms, first.lease_left_ms)


@rule(
    "IDM-001",
    level="lease",
    spec=("errors-repeat", "claim-row-2", "previous-repeat"),
    catches=("fence-again-for-the-same-token", "same-token-new-attempt", "same-token-running"),
)
async def claim_sent_again(bench: Bench) -> None:
    """A claim sent three times, over either client, is one attempt with one fence; others are told `running`."""
    held = await bench.a.win()
    for client in (bench.a, bench.b, bench.a):
        _same_win(bench, held.result, await held.again(by=client))
    assert (await bench.b.ask()).attempt == 1
    shown = only((await bench.b.active()).runs)
    assert (shown.attempt, shown.fence, shown.started_at) == (1, held.fence, held.started_at)


@rule(
    "IDM-002",
    level="lease",
    spec=("errors-repeat", "previous-repeat", "previous-superseded"),
    catches=(
        "previous-once",
        "supersedes-at-first-wins-only",
        "supersedes-one",
        "previous-own-only",
        "fence-again-for-the-same-token",
        "same-token-new-attempt",
        "previous-empty",
    ),
)
async def takeover_sent_again(bench: Bench) -> None:
    """A takeover sent again is one attempt, and is told the same lost attempts each time, superseded runs among
    them."""
    for number in range(3):
        lost = await bench.a.win(slot=SLOT + number, overlap="allow")
        assert await lost.release()
    taken = await bench.b.win(slot=SLOT + 2, mode="takeover", after=1)
    assert len(taken.result.previous) == 3
    for client in (bench.b, bench.a, bench.b):
        _same_win(bench, taken.result, await taken.again(by=client))
    assert (await bench.look())["job", SLOT + 2][0] == 2


@rule(
    "IDM-003",
    level="lease",
    spec=("errors-repeat", "claim-atomic"),
    catches=(
        "fence-again-for-the-same-token",
        "conflict-is-running",
        "same-token-new-attempt",
        "same-token-running",
        "sqlite-no-transaction",
        "retry-with-a-fresh-token",
    ),
)
async def claim_sent_at_once(bench: Bench) -> None:
    """A claim that arrives several times at once, over several clients, is won each time as one attempt with
    one fence."""
    clients = await bench.clients(8)
    for turn in range(6):
        claim = bench.claim(job=f"job {turn}")
        answers = await asyncio.gather(*(client.claim(claim) for client in clients))
        assert {(one.outcome, one.attempt, one.fence) for one in answers} == {("won", 1, answers[0].fence)}
        assert await clients[turn].release(claim.job, SLOT, claim.token)
        again = bench.claim(job=claim.job, mode="takeover", after=1)
        answers = await asyncio.gather(*(client.claim(again) for client in clients))
        assert {(one.outcome, one.attempt, one.fence) for one in answers} == {("won", 2, answers[0].fence)}


@rule(
    "IDM-004",
    level="lease",
    spec=("errors-repeat", "heartbeat-holds"),
    catches=(
        "conflict-is-false",
        "heartbeat-adds-up",
        "heartbeat-of-one-length",
        "heartbeat-half-a-lease",
        "heartbeat-by-the-client",
        "error-is-false",
    ),
)
async def heartbeat_sent_at_once(bench: Bench) -> None:
    """A heartbeat that arrives several times at once is `True` each time, and the lease ends one length after it."""
    held = await bench.a.win()
    clients = await bench.clients(8)
    before = (await bench.b.active()).now_ms
    assert await asyncio.gather(*(held.heartbeat(by=client) for client in clients)) == [True] * 8
    active = await bench.b.active()
    end, granted = active.now_ms + only(active.runs).lease_left_ms, bench.granted(held.claim.lease_ms)
    assert before + granted - bench.loose_ms <= end <= active.now_ms + granted + bench.loose_ms


@rule(
    "IDM-005",
    level="lease",
    spec=("errors-repeat", "finish-repeat"),
    catches=("finish-once-only", "done-is-success", "token-known-to-its-object", "done-forgotten", "finish-deletes"),
)
async def finish_sent_at_once(bench: Bench) -> None:
    """A finish that arrives several times at once is `True` each time, and the run ends once, with its status."""
    clients = await bench.clients(8)
    for turn in range(4):
        held = await bench.a.win(slot=SLOT + turn)
        assert await asyncio.gather(*(held.finish("failed", by=client) for client in clients)) == [True] * 8
        assert (await bench.b.takeover(SLOT + turn)).status == "failed"


@rule(
    "IDM-006",
    level="lease",
    spec=("errors-repeat", "release-repeat", "claim-released-not-used"),
    catches=(
        "release-again-gives-back-again",
        "release-gives-all-back",
        "release-once-only",
        "token-known-to-its-object",
    ),
)
async def release_sent_at_once(bench: Bench) -> None:
    """A release that arrives several times at once is `True` each time, and gives one attempt back, not several."""
    clients = await bench.clients(8)
    lost = await bench.a.win(lease_ms=bench.short_ms, max_attempts=1)
    await lost.lapse()
    held = await bench.a.win(after=1, max_attempts=2)
    assert await asyncio.gather(*(held.release(by=client) for client in clients)) == [True] * 8
    told = await bench.b.takeover(SLOT, after=2, max_attempts=1)
    assert (told.outcome, told.status, told.attempt) == ("done", "exhausted", 2)


@rule(
    "IDM-007",
    level="lease",
    spec=("errors-late-message", "claim-row-5", "claim-after"),
    catches=(
        "after-at-most",
        "after-told-as-live",
        "after-believed",
        "after-ignored",
        "asks-again-by-itself",
        "attempt-stuck",
    ),
)
async def late_claim_wins_nothing(bench: Bench) -> None:
    """A claim that arrives again after its run was released, taken, finished or superseded wins nothing and
    changes nothing."""
    held = await bench.a.win()
    assert await held.release()
    async with bench.unchanged():
        told = await held.again()
        assert (told.outcome, told.attempt, told.lease_left_ms) == ("running", 1, 0)
    taken = await bench.b.win(mode="takeover", after=1)
    async with bench.unchanged():
        told = await held.again()
        assert (told.outcome, told.attempt, told.holder) == ("running", 2, "b")
    assert await taken.finish()
    assert (await held.again()).status == "success"
    assert (await taken.again()).status == "success"
    newer = await bench.b.win(slot=SLOT + 1)
    assert await newer.release()
    newest = await bench.b.win(slot=SLOT + 2)
    async with bench.unchanged():
        assert (await newer.again()).status == "superseded"
    assert await newest.heartbeat()


@rule(
    "IDM-008",
    level="lease",
    spec=("errors-late-message", "heartbeat-refused", "release-refused", "finish-refused"),
    catches=(
        "finish-again-by-anyone",
        "finish-of-any-token",
        "release-of-any-token",
        "heartbeat-of-any-token",
        "won-remembered",
    ),
)
async def late_calls_change_nothing(bench: Bench) -> None:
    """Heartbeat, finish and release that arrive again after a takeover are refused and leave the successor's
    lease alone."""
    held = await bench.a.win()
    assert await held.heartbeat()
    assert await held.release()
    taken = await bench.b.win(after=1)
    async with bench.unchanged():
        for _ in range(3):
            assert not await held.heartbeat()
            assert not await held.release()
            assert not await held.finish()
    assert await taken.finish()
    assert not await held.release()
    assert not await held.finish()
    assert await taken.finish()


@rule(
    "IDM-009",
    level="lease",
    spec=("errors-late-message", "heartbeat-revives"),
    pace="timed",
    catches=("heartbeat-never-revives", "expired-forgotten"),
)
async def late_heartbeat_costs_one_lease(bench: Bench) -> None:
    """A heartbeat that arrives late revives its own lapsed run, for one lease, after which the run can be taken
    as before."""
    held = await bench.a.win(lease_ms=bench.short_ms)
    await held.lapse()
    assert await held.heartbeat()
    deadline = bench.deadline(bench.span(bench.calls[-1]), bench.short_ms)
    await deadline.wait_over()
    taken = await bench.b.win(mode="takeover", after=1)
    assert (taken.attempt, [one.attempt for one in taken.result.previous]) == (2, [1])


@rule(
    "IDM-010",
    level="lease",
    spec=("errors-repeat", "results-one-record", "results-crashed-yields"),
    catches=("results-twice", "results-times-in-seconds", "results-of-known-runs-only"),
)
async def record_sent_again(bench: Bench) -> None:
    """A record that arrives again is one record, also when a backup's `crashed` came between."""
    result = attempted(status="interrupted")
    await bench.a.save_result("job", result)
    await bench.b.save_result("job", attempted(status="crashed"))
    await bench.a.save_result("job", result)
    assert await bench.b.results() == [result]


@rule(
    "IDM-011",
    level="lease",
    spec=("errors-repeat", "claim-row-6", "previous-exhausted"),
    pace="timed",
    catches=(
        "previous-of-exhausted-empty",
        "previous-of-exhausted-once",
        "attempts-one-more",
        "attempts-without-limit",
        "done-forgotten",
    ),
)
async def exhausting_claim_sent_again(bench: Bench) -> None:
    """A claim that ended a run as exhausted is told the same again, with the lost attempt whose record may be
    missing."""
    held = await bench.a.win(lease_ms=bench.short_ms)
    await held.lapse()
    claim = bench.claim(mode="takeover", after=1, max_attempts=1)
    first = await bench.b.claim(claim)
    for client in (bench.b, bench.a):
        again = await client.claim(claim)
        assert (again.outcome, again.status, again.attempt) == ("done", "exhausted", 1)
        assert again.previous == first.previous
        assert [one.attempt for one in again.previous] == [1]


@rule(
    "IDM-012",
    level="lease",
    spec=("errors-repeat", "word-token", "claim-row-2"),
    catches=("token-used-once", "fence-again-for-the-same-token", "same-token-new-attempt", "same-token-running"),
)
async def token_of_another_slot_is_fresh(bench: Bench) -> None:
    """A token that won one run can win another run of its own, and repeats each win with that run's attempt and
    fence."""
    first = await bench.a.win(slot=SLOT, token="one", overlap="allow")
    second = await bench.a.win(slot=SLOT + 1, token="one", overlap="allow")
    assert second.fence > first.fence
    for held in (first, second):
        _same_win(bench, held.result, await held.again(by=bench.b))
    assert await first.finish()
    assert await second.heartbeat()
    assert (await bench.b.win(slot=SLOT + 2, token="one", overlap="allow")).fence > second.fence
