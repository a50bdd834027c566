"""A clock from Date headers: the interval contains the store's clock, becomes narrow, and starts over when it must."""

import random
from email.utils import formatdate

import pytest
from tenure.dateclock import DateClock, Interval

EPOCH_MS = 1_750_000_000_000


class Store:
    """A store whose clock is ahead of the monotonic one by ``ahead_ms`` and goes faster by ``rate``."""

    def __init__(self, ahead_ms: float, rate: float = 0.0) -> None:
        self.ahead_ms, self.rate = EPOCH_MS + ahead_ms, rate

    def clock_ms(self, moment_ms: float) -> float:
        return moment_ms * (1 + self.rate) + self.ahead_ms

    def reply(self, clock: DateClock, sent_ms: float, way_ms: float = 0.5) -> float:
        """Let the clock learn from a request; the moment at which the reply came."""
        date = formatdate(self.clock_ms(sent_ms + way_ms) // 1_000, usegmt=True)
        clock.observe(date, sent_ms, sent_ms + 2 * way_ms)
        return sent_ms + 2 * way_ms

    def assert_within(self, interval: Interval, moment_ms: float) -> None:
        assert interval.begin <= self.clock_ms(moment_ms) <= interval.end, (interval, self.clock_ms(moment_ms))


def test_one_reply_tells_the_second() -> None:
    store, clock = Store(123_456.7), DateClock()
    assert not clock.known
    at = store.reply(clock, 5_000.0)
    assert clock.known
    interval = clock.at(at)
    store.assert_within(interval, at)
    assert 1_000 <= interval.end - interval.begin <= 1_003


@pytest.mark.parametrize("seed", range(20))
def test_the_interval_contains_the_clock_and_becomes_narrow(seed: int) -> None:
    chance = random.Random(seed)
    store, clock = Store(chance.uniform(-1e7, 1e7), chance.uniform(-0.000_4, 0.000_4)), DateClock()
    moment = chance.uniform(0, 1e6)
    for _ in range(200):
        moment = store.reply(clock, moment + chance.uniform(0, 300), chance.uniform(0.2, 3))
        store.assert_within(clock.at(moment), moment)
        later = moment + chance.uniform(0, 60_000)
        store.assert_within(clock.at(later), later)
    assert clock.at(moment).error_ms <= 40


@pytest.mark.parametrize("seed", range(20))
def test_requests_at_the_best_moment_halve_the_interval(seed: int) -> None:
    chance = random.Random(seed)
    store, clock = Store(chance.uniform(0, 1_000)), DateClock()
    moment = store.reply(clock, chance.uniform(0, 1e6))
    for _ in range(8):
        best = clock.best_moment_ms(moment)
        assert moment <= best < moment + 1_000
        moment = store.reply(clock, best)
        store.assert_within(clock.at(moment), moment)
    assert clock.at(moment).error_ms <= 5


def test_a_clock_that_was_set_starts_over() -> None:
    clock, store = DateClock(), Store(0)
    moment = 0.0
    for _ in range(50):
        moment = store.reply(clock, moment + 37)
    for ahead_ms in (3_600_000, -86_400_000, 1_700):
        store = Store(ahead_ms)
        moment = store.reply(clock, moment + 37)
        store.assert_within(clock.at(moment), moment)
        assert clock.at(moment).end - clock.at(moment).begin >= 1_000


def test_the_interval_widens_while_nothing_is_heard() -> None:
    store, clock = Store(0), DateClock()
    moment = 0.0
    for _ in range(200):
        moment = store.reply(clock, moment + 13)
    hour = 3_600_000
    assert clock.at(moment + hour).error_ms - clock.at(moment).error_ms == pytest.approx(hour * 0.000_5, abs=2)


def test_a_date_that_a_timer_renews_may_lag() -> None:
    def late_date(moment_ms: float) -> str:
        return formatdate((EPOCH_MS + moment_ms - 20) // 1_000, usegmt=True)

    for lag_ms, contains in ((0, False), (20, True)):
        clock = DateClock(lag_ms=lag_ms)
        for moment in range(0, 5_000, 5):
            clock.observe(late_date(moment), moment, moment + 0.5)
        interval = clock.at(5_000)
        assert (interval.begin <= EPOCH_MS + 5_000 <= interval.end) is contains


def test_what_is_no_date_is_refused_and_changes_nothing() -> None:
    clock = DateClock()
    with pytest.raises(ValueError, match="nonsense"):
        clock.observe("nonsense", 0, 1)
    assert not clock.known
    with pytest.raises(LookupError, match="not known yet"):
        clock.at(0)


def test_the_nearest_reading_is_the_moment_itself_where_it_is_possible() -> None:
    interval = Interval(100, 111)
    assert [interval.nearest(moment) for moment in (7, 100, 105, 111, 300)] == [100, 100, 105, 111, 111]
    assert (interval.middle, interval.error_ms) == (105, 6)
