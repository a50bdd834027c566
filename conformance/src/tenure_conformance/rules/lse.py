"""Lease: it lasts as long as was asked, by the store's clock, and no longer."""

import asyncio

from tenure.errors import InvalidClaim

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import answered, only, probe, refused
from tenure_conformance.rule import rule
from tenure_conformance.timing import LONG_MS

DAY_MS = 86_400_000


@rule(
    "LSE-001",
    level="lease",
    spec=("word-live", "time-store-clock", "time-interval"),
    pace="timed",
    catches=("clock-too-fast", "expiry-early", "lease-floor-seconds", "clock-of-the-client", "lease-from-the-slot"),
)
async def lease_is_not_over_early(bench: Bench) -> None:
    """A lease is live until its end: `active`, `running` and the guarded calls say so until shortly before it."""
    held = await bench.a.win(lease_ms=bench.lease_ms)
    for part in (0.5, 0.8, 0.95):
        assert (await probe(held, held.deadline, part, bench.b)).outcome == "running"
    shown = only((await bench.b.active()).runs)
    assert shown.live == (shown.lease_left_ms > 0)


@rule(
    "LSE-002",
    level="lease",
    spec=("word-live", "claim-row-8", "time-interval-bound"),
    pace="timed",
    catches=("expired-forgotten", "expiry-never", "lease-ceil-seconds"),
)
async def lease_ends(bench: Bench) -> None:
    """A lease is over when it has run out: the run is not live in `active` and can be taken over at once."""
    held = await bench.a.win(lease_ms=bench.lease_ms)
    await held.lapse()
    for client in (bench.a, bench.b):
        shown = only((await client.active()).runs)
        assert (shown.live, shown.lease_left_ms, shown.attempt) == (False, 0, 1)
    assert (await held.claimed_by(bench.b)).outcome == "won"


@rule(
    "LSE-003",
    level="lease",
    spec=("time-round-up", "time-store-clock"),
    pace="timed",
    catches=("lease-floor-seconds", "clock-of-the-client", "lease-ceil-seconds"),
)
async def lease_is_not_rounded_to_seconds(bench: Bench) -> None:
    """A lease of a second and a half is neither one second nor two, where the store counts in less than seconds."""
    scale = bench.lease_ms // bench.target.lease_ms
    lease_ms = max(1_500, bench.a.capabilities.min_lease_ms + 500) * scale
    held = await bench.a.win(lease_ms=lease_ms)
    assert bench.same_time(held.expires_at - held.started_at, bench.granted(lease_ms))
    assert (await probe(held, held.deadline, 0.9, bench.b)).outcome == "running"
    await held.lapse()
    assert (await held.claimed_by(bench.b)).outcome == "won"


@rule(
    "LSE-004",
    level="lease",
    spec=("time-min-lease", "limits-before-send", "limits-numbers"),
    catches=("least-lease-not-checked",),
)
async def too_short_lease_is_refused(bench: Bench) -> None:
    """A lease below the store's least is InvalidClaim and writes nothing; the least itself is granted."""
    least = bench.a.capabilities.min_lease_ms
    async with bench.unchanged():
        for lease_ms in {least - 1, 0, -1}:
            with refused(InvalidClaim, f"a lease of {lease_ms} ms"):
                await bench.a.ask(lease_ms=lease_ms)
    held = await bench.b.win(lease_ms=least)
    assert bench.same_time(held.expires_at - held.started_at, bench.granted(least))


@rule(
    "LSE-005",
    level="lease",
    spec=("word-live", "claim-row-8"),
    pace="timed",
    catches=(
        "takeover-steals",
        "clock-of-the-client",
        "expired-forgotten",
        "expiry-never",
        "lease-ceil-seconds",
        "sqlite-clock-in-seconds",
    ),
)
async def leases_are_their_own(bench: Bench) -> None:
    """Leases of different lengths in one job run side by side, each as long as its own claim asked."""
    short = await bench.a.win(slot=SLOT, lease_ms=bench.short_ms, overlap="allow")
    long = await bench.a.win(slot=SLOT + 1, lease_ms=LONG_MS, overlap="allow")
    middle = await bench.b.win(slot=SLOT + 2, lease_ms=bench.short_ms * 2, overlap="allow")
    await short.lapse()
    await middle.lapse()
    shown = await bench.look()
    assert [shown["job", SLOT + number][3] for number in range(3)] == [False, True, False]
    assert bench.same_time(shown["job", SLOT + 1][-1], long.expires_at)
    assert (await short.claimed_by(bench.b, overlap="allow")).outcome == "won"
    assert (await long.claimed_by(bench.b, overlap="allow")).outcome == "running"


@rule(
    "LSE-006",
    level="lease",
    spec=("limits-numbers", "word-live"),
    catches=(
        "lease-int32",
        "lease-limit-of-a-day",
        "lease-of-an-hour-at-most",
        "lease-floor-seconds",
        "takeover-steals",
        "lease-ceil-seconds",
    ),
)
@answered("a possible lease")
async def long_leases_do_not_overflow(bench: Bench) -> None:
    """Leases of a month and of ten years are granted to the millisecond."""
    for days in (25, 30, 365 * 10):
        lease_ms = days * DAY_MS + 123
        held = await bench.a.win(job=f"{days} days", lease_ms=lease_ms)
        assert bench.same_time(held.expires_at - held.started_at, bench.granted(lease_ms))
        shown = await bench.look(held.job)
        assert shown[held.job, SLOT][3] is True
        assert bench.same_time(shown[held.job, SLOT][-1], held.expires_at)
        assert (await held.claimed_by(bench.b)).outcome == "running"


