"""Schedules in words, by the cron-descriptor library wherever its words are right for our dialect."""

import importlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from tenure.cron import DateRule, parse
from tenure.errors import TenureError
from tenure.schedule import At, Cron, Every, Schedule, zone_name

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_MS = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1_000, "millisecond": 1}
_LONGEST_LIST = 12  # a longer one says less than the expression
_ALL_DAYS = (2 << 31) - 2
_ALL_WEEKDAYS = 127


class MissingWords(TenureError, ImportError):
    """Describing a cron expression needs an extra: ``pip install "tenure[words]"``."""


def describe(schedule: Schedule) -> str:
    """A sentence for people: "At 09:00, Monday through Friday, Europe/Prague".

    A cron expression that the library would describe wrongly is given as it is written, and so is a schedule of a
    user's own. Raises MissingWords if the library is not installed.
    """
    match schedule:
        case Every():
            return _every(schedule)
        case At():
            return _at(schedule)
        case Cron():
            return _cron(schedule)
    return str(schedule)


def _every(schedule: Every) -> str:
    parts, rest = [], schedule.period_ms
    for unit, unit_ms in _UNITS_MS.items():
        count, rest = divmod(rest, unit_ms)
        if count:
            parts.append(f"{count} {unit}{'s' * (count > 1)}")
    text = " ".join(parts).removeprefix("1 ") if len(parts) == 1 else " ".join(parts)
    return f"every {text}, counted from {_instant(schedule.anchor_ms)}" if schedule.anchor_ms else f"every {text}"


def _at(schedule: At) -> str:
    first, *later = schedule.slots
    text = f"once, at {_instant(first)}"
    return f"{len(schedule.slots)} times, first at {_instant(first)}" if later else text


def _instant(ms: int) -> str:
    text = (_EPOCH + timedelta(milliseconds=ms)).isoformat(" ", "milliseconds" if ms % 1000 else "seconds")
    return text.replace("+00:00", " UTC")


def _cron(schedule: Cron) -> str:
    in_words = _library()
    plain = _plain(schedule.expression)
    return str(schedule) if plain is None else f"{in_words(plain)}, {zone_name(schedule.tz)}"


def _library() -> Callable[[str], str]:
    try:
        library = importlib.import_module("cron_descriptor")  # an extra, and not typed
    except ImportError as error:
        raise MissingWords('a cron expression in words needs an extra: pip install "tenure[words]"') from error
    options = library.Options(locale_code="en_US", use_24hour_time_format=True)
    return partial(library.get_description, options=options)


def _plain(expression: str) -> str | None:
    """An expression that says the same and that the library describes rightly; None if there is none."""
    fields = parse(expression)
    clock = _clock(fields.seconds, fields.minutes, fields.hours)
    dates = _dates(fields.dates)
    months = _values(fields.months, 1, 12)
    if clock is None or dates is None or months is None:
        return None
    day, weekday = dates
    return f"{clock} {day} {months} {weekday}"


def _clock(seconds: int, minutes: int, hours: int) -> str | None:
    minute = _steps(minutes, 0, 59)
    hour = _steps(hours, 0, 23) if _single(minutes) else _stretch(hours)
    if minute is None or hour is None:
        return None
    if seconds == 1:
        return f"{minute} {hour}"
    second = _steps(seconds, 0, 59)
    at_one_time = _single(seconds) and _single(minutes) and _single(hours)
    each_minute = minute == "*" and hour == "*"
    return f"{second} {minute} {hour}" if second is not None and (at_one_time or each_minute) else None


def _dates(rule: DateRule) -> tuple[str, str] | None:
    """The day-of-month and the day-of-week field; the library knows no AND, and no lists with ``L`` or ``#``."""
    any_day, any_weekday = rule.days == _ALL_DAYS, rule.weekdays == _ALL_WEEKDAYS
    if rule.either and (any_day or any_weekday):
        return "*", "*"
    day = "*" if any_day else _day(rule)
    weekday = "*" if any_weekday else _weekday(rule)
    if day is None or weekday is None:
        return None
    if "*" in (day, weekday):
        return day, weekday
    plain = not rule.last_day and not rule.last_weekdays and not any(rule.nth_weekdays)
    return (day, weekday) if rule.either and plain else None


def _day(rule: DateRule) -> str | None:
    if rule.last_day:
        return None if rule.days else "L"
    return _values(rule.days, 1, 31)


def _weekday(rule: DateRule) -> str | None:
    special = [(mask, f"#{nth}") for nth, mask in enumerate(rule.nth_weekdays, 1) if mask]
    special += [(rule.last_weekdays, "L")] if rule.last_weekdays else []
    if not special:
        text = _values(rule.weekdays, 0, 6)
        return text if text is None or "-" in text else _monday_first(rule.weekdays)
    mask, suffix = special[0]
    return f"{mask.bit_length() - 1}{suffix}" if len(special) == 1 and _single(mask) and not rule.weekdays else None


def _monday_first(weekdays: int) -> str:
    return ",".join(str(day) for day in (1, 2, 3, 4, 5, 6, 0) if weekdays >> day & 1)


def _single(mask: int) -> bool:
    return mask.bit_count() == 1


def _stretch(hours: int) -> str | None:
    """As ``9-17``: "between 09:00 and 17:59" is all that the library can rightly say of several minutes' hours."""
    values = [hour for hour in range(24) if hours >> hour & 1]
    if len(values) == 24:
        return "*"
    return f"{values[0]}-{values[-1]}" if values[-1] - values[0] == len(values) - 1 else None


def _steps(mask: int, first: int, last: int) -> str | None:
    """As ``*/5`` where it comes round evenly, which "every 5 minutes" promises."""
    size = last - first + 1
    for step in range(2, size // 2 + 1):
        if size % step == 0 and mask == sum(1 << value for value in range(first, last + 1, step)):
            return f"*/{step}"
    return _values(mask, first, last)


def _values(mask: int, first: int, last: int) -> str | None:
    values = [value for value in range(first, last + 1) if mask >> value & 1]
    if len(values) == last - first + 1:
        return "*"
    if len(values) > 2 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]}-{values[-1]}"
    return ",".join(map(str, values)) if len(values) <= _LONGEST_LIST else None
