"""Calls that travel together: what shares a batch, whose error is whose, and what a store that hangs holds up."""

import asyncio
import time

import pytest
from tenure.convoy import Convoy
from tenure.errors import BackendUnavailable


class Store:
    """Answers each number with its double, when ``gate`` is open; remembers the batches it got."""

    def __init__(self):
        self.batches = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.now = self.most = 0

    async def send(self, numbers):
        self.batches.append(list(numbers))
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self.now -= 1
        if -2 in numbers:
            raise ConnectionError("the whole batch")
        return [ValueError(number) if number < 0 else 2 * number for number in numbers]


def convoy(store, *, timeout_ms=10_000, lanes=1, most=64):
    return Convoy(
        store.send, timeout_ms=timeout_ms, lanes=lanes, most=most, silent=lambda: BackendUnavailable("no answer")
    )


async def turns(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_lone_call_leaves_at_once_and_leaves_no_task_behind():
    async def main():
        store = Store()
        calls = convoy(store)
        assert await calls.ask(1) == 2
        await turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert store.batches == [[1]]

    asyncio.run(main())


@pytest.mark.parametrize("lanes", [1, 4])
def test_calls_of_one_moment_share_a_batch(lanes):
    async def main():
        store = Store()
        calls = convoy(store, lanes=lanes)
        assert await asyncio.gather(*(calls.ask(number) for number in range(50))) == [2 * n for n in range(50)]
        assert store.batches == [list(range(50))]

    asyncio.run(main())


def test_what_comes_while_every_lane_is_busy_leaves_together():
    async def main():
        store = Store()
        calls = convoy(store, lanes=2)
        store.gate.clear()
        asked = []
        for number in range(10):
            asked.append(asyncio.create_task(calls.ask(number)))
            await turns()
        assert store.batches == [[0], [1]]
        store.gate.set()
        assert await asyncio.gather(*asked) == [2 * n for n in range(10)]
        assert store.batches == [[0], [1], list(range(2, 10))]

    asyncio.run(main())


def test_batches_and_lanes_are_bounded():
    async def main():
        store = Store()
        calls = convoy(store, lanes=3, most=8)
        answers = await asyncio.gather(*(calls.ask(number) for number in range(100)))
        assert answers == [2 * n for n in range(100)]
        assert max(map(len, store.batches)) == 8
        assert store.most == 3

    asyncio.run(main())


def test_an_error_of_one_request_is_that_of_its_caller_alone():
    async def main():
        calls = convoy(Store())
        one, bad, two = await asyncio.gather(calls.ask(1), calls.ask(-7), calls.ask(2), return_exceptions=True)
        assert (one, two) == (2, 4)
        assert isinstance(bad, ValueError)

    asyncio.run(main())


def test_an_error_of_the_batch_is_that_of_each_and_the_next_batch_goes_on():
    async def main():
        calls = convoy(Store())
        told = await asyncio.gather(calls.ask(1), calls.ask(-2), return_exceptions=True)
        assert [type(each) for each in told] == [ConnectionError, ConnectionError]
        assert await calls.ask(3) == 6

    asyncio.run(main())


def test_a_request_whose_caller_is_gone_is_not_sent():
    async def main():
        store = Store()
        calls = convoy(store)
        store.gate.clear()
        first = asyncio.create_task(calls.ask(1))
        await turns()
        gone = asyncio.create_task(calls.ask(2))
        stays = asyncio.create_task(calls.ask(3))
        await turns()
        gone.cancel()
        await turns()
        store.gate.set()
        assert [await first, await stays] == [2, 6]
        assert store.batches == [[1], [3]]

    asyncio.run(main())


def test_a_caller_that_goes_while_its_request_is_on_its_way_spoils_nothing():
    async def main():
        store = Store()
        calls = convoy(store)
        store.gate.clear()
        gone, stays = asyncio.create_task(calls.ask(1)), asyncio.create_task(calls.ask(2))
        await turns()
        gone.cancel()
        store.gate.set()
        assert await stays == 4
        assert await calls.ask(5) == 10

    asyncio.run(main())


@pytest.mark.parametrize("stubborn", [False, True], ids=["ends when cancelled", "does not end"])
def test_a_store_that_hangs_costs_each_call_its_timeout_and_no_later_one_anything(stubborn):
    async def main():
        loose = asyncio.Event()

        async def send(numbers):
            if 0 not in numbers:
                return numbers
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not stubborn:
                    raise
                await loose.wait()
            return numbers

        calls = Convoy(send, timeout_ms=50, lanes=1, silent=lambda: BackendUnavailable("no answer"))
        begun = time.monotonic()
        hung, behind = await asyncio.gather(calls.ask(0), calls.ask(0), return_exceptions=True)
        assert isinstance(hung, BackendUnavailable)
        assert isinstance(behind, BackendUnavailable)
        assert time.monotonic() - begun >= 0.049
        for number in (1, 2):
            while True:  # the lane is free when the batch was left behind, not a moment earlier
                try:
                    assert await calls.ask(number) == number
                    break
                except BackendUnavailable:
                    assert time.monotonic() - begun < 30
        loose.set()
        await turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert await calls.ask(3) == 3

    asyncio.run(main())


def test_leaving_waits_for_what_waits():
    async def main():
        store = Store()
        calls = convoy(store, most=1)
        asked = [asyncio.create_task(calls.ask(number)) for number in range(5)]
        await asyncio.sleep(0)
        await calls.aclose()
        assert len(store.batches) == 5
        assert await asyncio.gather(*asked) == [0, 2, 4, 6, 8]

    asyncio.run(main())


def test_leaving_a_store_that_hangs_ends_after_the_timeout_and_answers_everybody():
    async def main():
        store = Store()
        store.gate.clear()
        calls = convoy(store, timeout_ms=50, most=1)
        asked = [asyncio.create_task(calls.ask(number)) for number in range(3)]
        await turns()
        begun = time.monotonic()
        await calls.aclose()
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(each) for each in told} == {BackendUnavailable}
        assert time.monotonic() - begun < 30
        await turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_send_that_is_cancelled_from_within_is_no_answer():
    async def main():
        async def send(_numbers):
            raise asyncio.CancelledError

        calls = Convoy(send, timeout_ms=10_000, lanes=1, silent=lambda: BackendUnavailable("no answer"))
        with pytest.raises(BackendUnavailable):
            await calls.ask(1)

    asyncio.run(main())
