"""Slots as people name them."""

import re
from datetime import UTC, datetime, timedelta, tzinfo

import click

from tenure.model import MAX_SLOT

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = re.compile(r"\d{11,15}", re.ASCII)


def slot_ms(text: str, zone: tzinfo = UTC, name: str = "SLOT") -> int:
    """The instant of an ISO time, in the zone unless it has an offset, or of milliseconds; UsageError for others."""
    if _DIGITS.fullmatch(text) and int(text) <= MAX_SLOT:
        return int(text)
    try:
        instant = datetime.fromisoformat(text)
        aware = instant if instant.tzinfo else instant.replace(tzinfo=zone)
        return (aware - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise click.UsageError(f"{name}: {text!r} is no instant; write 2026-12-01T12:00 or 2026-12-01T12:00Z") from None
