"""Clock: a process whose wall clock is wrong by an hour neither steals, nor loses, nor starts at the wrong time."""

import asyncio

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import answered, outcomes, probe
from tenure_conformance.processes.remote import HOUR_MS, Worker, hire
from tenure_conformance.rule import rule

DUE_MS = 20_000
"""How far ahead of the store's clock a slot is that is surely not due, on any machine."""


async def _wrong_by_an_hour(bench: Bench) -> tuple[Worker, Worker]:
    """A process whose clock is fast, and one whose clock is slow."""
    fast, slow = await hire(bench, "fast", "slow", skews_ms=(HOUR_MS, -HOUR_MS))
    return fast, slow


@rule("CLK-001", level="processes", spec=("time-instance-wrong", "time-store-clock", "claim-row-3"), pace="process")
@answered("processes with wrong clocks")
async def wrong_clocks_do_not_steal(bench: Bench) -> None:
    """A process whose clock is wrong by an hour is told `running` until a lease is over by the store's clock, and can
    take the run then."""
    wrong = await _wrong_by_an_hour(bench)
    held = [await bench.a.win(job=worker.name, lease_ms=bench.lease_ms) for worker in wrong]
    for worker, run in zip(wrong, held, strict=True):
        answer = await probe(run, run.deadline, 0.5, worker)
        assert (answer.outcome, answer.attempt) == ("running", 1), f"{worker.name} clock: {answer}"
        assert answer.lease_left_ms is not None
        assert 0 < answer.lease_left_ms <= bench.granted(bench.lease_ms) + bench.loose_ms
    for worker, run in zip(wrong, held, strict=True):
        await run.lapse()
        answer = await run.claimed_by(worker)
        assert (answer.outcome, answer.attempt) == ("won", 2), f"{worker.name} clock: {answer}"


@rule("CLK-002", level="processes", spec=("time-instance-wrong", "time-store-clock", "heartbeat-holds"), pace="process")
@answered("processes with wrong clocks")
async def wrong_clocks_do_not_lose(bench: Bench) -> None:
    """A holder whose clock is wrong by an hour keeps its run for exactly the lease, and renews it, by the store's
    clock."""
    wrong = await _wrong_by_an_hour(bench)
    held = [await worker.win(job=worker.name, lease_ms=bench.lease_ms) for worker in wrong]
    for run in held:
        assert bench.same_time(run.expires_at - run.started_at, bench.granted(bench.lease_ms))
        assert (await probe(run, run.deadline, 0.6, bench.b)).outcome == "running", f"{run.client.name} clock"
    renewed = []
    for run in held:
        assert await run.heartbeat()
        renewed.append(bench.deadline(bench.span(bench.calls[-1]), bench.lease_ms))
    for run, deadline in zip(held, renewed, strict=True):
        assert (await probe(run, deadline, 0.6, bench.b)).outcome == "running", f"{run.client.name} clock, renewed"
    for run, deadline in zip(held, renewed, strict=True):
        await deadline.wait_over()
        assert (await run.claimed_by(bench.b)).outcome == "won", f"the lease of the {run.client.name} clock did not end"


@rule("CLK-003", level="processes", spec=("time-instance-wrong", "claim-row-11", "claim-row-10"), pace="process")
@answered("processes with wrong clocks")
async def wrong_clocks_do_not_start_early(bench: Bench) -> None:
    """A process whose clock is wrong by an hour starts no run before its slot by the store's clock, and every run
    that is due."""
    wrong = await _wrong_by_an_hour(bench)
    for worker in wrong:
        now_ms = (await bench.a.active()).now_ms
        told = await worker.ask(job=worker.name, slot=now_ms + DUE_MS)
        assert told.outcome == "none", f"{worker.name} clock, a slot {DUE_MS} ms ahead: {told}"
        assert told.wait_ms is not None
        assert 0 < told.wait_ms <= DUE_MS + bench.loose_ms
        due = await worker.ask(job=worker.name, slot=now_ms)
        assert due.outcome == "won", f"{worker.name} clock, a slot that is due: {due}"


@rule("CLK-004", level="processes", spec=("time-instance-wrong", "claim-row-12", "time-store-clock"), pace="process")
@answered("processes with wrong clocks")
async def wrong_clocks_are_not_late(bench: Bench) -> None:
    """Whether a run is too late is judged by the store's clock, whatever a process's own clock says."""
    wrong = await _wrong_by_an_hour(bench)
    for worker in wrong:
        now_ms = (await bench.a.active()).now_ms
        late = await worker.ask(job=worker.name, slot=now_ms - HOUR_MS // 2, max_late_ms=HOUR_MS // 4)
        assert late.outcome == "late", f"{worker.name} clock, half an hour late of a quarter: {late}"
        in_time = await worker.ask(job=worker.name, slot=now_ms - HOUR_MS // 2, max_late_ms=HOUR_MS * 3 // 4)
        assert in_time.outcome == "won", f"{worker.name} clock, half an hour late of three quarters: {in_time}"


@rule(
    "CLK-005",
    level="processes",
    spec=("time-store-clock", "word-fence", "lost-ended-at", "active-live"),
    pace="process",
)
@answered("processes with wrong clocks")
async def times_are_the_stores(bench: Bench) -> None:
    """Every time in an answer is the store's, and fences rise, whichever of the processes with wrong clocks asked."""
    fast, slow = await _wrong_by_an_hour(bench)
    fence = 0
    for number, client in enumerate((fast, slow, bench.a, slow, fast)):
        before = (await bench.b.active()).now_ms
        held = await client.win(slot=SLOT + number, overlap="allow")
        after = (await bench.b.active()).now_ms
        assert before - bench.loose_ms <= held.started_at <= after + bench.loose_ms, f"{client.name}: {held.result}"
        assert held.fence > fence, f"the fence was {fence}, and {client.name} won with {held.fence}"
        fence = held.fence
    views = await asyncio.gather(*(bench.look(by=client) for client in (fast, slow, bench.b)))
    for view in views[:2]:
        bench.assert_same(views[2], view)
    answers = await asyncio.gather(*(client.ask(slot=SLOT, overlap="allow") for client in (fast, slow, bench.a)))
    assert len(outcomes(answers, "running")) == 3
