"""What a lease backend does, over every store of ours, always through two objects on one store."""

import asyncio
import os
import time
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tenure.errors import BackendClosed, InvalidClaim
from tenure.memory import MemoryBackend, MemoryStore
from tenure.model import CARD_KEPT_MS, Claim, JobCard, RunResult, new_token
from tenure.protocol import Examines, JobCards

NOON = 1_796_126_400_000
NAMES = [
    "a:b",
    "a",
    "{a}",
    "a b",
    "ü",
    "u\N{COMBINING DIAERESIS}",
    "a.b",
    "$x",
    "%",
    "../x",
    "'",
    '"',
    "A",
    "a ",
    "*",
    "_",
    "🎉",
    "n" * 200,
]


def claim(job="sync", slot=NOON, token="one", **changes):
    fields = {"instance": f"at-{token}", "lease_ms": 1_000, "mode": "scheduled", "overlap": "skip", "max_attempts": 3}
    return Claim(job=job, slot=slot, token=token, **{**fields, "max_late_ms": None, **changes})


@asynccontextmanager
async def two(store, **options):
    async with store.open(**options) as first, store.open(**options) as second:
        yield first, second


def run(store, scenario, **options):
    async def main():
        async with two(store, **options) as (first, second):
            await scenario(first, second)

    asyncio.run(main())


JOBS = ["a", "b"]
SLOTS = [NOON - 2_000, NOON - 1_000, NOON, NOON + 1_000, NOON + 9_000]
TOKENS = ["t1", "t2", "t3"]
RUN = (st.sampled_from(JOBS), st.sampled_from(SLOTS), st.sampled_from(TOKENS))
CALLS = st.one_of(
    st.tuples(st.just("tick"), st.sampled_from([1, 499, 500, 1_000, 1_001])),
    st.builds(
        lambda run, **changes: ("claim", claim(*run, **changes)),
        st.tuples(*RUN),
        mode=st.sampled_from(["scheduled", "takeover", "manual"]),
        overlap=st.sampled_from(["skip", "skip", "allow"]),
        max_attempts=st.integers(1, 3),
        max_late_ms=st.sampled_from([None, None, 1_500]),
        after=st.integers(0, 2),
        lease_ms=st.sampled_from([500, 1_000]),
    ),
    st.tuples(st.just("heartbeat"), *RUN),
    st.tuples(st.just("finish"), *RUN, st.sampled_from(["success", "failed"])),
    st.tuples(st.just("release"), *RUN),
    st.tuples(st.just("active"), st.lists(st.sampled_from(JOBS))),
    st.builds(
        lambda job, slot, attempt, status: ("save_result", job, RunResult(slot, attempt, 7, status, "i", 1, 2, status)),
        st.sampled_from(JOBS),
        st.sampled_from(SLOTS[:2]),
        st.integers(1, 2),
        st.sampled_from(["success", "crashed", "interrupted"]),
    ),
    st.builds(
        lambda job, slot, status: ("save_result", job, RunResult(slot, 0, 0, status, "i", None, None)),
        st.sampled_from(JOBS),
        st.sampled_from(SLOTS),
        st.sampled_from(["late", "overlap"]),
    ),
    st.tuples(st.just("results"), st.sampled_from(JOBS)),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(st.tuples(st.booleans(), CALLS), min_size=10, max_size=60))
def test_every_answer_is_the_reference_s(make_store, calls):
    async def main():
        clock = [NOON]
        store = make_store()
        async with MemoryBackend(MemoryStore(lambda: clock[0]), keep_results=3) as reference, AsyncExitStack() as stack:
            objects = [await stack.enter_async_context(store.open(keep_results=3)) for _ in range(2)]
            for which, (method, *arguments) in calls:
                if method == "tick":
                    clock[0] += arguments[0]
                    store.set_clock(clock[0])
                else:
                    expected = await getattr(reference, method)(*arguments)
                    assert await getattr(objects[which], method)(*arguments) == expected, (method, arguments)

    asyncio.run(main())


