"""When a job is due: ``every``, ``cron``, ``at``, and any object of a user's own that can tell."""

import importlib
import inspect
import re
import zoneinfo
from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable
from zoneinfo import ZoneInfo

from tenure.cron import CronRule, parse
from tenure.duration import Duration, to_ms, to_text
from tenure.errors import InvalidInput, InvalidSchedule, closest
from tenure.model import MAX_SLOT

Gap = Literal["shift", "skip"]
Fold = Literal["first", "both"]
Zone = ZoneInfo | timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_CRON_TEXT = re.compile(r"(?P<expression>.+?) (?P<tz>[\w+/-]+)(?: gap=(?P<gap>\w+))?(?: fold=(?P<fold>\w+))?")
_OLDER_DATA = "if the name is right, this host's time zone data is too old: pip install tzdata, or update the system's"


@runtime_checkable
class Schedule(Protocol):
    """The instants a job is due, in milliseconds since the Unix epoch, the same on every instance."""

    def next_slot(self, after_ms: int) -> int | None:
        """The first slot strictly later than ``after_ms``, None if there is none."""

    def latest_slot(self, at_ms: int) -> int | None:
        """The last slot at or earlier than ``at_ms``, None if there is none."""


@dataclass(frozen=True, slots=True, repr=False)
class Every:
    """A fixed period of real time, aligned to ``anchor_ms``: before it, on it and after it."""

    period_ms: int
    anchor_ms: int = 0

    def __post_init__(self) -> None:
        if type(self.period_ms) is not int or self.period_ms < 1:
            raise InvalidSchedule(f"every: a period of {self.period_ms!r} ms; write a whole number from 1")

    def next_slot(self, after_ms: int) -> int | None:
        """See Schedule."""
        if after_ms < -1:
            after_ms = -1
        period_ms = self.period_ms
        slot = after_ms + period_ms - (after_ms - self.anchor_ms) % period_ms
        return slot if slot <= MAX_SLOT else None

    def latest_slot(self, at_ms: int) -> int | None:
        """See Schedule."""
        if at_ms > MAX_SLOT:
            at_ms = MAX_SLOT
        slot = at_ms - (at_ms - self.anchor_ms) % self.period_ms
        return slot if slot >= 0 else None

    def __repr__(self) -> str:
        anchored = f" from {_iso(self.anchor_ms)}" if self.anchor_ms else ""
        return f"every {to_text(self.period_ms)}{anchored}"


@dataclass(frozen=True, slots=True, repr=False)
class Cron:
    """A cron expression in a time zone; ``cron`` builds it from a zone's name."""

    expression: str
    tz: Zone = UTC
    gap: Gap = "shift"
    fold: Fold = "first"
    _rule: CronRule = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if self.gap not in ("shift", "skip"):
            raise InvalidSchedule(f'cron: gap={self.gap!r} is not a choice; write "shift" or "skip"')
        if self.fold not in ("first", "both"):
            raise InvalidSchedule(f'cron: fold={self.fold!r} is not a choice; write "first" or "both"')
        object.__setattr__(self, "tz", _zone(self.tz))
        fields = parse(self.expression)
        shift = self.gap == "shift" and not fields.real_time
        first = self.fold == "first" and not fields.real_time
        object.__setattr__(self, "_rule", CronRule(fields, self.tz, shift, first))

    def next_slot(self, after_ms: int) -> int | None:
        """See Schedule."""
        return self._rule.next_slot(after_ms)

    def latest_slot(self, at_ms: int) -> int | None:
        """See Schedule."""
        return self._rule.latest_slot(at_ms)

    def __repr__(self) -> str:
        gap = "" if self.gap == "shift" else f" gap={self.gap}"
        fold = "" if self.fold == "first" else f" fold={self.fold}"
        return f"cron {self.expression} {zone_name(self.tz)}{gap}{fold}"


