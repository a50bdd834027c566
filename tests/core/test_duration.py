"""Durations as people write them, and what each refusal tells them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenure.duration import to_ms, to_text
from tenure.errors import InvalidDuration

READ = {
    "10s": 10_000,
    "1h30m": 5_400_000,
    "500ms": 500,
    "1m500ms": 60_500,
    "1w2d3h4m5s6ms": 788_645_006,
    "0s": 0,
    "90m": 5_400_000,
    "1.5s": 1_500,
    "0.25h": 900_000,
    "1.5m30.5s": 120_500,
    "007s": 7_000,
    " 10s ": 10_000,
}
NOT_DURATIONS = (
    *("", " ", "10", "s", "10 s", "1h 30m", "30m1h", "1s1s", "-1s", "+1s", "1,5s", ".5s", "1.s", "10S", "10sec", "1y"),
    *("1e3s", "٣s", "10s\x00", "0.5ms", "1.0005s", "0.0000001s", "ten seconds", "9" * 101 + "s"),
)


@pytest.mark.parametrize(("text", "ms"), READ.items())
def test_a_text_is_read(text: str, ms: int) -> None:
    assert to_ms(text, "lease") == ms


@pytest.mark.parametrize("text", NOT_DURATIONS)
def test_another_text_is_refused_with_three_that_are_not(text: str) -> None:
    with pytest.raises(InvalidDuration) as refused:
        to_ms(text, "lease")
    expected = f'lease: {text!r} is not a duration; write units from large to small, as in "10s", "1h30m" or "500ms"'
    assert str(refused.value) == expected
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (timedelta(seconds=10), 10_000),
        (timedelta(days=1, milliseconds=1), 86_400_001),
        (timedelta(), 0),
        (timedelta(microseconds=2_000), 2),
    ],
)
def test_a_timedelta_is_read(value: timedelta, ms: int) -> None:
    assert to_ms(value, "lease") == ms


@pytest.mark.parametrize("value", [timedelta(microseconds=1), timedelta(seconds=1, microseconds=999)])
def test_a_part_of_a_millisecond_is_refused(value: timedelta) -> None:
    with pytest.raises(InvalidDuration) as refused:
        to_ms(value, "jitter")
    assert str(refused.value) == f"jitter: {value!r} has a part of a millisecond; round it to milliseconds"


@pytest.mark.parametrize(("value", "shown"), [(10, "10"), (2.5, "2.5"), (0, "0"), (-1, "-1")])
def test_a_bare_number_is_refused_with_both_spellings(value: float, shown: str) -> None:
    with pytest.raises(InvalidDuration) as refused:
        to_ms(value, "lease")
    expected = f'lease: {value!r} has no unit; write "{shown}s" or timedelta(seconds={shown}) if you mean seconds'
    assert str(refused.value) == expected


@pytest.mark.parametrize("value", [None, True, b"10s", [], object()])
def test_anything_else_is_refused_with_both_spellings(value: object) -> None:
    with pytest.raises(InvalidDuration) as refused:
        to_ms(value, "grace")
    assert str(refused.value) == f'grace: {value!r} is not a duration; write "10s" or timedelta(seconds=10)'


@pytest.mark.parametrize("value", ["9ms", "0s", timedelta(milliseconds=9), timedelta(seconds=-1)])
def test_less_than_the_minimum_is_refused(value: str | timedelta) -> None:
    with pytest.raises(InvalidDuration, match=r"lease: -?[0-9]+m?s is too short; it must be at least 10ms"):
        to_ms(value, "lease", minimum_ms=10)
    assert to_ms("10ms", "lease", minimum_ms=10) == 10


def test_a_negative_timedelta_is_too_short_without_a_minimum() -> None:
    with pytest.raises(InvalidDuration, match="lease: -1s is too short; it must be at least 0s"):
        to_ms(timedelta(seconds=-1), "lease")


def test_longer_than_time_itself_is_refused() -> None:
    assert to_ms("253402300799999ms", "lease") == 253_402_300_799_999
    with pytest.raises(InvalidDuration, match="lease: '253402300800s' is longer than 8,000 years; write a shorter"):
        to_ms("253402300800s", "lease")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0s"), (1, "1ms"), (1_000, "1s"), (5_400_000, "1h30m"), (788_645_006, "1w2d3h4m5s6ms"), (-1_500, "-1s500ms")],
)
def test_to_text_writes_the_shortest(ms: int, text: str) -> None:
    assert to_text(ms) == text


@given(st.integers(0, 253_402_300_799_999))
def test_to_ms_reads_what_to_text_writes(ms: int) -> None:
    assert to_ms(to_text(ms), "lease") == ms
