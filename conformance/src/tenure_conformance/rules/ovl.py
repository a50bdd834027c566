"""Overlap: one live run at a time under `skip`, and newer runs replace older ones."""

import asyncio

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import VERBS, Client, answered, guarded, outcomes
from tenure_conformance.rule import rule
from tenure_conformance.situations import MODES
from tenure_conformance.timing import LONG_MS


@rule(
    "OVL-001",
    level="lease",
    spec=("claim-row-13", "result-overlap"),
    catches=("overlap-tells-the-claimant", "overlap-never", "overlap-of-newer-runs-only", "always-won"),
)
async def live_run_is_in_the_way(bench: Bench) -> None:
    """Under `skip` a newer slot is told `overlap` with the live run's slot, holder and lease, and attempt 0 of
    its own."""
    held = await bench.a.win(slot=SLOT)
    async with bench.unchanged():
        for mode in MODES[:3]:
            for client in (bench.a, bench.b):
                told = await client.ask(slot=SLOT + 1, mode=mode)
                assert (told.outcome, told.slot, told.holder, told.attempt) == ("overlap", SLOT, "a", 0)
                assert told.lease_left_ms is not None
                assert bench.same_time(told.now_ms + told.lease_left_ms, held.expires_at)
    assert await held.heartbeat()


@rule(
    "OVL-002",
    level="lease",
    spec=("claim-row-9", "newer-counts-dropped"),
    catches=(
        "overtaken-by-ended-runs-only",
        "overtaken-by-live-runs-only",
        "older-slot-starts",
        "older-slot-superseded-under-allow",
    ),
)
async def older_slot_is_superseded(bench: Bench) -> None:
    """Under `skip` an unknown run older than one that started is `done` superseded without an attempt, live or
    ended."""
    for number, end in enumerate(("live", "released", "success")):
        job = f"job {number}"
        newer = await bench.a.win(job=job, slot=SLOT + 5)
        if end != "live":
            assert await (newer.finish() if end == "success" else newer.release())
        for mode in MODES:
            for client in (bench.a, bench.b):
                told = await client.ask(job=job, slot=SLOT, mode=mode)
                assert (told.outcome, told.status, told.attempt) == ("done", "superseded", None)
    assert (await bench.b.win(job="job 1", slot=SLOT + 4, overlap="allow")).attempt == 1


@rule(
    "OVL-003",
    level="lease",
    spec=("claim-row-13", "word-live", "claim-row-6"),
    pace="timed",
    catches=(
        "overlap-of-lapsed-runs",
        "exhausted-stays-unfinished",
        "attempts-one-more",
        "attempts-without-limit",
        "overlap-of-released-runs",
        "expiry-with-grace",
    ),
)
async def dead_runs_are_not_in_the_way(bench: Bench) -> None:
    """A run that lapsed, was released, finished or exhausted is not in the way of a newer slot."""
    for end in ("lapsed", "released", "success", "exhausted"):
        held = await bench.a.win(job=end, slot=SLOT, lease_ms=bench.short_ms)
        if end == "released":
            assert await held.release()
        elif end == "success":
            assert await held.finish()
        else:
            await held.lapse()
        if end == "exhausted":
            assert (await held.claimed_by(bench.b, max_attempts=1)).status == "exhausted"
        newer = await bench.b.win(job=end, slot=SLOT + 1)
        lost = [one.slot for one in newer.result.previous]
        assert lost == ([SLOT] if end in ("lapsed", "released") else []), end


@rule(
    "OVL-004",
    level="lease",
    spec=("claim-row-13", "names-exact", "namespace-only"),
    catches=(
        "sqlite-nocase",
        "sqlite-trimmed",
        "names-padded",
        "names-stripped",
        "names-lower-ascii",
        "names-casefolded",
    ),
)
async def other_jobs_are_not_in_the_way(bench: Bench) -> None:
    """Only runs of the very job are in the way: none of jobs with a like name, and none of another namespace."""
    elsewhere = await bench.client("elsewhere", namespace=bench.namespace + "-2")
    await bench.a.win(job="sync", slot=SLOT)
    for job in ("sync2", "syn", "Sync", "sync:1", " sync", "sync ", f"sync{SLOT}"):
        assert (await bench.b.win(job=job, slot=SLOT + 1)).attempt == 1
    assert (await elsewhere.win(job="sync", slot=SLOT + 1)).attempt == 1
    assert (await bench.b.ask(job="sync", slot=SLOT + 1)).outcome == "overlap"


