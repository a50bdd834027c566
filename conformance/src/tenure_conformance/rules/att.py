"""Attempts: counted once each, up to the limit of whoever asks."""

import asyncio

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import only, outcomes
from tenure_conformance.rule import rule
from tenure_conformance.situations import MODES


@rule(
    "ATT-001",
    level="lease",
    spec=("claim-row-6", "claim-row-8", "word-attempt"),
    pace="timed",
    catches=(
        "attempts-one-less",
        "attempts-one-more",
        "attempts-without-limit",
        "expired-forgotten",
        "expiry-never",
        "attempt-stuck",
    ),
)
async def attempts_count_to_the_limit(bench: Bench) -> None:
    """Attempts 1, 2 and 3 are won as leases run out, and the next claim with a limit of three is `done` exhausted."""
    held = await bench.a.win(lease_ms=bench.short_ms, max_attempts=3)
    for attempt in (2, 3):
        await held.lapse()
        held = await bench.b.win(mode="takeover", after=attempt - 1, max_attempts=3, lease_ms=bench.short_ms)
        assert held.attempt == attempt
    await held.lapse()
    told = await bench.a.takeover(SLOT, after=3, max_attempts=3)
    assert (told.outcome, told.status, told.attempt) == ("done", "exhausted", 3)


@rule(
    "ATT-002",
    level="lease",
    spec=("claim-row-6", "previous-exhausted", "active-all"),
    pace="timed",
    catches=(
        "exhaustion-writes-a-record",
        "previous-of-exhausted-empty",
        "previous-of-exhausted-once",
        "exhausted-stays-unfinished",
        "attempts-one-more",
        "attempts-without-limit",
        "active-with-ended",
    ),
)
async def exhausted_run_is_ended(bench: Bench) -> None:
    """An exhausted run leaves `active` and stays `done` exhausted for every claim, each told its last attempt again."""
    held = await bench.a.win(lease_ms=bench.short_ms)
    await held.lapse()
    first = await bench.b.takeover(SLOT, after=1, max_attempts=1)
    assert (first.outcome, first.status, first.attempt) == ("done", "exhausted", 1)
    lost = only(first.previous)
    assert lost == held.lost(ended_at=lost.ended_at)
    assert bench.same_time(lost.ended_at, held.expires_at)
    for client in (bench.a, bench.b):
        assert await bench.look(by=client) == {}
        assert await client.results() == []
        for token in (held.token, "another"):
            told = await client.ask(token=token, after=1, max_attempts=9, overlap="allow")
            assert (told.outcome, told.status, told.attempt) == ("done", "exhausted", 1)
            assert told.previous == first.previous


@rule(
    "ATT-003",
    level="lease",
    spec=("claim-writes", "claim-row-3", "claim-row-2", "claim-atomic"),
    catches=(
        "race-takeover",
        "conflict-is-running",
        "former-attempt-steals",
        "same-token-new-attempt",
        "race-claim",
    ),
)
async def only_wins_count(bench: Bench) -> None:
    """Losing and repeated claims use up no attempt, however many ask at once."""
    held = await bench.a.win(max_attempts=2)
    clients = await bench.clients()
    for _ in range(5):
        await asyncio.gather(*(client.takeover(SLOT, after=1, max_attempts=2) for client in clients))
        await held.again(by=bench.b)
    assert await held.release()
    answers = await asyncio.gather(*(client.takeover(SLOT, after=1, max_attempts=2) for client in clients))
    won = only(outcomes(answers, "won"))
    assert won.attempt == 2
    assert {one.attempt for one in answers} == {2}


@rule(
    "ATT-004",
    level="lease",
    spec=("claim-once", "claim-row-6"),
    pace="timed",
    catches=("exhausted-stays-unfinished", "attempts-one-more", "attempts-without-limit"),
)
async def at_most_once(bench: Bench) -> None:
    """With one attempt allowed a run whose lease ran out is never run again."""
    held = await bench.a.win(lease_ms=bench.short_ms, max_attempts=1)
    await held.lapse()
    for client in (bench.a, bench.b):
        told = await client.ask(after=1, max_attempts=1)
        assert (told.outcome, told.status) == ("done", "exhausted")
    assert not await held.finish()


@rule(
    "ATT-005",
    level="lease",
    spec=("claim-own-rules", "claim-row-6"),
    pace="timed",
    catches=(
        "attempts-equal-to-the-limit-only",
        "exhausted-stays-unfinished",
        "attempts-one-less",
        "attempts-without-limit",
    ),
)
async def smallest_limit_that_asks_decides(bench: Bench) -> None:
    """The claim's own limit decides, not the holder's: a larger one wins, a smaller one ends the run for all."""
    held = await bench.a.win(lease_ms=bench.short_ms, max_attempts=1)
    await held.lapse()
    taken = await bench.b.win(mode="takeover", after=1, max_attempts=2, lease_ms=bench.short_ms)
    assert taken.attempt == 2
    await taken.lapse()
    assert (await bench.a.takeover(SLOT, after=2, max_attempts=1)).status == "exhausted"
    assert (await bench.b.takeover(SLOT, after=2, max_attempts=50)).status == "exhausted"


