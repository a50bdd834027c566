"""Bounds: what the store keeps, what it may drop, and what it never forgets."""

import asyncio
from collections.abc import Sequence

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import Held, answered, only
from tenure_conformance.rule import rule
from tenure_conformance.situations import OVERLAPS


@rule(
    "BND-001",
    level="lease",
    spec=("bounds-skip", "finish-repeat"),
    catches=(
        "keeps-fifteen",
        "keeps-the-oldest",
        "finish-once-only",
        "supersedes-ended-runs",
        "done-is-success",
        "done-forgotten",
    ),
)
async def sixteen_ended_runs_are_kept(bench: Bench) -> None:
    """Under `skip` at least the sixteen newest ended runs are kept, with their status and their token."""
    runs = []
    for number in range(40):
        held = await bench.a.win(slot=SLOT + number)
        assert await held.finish("failed" if number % 2 else "success")
        runs.append(held)
    await bench.a.win(slot=SLOT + 40)
    for number in range(24, 40):
        told = await bench.b.ask(slot=SLOT + number)
        assert (told.outcome, told.status) == ("done", "failed" if number % 2 else "success"), number
        assert told.attempt == 1
        assert await runs[number].finish("success", by=bench.b)


@rule(
    "BND-002",
    level="lease",
    spec=("bounds-floor", "claim-row-9", "bounds-skip", "word-floor"),
    catches=(
        "floor-exclusive",
        "floor-forgotten-by-finish",
        "floor-one-too-low",
        "keeps-the-oldest",
        "floor-ignored",
        "floor-not-raised",
    ),
)
async def dropped_runs_never_start(bench: Bench) -> None:
    """A run whose record was dropped is `done` for ever, under either overlap rule and in any mode, and so are
    older ones."""
    for number in range(1, 60):
        held = await bench.a.win(slot=SLOT + number * 10)
        assert await (held.finish() if number % 4 else held.release())
    for number in range(1, 60):
        for overlap in OVERLAPS:
            told = await bench.b.ask(slot=SLOT + number * 10, overlap=overlap)
            if number < 59 or overlap == "skip":
                assert told.outcome == "done", f"slot {number} of 59 under {overlap}: {told}"
    assert (await bench.b.ask(slot=SLOT)).status == "superseded"


@rule(
    "BND-003",
    level="lease",
    spec=("bounds-allow", "finish-repeat"),
    catches=(
        "keeps-one-less-under-allow",
        "keeps-too-few-under-allow",
        "keeps-the-oldest",
        "supersedes-ended-runs",
        "done-is-success",
        "done-forgotten",
    ),
)
async def ended_runs_are_kept_under_allow(bench: Bench) -> None:
    """Under `allow` the 128 newest ended runs are kept, with their status, by slot and not by when they ended."""
    count = 140
    slots = list(range(count))
    bench.random.shuffle(slots)
    runs = {number: await bench.a.win(slot=SLOT + number, overlap="allow") for number in range(count)}
    for number in slots:
        assert await runs[number].finish("failed" if number % 3 else "success")
    last = await bench.a.win(slot=SLOT + count, overlap="allow")
    for number in range(count):
        told = await bench.b.ask(slot=SLOT + number, overlap="allow")
        assert told.outcome == "done", f"slot {number} of {count}: {told}"
        if number >= count - 128:
            assert told.status == ("failed" if number % 3 else "success"), f"slot {number} of {count}: {told}"
    assert await last.heartbeat()


@rule(
    "BND-004",
    level="lease",
    spec=("bounds-allow", "bounds-allow-excess", "previous-superseded"),
    pace="heavy",
    catches=(
        "keeps-all-unfinished",
        "keeps-one-unfinished-less",
        "supersedes-instead-of-the-live",
        "supersedes-the-live-excess",
        "active-first-page",
        "prunes-live-runs",
        "previous-empty",
    ),
)
@answered("many runs")
async def unfinished_runs_are_bounded(bench: Bench) -> None:
    """Under `allow` a thousand unfinished runs are kept; older ones that are over are superseded at the next win."""
    clients = await bench.clients(4)
    runs: dict[int, Held] = {}

    async def win(number: int) -> None:
        runs[number] = await clients[number % 4].win(slot=SLOT + number, overlap="allow", instance=f"h{number}")
        assert runs[number].result.previous == ()

    for start in range(0, 1_000, 20):
        await asyncio.gather(*(win(number) for number in range(start, start + 20)))
        if start == 200:
            for number in (0, 1, 3, 179):
                assert await runs[number].release()
    assert len((await bench.b.active()).runs) == 1_000
    for extra, superseded in ((1_000, 0), (1_001, 1)):
        held = await bench.b.win(slot=SLOT + extra, overlap="allow")
        lost = only(held.result.previous)
        assert lost == runs[superseded].lost(released=True, ended_at=lost.ended_at)
    # The oldest is live now: it is not superseded, and neither is a younger one instead of it.
    assert (await bench.b.win(slot=SLOT + 1_002, overlap="allow")).result.previous == ()
    assert [run.slot - SLOT for run in (await bench.a.active()).runs] == list(range(2, 1_003))
    # Behind it the next one too many is over, and goes alone.
    held = await bench.b.win(slot=SLOT + 1_003, overlap="allow")
    assert [one.slot - SLOT for one in held.result.previous] == [3]
    assert [run.slot - SLOT for run in (await bench.a.active()).runs] == [2, *range(4, 1_004)]
    taken = await bench.a.win(slot=SLOT + 179, overlap="allow", after=1)
    assert [one.slot - SLOT for one in taken.result.previous] == [179]
    assert await runs[2].heartbeat()
    assert not await runs[0].release()
    told = await bench.a.ask(slot=SLOT, overlap="allow", after=1)
    assert (told.outcome, told.status) == ("done", "superseded")


