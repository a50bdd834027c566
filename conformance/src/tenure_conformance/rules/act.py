"""Active: every unfinished run, complete, fresh and nothing else."""

import asyncio

from tenure.model import ActiveRun

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import Client, Held, answered
from tenure_conformance.rule import rule
from tenure_conformance.timing import LONG_MS


@rule(
    "ACT-001",
    level="lease",
    spec=("active-all", "active-live", "recorded-times"),
    catches=(
        "active-in-the-order-asked",
        "active-newest-first",
        "active-started-with-the-slot",
        "active-tells-seconds",
    ),
)
async def active_tells_all(bench: Bench) -> None:
    """`active` gives each unfinished run with exactly what its win said, ordered by job and slot, to every client."""
    runs = []
    for job in ("b", "a", "c"):
        for number in (2, 0, 1):
            options = {"job": job, "slot": SLOT + number, "instance": f"{job}{number}", "lease_ms": LONG_MS + number}
            runs.append(await (bench.a, bench.b)[number % 2].win(overlap="allow", **options))  # type: ignore[arg-type]  # one dict for all
    for client in (bench.a, bench.b):
        active = await client.active("c", "a", "b")
        expected = sorted(runs, key=lambda run: (run.job, run.slot))
        assert [(run.job, run.slot) for run in active.runs] == [(run.job, run.slot) for run in expected]
        for shown, run in zip(active.runs, expected, strict=True):
            left_ms = run.expires_at - active.now_ms
            assert bench.same_time(shown.lease_left_ms, left_ms)
            named = (run.job, run.slot, 1, run.fence, run.claim.instance, True, shown.lease_left_ms, run.started_at)
            assert shown == ActiveRun(*named)


@rule(
    "ACT-002",
    level="lease",
    spec=("active-all", "word-superseded"),
    pace="timed",
    catches=(
        "exhausted-stays-unfinished",
        "supersedes-nothing",
        "active-live-only",
        "active-without-released",
        "active-newest-first",
        "active-with-ended",
    ),
)
async def active_is_the_unfinished(bench: Bench) -> None:
    """`active` has the runs that are live, lapsed and released, and none that finished, was exhausted or superseded."""
    old = await bench.a.win(slot=SLOT)
    assert await old.release()
    superseder = await bench.a.win(slot=SLOT + 1)
    spent = await bench.a.win(slot=SLOT + 2, overlap="allow", lease_ms=bench.short_ms)
    lapsed = await bench.a.win(slot=SLOT + 3, overlap="allow", lease_ms=bench.short_ms)
    failed = await bench.a.win(slot=SLOT + 4, overlap="allow")
    released = await bench.a.win(slot=SLOT + 5, overlap="allow")
    assert await failed.finish("failed")
    assert await released.release()
    await lapsed.lapse()
    assert (await spent.claimed_by(bench.b, max_attempts=1, overlap="allow")).status == "exhausted"
    assert await superseder.heartbeat()
    for client in (bench.a, bench.b):
        runs = (await client.active()).runs
        shown = [(run.slot - SLOT, run.live, run.lease_left_ms > 0) for run in runs]
        assert shown == [(1, True, True), (3, False, False), (5, False, False)]


@rule(
    "ACT-003",
    level="lease",
    spec=("active-named", "result-now"),
    catches=("active-of-none-fails", "jobs-are-one"),
)
@answered("no runs")
async def unknown_jobs_have_no_runs(bench: Bench) -> None:
    """`active` of unknown jobs, or of none, is empty and tells the store's clock all the same."""
    held = await bench.a.win()
    for jobs in (["unknown"], ["unknown", "other"], []):
        active = await bench.b.backend.active(jobs)
        assert active.runs == ()
        assert type(active.now_ms) is int
        assert held.started_at - bench.loose_ms <= active.now_ms < held.started_at + 600_000


