"""``tenure run``, ``next``, ``runs``, ``active``, ``migrate`` and ``demo``."""

import asyncio
import logging
import platform
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from zoneinfo import ZoneInfo

import click
from rich.console import Console

import tenure as library
from tenure.cli.group import FAILURE, OneLineErrors
from tenure.cli.load import LoadFailed, load_scheduler
from tenure.cli.output import iso, last_line, local, moment, print_json, print_table, seconds
from tenure.cli.web import web
from tenure.clock import SystemClock
from tenure.errors import BackendMisconfigured
from tenure.history import Row, read_rows
from tenure.host import StoppedEarly, StopSignals
from tenure.instance import new_instance_id
from tenure.model import ActiveRun, ActiveRuns
from tenure.protocol import LeaseBackend, Migrates, has_leases
from tenure.registry import connect, connect_existing, hide_secrets
from tenure.schedule import Cron, Fold, Gap, Schedule, cron, every, tz_data_version, zone_name
from tenure.scheduler import Scheduler
from tenure.words import MissingWords, describe

Answer = TypeVar("Answer")
Command = TypeVar("Command", bound=Callable[..., Any])

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEVELS = ("debug", "info", "warning", "error")


@click.group(cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(
    library.__version__,
    message=f"tenure %(version)s, Python {platform.python_version()}, time zone data {tz_data_version()}",
)
@click.pass_context
def tenure(ctx: click.Context) -> None:
    """Tenure, a distributed scheduler: run one, ask it for slots and runs, watch a failover."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


# run


@tenure.command()
@click.argument("target", metavar="MODULE:SCHEDULER")
@click.option("--log-level", type=click.Choice(_LEVELS, case_sensitive=False), default="info", show_default=True)
def run(target: str, log_level: str) -> None:
    """Run a scheduler until SIGTERM or Ctrl-C; a second one does not wait for running handlers.

    MODULE is imported from the current directory first. SCHEDULER is the name of a Scheduler in it, or of a function
    that gives one.
    """
    scheduler = _loaded(target, traceback_wanted=log_level == "debug")
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    with suppress(StoppedEarly), StopSignals(_stop_early):  # until the scheduler takes the signals to itself
        _announce(scheduler)
        scheduler.run()
    click.echo("stopped")


def _stop_early(_again: bool) -> NoReturn:
    raise StoppedEarly("stopped before it began")


def _loaded(target: str, *, traceback_wanted: bool) -> Scheduler:
    try:
        return load_scheduler(target)
    except LoadFailed as failed:
        if traceback_wanted and failed.__cause__:
            traceback.print_exception(failed.__cause__)
        raise


def _announce(scheduler: Scheduler) -> None:
    # It has an id only once it runs, and then this thread waits for its end: the id is chosen here.
    scheduler._instance_name = scheduler._instance_name or new_instance_id()
    click.echo(f"tenure {library.__version__}, time zone data {tz_data_version()}")
    click.echo(f"store    {scheduler.store}")
    click.echo(f"instance {scheduler._instance_name}\n")
    rows = [[job.name, _words(job.schedule), _next_slot(scheduler, job.name)] for job in scheduler.jobs]
    print_table(["job", "schedule", "next slot, UTC"], rows)
    click.echo()


def _next_slot(scheduler: Scheduler, job: str) -> str:
    slot = scheduler.next_slot(job)
    return "none" if slot is None else moment((slot - _EPOCH) // timedelta(milliseconds=1))


# next


@tenure.command("next")
@click.argument("expression", metavar="EXPR")
@click.option("--tz", default="UTC", help="The IANA zone the expression is read in.", show_default=True)
@click.option("-n", "--count", type=click.IntRange(1, 1_000), default=5, show_default=True, help="How many slots.")
@click.option(
    "--after", metavar="ISO", help="Slots after this instant, in --tz unless it has an offset; now if not given."
)
@click.option("--gap", type=click.Choice(["shift", "skip"]), help="A time that a clock change leaves out; shift.")
@click.option("--fold", type=click.Choice(["first", "both"]), help="A time that a clock change brings twice; first.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def next_(
    expression: str, tz: str, count: int, after: str | None, gap: Gap | None, fold: Fold | None, as_json: bool
) -> None:
    """The next slots of EXPR: a cron expression ("0 9 * * mon-fri"), or a period ("10s")."""
    zone = cron("* * * * *", tz=tz).tz
    schedule = _schedule(expression, zone, gap, fold)
    slots = _slots(schedule, SystemClock().wall_ms() if after is None else _after_ms(after, zone), count)
    if as_json:
        _print_slots_json(schedule, zone, slots)
        return
    click.echo(_words(schedule))
    if slots:
        zones = {zone_name(zone): zone, "UTC": UTC}  # one column if they are the same
        print_table(list(zones), [[_slot_text(slot, tz) for tz in zones.values()] for slot in slots])
    if len(slots) < count:
        click.echo("no more slots" if slots else "no slots after this")


def _schedule(expression: str, zone: ZoneInfo | timezone, gap: Gap | None, fold: Fold | None) -> Schedule:
    if " " in expression.strip() or expression.startswith("@"):
        return cron(expression, tz=zone, gap=gap or "shift", fold=fold or "first")
    if gap or fold:
        raise click.UsageError(f"--gap and --fold are for cron expressions; {expression!r} is a period of real time")
    try:
        return every(expression)
    except library.InvalidDuration:
        raise click.UsageError(
            f"{expression!r} is neither a cron expression (five or six fields in quotes, or @daily) "
            'nor a period ("10s", "1h30m", at least 1ms)'
        ) from None


def _after_ms(text: str, zone: ZoneInfo | timezone) -> int:
    try:
        after = datetime.fromisoformat(text)
        aware = after if after.tzinfo else after.replace(tzinfo=zone)
        return (aware - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"--after: {text!r} is no instant; write 2026-12-01T12:00 or 2026-12-01T12:00Z"
        ) from None


def _slots(schedule: Schedule, after_ms: int, count: int) -> list[int]:
    slots: list[int] = []
    while len(slots) < count and (slot := schedule.next_slot(slots[-1] if slots else after_ms)) is not None:
        slots.append(slot)
    return slots


def _print_slots_json(schedule: Schedule, zone: ZoneInfo | timezone, slots: list[int]) -> None:
    print_json(
        {
            "schedule": str(schedule),
            "words": _words(schedule),
            "tz": zone_name(zone),
            "tz_data": tz_data_version() if isinstance(schedule, Cron) else None,
            "slots": [{"slot": slot, "utc": iso(slot), "local": iso(slot, zone)} for slot in slots],
        }
    )


def _slot_text(slot: int, zone: tzinfo) -> str:
    return f"{local(slot, zone):%a} {moment(slot, zone)}"


def _words(schedule: Schedule) -> str:
    try:
        return describe(schedule)
    except MissingWords:
        return str(schedule)


# runs and active


def _of_store(command: Command) -> Command:
    """The options of commands that read a store."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="For programs; times are milliseconds since the epoch."),
        click.option("--namespace", default="tenure", show_default=True, help="The namespace of the jobs."),
        click.option("--url", envvar="TENURE_URL", help="The store; TENURE_URL if not given.", metavar="URL"),
    ):
        command = option(command)
    return command