def test_a_stale_owner_s_heartbeat_is_refused_and_moves_nothing(store):  # LL04
    async def scenario(first, second):
        await first.claim(claim())
        store.set_clock(NOON + 1_000)
        won = await second.claim(claim(token="two", mode="takeover", after=1))
        assert (won.outcome, won.attempt) == ("won", 2)
        store.set_clock(NOON + 1_500)
        before = await second.active(["sync"])
        assert not await first.heartbeat("sync", NOON, "one")
        assert not await first.finish("sync", NOON, "one", "success")
        assert not await first.release("sync", NOON, "one")
        assert await second.active(["sync"]) == before
        assert before.runs[0].lease_left_ms == 500

    run(store, scenario)


def test_a_lease_that_ran_out_and_that_nobody_took_is_revived(store):  # LL14
    async def scenario(first, second):
        await first.claim(claim())
        store.set_clock(NOON + 5_000)
        assert await first.heartbeat("sync", NOON, "one")
        left = await second.claim(claim(token="two", mode="takeover", after=1))
        assert (left.outcome, left.lease_left_ms) == ("running", 1_000)

    run(store, scenario)


def test_names_that_look_alike_are_different_jobs(store):  # NK02
    async def scenario(first, second):
        for number, name in enumerate(NAMES):
            assert (await first.claim(claim(name, token=f"t{number}"))).outcome == "won", name
            await first.save_result(name, RunResult(NOON, 1, number, "success", name, 1, 2))
        runs = (await second.active(NAMES)).runs
        assert [run.job for run in runs] == sorted(NAMES)
        for number, name in enumerate(NAMES):
            assert await second.finish(name, NOON, f"t{number}", "success"), name
            assert [result.fence for result in await second.results(name)] == [number]

    run(store, scenario)


def test_namespaces_on_one_store_do_not_see_each_other(store):  # NK02
    async def main():
        async with store.open(namespace="a") as first, store.open(namespace="a:b") as second:
            assert (await first.claim(claim("b:c"))).outcome == "won"
            assert (await second.claim(claim("c"))).outcome == "won"
            assert not await second.finish("b:c", NOON, "one", "success")
            assert [run.job for run in (await second.active(["b:c", "c"])).runs] == ["c"]
            await first.save_result("c", RunResult(NOON, 0, 0, "late", "i", None, None))
            assert await second.results("c") == []

    asyncio.run(main())


@pytest.mark.parametrize("name", ["", "n" * 201, "a\x00b", "\ud800", "a\nb"])
def test_names_that_break_a_limit_are_refused_before_anything_is_sent(store, name):  # NK02
    async def scenario(first, _):
        calls = [
            lambda: first.heartbeat(name, NOON, "one"),
            lambda: first.finish(name, NOON, "one", "success"),
            lambda: first.release(name, NOON, "one"),
            lambda: first.active(["fine", name]),
            lambda: first.save_result(name, RunResult(NOON, 0, 0, "late", "i", None, None)),
            lambda: first.results(name),
        ]
        for call in calls:
            with pytest.raises(InvalidClaim):
                await call()

    run(store, scenario)
    with pytest.raises(InvalidClaim):
        store.open(namespace=name)


@pytest.mark.parametrize("text", ["nul \x00", "surrogate \ud800", "x" * 10_000_000, "", "🎉" * 30_000])
def test_any_error_text_is_kept_cleaned(store, text):  # SE03
    async def scenario(first, second):
        result = RunResult(NOON, 1, 1, "failed", "i", 1, 2, text)
        await first.save_result("sync", result)
        assert await second.results("sync") == [result]
        assert len(result.error.encode()) <= 65_536

    run(store, scenario)


