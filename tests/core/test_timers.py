"""Timers fire each slot once and never before it, however loops and clocks behave."""

import asyncio
from datetime import UTC, datetime
from random import Random

import pytest
from tenure.errors import InvalidSchedule
from tenure.job import make_job
from tenure.schedule import at, cron, every
from tenure.timers import LONGEST_SLEEP_MS, JobTimers

NOON = 1_796_126_400_000  # 2026-12-01T12:00:00Z
HOUR = 3_600_000


class Bench:
    """Timers on a clock of the test's own; ``sleeps`` are what they asked their loop for."""

    def __init__(self, wall_ms=NOON, seed=0):
        self.wall = wall_ms
        self.monotonic = 0.0
        self.fired = []
        self.errors = []
        self.sleeps = []
        self.loop = Loop(self)
        self.timers = JobTimers(self, Random(seed), self._fire, lambda job, error: self.errors.append(error))

    def wall_ms(self):
        return int(self.wall)

    def monotonic_ms(self):
        return self.monotonic

    def _fire(self, job, slot):
        self.fired.append((job.name, slot - NOON, int(self.wall) - NOON))

    def slots(self, name="job"):
        return [slot for job, slot, _ in self.fired if job == name]

    def add(self, schedule, name="job", **options):
        job = make_job(name, schedule, lambda: None, {"jitter": "0s", **options})
        self._on_loop(self.timers.add, (job,))

    def start(self):
        self._on_loop(self.timers.start)

    def _on_loop(self, function, *args):
        asyncio._set_running_loop(self.loop)
        try:
            function(*args)
        finally:
            asyncio._set_running_loop(None)

    def advance(self, by_ms, early_ms=0):
        """Let time pass; the loop wakes timers ``early_ms`` before they asked to be, or after half of a short sleep."""
        end = self.monotonic + by_ms
        while (timer := self.loop.next(end)) is not None:
            sleep_ms = max(timer.when_ms - self.monotonic, 0)
            self.pass_time(max(sleep_ms - early_ms, sleep_ms / 2))
            self._on_loop(timer.callback)
        self.pass_time(end - self.monotonic)

    def pass_time(self, by_ms):
        self.monotonic += by_ms
        self.wall += by_ms

    def jump(self, by_ms):
        self.wall += by_ms


class Loop:
    def __init__(self, bench):
        self.bench = bench
        self.timers = []

    def call_later(self, delay_s, callback):
        timer = Timer(self, self.bench.monotonic + delay_s * 1000, callback)
        self.bench.sleeps.append(delay_s * 1000)
        self.timers.append(timer)
        return timer

    def next(self, end_ms):
        timer = min(self.timers, key=lambda timer: timer.when_ms, default=None)
        if timer is None or timer.when_ms > end_ms:
            return None
        self.timers.remove(timer)
        return timer


class Timer:
    def __init__(self, loop, when_ms, callback):
        self.loop, self.when_ms, self.callback = loop, when_ms, callback

    def cancel(self):
        if self in self.loop.timers:
            self.loop.timers.remove(self)


@pytest.fixture
def bench():
    bench = Bench()
    bench.start()
    return bench


def test_each_slot_fires_once_and_the_next_is_armed_before(bench):
    armed = []
    bench.timers._fire = lambda job, slot: armed.append((slot, bench.timers.next_slot("job")))
    bench.add(every("10s"))
    bench.advance(30_000)
    assert armed == [(NOON + slot, NOON + slot + 10_000) for slot in (10_000, 20_000, 30_000)]


def test_a_slot_fires_after_a_random_part_of_the_jitter(bench):
    bench.add(every("10s"), jitter="5s")
    bench.advance(2_000 * 10_000)
    delays = [fired - slot for _, slot, fired in bench.fired]
    assert len(delays) >= 1_999
    assert min(delays) < 100
    assert max(delays) < 5_000
    assert max(delays) > 4_900
    assert abs(sum(delays) / len(delays) - 2_500) < 200


def test_no_sleep_is_longer_than_a_minute(bench):
    bench.add(every("1d"))
    bench.advance(24 * HOUR)
    assert bench.slots() == [12 * HOUR]
    assert max(bench.sleeps) == LONGEST_SLEEP_MS


def test_one_timer_of_the_loop_serves_all_jobs(bench):
    for number in range(1_000):
        bench.add(every("10s"), name=f"job{number}")
    assert len(bench.loop.timers) == 1
    bench.advance(10_000)
    assert len(bench.fired) == 1_000


