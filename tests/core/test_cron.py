"""Cron arithmetic: the cases from public reports, and every zone's odd days against a brute-force oracle."""

import importlib
import json
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tenure.cron import MACROS, parse
from tenure.errors import InvalidInput, InvalidSchedule
from tenure.model import MAX_SLOT
from tenure.schedule import Cron, Every, cron, every

cron_module = importlib.import_module("tenure.cron")  # tenure.cron is also a function

CASES = json.loads((Path(__file__).parent / "cases" / "schedule.json").read_text(encoding="utf-8"))
GOOD = [case for case in CASES if not case.get("error")]
REJECTED = [case for case in CASES if case.get("error")]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MS = 86_400_000


def ms(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(milliseconds=1)


def texts(slots: list[int | None]) -> list[str | None]:
    return [
        None if slot is None else (EPOCH + timedelta(milliseconds=slot)).isoformat().replace("+00:00", "Z")
        for slot in slots
    ]


def by_id(cases: list[dict]):
    return pytest.mark.parametrize("case", cases, ids=[case["id"] for case in cases])


def built(case: dict, **policies: str) -> Cron | Every:
    if case["kind"] == "every":
        return every(case["expr"])
    return cron(case["expr"], tz=case["tz"], **policies)


def following(schedule: Cron | Every, after_ms: int, count: int) -> list[int | None]:
    slots: list[int | None] = []
    for _ in range(count):
        slots.append(schedule.next_slot(after_ms))
        after_ms = slots[-1]
    return slots


# The cases


@by_id(GOOD)
def test_case_gives_its_slots(case):
    slots = following(built(case), ms(case["start"]), len(case["expected"]))
    assert texts(slots) == case["expected"]


@by_id([case for case in GOOD if case["kind"] == "cron"])
def test_case_gives_its_slots_under_skip_and_both(case):
    slots = following(built(case, gap="skip", fold="both"), ms(case["start"]), len(case["expected"]))
    assert texts(slots) == (case.get("expected_match") or case["expected"])


@by_id([case for case in GOOD if case.get("prev")])
def test_case_gives_its_latest_slot(case):
    assert texts([built(case).latest_slot(ms(case["start"]))]) == [case["prev"]]


@pytest.mark.parametrize("match", [False, True], ids=["shift-first", "skip-both"])
@by_id(GOOD)
def test_case_is_the_same_backward(case, match):
    policies = {"gap": "skip", "fold": "both"} if match else {}
    expected = [ms(text) for text in (match and case.get("expected_match")) or case["expected"]]
    schedule = built(case, **policies)
    for before, slot in zip([None, *expected], expected, strict=False):
        assert schedule.latest_slot(slot) == slot
        if before is not None:
            assert schedule.latest_slot(slot - 1) == before
            assert schedule.next_slot(before) == slot


# Rejected: in bounded time and memory, with the value and a remedy


@by_id(REJECTED)
def test_case_is_rejected_naming_the_value(case):
    with pytest.raises(InvalidInput) as caught:
        built(case)
    message = str(caught.value)
    assert case["expr"] in message or "0s" in message
    assert len(message) > len(case["expr"]) + 30  # there is a remedy in it


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 2,4,6,9,11 *", "never comes"),
        ("0 0 30 2 */2", "never comes"),  # AND, because day of week starts with a star
        ("0 0 31 4 *", "day of month '31' never comes in month '4'; name a day that does"),
        ("0 0 */31 * mon#2", "on day of week 'mon#2'"),
        ("*/0 * * * *", "at least 1"),
        ("*/-2 * * * *", "at least 1"),
        ("*/61 * * * *", 'every("...")'),
        ("0 */25 * * *", "above 24"),
        ("0 0 */32 * *", "above 31"),
        ("0 0 * */13 *", "above 12"),
        ("0 0 * * */8", "above 7"),
        ("60 * * * *", "60 is out of range; write 0 to 59"),
        ("0 24 * * *", "write 0 to 23"),
        ("0 0 0 * *", "write 1 to 31"),
        ("0 0 * 0 *", "write 1 to 12 or jan to dec"),
        ("0 0 * * 8", "write 0 to 7 or sun to sat"),
        ("60 0 0 * * *", "second 60"),
        ("0 0 * * monday", "'monday'"),
        ("0 0 * foo *", "'foo'"),
        ("0 0 * * fri#6", "#1 to #5"),
        ("0 0 * * fri#0", "#1 to #5"),
        ("0 0 * * L", '"5L" for the last Friday'),
        ("0 0 LW * *", '"L" for the last day'),
        ("0 0 L-3 * *", '"L" for the last day'),
        ("0 0 ? * 1", "'?'"),
        ("1,,2 * * * *", "''"),
        ("*-5 * * * *", "'*-5'"),
        ("1-2-3 * * * *", "'1-2-3'"),
        ("1/2/3 * * * *", "'1/2/3'"),
        ("+5 * * * *", "'+5'"),
        ("1_0 * * * *", "'1_0'"),
        ("٣ * * * *", "'٣'"),
        ("mon * * * *", "'mon'"),
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("0 0 0 1 1 * 2026", "7 fields"),
        ("@reboot", "start"),
        ("@fortnightly", "@daily"),
        ("0," * 1000 + "0 * * * *", "longer than"),
        (None, "not a text"),
        (5, "not a text"),
    ],
)
def test_unreadable_expression_is_refused_with_a_remedy(expression, says):
    with pytest.raises(InvalidSchedule) as caught:
        cron(expression)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400


