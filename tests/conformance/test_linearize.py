"""The search for an order: it finds those that exist, refuses what has none, and shows why in few calls."""

import asyncio
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tenure import decision
from tenure.decision import EMPTY
from tenure.model import Claim
from tenure_conformance.histories import assert_linearizable
from tenure_conformance.linearize import JobModel, Operation, Search, shrunk
from tenure_conformance.timing import Uncertain
from tenure_conformance.verdict import Call

NOW = 1_800_000_000_000


def claim(token, slot=NOW - 1_000, **options):
    given = {"mode": "scheduled", "overlap": "skip", "max_attempts": 3, "max_late_ms": None, **options}
    return Claim(job="job", slot=slot, token=token, instance=f"i-{token}", lease_ms=60_000, **given)


def operation(begin, end, name, answer, required=True, **arguments):
    return Operation(Call("a", name, arguments, begin, end, answer), required, answer is not None)


def model(**options):
    return JobModel(granted=lambda one: one, slop_ms=100, clock_ms=NOW, fences_told=True, **options)


def won(one, state=EMPTY, now=NOW):
    return decision.claim(state, one, now)


def test_a_sequence_that_the_model_gives_has_an_order():
    one, two = claim("one"), claim("two")
    state, first = won(one)
    _, second = won(two, state, NOW + 5)
    history = [operation(5, 6, "claim", second, claim=two), operation(0, 1, "claim", first, claim=one)]
    assert Search(history, model()).found()


def test_two_winners_have_none():
    one, two = claim("one"), claim("two")
    history = [operation(0, 9, "claim", won(each)[1], claim=each) for each in (one, two)]
    assert not Search(history, model()).found()


def test_overlapping_calls_may_come_in_either_order():
    one, two = claim("one"), claim("two")
    state, first = won(one)
    _, second = won(two, state)
    history = [operation(0, 9, "claim", second, claim=two), operation(1, 8, "claim", first, claim=one)]
    assert Search(history, model()).found()


def test_a_call_does_not_come_before_one_that_was_answered_before_it_began():
    one, two = claim("one"), claim("two")
    state, first = won(one)
    _, second = won(two, state)
    history = [operation(0, 1, "claim", second, claim=two), operation(2, 3, "claim", first, claim=one)]
    assert not Search(history, model()).found()


@pytest.mark.parametrize("happened", [True, False])
def test_a_call_that_was_cut_off_may_have_happened_or_not(happened):
    lost, two = claim("lost"), claim("two")
    state = won(lost)[0] if happened else EMPTY
    _, second = won(two, state, NOW + 9)
    history = [
        operation(0, 1, "claim", None, required=False, claim=lost),
        operation(5, 6, "claim", second, claim=two),
    ]
    relaxed = replace(model(), fences_told=False)
    assert Search(history, relaxed).found()


def test_a_claim_that_was_cut_off_may_have_won_before_anything_was_answered():
    lost, two = claim("lost"), claim("two")
    _, second = won(two, won(lost)[0], NOW + 1_767)
    calls = [
        operation(0, 500, "claim", None, claim=lost).call,
        operation(1_700, 1_900, "claim", second, claim=two).call,
    ]
    calls[0].error = "no answer"
    target = SimpleNamespace(fences="clock")
    bench = SimpleNamespace(granted=lambda lease_ms: lease_ms, loose_ms=0, target=target, calls=calls)
    assert_linearizable(bench, list(calls))
    calls[0].begin_ms, calls[0].end_ms = 1_600, 1_650
    with pytest.raises(AssertionError, match="fit no order"):
        assert_linearizable(bench, list(calls))


def test_a_lost_update_of_a_heartbeat_has_none():
    one = claim("one")
    _, first = won(one)
    history = [
        operation(0, 1, "claim", first, claim=one),
        operation(2, 3, "finish", True, slot=one.slot, token="one", status="success"),
        operation(4, 5, "heartbeat", True, slot=one.slot, token="one"),
    ]
    assert not Search(history, model()).found()


def test_a_search_without_end_is_uncertain():
    lost = [claim(f"lost{number}", slot=NOW - number, overlap="allow") for number in range(12)]
    history = [operation(0, 99, "claim", None, required=False, claim=one) for one in lost]
    history.append(operation(0, 99, "heartbeat", True, slot=0, token="nobody"))
    with pytest.raises(Uncertain, match="50 states"):
        Search(history, model(), budget=50).found()


@pytest.mark.parametrize("required", [True, False])
def test_calls_that_change_nothing_cost_no_search(required):
    history = [
        operation(0, 99, "heartbeat", False if required else None, required, slot=number, token="nobody")
        for number in range(40)
    ]
    history.append(operation(0, 99, "heartbeat", True, slot=0, token="nobody"))
    assert not Search(history, model(), budget=50).found()


def test_what_is_not_needed_to_see_the_fault_is_left_out():
    one, two = claim("one"), claim("two")
    state, first = won(one)
    history = [operation(0, 1, "claim", first, claim=one)]
    for number in range(20):
        loser = claim(f"loser{number}")
        told = won(loser, state, NOW + number)[1]
        history.append(operation(2 + number, 2.5 + number, "claim", told, claim=loser))
    history.append(operation(30, 31, "claim", won(two)[1], claim=two))
    history += [operation(40, 41, "heartbeat", True, slot=one.slot, token="one")]
    kept = shrunk(history, model())
    assert [one.call.arguments["claim"].token for one in kept] == ["one", "two"]


def test_random_histories_of_the_model_itself_have_an_order():
    chance = random.Random(4)
    state, history, moment = EMPTY, [], 0.0
    for number in range(120):
        moment += 1
        # Each call takes effect at its moment and overlaps its neighbours.
        span = (moment - chance.random() * 3, moment + chance.random() * 3)
        one = claim(f"t{chance.randrange(6)}", NOW - 5 + chance.randrange(3), after=chance.randrange(3))
        now = NOW + number
        if chance.random() < 0.6:
            state, answer = decision.claim(state, one, now)
            history.append(operation(*span, "claim", answer, claim=one))
        elif chance.random() < 0.5:
            state, answer = decision.release(state, one.slot, one.token, now)
            history.append(operation(*span, "release", answer, slot=one.slot, token=one.token))
        else:
            state, answer = decision.finish(state, one.slot, one.token, "failed")
            history.append(operation(*span, "finish", answer, slot=one.slot, token=one.token, status="failed"))
    assert Search(history, model()).found()


def test_the_histories_of_a_racing_backend_are_caught():
    from tenure.memory import MemoryBackend, MemoryStore
    from tenure_conformance.rule import select
    from tenure_conformance.session import Session
    from tenure_conformance.target import Limits, Target

    class Racing(MemoryBackend):
        async def claim(self, claim):
            key = self._key(claim.job)
            state = self.store.states.get(key, EMPTY)
            await asyncio.sleep(0)
            self.store.states[key], result = decision.claim(state, claim, self.store.now_ms())
            return result

    store = MemoryStore()
    target = Target(
        name="racing",
        url="memory://",
        open=lambda _url, namespace: Racing(store, namespace=namespace),
        limits=Limits(histories=4),
    )
    (verdict,) = asyncio.run(Session(target=target, url="memory://", rules=select(("CON-010",))).run())
    assert verdict.outcome == "fail"
    assert not verdict.crashed
    assert "fit no order" in verdict.reason
    assert verdict.reason.count("\n") < 40
