"""Finish: the holder ends its run, once, with the first status."""

import asyncio

from tenure.errors import InvalidClaim

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import Client, answered, refused
from tenure_conformance.rule import rule


async def _status(client: Client, slot: int = SLOT, job: str = "job") -> str | None:
    told = await client.takeover(slot, job=job, overlap="allow")
    return told.status if told.outcome == "done" else told.outcome


@rule(
    "FIN-001",
    level="lease",
    spec=("finish-holds", "active-all"),
    catches=(
        "finish-is-always-success",
        "active-with-ended",
        "finish-deletes",
        "finish-does-nothing",
        "answers-are-numbers",
    ),
)
async def finish_ends_the_run(bench: Bench) -> None:
    """The holder's finish is `True`, and the run is ended with its status and no longer in `active`."""
    for slot, status in ((SLOT, "success"), (SLOT + 1, "failed")):
        held = await bench.a.win(slot=slot)
        assert await held.finish("success" if status == "success" else "failed")
        for client in (bench.a, bench.b):
            assert await _status(client, slot) == status
            assert await bench.look(by=client) == {}


@rule(
    "FIN-002",
    level="lease",
    spec=("finish-repeat", "errors-repeat"),
    catches=("finish-once-only", "done-is-success", "token-known-to-its-object", "done-forgotten", "finish-deletes"),
)
async def finish_can_be_repeated(bench: Bench) -> None:
    """Finish repeated with its token is `True`, from any client, and changes nothing."""
    held = await bench.a.win()
    assert await held.finish("failed")
    for client in (bench.a, bench.b, bench.a):
        assert await held.finish("failed", by=client)
    assert await _status(bench.b) == "failed"


@rule(
    "FIN-003",
    level="lease",
    spec="finish-repeat",
    catches=("finish-last-status-wins", "finish-once-only", "done-is-success", "done-forgotten", "finish-deletes"),
)
async def first_status_stays(bench: Bench) -> None:
    """Finish repeated with another status is `True`, and the first status stays."""
    for slot, first, second in ((SLOT, "success", "failed"), (SLOT + 1, "failed", "success")):
        held = await bench.a.win(slot=slot)
        assert await held.finish("success" if first == "success" else "failed")
        assert await held.finish("success" if second == "success" else "failed", by=bench.b)
        assert await _status(bench.a, slot) == first
        assert await _status(bench.b, slot) == first


@rule(
    "FIN-004",
    level="lease",
    spec=("errors-never-outcome", "finish-refused", "calls-refused-writes-nothing"),
    catches=("outcome-is-an-error", "finish-of-unknown-is-true", "finish-again-by-anyone", "finish-of-any-token"),
)
@answered("a finish that is refused")
async def others_cannot_finish(bench: Bench) -> None:
    """Finish of an unknown run, or with a token that does not hold it, is `False` and changes nothing."""
    held = await bench.a.win()
    async with bench.unchanged("job", "other"):
        for client in (bench.a, bench.b):
            assert not await client.finish("job", SLOT, "wrong")
            assert not await client.finish("job", SLOT + 1, held.token)
            assert not await client.finish("other", SLOT, held.token)
    assert (await bench.b.win(job="other")).attempt == 1
    assert await held.finish()
    assert not await bench.b.finish("job", SLOT, "wrong")
    assert not await bench.b.finish("job", SLOT, "wrong", "failed")


@rule(
    "FIN-005",
    level="lease",
    spec=("calls-guarded", "claim-atomic"),
    pace="timed",
    catches=(
        "race-finish",
        "race-takeover",
        "finish-of-any-token",
        "conflict-is-running",
        "race-claim",
        "sqlite-no-transaction",
    ),
)
async def finish_or_takeover(bench: Bench) -> None:
    """Of a finish and a takeover fired together after the lease exactly one succeeds."""
    runs = [await bench.a.win(job=f"job {number}", lease_ms=bench.short_ms) for number in range(16)]
    await runs[-1].lapse()
    for number, held in enumerate(runs):
        if number % 2:
            taken, finished = await asyncio.gather(held.claimed_by(bench.b), held.finish("failed"))
        else:
            finished, taken = await asyncio.gather(held.finish("failed"), held.claimed_by(bench.b))
        assert finished == (taken.outcome != "won"), f"finish: {finished}, takeover: {taken}"
        if finished:
            assert (taken.outcome, taken.status) == ("done", "failed")
        else:
            assert (await bench.look(held.job))[held.job, SLOT][0] == 2


@rule("FIN-006", level="lease", spec="finish-lapsed", pace="timed", catches=("finish-of-lapsed-refused",))
async def lapsed_run_can_be_finished(bench: Bench) -> None:
    """A holder whose lease ran out and whose run nobody took can finish it."""
    held = await bench.a.win(lease_ms=bench.short_ms)
    await held.lapse()
    assert await held.finish("success")
    assert await _status(bench.b) == "success"
    assert await bench.look() == {}


