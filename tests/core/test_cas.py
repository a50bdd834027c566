"""The compare-and-replace helper: right over a store that conflicts, loses replies, hangs and fails."""

import asyncio
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tenure.cas import CasBackend, Key, Loaded
from tenure.codec import FORMAT, decode_history, decode_state, encode_history, encode_state
from tenure.decision import EMPTY, JobState, RunState
from tenure.errors import BackendClosed, BackendMisconfigured, BackendUnavailable, InvalidClaim
from tenure.memory import MemoryBackend, MemoryStore
from tenure.model import Capabilities, Claim, LostAttempt, RunResult

NOON = 1_796_126_400_000
TICK_S = 1.0  # over its timeout: a quarter is promised, the rest is for a machine that is busy with other things


class FaultyStore:
    """Holds values in memory and does to each call what ``faults`` says next."""

    def __init__(self, now_ms=lambda: NOON):
        self.now_ms = now_ms
        self.values = {}
        self.faults = []
        self.calls = Counter()
        self.entered = 0

    async def __aenter__(self):
        self.entered += 1
        await self._suffer(self._next("enter"))
        return self

    async def __aexit__(self, *_):
        self.entered -= 1

    async def load(self, keys):
        fault = self._next("load")
        await self._suffer(fault)
        return Loaded(self.now_ms(), [self.values.get(key, (None, 0)) for key in keys])

    async def replace(self, key, value, version):
        fault = self._next("replace")
        await self._suffer(fault)
        if fault == "conflict" or self.values.get(key, (None, 0))[1] != version:
            return False
        self.values[key] = value, version + 1
        if fault == "lost reply":
            raise ConnectionResetError("reply lost")
        return True

    def _next(self, method):
        self.calls[method] += 1
        return self.faults.pop(0) if self.faults else None

    async def _suffer(self, fault):
        if fault == "lost request":
            raise ConnectionResetError("request lost")
        if fault == "cancels itself":
            raise asyncio.CancelledError
        if fault == "yields":
            await asyncio.sleep(0)
        if fault == "hangs":
            await asyncio.Event().wait()
        if fault == "swallows cancellation":
            end = time.monotonic() + 3
            while (left := end - time.monotonic()) > 0:
                try:
                    await asyncio.sleep(left)
                except asyncio.CancelledError:
                    continue


def claim(job="sync", slot=NOON, token="one", **changes):
    fields = {"instance": "i", "lease_ms": 1_000, "mode": "scheduled", "overlap": "skip", "max_attempts": 3}
    return Claim(job=job, slot=slot, token=token, **{**fields, "max_late_ms": None, **changes})


SLOTS = [NOON - 1_000, NOON, NOON + 1_000]
TOKENS = ["t1", "t2"]
RUN = (st.just("sync"), st.sampled_from(SLOTS), st.sampled_from(TOKENS))
CALLS = st.one_of(
    st.tuples(st.just("tick"), st.sampled_from([1, 500, 1_000])),
    st.builds(
        lambda run, **changes: ("claim", claim(*run, **changes)),
        st.tuples(*RUN),
        mode=st.sampled_from(["scheduled", "takeover"]),
        overlap=st.sampled_from(["skip", "allow"]),
        max_attempts=st.integers(1, 2),
        after=st.integers(0, 2),
    ),
    st.tuples(st.just("heartbeat"), *RUN),
    st.tuples(st.just("finish"), *RUN, st.sampled_from(["success", "failed"])),
    st.tuples(st.just("release"), *RUN),
    st.tuples(st.just("active"), st.just(["sync", "other"])),
    st.tuples(st.just("results"), st.just("sync")),
    st.builds(
        lambda slot, status: ("save_result", "sync", RunResult(slot, 1, 1, status, "i", 1, 2)),
        st.sampled_from(SLOTS),
        st.sampled_from(["success", "crashed"]),
    ),
)
FAULTS = st.lists(st.sampled_from([None, "yields", "conflict", "lost request", "lost reply"]), max_size=4)


async def repeated(call):
    """The call's answer, asked again after each failure, as an instance does."""
    while True:
        try:
            return await call()
        except BackendUnavailable as exc:
            if not isinstance(exc.__cause__, ConnectionResetError):
                raise


