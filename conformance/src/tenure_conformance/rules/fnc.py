"""Fencing: a number that rises with each attempt of a job, and a token that only its owner has."""

import asyncio
from itertools import pairwise

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import VERBS, answered, guarded, only
from tenure_conformance.rule import rule
from tenure_conformance.timing import LONG_MS


@rule("FNC-001", level="lease", spec=("word-fence", "result-won"), catches=("loser-told-a-fence",))
async def fence_is_an_integer(bench: Bench) -> None:
    """Every win carries a fence, an integer from 1 to 2^63 - 1, and no other answer does."""
    held = await bench.a.win()
    assert 1 <= held.fence < 2**63
    told = [await bench.b.ask(), await bench.b.ask(slot=SLOT + 1), await bench.b.ask(slot=SLOT - 1)]
    assert await held.finish()
    told += [await bench.b.ask(), await bench.b.ask(slot=SLOT + 1, max_late_ms=0)]
    assert [one.fence for one in told] == [None] * 5


@rule("FNC-002", level="lease", spec=("word-fence", "claim-fence"), catches=("fence-is-the-clock", "fence-is-the-slot"))
async def fence_rises_with_attempts(bench: Bench) -> None:
    """Each attempt of a run has a greater fence than the one before it."""
    fences = []
    for attempt in range(12):
        held = await (bench.a, bench.b)[attempt % 2].win(after=attempt)
        fences.append(held.fence)
        assert await held.release()
    assert all(later > earlier for earlier, later in pairwise(fences)), fences


@rule(
    "FNC-003",
    level="lease",
    spec=("word-fence", "claim-fence"),
    catches=("fence-is-the-clock", "fence-is-the-slot", "fence-is-the-attempt", "fence-per-slot"),
)
async def fence_rises_across_slots(bench: Bench) -> None:
    """Each win of a job has a greater fence than any before it, whatever the slots: newer, older, and again."""
    slots = [SLOT + number for number in (5, 6, 4, 7, 3, 8, 2, 9, 1, 10)]
    held = [await (bench.a, bench.b)[slot % 2].win(slot=slot, overlap="allow") for slot in slots]
    fences = [run.fence for run in held]
    assert fences == sorted(set(fences)), fences
    assert await held[0].release()
    again = await bench.b.win(slot=slots[0], after=1, overlap="allow")
    assert again.fence > max(fences)


@rule(
    "FNC-004",
    level="lease",
    spec=("word-fence", "claim-atomic"),
    catches=(
        "conflict-is-running",
        "race-first-claim",
        "race-fence",
        "race-claim",
        "sqlite-no-transaction",
        "fence-is-the-clock",
    ),
)
async def concurrent_wins_have_their_own_fences(bench: Bench) -> None:
    """Wins of one job at the same time have different fences, and those that came later greater ones."""
    clients = await bench.clients()
    last = 0
    for turn in range(5):
        base = SLOT + turn * 100
        wins = await asyncio.gather(
            *(client.win(slot=base + number, overlap="allow") for number, client in enumerate(clients))
        )
        fences = [held.fence for held in wins]
        assert len(set(fences)) == len(fences), sorted(fences)
        assert min(fences) > last, f"{min(fences)} came after {last}"
        last = max(fences)


@rule(
    "FNC-005",
    level="lease",
    spec=("bounds-never-dropped", "word-fence", "bounds-skip"),
    catches=("fence-of-kept-runs", "fence-is-the-clock", "fence-is-the-attempt", "fence-per-slot"),
)
async def fence_outlives_its_runs(bench: Bench) -> None:
    """The fence goes on rising when all earlier runs ended and their records were dropped."""
    last = 0
    for number in range(40):
        held = await bench.a.win(slot=SLOT + number)
        assert held.fence > last
        last = held.fence
        assert await held.finish()