def test_timers_that_were_stopped_fire_nothing(bench):
    bench.add(every("10s"))
    bench.advance(10_000)
    bench.timers.stop()
    bench.advance(HOUR)
    assert bench.slots() == [10_000]
    assert bench.loop.timers == []


def test_a_removed_job_fires_nothing_and_the_others_go_on(bench):
    bench.add(every("10s"), name="gone")
    bench.add(every("10s"), name="kept")
    bench.timers.remove("gone")
    bench.advance(10_000)
    assert [name for name, _, _ in bench.fired] == ["kept"]


def test_a_schedule_that_ends_is_not_asked_again(bench):
    bench.add(at(datetime(2026, 12, 1, 12, 0, 30, tzinfo=UTC)))
    bench.advance(HOUR)
    assert bench.slots() == [30_000]
    assert bench.timers.next_slot("job") is None


@pytest.mark.parametrize("early_ms", [3, 1, 0.4, 0])
def test_a_loop_that_wakes_early_neither_skips_nor_doubles_nor_spins(early_ms):
    """MS12: timers wake a few ms early; the run was skipped, or the same slot was computed again and ran twice."""
    bench = Bench()
    bench.start()
    bench.add(every("10s"))
    bench.advance(1_000 * 10_000 + 50, early_ms=early_ms)
    assert bench.slots() == [10_000 * number for number in range(1, 1_001)]
    assert all(fired >= slot for _, slot, fired in bench.fired)
    assert len(bench.sleeps) < 1_000 * 8


def test_a_quick_handler_does_not_get_its_slot_again():
    """DR04: 'next' computed after firing was the current second: 15 to 21 duplicates in one second."""
    bench = Bench(wall_ms=NOON - 0.5)
    bench.start()
    bench.add(every("1s"))
    bench.advance(3_000, early_ms=0.1)
    bench.advance(10)
    for _ in range(20):
        bench.advance(0.1)
        bench.add(every("1s"))  # nor does one that is added again at that moment
    assert bench.slots() == [0, 1_000, 2_000, 3_000]


def test_a_jump_forward_and_back_leaves_nobody_waiting_in_the_wrong_future(bench):
    """CK01: the clock was set 2 h ahead and corrected; nothing ran for 2 h."""
    bench.wall = NOON + 3 * HOUR
    bench.add(every("1m"))
    bench.jump(2 * HOUR)
    bench.advance(60_000)
    assert bench.slots()[-1] in (5 * HOUR, 5 * HOUR + 60_000)
    count = len(bench.fired)
    bench.wall = NOON + 3 * HOUR + 60_000 + 500
    bench.advance(120_000)
    assert bench.slots()[count] <= 3 * HOUR + 3 * 60_000
    assert len(bench.fired) >= count + 1


def test_a_job_replaced_after_such_a_correction_does_not_wait_there_either(bench):
    bench.add(every("1m"))
    bench.jump(2 * HOUR)
    bench.advance(60_000)
    assert bench.slots()[-1] >= 2 * HOUR
    bench.jump(-2 * HOUR)
    bench.advance(60_000)  # the jump is found
    bench.add(every("1m"))
    assert bench.timers.next_slot("job") - bench.wall_ms() <= 60_000


