"""``tenure top``."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from tenure.cli.jobs import HEADERS, cells
from tenure.cli.output import moment, seconds, table
from tenure.cli.store import entered, jobs_argument, of_store
from tenure.cli.survey import Survey, survey
from tenure.errors import BackendError
from tenure.registry import hide_secrets

_MOST_ROWS = 200
_ACTIVE = ("job", "slot, UTC", "attempt", "holder", "started, UTC", "lease")


@click.command()
@jobs_argument
@click.option("--every", "period_s", type=click.FloatRange(0.2, 60), default=1.0, show_default=True, help="Seconds.")
@of_store
def top(names: tuple[str, ...], period_s: float, url: str | None, namespace: str, as_json: bool) -> None:
    """Watch the jobs and who holds which run; q or Ctrl-C ends it.

    Overdue jobs and those that run come first. A store that is away for a while is asked again. With --json there is a
    line each time, until Ctrl-C or until nobody reads.
    """
    if as_json:
        with suppress(KeyboardInterrupt):
            asyncio.run(_tell(names, period_s, url, namespace))
        return
    console = Console()
    if not console.is_terminal:
        raise click.UsageError("top without --json is for a terminal")
    with suppress(KeyboardInterrupt), _keys() as keys:
        asyncio.run(_watch(names, period_s, url, namespace, console, keys))


async def _watch(
    names: tuple[str, ...], period_s: float, url: str | None, namespace: str, console: Console, keys: int | None
) -> None:
    ended = asyncio.Event()
    if keys is not None:
        asyncio.get_running_loop().add_reader(keys, _typed, keys, ended)
    async with entered(url, namespace) as backend:
        title = f"{hide_secrets(url or '')}, namespace {namespace}"
        with Live(Text("…"), console=console, screen=True, auto_refresh=False) as live:
            while not ended.is_set():
                try:
                    shown = screen(await survey(backend, names), title, console.height)
                except BackendError as error:
                    shown = Text(f"{title}\n\n{error}", style="red")
                live.update(shown, refresh=True)
                with suppress(TimeoutError):
                    async with asyncio.timeout(period_s):
                        await ended.wait()


async def _tell(names: tuple[str, ...], period_s: float, url: str | None, namespace: str) -> None:
    async with entered(url, namespace) as backend:
        while True:
            found = await survey(backend, names)
            jobs = [{**asdict(line), "state": line.state} for line in found.jobs]
            runs = [asdict(run) for run in found.active]
            click.echo(json.dumps({"now_ms": found.now_ms, "jobs": jobs, "runs": runs}))
            await asyncio.sleep(period_s)


def screen(found: Survey, title: str, height: int) -> RenderableType:
    """All that is shown at one moment, as much as fits."""
    overdue = sum(1 for line in found.jobs if line.overdue_ms)
    head = f"{title}   {moment(found.now_ms // 1_000 * 1_000)} UTC   {len(found.jobs)} jobs, {overdue} overdue"
    held = [
        [
            run.job,
            moment(run.slot),
            str(run.attempt),
            run.holder,
            moment(run.started_at),
            seconds(run.lease_left_ms) if run.live else "lease over",
        ]
        for run in found.active
    ]
    rows = max(height - 12, 4)
    held = held[: min(rows // 2, _MOST_ROWS)]
    lines = sorted(found.jobs, key=lambda line: (line.gone, -line.overdue_ms, not line.holders, line.job))
    jobs = [cells(line, found.now_ms) for line in lines[: min(rows - len(held), _MOST_ROWS)]]
    more = len(lines) - len(jobs)
    rest = Text(f"… and {more} more jobs" if more else "")
    return Group(
        Text(head, style="bold"), table(HEADERS, jobs), rest, table(_ACTIVE, held), Text("q ends", style="dim")
    )


def _typed(keys: int, ended: asyncio.Event) -> None:
    typed = os.read(keys, 64)
    if not typed or b"q" in typed.lower():
        ended.set()


@contextmanager
def _keys() -> Iterator[int | None]:
    """The terminal's keys, one by one and unseen; None where that cannot be had."""
    try:
        import termios
        import tty

        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
    except (ImportError, OSError, ValueError, termios.error):
        yield None
        return
    try:
        tty.setcbreak(fd)
        yield fd
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
