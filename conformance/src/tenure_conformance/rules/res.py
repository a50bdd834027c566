"""Results: one record per attempt, whole, newest first, bounded."""

import asyncio
from itertools import product

from tenure.errors import InvalidClaim
from tenure.model import MAX_SLOT, RunResult

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import answered, only, refused
from tenure_conformance.records import ATTEMPTED, UNSTARTED, attempted, other_than, unstarted
from tenure_conformance.rule import rule


@rule(
    "RES-001",
    level="lease",
    spec=("results-one-record", "result-statuses"),
    catches=("results-times-in-seconds", "results-of-known-runs-only", "slot-of-results-in-seconds"),
)
async def results_round_trip(bench: Bench) -> None:
    """A saved record comes back equal in every field, for each status, to every client."""
    saved = [attempted(SLOT + n, n + 1, status, f"e{n}" if n else None) for n, status in enumerate(ATTEMPTED)]
    saved += [unstarted(SLOT + 10 + number, status) for number, status in enumerate(UNSTARTED)]
    for result in saved:
        await bench.a.save_result("job", result)
    for client in (bench.a, bench.b):
        found = await client.results()
        assert found == saved[::-1]
        for result in found:
            assert type(result) is RunResult
            assert {type(n) for n in (result.slot, result.attempt, result.fence)} == {int}
            assert {type(t) for t in (result.started_at, result.ended_at)} <= {int, type(None)}


@rule(
    "RES-002",
    level="lease",
    spec=("results-one-record", "results-order"),
    catches=(
        "results-one-per-run",
        "sqlite-records-unordered",
        "results-oldest-first",
        "results-as-saved",
        "results-of-known-runs-only",
    ),
)
async def attempts_have_their_own_records(bench: Bench) -> None:
    """Attempts of one run, and the record of why it was not run, are kept apart, the last attempt first."""
    for attempt in (2, 10, 1, 3):
        await bench.a.save_result("job", attempted(attempt=attempt, status="crashed"))
    await bench.b.save_result("job", unstarted(SLOT, "exhausted"))
    assert [(one.slot, one.attempt) for one in await bench.b.results()] == [(SLOT, n) for n in (10, 3, 2, 1, 0)]


@rule(
    "RES-003",
    level="lease",
    spec=("results-order", "results-limit"),
    catches=(
        "results-without-limit",
        "results-oldest-within-limit",
        "sqlite-records-unordered",
        "results-oldest-first",
        "results-as-saved",
    ),
)
async def newest_come_first(bench: Bench) -> None:
    """Records come newest first, by slot and then attempt and not by when they were saved, at most `limit` of them."""
    saved = [attempted(slot, attempt) for slot in (9, 10, 99, 100, 1_000, SLOT) for attempt in (1, 2, 11)]
    shuffled = saved.copy()
    bench.random.shuffle(shuffled)
    for result in shuffled:
        await bench.a.save_result("job", result)
    for limit in (1, 2, 5, 17, 18, 19, 1_000):
        for client in (bench.a, bench.b):
            assert await client.results(limit=limit) == saved[::-1][:limit]


@rule(
    "RES-004",
    level="lease",
    spec=("limits-error-text", "limits-error-cut"),
    catches=("error-cut-at-1000", "error-in-ascii", "error-refused"),
)
@answered("a long text")
async def long_errors_are_kept(bench: Bench) -> None:
    """An error text of 64 KiB is kept whole, and of a longer one as much, with a mark at its end."""
    whole, wide = "x" * 65_536, "ž" * 32_768
    await bench.a.save_result("job", attempted(SLOT, error=whole))
    await bench.a.save_result("job", attempted(SLOT + 1, error=wide))
    cut = attempted(SLOT + 2, error="y" * 500_000)
    await bench.a.save_result("job", cut)
    found = await bench.b.results()
    assert [one.error for one in found] == [cut.error, wide, whole]
    assert found[0].error is not None
    assert len(found[0].error.encode()) <= 65_536
    assert found[0].error.startswith("y" * 65_000)
    assert not found[0].error.endswith("y")


@rule(
    "RES-005",
    level="lease",
    spec=("limits-error-clean", "limits-error-text"),
    catches=("error-empty-is-none", "error-in-ascii"),
)
@answered("a possible text")
async def every_text_is_kept(bench: Bench) -> None:
    """Error texts of every script, sign and control character come back as the record has them, and the backend
    stays usable."""
    texts = [
        "",
        " ",
        "žluťoučký",
        "𝕏🎩💥",
        "a\x00b",
        "\ud800",
        "\r\n\t\x1b[31m",
        "'\";--\\%_$1{}",
        "\u2028\uffff\ufeff",
        "e\u0301é",
    ]
    for number, text in enumerate(texts):
        await bench.a.save_result("job", attempted(SLOT + number, error=text))
    found = (await bench.b.results())[::-1]
    assert [one.error for one in found] == [attempted(error=text).error for text in texts]
    assert found[0].error == ""


