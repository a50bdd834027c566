"""Release: the holder gives its lease up, and its attempt is not used up."""

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import answered, only
from tenure_conformance.rule import rule
from tenure_conformance.situations import MODES, OVERLAPS


@rule(
    "REL-001",
    level="lease",
    spec=("release-holds", "active-all", "active-live"),
    catches=(
        "active-live-only",
        "active-without-released",
        "active-started-with-the-slot",
        "active-all-live",
        "release-finishes",
        "release-deletes",
    ),
)
async def release_ends_the_lease(bench: Bench) -> None:
    """The holder's release is `True`; the lease is over at once, and the run stays unfinished with its attempt."""
    held = await bench.a.win()
    assert await held.release()
    for client in (bench.a, bench.b):
        assert await bench.look(by=client) == {("job", SLOT): (1, held.fence, "a", False, held.started_at, 0)}
        shown = only((await client.active()).runs)
        assert shown.lease_left_ms == 0


@rule(
    "REL-002",
    level="lease",
    spec=("claim-row-2", "claim-row-5", "heartbeat-refused", "finish-after-release"),
    catches=(
        "heartbeat-revives-released",
        "finish-of-released",
        "released-token-wins-again",
        "won-remembered",
        "after-at-most",
        "after-told-as-live",
    ),
)
async def released_token_holds_nothing(bench: Bench) -> None:
    """After release the token neither heartbeats nor finishes nor wins the attempt again; it may win the next one."""
    held = await bench.a.win()
    assert await held.release()
    async with bench.unchanged():
        for client in (bench.a, bench.b):
            assert not await held.heartbeat(by=client)
            assert not await held.finish(by=client)
            told = await held.again(by=client)
            assert (told.outcome, told.attempt, told.lease_left_ms) == ("running", 1, 0)
    again = await bench.a.win(token=held.token, after=1)
    assert (again.attempt, again.fence > held.fence) == (2, True)
    assert await again.heartbeat()


@rule(
    "REL-003",
    level="lease",
    spec=("release-repeat", "errors-repeat", "release-refused"),
    catches=("release-once-only", "release-of-any-token", "token-known-to-its-object"),
)
async def release_can_be_repeated(bench: Bench) -> None:
    """Release repeated is `True` and changes nothing, until a successor won; then it is `False` and touches nothing."""
    held = await bench.a.win()
    assert await held.release()
    async with bench.unchanged():
        for client in (bench.a, bench.b, bench.a):
            assert await held.release(by=client)
    taken = await bench.b.win(after=1, max_attempts=1)
    async with bench.unchanged():
        assert not await held.release()
        assert not await held.release(by=bench.b)
    assert await taken.heartbeat()


@rule(
    "REL-004",
    level="lease",
    spec=("claim-released-not-used", "claim-row-6"),
    catches=("attempts-one-less", "release-uses-up", "attempts-by-number"),
)
async def released_attempt_is_not_used_up(bench: Bench) -> None:
    """A released attempt is not used up, however often: with one attempt allowed the run is won again, as the
    next attempt."""
    for attempt in range(1, 9):
        held = await (bench.a, bench.b)[attempt % 2].win(after=attempt - 1, max_attempts=1)
        assert held.attempt == attempt
        assert await held.release()
        assert await held.release()


@rule(
    "REL-005",
    level="lease",
    spec=("release-after-finish", "calls-refused-writes-nothing"),
    catches=("release-of-finished-is-true",),
)
async def finished_run_cannot_be_released(bench: Bench) -> None:
    """Release after finish is `False`, and the run stays ended."""
    held = await bench.a.win()
    assert await held.finish("failed")
    assert not await held.release()
    assert not await held.release(by=bench.b)
    assert await bench.look() == {}
    assert (await bench.b.takeover(SLOT)).status == "failed"


@rule(
    "REL-006",
    level="lease",
    spec=("release-holds", "lost-ended-at", "calls-guarded"),
    pace="timed",
    catches=(
        "release-ends-now",
        "release-of-lapsed-refused",
        "lost-times-swapped",
        "release-finishes",
        "release-deletes",
        "release-does-nothing",
    ),
)
async def lapsed_run_can_be_released(bench: Bench) -> None:
    """A holder whose lease ran out can still release; the attempt ended when the lease did, is released, and
    not used up."""
    held = await bench.a.win(lease_ms=bench.short_ms)
    await held.lapse()
    assert await held.release()
    taken = await bench.b.win(mode="takeover", after=1, max_attempts=1)
    lost = only(taken.result.previous)
    assert lost == held.lost(released=True, ended_at=lost.ended_at)
    assert bench.same_time(lost.ended_at, held.expires_at)


