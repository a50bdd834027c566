"""Lateness: a first start has a window around its slot, by the store's clock."""

from collections.abc import Awaitable, Callable

from tenure.model import EARLY_MS, ClaimResult

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.rule import rule
from tenure_conformance.situations import MODES
from tenure_conformance.timing import Uncertain

HOUR_MS = 3_600_000
CENTURIES_MS = 500 * 365 * 24 * HOUR_MS


async def _around(
    bench: Bench,
    boundary_ms: int,
    claim: Callable[[int], Awaitable[ClaimResult]],
    judge: Callable[[int, ClaimResult], None],
) -> None:
    """Claim slots about ``boundary_ms`` before the store's clock, until both sides were hit to the millisecond."""
    exact = bench.loose_ms == 0
    hit: set[int] = set()
    lag_ms = 0  # from the reading of the clock to the claim's own, as the last one had it
    for number in range(1_600):
        now = (await bench.a.active()).now_ms
        slot = now + lag_ms - boundary_ms + number % 4 - 1
        told = await claim(slot)
        lag_ms = min(told.now_ms - now, EARLY_MS // 4)
        distance = told.now_ms - slot
        judge(distance, told)
        hit.add(distance - boundary_ms)
        if (number > 12 and not exact) or {0, 1, -1} <= hit:
            return
    raise Uncertain(f"the boundary was not met to the millisecond, only at {sorted(hit)}")


@rule(
    "LAT-001",
    level="lease",
    spec=("claim-row-12", "claim-writes", "result-late"),
    catches=("late-is-recorded", "late-zero-is-no-limit", "late-never"),
)
async def late_run_is_not_started(bench: Bench) -> None:
    """A first claim whose limit is passed is `late` and writes nothing: a later claim with a larger limit wins
    attempt 1."""
    async with bench.unchanged():
        for max_late_ms in (0, 1, 60_000):
            for mode in MODES[:3]:
                told = await bench.b.ask(max_late_ms=max_late_ms, mode=mode)
                assert told.outcome == "late"
    assert (await bench.a.win(max_late_ms=CENTURIES_MS)).attempt == 1
    assert (await bench.b.ask(slot=SLOT - 1)).outcome == "done"


@rule(
    "LAT-002",
    level="lease",
    spec=("claim-row-12", "time-interval-late", "time-store-clock"),
    catches=(
        "late-with-grace",
        "late-at-the-limit",
        "late-by-the-client",
        "late-in-seconds",
        "late-never",
        "sqlite-two-clocks",
        "now-of-the-client",
    ),
)
async def late_begins_after_the_limit(bench: Bench) -> None:
    """A run is late from one millisecond after its limit on, and not at it, by the `now_ms` of the very answer."""
    for limit in (5_000, 0):
        await _late_begins_after(bench, limit)


async def _late_begins_after(bench: Bench, limit: int) -> None:
    def judge(distance: int, told: ClaimResult) -> None:
        if distance <= limit - bench.loose_ms:
            assert told.outcome == "won", f"{distance} ms after the slot, limit {limit}: {told}"
        if distance > limit + bench.loose_ms:
            assert told.outcome == "late", f"{distance} ms after the slot, limit {limit}: {told}"

    jobs = iter(range(100_000))

    async def claim(slot: int) -> ClaimResult:
        return await bench.b.ask(job=f"{limit} {next(jobs)}", slot=slot, max_late_ms=limit)

    await _around(bench, limit, claim, judge)


@rule(
    "LAT-003",
    level="lease",
    spec=("claim-late-first", "claim-row-2", "claim-row-8"),
    catches=(
        "takeover-late",
        "same-token-running",
        "takeover-needs-its-mode",
        "attempt-stuck",
        "retry-with-a-fresh-token",
    ),
)
async def known_run_is_not_late(bench: Bench) -> None:
    """Neither the repetition of a win nor a takeover is late, with any limit."""
    held = await bench.a.win()
    again = await bench.b.ask(token=held.token, max_late_ms=0)
    assert (again.outcome, again.attempt) == ("won", 1)
    assert await held.release()
    for after, mode in enumerate(MODES, 1):
        taken = await bench.b.win(mode=mode, after=after, max_late_ms=0)
        assert await taken.release()


@rule(
    "LAT-004",
    level="lease",
    spec=("claim-row-12", "claim-row-14", "limits-numbers"),
    catches=("late-by-the-client", "late-in-seconds", "late-is-recorded", "late-never", "always-running"),
)
async def without_limit_never_late(bench: Bench) -> None:
    """Without a limit no run is late, not the oldest; and a limit is kept in milliseconds."""
    assert (await bench.a.win(slot=0)).attempt == 1
    now = (await bench.a.active()).now_ms
    assert (await bench.b.ask(job="x", slot=now - 700, max_late_ms=600)).outcome == "late"
    assert (await bench.b.ask(job="x", slot=now - 1_400, max_late_ms=1_000)).outcome == "late"
    assert (await bench.b.ask(job="x", slot=now - 700, max_late_ms=60_000)).outcome == "won"


@rule(
    "LAT-005",
    level="lease",
    spec=("recorded-times", "claim-row-12", "claim-row-14", "claim-row-11"),
    catches=("started-with-the-slot", "late-when-early", "early-at-all", "always-running"),
)
async def slot_ahead_is_not_late(bench: Bench) -> None:
    """A slot that the store's clock has not quite reached is started, even with no lateness allowed."""
    for number in range(5):
        slot = (await bench.a.active()).now_ms + EARLY_MS - 300 - 2 * bench.a.capabilities.clock_error_ms
        told = await bench.b.ask(job=f"job {number}", slot=slot, max_late_ms=0)
        if slot < told.now_ms:
            raise Uncertain("the slot was due before it could be claimed")
        assert (told.outcome, told.attempt) == ("won", 1)
        assert bench.same_time((await bench.look(f"job {number}"))[f"job {number}", slot][4], told.now_ms)


@rule(
    "LAT-006",
    level="lease",
    spec=("claim-row-11", "result-none", "claim-writes", "time-instance-wrong"),
    catches=("wait-missing-for-takeover", "early-never", "wait-in-seconds"),
)
async def slot_far_ahead_waits(bench: Bench) -> None:
    """A slot more than a second ahead is `none` with the time until it, in any mode, and writes nothing."""
    async with bench.unchanged():
        for ahead in (EARLY_MS + 2_000, HOUR_MS, 24 * HOUR_MS, CENTURIES_MS):
            for mode in MODES:
                slot = (await bench.a.active()).now_ms + ahead
                told = await bench.b.ask(slot=slot, mode=mode, max_late_ms=0)
                if slot - told.now_ms <= EARLY_MS:
                    raise Uncertain("the slot was near before it could be claimed")
                assert told.outcome == "none"
                assert bench.same_time(told.wait_ms, slot - told.now_ms)
    assert (await bench.a.win(slot=SLOT)).attempt == 1


@rule(
    "LAT-007",
    level="lease",
    spec=("claim-row-11", "time-interval-late", "time-store-clock"),
    catches=(
        "early-by-one-more",
        "early-inclusive",
        "early-at-all",
        "early-never",
        "wait-in-seconds",
        "now-of-the-client",
    ),
)
async def early_begins_after_a_second(bench: Bench) -> None:
    """A slot exactly a second ahead of the store's clock is started, and one millisecond more is not."""

    def judge(distance: int, told: ClaimResult) -> None:
        if distance >= -EARLY_MS + bench.loose_ms:
            assert told.outcome == "won", f"{-distance} ms ahead: {told}"
        if distance < -EARLY_MS - bench.loose_ms:
            assert told.outcome == "none", f"{-distance} ms ahead: {told}"
            assert bench.same_time(told.wait_ms, -distance)

    jobs = iter(range(100_000))
    await _around(bench, -EARLY_MS, lambda slot: bench.b.ask(job=f"j{next(jobs)}", slot=slot), judge)


@rule(
    "LAT-008",
    level="lease",
    spec=("claim-order", "claim-row-9", "claim-row-12", "claim-row-11"),
    catches=(
        "late-after-overlap",
        "takeover-of-nothing-is-late",
        "late-is-recorded",
        "late-zero-is-no-limit",
        "early-never",
        "overtaken-by-ended-runs-only",
    ),
)
async def lateness_has_its_place(bench: Bench) -> None:
    """A superseded slot is not late, a late or early one is not told of an overlap, and a takeover is neither."""
    held = await bench.a.win(slot=SLOT)
    assert (await bench.b.ask(slot=SLOT - 1, max_late_ms=0)).status == "superseded"
    assert (await bench.b.ask(slot=SLOT + 1, max_late_ms=0)).outcome == "late"
    assert (await bench.b.ask(slot=held.started_at + HOUR_MS)).outcome == "none"
    assert (await bench.b.takeover(SLOT + 1, after=0, max_late_ms=0)).outcome == "none"
    assert (await bench.b.ask(slot=SLOT + 1, max_late_ms=CENTURIES_MS)).outcome == "overlap"


@rule(
    "LAT-009",
    level="lease",
    spec=("claim-row-12", "claim-row-9", "word-floor"),
    catches=("late-is-recorded", "late-zero-is-no-limit", "late-never"),
)
async def late_claim_starts_nothing(bench: Bench) -> None:
    """A late or early claim counts as no start: older slots can still be started after it."""
    now = (await bench.a.active()).now_ms
    assert (await bench.a.ask(slot=SLOT + 5, max_late_ms=0)).outcome == "late"
    assert (await bench.a.ask(slot=now + HOUR_MS)).outcome == "none"
    assert (await bench.a.takeover(SLOT + 4, after=0)).outcome == "none"
    assert (await bench.b.win(slot=SLOT)).attempt == 1


@rule(
    "LAT-010",
    level="lease",
    spec=("result-none", "claim-none-wait", "claim-row-10"),
    catches=("wait-missing-for-takeover", "wait-in-seconds", "wait-below-zero", "takeover-creates"),
)
async def wait_ends_at_the_slot(bench: Bench) -> None:
    """A takeover of an unknown run carries `wait_ms` until the millisecond before its slot, and none from it on."""

    def judge(distance: int, told: ClaimResult) -> None:
        assert told.outcome == "none"
        if distance >= bench.loose_ms:
            assert told.wait_ms is None, f"{distance} ms after the slot: {told}"
        if distance < -bench.loose_ms:
            assert bench.same_time(told.wait_ms, -distance), f"{-distance} ms before the slot: {told}"

    await _around(bench, 0, lambda slot: bench.b.takeover(slot, after=0), judge)
