"""Concurrency: as if each call happened at one instant between call and answer."""

import asyncio

from tenure.model import new_token

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import answered, only, outcomes
from tenure_conformance.histories import CLIENTS, Kind, assert_linearizable, play
from tenure_conformance.machine import run_machine
from tenure_conformance.rule import rule


@rule(
    "CON-001",
    level="lease",
    spec=("claim-atomic", "claim-row-14", "claim-row-3"),
    catches=(
        "probe-becomes-the-holder",
        "conflict-is-running",
        "race-first-claim",
        "race-claim",
        "sqlite-no-transaction",
        "running-tells-the-next-attempt",
    ),
)
async def one_of_many_claims_wins(bench: Bench) -> None:
    """Of many clients that claim a run at once exactly one wins, and the others are told `running` with its holder."""
    clients = await bench.clients()
    for turn in range(12):
        answers = await asyncio.gather(*(client.ask(job=f"job {turn}") for client in clients))
        won = only(outcomes(answers, "won"))
        running = outcomes(answers, "running")
        assert len(running) == len(clients) - 1, [one.outcome for one in answers]
        winner = clients[answers.index(won)].name
        assert {(one.attempt, one.holder) for one in running} == {(1, winner)}
        shown = only((await bench.b.active(f"job {turn}")).runs)
        assert (shown.holder, shown.fence, shown.attempt) == (winner, won.fence, 1)


@rule(
    "CON-002",
    level="lease",
    spec=("claim-atomic", "word-run"),
    catches=(
        "busy-is-an-error",
        "conflict-is-running",
        "race-first-claim",
        "race-claim",
        "sqlite-no-transaction",
        "sqlite-busy-is-raised",
    ),
)
@answered("many writers")
async def each_run_has_one_winner(bench: Bench) -> None:
    """When many clients claim many runs under `allow` at once, each run has one winner, and none is lost."""
    clients = await bench.clients(8)
    slots = [SLOT + number for number in range(8)]
    pairs = [(client, slot) for slot in slots for client in clients]
    bench.random.shuffle(pairs)
    answers = await asyncio.gather(*(client.ask(slot=slot, overlap="allow") for client, slot in pairs))
    for slot in slots:
        told = [answer for (_, asked), answer in zip(pairs, answers, strict=True) if asked == slot]
        assert len(outcomes(told, "won")) == 1, f"slot {slot - SLOT}: {[one.outcome for one in told]}"
        assert len(outcomes(told, "running")) == len(clients) - 1
    assert [run.slot for run in (await bench.b.active()).runs] == slots


@rule(
    "CON-003",
    level="lease",
    spec=("claim-atomic", "claim-row-8"),
    catches=("race-takeover", "race-claim", "sqlite-no-transaction", "attempt-stuck", "always-won"),
)
async def one_of_many_takeovers_wins(bench: Bench) -> None:
    """Of many takeovers of a released run at once exactly one wins the next attempt, over several attempts."""
    clients = await bench.clients()
    held = await bench.a.win()
    assert await held.release()
    for attempt in range(1, 10):
        tokens = [new_token() for _ in clients]
        pairs = zip(clients, tokens, strict=True)
        answers = await asyncio.gather(*(one.takeover(SLOT, after=attempt, token=token) for one, token in pairs))
        won = only(outcomes(answers, "won"))
        assert won.attempt == attempt + 1
        assert len(outcomes(answers, "running")) == len(clients) - 1
        assert await bench.b.release("job", SLOT, tokens[answers.index(won)])


@rule(
    "CON-004",
    level="lease",
    spec=("calls-guarded", "finish-after-release", "release-after-finish"),
    catches=(
        "finish-of-released",
        "race-release",
        "release-of-finished-is-true",
        "race-finish",
        "release-finishes",
        "answers-are-numbers",
    ),
)
async def finish_or_release(bench: Bench) -> None:
    """Of a finish and a release of one holder at once exactly one succeeds, and the run is what that one made of it."""
    for turn in range(20):
        held = await bench.a.win(job=f"job {turn}")
        calls = [held.finish("failed"), held.release(by=bench.b)]
        if turn % 2:
            calls.reverse()
        told = await asyncio.gather(*calls)
        finished, released = told[::-1] if turn % 2 else told
        assert finished != released, f"finish: {finished}, release: {released}"
        shown = await bench.look(held.job)
        assert [run[3] for run in shown.values()] == ([] if finished else [False])


@rule("CON-005", level="lease", spec=("calls-guarded", "claim-atomic"), catches=("answers-are-numbers",))
async def takeover_amid_release(bench: Bench) -> None:
    """A takeover at the same time as the holder's release is told `running` or wins the next attempt, and
    nothing between."""
    for turn in range(20):
        held = await bench.a.win(job=f"job {turn}")
        released, told = await asyncio.gather(held.release(), held.claimed_by(bench.b))
        assert released
        assert (told.outcome, told.attempt) in (("won", 2), ("running", 1))
        if told.outcome == "won":
            assert [one.released for one in told.previous] == [True]
        else:
            assert (await held.claimed_by(bench.b)).outcome == "won"


@rule(
    "CON-006",
    level="lease",
    spec=("calls-guarded", "heartbeat-refused", "finish-holds"),
    catches=(
        "race-heartbeat",
        "heartbeat-revives-ended",
        "heartbeat-of-unknown-is-true",
        "won-remembered",
        "token-known-to-its-object",
        "finish-deletes",
    ),
)
async def heartbeats_amid_finish(bench: Bench) -> None:
    """Heartbeats at the same time as the finish never bring the run back, whatever each was told."""
    clients = await bench.clients(6)
    for turn in range(12):
        held = await bench.a.win(slot=SLOT + turn)
        beats = [held.heartbeat(by=client) for client in clients]
        told = await asyncio.gather(*beats[:3], held.finish(by=clients[-1]), *beats[3:])
        assert told[3] is True
        assert await bench.look() == {}
        assert not await held.heartbeat()
        assert (await bench.b.takeover(SLOT + turn)).status == "success"