@rule(
    "BND-005",
    level="lease",
    spec=("bounds-floor", "bounds-never-dropped", "claim-row-9"),
    catches=("floor-ignored", "floor-not-raised", "older-slot-superseded-under-allow"),
)
async def floor_never_goes_down(bench: Bench) -> None:
    """Slots at or below a dropped run can never start, under `allow` too, however many runs end after it."""
    for number in range(150):
        held = await bench.a.win(slot=SLOT + 1_000 + number, overlap="allow")
        assert await held.finish()
    assert (await bench.a.win(slot=SLOT + 2_000, overlap="allow")).attempt == 1
    for slot in (SLOT + 1_000, SLOT + 1_001, SLOT + 1_010):
        for mode in ("scheduled", "manual"):
            told = await bench.b.ask(slot=slot, overlap="allow", mode="manual" if mode == "manual" else "scheduled")
            assert told.outcome == "done", f"{slot - SLOT}: {told}"
    assert (await bench.b.ask(slot=SLOT + 1_500, overlap="allow")).outcome == "won"


@rule(
    "BND-009",
    level="lease",
    spec=("bounds-floor", "bounds-never-dropped"),
    catches=("floor-goes-down", "floor-forgotten-by-finish", "floor-ignored", "floor-not-raised"),
)
async def late_end_does_not_lower_the_floor(bench: Bench) -> None:
    """An old run that ends and is dropped last lets no slot start that was dropped before it."""
    old = await bench.a.win(slot=SLOT, overlap="allow")
    for number in range(1, 150):
        held = await bench.a.win(slot=SLOT + number * 10, overlap="allow")
        # The last one stays, so that at the next win the old run is the only one too many.
        assert number == 149 or await held.finish()
    assert await old.finish()
    await bench.a.win(slot=SLOT + 1_500, overlap="allow")
    for number in range(20):
        for client in (bench.a, bench.b):
            assert (await client.ask(slot=SLOT + number * 10, overlap="allow")).outcome == "done", number


@rule(
    "BND-006",
    level="lease",
    spec=("bounds-skip", "claim-supersedes", "bounds-allow"),
    catches=("supersedes-under-allow",),
)
async def unfinished_runs_are_not_dropped(bench: Bench) -> None:
    """Under `allow` an unfinished run is kept and can be taken, however many newer runs end."""
    old = await bench.a.win(slot=SLOT, overlap="allow")
    live = await bench.a.win(slot=SLOT + 1, overlap="allow")
    assert await old.release()
    for number in range(2, 150):
        held = await bench.b.win(slot=SLOT + number, overlap="allow")
        assert await held.finish()
    assert [slot - SLOT for _, slot in await bench.look()] == [0, 1]
    assert await live.heartbeat()
    assert (await bench.b.win(slot=SLOT, after=1, overlap="allow")).attempt == 2


@rule(
    "BND-007",
    level="lease",
    spec=("bounds-skip", "claim-row-1", "newer-counts-dropped"),
    catches=("overtaken-by-live-runs-only", "finish-deletes", "always-won"),
)
async def old_slots_stay_superseded(bench: Bench) -> None:
    """Under `skip` slots that never started stay superseded when the newer runs that replaced them were dropped."""
    for number in range(60):
        held = await bench.a.win(slot=SLOT + number * 10)
        assert await held.finish()
    for number in range(60):
        told = await bench.b.ask(slot=SLOT + number * 10 - 5)
        assert (told.outcome, told.status) == ("done", "superseded"), number