@rule(
    "FNC-006",
    level="durable",
    spec=("capabilities-durable", "bounds-never-dropped", "word-fence"),
    catches=("sqlite-in-memory",),
)
@answered("after everyone left")
async def fence_outlives_its_clients(bench: Bench) -> None:
    """What the store keeps is there when every client has left and new ones enter: runs, ends, tokens, floor
    and fence."""
    namespace = bench.namespace + "-kept"
    async with bench.visitor("first", namespace=namespace) as first:
        runs = [await first.win(slot=SLOT + number, overlap="allow", lease_ms=LONG_MS) for number in range(3)]
        assert await runs[0].finish("failed")
        assert await runs[1].release()
    async with bench.visitor("second", namespace=namespace) as second:
        shown = await bench.look(by=second)
        assert [slot for _, slot in shown] == [SLOT + 1, SLOT + 2]
        assert shown["job", SLOT + 2][:3] == (1, runs[2].fence, "first")
        assert bench.same_time(shown["job", SLOT + 2][-1], runs[2].expires_at)
        assert (await second.ask(slot=SLOT)).status == "failed"
        assert await runs[2].heartbeat(by=second)
        taken = await second.win(slot=SLOT + 1, mode="takeover", after=1, overlap="allow")
        assert (taken.attempt, taken.fence > runs[2].fence) == (2, True)
        assert (await second.win(slot=SLOT + 3, overlap="allow")).fence > taken.fence


@rule(
    "FNC-007",
    level="lease",
    spec=("finish-refused", "release-refused", "calls-guarded"),
    catches=(
        "token-of-any-slot",
        "finish-of-any-token",
        "release-of-any-token",
        "heartbeat-of-any-token",
        "won-remembered",
        "answers-are-numbers",
    ),
)
async def tokens_of_other_runs_are_wrong(bench: Bench) -> None:
    """A token that holds one run can do nothing to another slot, job or namespace."""
    mine = await bench.a.win(slot=SLOT, token="mine")
    theirs = await bench.b.win(slot=SLOT + 1, token="theirs", overlap="allow")
    other = await bench.b.win(job="other", token="theirs")
    async with bench.unchanged("job", "other"):
        for verb in VERBS:
            assert not await guarded(bench.a, verb, "job", theirs.slot, mine.token)
            assert not await guarded(bench.a, verb, "other", other.slot, mine.token)
            assert not await guarded(bench.b, verb, "job", mine.slot, theirs.token)
    for run in (mine, theirs, other):
        assert await run.finish()


@rule(
    "FNC-008",
    level="lease",
    spec=("names-exact", "limits-token", "calls-guarded"),
    catches=(
        "token-cut-at-32",
        "token-casefolded",
        "token-padded",
        "finish-of-any-token",
        "release-of-any-token",
        "heartbeat-of-any-token",
    ),
)
async def tokens_are_compared_exactly(bench: Bench) -> None:
    """Tokens are compared to the last of 64 characters: case, spaces, prefixes and signs count."""
    for number, token in enumerate(
        ("Token", "a", "x" * 64, "0", "00", "1e3", "%", "*", "a b", "null", "'\";--\\", "~!@#$^&()")
    ):
        job = f"job {number}"
        held = await bench.a.win(job=job, token=token)
        near = {
            token.upper(),
            token.lower(),
            token + " ",
            " " + token,
            token[:-1] + "y",
            token[:-1],
            "0" + token,
            "x" * 63 + "z",
        }
        for other in sorted(one for one in near - {token} if 1 <= len(one) <= 64):
            assert (await bench.b.ask(job=job, token=other)).outcome == "running", f"{other!r} won as {token!r}"
            assert not await bench.b.heartbeat(job, SLOT, other), f"{other!r} is not {token!r}"
            assert not await bench.b.finish(job, SLOT, other), f"{other!r} is not {token!r}"
            assert not await bench.b.release(job, SLOT, other), f"{other!r} is not {token!r}"
        assert await held.heartbeat(by=bench.b)
        assert (await held.again(by=bench.b)).fence == held.fence
        assert await held.finish(by=bench.b)