@rule(
    "RES-006",
    level="lease",
    spec=("results-one-record", "errors-repeat"),
    catches=("results-twice", "jobs-share-results", "results-times-in-seconds", "results-of-known-runs-only"),
)
async def saving_twice_is_one_record(bench: Bench) -> None:
    """A record that is saved again, over either client or both at once, is one record."""
    for status in ATTEMPTED:
        result = attempted(status=status)
        await bench.a.save_result(status, result)
        await bench.b.save_result(status, result)
        await asyncio.gather(*(client.save_result(status, result) for client in (bench.a, bench.b) * 4))
        assert await bench.a.results(status) == [result]


@rule(
    "RES-007",
    level="lease",
    spec=("results-one-record", "namespace-only", "names-exact"),
    catches=(
        "names-padded",
        "names-stripped",
        "names-lower-ascii",
        "names-casefolded",
        "jobs-share-results",
        "namespaces-share-results",
    ),
)
async def results_are_of_their_job(bench: Bench) -> None:
    """Records belong to one job of one namespace, and not to those with like names."""
    elsewhere = await bench.client("elsewhere", namespace=bench.namespace + "2")
    for number, job in enumerate(("sync", "sync2", "Sync", "sync ", "s%")):
        await bench.a.save_result(job, attempted(SLOT + number))
    await elsewhere.save_result("sync", attempted(SLOT + 9))
    for number, job in enumerate(("sync", "sync2", "Sync", "sync ", "s%")):
        assert [one.slot for one in await bench.b.results(job)] == [SLOT + number]
    assert [one.slot for one in await elsewhere.results("sync")] == [SLOT + 9]
    assert await bench.b.results("unknown") == []


@rule(
    "RES-008",
    level="lease",
    spec=("results-crashed-yields", "results-overwrite"),
    catches=(
        "crashed-overwrites",
        "interrupted-yields",
        "overwriting-forgets-older",
        "results-never-overwrite",
        "sqlite-records-half-overwritten",
        "results-remembered",
        "sqlite-records-always-overwrite",
    ),
)
async def crashed_yields(bench: Bench) -> None:
    """Of two records of one attempt the second stays, unless it is `crashed`: every pair of statuses, in both
    orders."""
    kept = []
    for number, (first, second) in enumerate(product(ATTEMPTED, ATTEMPTED)):
        one = attempted(SLOT + number, 1, first, "one")
        two = other_than(one, second)
        await bench.a.save_result("job", one)
        await bench.b.save_result("job", two)
        kept.append(one if second == "crashed" else two)
        found = await bench.a.results(limit=100)
        assert found == kept[::-1], f"{first}, then {second}: {found[0]}"
    await bench.b.save_result("job", attempted(SLOT + 7, 1, "failed", "in the middle"))
    kept[7] = attempted(SLOT + 7, 1, "failed", "in the middle")
    assert await bench.a.results(limit=100) == kept[::-1]


@rule(
    "RES-009",
    level="lease",
    spec="results-crashed-yields",
    catches=("reason-overwrites", "sqlite-records-always-overwrite"),
)
async def first_reason_stays(bench: Bench) -> None:
    """Of two records of why a slot was not run the first stays."""
    for number, (first, second) in enumerate(product(UNSTARTED, UNSTARTED)):
        await bench.a.save_result("job", unstarted(SLOT + number, first))
        await bench.b.save_result("job", unstarted(SLOT + number, second))
        found = only(await bench.b.results(limit=1))
        assert found.status == first, f"{first}, then {second}: {found}"


@rule(
    "RES-010",
    level="lease",
    spec=("bounds-history", "bounds-history-old"),
    catches=(
        "results-drop-the-last-saved",
        "results-forever",
        "results-one-less",
        "results-remembered",
        "sqlite-prunes-by-slot",
        "sqlite-prunes-one-more",
    ),
)
async def newest_hundred_are_kept(bench: Bench) -> None:
    """The newest hundred records are kept, by slot and attempt; an older one that comes late is dropped, one in
    between is not."""
    for number in range(1, 104):
        await (bench.a, bench.b)[number % 2].save_result("job", attempted(SLOT + number * 10))
    expected = [SLOT + number * 10 for number in range(103, 3, -1)]
    assert [one.slot for one in await bench.b.results(limit=500)] == expected
    await bench.a.save_result("job", attempted(SLOT + 5))
    assert [one.slot for one in await bench.b.results(limit=500)] == expected
    await bench.a.save_result("job", attempted(SLOT + 45))
    expected = [*expected[:-1], SLOT + 45]
    assert [one.slot for one in await bench.b.results(limit=500)] == expected
    await bench.a.save_result("job", attempted(SLOT + 45, 2))
    found = [(one.slot, one.attempt) for one in await bench.b.results(limit=500)]
    assert found == [*((slot, 1) for slot in expected[:-1]), (SLOT + 45, 2)][-100:]
    assert len(found) == 100