@rule(
    "ATT-006",
    level="lease",
    spec=("claim-row-6", "claim-row-8"),
    pace="timed",
    catches=(
        "attempts-equal-to-the-limit-only",
        "attempts-one-less",
        "attempts-one-more",
        "attempts-without-limit",
        "expired-forgotten",
        "expiry-never",
    ),
)
async def limit_is_exact(bench: Bench) -> None:
    """A run whose attempts are one below the limit is won, and one at the limit or above it is exhausted."""
    runs = {limit: await bench.a.win(job=f"limit {limit}", lease_ms=bench.short_ms) for limit in (1, 2, 3)}
    for run in runs.values():
        await run.lapse()
    second = {
        limit: await bench.b.win(job=run.job, mode="takeover", after=1, max_attempts=9, lease_ms=bench.short_ms)
        for limit, run in runs.items()
    }
    for run in second.values():
        await run.lapse()
    for limit, run in second.items():
        told = await bench.a.takeover(SLOT, job=run.job, after=2, max_attempts=limit)
        assert (told.outcome, told.attempt) == (("won", 3) if limit == 3 else ("done", 2)), f"limit {limit}: {told}"


@rule(
    "ATT-007",
    level="lease",
    spec=("claim-row-5", "claim-row-6", "claim-order"),
    pace="timed",
    catches=(
        "exhausted-before-after",
        "after-at-least",
        "after-at-most",
        "after-told-as-live",
        "after-believed",
        "after-ignored",
    ),
)
async def unknown_attempt_exhausts_nothing(bench: Bench) -> None:
    """A claim that does not know the last attempt is told it, and does not end the run as exhausted."""
    held = await bench.a.win(lease_ms=bench.short_ms, max_attempts=1)
    await held.lapse()
    async with bench.unchanged():
        for after in (0, 2):
            told = await bench.b.takeover(SLOT, after=after, max_attempts=1)
            assert (told.outcome, told.attempt, told.lease_left_ms) == ("running", 1, 0)
    assert await held.heartbeat()


@rule(
    "ATT-008",
    level="lease",
    spec=("claim-row-6", "claim-row-7", "claim-order"),
    pace="timed",
    catches=("exhausted-after-overlap", "exhausted-stays-unfinished", "attempts-one-more", "attempts-without-limit"),
)
async def exhausted_before_overlap(bench: Bench) -> None:
    """A run that is used up is exhausted also while another run is in the way, which is not touched."""
    older = await bench.a.win(slot=SLOT, overlap="allow")
    held = await bench.a.win(slot=SLOT + 1, overlap="allow", lease_ms=bench.short_ms)
    await held.lapse()
    told = await held.claimed_by(bench.b, max_attempts=1)
    assert (told.outcome, told.status) == ("done", "exhausted")
    assert [slot for _, slot in await bench.look()] == [SLOT]
    assert await older.heartbeat()


@rule(
    "ATT-009",
    level="lease",
    spec=("claim-row-6", "claim-row-9", "newer-counts-dropped"),
    pace="timed",
    catches=(
        "overtaken-by-live-runs-only",
        "older-slot-starts",
        "exhausted-stays-unfinished",
        "attempts-one-more",
        "attempts-without-limit",
    ),
)
async def exhausted_run_counts_as_started(bench: Bench) -> None:
    """An exhausted run is not in the way of newer slots, and is still newer than the older ones."""
    held = await bench.a.win(slot=SLOT + 1, lease_ms=bench.short_ms)
    await held.lapse()
    assert (await held.claimed_by(bench.b, max_attempts=1)).status == "exhausted"
    assert (await bench.b.ask(slot=SLOT)).status == "superseded"
    newer = await bench.b.win(slot=SLOT + 2)
    assert newer.result.previous == ()


@rule(
    "ATT-010",
    level="lease",
    spec=("word-attempt", "claim-after", "limits-numbers"),
    catches=(
        "attempt-in-a-byte",
        "after-at-least",
        "after-believed",
        "after-ignored",
        "asks-again-by-itself",
        "attempt-stuck",
        "attempt-is-text",
    ),
)
async def attempts_grow_far(bench: Bench) -> None:
    """Attempts count on over hundreds of releases, one by one, and large limits and numbers are no trouble."""
    last = min(260, bench.target.limits.runs)
    for attempt in range(1, last + 1):
        held = await bench.a.win(after=attempt - 1, max_attempts=2**31 + 5)
        assert held.attempt == attempt
        assert await held.release()
    told = await bench.b.ask(after=2**40, max_attempts=2**40)
    assert (told.outcome, told.attempt) == ("running", last)


@rule(
    "ATT-011",
    level="lease",
    spec=("claim-row-6", "claim-row-8", "claim-own-rules"),
    pace="timed",
    catches=("attempts-of-manual-claims-count-twice", "attempts-one-less", "attempts-one-more"),
)
async def every_mode_uses_up_one_attempt(bench: Bench) -> None:
    """A takeover uses up one attempt in whatever mode it was claimed: two of them are the end at a limit of two, and
    not at three."""
    runs = [(f"{mode} {limit}", mode, limit) for mode in MODES for limit in (2, 3)]
    for after, modes in ((0, MODES[:1] * 4), (1, MODES)):
        wins = [
            await bench.a.win(
                job=job, mode=modes[MODES.index(mode)], after=after, max_attempts=9, lease_ms=bench.short_ms
            )
            for job, mode, _ in runs
        ]
        for held in wins:
            await held.lapse()
    for job, mode, limit in runs:
        told = await bench.b.takeover(SLOT, job=job, after=2, max_attempts=limit)
        assert told.outcome == ("done" if limit == 2 else "won"), f"{mode}, limit {limit}: {told}"