@rule(
    "FNC-009",
    level="lease",
    spec=("claim-row-2", "word-fence"),
    catches=("fence-again-for-the-same-token", "same-token-new-attempt", "same-token-running"),
)
async def same_token_keeps_the_fence(bench: Bench) -> None:
    """A repeated win carries the fence of the first, also when others won meanwhile, and uses up none."""
    held = await bench.a.win(slot=SLOT, overlap="allow")
    other = await bench.b.win(slot=SLOT + 1, overlap="allow")
    for client in (bench.a, bench.b):
        again = await client.ask(slot=SLOT, token=held.token, overlap="allow")
        assert (again.outcome, again.fence, again.attempt) == ("won", held.fence, 1)
    assert (await bench.look())["job", SLOT][1] == held.fence
    assert (await bench.look())["job", SLOT + 1][1] == other.fence


@rule(
    "FNC-010",
    level="lease",
    spec=("claim-fence", "claim-now"),
    catches=(
        "fence-above-the-slot",
        "fence-steps-by-two",
        "fence-in-32-bits",
        "fence-without-the-clock",
        "fence-is-the-clock",
        "fence-is-the-slot",
        "fence-is-the-attempt",
    ),
)
async def fence_is_at_least_the_clock(bench: Bench) -> None:
    """A new fence is the store's clock, or one more than the last if that is greater, or a revision that only rises."""
    last = 0
    for number in range(30):
        ahead = last + 500 if number % 3 == 1 and bench.target.fences == "clock" else SLOT
        held = await (bench.a, bench.b)[number % 2].win(slot=ahead + number, overlap="allow")
        if bench.target.fences == "clock":
            expected = max(last + 1, held.result.now_ms)
            assert held.fence == expected or (held.fence > last and bench.same_time(held.fence, expected))
        assert held.fence > last
        last = held.fence
        if number % 5 == 0:
            await asyncio.sleep(0.005)


@rule("FNC-011", level="lease", spec=("active-all", "word-fence", "previous-own"), catches=("lost-without-fence",))
async def fence_is_told_everywhere_alike(bench: Bench) -> None:
    """The fence of a win is the one that `active` shows and that a successor is told of, for both clients."""
    held = await bench.a.win()
    for client in (bench.a, bench.b):
        assert (await bench.look(by=client))["job", SLOT][1] == held.fence
    assert await held.release()
    assert (await bench.look())["job", SLOT][1] == held.fence
    taken = await bench.b.win(after=1)
    assert only(taken.result.previous).fence == held.fence
    assert (await bench.look())["job", SLOT][1] == taken.fence


@rule(
    "FNC-012",
    level="lease",
    spec=("word-fence", "bounds-never-dropped"),
    catches=("fence-of-kept-runs", "fence-is-the-attempt", "fence-per-slot"),
)
async def losing_calls_use_no_fence(bench: Bench) -> None:
    """Claims that lose and calls that are refused do not lower the fence, and the next win still rises above it."""
    held = await bench.a.win()
    for number in range(10):
        await bench.b.ask()
        await bench.b.ask(slot=SLOT + 1 + number)
        await bench.b.ask(slot=held.started_at + 3_600_000)
        await bench.b.heartbeat("job", SLOT, "wrong")
        await bench.b.finish("job", SLOT + 1, "wrong")
        await bench.b.release("job", SLOT, "wrong")
    assert await held.finish()
    newer = await bench.b.win(slot=SLOT + 1)
    assert newer.fence > held.fence
    if bench.target.fences == "clock":
        assert bench.same_time(newer.fence, max(held.fence + 1, newer.started_at))


@rule(
    "FNC-013",
    level="lease",
    spec=("finish-repeat", "calls-guarded", "finish-refused"),
    catches=(
        "finish-last-status-wins",
        "finish-again-by-anyone",
        "finish-once-only",
        "done-is-success",
        "token-known-to-its-object",
        "done-forgotten",
    ),
)
async def former_tokens_stay_dead(bench: Bench) -> None:
    """The tokens of all former attempts stay refused after the last one finished: they cannot finish, nor hear
    `True`."""
    tokens = []
    for attempt in range(3):
        held = await bench.a.win(after=attempt)
        tokens.append(held.token)
        if attempt < 2:
            assert await held.release()
    assert await held.finish("failed")
    for token in tokens[:-1]:
        for verb in VERBS:
            assert not await guarded(bench.b, verb, "job", SLOT, token)
    assert await bench.b.finish("job", SLOT, tokens[-1], "success")
    assert (await bench.b.ask()).status == "failed"
