"""Takeover: who owns the next attempt, and what it is told of the last one."""

import asyncio

from tenure.model import ClaimResult

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import VERBS, guarded, only, outcomes, probe
from tenure_conformance.rule import rule
from tenure_conformance.situations import MODES
from tenure_conformance.timing import monotonic_ms


@rule(
    "TKO-001",
    level="lease",
    spec=("claim-row-10", "claim-writes", "result-none"),
    catches=("takeover-of-nothing-is-late", "wait-below-zero", "takeover-creates"),
)
async def takeover_creates_nothing(bench: Bench) -> None:
    """A takeover of an unknown run is `none` without a wait, and creates nothing: the first claim after it is
    attempt 1."""
    async with bench.unchanged():
        for after in (0, 1, 5):
            told = await bench.b.takeover(SLOT, after=after, overlap="allow", max_late_ms=0)
            assert (told.outcome, told.wait_ms) == ("none", None)
    assert (await bench.a.win()).attempt == 1


@rule(
    "TKO-002",
    level="lease",
    spec=("claim-row-3", "time-instance-wrong"),
    pace="timed",
    catches=(
        "former-attempt-steals",
        "probe-extends-lease",
        "takeover-steals",
        "running-tells-the-next-attempt",
        "clock-of-the-client",
        "always-won",
    ),
)
async def live_run_is_not_taken(bench: Bench) -> None:
    """A takeover of a live run is `running`, at every moment of the lease, and delays or shortens it by nothing."""
    held = await bench.a.win(lease_ms=bench.lease_ms)
    for part in (0.1, 0.3, 0.6, 0.8, 0.95):
        told = await probe(held, held.deadline, part, bench.b)
        assert (told.outcome, told.attempt) == ("running", 1)
        assert told.lease_left_ms is not None
        assert bench.same_time(told.now_ms + told.lease_left_ms, held.expires_at)
    await held.lapse()
    assert (await held.claimed_by(bench.b)).outcome == "won"


@rule(
    "TKO-003",
    level="lease",
    spec=("claim-row-8", "previous-own", "lost-ended-at", "word-fence"),
    pace="timed",
    catches=(
        "takeover-writes-a-record",
        "lost-always-released",
        "lost-times-swapped",
        "fence-is-the-slot",
        "lost-without-fence",
        "expired-forgotten",
    ),
)
async def lapsed_run_is_taken(bench: Bench) -> None:
    """A run whose lease ran out is won as attempt 2 with a greater fence, and its winner is told the lost attempt."""
    held = await bench.a.win(lease_ms=bench.short_ms)
    await held.lapse()
    taken = await bench.b.win(mode="takeover", after=1)
    assert taken.attempt == 2
    assert taken.fence > held.fence
    lost = only(taken.result.previous)
    assert (lost.slot, lost.attempt, lost.fence, lost.holder) == (SLOT, 1, held.fence, "a")
    assert lost.started_at == held.started_at
    assert bench.same_time(lost.ended_at, held.expires_at)
    assert lost.released is False
    assert (await held.claimed_by(bench.a)).attempt == 2
    assert await bench.b.results() == []


@rule(
    "TKO-004",
    level="lease",
    spec=("claim-atomic", "claim-row-8"),
    pace="timed",
    catches=(
        "race-takeover",
        "race-claim",
        "sqlite-no-transaction",
        "expired-forgotten",
        "expiry-never",
        "attempt-stuck",
    ),
)
async def one_backup_wins(bench: Bench) -> None:
    """Of many backups that ask at once, again and again around the end of a lease, one wins, and one attempt is
    counted."""
    held = await bench.a.win(lease_ms=bench.lease_ms)
    clients = await bench.clients()
    answers: list[ClaimResult] = []
    await held.deadline.wait(0.97)
    while not outcomes(answers, "won"):
        over = monotonic_ms() >= held.deadline.over_ms
        answers += await asyncio.gather(*(held.claimed_by(client) for client in clients))
        assert outcomes(answers, "won") or not over, "nobody wins a lease that is over"
    answers += await asyncio.gather(*(held.claimed_by(client) for client in clients))
    won = only(outcomes(answers, "won"))
    assert won.attempt == 2
    assert all(answer.outcome in ("won", "running") for answer in answers)
    shown = only((await bench.b.active()).runs)
    assert (shown.attempt, shown.fence) == (2, won.fence)