def test_date_that_comes_by_the_other_day_field_is_accepted():
    assert cron("0 0 31 4 1").next_slot(ms("2029-03-26T00:00:00Z")) == ms("2029-04-02T00:00:00Z")
    assert cron("0 0 30 2 FRI#5").next_slot(ms("2026-01-01T00:00:00Z")) == ms("2036-02-29T00:00:00Z")


def fresh() -> None:
    for cached in (cron_module._parse, cron_module._stretches):
        cached.cache_clear()


def bounded(work) -> None:
    """ML02: a second of processor time and 50 MB."""
    fresh()
    tracemalloc.start()
    try:
        started = time.process_time()
        work()
        assert time.process_time() - started < 1
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


@by_id(CASES)
def test_case_takes_bounded_time_and_memory(case):
    def work():
        try:
            schedule = built(case)
        except InvalidInput:
            return
        following(schedule, ms(case["start"]), 5)
        schedule.latest_slot(ms(case["start"]))

    bounded(work)


@pytest.mark.parametrize("expression", ["0 0 29 2 */7", "0 0 * 2 fri#5", "0 0 29 2 *", "0 0 1 1 *"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Prague", "Antarctica/Troll"])
def test_rare_dates_take_bounded_time_at_both_ends_of_time(expression, zone):
    schedule = cron(expression, tz=zone)

    def work():
        assert schedule.next_slot(-(10**15)) == schedule.next_slot(-1)
        assert schedule.next_slot(MAX_SLOT) is None
        assert schedule.latest_slot(-1) is None
        latest = schedule.latest_slot(10**18)
        assert latest is not None
        assert schedule.next_slot(latest) is None
        assert schedule.next_slot(latest - 1) == latest

    bounded(work)


def test_years_of_iteration_keep_memory_bounded():
    schedule = cron("0 12 */5 * *", tz="Europe/Prague")
    fresh()
    tracemalloc.start()
    try:
        at = 0
        for _ in range(15_000):
            at = schedule.next_slot(at)
        assert tracemalloc.get_traced_memory()[0] < 5_000_000
    finally:
        tracemalloc.stop()
    assert at > ms("2150-01-01T00:00:00Z")


# The dialect


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * SUN", "0 0 * * 0"),
        ("0 0 * * 0,7", "0 0 * * sun"),
        ("0 0 * * 5-7", "0 0 * * fri,sat,sun"),
        ("0 0 * * 0-7", "0 0 * * *,1"),
        ("0 0 * * fri-mon", "0 0 * * 5,6,0,1"),
        ("0 0 * * 7-2", "0 0 * * 0,1,2"),
        ("0 0 * * mon-fri/2", "0 0 * * 1,3,5"),
        ("0 22-2 * * *", "0 0,1,2,22,23 * * *"),
        ("0 22-3/2 * * *", "0 22,0,2 * * *"),
        ("50-10/10 * * * *", "50,0,10 * * * *"),
        ("0 0 1 nov-feb *", "0 0 1 1,2,11,12 *"),
        ("0 0 29-2 * *", "0 0 29,30,31,1,2 * *"),
        ("5/15 * * * *", "5,20,35,50 * * * *"),
        ("0-59/15 * * * *", "0,15,30,45 * * * *"),
        ("0 0 1 JAN,feb *", "0 0 1 1,2 *"),
        ("0 0 L * *", "0 0 l * *"),
        ("0 0 * * FRIL", "0 0 * * 5L"),
        ("0 0 * * 7L", "0 0 * * sunL"),
        ("0 0 * * 7#2", "0 0 * * SUN#2"),
        ("0 0 1-31 * 1", "0 0 1-31 * 2"),  # OR with every day
        ("  0\t0  1 * *\n", "0 0 1 * *"),
        ("@daily", "0 0 * * *"),
        ("@Hourly", "0 * * * *"),
    ],
)
def test_two_spellings_of_one_schedule(one, other):
    a, b = cron(one, tz="Europe/Prague"), cron(other, tz="Europe/Prague")
    start = ms("2026-02-20T00:00:00Z")
    assert following(a, start, 60) == following(b, start, 60)