@settings(max_examples=80, deadline=None)
@given(calls=st.lists(st.tuples(st.booleans(), FAULTS, CALLS), min_size=5, max_size=25))
def test_over_a_store_that_conflicts_and_loses_messages_it_answers_like_memory(calls):
    async def main():
        clock = [NOON]
        store = FaultyStore(lambda: clock[0])
        async with (
            MemoryBackend(MemoryStore(lambda: clock[0])) as reference,
            CasBackend(store) as first,
            CasBackend(store) as second,
        ):
            for which, faults, (method, *arguments) in calls:
                if method == "tick":
                    clock[0] += arguments[0]
                    continue
                store.faults = faults
                expected = await getattr(reference, method)(*arguments)
                answer = await repeated(lambda m=method, a=arguments, w=which: getattr((first, second)[w], m)(*a))
                assert answer == expected, (method, arguments)

    asyncio.run(main())


def test_it_is_named_after_its_store_and_the_namespace():
    class Named(FaultyStore):
        def __str__(self):
            return "faulty://here"

    assert str(CasBackend(Named(), namespace="app")) == "faulty://here (namespace app)"


def test_calls_that_run_into_each_other_lose_nothing():
    async def main():
        store = FaultyStore()
        async with CasBackend(store) as first, CasBackend(store) as second:
            claims = [claim(slot=NOON + n, token=f"t{n}", overlap="allow") for n in range(30)]
            store.faults = ["yields"] * 400
            results = await asyncio.gather(*[(first, second)[n % 2].claim(c) for n, c in enumerate(claims)])
            assert {result.outcome for result in results} == {"won"}
            assert len({result.fence for result in results}) == 30
            assert len((await second.active(["sync"])).runs) == 30
            assert store.calls["replace"] > 30  # there were conflicts

    asyncio.run(main())


def test_a_call_that_changes_nothing_writes_nothing():
    async def main():
        store = FaultyStore()
        async with CasBackend(store) as backend:
            await backend.claim(claim())
            await backend.save_result("sync", RunResult(NOON, 1, 1, "success", "i", 1, 2))
            store.calls.clear()
            assert (await backend.claim(claim(token="two"))).outcome == "running"
            assert not await backend.heartbeat("unknown", NOON, "one")
            await backend.save_result("sync", RunResult(NOON, 1, 1, "crashed", "i", 1, 2))
            assert store.calls == {"load": 3}

    asyncio.run(main())


def test_one_call_asks_for_all_jobs():
    async def main():
        store = FaultyStore()
        async with CasBackend(store) as backend:
            await backend.claim(claim("b"))
            store.calls.clear()
            assert [run.job for run in (await backend.active(["c", "b", "a", "b"])).runs] == ["b"]
            assert store.calls == {"load": 1}

    asyncio.run(main())


def fails_within(timeout_s, call):
    async def main():
        started = time.monotonic()
        with pytest.raises(BackendUnavailable) as caught:
            await call()
        assert time.monotonic() - started < timeout_s + TICK_S
        return caught.value

    return main()


@pytest.mark.parametrize("fault", ["hangs", "swallows cancellation"])
def test_every_call_ends_within_the_timeout_and_the_next_gets_its_own_answer(fault):
    async def main():
        store = FaultyStore()
        backend = CasBackend(store, timeout="200ms")
        store.faults = [fault]
        await fails_within(0.2, backend.__aenter__)
        if fault == "swallows cancellation":
            while store.entered:  # until it has entered at last, and was left again
                await asyncio.sleep(0.01)
        async with backend:
            for faults in ([fault], [None, fault]):
                store.faults = list(faults)
                await fails_within(0.2, lambda: backend.claim(claim(token="two")))
            assert await backend.results("sync") == []
            assert not await backend.finish("sync", NOON, "one", "success")

    asyncio.run(main())


def test_a_value_that_never_stops_changing_is_given_up():
    async def main():
        store = FaultyStore()
        async with CasBackend(store, timeout="300ms") as backend:
            store.faults = [None, "conflict"] * 10_000
            await fails_within(0.3, lambda: backend.claim(claim()))
            assert 3 < store.calls["replace"] < 300

    asyncio.run(main())