@rule(
    "LSE-007",
    level="lease",
    spec=("result-won", "result-running", "active-live", "result-overlap"),
    pace="timed",
    catches=(
        "overlap-full-lease",
        "running-full-lease",
        "sqlite-two-clocks",
        "active-tells-seconds",
        "now-of-entering",
        "won-tells-no-lease",
    ),
)
async def what_is_left_is_exact(bench: Bench) -> None:
    """Every answer that tells what is left of a lease tells the same end of it, by the store's clock, as it
    runs down."""
    held = await bench.a.win(lease_ms=60_000)
    assert bench.same_time(held.expires_at, held.started_at + bench.granted(60_000))
    for _ in range(4):
        for client in (bench.a, bench.b):
            running = await client.ask()
            overlap = await client.ask(slot=SLOT + 1)
            active = await client.active()
            for now_ms, left_ms in (
                (running.now_ms, running.lease_left_ms),
                (overlap.now_ms, overlap.lease_left_ms),
                (active.now_ms, only(active.runs).lease_left_ms),
            ):
                assert left_ms is not None
                assert bench.same_time(now_ms + left_ms, held.expires_at)
        await asyncio.sleep(0.03)


@rule(
    "LSE-008",
    level="lease",
    spec=("time-round-up",),
    catches=("grain-rounds-down", "lease-floor-seconds", "lease-ceil-seconds"),
)
async def lease_is_rounded_up(bench: Bench) -> None:
    """A lease is granted rounded up to the store's granularity and never shorter, whatever its last digits."""
    grain, least = bench.a.capabilities.lease_granularity_ms, bench.a.capabilities.min_lease_ms
    for number, extra in enumerate((0, 1, 2, 499, 501, 999, 1_001, grain - 1, grain + 1)):
        lease_ms = max(least, 7_000) + extra
        held = await bench.a.win(job=f"job {number}", lease_ms=lease_ms)
        granted = held.expires_at - held.started_at
        assert granted >= lease_ms
        assert bench.same_time(granted, bench.granted(lease_ms))


@rule(
    "LSE-009",
    level="lease",
    spec=("claim-row-2", "heartbeat-holds"),
    catches=(
        "same-token-heartbeats-keep-the-length",
        "same-token-keeps-the-old-end",
        "same-token-keeps-the-old-length",
        "heartbeat-adds-up",
        "heartbeat-of-one-length",
        "heartbeat-half-a-lease",
    ),
)
async def renewed_claim_sets_the_length(bench: Bench) -> None:
    """A repeated claim sets the lease's length, shorter or longer, for itself and for the heartbeats after it."""
    held = await bench.a.win(lease_ms=LONG_MS)
    for lease_ms in (LONG_MS // 4, LONG_MS * 3):
        again = await bench.a.ask(token=held.token, lease_ms=lease_ms)
        assert again.outcome == "won"
        assert bench.same_time(again.lease_left_ms, bench.granted(lease_ms))
        before = (await bench.b.active()).now_ms
        assert await held.heartbeat()
        active = await bench.b.active()
        end = active.now_ms + only(active.runs).lease_left_ms
        granted = bench.granted(lease_ms)
        assert before + granted - bench.loose_ms <= end <= active.now_ms + granted + bench.loose_ms


@rule(
    "LSE-010",
    level="lease",
    spec=("word-live", "claim-row-8", "active-all"),
    pace="timed",
    catches=("active-started-with-the-slot", "expired-forgotten", "expiry-never", "lease-ceil-seconds"),
)
async def lapsed_run_stays_known(bench: Bench) -> None:
    """A run whose lease ran out stays known, with its attempt, holder and fence, until someone takes or ends it."""
    held = await bench.a.win(lease_ms=bench.short_ms)
    await held.lapse()
    await asyncio.sleep(0.3)
    shown = await bench.look()
    assert shown["job", SLOT] == (1, held.fence, "a", False, held.started_at, 0)
    told = await bench.b.ask(after=0)
    assert (told.outcome, told.attempt, told.holder, told.lease_left_ms) == ("running", 1, "a", 0)


@rule(
    "LSE-011",
    level="lease",
    spec=("word-live", "claim-row-8", "claim-row-3"),
    pace="timed",
    catches=(
        "expiry-inclusive",
        "former-attempt-steals",
        "takeover-steals",
        "expiry-with-grace",
        "expired-forgotten",
        "expiry-never",
    ),
)
async def end_is_where_now_says(bench: Bench) -> None:
    """Around the end of a lease each claim is answered by its own `now_ms`: before the end `running`, at it no more."""
    for turn in range(10):
        if await _probed_to_the_end(bench, turn) or bench.loose_ms:
            return


async def _probed_to_the_end(bench: Bench, turn: int) -> bool:
    """Probe leases whose ends lie a few milliseconds apart; whether a probe fell on the very end of one."""
    runs = [await bench.a.win(job=f"job {turn} {n}", lease_ms=bench.short_ms + 3 * n) for n in range(24)]
    hit = False
    while runs:
        for held in list(runs):
            told = await held.claimed_by(bench.b)
            if told.now_ms >= held.expires_at + bench.loose_ms:
                assert told.outcome == "won", f"at {told.now_ms}, after the end {held.expires_at}: {told}"
            elif told.now_ms < held.expires_at - bench.loose_ms:
                assert told.outcome == "running", f"at {told.now_ms}, before the end {held.expires_at}: {told}"
            hit = hit or told.now_ms == held.expires_at
            if told.outcome == "won":
                runs.remove(held)
        await asyncio.sleep(0)
    return hit