@rule(
    "TKO-005",
    level="lease",
    spec=("claim-row-8", "claim-late-first"),
    pace="timed",
    catches=(
        "takeover-late",
        "takeover-needs-its-mode",
        "expired-forgotten",
        "expiry-never",
        "attempt-stuck",
    ),
)
async def any_mode_takes_over(bench: Bench) -> None:
    """A claim of any mode takes over a run whose lease ran out, however late by its own limit."""
    held = {mode: await bench.a.win(job=mode, lease_ms=bench.short_ms) for mode in MODES}
    for mode, run in held.items():
        await run.lapse()
        taken = await bench.b.win(job=mode, mode=mode, after=1, max_late_ms=0)
        assert taken.attempt == 2


@rule(
    "TKO-006",
    level="lease",
    spec=("claim-row-8", "release-holds", "lost-released", "lost-ended-at"),
    catches=(
        "release-ends-with-the-lease",
        "lost-never-released",
        "release-finishes",
        "release-deletes",
        "release-does-nothing",
        "answers-are-numbers",
    ),
)
async def released_run_is_taken_at_once(bench: Bench) -> None:
    """A released run is won by the next claim, and the lost attempt says that it was released and when."""
    for overlap in ("skip", "allow"):
        held = await bench.a.win(job=overlap, overlap="skip" if overlap == "skip" else "allow")
        before = (await bench.b.active(overlap)).now_ms
        assert await held.release()
        after = (await bench.b.active(overlap)).now_ms
        taken = await bench.b.win(job=overlap, mode="takeover", after=1)
        lost = only(taken.result.previous)
        assert lost == held.lost(released=True, ended_at=lost.ended_at)
        assert before - bench.loose_ms <= lost.ended_at <= after + bench.loose_ms


@rule(
    "TKO-007",
    level="lease",
    spec=("claim-row-8", "calls-guarded", "heartbeat-refused"),
    pace="timed",
    catches=(
        "finish-of-any-token",
        "lost-always-released",
        "release-of-any-token",
        "heartbeat-of-any-token",
        "won-remembered",
    ),
)
async def former_owner_takes_over(bench: Bench) -> None:
    """The former owner may take over its own run with a fresh token, and its old token is dead from then on."""
    held = await bench.a.win(lease_ms=bench.short_ms)
    await held.lapse()
    taken = await bench.a.win(mode="takeover", after=1)
    assert (taken.attempt, taken.result.previous) == (2, (held.lost(ended_at=only(taken.result.previous).ended_at),))
    for verb in VERBS:
        assert not await guarded(bench.a, verb, "job", SLOT, held.token)
    told = await held.again()
    assert (told.outcome, told.attempt) == ("running", 2)
    assert await taken.heartbeat()


@rule(
    "TKO-008",
    level="lease",
    spec=("claim-row-5", "errors-late-message"),
    catches=(
        "after-at-least",
        "after-at-most",
        "after-told-as-live",
        "after-believed",
        "after-ignored",
        "asks-again-by-itself",
    ),
)
async def stale_backup_learns_the_attempt(bench: Bench) -> None:
    """A backup that does not know the run's last attempt is told it with no lease left, and wins with it at once."""
    for after in (0, 2, 3):
        job = f"after {after}"
        held = await bench.a.win(job=job)
        assert await held.release()
        async with bench.unchanged(job):
            told = await bench.b.takeover(SLOT, after=after, job=job)
            assert (told.outcome, told.attempt, told.lease_left_ms, told.holder) == ("running", 1, 0, "a")
        assert told.attempt is not None
        assert (await bench.b.win(job=job, mode="takeover", after=told.attempt)).attempt == 2


@rule(
    "TKO-009",
    level="lease",
    spec=("previous-own", "lost-ended-at"),
    catches=(
        "previous-of-every-attempt",
        "holder-of-the-first-attempt",
        "release-ends-with-the-lease",
        "lost-without-fence",
    ),
)
async def previous_is_the_last_attempt(bench: Bench) -> None:
    """Over a chain of takeovers each winner is told the one attempt before its own, with its holder, fence and
    times."""
    held = await bench.a.win()
    for attempt in range(2, 7):
        assert await held.release()
        client = (bench.a, bench.b)[attempt % 2]
        taken = await client.win(mode="takeover", after=attempt - 1, instance=f"holder {attempt}", max_attempts=1)
        lost = only(taken.result.previous)
        assert lost == held.lost(released=True, ended_at=lost.ended_at)
        assert held.started_at - bench.loose_ms <= lost.ended_at <= taken.started_at + bench.loose_ms
        held = taken


