"""Processes: clients of one store that live and die on their own, and know nothing of each other."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from tenure.model import ClaimResult, new_token

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import VERBS, answered, guarded, outcomes, probe
from tenure_conformance.faults.scene import faults_of
from tenure_conformance.processes.remote import Gone, Worker, hire
from tenure_conformance.records import attempted
from tenure_conformance.rule import rule
from tenure_conformance.timing import monotonic_ms

SOON_MS = 40
"""From now until processes begin something together."""


def _together(workers: list[Worker]) -> None:
    moment = monotonic_ms() + SOON_MS
    for worker in workers:
        worker.not_before(moment)


@rule(
    "CON-101",
    level="processes",
    spec=("claim-atomic", "capabilities-shared", "claim-row-14", "claim-row-3"),
    pace="process",
)
@answered("claims of several processes")
async def processes_race(bench: Bench) -> None:
    """Of several processes that claim the same runs at the same moment, each run has exactly one winner."""
    workers = await hire(bench, *(f"p{number}" for number in range(4)))
    for turn in range(6):
        slots = [SLOT + 10 * turn + number for number in range(4)]
        _together(workers)
        pairs = [(worker, slot) for worker in workers for slot in slots]
        bench.random.shuffle(pairs)
        answers = await asyncio.gather(*(worker.ask(slot=slot, overlap="allow") for worker, slot in pairs))
        for slot in slots:
            told = {worker.name: one for (worker, asked), one in zip(pairs, answers, strict=True) if asked == slot}
            winners = [name for name, one in told.items() if one.outcome == "won"]
            assert len(winners) == 1, f"slot {slot - SLOT} was won by {winners}"
            others = {(one.outcome, one.holder) for name, one in told.items() if name not in winners}
            assert others == {("running", winners[0])}


@rule("CON-102", level="processes", spec=("claim-atomic", "claim-row-13", "capabilities-shared"), pace="process")
@answered("claims of several processes")
async def processes_exclude_each_other(bench: Bench) -> None:
    """Under `skip` runs of several processes never overlap: a number in a file, read and written by each run, counts
    them all."""
    runs = 24
    with TemporaryDirectory(prefix="tenure-conformance-") as directory:
        path = Path(directory) / "count"
        path.write_text("0")
        workers = await hire(bench, *(f"p{number}" for number in range(4)))
        _together(workers)
        won = await asyncio.gather(
            *(worker.backend.call("count", worker.name, SLOT, runs, str(path)) for worker in workers)
        )
        counted = int(path.read_text())
    assert (sum(won), counted) == (runs, runs), f"{runs} runs were won {sum(won)} times, and counted {counted} times"


@rule("CON-103", level="processes", spec=("claim-atomic", "capabilities-shared", "errors-repeat"), pace="process")
@answered("after a process was killed amid its calls")
async def killed_amid_calls(bench: Bench) -> None:
    """What a process was told before it was killed amid its calls stays true, and what it was not told is whole."""
    (worker,) = await hire(bench, "killed")
    claims = [bench.claim(slot=SLOT + number, overlap="allow", instance="killed") for number in range(150)]
    tasks = [asyncio.create_task(worker.claim(claim)) for claim in claims]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await worker.kill()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    told = {claim.slot: one for claim, one in zip(claims, answers, strict=True) if isinstance(one, ClaimResult)}
    assert told
    others = [one for one in answers if not isinstance(one, ClaimResult | Gone)]
    assert not others, f"a claim was told {others[0]!r}"
    shown = await bench.look()
    for slot, answer in told.items():
        assert answer.outcome == "won"
        assert shown["job", slot][:4] == (1, answer.fence, "killed", True)
    for claim in claims:
        again = await bench.b.claim(claim)
        assert (again.outcome, again.attempt) == ("won", 1)
        if ("job", claim.slot) in shown:
            assert again.fence == shown["job", claim.slot][1]


@rule("LIF-101", level="processes", spec=("enter-concurrent", "enter-prepares", "claim-atomic"), pace="process")
@answered("entering from several processes")
async def processes_enter_at_once(bench: Bench) -> None:
    """Entering from many processes at once on an empty store succeeds in all of them, and they see one store."""
    url = (await faults_of(bench)).direct if bench.target.faults is not None else bench.url
    names = (f"p{number}" for number in range(8))
    workers = await hire(bench, *names, url=url, namespace=f"{bench.namespace}-fresh", at_once=True)
    answers = await asyncio.gather(*(worker.ask() for worker in workers))
    assert len(outcomes(answers, "won")) == 1, [one.outcome for one in answers]
    assert len(outcomes(answers, "running")) == len(workers) - 1
    assert all(worker.capabilities == bench.target.capabilities for worker in workers)


@rule("LIF-102", level="processes", spec=("enter-process", "errors-deadline"), pace="process")
@answered("beside a forked child")
async def forked_child(bench: Bench) -> None:
    """A call in a forked child is answered rightly or raises a BackendError, in time, and the parent's next answers
    are its own."""
    (worker,) = await hire(bench, "parent")
    held = await worker.win()
    for _ in range(3):
        told = await worker.backend.call("forked", "job")
        assert told in ("BackendError", [held.fence]), f"the child's call: {told}"
        for _ in range(3):
            beaten, answer, active = await asyncio.gather(held.heartbeat(), worker.ask(), worker.active("job"))
            assert (beaten, answer.outcome) == (True, "running")
            assert [run.fence for run in active.runs] == [held.fence]


@rule("TKO-101", level="processes", spec=("word-live", "claim-row-3", "claim-row-8"), pace="process")
@answered("after the holder was killed")
async def killed_holder(bench: Bench) -> None:
    """The run of a process that was killed is running until its lease is over, and its next attempt can be won then."""
    (worker,) = await hire(bench, "killed")
    held = await worker.win(lease_ms=bench.lease_ms)
    await worker.kill()
    for part in (0.3, 0.6, 0.9):
        answer = await probe(held, held.deadline, part, bench.b)
        assert (answer.outcome, answer.attempt, answer.holder) == ("running", 1, "killed")
    await held.lapse()
    taken = await bench.b.win(mode="takeover", after=1)
    assert (taken.attempt, taken.result.previous) == (2, (held.lost(),))


@rule("TKO-102", level="processes", spec=("claim-row-8", "claim-atomic", "active-all"), pace="process")
@answered("after all processes were killed")
async def full_restart(bench: Bench) -> None:
    """After all processes were killed, fresh ones find every unfinished run, and win the next attempt of each exactly
    once."""
    first, *fresh = await hire(bench, "killed", *(f"p{number}" for number in range(4)))
    held = [await first.win(job=f"job {number}", lease_ms=bench.short_ms) for number in range(10)]
    await first.kill()
    for run in held:
        await run.lapse()
    jobs = [run.job for run in held]
    for worker in fresh:
        shown = await worker.active(*jobs)
        assert [(run.job, run.attempt, run.live) for run in shown.runs] == [(job, 1, False) for job in jobs]
    _together(fresh)
    pairs = [(worker, run) for worker in fresh for run in held]
    bench.random.shuffle(pairs)
    answers = await asyncio.gather(*(run.claimed_by(worker, job=run.job) for worker, run in pairs))
    for run in held:
        told = [one for (_, asked), one in zip(pairs, answers, strict=True) if asked is run]
        won = outcomes(told, "won")
        assert len(won) == 1, f"{run.job} was taken over by {len(won)} processes"
        assert (won[0].attempt, won[0].previous) == (2, (run.lost(),))
        assert {(one.outcome, one.attempt) for one in told if one is not won[0]} == {("running", 2)}


@rule(
    "FNC-101",
    level="processes",
    spec=("heartbeat-refused", "finish-refused", "release-refused", "word-fence"),
    pace="process",
)
@answered("after a holder was frozen")
async def frozen_holder(bench: Bench) -> None:
    """A process that was frozen over the end of its lease and goes on after a takeover is refused everything, and its
    fence is the smaller one."""
    (worker,) = await hire(bench, "frozen")
    held = await worker.win(lease_ms=bench.lease_ms)
    await worker.freeze()
    waiting = {verb: asyncio.create_task(guarded(worker, verb, held.job, SLOT, held.token)) for verb in VERBS}
    await held.lapse()
    taken = await bench.b.win(mode="takeover", after=1)
    async with bench.unchanged():
        worker.thaw()
        told = {verb: await task for verb, task in waiting.items()}
        assert told == dict.fromkeys(VERBS, False), f"the process that had been frozen was told {told}"
        for verb in VERBS:
            assert not await guarded(worker, verb, held.job, SLOT, held.token)
        assert (await held.again()).outcome == "running"
    assert taken.fence > held.fence
    assert await taken.finish()


@rule("PRC-101", level="processes", spec=("word-slot", "results-order", "capabilities-shared"), pace="process")
@answered("processes in several time zones")
async def time_zones_do_not_matter(bench: Bench) -> None:
    """Processes in different time zones mean the same run by the same slot, also in an hour that a zone skips or
    repeats, and read the same times."""
    zones = ("Asia/Kathmandu", "America/New_York", "UTC")
    workers = await hire(bench, *zones, zones=zones)
    for slot in (1_741_503_600_000, 1_762_063_200_000, 1_762_066_800_000):
        token = new_token()
        held = await workers[0].win(slot=slot, token=token, overlap="allow")
        record = attempted(slot)
        await workers[1].save_result("job", record)
        for worker in workers[1:]:
            told = await worker.ask(slot=slot, overlap="allow")
            assert (told.outcome, told.holder) == ("running", zones[0])
            shown = await bench.look(by=worker)
            assert shown["job", slot][:2] == (1, held.fence)
            assert bench.same_time(shown["job", slot][4], held.started_at)
        for worker in workers:
            assert (await worker.results(limit=1)) == [record]