def test_a_jump_forward_over_a_slot_fires_it_for_the_rules_to_judge_and_not_at_the_wake_up_time(bench):
    """CK02: the clock jumped 3 days forward while a timer was pending; the job ran at the wake-up time."""
    bench.wall = NOON + 21 * HOUR  # 09:00
    bench.add(cron("30 10 * * *"))
    bench.jump(3 * 24 * HOUR - 3 * HOUR)
    bench.advance(60_000)
    assert bench.slots() == [22 * HOUR + HOUR // 2]  # the one that was armed: fired, and late by far
    assert bench.timers.next_slot("job") == NOON + (22 + 3 * 24) * HOUR + HOUR // 2


def test_steps_of_a_time_service_around_a_slot_neither_lose_nor_double_it(bench):
    """CK03: hourly time sync stepped the clock back a little; a 15-minute job lost every third run."""
    bench.add(every("15m"))
    for _ in range(12):
        to_slot = bench.timers.next_slot("job") - bench.wall
        bench.advance(to_slot - 1_000)
        bench.jump(-2_000)
        bench.advance(4_000)
        bench.jump(2_000)
        bench.advance(10_000)
    assert bench.slots() == [15 * 60_000 * number for number in range(1, 13)]


@pytest.mark.parametrize("back_ms", [50, 500, 1_500, 4_500, 9_000])
def test_a_jump_back_does_not_fire_the_last_slot_again(bench, back_ms):
    bench.add(every("10s"))
    bench.add(every("1s"), name="other")  # so that the jump is found before the slot comes again
    bench.advance(10_000)
    bench.jump(-back_ms)
    bench.advance(back_ms + 9_000)
    assert bench.slots() == [10_000]
    bench.advance(1_000)
    assert bench.slots() == [10_000, 20_000]


def test_slots_that_passed_in_a_pause_fire_while_they_may_still_start(bench):
    bench.add(every("10s"), max_late="25s")
    bench.pass_time(71_000)  # frozen
    bench.advance(0)
    assert bench.slots() == [10_000, 50_000, 60_000, 70_000]  # the armed one is told late, those before are gone


def test_without_a_lateness_limit_only_the_armed_slot_of_a_pause_fires(bench):
    bench.add(every("10s"), max_late=None)
    bench.pass_time(71_000)
    bench.advance(0)
    assert bench.slots() == [10_000]
    bench.advance(9_000)
    assert bench.slots() == [10_000, 80_000]


class Whimsical:
    """A schedule that answers what it likes."""

    def __init__(self, answer):
        self.answer = answer

    def next_slot(self, after_ms):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def latest_slot(self, at_ms):
        return None


@pytest.mark.parametrize("answer", [ValueError("no"), "soon", 12.5, True, NOON, NOON - 1, -5, 10**18])
def test_a_schedule_that_fails_or_answers_rubbish_is_told_and_asked_again_each_minute(bench, answer):
    schedule = Whimsical(answer)
    bench.add(schedule)
    bench.add(every("10s"), name="other")
    assert len(bench.errors) == 1
    assert isinstance(bench.errors[0], ValueError if isinstance(answer, Exception) else InvalidSchedule)
    bench.advance(150_000)
    assert bench.slots() == []
    assert len(bench.slots("other")) == 15
    assert len(bench.errors) == 3
    schedule.answer = bench.wall_ms() + 70_000
    bench.advance(71_000)
    assert len(bench.slots()) == 1


def test_the_same_slot_again_from_a_schedule_is_an_error_and_no_second_run(bench):
    schedule = Whimsical(NOON + 5_000)
    bench.add(schedule)
    bench.advance(20_000)
    assert bench.slots() == [5_000]
    assert len(bench.errors) == 1


def test_adding_an_unchanged_job_again_does_not_postpone_it(bench):
    """SS04: re-registering unchanged jobs every 10 s postponed a 60 s job for ever."""
    for _ in range(60):
        bench.add(every("1m"))
        bench.advance(10_000)
    assert bench.slots() == [60_000 * number for number in range(1, 11)]


def test_a_slot_that_waits_for_its_jitter_is_not_lost_when_its_job_is_replaced(bench):
    bench.add(every("1m"), jitter="10s")
    for _ in range(300):
        bench.advance(1_000)
        bench.add(every("1m"), jitter="10s")
    bench.advance(10_000)
    assert bench.slots() == [60_000 * number for number in range(1, 6)]


def test_a_slot_that_waits_for_its_jitter_is_not_lost_when_the_clock_steps_back():
    for seed in range(10):
        bench = Bench(seed=seed)
        bench.start()
        bench.add(every("1m"), jitter="10s")
        bench.add(every("100ms"), name="other")
        bench.advance(60_600)
        bench.jump(-500)
        bench.advance(11_000)
        assert bench.slots() == [60_000]


def test_a_changed_schedule_serves_at_once(bench):
    """DJ01: a changed schedule was used only after the old next run."""
    bench.add(every("1d"))
    bench.advance(3_000)
    bench.add(every("10s"))
    bench.advance(20_000)
    assert bench.slots() == [10_000, 20_000]
    bench.add(every("1d"))
    bench.advance(HOUR)
    assert bench.slots() == [10_000, 20_000]


def test_jobs_that_come_and_go_leave_nothing_behind(bench):
    for number in range(10_000):
        bench.add(every("365d"), name="again")
        bench.add(every("365d"), name=f"once{number}")
        bench.timers.remove(f"once{number}")
    assert len(bench.timers._heap) < 200


def test_timers_of_many_jobs_fire_in_the_order_they_are_due(bench):
    for number in range(50):
        bench.add(every("50s", anchor=None), name=f"job{number}", jitter="40s")
    bench.advance(99_000)
    dues = [fired for _, _, fired in bench.fired]
    assert dues == sorted(dues)
    assert len(dues) == 50
