"""``tenure next``."""

from datetime import UTC, datetime, timezone, tzinfo
from zoneinfo import ZoneInfo

import click

import tenure as library
from tenure.cli.moments import slot_ms
from tenure.cli.output import in_words, iso, local, moment, print_json, print_table
from tenure.clock import SystemClock
from tenure.schedule import Cron, Fold, Gap, Schedule, cron, every, tz_data_version, zone_name

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@click.command("next")
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
    slots = _slots(schedule, SystemClock().wall_ms() if after is None else slot_ms(after, zone, "--after"), count)
    if as_json:
        _print_slots_json(schedule, zone, slots)
        return
    click.echo(in_words(schedule))
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


def _slots(schedule: Schedule, after_ms: int, count: int) -> list[int]:
    slots: list[int] = []
    while len(slots) < count and (slot := schedule.next_slot(slots[-1] if slots else after_ms)) is not None:
        slots.append(slot)
    return slots


def _print_slots_json(schedule: Schedule, zone: ZoneInfo | timezone, slots: list[int]) -> None:
    print_json(
        {
            "schedule": str(schedule),
            "words": in_words(schedule),
            "tz": zone_name(zone),
            "tz_data": tz_data_version() if isinstance(schedule, Cron) else None,
            "slots": [{"slot": slot, "utc": iso(slot), "local": iso(slot, zone)} for slot in slots],
        }
    )


def _slot_text(slot: int, zone: tzinfo) -> str:
    return f"{local(slot, zone):%a} {moment(slot, zone)}"
