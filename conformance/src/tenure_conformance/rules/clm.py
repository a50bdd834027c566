"""Claim: one atomic decision, the rows of the table in their order."""

import asyncio
from dataclasses import fields, replace
from itertools import pairwise

from tenure.model import ClaimResult

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import Client, only
from tenure_conformance.oracle import Oracle
from tenure_conformance.rule import rule
from tenure_conformance.situations import (
    MODES,
    NEWER,
    OLDER,
    OUTCOMES,
    OVERLAPS,
    RUN,
    Situation,
    Step,
    by_row,
    fitting_rows,
    plan,
    varied,
)
from tenure_conformance.timing import LONG_MS, RATE, TICK_MS, monotonic_ms, sleep_until

FIELDS: dict[str, set[str]] = {
    "won": {"attempt", "fence", "lease_left_ms"},
    "running": {"attempt", "holder", "lease_left_ms"},
    "overlap": {"slot", "holder", "lease_left_ms", "attempt"},
    "late": set(),
    "done": {"status", "attempt"},
    "none": {"wait_ms"},
}


@rule(
    "CLM-001",
    level="lease",
    spec=("claim-row-14", "word-attempt"),
    catches=("lease-from-the-slot", "attempt-is-text", "always-running"),
)
async def first_claim_wins(bench: Bench) -> None:
    """The first claim of an unknown run is won with attempt 1, and every client sees it held."""
    held = await bench.a.win(lease_ms=LONG_MS)
    assert held.attempt == 1
    assert held.result.previous == ()
    assert bench.same_time(held.expires_at, held.started_at + bench.granted(LONG_MS))
    for client in (bench.a, bench.b):
        told = await client.ask()
        assert (told.outcome, told.attempt, told.holder) == ("running", 1, "a")
    assert list(await bench.look()) == [("job", SLOT)]


@rule(
    "CLM-002",
    level="lease",
    spec=("claim-row-3", "result-running", "time-instance-wrong"),
    catches=(
        "manual-steals",
        "probe-becomes-the-holder",
        "former-attempt-steals",
        "takeover-steals",
        "running-hides-the-holder",
        "running-tells-the-next-attempt",
    ),
)
async def live_lease_is_running(bench: Bench) -> None:
    """Another token, in any mode and with any `after`, is told `running` while the lease is live, and nothing
    changes."""
    held = await bench.a.win()
    async with bench.unchanged():
        for mode in MODES:
            for overlap in OVERLAPS:
                for after in (0, 1, 2):
                    told = await bench.b.ask(mode=mode, overlap=overlap, after=after, max_attempts=1, max_late_ms=0)
                    assert (told.outcome, told.attempt, told.holder) == ("running", held.attempt, "a")
                    assert told.lease_left_ms is not None
                    assert bench.same_time(told.now_ms + told.lease_left_ms, held.expires_at)
    assert await held.finish()


@rule(
    "CLM-003",
    level="lease",
    spec=("claim-row-1", "result-done"),
    catches=(
        "done-reclaimed-by-takeover",
        "previous-of-all-ends",
        "done-without-attempt",
        "done-is-success",
        "done-forgotten",
        "finish-deletes",
    ),
)
async def ended_run_is_done(bench: Bench) -> None:
    """After finish every claim is `done` with the status and attempt of the end: any token, mode, overlap and
    `after`."""
    for slot, status in ((SLOT, "success"), (SLOT + 1, "failed")):
        held = await bench.a.win(slot=slot)
        assert await held.finish("success" if status == "success" else "failed")
        for client in (bench.a, bench.b):
            for mode in MODES:
                for token in (held.token, "another"):
                    for after in (0, 1):
                        told = await client.ask(slot=slot, mode=mode, token=token, after=after, overlap="allow")
                        assert (told.outcome, told.status, told.attempt) == ("done", status, 1)
                        assert told.previous == ()


@rule(
    "CLM-004",
    level="lease",
    spec=("claim-row-1", "word-live"),
    pace="timed",
    catches=("done-reclaimed-by-takeover", "done-is-success", "done-forgotten", "finish-deletes", "always-won"),
)
async def done_is_permanent(bench: Bench) -> None:
    """A finished run stays `done` when the lease that it had would be over."""
    held = await bench.a.win(lease_ms=bench.short_ms)
    assert await held.finish("failed")
    await held.lapse()
    for client in (bench.a, bench.b):
        told = await held.claimed_by(client)
        assert (told.outcome, told.status) == ("done", "failed")
    assert not await held.heartbeat()
    assert await bench.look() == {}


