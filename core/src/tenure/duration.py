"""Durations as people write them: ``"10s"``, ``"1h30m"``, ``"500ms"`` or a timedelta."""

import re
from datetime import timedelta
from functools import lru_cache

from tenure.errors import InvalidDuration

Duration = str | timedelta

_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = r"(?:(\d{{1,15}}(?:\.\d{{1,6}})?){unit})?"
_WHOLE = re.compile("".join(_PART.format(unit=unit) for unit in _UNITS_MS), re.ASCII)
_LONGEST_MS = 253_402_300_799_999  # the last slot: no duration can be longer than time itself


def to_ms(value: Duration, name: str, *, minimum_ms: int = 0) -> int:
    """Milliseconds of a duration; ``name`` is what the user called it.

    Raises InvalidDuration for a bare number, a text that is no duration, a part of a millisecond, and for less than
    ``minimum_ms``.
    """
    if isinstance(value, str):
        ms = _text_to_ms(value)
        if ms is None:
            raise InvalidDuration(
                f'{name}: {value!r} is not a duration; write units from large to small, as in "10s", "1h30m" or "500ms"'
            )
    elif isinstance(value, timedelta):
        ms, rest = divmod(value, timedelta(milliseconds=1))
        if rest:
            raise InvalidDuration(f"{name}: {value!r} has a part of a millisecond; round it to milliseconds")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        raise InvalidDuration(
            f'{name}: {value!r} has no unit; write "{value:g}s" or timedelta(seconds={value:g}) if you mean seconds'
        )
    else:
        raise InvalidDuration(f'{name}: {value!r} is not a duration; write "10s" or timedelta(seconds=10)')
    if ms < minimum_ms:
        raise InvalidDuration(f"{name}: {to_text(ms)} is too short; it must be at least {to_text(minimum_ms)}")
    if ms > _LONGEST_MS:
        raise InvalidDuration(f"{name}: {value!r} is longer than 8,000 years; write a shorter duration")
    return ms


@lru_cache(maxsize=512)
def _text_to_ms(text: str) -> int | None:
    match = _WHOLE.fullmatch(text.strip()) if len(text) <= 100 else None
    if match is None or not any(match.groups()):
        return None
    total = 0
    for number, unit_ms in zip(match.groups(), _UNITS_MS.values(), strict=True):
        if number is None:
            continue
        whole, _, fraction = number.partition(".")
        part, rest = divmod(int(fraction or 0) * unit_ms, 10 ** len(fraction))
        if rest:
            return None  # a part of a millisecond
        total += int(whole) * unit_ms + part
    return total


def to_text(ms: int) -> str:
    """The shortest spelling that ``to_ms`` reads back: 5400000 is ``"1h30m"``."""
    if ms < 0:
        return f"-{to_text(-ms)}"
    parts = []
    for unit, unit_ms in _UNITS_MS.items():
        count, ms = divmod(ms, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