@rule(
    "OVL-005",
    level="lease",
    spec=("claim-own-rules", "claim-row-14"),
    catches=(
        "older-slot-superseded-under-allow",
        "supersedes-under-allow",
        "overlap-always",
        "lease-from-the-slot",
        "always-running",
    ),
)
async def allowed_runs_overlap(bench: Bench) -> None:
    """Under `allow` runs of a job are live side by side, older slots as well as newer ones, and none is superseded."""
    slots = [SLOT + number for number in (3, 4, 2, 5, 1)]
    runs = [await (bench.a, bench.b)[slot % 2].win(slot=slot, overlap="allow") for slot in slots]
    assert all(run.result.previous == () for run in runs)
    shown = await bench.look()
    assert [slot for _, slot in shown] == sorted(slots)
    assert all(run[3] for run in shown.values())
    for run in runs:
        assert await run.heartbeat()


@rule(
    "OVL-006",
    level="lease",
    spec=("claim-atomic", "claim-row-13", "claim-row-9"),
    catches=(
        "conflict-is-running",
        "race-first-claim",
        "race-overlap",
        "race-claim",
        "sqlite-no-transaction",
        "overlap-never",
    ),
)
async def one_of_many_slots_wins(bench: Bench) -> None:
    """Of many slots of a job that are claimed at once under `skip` exactly one is won, again and again."""
    clients = await bench.clients()
    for turn in range(5):
        job = f"job {turn}"
        slots = [SLOT + number for number in range(len(clients))]
        bench.random.shuffle(slots)
        answers = await asyncio.gather(
            *(client.ask(job=job, slot=slot) for client, slot in zip(clients, slots, strict=True))
        )
        assert len(outcomes(answers, "won")) == 1, [one.outcome for one in answers]
        assert all(one.outcome in ("won", "overlap") or one.status == "superseded" for one in answers)
        assert len((await bench.b.active(job)).runs) == 1


@rule(
    "OVL-007",
    level="lease",
    spec=("claim-row-13", "claim-row-9", "active-all"),
    pace="heavy",
    catches=(
        "overlap-first-page",
        "older-slot-starts",
        "overlap-of-released-runs",
        "overlap-never",
        "overlap-of-newer-runs-only",
        "overlap-always",
    ),
)
@answered("many runs")
async def overlap_sees_every_run(bench: Bench) -> None:
    """The one live run is found among hundreds of others, wherever it stands among them, and so is the newest."""
    count = bench.target.limits.runs
    clients = await bench.clients(4)
    live = SLOT + count // 2
    for start in range(0, count, 20):
        slots = [SLOT + number for number in range(start, min(start + 20, count))]
        await asyncio.gather(*(_lose(clients[slot % 4], slot, keep=slot == live) for slot in slots))
    told = await bench.b.ask(slot=SLOT + count)
    assert (told.outcome, told.slot) == ("overlap", live)
    assert (await bench.b.ask(slot=SLOT - 1)).status == "superseded"
    assert (await bench.b.takeover(SLOT + count - 1)).outcome == "overlap"


async def _lose(client: Client, slot: int, *, keep: bool) -> None:
    held = await client.win(slot=slot, overlap="allow")
    assert keep or await held.release()


@rule(
    "OVL-008",
    level="lease",
    spec=("claim-row-7", "result-overlap"),
    pace="timed",
    catches=(
        "overlap-attempt-missing",
        "takeover-never-waits",
        "lapsed-holder-beside-a-live",
        "overlap-full-lease",
        "overlap-tells-the-claimant",
        "overlap-never",
    ),
)
async def takeover_waits_for_the_live_run(bench: Bench) -> None:
    """Under `skip` a takeover of the newest run is told `overlap`, with its own attempt, while an older run is live."""
    older = await bench.a.win(slot=SLOT, overlap="allow")
    newest = await bench.a.win(slot=SLOT + 1, overlap="allow", lease_ms=bench.short_ms)
    await newest.lapse()
    async with bench.unchanged():
        told = await bench.b.takeover(SLOT + 1)
        assert (told.outcome, told.slot, told.holder, told.attempt) == ("overlap", SLOT, "a", 1)
        assert told.lease_left_ms is not None
        assert bench.same_time(told.now_ms + told.lease_left_ms, older.expires_at)
        repeated = await newest.client.ask(slot=SLOT + 1, token=newest.token, after=1)
        assert (repeated.outcome, repeated.slot) == ("overlap", SLOT)
        stale = await newest.client.ask(slot=SLOT + 1, token=newest.token)
        assert (stale.outcome, stale.attempt, stale.lease_left_ms) == ("running", 1, 0)
    assert await older.finish()
    assert (await bench.b.takeover(SLOT + 1)).outcome == "won"