@dataclass(frozen=True, slots=True, repr=False)
class At:
    """Single instants, in ascending order."""

    slots: tuple[int, ...]

    def next_slot(self, after_ms: int) -> int | None:
        """See Schedule."""
        index = bisect_right(self.slots, after_ms)
        return self.slots[index] if index < len(self.slots) else None

    def latest_slot(self, at_ms: int) -> int | None:
        """See Schedule."""
        index = bisect_right(self.slots, at_ms)
        return self.slots[index - 1] if index else None

    def __repr__(self) -> str:
        more = f" and {len(self.slots) - 3} more" if len(self.slots) > 3 else ""
        return f"at {', '.join(map(_iso, self.slots[:3]))}{more}"


def every(period: Duration, *, anchor: datetime | None = None) -> Every:
    """A slot each ``period``, aligned to the Unix epoch or to ``anchor``, never to the start of a process.

    An anchor must be the same on every instance: a fixed date, not ``now()``. Raises InvalidDuration and
    InvalidSchedule.
    """
    period_ms = to_ms(period, "every", minimum_ms=1)
    return Every(period_ms) if anchor is None else Every(period_ms, _instant_ms(anchor, "every: anchor"))


def cron(expression: str, *, tz: str | Zone = UTC, gap: Gap = "shift", fold: Fold = "first") -> Cron:
    """The instants at which the wall clock of ``tz`` fits the expression.

    A wall time that a change of the clocks leaves out is due at the first instant after the gap, or with
    ``gap="skip"`` not at all; one that comes twice is due the first time, or with ``fold="both"`` both times.
    A job whose minute or hour field starts with ``*``, and one with six fields, follows real time instead.
    Raises InvalidSchedule.
    """
    return Cron(expression, _zone(tz), gap, fold)


def at(*instants: datetime) -> At:
    """One slot for each of the aware datetimes, to the millisecond; raises InvalidSchedule."""
    if not instants:
        raise InvalidSchedule("at: no instant; name one or several aware datetimes")
    return At(tuple(sorted({_instant_ms(instant, "at") for instant in instants})))


def schedule_of(text: str) -> Schedule | None:
    """The schedule whose text (``str``) this is; None where the text says not enough, as of a user's own schedule."""
    kind, _, rest = text.partition(" ")
    try:
        match kind:
            case "every":
                period, _, anchor = rest.partition(" from ")
                return every(period, anchor=datetime.fromisoformat(anchor) if anchor else None)
            case "at":
                return at(*map(datetime.fromisoformat, rest.split(", ")))
            case "cron":
                return _cron_of(rest)
    except (ValueError, TypeError, InvalidInput):
        pass
    return None


def _cron_of(text: str) -> Schedule | None:
    match = _CRON_TEXT.fullmatch(text)
    if match is None:
        return None
    choices = {name: value for name, value in match.groupdict().items() if value}
    return cron(**choices)  # type: ignore[arg-type] # a choice that is none is refused there


def _instant_ms(instant: datetime, name: str) -> int:
    if not isinstance(instant, datetime):
        raise InvalidSchedule(f"{name}: {instant!r} is not a datetime; write datetime(2026, 1, 1, tzinfo=UTC)")
    if instant.utcoffset() is None:
        raise InvalidSchedule(f"{name}: {instant!r} has no time zone; add tzinfo=UTC or tzinfo=ZoneInfo(...)")
    ms = (instant - _EPOCH) // _MS
    if not 0 <= ms <= MAX_SLOT:
        raise InvalidSchedule(f"{name}: {instant!r} is not between the years 1970 and 9999; choose one that is")
    return ms


def _iso(ms: int) -> str:
    return (_EPOCH + ms * _MS).isoformat(timespec="milliseconds" if ms % 1000 else "seconds").replace("+00:00", "Z")


# Time zones


def zone_name(zone: Zone) -> str:
    """The name under which another instance finds the same zone."""
    return (zone.key or "") if isinstance(zone, ZoneInfo) else "UTC"


def _zone(tz: str | Zone) -> Zone:
    if tz is UTC or tz == "UTC":
        return UTC  # needs no time zone data, which a slim container may not have
    if isinstance(tz, ZoneInfo) and tz.key:
        return tz
    if not isinstance(tz, str):
        raise InvalidSchedule(
            f'cron: tz={tz!r} has no name that each instance knows; write an IANA name as in tz="Europe/Prague"'
        )
    if "local" in tz.lower():
        raise InvalidSchedule(
            f"cron: tz={tz!r} is another zone on another host, so instances would disagree; "
            'name the one you mean, as in tz="Europe/Prague"'
        )
    try:
        return ZoneInfo(tz)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidSchedule(f"cron: no time zone {tz[:60]!r} here; {_zone_remedy(tz[:60])}") from None