@rule(
    "BND-008",
    level="lease",
    spec=("bounds-floor", "claim-row-14", "bounds-allow"),
    catches=(
        "floor-too-high",
        "floor-of-the-namespace",
        "keeps-one-less-under-allow",
        "keeps-too-few-under-allow",
        "overlap-always",
        "error-is-running",
    ),
)
async def floor_is_not_too_high(bench: Bench) -> None:
    """A slot above every run that may have been dropped can start under `allow`, also between kept ones."""
    for overlap, kept in zip(OVERLAPS, (16, 128), strict=True):
        count = kept + 12
        for number in range(count):
            held = await bench.a.win(job=overlap, slot=SLOT + number * 10, overlap=overlap)
            assert await held.finish()
        await bench.a.win(job=overlap, slot=SLOT + count * 10, overlap=overlap)
        for number in (count - 1, count - kept + 1, count - kept):
            between = await bench.b.win(job=overlap, slot=SLOT + number * 10 - 5, overlap="allow")
            assert (between.attempt, between.result.previous) == (1, ())


@rule(
    "BND-010",
    level="lease",
    spec=("bounds-floor", "claim-supersedes", "word-floor", "word-fence"),
    catches=("floor-of-the-namespace",),
)
async def jobs_are_bounded_apart(bench: Bench) -> None:
    """Newer, superseding and dropped runs of one job leave every other job's runs and floor as they were."""
    lost = await bench.a.win(job="other", slot=SLOT)
    assert await lost.release()
    ended = await bench.a.win(job="third", slot=SLOT)
    assert await ended.finish("failed")
    for number in range(1, 150):
        held = await bench.b.win(slot=SLOT + number * 10, overlap=OVERLAPS[number % 2])
        assert await (held.finish() if number % 3 else held.release())
    assert await bench.look("other") == {("other", SLOT): (1, lost.fence, "a", False, lost.started_at, 0)}
    assert (await bench.b.ask(job="third", slot=SLOT)).status == "failed"
    assert (await bench.b.win(job="fourth", slot=SLOT - 1)).attempt == 1
    assert (await bench.b.win(job="third", slot=SLOT + 5)).attempt == 1
    taken = await bench.b.win(job="other", slot=SLOT, after=1)
    assert (taken.attempt, [one.slot for one in taken.result.previous]) == (2, [SLOT])


@rule(
    "BND-011",
    level="lease",
    spec=("bounds-floor", "bounds-never-dropped", "calls-guarded"),
    catches=(
        "floor-forgotten-by-heartbeats",
        "floor-ignored",
        "floor-not-raised",
        "race-finish",
        "answers-are-numbers",
    ),
)
async def no_call_lowers_the_floor(bench: Bench) -> None:
    """Heartbeat, repeated claim, release, takeover and finish leave the floor of their job where it was."""
    live = await bench.a.win(slot=SLOT + 9_000, overlap="allow")
    await _end(bench, [SLOT + number * 10 for number in range(1, 150)])
    await bench.b.win(slot=SLOT + 8_000, overlap="allow")
    after = live.attempt
    for _ in range(2):
        assert await live.heartbeat()
        await _assert_dropped(bench, "a heartbeat")
        assert (await live.again()).outcome == "won"
        await _assert_dropped(bench, "a repeated claim")
        assert await live.release()
        await _assert_dropped(bench, "a release")
        live = await bench.b.win(slot=SLOT + 9_000, overlap="allow", after=after)
        after += 1
        await _assert_dropped(bench, "a takeover")
    assert await live.finish()
    await _assert_dropped(bench, "a finish")


async def _end(bench: Bench, slots: Sequence[int]) -> list[Held]:
    """Runs of these slots that were won and finished, the older ones first."""
    runs: list[Held] = []
    for start in range(0, len(slots), 30):
        some = await asyncio.gather(*(bench.b.win(slot=slot, overlap="allow") for slot in slots[start : start + 30]))
        assert all(await asyncio.gather(*(run.finish() for run in some)))
        runs += some
    return runs


async def _assert_dropped(bench: Bench, what: str) -> None:
    for slot in (SLOT, SLOT + 10, SLOT + 15, SLOT + 50):
        told = await bench.a.ask(slot=slot, overlap="allow")
        assert (told.outcome, told.status) == ("done", "superseded"), f"after {what}: {told}"


@rule(
    "BND-012",
    level="lease",
    spec=("bounds-allow", "bounds-floor", "word-floor"),
    catches=("keeps-the-oldest", "floor-ignored", "floor-not-raised"),
)
async def ended_runs_are_forgotten(bench: Bench) -> None:
    """Ended runs do not pile up under `allow`: of three hundred the oldest are known no more, nor are their tokens."""
    runs = await _end(bench, [SLOT + number for number in range(300)])
    for run in runs[:20]:
        told = await bench.b.ask(slot=run.slot, overlap="allow")
        assert (told.outcome, told.status, told.attempt) == ("done", "superseded", None)
        assert not await run.finish()