@rule("ACT-004", level="lease", spec="active-fresh", catches=("active-remembered", "active-stale"))
async def active_sees_every_write(bench: Bench) -> None:
    """`active` shows each write as soon as it was answered, over another client too."""
    for turn in range(40):
        one, other = (bench.a, bench.b) if turn % 2 else (bench.b, bench.a)
        held = await one.win(slot=SLOT + turn)
        assert list(await bench.look(by=other)) == [("job", SLOT + turn)]
        assert await held.release()
        assert (await bench.look(by=other))["job", SLOT + turn][3] is False
        taken = await one.win(slot=SLOT + turn, after=1)
        assert (await bench.look(by=other))["job", SLOT + turn][0] == 2
        assert await taken.finish(by=other)
        assert await bench.look(by=one) == {}


@rule(
    "ACT-005",
    level="lease",
    spec=("active-all", "bounds-allow"),
    pace="heavy",
    catches=(
        "sqlite-active-page",
        "active-first-page",
        "prunes-live-runs",
        "active-in-the-order-asked",
        "active-newest-first",
    ),
)
@answered("many runs")
async def active_has_no_pages(bench: Bench) -> None:
    """`active` gives hundreds of runs of one job and of hundreds of jobs in one call, each once and in order."""
    count = min(bench.target.limits.runs, 1_000)
    clients = await bench.clients(4)
    for start in range(0, count, 20):
        numbers = range(start, min(start + 20, count))
        await asyncio.gather(*(clients[number % 4].win(slot=SLOT + number, overlap="allow") for number in numbers))
        await asyncio.gather(*(clients[number % 4].win(job=f"job {number:04}") for number in numbers))
    runs = (await bench.b.active()).runs
    assert [run.slot for run in runs] == [SLOT + number for number in range(count)]
    assert all(run.live for run in runs)
    jobs = [f"job {number:04}" for number in range(count)]
    assert [run.job for run in (await bench.b.active(*reversed(jobs))).runs] == jobs


@rule(
    "ACT-006",
    level="lease",
    spec=("active-named", "names-exact", "namespace-only"),
    catches=(
        "names-without-wildcards",
        "sqlite-nocase",
        "sqlite-trimmed",
        "active-names-folded",
        "names-padded",
        "names-stripped",
    ),
)
async def active_is_of_the_named(bench: Bench) -> None:
    """`active` gives no run of a job with a like name or of another namespace."""
    elsewhere = await bench.client("elsewhere", namespace=bench.namespace + "2")
    like = ("sync", "sync2", "sync:eu", "SYNC", "syn", "s%", "s*", "sync ", "sy_c")
    for job in like:
        await bench.a.win(job=job)
    await elsewhere.win(job="other")
    for job in like:
        assert list(await bench.look(job)) == [(job, SLOT)]
    assert await bench.look("other") == {}
    assert list(await bench.look("other", by=elsewhere)) == [("other", SLOT)]


@rule(
    "ACT-007",
    level="lease",
    spec=("active-all", "active-named"),
    catches=("active-repeats", "active-in-the-order-asked", "jobs-are-one"),
)
async def jobs_may_be_named_twice(bench: Bench) -> None:
    """`active` of a job that is named twice, among unknown ones, gives its runs once."""
    await bench.a.win(job="b")
    await bench.a.win(job="a", slot=SLOT + 1)
    active = await bench.b.active("b", "x", "a", "b", "a")
    assert [(run.job, run.slot) for run in active.runs] == [("a", SLOT + 1), ("b", SLOT)]


@rule(
    "ACT-008",
    level="lease",
    spec=("active-live", "word-live", "time-store-clock"),
    pace="timed",
    catches=(
        "expiry-inclusive",
        "active-left-below-zero",
        "active-tells-seconds",
        "expiry-with-grace",
        "now-of-entering",
        "active-all-live",
    ),
)
async def live_is_judged_by_now(bench: Bench) -> None:
    """In each answer of `active` a run is live if its `now_ms` is before the lease's end, with exactly that
    much left."""
    for turn in range(10):
        if await _watched_to_the_end(bench, f"job {turn}") or bench.loose_ms:
            return