@rule(
    "CLM-005",
    level="lease",
    spec=("claim-writes", "claim-row-3", "claim-row-12", "claim-row-13"),
    catches=(
        "late-after-overlap",
        "late-is-recorded",
        "probe-becomes-the-holder",
        "late-never",
        "overlap-never",
        "overlap-of-newer-runs-only",
    ),
)
async def losing_claims_write_nothing(bench: Bench) -> None:
    """Claims that are not won, fifty of each outcome that can be had at once, leave runs, leases and history as
    they were."""
    lost = await bench.a.win(slot=SLOT, overlap="allow")
    assert await lost.release()
    held = await bench.a.win(slot=SLOT + 1_000, overlap="allow")
    ended = await bench.a.win(slot=SLOT + 2_000, overlap="allow")
    assert await ended.finish()
    losing = (
        ("running", {"slot": held.slot}),
        ("running", {"slot": lost.slot, "overlap": "allow", "after": 7}),
        ("overlap", {"slot": SLOT + 9_000}),
        ("done", {"slot": ended.slot}),
        ("done", {"slot": SLOT - 1}),
        ("late", {"slot": SLOT + 3_000, "max_late_ms": 10}),
        ("none", {"slot": SLOT + 3_000, "mode": "takeover"}),
    )
    async with bench.unchanged():
        for outcome, options in losing:
            for number in range(50):
                client = (bench.a, bench.b)[number % 2]
                told = await client.ask(**options)
                assert told.outcome == outcome, f"{options}: {told}"
    assert await held.heartbeat()
    told = await bench.b.takeover(SLOT, after=1, overlap="allow")
    assert (told.outcome, told.attempt) == ("won", 2)