@rule(
    "FIN-007",
    level="lease",
    spec=("finish-after-release", "calls-refused-writes-nothing"),
    catches=("finish-of-released", "release-finishes"),
)
async def released_run_cannot_be_finished(bench: Bench) -> None:
    """Finish after `release` is `False`, and the run stays unfinished for the next attempt."""
    held = await bench.a.win()
    assert await held.release()
    async with bench.unchanged():
        assert not await held.finish()
        assert not await held.finish("failed", by=bench.b)
    assert (await bench.b.win(after=1)).attempt == 2
    assert not await held.finish()


@rule(
    "FIN-008",
    level="lease",
    spec=("finish-refused", "calls-guarded"),
    pace="timed",
    catches=("finish-again-by-anyone", "finish-of-any-token", "answers-are-numbers"),
)
async def taken_run_cannot_be_finished(bench: Bench) -> None:
    """After a takeover the old token's finish is `False`; the successor's run stays its own and ends with its
    status."""
    held = await bench.a.win(lease_ms=bench.short_ms)
    await held.lapse()
    taken = await bench.b.win(mode="takeover", after=1)
    async with bench.unchanged():
        assert not await held.finish("success")
    assert await taken.finish("failed")
    assert not await held.finish("success")
    assert await _status(bench.a) == "failed"


@rule(
    "FIN-009",
    level="lease",
    spec=("finish-refused", "word-superseded"),
    pace="timed",
    catches=(
        "finish-of-superseded-is-true",
        "superseded-is-deleted",
        "superseded-is-failed",
        "supersedes-nothing",
        "done-forgotten",
    ),
)
async def superseded_run_cannot_be_finished(bench: Bench) -> None:
    """Finish of a run that was superseded or exhausted is `False`, and it stays what it is."""
    old = await bench.a.win(slot=SLOT, lease_ms=bench.short_ms)
    spent = await bench.a.win(job="spent", lease_ms=bench.short_ms)
    await old.lapse()
    await spent.lapse()
    await bench.b.win(slot=SLOT + 1)
    assert (await spent.claimed_by(bench.b, max_attempts=1)).status == "exhausted"
    for client in (bench.a, bench.b):
        assert not await old.finish(by=client)
        assert not await spent.finish(by=client)
    assert await _status(bench.b) == "superseded"
    assert await _status(bench.b, job="spent") == "exhausted"


@rule("FIN-010", level="lease", spec=("limits-words", "limits-before-send"), catches=("finish-of-any-status",))
async def unknown_status_is_refused(bench: Bench) -> None:
    """Finish with a status that the protocol does not know is InvalidClaim and ends nothing."""
    held = await bench.a.win()
    async with bench.unchanged():
        for status in ("interrupted", "crashed", "exhausted", "superseded", "Success", "", "released"):
            with refused(InvalidClaim, f"finish as {status!r}"):
                await bench.a.finish("job", SLOT, held.token, status)  # type: ignore[arg-type]  # the point of the rule
    assert await held.finish()


@rule(
    "FIN-011",
    level="lease",
    spec=("finish-holds", "claim-row-13"),
    catches=("overlap-never", "overlap-of-newer-runs-only", "finish-does-nothing", "always-won", "answers-are-numbers"),
)
async def finish_clears_the_way(bench: Bench) -> None:
    """A finished run is no longer in the way of the next slot, at once, whatever was left of its lease."""
    held = await bench.a.win(slot=SLOT)
    assert (await bench.b.ask(slot=SLOT + 1)).outcome == "overlap"
    assert await held.finish()
    newer = await bench.b.win(slot=SLOT + 1)
    assert newer.result.previous == ()


@rule(
    "FIN-012",
    level="lease",
    spec=("finish-holds", "word-run"),
    catches=("finish-does-nothing", "slot-in-seconds", "answers-are-numbers"),
)
async def finish_ends_one_run(bench: Bench) -> None:
    """Finish ends its own run, and leaves the job's other runs and their leases as they were."""
    runs = [await bench.a.win(slot=SLOT + number, overlap="allow") for number in range(4)]
    before = await bench.look()
    assert await runs[1].finish()
    before.pop(("job", SLOT + 1))
    bench.assert_same(before, await bench.look())
    for run in (runs[0], runs[2], runs[3]):
        assert await run.heartbeat()


@rule(
    "FIN-013",
    level="lease",
    spec=("finish-repeat", "bounds-skip", "calls-guarded"),
    catches=(
        "finish-last-status-wins",
        "finish-once-only",
        "supersedes-ended-runs",
        "done-is-success",
        "token-known-to-its-object",
        "done-forgotten",
    ),
)
async def finish_can_be_repeated_later(bench: Bench) -> None:
    """Finish repeated with its token is `True` also after newer runs, while its record is surely kept."""
    held = await bench.a.win(slot=SLOT)
    assert await held.finish("failed")
    for number in range(1, 15):
        newer = await bench.b.win(slot=SLOT + number)
        assert await held.finish("success")
        assert await newer.finish()
    assert await held.finish("success", by=bench.b)
    assert await _status(bench.b) == "failed"
