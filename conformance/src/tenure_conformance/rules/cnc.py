"""Cancellation: a call that is cut off at any moment leaves the backend usable, and its next answers its own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from tenure.errors import BackendUnavailable

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import VERBS, Verb, answered, guarded
from tenure_conformance.records import attempted
from tenure_conformance.rule import rule

STEPS = 12
PAUSES_MS = (0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2, 3, 5, 8)
"""Moments at which a call is cut off: after so many turns of the loop, and after so long."""


async def _cut_off(call: Callable[[], Coroutine[Any, Any, Any]]) -> AsyncIterator[int]:
    """Start the call and cancel it, at each moment in turn."""
    for moment in range(STEPS + len(PAUSES_MS)):
        task = asyncio.create_task(call())
        if moment < STEPS:
            for _ in range(moment):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(PAUSES_MS[moment - STEPS] / 1_000)
        task.cancel()
        # A cancelled call may have been carried out, may be told as unavailable, or may have answered already.
        told = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(told, BaseException) and not isinstance(told, asyncio.CancelledError | BackendUnavailable):
            raise told
        yield moment


@rule(
    "CNC-001",
    level="lease",
    spec=("errors-cancel", "errors-repeat"),
    catches=(
        "cancelled-takeover-counts-twice",
        "answer-of-the-cancelled",
        "connection-lost-by-cancelling",
        "same-token-running",
        "retry-with-a-fresh-token",
    ),
)
@answered("around a cancelled call")
async def cancelled_claim(bench: Bench) -> None:
    """A claim that is cancelled at any moment was made or was not: its token wins attempt 1, and others see it
    `running`."""
    claims = [bench.claim(overlap="allow")]
    async for moment in _cut_off(lambda: bench.a.claim(claims[-1])):
        assert not await bench.a.heartbeat("job", SLOT - 1, "nobody")
        again = await bench.a.claim(claims[-1])
        assert (again.outcome, again.attempt) == ("won", 1), f"cut off at moment {moment}: {again}"
        told = await bench.b.ask(slot=claims[-1].slot, overlap="allow")
        assert (told.outcome, told.attempt) == ("running", 1)
        assert len((await bench.a.active()).runs) == len(claims)
        claims.append(bench.claim(slot=SLOT + len(claims), overlap="allow"))


@rule(
    "CNC-002",
    level="lease",
    spec=("errors-cancel", "errors-repeat", "calls-guarded"),
    catches=(
        "cancelled-finish-is-lost",
        "release-once-only",
        "answer-of-the-cancelled",
        "connection-lost-by-cancelling",
        "finish-once-only",
        "retry-with-a-fresh-token",
    ),
)
@answered("around a cancelled call")
async def cancelled_guarded_call(bench: Bench) -> None:
    """A heartbeat, finish or release that is cancelled at any moment can be repeated, and has the effect of one."""
    for verb in VERBS:
        await _cut_off_guarded(bench, verb)


async def _cut_off_guarded(bench: Bench, verb: Verb) -> None:
    runs = [await bench.a.win(job=verb)]
    async for moment in _cut_off(lambda: guarded(bench.a, verb, verb, runs[-1].slot, runs[-1].token)):
        held = runs[-1]
        assert await guarded(bench.a, verb, verb, held.slot, held.token), f"{verb}, cut off at moment {moment}"
        shown = (await bench.b.active(verb)).runs
        assert [run.live for run in shown] == {"heartbeat": [True], "finish": [], "release": [False]}[verb]
        if verb == "release":
            runs.append(await bench.a.win(job=verb, slot=held.slot, after=held.attempt))
        elif verb == "finish":
            runs.append(await bench.a.win(job=verb, slot=held.slot + 1))


@rule(
    "CNC-003",
    level="lease",
    spec=("errors-cancel", "results-one-record"),
    catches=(
        "results-twice",
        "answer-of-the-cancelled",
        "connection-lost-by-cancelling",
        "results-times-in-seconds",
        "sqlite-records-as-text",
    ),
)
@answered("around a cancelled call")
async def cancelled_reading(bench: Bench) -> None:
    """A cancelled `active`, `results` or `save_result` leaves no answer behind for the next call, and can be
    repeated."""
    await bench.a.win()
    record = attempted()
    await bench.a.save_result("job", record)
    calls: tuple[Callable[[], Coroutine[Any, Any, Any]], ...] = (
        lambda: bench.a.active("job", "other"),
        lambda: bench.a.results("job"),
        lambda: bench.a.save_result("job", record),
    )
    for call in calls:
        async for _ in _cut_off(call):
            assert (await bench.a.ask()).outcome == "running"
            assert [run.slot for run in (await bench.a.active()).runs] == [SLOT]
            assert await bench.a.results() == [record]
            assert not await bench.a.heartbeat("job", SLOT, "nobody")


@rule(
    "CNC-004",
    level="lease",
    spec=("errors-cancel", "claim-atomic"),
    catches=("pool-leak", "answer-of-the-cancelled", "connection-lost-by-cancelling", "overlap-never", "always-won"),
)
@answered("around a cancelled call")
async def many_cancelled_calls(bench: Bench) -> None:
    """After two hundred calls of one object were cancelled at once or one by one it answers as before."""
    held = await bench.a.win()
    for wave in range(10):
        tasks = [asyncio.create_task(bench.a.ask(slot=SLOT + 1 + number)) for number in range(20)]
        await asyncio.sleep(wave / 5_000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        told = await bench.a.ask(slot=SLOT + 100)
        assert (told.outcome, told.slot) == ("overlap", SLOT)
        assert await held.heartbeat()
    assert list(await bench.look()) == [("job", SLOT)]


@rule("CNC-005", level="lease", spec=("errors-cancel", "enter-prepares"), catches=("cancelled-entering-locks",))
@answered("around a cancelled call")
async def cancelled_entering(bench: Bench) -> None:
    """Entering that is cancelled at any moment leaves the store usable, and entering again works."""

    async def enter() -> None:
        async with bench.visitor("guest", namespace=bench.namespace + "-new") as guest:
            await guest.active()

    async for moment in _cut_off(enter):
        if moment % 4 == 3:
            await enter()
    async with bench.visitor("guest", namespace=bench.namespace + "-new") as guest:
        assert (await guest.win()).attempt == 1
    assert (await bench.a.win()).attempt == 1


@rule(
    "CNC-006",
    level="lease",
    spec=("errors-cancel", "claim-atomic"),
    catches=(
        "cancelling-one-cancels-all",
        "answers-out-of-order",
        "conflict-is-false",
        "sqlite-batch-shares-one-answer",
        "answer-of-the-cancelled",
        "connection-lost-by-cancelling",
    ),
)
@answered("around a cancelled call")
async def cancelled_neighbour(bench: Bench) -> None:
    """Cancelling one of many calls of one object at once takes none of the others with it, nor their answers."""
    runs = [await bench.a.win(slot=SLOT + number, overlap="allow") for number in range(6)]
    for turn in range(12):
        tasks = [asyncio.create_task(run.heartbeat()) for run in runs]
        wrong = [asyncio.create_task(bench.a.heartbeat("job", run.slot, "nobody")) for run in runs]
        for _ in range(turn % 6):
            await asyncio.sleep(0)
        victim = turn % len(tasks)
        tasks[victim].cancel()
        told = await asyncio.gather(*tasks, return_exceptions=True)
        del told[victim]
        assert told == [True] * (len(tasks) - 1)
        assert await asyncio.gather(*wrong) == [False] * len(wrong)


@rule(
    "CNC-007",
    level="lease",
    spec=("errors-cancel", "errors-late-message"),
    catches=("cancelled-takeover-counts-twice", "connection-lost-by-cancelling"),
)
@answered("around a cancelled call")
async def cancelled_takeover(bench: Bench) -> None:
    """A takeover that is cancelled at any moment costs at most its one attempt: its token, repeated, wins that one."""
    attempt = 1
    held = await bench.a.win()
    assert await held.release()
    claims = [bench.claim(mode="takeover", after=attempt)]
    async for moment in _cut_off(lambda: bench.a.claim(claims[-1])):
        again = await bench.a.claim(claims[-1])
        assert (again.outcome, again.attempt) == ("won", attempt + 1), f"cut off at moment {moment}: {again}"
        assert [one.attempt for one in again.previous] == [attempt]
        assert await bench.b.release("job", SLOT, claims[-1].token)
        attempt += 1
        claims.append(bench.claim(mode="takeover", after=attempt))
