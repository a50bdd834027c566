"""Heartbeat: the holder's renewal, for its attempt's lease from now, and nobody else's."""

import asyncio

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import VERBS, Held, answered, guarded, only, probe
from tenure_conformance.rule import rule
from tenure_conformance.timing import LONG_MS


async def _beat_exactly(bench: Bench, held: Held) -> int:
    """A heartbeat whose new end lies one lease after it; gives that end."""
    before = (await bench.b.active(held.job)).now_ms
    assert await held.heartbeat()
    active = await bench.b.active(held.job)
    shown = next(run for run in active.runs if run.slot == held.slot)
    end, granted = active.now_ms + shown.lease_left_ms, bench.granted(held.claim.lease_ms)
    assert shown.live
    assert before + granted - bench.loose_ms <= end <= active.now_ms + granted + bench.loose_ms
    return end


@rule(
    "HBT-001",
    level="lease",
    spec="heartbeat-holds",
    pace="timed",
    catches=(
        "heartbeat-does-nothing",
        "heartbeat-adds-up",
        "heartbeat-of-one-length",
        "heartbeat-half-a-lease",
        "heartbeat-by-the-client",
        "answers-are-numbers",
    ),
)
async def heartbeat_extends(bench: Bench) -> None:
    """A heartbeat makes the lease run for its full length from now: the run is live past the old end, and over
    at the new."""
    held = await bench.a.win(lease_ms=bench.lease_ms)
    await probe(held, held.deadline, 0.6, bench.b)
    assert await held.heartbeat()
    renewed = bench.deadline(bench.span(bench.calls[-1]), bench.lease_ms)
    assert (await probe(held, renewed, 0.9, bench.b)).outcome == "running"
    await renewed.wait_over()
    assert (await held.claimed_by(bench.b)).outcome == "won"


@rule(
    "HBT-002",
    level="lease",
    spec="heartbeat-holds",
    catches=(
        "heartbeat-adds-up",
        "heartbeat-of-one-length",
        "heartbeat-half-a-lease",
        "heartbeat-by-the-client",
        "error-is-false",
        "answers-are-numbers",
    ),
)
async def heartbeats_do_not_add_up(bench: Bench) -> None:
    """Many heartbeats in a row leave the lease ending one length after the last of them, to the millisecond."""
    held = await bench.a.win(lease_ms=LONG_MS)
    for _ in range(20):
        assert await held.heartbeat()
    await _beat_exactly(bench, held)


@rule(
    "HBT-003",
    level="lease",
    spec=("heartbeat-revives", "calls-guarded"),
    pace="timed",
    catches=("heartbeat-never-revives", "heartbeat-does-nothing", "answers-are-numbers"),
)
async def heartbeat_revives(bench: Bench) -> None:
    """A heartbeat revives a lease that ran out and that nobody took: the run is live, held by the same attempt
    and fence."""
    held = await bench.a.win(lease_ms=bench.lease_ms)
    await held.lapse()
    assert not only((await bench.b.active()).runs).live
    assert await held.heartbeat()
    renewed = bench.deadline(bench.span(bench.calls[-1]), bench.lease_ms)
    told = await probe(held, renewed, 0.5, bench.b)
    assert (told.outcome, told.attempt) == ("running", 1)
    assert (await bench.look())["job", SLOT][:3] == (1, held.fence, "a")
    assert await held.finish()


@rule(
    "HBT-004",
    level="lease",
    spec=("errors-never-outcome", "heartbeat-refused", "calls-refused-writes-nothing"),
    catches=("heartbeat-creates", "heartbeat-of-unknown-is-true"),
)
@answered("a heartbeat that is refused")
async def unknown_run_has_no_heartbeat(bench: Bench) -> None:
    """A heartbeat of an unknown run is refused and creates nothing: its first claim is attempt 1."""
    neighbour = await bench.a.win(slot=SLOT + 1, overlap="allow")
    async with bench.unchanged("job", "other"):
        for slot, job in ((SLOT, "job"), (SLOT + 2, "job"), (SLOT + 1, "other")):
            assert not await bench.b.heartbeat(job, slot, neighbour.token)
    assert (await bench.a.win(job="other", slot=SLOT + 1)).attempt == 1


@rule(
    "HBT-005",
    level="lease",
    spec=("heartbeat-refused", "calls-refused-writes-nothing", "calls-guarded"),
    catches=(
        "token-casefolded",
        "token-padded",
        "token-of-any-slot",
        "heartbeat-of-any-token",
        "token-known-to-its-object",
        "answers-are-numbers",
    ),
)
async def wrong_token_has_no_heartbeat(bench: Bench) -> None:
    """A heartbeat with another token is refused and moves the holder's lease by nothing."""
    held = await bench.a.win(token="the-token")
    other = await bench.a.win(slot=SLOT + 1, overlap="allow")
    async with bench.unchanged():
        for token in ("the-token2", "the-toke", "THE-TOKEN", "the-token ", " the-token", "x", other.token):
            assert not await bench.b.heartbeat("job", SLOT, token)
    assert await held.heartbeat(by=bench.b)


