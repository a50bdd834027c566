"""Time without lies: what is certain of a lease, and what is not."""

import asyncio

import pytest
from tenure_conformance.timing import Deadline, Span, monotonic_ms, sleep_until


@pytest.fixture
def deadline():
    # Set by a call from 1,000 to 1,050; 400 ms, and 50 ms of slack.
    return Deadline(Span(1_000, 1_050), 400, 50)


@pytest.mark.parametrize(
    ("end", "alive"), [(1_001, True), (1_394.9, True), (1_395, False), (1_399, False), (2_000, False)]
)
def test_alive_counts_from_the_begin_of_the_setting_call(deadline, end, alive):
    assert deadline.surely_alive(Span(1_000, end)) is alive


@pytest.mark.parametrize(("begin", "over"), [(1_450, False), (1_504, False), (1_505, True), (9_000, True)])
def test_over_counts_from_its_end(deadline, begin, over):
    assert deadline.surely_over(Span(begin, 99_999)) is over


def test_a_slow_probe_is_neither(deadline):
    probe = Span(1_300, 1_600)
    assert not deadline.surely_alive(probe)
    assert not deadline.surely_over(probe)


def test_waiting_ends_when_the_lease_is_surely_over():
    async def wait():
        deadline = Deadline(Span(monotonic_ms(), monotonic_ms()), 20, 5)
        await deadline.wait_over()
        return deadline.surely_over(Span(monotonic_ms(), monotonic_ms()))

    assert asyncio.run(wait())


def test_sleeping_never_wakes_early():
    async def sleep():
        moments = [monotonic_ms() + part for part in (0, 0.3, 1, 3)]
        for moment in moments:
            await sleep_until(moment)
            assert monotonic_ms() >= moment

    asyncio.run(sleep())