@rule(
    "REL-007",
    level="lease",
    spec=("errors-never-outcome", "release-refused", "calls-refused-writes-nothing"),
    catches=("release-of-unknown-is-true", "release-of-any-token"),
)
@answered("a release that is refused")
async def others_cannot_release(bench: Bench) -> None:
    """Release of an unknown run, or with a token that does not hold it, is `False` and changes nothing."""
    held = await bench.a.win()
    async with bench.unchanged("job", "other"):
        for client in (bench.a, bench.b):
            assert not await client.release("job", SLOT, "wrong")
            assert not await client.release("job", SLOT + 1, held.token)
            assert not await client.release("other", SLOT, held.token)
    assert await held.release()
    assert not await bench.b.release("job", SLOT, "wrong")
    assert (await bench.b.win(job="other")).attempt == 1


@rule(
    "REL-008",
    level="lease",
    spec=("release-holds", "claim-row-13", "claim-supersedes"),
    catches=(
        "race-overlap",
        "overlap-of-released-runs",
        "overlap-never",
        "overlap-of-newer-runs-only",
        "release-does-nothing",
        "always-won",
    ),
)
async def release_clears_the_way(bench: Bench) -> None:
    """A released run is not in the way of the next slot, which supersedes it and is told so."""
    held = await bench.a.win(slot=SLOT)
    assert (await bench.b.ask(slot=SLOT + 1)).outcome == "overlap"
    assert await held.release()
    newer = await bench.b.win(slot=SLOT + 1)
    lost = only(newer.result.previous)
    assert lost == held.lost(released=True, ended_at=lost.ended_at)
    assert not await held.release()


@rule(
    "REL-009",
    level="lease",
    spec=("claim-released-not-used", "claim-row-6", "claim-once"),
    pace="timed",
    catches=(
        "release-again-gives-back-again",
        "release-gives-all-back",
        "attempts-one-less",
        "release-uses-up",
        "attempts-one-more",
        "attempts-by-number",
    ),
)
async def release_gives_back_one_attempt(bench: Bench) -> None:
    """A release gives back its own attempt and no other: one lost and one released attempt leave one used up of two."""
    held = await bench.a.win(lease_ms=bench.short_ms, max_attempts=2)
    await held.lapse()
    second = await bench.b.win(mode="takeover", after=1, max_attempts=2)
    assert second.attempt == 2
    assert await second.release()
    assert await second.release()
    third = await bench.a.win(mode="takeover", after=2, max_attempts=2, lease_ms=bench.short_ms)
    assert third.attempt == 3
    await third.lapse()
    told = await bench.b.takeover(SLOT, after=3, max_attempts=2)
    assert (told.outcome, told.status, told.attempt) == ("done", "exhausted", 3)


@rule(
    "REL-010",
    level="lease",
    spec=("claim-row-8", "release-holds"),
    catches=(
        "takeover-late",
        "takeover-needs-its-mode",
        "attempt-stuck",
        "release-finishes",
        "release-deletes",
        "release-does-nothing",
    ),
)
async def released_run_is_won_in_every_mode(bench: Bench) -> None:
    """A released run is won by a claim of every mode and overlap rule that knows its attempt."""
    for mode in MODES:
        for overlap in OVERLAPS:
            job = f"{mode} {overlap}"
            held = await bench.a.win(job=job, overlap=overlap)
            assert await held.release()
            taken = await bench.b.win(job=job, mode=mode, overlap=overlap, after=1, max_late_ms=0)
            assert taken.attempt == 2
            assert not await held.heartbeat()


@rule(
    "REL-011",
    level="lease",
    spec=("release-holds", "word-run"),
    catches=("release-of-all-runs", "release-does-nothing", "answers-are-numbers"),
)
async def release_gives_up_one_run(bench: Bench) -> None:
    """Release gives up its own run, and leaves the job's other runs and their leases as they were."""
    runs = [await bench.a.win(slot=SLOT + number, overlap="allow", token="same") for number in range(4)]
    before = await bench.look()
    assert await runs[1].release()
    after = await bench.look()
    assert after.pop(("job", SLOT + 1))[3:] == (False, runs[1].started_at, 0)
    before.pop(("job", SLOT + 1))
    bench.assert_same(before, after)
    for run in (runs[0], runs[2], runs[3]):
        assert await run.heartbeat()