@rule(
    "HBT-006",
    level="lease",
    spec=("heartbeat-refused", "calls-guarded"),
    catches=(
        "heartbeat-revives-released",
        "heartbeat-revives-ended",
        "heartbeat-of-unknown-is-true",
        "won-remembered",
        "answers-are-numbers",
    ),
)
async def ended_run_has_no_heartbeat(bench: Bench) -> None:
    """After the holder's own finish, or release, its heartbeats are refused and do not bring the run back."""
    finished = await bench.a.win(slot=SLOT, overlap="allow")
    released = await bench.a.win(slot=SLOT + 1, overlap="allow")
    assert await finished.finish("failed")
    assert await released.release()
    async with bench.unchanged():
        for run in (finished, released):
            for client in (bench.a, bench.b):
                assert not await run.heartbeat(by=client)
    assert (await bench.a.ask(slot=SLOT)).status == "failed"
    assert (await bench.b.win(slot=SLOT + 1, mode="takeover", after=1, overlap="allow")).attempt == 2


@rule(
    "HBT-007",
    level="lease",
    spec=("heartbeat-refused", "calls-guarded"),
    pace="timed",
    catches=("heartbeat-of-any-token", "won-remembered", "answers-are-numbers"),
)
async def taken_run_has_no_heartbeat(bench: Bench) -> None:
    """After a takeover the old token's heartbeat is refused for ever, also when the successor's lease ran out too."""
    held = await bench.a.win(lease_ms=bench.short_ms)
    await held.lapse()
    taken = await bench.b.win(mode="takeover", after=1, lease_ms=bench.short_ms)
    assert not await held.heartbeat()
    await taken.lapse()
    async with bench.unchanged():
        assert not await held.heartbeat()
        assert not await held.heartbeat(by=bench.b)
    assert (await bench.a.win(mode="takeover", after=2)).attempt == 3
    assert not await held.heartbeat()


@rule(
    "HBT-008",
    level="lease",
    spec=("claim-atomic", "calls-guarded"),
    pace="timed",
    catches=(
        "race-heartbeat",
        "race-takeover",
        "heartbeat-of-any-token",
        "won-remembered",
        "race-claim",
        "sqlite-no-transaction",
    ),
)
async def heartbeat_or_takeover(bench: Bench) -> None:
    """Of a heartbeat and a takeover fired together after the lease one succeeds: a holder that was told `True`
    holds the run."""
    runs = [await bench.a.win(job=f"job {number}", lease_ms=bench.short_ms) for number in range(16)]
    await runs[-1].lapse()
    for number, held in enumerate(runs):
        if number % 2:
            told, beaten = await asyncio.gather(held.claimed_by(bench.b), held.heartbeat())
        else:
            beaten, told = await asyncio.gather(held.heartbeat(), held.claimed_by(bench.b))
        if told.outcome == "won" and beaten:
            # Right only if the heartbeat came first and its short lease ran out before the takeover came.
            end = only(told.previous).ended_at
            assert end > held.expires_at, f"heartbeat was True and the takeover won: {told}"
            assert told.now_ms >= end - bench.loose_ms, f"a takeover won at {told.now_ms} a lease that ends at {end}"
        assert beaten or told.outcome == "won", f"neither heartbeat nor takeover: {told}"
        assert await held.heartbeat() == (told.outcome != "won")


@rule(
    "HBT-009",
    level="lease",
    spec="heartbeat-holds",
    catches=("heartbeat-takes-a-fence", "error-is-false", "answers-are-numbers"),
)
async def heartbeats_have_no_limit(bench: Bench) -> None:
    """A lease is renewed hundreds of times, by any client that knows the token."""
    held = await bench.a.win()
    for _ in range(10):
        beats = [held.heartbeat(by=(bench.a, bench.b)[number % 2]) for number in range(30)]
        assert await asyncio.gather(*beats) == [True] * 30
    assert (await bench.look())["job", SLOT][:3] == (1, held.fence, "a")


@rule(
    "HBT-010",
    level="lease",
    spec=("heartbeat-refused", "word-superseded", "claim-row-6"),
    catches=("heartbeat-revives-ended", "heartbeat-of-unknown-is-true", "supersedes-nothing", "won-remembered"),
)
async def superseded_run_has_no_heartbeat(bench: Bench) -> None:
    """After its run was superseded the old holder's heartbeat is refused, and nothing comes back."""
    held = await bench.a.win(slot=SLOT, lease_ms=bench.short_ms)
    await held.lapse()
    await bench.b.win(slot=SLOT + 1)
    async with bench.unchanged():
        assert not await held.heartbeat()
    assert list(await bench.look()) == [("job", SLOT + 1)]