@rule(
    "CLM-006",
    level="lease",
    spec=("claim-row-2", "previous-repeat", "errors-repeat"),
    catches=(
        "previous-once",
        "same-token-keeps-the-old-end",
        "same-token-keeps-the-old-length",
        "fence-again-for-the-same-token",
        "same-token-new-attempt",
        "same-token-running",
    ),
)
async def same_token_wins_again(bench: Bench) -> None:
    """The holder's token wins again with the same attempt, fence and `previous`, and the lease of the new claim."""
    first = await bench.a.win(lease_ms=LONG_MS)
    assert await first.release()
    held = await bench.a.win(after=1, lease_ms=LONG_MS)
    for lease_ms in (LONG_MS * 2, LONG_MS // 2):
        for client in (bench.b, bench.a):
            again = await client.ask(token=held.token, lease_ms=lease_ms, instance="a", mode="manual", max_attempts=1)
            assert (again.outcome, again.attempt, again.fence) == ("won", 2, held.fence)
            assert again.previous == held.result.previous
            assert again.lease_left_ms is not None
            assert bench.same_time(again.lease_left_ms, bench.granted(lease_ms))
            shown = only((await bench.b.active()).runs)
            assert (shown.attempt, shown.fence, shown.started_at, shown.holder) == (
                2,
                held.fence,
                held.started_at,
                "a",
            )
            assert bench.granted(lease_ms) - 60_000 < shown.lease_left_ms <= bench.granted(lease_ms) + bench.loose_ms


@rule(
    "CLM-007",
    level="lease",
    spec=("claim-row-2", "claim-row-4", "claim-row-7"),
    pace="timed",
    catches=(
        "lapsed-holder-is-running",
        "fence-again-for-the-same-token",
        "same-token-new-attempt",
        "same-token-running",
    ),
)
async def lapsed_holder_wins_again(bench: Bench) -> None:
    """The holder's token wins again after its lease ran out if nobody took the run, whatever its `after` and
    `max_attempts`."""
    held = await bench.a.win(lease_ms=bench.short_ms, max_attempts=1)
    await held.lapse()
    again = await bench.b.claim(held.claim)
    assert (again.outcome, again.attempt, again.fence) == ("won", 1, held.fence)
    longer = await bench.a.ask(token=held.token, max_attempts=1)
    assert (longer.outcome, longer.attempt, longer.fence) == ("won", 1, held.fence)
    assert (await bench.b.ask()).outcome == "running"
    assert await held.finish()


@rule(
    "CLM-008",
    level="lease",
    spec=("word-run", "claim-own-rules"),
    catches=(
        "finish-of-all-runs",
        "release-of-all-runs",
        "supersedes-under-allow",
        "overlap-always",
        "slot-in-seconds",
    ),
)
async def runs_are_independent(bench: Bench) -> None:
    """Runs of one job under `allow` have attempts, holders and ends of their own, also when one token holds
    them all."""
    slots = [SLOT + number for number in range(5)]
    runs = [await bench.a.win(slot=slot, token="one-for-all", overlap="allow") for slot in slots]
    assert await runs[2].finish("failed", by=bench.b)
    assert await runs[3].release(by=bench.b)
    shown = await bench.look()
    assert sorted(slot for _, slot in shown) == [slots[0], slots[1], slots[3], slots[4]]
    assert [shown["job", slot][3] for slot in (slots[0], slots[1], slots[3], slots[4])] == [True, True, False, True]
    for run in (runs[0], runs[1], runs[4]):
        assert await run.heartbeat()
        assert await run.finish()
    assert list(await bench.look()) == [("job", slots[3])]


@rule(
    "CLM-009",
    level="lease",
    spec=("result-now", "result-won", "result-running", "result-overlap", "result-late", "result-done"),
    catches=(
        "slot-is-a-float",
        "late-tells-an-attempt",
        "loser-told-a-fence",
        "now-is-a-float",
        "previous-of-all-ends",
        "done-without-attempt",
        "fields-of-other-outcomes",
    ),
)
async def answers_have_their_fields(bench: Bench) -> None:
    """Each outcome carries the fields that the protocol names for it, as integers and strings, and no others."""
    held = await bench.a.win()
    answers = [held.result, await bench.b.ask(), await bench.b.ask(slot=SLOT + 1)]
    answers.append(await bench.b.ask(slot=SLOT + 2, max_late_ms=0))
    answers.append(await bench.b.ask(slot=int(held.started_at) + 7_200_000))
    assert await held.finish()
    answers += [await bench.b.ask(), await bench.b.ask(slot=SLOT - 1)]
    told = [answer.outcome for answer in answers]
    assert told == ["won", "running", "overlap", "late", "none", "done", "done"]
    for answer in answers:
        _assert_fields(answer, FIELDS[answer.outcome] - ({"attempt"} if answer is answers[-1] else set()))


def _assert_fields(answer: ClaimResult, expected: set[str]) -> None:
    values = {field.name: getattr(answer, field.name) for field in fields(answer)}
    assert type(values.pop("now_ms")) is int, answer
    assert values.pop("previous") == (), answer
    assert type(values.pop("outcome")) is str, answer
    given = {name for name, value in values.items() if value is not None}
    assert given == expected, f"{answer.outcome} carries {sorted(given)}, not {sorted(expected)}"
    for name in given:
        assert type(values[name]) is (str if name in ("holder", "status") else int), f"{name} of {answer}"


@rule(
    "CLM-010",
    level="lease",
    spec=("claim-now", "result-now", "time-store-clock"),
    pace="timed",
    catches=(
        "clock-too-fast",
        "clock-goes-back",
        "sqlite-two-clocks",
        "now-of-entering",
        "now-of-the-client",
        "clock-of-the-client",
        "now-in-seconds",
    ),
)
async def now_is_one_clock(bench: Bench) -> None:
    """`now_ms` is one clock, the store's, for all clients and calls: it goes on as fast as time does and not back."""
    loose_ms = bench.loose_ms + 2 * TICK_MS
    begin = monotonic_ms()
    first = (await bench.a.active()).now_ms
    earliest = monotonic_ms()
    told = [first]
    for number in range(20):
        client = (bench.a, bench.b)[number % 2]
        await sleep_until(begin + (number + 1) * 25)
        answer = client.ask(slot=SLOT + number, overlap="allow") if number % 3 else client.active()
        told.append((await answer).now_ms)
    before = monotonic_ms()
    last = (await bench.b.active()).now_ms
    end = monotonic_ms()
    assert all(later >= earlier - bench.loose_ms for earlier, later in pairwise(told)), told
    assert (before - earliest) * (1 - RATE) - loose_ms <= last - first <= (end - begin) * (1 + RATE) + loose_ms


@rule(
    "CLM-011",
    level="lease",
    spec=("claim-after", "claim-row-5", "claim-row-8"),
    catches=(
        "after-at-least",
        "after-at-most",
        "after-told-as-live",
        "after-believed",
        "after-ignored",
        "asks-again-by-itself",
    ),
)
async def win_is_after_plus_one(bench: Bench) -> None:
    """A takeover is won as attempt `after` + 1 or not at all, over seven released attempts."""
    for attempt in range(1, 8):
        for wrong in {0, attempt - 2, attempt, attempt + 1, attempt + 5} - {attempt - 1}:
            if wrong >= 0 and attempt > 1:
                told = await bench.b.ask(after=wrong)
                assert (told.outcome, told.attempt, told.lease_left_ms) == ("running", attempt - 1, 0)
        held = await bench.a.win(after=attempt - 1)
        assert held.attempt == attempt
        assert await held.release()


@rule(
    "CLM-012", level="lease", spec=("claim-row-10", "claim-after", "claim-writes"), catches=("attempt-of-the-sender",)
)
async def unknown_run_has_no_attempt(bench: Bench) -> None:
    """A claim that names an attempt of an unknown run is `none` in every mode, and creates nothing."""
    async with bench.unchanged():
        for mode in MODES:
            for after in (1, 2, 5):
                told = await bench.b.ask(mode=mode, after=after, max_late_ms=0)
                assert (told.outcome, told.wait_ms) == ("none", None)
    assert (await bench.a.win()).attempt == 1


@rule(
    "CLM-013",
    level="lease",
    spec=("claim-row-1", "claim-row-9", "word-superseded"),
    catches=(
        "superseded-is-deleted",
        "superseded-is-failed",
        "supersedes-nothing",
        "done-is-success",
        "done-forgotten",
        "always-won",
    ),
)
async def superseded_run_is_done(bench: Bench) -> None:
    """A superseded run is `done` superseded with its attempt for every claim, also under `allow` and with its
    own token."""
    old = await bench.a.win(slot=SLOT)
    assert await old.release()
    new = await bench.a.win(slot=SLOT + 1)
    assert await new.finish()
    for overlap in OVERLAPS:
        for token in (old.token, "another"):
            for after in (0, 1):
                told = await bench.b.ask(slot=SLOT, overlap=overlap, token=token, after=after)
                assert (told.outcome, told.status, told.attempt, told.previous) == ("done", "superseded", 1, ())


async def _situations_of(bench: Bench, row: int) -> None:
    """Bring about situations of the row, claim, and compare answer and what is left with the protocol's."""
    chosen = varied(by_row(bench.seed)[row], bench.target.limits.situations)
    assert chosen, f"no situation of row {row} is known"
    for start in range(0, len(chosen), 12):
        some = chosen[start : start + 12]
        oracles = [Oracle(bench, f"job {start + number}") for number in range(len(some))]
        for part in range(3):
            for situation, oracle in zip(some, oracles, strict=True):
                await _bring_about(bench, oracle, plan(situation)[part])
            await asyncio.sleep((bench.short_ms * (1 + RATE) + TICK_MS + _slack_ms(bench)) / 1_000)
        for situation, oracle in zip(some, oracles, strict=True):
            await _assert_row(bench, row, situation, oracle)


def _slack_ms(bench: Bench) -> int:
    return bench.target.timing.slack_ms + 2 * bench.a.capabilities.clock_error_ms


async def _bring_about(bench: Bench, oracle: Oracle, steps: list[Step]) -> None:
    for number, step in enumerate(steps):
        client = (bench.a, bench.b)[number % 2]
        if step.call == "claim":
            await oracle.claim(client, step.claim(oracle.job, bench.short_ms))
        elif step.call == "finish":
            await oracle.finish(client, step.slot, step.token, step.status)
        else:
            await oracle.release(client, step.slot, step.token)


async def _assert_row(bench: Bench, row: int, situation: Situation, oracle: Oracle) -> None:
    now = (await oracle.look(bench.b)).now_ms
    claim = replace(situation.claim(now), job=oracle.job)
    before = oracle.state
    answer = await oracle.claim(bench.a, claim)
    fitting = fitting_rows(before, claim, answer.now_ms)
    assert fitting[0] == row, f"row {row} was meant, {fitting} fit {situation}"
    assert answer.outcome == OUTCOMES[row], f"row {row} answers {OUTCOMES[row]}, was told {answer} in {situation}"
    for client in (bench.a, bench.b):
        await oracle.look(client)
    await _assert_neighbours(bench.b, oracle)


async def _assert_neighbours(client: Client, oracle: Oracle) -> None:
    """Ask after every run of the situation once more, in a way that shows what the store keeps of it."""
    for slot in (OLDER, RUN, RUN + 500, NEWER):
        await oracle.claim(
            client, client.bench.claim(job=oracle.job, slot=slot, mode="takeover", overlap="allow", instance="asker")
        )


_ROW_RULES = """
CLM-101 claim-row-1 An ended or superseded run is `done` with its status, before any other row.
CLM-102 claim-row-2 The holding token wins again, unless its lease is over and a newer or a live run stands against it.
CLM-103 claim-row-3 A live run is `running` for every other token, before lateness, overlap and attempts are looked at.
CLM-104 claim-row-4 A run whose lease is over is superseded for `skip` once a newer run started.
CLM-105 claim-row-5 A run whose lease is over is `running` to a sender that does not know its attempt.
CLM-106 claim-row-6 A run whose lease is over and whose attempts are used up is ended as exhausted.
CLM-107 claim-row-7 A run whose lease is over is told `overlap` under `skip` while another run of the job is live.
CLM-108 claim-row-8 A run whose lease is over is won as the next attempt in any mode, however late.
CLM-109 claim-row-9 A run without a record is superseded at or below the floor, and for `skip` below a newer run.
CLM-110 claim-row-10 A takeover of a run without a record, or a claim that names an attempt of it, is `none`.
CLM-111 claim-row-11 A run that is not due is `none` with the time to wait, before overlap is looked at.
CLM-112 claim-row-12 A run without a record that is too late is `late`, before overlap is looked at.
CLM-113 claim-row-13 A run without a record is told `overlap` under `skip` while another run of the job is live.
CLM-114 claim-row-14 A run without a record, due, not late and with nothing in its way is won as attempt 1.
"""

_ROW_CATCHES: dict[int, tuple[str, ...]] = {
    1: (
        "supersedes-ended-runs",
        "done-forgotten",
        "finish-deletes",
        "always-won",
    ),
    2: (
        "now-of-the-win",
        "lapsed-holder-is-running",
        "same-token-keeps-the-old-end",
        "same-token-keeps-the-old-length",
        "fence-again-for-the-same-token",
        "same-token-new-attempt",
    ),
    3: (
        "manual-steals",
        "probe-becomes-the-holder",
        "former-attempt-steals",
        "probe-extends-lease",
        "takeover-steals",
        "running-tells-the-next-attempt",
    ),
    4: (
        "exhausted-before-overtaken",
        "lapsed-holder-beside-a-newer",
        "overtaken-run-is-taken",
        "overtaken-by-ended-runs-only",
        "overtaken-by-live-runs-only",
        "overtaken-under-allow",
    ),
    5: (
        "exhausted-before-after",
        "after-at-least",
        "after-at-most",
        "after-told-as-live",
        "after-believed",
        "after-ignored",
    ),
    6: (
        "exhausted-after-overlap",
        "attempts-equal-to-the-limit-only",
        "release-gives-all-back",
        "exhausted-stays-unfinished",
        "attempts-one-more",
        "attempts-without-limit",
    ),
    7: (
        "overlap-attempt-missing",
        "takeover-never-waits",
        "lapsed-holder-beside-a-live",
        "overlap-never",
        "overlap-of-newer-runs-only",
    ),
    8: (
        "takeover-late",
        "holder-of-the-first-attempt",
        "lost-always-released",
        "attempts-one-less",
        "probe-extends-lease",
        "overlap-of-released-runs",
    ),
    9: (
        "overtaken-by-ended-runs-only",
        "overtaken-by-live-runs-only",
        "older-slot-starts",
        "older-slot-superseded-under-allow",
    ),
    10: (
        "attempt-of-the-sender",
        "takeover-of-nothing-is-late",
        "takeover-creates",
    ),
    11: (
        "early-never",
        "wait-in-seconds",
    ),
    12: (
        "late-after-overlap",
        "late-is-recorded",
        "late-zero-is-no-limit",
        "late-never",
    ),
    13: (
        "overlap-never",
        "overlap-of-newer-runs-only",
        "overlap-of-any-job",
        "always-won",
    ),
    14: (
        "probe-extends-lease",
        "overlap-always",
        "lease-from-the-slot",
        "error-is-running",
        "sqlite-new-state-lost",
        "always-running",
    ),
}


def _register_row(rule_id: str, anchor: str, sentence: str) -> None:
    row = int(rule_id[-2:])

    async def situations_of_row(bench: Bench) -> None:
        await _situations_of(bench, row)

    situations_of_row.__doc__ = sentence
    situations_of_row.__name__ = f"row_{row}"
    spec = (anchor, "claim-order", *(("claim-writes",) if row in (2, 6, 8, 14) else ()))
    rule(rule_id, level="lease", spec=spec, catches=_ROW_CATCHES[row])(situations_of_row)


for _line in _ROW_RULES.strip().splitlines():
    _register_row(*_line.split(" ", 2))