@rule(
    "OVL-009",
    level="lease",
    spec=("claim-own-rules", "claim-row-14", "claim-row-13"),
    catches=(
        "older-slot-superseded-under-allow",
        "overlap-never",
        "overlap-of-newer-runs-only",
        "supersedes-under-allow",
        "overlap-always",
        "lease-from-the-slot",
    ),
)
async def claim_brings_its_own_rule(bench: Bench) -> None:
    """The claim's own overlap rule decides, not that of the run in the way: `allow` beside `skip`, and `skip`
    beside `allow`."""
    await bench.a.win(slot=SLOT, overlap="skip")
    beside = await bench.b.win(slot=SLOT + 1, overlap="allow")
    assert beside.result.previous == ()
    told = await bench.a.ask(slot=SLOT + 2, overlap="skip")
    assert (told.outcome, told.slot) == ("overlap", SLOT + 1)
    assert (await bench.a.win(slot=SLOT - 1, overlap="allow")).attempt == 1


@rule(
    "OVL-010",
    level="lease",
    spec=("claim-row-2", "claim-row-4"),
    pace="timed",
    catches=(
        "lapsed-holder-beside-a-newer",
        "overtaken-run-is-taken",
        "same-token-keeps-the-old-end",
        "same-token-keeps-the-old-length",
        "overtaken-by-ended-runs-only",
        "overtaken-by-live-runs-only",
    ),
)
async def holder_repeats_while_live_only(bench: Bench) -> None:
    """The holder's claim is repeated beside other live runs while its own is live; once over, a newer run
    supersedes it."""
    held = await bench.a.win(slot=SLOT, lease_ms=LONG_MS)
    newer = await bench.b.win(slot=SLOT + 1, overlap="allow")
    again = await held.again()
    assert (again.outcome, again.attempt, again.fence) == ("won", 1, held.fence)
    short = await bench.a.ask(slot=SLOT, token=held.token, lease_ms=bench.short_ms)
    assert short.outcome == "won"
    deadline = bench.deadline(bench.span(bench.calls[-1]), bench.short_ms)
    await deadline.wait_over()
    told = await held.again()
    assert (told.outcome, told.status, told.attempt) == ("done", "superseded", 1)
    assert (await bench.look())["job", SLOT][:4] == (1, held.fence, "a", False)
    assert await newer.finish()
    assert (await held.again()).status == "superseded"


@rule(
    "OVL-011",
    level="lease",
    spec=("claim-supersedes", "word-superseded", "previous-superseded"),
    catches=(
        "finish-of-superseded-is-true",
        "supersedes-one",
        "heartbeat-revives-ended",
        "superseded-is-deleted",
        "superseded-is-failed",
        "previous-own-only",
    ),
)
async def newer_win_supersedes(bench: Bench) -> None:
    """A win under `skip` supersedes every older unfinished run: they leave `active`, their tokens are dead, it
    is told of all."""
    lost = [await bench.a.win(slot=SLOT + number, overlap="allow", instance=f"h{number}") for number in range(5)]
    for run in lost:
        assert await run.release()
    newer = await bench.b.win(slot=SLOT + 9)
    told = sorted(newer.result.previous, key=lambda one: one.slot)
    assert [one.slot for one in told] == [run.slot for run in lost]
    for one, run in zip(told, lost, strict=True):
        assert one == run.lost(released=True, ended_at=one.ended_at)
    for client in (bench.a, bench.b):
        assert list(await bench.look(by=client)) == [("job", SLOT + 9)]
        for run in lost:
            for verb in VERBS:
                assert not await guarded(client, verb, "job", run.slot, run.token)
            answer = await client.takeover(run.slot, overlap="allow")
            assert (answer.outcome, answer.status, answer.attempt) == ("done", "superseded", 1)


@rule(
    "OVL-012",
    level="lease",
    spec=("claim-supersedes", "claim-own-rules"),
    catches=("overtaken-under-allow", "supersedes-under-allow", "overlap-always"),
)
async def allow_supersedes_nothing(bench: Bench) -> None:
    """A win under `allow` leaves every other run as it is, also a takeover, and is told of its own last attempt
    alone."""
    lost = await bench.a.win(slot=SLOT, overlap="allow")
    assert await lost.release()
    middle = await bench.a.win(slot=SLOT + 1, overlap="allow")
    assert await middle.release()
    newer = await bench.b.win(slot=SLOT + 2, overlap="allow")
    assert newer.result.previous == ()
    taken = await bench.b.win(slot=SLOT + 1, overlap="allow", after=1)
    assert [one.slot for one in taken.result.previous] == [SLOT + 1]
    assert [slot for _, slot in await bench.look()] == [SLOT, SLOT + 1, SLOT + 2]


