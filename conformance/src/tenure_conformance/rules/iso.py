"""Isolation: a namespace is a world of its own."""

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import VERBS, answered, guarded
from tenure_conformance.oracle import Oracle
from tenure_conformance.records import attempted
from tenure_conformance.rule import rule


@rule(
    "ISO-001",
    level="lease",
    spec=("namespace-only", "word-run"),
    catches=("sqlite-active-of-all-namespaces", "namespace-ignored"),
)
async def namespaces_share_no_runs(bench: Bench) -> None:
    """The same run is won in two namespaces, and what is done to it in one leaves it in the other as it was."""
    other = await bench.client("other", namespace=bench.namespace + "-b")
    mine = await bench.a.win(token="same")
    theirs = await other.win(token="same", instance="theirs")
    assert await mine.finish("failed")
    shown = {("job", SLOT): (1, theirs.fence, "theirs", True, theirs.started_at, theirs.expires_at)}
    bench.assert_same(shown, await bench.look(by=other))
    assert await theirs.release()
    assert (await bench.b.ask()).status == "failed"
    assert (await other.win(after=1)).attempt == 2
    assert await bench.look() == {}


@rule(
    "ISO-002",
    level="lease",
    spec=("namespace-only", "calls-guarded"),
    catches=(
        "finish-of-any-token",
        "release-of-any-token",
        "heartbeat-of-any-token",
        "answers-are-numbers",
        "namespace-ignored",
    ),
)
async def tokens_end_at_the_namespace(bench: Bench) -> None:
    """A token that holds a run in one namespace can do nothing to the same run in another."""
    other = await bench.client("other", namespace=bench.namespace + "-b")
    mine = await bench.a.win()
    theirs = await other.win()
    for verb in VERBS:
        assert not await guarded(other, verb, "job", SLOT, mine.token)
        assert not await guarded(bench.a, verb, "job", SLOT, theirs.token)
    assert await mine.heartbeat()
    assert await theirs.heartbeat()


@rule(
    "ISO-003",
    level="lease",
    spec=("namespace-only", "errors-closed"),
    catches=(
        "leaving-releases",
        "leaving-empties",
        "entering-empties",
        "entering-releases",
        "overlap-of-any-job",
        "namespace-ignored",
    ),
)
async def leaving_disturbs_nobody(bench: Bench) -> None:
    """A client that leaves, of this namespace or another, takes nothing of the others with it."""
    held = await bench.a.win()
    async with bench.visitor("guest") as guest:
        theirs = await guest.win(job="theirs")
        assert (await guest.ask()).outcome == "running"
    async with bench.visitor("stranger", namespace=bench.namespace + "-b") as stranger:
        await stranger.win()
    assert await held.heartbeat()
    assert (await bench.look("theirs", by=bench.a))["theirs", SLOT][0] == 1
    assert await theirs.finish(by=bench.b)
    assert await held.finish()


@rule(
    "ISO-004",
    level="lease",
    spec=("namespace-only", "names-exact", "limits-name"),
    catches=(
        "namespace-casefolded",
        "namespace-cut-at-64",
        "namespace-normalized",
        "namespace-stripped",
        "sqlite-active-of-all-namespaces",
        "namespace-ignored",
    ),
)
@answered("a possible namespace")
async def namespaces_are_exact(bench: Bench) -> None:
    """Namespaces that differ in case, a space, Unicode form, a separator or their last of 200 bytes are different."""
    base = bench.namespace
    endings = ("\u00e9", "e\u0301", " ", "  ", ":job", "%", "*", "_", "-B", "-b", "/..", "\\", "'", '"')
    fill = 200 - len(base)
    distinct = [base + ending for ending in (*endings, "x" * fill, "x" * (fill - 1) + "y", "x" * (fill - 1))]
    clients = [await bench.client(f"n{number}", namespace=name) for number, name in enumerate(distinct)]
    for number, client in enumerate(clients):
        held = await client.win(instance=f"i{number}")
        assert held.attempt == 1, distinct[number]
    for number, client in enumerate(clients):
        assert [run[2] for run in (await bench.look(by=client)).values()] == [f"i{number}"]
    assert await bench.look() == {}


@rule(
    "ISO-005",
    level="lease",
    spec=("namespace-only", "names-exact"),
    catches=("names-joined", "names-joined-by-slash", "namespace-ignored"),
)
async def namespace_and_job_do_not_join(bench: Bench) -> None:
    """A namespace and a job's name that read alike when joined are still two names: no separator can be smuggled in."""
    for number, sign in enumerate((":", "/", ".", "#", "|", "-", "_", " ", "}", "{", "$", "\\", "::")):
        left = await bench.client(f"l{number}", namespace=f"{bench.namespace}-{number}")
        right = await bench.client(f"r{number}", namespace=f"{bench.namespace}-{number}{sign}x")
        assert (await left.win(job=f"x{sign}y")).attempt == 1
        assert (await right.win(job="y")).attempt == 1, f"joined by {sign!r}"
        await left.save_result(f"x{sign}y", attempted())
        assert await right.results("y") == []


@rule(
    "ISO-006",
    level="lease",
    spec=("namespace-only", "bounds-never-dropped", "bounds-history"),
    catches=(
        "fence-of-kept-runs",
        "namespaces-share-results",
        "sqlite-records-of-all-namespaces",
        "sqlite-active-of-all-namespaces",
        "namespace-ignored",
    ),
)
async def neighbours_see_nothing(bench: Bench) -> None:
    """What many wins, ends, superseded runs and dropped records do in one namespace, its neighbour never notices."""
    other = await bench.client("other", namespace=bench.namespace + "-b")
    witness = Oracle(bench)
    for number in range(3):
        await witness.claim(other, bench.claim(slot=SLOT + number, overlap="allow", token=f"t{number}"))
    await witness.finish(other, SLOT, "t0", "failed")
    await witness.release(other, SLOT + 1, "t1")
    await other.save_result("job", attempted(SLOT + 1))
    for number in range(150):
        held = await bench.b.win(slot=SLOT + number)
        await bench.b.save_result("job", attempted(SLOT + number))
        assert await (held.finish() if number % 3 else held.release())
    await witness.look(other)
    assert await other.results() == [attempted(SLOT + 1)]
    await witness.claim(other, bench.claim(slot=SLOT, overlap="allow"))
    await witness.claim(other, bench.claim(slot=SLOT + 1, overlap="allow", after=1))
    await witness.heartbeat(other, SLOT + 2, "t2")