@tenure.command()
@click.argument("job")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, help="How many rows.")
@_of_store
def runs(job: str, limit: int, url: str | None, namespace: str, as_json: bool) -> None:
    """The history of JOB, the newest first: one row per attempt, and why a slot was not run.

    An attempt that nobody recorded, since its holder and its successor died, is shown as crashed.
    """

    async def read(backend: LeaseBackend) -> list[Row]:
        active = await backend.active([job])
        return read_rows(await backend.results(job, limit=limit), active.runs, limit)

    rows = _read(url, namespace, read)
    if as_json:
        print_json({"job": job, "runs": [{**asdict(row), "duration_ms": row.duration_ms} for row in rows]})
    elif rows:
        headers = ["slot, UTC", "attempt", "status", "fence", "instance", "started, UTC", "duration", "error"]
        print_table(headers, list(map(_run_cells, rows)))
    else:
        click.echo(f"{job!r} has no runs in namespace {namespace!r} of {hide_secrets(url or '')}")


def _run_cells(row: Row) -> list[str]:
    return [
        moment(row.slot),
        str(row.attempt or ""),
        row.status,
        str(row.fence or ""),
        row.instance or "",
        moment(row.started_at) if row.started_at is not None else "",
        seconds(row.duration_ms),
        last_line(row.error),
    ]