@rule(
    "RES-016",
    level="lease",
    spec=("results-order", "results-limit", "limits-error-text"),
    catches=("error-cut-at-1000", "error-refused", "sqlite-records-as-text"),
)
@answered("many long texts")
async def long_histories_are_whole(bench: Bench) -> None:
    """A history of megabytes comes back whole: sixty records with error texts of sixty thousand characters each."""
    saved = [attempted(SLOT + number, error=f"{number} " + "x" * 60_000) for number in range(60)]
    for result in saved:
        await bench.a.save_result("job", result)
    assert await bench.b.results(limit=100) == saved[::-1]


@rule(
    "RES-015",
    level="lease",
    spec=("bounds-history", "bounds-history-old", "results-order"),
    catches=(
        "sqlite-prunes-other-jobs",
        "results-drop-the-last-saved",
        "results-forever",
        "results-one-less",
        "sqlite-prunes-by-slot",
        "sqlite-prunes-one-more",
    ),
)
async def history_is_bounded_by_slot_and_attempt(bench: Bench) -> None:
    """What is dropped is the oldest by slot and then attempt, and of no other job, whatever the order of saving."""
    saved = [attempted(SLOT + slot, attempt) for slot in range(60) for attempt in (1, 2, 9)]
    neighbours = [attempted(slot) for slot in (0, SLOT - 1, SLOT + 30)]
    for result in neighbours:
        await bench.a.save_result("neighbour", result)
    shuffled = saved.copy()
    bench.random.shuffle(shuffled)
    for number, result in enumerate(shuffled):
        await (bench.a, bench.b)[number % 2].save_result("job", result)
    assert await bench.b.results(limit=500) == saved[::-1][:100]
    assert await bench.b.results("neighbour") == neighbours[::-1]


@rule(
    "RES-011",
    level="lease",
    spec=("results-limit", "limits-numbers"),
    catches=("limit-unchecked", "results-ten-unless-told", "results-without-limit", "results-oldest-within-limit"),
)
async def limit_has_a_default(bench: Bench) -> None:
    """`results` gives twenty records unless told otherwise, and a limit that is not a positive integer is
    InvalidClaim."""
    for number in range(25):
        await bench.a.save_result("job", attempted(SLOT + number))
    assert [one.slot for one in await bench.b.results()] == [SLOT + number for number in range(24, 4, -1)]
    for limit in (0, -1, 1.5, "3", True):
        with refused(InvalidClaim, f"a limit of {limit!r}"):
            await bench.b.results(limit=limit)  # type: ignore[arg-type]  # the point of the rule
    assert len(await bench.b.results(limit=25)) == 25


@rule(
    "RES-012",
    level="lease",
    spec=("results-one-record", "word-slot", "word-fence"),
    catches=(
        "results-instance-cut",
        "results-numbers-are-doubles",
        "error-empty-is-none",
        "results-times-in-seconds",
        "sqlite-records-as-text",
        "results-of-known-runs-only",
        "slot-of-results-in-seconds",
    ),
)
@answered("a large number")
async def results_keep_large_numbers(bench: Bench) -> None:
    """Slots, fences, attempts and times come back exact up to the largest there are."""
    saved = [
        RunResult(MAX_SLOT, 2**31 + 3, 2**62 + 1, "failed", "🎩" * 50, MAX_SLOT - 1, MAX_SLOT, None),
        RunResult(MAX_SLOT - 1, 2**31, 2**53 + 1, "success", "i", 0, 1, None),
        RunResult(0, 1, 0, "success", "i", 0, 0, ""),
    ]
    for result in saved:
        await bench.a.save_result("job", result)
    assert await bench.b.results() == saved


@rule(
    "RES-013",
    level="lease",
    spec=("results-one-record", "claim-writes"),
    catches=("results-of-known-runs-only", "slot-of-results-in-seconds", "sqlite-new-state-lost"),
)
async def results_and_runs_are_apart(bench: Bench) -> None:
    """Records can be saved of runs that the store does not know, and change no run; runs and their ends write
    no record."""
    held = await bench.a.win(slot=SLOT + 1)
    before = await bench.look()
    for slot in (SLOT, SLOT + 1, SLOT + 2):
        await bench.b.save_result("job", attempted(slot))
    bench.assert_same(before, await bench.look())
    assert await held.finish("failed")
    assert [one.status for one in await bench.b.results()] == ["success"] * 3
    assert (await bench.b.ask(slot=SLOT + 1)).status == "failed"
    assert (await bench.b.win(slot=SLOT + 2)).attempt == 1


@rule(
    "RES-014",
    level="lease",
    spec=("results-one-record", "claim-atomic"),
    catches=(
        "race-results",
        "results-one-per-run",
        "results-times-in-seconds",
        "results-of-known-runs-only",
        "slot-of-results-in-seconds",
    ),
)
async def concurrent_records_are_all_kept(bench: Bench) -> None:
    """Records that many clients save at once are all kept, none twice."""
    clients = await bench.clients()
    saved = [attempted(SLOT + slot, attempt) for slot in range(10) for attempt in range(1, 6)]
    await asyncio.gather(*(clients[number % len(clients)].save_result("job", one) for number, one in enumerate(saved)))
    assert await bench.b.results(limit=100) == saved[::-1]