def test_integers_keep_every_digit(store):  # SE04
    slot = 253_402_300_799_999

    async def scenario(first, second):
        store.set_clock(slot - 1)
        won = await first.claim(claim(slot=slot, lease_ms=2**53 + 1))
        assert (won.fence, won.lease_left_ms) == (slot - 1, 2**53 + 1)
        again = await second.claim(claim(slot=slot, token="two"))
        assert again.lease_left_ms == 2**53 + 1
        result = RunResult(slot, 1, 2**62 + 1, "success", "i", 2**53 + 1, 2**53 + 3)
        await first.save_result("sync", result)
        assert await second.results("sync") == [result]

    run(store, scenario)


def test_an_ended_run_stays_ended_whatever_the_history_keeps(store):  # DR02
    async def scenario(first, second):
        await first.claim(claim())
        await first.finish("sync", NOON, "one", "success")
        for number in range(3):
            await first.save_result("sync", RunResult(NOON + number, 1, 1, "success", "i", 1, 2))
        assert [result.slot for result in await second.results("sync")] == [NOON + 2]
        store.set_clock(NOON + 100_000_000)
        again = await second.claim(claim(token="two", mode="manual"))
        assert (again.outcome, again.status) == ("done", "success")

    run(store, scenario, keep_results=1)


def test_an_older_record_that_comes_late_is_dropped(store):
    async def scenario(first, second):
        for slot in (NOON, NOON + 2, NOON + 1, NOON - 1):
            await first.save_result("sync", RunResult(slot, 1, 1, "success", "i", 1, 2))
        assert [result.slot for result in await second.results("sync", limit=100)] == [NOON + 2, NOON + 1]

    run(store, scenario, keep_results=2)


@pytest.mark.parametrize("second_status", ["success", "failed", "interrupted", "crashed"])
def test_crashed_overwrites_nothing_and_any_other_attempt_s_record_does(store, second_status):
    async def scenario(first, second):
        for status in ("crashed", "interrupted"):
            before = RunResult(NOON, 2, 7, status, "i", 1, 2)
            after = RunResult(NOON, 2, 8, second_status, "j", 3, 4, "text")
            await first.save_result(status, before)
            await second.save_result(status, after)
            assert await first.results(status) == [before if second_status == "crashed" else after]

    run(store, scenario)


def test_a_slot_that_was_not_run_never_overwrites_its_first_reason(store):
    async def scenario(first, second):
        late = RunResult(NOON, 0, 0, "late", "i", None, None)
        await first.save_result("sync", late)
        await second.save_result("sync", RunResult(NOON, 0, 0, "overlap", "j", None, None))
        assert await first.results("sync") == [late]

    run(store, scenario)


def test_results_are_the_newest_by_slot_and_attempt(store):
    async def scenario(first, second):
        saved = [RunResult(NOON + slot, attempt, 1, "success", "i", 1, 2) for attempt in (1, 3, 2) for slot in (0, 1)]
        for result in saved:
            await first.save_result("sync", result)
        newest = [(NOON + 1, 3), (NOON + 1, 2), (NOON + 1, 1), (NOON, 3)]
        assert [(result.slot, result.attempt) for result in await second.results("sync", limit=4)] == newest
        assert len(await second.results("sync")) == 6

    run(store, scenario)


def test_any_number_of_jobs_is_asked_for_in_one_call(store):
    async def scenario(first, second):
        names = [f"job {number}" for number in range(40_000)]
        await first.claim(claim(names[0]))
        await first.claim(claim(names[-1]))
        assert [run.job for run in (await second.active(names)).runs] == [names[0], names[-1]]
        assert (await second.active([])).runs == ()

    run(store, scenario)


def test_of_fifty_claims_at_once_one_wins(store):  # DR10
    async def scenario(first, second):
        for slot in range(NOON, NOON + 20):
            claims = [(first, second)[n % 2].claim(claim(slot=slot, token=f"{slot}-{n}")) for n in range(50)]
            outcomes = [result.outcome for result in await asyncio.gather(*claims)]
            assert sorted(outcomes) == ["running"] * 49 + ["won"]
            winner = f"{slot}-{outcomes.index('won')}"
            assert await second.finish("sync", slot, winner, "success")

    run(store, scenario)


