"""Precision: milliseconds, whole, from 1970 to the year 9999."""

import asyncio

from tenure.model import MAX_SLOT

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import answered
from tenure_conformance.records import attempted
from tenure_conformance.rule import rule
from tenure_conformance.situations import MODES


@rule(
    "PRC-001",
    level="lease",
    spec=("word-slot", "word-run"),
    catches=("slot-of-results-in-seconds", "slot-in-32-bits", "slot-in-seconds"),
)
async def a_millisecond_makes_a_run(bench: Bench) -> None:
    """Slots that lie one millisecond apart are different runs, everywhere that a slot is told."""
    slots = [SLOT + number for number in (0, 1, 2, 999, 1_000, 1_001)]
    for slot in slots:
        held = await bench.a.win(slot=slot, overlap="allow")
        assert held.attempt == 1
        await bench.a.save_result("job", attempted(slot))
    assert [slot for _, slot in await bench.look()] == slots
    assert [one.slot for one in await bench.b.results()] == slots[::-1]
    assert await bench.b.release("job", slots[1], "wrong") is False
    told = await bench.b.ask(slot=slots[-1] + 1)
    assert (told.outcome, told.slot) == ("overlap", slots[-1])


@rule(
    "PRC-002",
    level="lease",
    spec=("limits-slot", "word-floor", "claim-row-14"),
    catches=(
        "slot-zero-is-below",
        "overlap-always",
        "lease-from-the-slot",
        "slot-in-32-bits",
        "error-is-running",
        "always-running",
    ),
)
@answered("a possible slot")
async def extreme_slots_work(bench: Bench) -> None:
    """Slots from 0 on, around powers of two, are won, shown and finished exactly."""
    slots = [0, 1, 2, 10, 255, 256, 999, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, 2**40 - 1, 2**40]
    for slot in slots:
        held = await bench.a.win(slot=slot, overlap="allow")
        assert held.attempt == 1, slot
    assert [slot for _, slot in await bench.look()] == slots
    for slot in slots:
        assert (await bench.b.ask(slot=slot)).outcome == "running", slot
    told = await bench.b.ask(slot=2**40 + 5)
    assert (told.outcome, told.slot) == ("overlap", 2**40)


@rule(
    "PRC-003",
    level="lease",
    spec=("limits-slot", "result-none", "claim-row-11"),
    catches=("slot-limit-of-2038", "wait-missing-for-takeover", "early-never", "wait-in-seconds", "slot-in-32-bits"),
)
@answered("a possible slot")
async def far_slots_are_told_exactly(bench: Bench) -> None:
    """For slots up to the end of the year 9999 the time to wait is told to the millisecond, and calls on them
    are refused."""
    for slot in (MAX_SLOT, MAX_SLOT - 1, 4_102_444_800_001):
        for mode in MODES:
            told = await bench.b.ask(slot=slot, mode=mode)
            assert told.outcome == "none"
            assert bench.same_time(told.wait_ms, slot - told.now_ms)
        assert not await bench.a.heartbeat("job", slot, "token")
        assert not await bench.a.finish("job", slot, "token")
        assert not await bench.a.release("job", slot, "token")
        await bench.a.save_result("job", attempted(slot))
    assert [one.slot for one in await bench.b.results()] == [MAX_SLOT, MAX_SLOT - 1, 4_102_444_800_001]


@rule(
    "PRC-004",
    level="lease",
    spec=("claim-now", "result-now"),
    pace="timed",
    catches=("clock-in-tens", "sqlite-clock-in-seconds", "now-in-seconds"),
)
async def clock_counts_milliseconds(bench: Bench) -> None:
    """The store's clock counts milliseconds: its readings are not rounded to tens, hundreds or seconds."""
    told = []
    for number in range(40):
        told.append((await bench.a.ask(slot=SLOT + number, overlap="allow")).now_ms)
        await asyncio.sleep(0.003)
    coarse = next(step for step in (1_000, 100, 10, 5, 2, 1) if len({now % step for now in told}) == 1)
    assert coarse <= max(1, bench.loose_ms), f"every reading is a multiple of {coarse} ms away from the others: {told}"


@rule(
    "PRC-005",
    level="lease",
    spec=("result-won", "active-live", "heartbeat-holds"),
    catches=(
        "heartbeat-adds-up",
        "heartbeat-of-one-length",
        "heartbeat-half-a-lease",
        "heartbeat-by-the-client",
        "sqlite-two-clocks",
        "active-tells-seconds",
        "won-tells-no-lease",
    ),
)
@answered("a possible lease")
async def odd_leases_are_exact(bench: Bench) -> None:
    """Leases of odd lengths are told back to the millisecond, after the win, its repetition and a heartbeat."""
    for number, lease_ms in enumerate((60_001, 59_999, 123_457, 2**31 - 1, 2**31 + 1, 2**32 + 1)):
        job = f"job {number}"
        held = await bench.a.win(job=job, lease_ms=lease_ms)
        granted = bench.granted(lease_ms)
        assert bench.same_time(held.result.lease_left_ms, granted)
        assert bench.same_time((await held.again(by=bench.b)).lease_left_ms, granted)
        before = (await bench.b.active(job)).now_ms
        assert await held.heartbeat()
        end = (await bench.look(job))[job, SLOT][-1]
        assert before + granted - bench.loose_ms <= end <= before + granted + 30_000


@rule("PRC-006", level="lease", spec=("word-slot", "names-exact"), catches=("slot-in-seconds",))
async def neighbours_of_a_slot_are_unknown(bench: Bench) -> None:
    """A call on a slot next to a known one finds nothing: slots are neither rounded nor searched."""
    held = await bench.a.win(slot=SLOT + 500)
    async with bench.unchanged():
        for slot in (SLOT, SLOT + 499, SLOT + 501, SLOT + 1_000, (SLOT + 500) // 1_000, (SLOT + 500) * 10):
            assert not await bench.b.heartbeat("job", slot, held.token)
            assert not await bench.b.finish("job", slot, held.token)
            assert not await bench.b.release("job", slot, held.token)
            assert (await bench.b.takeover(slot, overlap="allow")).outcome == "none"
    assert await held.finish()