@rule(
    "TKO-010",
    level="lease",
    spec=("claim-supersedes", "previous-superseded", "previous-own"),
    catches=(
        "supersedes-at-first-wins-only",
        "supersedes-one",
        "previous-own-only",
        "supersedes-nothing",
        "previous-superseded-only",
        "lost-without-fence",
    ),
)
async def takeover_supersedes_older_runs(bench: Bench) -> None:
    """A takeover under `skip` supersedes every older unfinished run, and is told the last attempt of each and
    its own."""
    lost = [await bench.a.win(slot=SLOT + number, overlap="allow", instance=f"h{number}") for number in range(4)]
    for run in lost:
        assert await run.release()
    newest = await bench.b.win(slot=SLOT + 3, mode="takeover", after=1, overlap="skip")
    told = sorted(newest.result.previous, key=lambda one: one.slot)
    assert [(one.slot, one.attempt, one.fence, one.holder, one.started_at) for one in told] == [
        (run.slot, 1, run.fence, run.claim.instance, run.started_at) for run in lost
    ]
    assert all(one.released for one in told)
    assert list(await bench.look()) == [("job", SLOT + 3)]


@rule("TKO-011", level="lease", spec=("claim-late-first", "claim-row-8"), catches=("takeover-late", "attempt-stuck"))
async def takeover_is_never_late(bench: Bench) -> None:
    """A takeover is won however long ago the slot was, even with no lateness allowed."""
    held = await bench.a.win(slot=1_000)
    assert await held.release()
    assert (await bench.b.win(slot=1_000, mode="takeover", after=1, max_late_ms=0)).attempt == 2


@rule(
    "TKO-012",
    level="lease",
    spec=("claim-none-wait", "result-none", "claim-row-10"),
    catches=("wait-missing-for-takeover", "wait-in-seconds", "takeover-creates"),
)
async def takeover_says_how_long_to_wait(bench: Bench) -> None:
    """A takeover of an unknown run that is not due is `none` with the time until its slot, also within the next
    second."""
    for ahead in (400, 3_600_000, 86_400_000 * 365):
        slot = (await bench.a.active()).now_ms + ahead
        told = await bench.b.takeover(slot, after=0)
        assert told.outcome == "none"
        expected = slot - told.now_ms if slot > told.now_ms else None
        assert told.wait_ms == expected or bench.same_time(told.wait_ms, expected)


@rule(
    "TKO-013",
    level="lease",
    spec=("word-live", "claim-row-3", "calls-guarded"),
    pace="timed",
    catches=(
        "former-attempt-steals",
        "lease-floor-seconds",
        "clock-of-the-client",
        "lease-from-the-slot",
        "always-won",
        "sqlite-new-state-lost",
    ),
)
async def backups_do_not_disturb_the_holder(bench: Bench) -> None:
    """A holder that heartbeats keeps its run over three leases while many backups ask all the time."""
    held = await bench.a.win(lease_ms=bench.lease_ms)
    clients = (await bench.clients())[1:5]
    deadline = held.deadline
    for _ in range(7):
        told = await asyncio.gather(*(probe(held, deadline, 0.45, client) for client in clients))
        assert [one.outcome for one in told] == ["running"] * len(clients)
        assert await held.heartbeat()
        deadline = bench.deadline(bench.span(bench.calls[-1]), held.claim.lease_ms)
    assert (await bench.look())["job", SLOT][0] == 1
    assert await held.finish()


@rule(
    "TKO-014",
    level="lease",
    spec=("heartbeat-refused", "finish-refused", "release-refused"),
    pace="timed",
    catches=(
        "finish-again-by-anyone",
        "finish-of-any-token",
        "release-of-any-token",
        "heartbeat-of-unknown-is-true",
        "heartbeat-of-any-token",
        "won-remembered",
    ),
)
async def stale_owner_can_do_nothing(bench: Bench) -> None:
    """After a takeover the old token's heartbeat, finish and release are refused, and the successor is not touched."""
    held = await bench.a.win(lease_ms=bench.short_ms)
    await held.lapse()
    taken = await bench.b.win(mode="takeover", after=1)
    async with bench.unchanged():
        for client in (bench.a, bench.b):
            for verb in VERBS:
                assert not await guarded(client, verb, "job", SLOT, held.token)
    assert await taken.finish("failed")
    for verb in VERBS:
        assert not await guarded(bench.a, verb, "job", SLOT, held.token)
    assert (await bench.a.ask()).status == "failed"