def test_outside_of_entering_and_leaving_every_call_is_refused(store):
    async def main():
        backend = store.open()
        for moment in ("before entering", "after leaving"):
            for call in (
                lambda: backend.claim(claim()),
                lambda: backend.heartbeat("sync", NOON, "one"),
                lambda: backend.finish("sync", NOON, "one", "success"),
                lambda: backend.release("sync", NOON, "one"),
                lambda: backend.active(["sync"]),
                lambda: backend.active([]),
                lambda: backend.save_result("sync", RunResult(NOON, 0, 0, "late", "i", None, None)),
                lambda: backend.results("sync"),
            ):
                with pytest.raises(BackendClosed):
                    await call()
            if moment == "before entering":
                async with backend:
                    await backend.active(["sync"])

    asyncio.run(main())


def test_an_object_can_be_entered_again_and_by_two_at_once(store):
    async def main():
        backend = store.open()
        async with backend:
            await backend.claim(claim())
        async with backend, backend:
            async with backend:
                pass
            assert len((await backend.active(["sync"])).runs) == 1

    asyncio.run(main())


def test_tokens_of_forked_processes_differ():  # DR07
    new_token()
    tokens = set()
    for _ in range(4):
        reading, writing = os.pipe()
        if (pid := os.fork()) == 0:
            os.write(writing, new_token().encode())
            os._exit(0)
        os.waitpid(pid, 0)
        tokens.add(os.read(reading, 100))
        os.close(reading)
        os.close(writing)
    assert len(tokens) == 4


# Cards


def card(job, **changes):
    fields = {"schedule": "every 10s", "words": "every 10 seconds", "lease_ms": 30_000, "overlap": "skip"}
    fields |= {"max_attempts": 3, "max_late_ms": None, "next_slot": NOON, "instance": "a"}
    return JobCard(job=job, **{**fields, "seen_at_ms": max(NOON, int(time.time() * 1_000)), **changes})


def test_cards_are_kept_by_job_the_last_of_each_and_the_old_are_forgotten(store):
    saved = [card(name, words=f"ü {name}") for name in NAMES]

    async def scenario(first, second):
        if not isinstance(first, JobCards):
            pytest.skip("this backend keeps no cards")
        assert await second.cards() == []
        await first.save_cards(saved)
        assert await second.cards() == sorted(saved, key=lambda card: card.job)
        changed = card("a", schedule="cron 0 9 * * * UTC", max_late_ms=1, next_slot=None, instance="b")
        old = card("old", seen_at_ms=NOON - CARD_KEPT_MS - 60_000)
        await second.save_cards([changed, old])
        await first.save_cards([card("a b", words="ü a b", instance="c")])
        found = {card.job: card for card in await first.cards()}
        assert found["a"] == changed
        assert set(found) == set(NAMES)

    run(store, scenario)


def test_a_thousand_cards_are_kept(store):
    saved = [card(f"job-{number:04}") for number in range(1_000)]

    async def scenario(first, second):
        if not isinstance(first, JobCards):
            pytest.skip("this backend keeps no cards")
        await first.save_cards(saved)
        await first.save_cards([])
        assert await second.cards() == saved

    run(store, scenario)


def test_a_store_that_is_well_has_nothing_wrong_with_it(store):
    async def scenario(first, second):
        if not isinstance(first, Examines):
            pytest.skip("this backend does not examine its store")
        await second.claim(claim())
        findings = await first.examine()
        assert findings
        for finding in findings:
            # A server of tests saves itself the waiting for its disk, and Postgres says so.
            assert finding.state != "wrong" or finding.text.startswith("fsync is off"), finding
            assert (finding.remedy is None) == (finding.state == "ok"), finding

    run(store, scenario)