@rule(
    "HBT-011",
    level="lease",
    spec=("heartbeat-holds", "recorded-times"),
    catches=(
        "heartbeat-starts-anew",
        "heartbeat-of-all-runs",
        "heartbeat-does-nothing",
        "heartbeat-adds-up",
        "heartbeat-takes-a-fence",
        "heartbeat-of-one-length",
    ),
)
async def heartbeat_changes_the_lease_only(bench: Bench) -> None:
    """A heartbeat changes when the lease ends, and neither attempt, fence, holder nor when the attempt was won."""
    held = await bench.a.win()
    other = await bench.a.win(slot=SLOT + 1, overlap="allow")
    await asyncio.sleep(0.02)
    end = await _beat_exactly(bench, held)
    assert end > held.expires_at - bench.loose_ms
    shown = await bench.look()
    assert shown["job", SLOT][:5] == (1, held.fence, "a", True, held.started_at)
    assert shown["job", SLOT + 1][:5] == (1, other.fence, "a", True, other.started_at)
    assert bench.same_time(shown["job", SLOT + 1][-1], other.expires_at)


@rule(
    "HBT-012",
    level="lease",
    spec=("heartbeat-holds", "claim-atomic"),
    catches=(
        "conflict-is-false",
        "heartbeat-adds-up",
        "heartbeat-takes-a-fence",
        "heartbeat-of-one-length",
        "heartbeat-half-a-lease",
        "heartbeat-by-the-client",
    ),
)
async def many_heartbeats_at_once(bench: Bench) -> None:
    """Heartbeats of fifty runs of one object at once all succeed, and each renews its own lease."""
    runs = [await bench.a.win(slot=SLOT + number, overlap="allow", lease_ms=LONG_MS + number) for number in range(50)]
    before = (await bench.b.active()).now_ms
    assert await asyncio.gather(*(run.heartbeat() for run in runs)) == [True] * 50
    active = await bench.b.active()
    assert len(active.runs) == 50
    for run, shown in zip(runs, active.runs, strict=True):
        end, granted = active.now_ms + shown.lease_left_ms, bench.granted(run.claim.lease_ms)
        assert before + granted - bench.loose_ms <= end <= active.now_ms + granted + bench.loose_ms
        assert (shown.slot, shown.attempt, shown.fence) == (run.slot, 1, run.fence)


@rule(
    "HBT-013",
    level="lease",
    spec=("heartbeat-refused", "claim-row-6"),
    pace="timed",
    catches=(
        "heartbeat-revives-ended",
        "exhausted-stays-unfinished",
        "heartbeat-of-unknown-is-true",
        "attempts-one-more",
        "attempts-without-limit",
        "won-remembered",
    ),
)
async def exhausted_run_has_no_heartbeat(bench: Bench) -> None:
    """After its run was ended as exhausted the last holder's heartbeat, finish and release are refused."""
    held = await bench.a.win(lease_ms=bench.short_ms)
    await held.lapse()
    assert (await held.claimed_by(bench.b, max_attempts=1)).status == "exhausted"
    async with bench.unchanged():
        assert not await held.heartbeat()
        assert not await held.finish()
        assert not await held.release()
    assert (await bench.b.ask()).status == "exhausted"


@rule(
    "HBT-014",
    level="lease",
    spec=("heartbeat-revives", "finish-lapsed", "release-holds"),
    pace="timed",
    catches=("heartbeat-revives-for-one-lease", "heartbeat-never-revives"),
)
async def long_lapsed_run_is_still_held(bench: Bench) -> None:
    """A lease that ran out many times its length ago is still revived by its token, or finished, or released, if
    nobody took it."""
    runs = [await bench.a.win(job=verb, lease_ms=bench.short_ms) for verb in VERBS]
    await runs[-1].lapse()
    await asyncio.sleep(min(10 * bench.short_ms, 5_000) / 1_000)
    for verb, held in zip(VERBS, runs, strict=True):
        assert await guarded(bench.b, verb, verb, SLOT, held.token), verb


@rule(
    "HBT-015",
    level="lease",
    spec=("heartbeat-holds", "claim-row-8"),
    catches=("heartbeat-of-the-former-length", "heartbeat-of-one-length", "heartbeat-half-a-lease"),
)
async def each_attempt_has_its_own_length(bench: Bench) -> None:
    """Heartbeats of a takeover renew by the lease of its own claim, shorter or longer than that of the attempt
    before."""
    held = await bench.a.win(lease_ms=LONG_MS)
    for attempt, lease_ms in enumerate((LONG_MS * 2, LONG_MS // 3), 1):
        assert await held.release()
        held = await bench.b.win(after=attempt, lease_ms=lease_ms)
        await _beat_exactly(bench, held)