@rule("OVL-013", level="lease", spec="claim-overlap-which", catches=("overlap-names-the-oldest",))
async def overlap_names_the_newest(bench: Bench) -> None:
    """If several runs are in the way, `overlap` names the newest of the live ones."""
    for slot in (SLOT + 2, SLOT, SLOT + 3, SLOT + 1):
        await bench.a.win(slot=slot, overlap="allow", instance=f"h{slot - SLOT}")
    lapsed = await bench.a.win(slot=SLOT + 4, overlap="allow")
    assert await lapsed.release()
    for client in (bench.a, bench.b):
        told = await client.ask(slot=SLOT + 5)
        assert (told.outcome, told.slot, told.holder, told.attempt) == ("overlap", SLOT + 3, "h3", 0)


@rule(
    "OVL-014",
    level="lease",
    spec=("claim-supersedes", "claim-row-4"),
    pace="timed",
    catches=(
        "overtaken-run-is-taken",
        "overtaken-by-ended-runs-only",
        "overtaken-by-live-runs-only",
        "overtaken-under-allow",
    ),
)
async def newer_run_forbids_takeover(bench: Bench) -> None:
    """Under `skip` a run whose lease is over is not taken once a newer one started, live or ended; under
    `allow` it is."""
    held = await bench.a.win(slot=SLOT, lease_ms=bench.short_ms, overlap="allow")
    newer = await bench.b.win(slot=SLOT + 1, overlap="allow")
    await held.lapse()
    async with bench.unchanged():
        told = await held.claimed_by(bench.b)
        assert (told.outcome, told.status, told.attempt) == ("done", "superseded", 1)
    assert await newer.finish()
    assert (await held.claimed_by(bench.b)).status == "superseded"
    assert (await bench.look())["job", SLOT][0] == 1
    assert (await held.claimed_by(bench.b, overlap="allow")).outcome == "won"


@rule(
    "OVL-015",
    level="lease",
    spec=("claim-atomic", "claim-own-rules", "claim-supersedes"),
    catches=("race-first-claim", "race-overlap", "race-claim", "sqlite-no-transaction"),
)
async def one_live_run_under_skip(bench: Bench) -> None:
    """Whatever is claimed, finished and released at once under `skip`, at most one run of the job is ever live."""
    clients = await bench.clients(8)

    async def live(number: int) -> list[int]:
        return [run.slot for run in (await clients[number].active()).runs if run.live]

    async def work(number: int) -> None:
        for turn in range(6):
            slot, token = SLOT + turn * 8 + number, f"t{turn}-{number}"
            told = await clients[number].ask(slot=slot, token=token)
            assert len(await live(number)) <= 1
            if told.outcome == "won":
                await asyncio.sleep(0.001)
                assert await live(number) == [slot], f"{slot} was won and not left, and is not the only live one"
                call = clients[number].finish if turn % 2 else clients[number].release
                assert await call("job", slot, token)

    await asyncio.gather(*(work(number) for number in range(len(clients))))


@rule(
    "OVL-016",
    level="lease",
    spec=("claim-row-7", "claim-row-8", "claim-supersedes"),
    catches=(
        "supersedes-at-first-wins-only",
        "supersedes-one",
        "supersedes-nothing",
        "overlap-of-released-runs",
        "takeover-needs-its-mode",
        "supersedes-under-allow",
    ),
)
async def newer_unfinished_runs_stay(bench: Bench) -> None:
    """A takeover under `allow` beside newer runs leaves them unfinished, and the newest can still be taken
    under `skip`."""
    runs = [await bench.a.win(slot=SLOT + number, overlap="allow") for number in range(3)]
    for run in runs:
        assert await run.release()
    taken = await bench.b.win(slot=SLOT, after=1, overlap="allow")
    assert await taken.release()
    newest = await bench.b.win(slot=SLOT + 2, after=1)
    assert sorted((one.slot, one.attempt) for one in newest.result.previous) == [
        (SLOT, 2),
        (SLOT + 1, 1),
        (SLOT + 2, 1),
    ]


@rule(
    "OVL-017",
    level="lease",
    spec=("previous-superseded", "claim-supersedes"),
    catches=("previous-at-most-ten", "supersedes-one", "previous-own-only"),
)
async def every_superseded_run_is_told(bench: Bench) -> None:
    """A win under `skip` supersedes a hundred and more unfinished runs, and is told of each, once."""
    slots = [SLOT + number for number in range(120)]
    for start in range(0, len(slots), 30):
        some = await asyncio.gather(*(bench.a.win(slot=slot, overlap="allow") for slot in slots[start : start + 30]))
        assert all(await asyncio.gather(*(held.release() for held in some)))
    newest = await bench.b.win(slot=SLOT + 1_000)
    assert sorted(one.slot for one in newest.result.previous) == slots
    assert [slot for _, slot in await bench.look()] == [SLOT + 1_000]
    assert (await newest.again()).previous == newest.result.previous
