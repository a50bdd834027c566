"""How commands print: tables for people, plain columns where nobody looks, JSON for programs."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import zip_longest

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tenure.duration import to_text
from tenure.schedule import Schedule
from tenure.words import MissingWords, describe

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STYLES = {
    "success": "green",
    "overdue": "bold red",
    "missed": "red",
    "ok": "green",
    "warning": "yellow",
    "wrong": "red",
    "failed": "red",
    "crashed": "red",
    "exhausted": "red",
    "interrupted": "yellow",
    "lease over": "yellow",
    "running": "cyan",
    "live": "cyan",
}


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal; columns that nothing wraps or cuts where the output goes to a file or a program."""
    console = Console()
    if console.is_terminal:
        console.print(table(headers, rows))
    else:
        _print_columns([headers, *rows])


def print_json(value: object) -> None:
    """JSON, indented."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def moment(ms: int, tz: tzinfo = UTC) -> str:
    """An instant by the clocks of a zone, with milliseconds only where there are some."""
    return _isoformat(ms, tz, " ").removesuffix("+00:00")


def iso(ms: int, tz: tzinfo = UTC) -> str:
    """The same for programs."""
    return _isoformat(ms, tz, "T").replace("+00:00", "Z")


def local(ms: int, tz: tzinfo) -> datetime:
    """An instant in a zone; the last hours of the year 9999, which some zones cannot tell, stay in UTC."""
    instant = _EPOCH + timedelta(milliseconds=ms)
    try:
        return instant.astimezone(tz)
    except OverflowError:
        return instant


def seconds(ms: int | None) -> str:
    """A length of time, to the millisecond below a minute."""
    if ms is None:
        return ""
    return f"{ms / 1_000:.3f} s" if ms < 60_000 else str(timedelta(seconds=ms // 1_000))


def in_words(schedule: Schedule) -> str:
    """The schedule for people, or as it is written where the library for that is missing."""
    try:
        return describe(schedule)
    except MissingWords:
        return str(schedule)


def last_line(text: str | None) -> str:
    """An error's last line; what a terminal would obey is replaced."""
    lines = (text or "").strip().splitlines()
    return printable(lines[-1]) if lines else ""


def printable(text: str) -> str:
    """The text without what a terminal would obey; its lines stay lines."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


def ago(ms: int) -> str:
    """How long ago, or for how long, to the second below an hour and to the minute above."""
    whole = 1_000 if ms < 3_600_000 else 60_000
    return to_text(max(ms, 0) // whole * whole)


def _isoformat(ms: int, tz: tzinfo, separator: str) -> str:
    return local(ms, tz).isoformat(separator, "milliseconds" if ms % 1_000 else "seconds")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """For a terminal."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        made.add_column(header, overflow="fold", no_wrap=header.endswith(", UTC"))  # other columns give way to times
    for row in rows:
        made.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    return made


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