def _zone_remedy(tz: str) -> str:
    known = sorted(zoneinfo.available_timezones())
    if not known:
        return "this host has no time zone data: pip install tzdata"
    by_spelling = {name.lower().split("/")[-1]: name for name in known} | {name.lower(): name for name in known}
    close = closest(tz.lower().replace(" ", "_"), by_spelling, likeness=0.7)
    if close:
        return f"if you mean {by_spelling[close]!r}, write that; {_OLDER_DATA}"
    return f'write an IANA name as in "Europe/Prague"; {_OLDER_DATA}'


def tz_data_version() -> str:
    """The release of the time zone data in use, as in "2026a"; "unknown" if the system does not say.

    Instances with different releases may compute different slots for one job.
    """
    for directory in map(Path, zoneinfo.TZPATH):
        if (directory / "Europe" / "London").is_file():
            return _system_version(directory)
    try:
        return str(importlib.import_module("tzdata").IANA_VERSION)
    except (ImportError, AttributeError):
        return "unknown"


def _system_version(directory: Path) -> str:
    for name, prefix in (("+VERSION", ""), ("tzdata.zi", "# version ")):
        try:
            with (directory / name).open(encoding="utf-8") as lines:
                line = lines.readline(100).strip()
        except (OSError, UnicodeDecodeError):
            continue
        if line.startswith(prefix) and line != prefix:
            return line.removeprefix(prefix)
    return "unknown"


# Schedules of a user's own


def check_schedule(schedule: object, job: str) -> None:
    """Raises InvalidSchedule unless the object can be asked for slots."""
    if isinstance(schedule, str | timedelta | int | float):
        raise InvalidSchedule(f'job {job!r}: {schedule!r} is not a schedule; write every("10s") or cron("0 9 * * *")')
    if isinstance(schedule, type):
        raise InvalidSchedule(f"job {job!r}: {schedule!r} is a class; pass an object of it")
    for name in ("next_slot", "latest_slot"):
        method = getattr(schedule, name, None)
        if not callable(method):
            raise InvalidSchedule(f"job {job!r}: {schedule!r} has no method {name}(ms) -> int | None; add it")
        if inspect.iscoroutinefunction(method):
            raise InvalidSchedule(f"job {job!r}: {schedule!r}.{name} is async; make it a plain function")


def next_slot_of(schedule: Schedule, after_ms: int) -> int | None:
    """The schedule's next slot; raises InvalidSchedule for an answer that breaks the protocol."""
    slot = schedule.next_slot(after_ms)
    if slot is not None and _checked(slot, schedule, "next_slot", after_ms) <= after_ms:
        raise InvalidSchedule(f"{schedule!r}.next_slot({after_ms}) gave {slot}, which is not later; it must be")
    return slot


def latest_slot_of(schedule: Schedule, at_ms: int) -> int | None:
    """The schedule's latest slot; raises InvalidSchedule for an answer that breaks the protocol."""
    slot = schedule.latest_slot(at_ms)
    if slot is not None and _checked(slot, schedule, "latest_slot", at_ms) > at_ms:
        raise InvalidSchedule(f"{schedule!r}.latest_slot({at_ms}) gave {slot}, which is later; it must not be")
    return slot


def _checked(slot: object, schedule: Schedule, method: str, argument_ms: int) -> int:
    if not isinstance(slot, int) or isinstance(slot, bool):
        raise InvalidSchedule(
            f"{schedule!r}.{method}({argument_ms}) gave {slot!r}; it must give an int, milliseconds since the epoch"
        )
    if not 0 <= slot <= MAX_SLOT:
        raise InvalidSchedule(f"{schedule!r}.{method}({argument_ms}) gave {slot}; a slot is 0 to {MAX_SLOT}")
    return slot