@pytest.mark.parametrize(("macro", "expression"), MACROS.items())
def test_names_stand_for_their_expressions(macro, expression):
    assert parse(macro) == parse(expression)


@pytest.mark.parametrize(
    ("expression", "slots"),
    [
        ("0 0 15,L * *", ["2026-01-15", "2026-01-31", "2026-02-15", "2026-02-28"]),
        ("0 0 * * 5#1,5L", ["2026-01-02", "2026-01-30", "2026-02-06", "2026-02-27"]),
        ("0 0 * * 0L", ["2026-01-25", "2026-02-22", "2026-03-29", "2026-04-26"]),
        ("0 0 */2 * 1", ["2026-01-05", "2026-01-19", "2026-02-09", "2026-02-23"]),
        ("0 0 1 * 1", ["2026-01-05", "2026-01-12", "2026-01-19", "2026-01-26"]),
    ],
)
def test_last_nth_and_or(expression, slots):
    found = following(cron(expression), ms("2026-01-01T12:00:00Z"), len(slots))
    assert texts(found) == [f"{day}T00:00:00Z" for day in slots]


# Against an oracle that knows no arithmetic: it asks zoneinfo about every candidate.

ODD_TIMES = [
    ("Europe/Prague", "2026-03-29T01:00:00Z"),
    ("Europe/Prague", "2026-10-25T01:00:00Z"),
    ("America/New_York", "2026-03-08T07:00:00Z"),
    ("America/New_York", "2025-11-02T06:00:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
    ("Antarctica/Troll", "2026-03-29T01:00:00Z"),
    ("Antarctica/Troll", "2026-10-25T01:00:00Z"),
    ("Pacific/Chatham", "2026-04-04T14:00:00Z"),
    ("Pacific/Chatham", "2026-09-26T14:00:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),  # no 30 December 2011
    ("Pacific/Kwajalein", "1993-08-21T12:00:00Z"),  # no 21 August 1993
    ("America/Sao_Paulo", "2018-02-18T02:00:00Z"),  # back over midnight
    ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),  # no midnight
    ("America/Nuuk", "2024-03-31T01:00:00Z"),
    ("Africa/Casablanca", "2026-02-15T02:00:00Z"),
    ("Africa/Cairo", "2014-07-31T22:00:00Z"),
    ("Africa/Monrovia", "1972-01-07T00:44:30Z"),  # an offset with seconds, until then
    ("Asia/Pyongyang", "2018-05-04T15:00:00Z"),
    ("America/Caracas", "2016-05-01T07:00:00Z"),
    ("Asia/Gaza", "2026-10-23T23:00:00Z"),
    ("Europe/Dublin", "2026-10-25T01:00:00Z"),  # winter is its daylight saving time
    ("UTC", "2026-02-28T00:00:00Z"),
    ("Asia/Kolkata", "2096-02-28T00:00:00Z"),
]


class Oracle:
    """All slots of an expression in a span, from the sets of its fields."""

    def __init__(self, sets: dict, zone: str, gap: str, fold: str):
        self.zone, self.gap, self.fold = ZoneInfo(zone), gap, fold
        self.__dict__.update(sets)

    def slots(self, start_ms: int, end_ms: int) -> list[int]:
        found = self.real(start_ms, end_ms) if self.real_time else self.fixed(start_ms, end_ms)
        return sorted({slot for slot in found if start_ms <= slot < end_ms})

    def date_fits(self, day: datetime) -> bool:
        by_day = day.day in self.days or (self.last_day and (day + timedelta(days=1)).month != day.month)
        weekday = day.isoweekday() % 7
        by_weekday = (
            weekday in self.weekdays
            or (weekday in self.last_weekdays and (day + timedelta(days=7)).month != day.month)
            or (weekday, (day.day + 6) // 7) in self.nth_weekdays
        )
        return day.month in self.months and ((by_day or by_weekday) if self.either else (by_day and by_weekday))

    def real(self, start_ms: int, end_ms: int):
        instant = EPOCH + timedelta(milliseconds=start_ms - start_ms % 1000)
        while (at := (instant - EPOCH) // timedelta(milliseconds=1)) < end_ms:
            local = instant.astimezone(self.zone)
            if (
                local.second in self.seconds
                and local.minute in self.minutes
                and local.hour in self.hours
                and self.date_fits(local.replace(tzinfo=None))
            ):
                yield at
            instant += timedelta(seconds=1 if self.six else 60 - local.second)

    def fixed(self, start_ms: int, end_ms: int):
        day = (EPOCH + timedelta(milliseconds=start_ms)).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
        day -= timedelta(days=2)
        while (day.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1) < end_ms + 2 * DAY_MS:
            if self.date_fits(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        yield from self.instants(day.replace(hour=hour, minute=minute))
            day += timedelta(days=1)

    def instants(self, local: datetime):
        found = [local.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
        there = [instant for instant in found if instant.astimezone(self.zone).replace(tzinfo=None) == local]
        if there:
            chosen = sorted(set(there))[: 1 if self.fold == "first" else 2]
        else:
            chosen = [self.after_gap(min(found), max(found))] if self.gap == "shift" else []
        return [(instant - EPOCH) // timedelta(milliseconds=1) for instant in chosen]

    def after_gap(self, low: datetime, high: datetime) -> datetime:
        offset = low.astimezone(self.zone).utcoffset()
        while low < high and low.astimezone(self.zone).utcoffset() == offset:
            low += timedelta(seconds=30)
        return low


UNITS = {
    "seconds": (0, 59),
    "minutes": (0, 59),
    "hours": (0, 23),
    "days": (1, 31),
    "months": (1, 12),
    "weekdays": (0, 6),
}


@st.composite
def terms(draw, unit: str) -> tuple[str, set[int]]:
    first, last = UNITS[unit]
    size = last - first + 1
    low = draw(st.integers(first, last))
    kind = draw(st.sampled_from(["one", "one", "range", "stepped", "star step"]))
    step = draw(st.integers(1, size))
    if kind == "one":
        return str(low), {low}
    if kind == "star step":
        return f"*/{step}", set(range(first, last + 1, step))
    high = draw(st.integers(first, last))
    ring = [first + (low - first + i) % size for i in range((high - low) % size + 1)]
    return (f"{low}-{high}", set(ring)) if kind == "range" else (f"{low}-{high}/{step}", set(ring[::step]))


@st.composite
def fields(draw, unit: str, star: float = 0.5) -> tuple[str, set[int]]:
    first, last = UNITS[unit]
    if draw(st.floats(0, 1, exclude_max=True)) < star:
        return "*", set(range(first, last + 1))
    drawn = draw(st.lists(terms(unit), min_size=1, max_size=3))
    return ",".join(text for text, _ in drawn), set().union(*(values for _, values in drawn))


@st.composite
def expressions(draw, six: bool | None = False) -> tuple[str, dict]:
    six = draw(st.booleans()) if six is None else six
    second, seconds = draw(fields("seconds", 0.3)) if six else ("", {0})
    minute, minutes = draw(fields("minutes", 0.1))
    hour, hours = draw(fields("hours", 0.2))
    day, days = draw(fields("days", 0.6))
    month, months = draw(fields("months", 0.8))
    weekday, weekdays = draw(fields("weekdays", 0.5))
    last_day, last_weekdays, nth = draw(st.booleans()) and day != "*", set(), set()
    day += ",L" * last_day
    if weekday != "*":
        last_weekdays = draw(st.sets(st.integers(0, 6), max_size=1))
        nth = draw(st.sets(st.tuples(st.integers(0, 6), st.integers(1, 5)), max_size=1))
        weekday = ",".join([weekday, *(f"{d}L" for d in last_weekdays), *(f"{d}#{n}" for d, n in nth)])
    sets = {
        "seconds": seconds, "minutes": minutes, "hours": hours, "days": days, "months": months, "weekdays": weekdays,
        "last_day": last_day, "last_weekdays": last_weekdays, "nth_weekdays": nth, "six": six,
        "either": not day.startswith("*") and not weekday.startswith("*"),
        "real_time": six or minute.startswith("*") or hour.startswith("*"),
    }  # fmt: skip
    return " ".join(filter(None, [second, minute, hour, day, month, weekday])), sets


def agree(schedule: Cron, expected: list[int], start_ms: int, end_ms: int) -> None:
    """The schedule has exactly these slots from ``start_ms`` up to ``end_ms``, seen from both sides."""
    at, found = start_ms - 1, []
    while (slot := schedule.next_slot(at)) is not None and slot < end_ms:
        assert slot > at
        found.append(slot)
        at = slot
    assert found == expected
    at, backward = end_ms - 1, []
    while (slot := schedule.latest_slot(at)) is not None and slot >= start_ms:
        assert slot <= at
        backward.append(slot)
        at = slot - 1
    assert backward[::-1] == expected


@settings(max_examples=150, deadline=None)
@given(
    expressions(),
    st.sampled_from(ODD_TIMES),
    st.integers(-2 * 24 * 60, 2 * 24 * 60),
    st.sampled_from(["shift", "skip"]),
    st.sampled_from(["first", "both"]),
)
def test_agrees_with_the_oracle_on_odd_days(expression, odd_time, minutes, gap, fold):
    text, sets = expression
    zone, around = odd_time
    try:
        schedule = cron(text, tz=zone, gap=gap, fold=fold)
    except InvalidSchedule as error:
        assert "never comes" in str(error)  # noqa: PT017 - the other drawn expressions must be readable
        return
    start = ms(around) + minutes * 60_000 + 777
    end = start + (2 if sets["real_time"] else 40) * DAY_MS
    agree(schedule, Oracle(sets, zone, gap, fold).slots(start, end), start, end)


@settings(max_examples=50, deadline=None)
@given(expressions(six=True), st.sampled_from(ODD_TIMES), st.integers(-1800, 1800))
def test_agrees_with_the_oracle_to_the_second(expression, odd_time, seconds):
    text, sets = expression
    zone, around = odd_time
    try:
        schedule = cron(text, tz=zone)
    except InvalidSchedule:
        return
    start = ms(around) + seconds * 1000 - 1_800_000
    end = start + 3_600_000
    agree(schedule, Oracle(sets, zone, "skip", "both").slots(start, end), start, end)


@settings(max_examples=200, deadline=None)
@given(
    expressions(six=None),
    st.sampled_from(sorted({zone for zone, _ in ODD_TIMES})),
    st.integers(0, ms("2400-01-01T00:00:00Z")),
    st.sampled_from(["shift", "skip"]),
    st.sampled_from(["first", "both"]),
)
def test_forward_and_backward_are_each_others_inverse_at_any_time(expression, zone, at, gap, fold):
    try:
        schedule = cron(expression[0], tz=zone, gap=gap, fold=fold)
    except InvalidSchedule:
        return
    latest, coming = schedule.latest_slot(at), schedule.next_slot(at)
    assert coming is not None
    assert coming > at
    assert schedule.latest_slot(coming) == coming
    assert schedule.latest_slot(coming - 1) == latest
    assert coming % 1000 == 0
    if latest is not None:
        assert latest <= at
        assert schedule.next_slot(latest) == coming
        assert schedule.next_slot(latest - 1) == latest


def changes(zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    """The hours in which the zone's clock changes."""
    found, at = [], start
    while at < end:
        if at.astimezone(zone).utcoffset() != (at + timedelta(days=1)).astimezone(zone).utcoffset():
            before = at.astimezone(zone).utcoffset()
            hour = at
            while hour.astimezone(zone).utcoffset() == before:
                hour += timedelta(hours=1)
            found.append(hour)
        at += timedelta(days=1)
    return found


def test_every_zone_agrees_with_the_oracle_around_its_changes():
    every_minute, every_hour = set(range(60)), set(range(24))
    every_date = {
        "days": set(range(1, 32)), "months": set(range(1, 13)), "weekdays": set(range(7)), "last_day": False,
        "last_weekdays": set(), "nth_weekdays": set(), "either": False, "six": False, "seconds": {0},
    }  # fmt: skip
    kinds = [
        ("15,45 0-3,23 * * *", {"minutes": {15, 45}, "hours": {0, 1, 2, 3, 23}, "real_time": False}),
        ("30 2 * * *", {"minutes": {30}, "hours": {2}, "real_time": False}),
        ("*/30 * * * *", {"minutes": {0, 30}, "hours": every_hour, "real_time": True}),
        ("7-59/26 * * * *", {"minutes": {7, 33, 59} & every_minute, "hours": every_hour, "real_time": True}),
    ]
    checked = 0
    for name in sorted(available_timezones()):
        for change in changes(ZoneInfo(name), datetime(2025, 7, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)):
            start = (change - EPOCH) // timedelta(milliseconds=1) - 4 * 3_600_000
            end = start + 9 * 3_600_000
            for expression, sets in kinds:
                for gap, fold in (("shift", "first"), ("skip", "both")):
                    expected = Oracle({**every_date, **sets}, name, gap, fold).slots(start, end)
                    agree(cron(expression, tz=name, gap=gap, fold=fold), expected, start, end)
                    checked += 1
    assert checked > 1000


def test_no_zone_changes_twice_within_the_days_that_are_looked_at():
    """What ``_changes`` relies on: a look every other day sees all that a look once an hour sees."""
    for name in ("Africa/Cairo", "America/Recife", "Asia/Gaza", "Africa/Casablanca", "Antarctica/Troll"):
        zone = ZoneInfo(name)
        for year in (2000, 2010, 2014, 2026, 2040):
            first = ms(f"{year}-01-01T00:00:00Z") // 1000
            last = first + 366 * 86_400
            hourly = [
                at
                for at in range(first + 3600, last, 3600)
                if cron_module._offset(zone, at) != cron_module._offset(zone, at - 3600)
            ]
            assert [-(-at // 3600) * 3600 for at in cron_module._changes(zone, first, last - 1)] == hourly


@pytest.mark.parametrize("odd_time", ODD_TIMES[:4] + ODD_TIMES[8:11], ids=str)
@pytest.mark.parametrize("seconds", [-3600, -1, 0, 1, 1800, 3600, 86_399, 86_400, 86_401])
def test_answers_do_not_depend_on_where_the_windows_are_cut(odd_time, seconds, monkeypatch):
    zone, around = odd_time
    change = ms(around)
    schedules = [
        cron(text, tz=zone, gap=gap, fold=fold)
        for text in ("15,45 0-4 * * *", "30 2 * * *", "*/30 * * * *")
        for gap, fold in (("shift", "first"), ("skip", "both"))
    ]

    def answers() -> list:
        fresh()
        span = range(change - 4 * 3_600_000, change + 28 * 3_600_000, 900_000)
        return [(schedule.next_slot(at), schedule.latest_slot(at)) for schedule in schedules for at in span]

    expected = answers()
    cut = change // 1000 + seconds
    monkeypatch.setattr(cron_module, "_WINDOW", next(cut // n for n in range(600, 0, -1) if cut % n == 0))
    assert answers() == expected
    fresh()


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
def test_time_begins_and_ends_where_the_protocol_says(zone):
    schedule = cron("* * * * *", tz=zone)
    assert schedule.next_slot(-1) == 0
    assert schedule.next_slot(-(10**20)) == 0
    assert schedule.latest_slot(0) == 0
    assert schedule.latest_slot(-1) is None
    assert schedule.next_slot(MAX_SLOT) is None
    latest = schedule.latest_slot(MAX_SLOT)
    assert latest is not None
    assert MAX_SLOT - DAY_MS < latest <= MAX_SLOT  # a datetime cannot show the year 10000 of the eastern zones
    assert schedule.next_slot(latest) is None


@pytest.mark.parametrize("expression", ["* * * * *", "0 9 * * *", "* * * * * *"])
def test_a_slot_is_never_its_own_successor(expression):
    """DR04: asked at, just before and just after a slot."""
    schedule = cron(expression, tz="Europe/Prague")
    slot = schedule.next_slot(ms("2026-12-01T07:59:59.500Z"))
    after = schedule.next_slot(slot)
    assert after > slot
    assert [schedule.next_slot(slot + step) for step in (-2, -1, 0, 1, 2)] == [slot, slot, after, after, after]
    assert [schedule.latest_slot(slot + step) == slot for step in (-1, 0, 1)] == [False, True, True]
