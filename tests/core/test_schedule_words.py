"""Schedules in words: right for our dialect, or not in words at all."""

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenure.cron import parse
from tenure.errors import InvalidSchedule
from tenure.schedule import at, cron, every
from tenure.words import MissingWords, _plain, describe

pytest.importorskip("cron_descriptor")


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 9 * * mon-fri", "At 09:00, Monday through Friday"),
        ("0 9 * * 1-5", "At 09:00, Monday through Friday"),
        ("30 17 * * *", "At 17:30"),
        ("@daily", "At 00:00"),
        ("@hourly", "Every hour"),
        ("* * * * *", "Every minute"),
        ("*/5 * * * *", "Every 5 minutes"),
        ("0 */4 * * *", "Every 4 hours"),
        ("0 9,17 * * *", "At 09:00 and 17:00"),
        ("*/10 9-17 * * *", "Every 10 minutes, between 09:00 and 17:59"),
        ("0 0 1 * *", "At 00:00, on day 1 of the month"),
        ("59 23 L * *", "At 23:59, on the last day of the month"),
        ("0 0 * * 5L", "At 00:00, on the last Friday of the month"),
        ("0 0 * * FRIL", "At 00:00, on the last Friday of the month"),
        ("0 0 * * FRI#5", "At 00:00, on the fifth Friday of the month"),
        ("0 0 * * 7#1", "At 00:00, on the first Sunday of the month"),
        ("0 0 29 2 *", "At 00:00, on day 29 of the month, only in February"),
        ("0 0 1,15 * 1", "At 00:00, on day 1 and 15 of the month, or on Monday"),
        ("*/20 * * * * *", "Every 20 seconds"),
        ("30 0 9 * * *", "At 09:00:30"),
    ],
)
def test_cron_in_words(expression, words):
    assert describe(cron(expression, tz="Europe/Prague")) == f"{words}, Europe/Prague"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        # the library alone says "every 45 minutes", "every 5 hours", "every 2 days of the week", ...
        ("*/45 * * * *", "At 0 and 45 minutes past the hour"),
        ("0 */5 * * *", "At 00:00, 05:00, 10:00, 15:00 and 20:00"),
        ("0 9 * * mon-fri/2", "At 09:00, only on Monday, Wednesday, and Friday"),
        ("0 0 1 */5 *", "At 00:00, on day 1 of the month, only in January, June, and November"),
        # wrapping ranges
        ("0 0 * * fri-mon", "At 00:00, only on Monday, Friday, Saturday, and Sunday"),
        ("0 22-2 * * *", "At 00:00, 01:00, 02:00, 22:00 and 23:00"),
        # 7 is Sunday
        ("0 0 * * 7", "At 00:00, only on Sunday"),
        ("0 0 * * 5-7", "At 00:00, only on Friday, Saturday, and Sunday"),
        ("0 0 * * 1-7", "At 00:00"),
        # either field is every day, and one of them is enough
        ("0 0 1 * 0-6", "At 00:00"),
        ("0,30 9 * * *", "Every 30 minutes, between 09:00 and 09:59"),
    ],
)
def test_what_the_library_alone_would_say_wrongly_is_put_right(expression, words):
    assert describe(cron(expression)) == f"{words}, UTC"


@pytest.mark.parametrize(
    "expression",
    [
        "0 16 */2 * SAT",  # AND: the library says "or"
        "0 0 L * FRIL",  # OR: the library names no word between them
        "0 0 L * 1",
        "0 0 1,L * *",
        "0 0 * * 1,5L",  # "the last Monday and Friday"
        "0 0 * * 5#1,5#2",  # "the  Friday and Friday"
        "* 9,17 * * *",  # "at 09:00 and 17:00"
        "*/10 */2 * * *",  # "every 10 minutes, every 2 hours"
        "*/10 */5 * * * *",
        "0 16 */2 * *",  # a list of sixteen days
    ],
)
def test_what_it_cannot_say_stays_an_expression(expression):
    assert describe(cron(expression, tz="Europe/Prague")) == f"cron {expression} Europe/Prague"


FIELDS = "*/7 */2 * 1 0 3-5 5-3 1,4 2/2 5L FRI#2 L 7 1-7 0,30 9-17 L,3"


@given(st.lists(st.sampled_from(FIELDS.split()), min_size=5, max_size=6).map(" ".join))
def test_what_the_library_is_handed_means_the_same(expression):
    try:
        fields = parse(expression)
    except InvalidSchedule:
        return
    plain = _plain(expression)
    if plain is not None:
        handed = parse(plain)
        assert (handed.seconds, handed.minutes, handed.hours) == (fields.seconds, fields.minutes, fields.hours)
        assert handed.months == fields.months
        for length in range(28, 32):
            for first_weekday in range(7):
                assert handed.dates.days_of(length, first_weekday) == fields.dates.days_of(length, first_weekday)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (every("10s"), "every 10 seconds"),
        (every("1h"), "every hour"),
        (every("1h30m"), "every 1 hour 30 minutes"),
        (every("2w"), "every 14 days"),
        (every("1ms"), "every millisecond"),
        (every("1d", anchor=datetime(2026, 1, 1, 9, tzinfo=UTC)), "every day, counted from 2026-01-01 09:00:00 UTC"),
        (at(datetime(2026, 12, 1, 12, tzinfo=UTC)), "once, at 2026-12-01 12:00:00 UTC"),
        (
            at(datetime(2026, 12, 1, 12, tzinfo=UTC), datetime(2027, 12, 1, tzinfo=UTC)),
            "2 times, first at 2026-12-01 12:00:00 UTC",
        ),
    ],
)
def test_other_schedules_in_words(schedule, words):
    assert describe(schedule) == words


class Own:
    def next_slot(self, after_ms: int) -> int | None:
        return None

    def latest_slot(self, at_ms: int) -> int | None:
        return None

    def __str__(self) -> str:
        return "at full moon"


def test_an_own_schedule_says_itself_what_it_is():
    assert describe(Own()) == "at full moon"


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cron_descriptor", None)
    with pytest.raises(MissingWords, match=r'pip install "tenure\[words\]"'):
        describe(cron("0 9 * * *"))
    assert describe(every("10s")) == "every 10 seconds"


def test_the_library_is_loaded_only_when_asked_for():
    code = "import sys, tenure.words, tenure.schedule; print('cron_descriptor' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "False"