@tenure.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@_of_store
def active(jobs: tuple[str, ...], url: str | None, namespace: str, as_json: bool) -> None:
    """The unfinished runs of the JOBs: who holds them, and for how long still."""

    async def read(backend: LeaseBackend) -> ActiveRuns:
        return await backend.active(jobs)

    found = _read(url, namespace, read)
    if as_json:
        print_json({"now_ms": found.now_ms, "runs": [asdict(run) for run in found.runs]})
    elif found.runs:
        headers = ["job", "slot, UTC", "attempt", "fence", "holder", "started, UTC", "lease", "left"]
        print_table(headers, list(map(_active_cells, found.runs)))
    else:
        click.echo(f"no unfinished runs in namespace {namespace!r} of {hide_secrets(url or '')}")


def _active_cells(run: ActiveRun) -> list[str]:
    return [
        run.job,
        moment(run.slot),
        str(run.attempt),
        str(run.fence),
        run.holder,
        moment(run.started_at),
        "live" if run.live else "lease over",
        seconds(run.lease_left_ms) if run.live else "",
    ]


def _read(url: str | None, namespace: str, read: Callable[[LeaseBackend], Coroutine[Any, Any, Answer]]) -> Answer:
    async def main() -> Answer:
        async with _entered(url, namespace) as backend:
            return await read(backend)

    return asyncio.run(main())


@asynccontextmanager
async def _entered(url: str | None, namespace: str) -> AsyncIterator[LeaseBackend]:
    if not url:
        raise click.UsageError("which store? give --url, or set TENURE_URL, as in sqlite:///jobs.db")
    backend = connect_existing(url, namespace=namespace)
    if not has_leases(backend):
        raise BackendMisconfigured(f"{hide_secrets(url)} keeps no history and no leases that could be read")
    async with backend as entered:
        assert isinstance(entered, LeaseBackend)
        if not entered.capabilities.shared:
            raise BackendMisconfigured(f"{hide_secrets(url)} is not shared between processes: only its own can read it")
        yield entered


# migrate


@tenure.command()
@click.argument("url", envvar="TENURE_URL")
@click.option("--sql", is_flag=True, help="Print what makes the schema in a store that has none, and change nothing.")
def migrate(url: str, sql: bool) -> None:
    """Make the schema in the store at URL, or bring it up to date; TENURE_URL if URL is not given.

    For a role that may, so that the one that runs the jobs need not. Instances that still run go on.
    """
    backend = connect(url)
    if not isinstance(backend, Migrates):
        raise click.ClickException(f"{hide_secrets(url)} has no schema to migrate; what it needs is made on entering")
    if sql:
        click.echo(backend.migration_sql())
        return
    done = asyncio.run(backend.migrate())
    click.echo("\n".join(f"done: {name}" for name in done) or "the schema is up to date")


# demo


@tenure.command()
@click.option(
    "--record", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Keep the last picture, as SVG."
)
@click.option("--backend", metavar="URL", help="A store to play on, instead of a SQLite file of the demo's own.")
def demo(record: Path | None, backend: str | None) -> None:
    """Watch a failover: three processes, one killed, one frozen, one stopped; each slot ends once.

    It takes about twenty seconds. The exit code is 1 if a slot ended twice, or was lost. In a store of yours it uses a
    namespace of its own, tenure-demo-…, in which one job is left.
    """
    connect(backend or "sqlite:///demo.db")  # is it installed? nothing is opened
    from tenure.demo.place import store_at
    from tenure.demo.play import play, playable

    if not playable():
        raise click.ClickException("the demo needs SIGKILL, SIGSTOP and SIGCONT; run it on Linux or macOS, or in WSL")
    if not play(Console(), place=store_at(backend) if backend else None, record=record):
        raise click.exceptions.Exit(FAILURE)


tenure.add_command(web)