async def _watched_to_the_end(bench: Bench, job: str) -> bool:
    """Watch leases whose ends lie a few milliseconds apart; whether an answer fell on the very end of one."""
    leases = [bench.short_ms + 3 * n for n in range(24)]
    runs = [
        await bench.a.win(job=job, slot=SLOT + n, lease_ms=lease_ms, overlap="allow")
        for n, lease_ms in enumerate(leases)
    ]
    live, hit = True, False
    while live:
        active = await bench.b.active(job)
        assert [shown.slot for shown in active.runs] == [held.slot for held in runs]
        for shown, held in zip(active.runs, runs, strict=True):
            left_ms = held.expires_at - active.now_ms
            if abs(left_ms) > bench.loose_ms or bench.loose_ms == 0:
                assert shown.live == (left_ms > 0), f"{left_ms} ms before the end: {shown}"
            assert shown.live == (shown.lease_left_ms > 0)
            assert bench.same_time(shown.lease_left_ms, max(left_ms, 0))
            hit = hit or left_ms == 0
        live = any(shown.live for shown in active.runs)
        await asyncio.sleep(0)
    return hit


@rule(
    "ACT-009",
    level="lease",
    spec=("recorded-times", "active-all"),
    catches=("heartbeat-starts-anew", "started-with-the-run", "active-started-with-the-slot"),
)
async def started_at_is_the_win(bench: Bench) -> None:
    """`started_at` is `now_ms` of the attempt's win; repetitions and heartbeats leave it, a takeover sets it anew."""
    held = await bench.a.win()
    await asyncio.sleep(0.01)
    assert await held.heartbeat()
    await held.again(by=bench.b)
    assert (await bench.look())["job", SLOT][4] == held.started_at
    assert await held.release()
    assert (await bench.look())["job", SLOT][4] == held.started_at
    await asyncio.sleep(0.01)
    taken = await bench.b.win(after=1)
    assert (await bench.look())["job", SLOT][4] == taken.started_at
    assert taken.started_at > held.started_at - bench.loose_ms


@rule(
    "ACT-010",
    level="lease",
    spec=("claim-writes", "active-live"),
    catches=("active-tells-seconds", "now-of-entering", "active-all-live", "sqlite-new-state-lost"),
)
async def active_changes_nothing(bench: Bench) -> None:
    """Asking `active` a hundred times renews no lease and changes nothing."""
    held = await bench.a.win()
    released = await bench.a.win(slot=SLOT + 1, overlap="allow")
    assert await released.release()
    async with bench.unchanged():
        for number in range(100):
            await (bench.a, bench.b)[number % 2].active("job", "other")
    assert bench.same_time((await bench.look())["job", SLOT][-1], held.expires_at)


@rule("ACT-011", level="lease", spec=("active-fresh", "claim-atomic"), catches=("race-active",))
async def active_is_whole(bench: Bench) -> None:
    """`active` asked amid writes shows each run whole: attempt, fence, holder and start of one and the same win."""
    wins: dict[int, Held] = {}

    async def pause() -> None:  # of no fixed length, so that nobody keeps in step with another
        for _ in range(bench.random.randrange(1, 4)):
            await asyncio.sleep(0)

    async def write(client: Client) -> None:
        for attempt in range(15):
            held = await client.win(after=attempt, instance=f"holder {attempt + 1}")
            wins[held.attempt] = held
            await pause()
            await held.release()
            await pause()

    seen: list[ActiveRun] = []

    async def watch(client: Client) -> None:
        while len(wins) < 15:
            seen.extend((await client.active()).runs)
            await pause()

    await asyncio.gather(write(bench.a), watch(bench.b), watch(await bench.client("c")))
    for shown in seen:
        win = wins[shown.attempt]
        assert (shown.fence, shown.holder, shown.started_at) == (win.fence, win.claim.instance, win.started_at)


@rule(
    "ACT-012", level="lease", spec=("active-all", "active-named"), catches=("active-in-the-order-asked", "jobs-are-one")
)
@answered("many jobs")
async def many_jobs_may_be_named(bench: Bench) -> None:
    """`active` can be asked for thousands of jobs with long names in one call, of which few are known."""
    jobs = [f"{'x' * 100} {number}" for number in range(3_000)]
    known = jobs[::300]
    for job in known:
        await bench.a.win(job=job)
    shuffled = jobs.copy()
    bench.random.shuffle(shuffled)
    assert [run.job for run in (await bench.b.active(*shuffled)).runs] == sorted(known)