@rule(
    "CON-007",
    level="lease",
    spec=("claim-atomic", "active-named"),
    catches=("sqlite-busy-is-raised", "jobs-are-one", "always-won"),
)
@answered("many jobs")
async def jobs_do_not_disturb_each_other(bench: Bench) -> None:
    """Many jobs at once go each their own way: win, heartbeat, finish, next slot, without an error or a lost update."""
    clients = await bench.clients(8)

    async def work(number: int) -> None:
        job = f"job {number}"
        for turn in range(6):
            held = await clients[number % 8].win(job=job, slot=SLOT + turn)
            assert await held.heartbeat(by=clients[(number + 1) % 8])
            assert await held.finish("failed" if turn % 2 else "success")
            told = await clients[(number + 2) % 8].ask(job=job, slot=SLOT + turn)
            assert told.status == ("failed" if turn % 2 else "success")

    await asyncio.gather(*(work(number) for number in range(16)))


@rule(
    "CON-008",
    level="lease",
    spec=("errors-never-outcome", "claim-atomic"),
    catches=(
        "conflict-is-false",
        "busy-is-an-error",
        "race-finish",
        "sqlite-no-transaction",
        "error-is-false",
        "sqlite-busy-is-raised",
    ),
)
@answered("many writers")
async def conflicts_are_no_outcomes(bench: Bench) -> None:
    """Writers that meet in one job get their true answers: no conflict of the store shows, as an error or an
    outcome."""
    clients = await bench.clients()
    runs = [await client.win(slot=SLOT + number, overlap="allow") for number, client in enumerate(clients)]
    for _ in range(5):
        assert await asyncio.gather(*(run.heartbeat() for run in runs)) == [True] * len(runs)
    half = len(runs) // 2
    told = await asyncio.gather(
        *(run.finish() for run in runs[:half]), *(run.release() for run in runs[half:]), *(run.again() for run in runs)
    )
    assert told[: len(runs)] == [True] * len(runs)
    assert [run.slot for run in (await bench.b.active()).runs] == [run.slot for run in runs[half:]]


@rule(
    "CON-009",
    level="lease",
    spec=("active-fresh", "claim-atomic", "calls-guarded"),
    catches=(
        "race-takeover",
        "race-first-claim",
        "race-claim",
        "sqlite-no-transaction",
        "always-won",
        "answers-are-numbers",
    ),
)
async def a_guarded_counter_loses_nothing(bench: Bench) -> None:
    """A counter that only the run's winner touches, without any other lock, loses no step: wins exclude each other."""
    clients = await bench.clients(8)
    counter = {"value": 0, "inside": 0}
    wins = 0

    async def work(number: int) -> None:
        nonlocal wins
        attempt = 0
        for _ in range(20):
            token = new_token()
            told = await clients[number].ask(after=attempt, token=token)
            attempt = told.attempt or attempt
            if told.outcome != "won":
                continue
            counter["inside"] += 1
            assert counter["inside"] == 1, "two winners at once"
            value = counter["value"]
            await asyncio.sleep(0.001)
            counter["value"] = value + 1
            counter["inside"] -= 1
            wins += 1
            assert await clients[number].release("job", SLOT, token)

    await asyncio.gather(*(work(number) for number in range(len(clients))))
    assert counter["value"] == wins
    assert (await bench.look())["job", SLOT][0] == wins
    assert wins > 1


async def _histories(bench: Bench, kind: Kind) -> None:
    clients = await bench.clients(CLIENTS)
    for number in range(bench.target.limits.histories):
        assert_linearizable(bench, await play(bench, kind, clients, number))


@rule(
    "CON-010",
    level="lease",
    spec=("claim-atomic", "claim-order", "calls-guarded", "active-fresh"),
    pace="heavy",
    catches=("race-claim",),
)
async def histories_are_linearizable(bench: Bench) -> None:
    """The answers to eight clients that claim, renew, finish, release and look at random fit one order of their
    calls."""
    await _histories(bench, "long")


@rule(
    "CON-011",
    level="lease",
    spec=("claim-atomic", "claim-now", "word-live"),
    pace="heavy",
    catches=("race-takeover", "race-claim"),
)
async def lapsing_histories_are_linearizable(bench: Bench) -> None:
    """The answers fit one order also while leases run out meanwhile, each claim judged by its own `now_ms`."""
    await _histories(bench, "lapsing")


@rule(
    "CON-012",
    level="lease",
    spec=("claim-atomic", "errors-cancel", "errors-repeat"),
    pace="heavy",
    catches=("answer-of-the-cancelled",),
)
async def cut_off_histories_are_linearizable(bench: Bench) -> None:
    """The answers fit one order also if some calls were cut off, which may have been carried out then, later or
    never."""
    await _histories(bench, "cut off")


@rule(
    "CON-013",
    level="lease",
    spec=("claim-order", "claim-writes", "calls-guarded", "results-order"),
    pace="heavy",
    catches=("takeover-of-nothing-is-late", "release-of-any-token"),
)
async def invented_sequences_agree(bench: Bench) -> None:
    """Sequences of calls that are invented at random get the reference's answers, to the field, and leave the
    same state."""
    await run_machine(bench)