def test_a_cancelled_call_ends_at_once_and_the_next_gets_its_own_answer():
    async def main():
        store = FaultyStore()
        async with CasBackend(store) as backend:
            store.faults = ["swallows cancellation"]
            task = asyncio.create_task(backend.claim(claim()))
            while not store.calls["load"]:
                await asyncio.sleep(0)
            started = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - started < TICK_S
            assert await backend.results("sync") == []

    asyncio.run(main())


@pytest.mark.parametrize("fault", ["lost request", "cancels itself"])
def test_what_the_store_raises_is_unavailable_with_its_cause(fault):
    async def main():
        store = FaultyStore()
        async with CasBackend(store) as backend:
            store.faults = [fault]
            with pytest.raises(BackendUnavailable) as caught:
                await backend.claim(claim())
            if fault == "lost request":
                assert isinstance(caught.value.__cause__, ConnectionResetError)
            assert (await backend.claim(claim())).outcome == "won"

    asyncio.run(main())


def test_a_backend_error_of_the_store_stays_what_it_is():
    class Refusing(FaultyStore):
        async def load(self, keys):
            raise BackendMisconfigured("no permission")

    async def main():
        async with CasBackend(Refusing()) as backend:
            with pytest.raises(BackendMisconfigured, match="no permission"):
                await backend.heartbeat("sync", NOON, "one")

    asyncio.run(main())


def test_the_store_is_entered_once_and_left_once_by_several():
    async def main():
        store = FaultyStore()
        backend = CasBackend(store)
        await asyncio.gather(backend.__aenter__(), backend.__aenter__())
        assert store.entered == 1
        await backend.__aexit__(None, None, None)
        assert store.entered == 1
        await backend.active(["sync"])
        await backend.__aexit__(None, None, None)
        assert store.entered == 0
        with pytest.raises(BackendClosed):
            await backend.active(["sync"])

    asyncio.run(main())


def test_leases_are_rounded_up_and_short_ones_refused():
    async def main():
        coarse = Capabilities(min_lease_ms=1_000, lease_granularity_ms=1_000)
        async with CasBackend(FaultyStore(), capabilities=coarse) as backend:
            assert (await backend.claim(claim(lease_ms=1_001))).lease_left_ms == 2_000
            with pytest.raises(InvalidClaim, match="999 ms"):
                await backend.claim(claim(lease_ms=999))

    asyncio.run(main())


def test_namespace_job_and_kind_are_apart_in_the_key():
    async def main():
        store = FaultyStore()
        async with CasBackend(store, namespace="n") as backend:
            await backend.claim(claim())
            await backend.save_result("sync", RunResult(NOON, 1, 1, "success", "i", 1, 2))
        assert set(store.values) == {Key("n", "sync", "state"), Key("n", "sync", "history")}

    asyncio.run(main())


RUN_STATE = RunState(
    NOON,
    2,
    1,
    NOON + 5,
    "token",
    "höst 🎉",
    1_000,
    NOON,
    NOON + 1_000,
    previous=(LostAttempt(NOON, 1, 2, "h", 3, 4, True),),
)


@pytest.mark.parametrize("state", [EMPTY, JobState(5, -1, (RUN_STATE,), (RUN_STATE, RUN_STATE)), JobState(2**60, NOON)])
def test_a_state_comes_back_as_it_was(state):
    assert decode_state(encode_state(state)) == state


def test_a_history_comes_back_as_it_was():
    history = (RunResult(NOON, 1, 2, "failed", "i", 3, 4, "e\ufffd\n"), RunResult(NOON, 0, 0, "late", "i", None, None))
    assert decode_history(encode_history(history)) == history


@pytest.mark.parametrize("decode", [decode_state, decode_history])
def test_a_newer_format_is_refused_with_the_remedy(decode):
    with pytest.raises(BackendMisconfigured, match=f"format {FORMAT + 1}.*upgrade tenure"):
        decode(f'[{FORMAT + 1},"whatever"]'.encode())


@pytest.mark.parametrize("decode", [decode_state, decode_history])
@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"{}", b"[]", b'["a"]', b"[1]", b"[1,2,3,[4],5]", b'[1,[["x"]]]', b"17"]
)
def test_what_tenure_has_not_written_is_refused(decode, data):
    with pytest.raises(BackendMisconfigured, match="where tenure keeps its state"):
        decode(data)
