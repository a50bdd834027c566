"""Cron expressions: reading them, and the next and latest instant they name in a time zone."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from tenure.errors import InvalidSchedule
from tenure.model import MAX_SLOT

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_DAY = 86_400
_LAST_SECOND = MAX_SLOT // 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal()


class _Unit(NamedTuple):
    name: str
    first: int
    last: int
    size: int  # how many different values there are; 7 is a second spelling of Sunday
    names: tuple[str, ...] = ()


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_SECOND = _Unit("second", 0, 59, 60)
_MINUTE = _Unit("minute", 0, 59, 60)
_HOUR = _Unit("hour", 0, 23, 24)
_DAY_OF_MONTH = _Unit("day of month", 1, 31, 31)
_MONTH = _Unit("month", 1, 12, 12, _MONTHS)
_WEEKDAY = _Unit("day of week", 0, 7, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))

_TERM = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(-?\d+))?", re.ASCII)
_LAST_WEEKDAY = re.compile(r"(\w+)l", re.ASCII)
_NTH_WEEKDAY = re.compile(r"(\w+)#(\d+)", re.ASCII)
_SIX_WEEKS = sum(1 << 7 * week for week in range(6))  # times a set of weekdays: the set in each of six weeks
_LONGEST = 500  # characters; the longest sensible list of all sixty seconds has 169


class _Unreadable(Exception):
    """What is wrong with a field and what to write instead."""


# Sets of small integers are bit masks: bit n set means n is in it. Tiny, hashable, and "next" and "previous" are
# a shift away.


def _at_or_after(mask: int, value: int) -> int:
    rest = mask >> value
    return value + (rest & -rest).bit_length() - 1 if rest else -1


def _at_or_before(mask: int, value: int) -> int:
    return (mask & ((1 << value + 1) - 1)).bit_length() - 1


class DateRule(NamedTuple):
    """What the two day fields name; Sunday is 0."""

    days: int
    last_day: bool
    weekdays: int
    last_weekdays: int
    nth_weekdays: tuple[int, ...]  # of the first week, the second, up to the fifth
    either: bool  # day of month or day of week is enough

    def days_of(self, length: int, first_weekday: int) -> int:
        """The matching days of a month with so many days whose first is such a weekday."""
        by_day = self.days | self.last_day << length
        by_weekday = (self.weekdays * _SIX_WEEKS >> first_weekday) << 1
        if any(self.nth_weekdays):
            for week, weekdays in enumerate(self.nth_weekdays):
                by_weekday |= _first_week(weekdays, first_weekday) << week * 7
        if self.last_weekdays:
            by_weekday |= _first_week(self.last_weekdays, (first_weekday + length) % 7) << length - 7
        matching = by_day | by_weekday if self.either else by_day & by_weekday
        return matching & (2 << length) - 2


def _first_week(weekdays: int, first_weekday: int) -> int:
    """The days 1 to 7 that are such weekdays, where day 1 is a ``first_weekday``."""
    return (weekdays * _SIX_WEEKS >> first_weekday & 127) << 1


@dataclass(frozen=True, slots=True)
class Fields:
    """An expression that was read: the wall times that it names, without a time zone."""

    seconds: int
    minutes: int
    hours: int
    months: int
    dates: DateRule
    real_time: bool  # follows real time through a change of the clocks, instead of the wall clock
    _days: dict[int, int] = field(default_factory=dict, compare=False)  # the date rule, worked out per kind of month

    def next_local(self, local: int) -> int | None:
        """The first wall time at or after ``local``, both in seconds as if the wall clock showed UTC."""
        day, second = divmod(local, _DAY)
        found = self._next_day(day + _EPOCH_DAY)
        if found == day + _EPOCH_DAY:
            time = self._next_time(second)
            if time >= 0:
                return day * _DAY + time
            found = self._next_day(found + 1)
        return (found - _EPOCH_DAY) * _DAY + self._next_time(0) if found else None

    def latest_local(self, local: int) -> int | None:
        """The last wall time at or before ``local``."""
        day, second = divmod(local, _DAY)
        found = self._latest_day(day + _EPOCH_DAY)
        if found == day + _EPOCH_DAY:
            time = self._latest_time(second)
            if time >= 0:
                return day * _DAY + time
            found = self._latest_day(found - 1)
        return (found - _EPOCH_DAY) * _DAY + self._latest_time(_DAY - 1) if found else None

    def _next_time(self, at: int) -> int:
        minute_of_day, second = divmod(at, 60)
        hour, minute = divmod(minute_of_day, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (found := _at_or_after(self.seconds, second)) >= 0:
                return minute_of_day * 60 + found
            if (found := _at_or_after(self.minutes, minute + 1)) >= 0:
                return (hour * 60 + found) * 60 + _at_or_after(self.seconds, 0)
        if (found := _at_or_after(self.hours, hour + 1)) >= 0:
            return (found * 60 + _at_or_after(self.minutes, 0)) * 60 + _at_or_after(self.seconds, 0)
        return -1

    def _latest_time(self, at: int) -> int:
        minute_of_day, second = divmod(at, 60)
        hour, minute = divmod(minute_of_day, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (found := _at_or_before(self.seconds, second)) >= 0:
                return minute_of_day * 60 + found
            if (found := _at_or_before(self.minutes, minute - 1)) >= 0:
                return (hour * 60 + found) * 60 + _at_or_before(self.seconds, 59)
        if (found := _at_or_before(self.hours, hour - 1)) >= 0:
            return (found * 60 + _at_or_before(self.minutes, 59)) * 60 + _at_or_before(self.seconds, 59)
        return -1

    def _next_day(self, day: int) -> int:
        """The first day at or after ``day``, both as date ordinals; 0 if the calendar ends before."""
        if day > _LAST_DAY:
            return 0
        on = date.fromordinal(day)
        year, month, before_first = on.year, on.month, day - on.day
        found = _at_or_after(self._days_of(year, month, before_first), on.day)
        while found < 0:
            month = _at_or_after(self.months, month + 1)
            if month < 0:
                year, month = year + 1, _at_or_after(self.months, 1)
            if year > date.max.year:
                return 0
            before_first = date(year, month, 1).toordinal() - 1
            found = _at_or_after(self._days_of(year, month, before_first), 1)
        return before_first + found

    def _latest_day(self, day: int) -> int:
        day = min(day, _LAST_DAY)
        on = date.fromordinal(day)
        year, month, before_first = on.year, on.month, day - on.day
        found = _at_or_before(self._days_of(year, month, before_first), on.day)
        while found < 0:
            month = _at_or_before(self.months, month - 1)
            if month < 0:
                year, month = year - 1, _at_or_before(self.months, 12)
            if year < _EPOCH.year - 1:
                return 0
            before_first = date(year, month, 1).toordinal() - 1
            found = _at_or_before(self._days_of(year, month, before_first), 31)
        return before_first + found

    def _days_of(self, year: int, month: int, before_first: int) -> int:
        if not self.months >> month & 1:
            return 0
        length, first_weekday = _length(year, month), (before_first + 1) % 7
        kind = length * 7 + first_weekday
        if kind not in self._days:
            self._days[kind] = self.dates.days_of(length, first_weekday)
        return self._days[kind]


def _length(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


# Reading an expression


def parse(expression: str) -> Fields:
    """Raises InvalidSchedule for what cannot be read, and for a date that never comes."""
    if not isinstance(expression, str):
        raise InvalidSchedule(f'cron {expression!r}: not a text; write it as in "0 9 * * mon-fri"')
    if len(expression) > _LONGEST:
        raise InvalidSchedule(f"cron {expression[:60]!r}...: longer than {_LONGEST} characters; use steps and ranges")
    try:
        return _parse(" ".join(expression.lower().split()))
    except _Unreadable as problem:
        raise InvalidSchedule(f"cron {expression!r}: {problem}") from None


@lru_cache(maxsize=1024)
def _parse(expression: str) -> Fields:
    second, minute, hour, day, month, weekday = _split(expression)
    fields = Fields(
        seconds=_values(_SECOND, second or "0"),
        minutes=_values(_MINUTE, minute),
        hours=_values(_HOUR, hour),
        months=_values(_MONTH, month),
        dates=_date_rule(day, weekday),
        real_time=second is not None or minute.startswith("*") or hour.startswith("*"),
    )
    _refuse_if_never(fields, day, month, weekday)
    return fields


def _split(expression: str) -> tuple[str | None, str, str, str, str, str]:
    if expression.startswith("@") and expression not in MACROS:
        if expression == "@reboot":
            raise _Unreadable("the start of a machine is no instant that all instances share; run it where they start")
        raise _Unreadable(f"no such name; write one of {', '.join(MACROS)}, or the five fields")
    parts = MACROS.get(expression, expression).split()
    if len(parts) == 5:
        return None, parts[0], parts[1], parts[2], parts[3], parts[4]
    if len(parts) == 6:
        return parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]
    raise _Unreadable(
        f"{len(parts)} fields; write five (minute hour day-of-month month day-of-week) or six with seconds first"
    )


def _values(unit: _Unit, text: str) -> int:
    mask = 0
    for term in text.split(","):
        mask |= _term(unit, term)
    return mask


def _term(unit: _Unit, text: str) -> int:
    match = _TERM.fullmatch(text)
    if match is None:
        raise _Unreadable(f"{unit.name} {text!r} cannot be read; {_allowed(unit)}")
    low, high, step_text = match.groups()
    step = _step(unit, text, step_text)
    if low is None:
        start, end = unit.first, unit.first + unit.size - 1
    else:
        start = end = _value(unit, low)
        if high is not None:
            end = _value(unit, high)
        elif step_text is not None:  # 5/15 is 5-59/15
            start = _wrapped(unit, start)
            end = unit.first + unit.size - 1
    if end < start:
        end += unit.size
    mask = 0
    for value in range(start, end + 1, step):
        mask |= 1 << _wrapped(unit, value)
    return mask


def _wrapped(unit: _Unit, value: int) -> int:
    return unit.first + (value - unit.first) % unit.size


def _step(unit: _Unit, term: str, text: str | None) -> int:
    step = 1 if text is None else int(text)
    if step < 1:
        raise _Unreadable(f"{unit.name} {term!r}: a step must be at least 1")
    if step > unit.size:
        raise _Unreadable(
            f"{unit.name} {term!r}: a step starts again in each unit, so one above {unit.size} is never taken; "
            f'write a smaller one, or every("...") for a fixed period'
        )
    return step


def _value(unit: _Unit, text: str) -> int:
    if text in unit.names:
        return unit.first + unit.names.index(text)
    if not text.isdecimal():
        raise _Unreadable(f"{unit.name} {text!r} cannot be read; {_allowed(unit)}")
    if not unit.first <= int(text) <= unit.last:
        raise _Unreadable(f"{unit.name} {text} is out of range; {_allowed(unit)}")
    return int(text)


def _allowed(unit: _Unit) -> str:
    words = f" or {unit.names[0]} to {unit.names[-1]}" if unit.names else ""
    last = ', and "L" for the last day' if unit is _DAY_OF_MONTH else ""
    nth = ', "5L" for the last Friday and "fri#2" for the second' if unit is _WEEKDAY else ""
    return f'write {unit.first} to {unit.last}{words}, "*", ranges, lists and steps{last}{nth}'


def _date_rule(day: str, weekday: str) -> DateRule:
    terms = day.split(",")
    plain_days = ",".join(term for term in terms if term != "l")
    either = not day.startswith("*") and not weekday.startswith("*")
    days = _values(_DAY_OF_MONTH, plain_days) if set(terms) != {"l"} else 0
    return DateRule(days, "l" in terms, *_weekdays(weekday), either)


def _weekdays(text: str) -> tuple[int, int, tuple[int, ...]]:
    plain, last, nth = 0, 0, [0] * 5
    for term in text.split(","):
        if match := _LAST_WEEKDAY.fullmatch(term):
            last |= 1 << _value(_WEEKDAY, match[1]) % 7
        elif match := _NTH_WEEKDAY.fullmatch(term):
            if match[2] not in ("1", "2", "3", "4", "5"):
                raise _Unreadable(f"day of week {term!r}: a month has no such week; write #1 to #5")
            nth[int(match[2]) - 1] |= 1 << _value(_WEEKDAY, match[1]) % 7
        else:
            plain |= _term(_WEEKDAY, term)
    return plain, last, tuple(nth)


def _refuse_if_never(fields: Fields, day: str, month: str, weekday: str) -> None:
    """Every kind of month comes: a leap February starts on each weekday within forty years."""
    lengths = {_length(2023, m) for m in range(1, 13) if fields.months >> m & 1}
    lengths |= {29} if 28 in lengths else set()
    if not any(fields.dates.days_of(length, first) for length in lengths for first in range(7)):
        also = "" if weekday == "*" else f" on day of week {weekday!r}"
        raise _Unreadable(f"day of month {day!r} never comes in month {month!r}{also}; name a day that does")


# Time zones: stretches of constant offset, cut into windows so that both work and memory are bounded.


class _Stretch(NamedTuple):
    start: int  # seconds since the epoch, as all instants here
    end: int
    offset: int  # of the wall clock from UTC
    missing: int  # the wall times from here to the start's do not exist: the clock went forward at the start
    repeated: int  # the wall times from the start's to here came before: the clock went back


_WINDOW = 16 * _DAY


@lru_cache(maxsize=2048)
def _stretches(zone: tzinfo, window: int) -> tuple[_Stretch, ...]:
    start, end = window * _WINDOW, (window + 1) * _WINDOW
    earlier = start - _DAY  # a clock that went back on the day before may still repeat wall times
    cuts = [earlier, *_changes(zone, earlier, end - 1), end]
    return tuple(_stretch(zone, cut, max(cut, start), until) for cut, until in pairwise(cuts) if until > start)


def _stretch(zone: tzinfo, change: int, start: int, end: int) -> _Stretch:
    offset, before = _offset(zone, change), _offset(zone, change - 1)
    missing = min(before, offset) if start == change else offset
    return _Stretch(start, end, offset, start + missing, max(change + before, start + offset))


def _changes(zone: tzinfo, start: int, last: int) -> Iterator[int]:
    """The instants after ``start`` and up to ``last`` at which the offset changes.

    A look every other day is enough: since 1970 no zone has had two changes within six days.
    """
    if zone.utcoffset(None) is not None:
        return
    offset = _offset(zone, start)
    for low in range(start, last, 2 * _DAY):
        high = min(low + 2 * _DAY, last)
        before, offset = offset, _offset(zone, high)
        if offset != before:
            yield low + _bisected(zone, low, high, before)


def _bisected(zone: tzinfo, low: int, high: int, before: int) -> int:
    return bisect_left(range(low, high), True, key=lambda at: _offset(zone, at) != before)


def _offset(zone: tzinfo, at: int) -> int:
    # The last two days of the calendar have the offset of the day before: a datetime cannot show the year 10000.
    offset = (_EPOCH + timedelta(seconds=min(at, _LAST_SECOND - 2 * _DAY))).astimezone(zone).utcoffset()
    return offset.days * _DAY + offset.seconds if offset else 0


def _stretch_at(zone: tzinfo, at: int) -> _Stretch:
    stretches = _stretches(zone, at // _WINDOW)
    for stretch in stretches:
        if at < stretch.end:
            return stretch
    raise AssertionError("a window's last stretch ends with it")


@dataclass(frozen=True, slots=True)
class CronRule:
    """An expression in a time zone, with its answers to missing and to repeated wall times."""

    fields: Fields
    zone: tzinfo
    shift: bool  # a wall time that does not exist stands for the first instant after the gap
    first: bool  # of a wall time that comes twice, the first one alone

    def next_slot(self, after_ms: int) -> int | None:
        """The first slot strictly later."""
        at = max(after_ms // 1000 + 1, 0)
        while at <= _LAST_SECOND:
            stretch = _stretch_at(self.zone, at)
            if at == stretch.start and self._falls_into_gap(stretch):
                return at * 1000
            local = self.fields.next_local(max(at + stretch.offset, self._first_local(stretch)))
            if local is None:
                return None
            slot = local - stretch.offset
            if slot < stretch.end:
                return slot * 1000 if slot <= _LAST_SECOND else None
            # No clock is a day off UTC, so nothing is missed up to a day before the wall time found, unless
            # the clock soon goes back to wall times before the ones searched.
            soon = stretch.end - at < 2 * _DAY
            at = stretch.end if soon else max(stretch.end, local - _DAY)
        return None

    def latest_slot(self, at_ms: int) -> int | None:
        """The last slot at or earlier."""
        at = min(at_ms // 1000, _LAST_SECOND)
        while at >= 0:
            stretch = _stretch_at(self.zone, at)
            local = self.fields.latest_local(at + stretch.offset)
            if local is None:
                return None
            if local >= self._first_local(stretch):
                slot = local - stretch.offset
                return slot * 1000 if slot >= 0 else None
            if self._falls_into_gap(stretch):
                return stretch.start * 1000 if stretch.start >= 0 else None
            soon = at - stretch.start < 2 * _DAY  # as above: there were later wall times before the clock went back
            at = stretch.start - 1 if soon else min(stretch.start - 1, local + _DAY)
        return None

    def _first_local(self, stretch: _Stretch) -> int:
        return stretch.repeated if self.first else stretch.start + stretch.offset

    def _falls_into_gap(self, stretch: _Stretch) -> bool:
        resumed = stretch.start + stretch.offset
        if not self.shift or stretch.missing == resumed:
            return False
        local = self.fields.next_local(stretch.missing)
        return local is not None and local < resumed
