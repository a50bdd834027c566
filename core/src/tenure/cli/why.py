"""``tenure why``."""

from dataclasses import asdict

import click

from tenure.cli.moments import slot_ms
from tenure.cli.output import iso, moment, print_json, print_table, printable
from tenure.cli.store import cards_of, of_store, read_store, suggestion
from tenure.history import read_rows
from tenure.protocol import LeaseBackend
from tenure.registry import hide_secrets
from tenure.schedule import Zone, cron, zone_name
from tenure.story import Known, Story, newest, tell

_RECORDS = 1_000
_LINES_OF_AN_ERROR = 40


@click.command()
@click.argument("job")
@click.argument("slot", metavar="SLOT", default="last")
@click.option("--tz", default="UTC", show_default=True, help="The IANA zone of SLOT, and of the times that are shown.")
@of_store
def why(job: str, slot: str, tz: str, url: str | None, namespace: str, as_json: bool) -> None:
    """The story of one slot of JOB: who claimed it, what became of it and why, and what to do about it.

    SLOT is an ISO time (2026-12-01T02:00), milliseconds since the epoch, "last" for the newest slot of which anything
    is known, which is the default, or "bad" for the newest one that did not end in success.
    """
    zone = cron("* * * * *", tz=tz).tz
    named = None if slot in ("last", "bad") else slot_ms(slot, zone)

    async def read(backend: LeaseBackend) -> tuple[Known, str]:
        active = await backend.active([job])
        rows = read_rows(await backend.results(job, limit=_RECORDS), active.runs, _RECORDS)
        cards = {card.job: card for card in await cards_of(backend)}
        known = Known(job=job, now_ms=active.now_ms, rows=rows, active=active.runs, card=cards.get(job))
        return known, suggestion(job, cards)

    known, hint = read_store(url, namespace, read)
    if not known.rows and known.card is None:
        where = f"namespace {namespace!r} of {hide_secrets(url or '')}"
        raise click.ClickException(f"nothing is known of a job {job!r} in {where}{hint}")
    wanted = newest(known, trouble=slot == "bad") if named is None else named
    if wanted is None:
        click.echo("null" if as_json else f"{job}: no {'trouble' if slot == 'bad' else 'slot'} is on record")
        return
    story = tell(known, wanted)
    if as_json:
        print_json({**asdict(story), "utc": iso(wanted), "attempts": [asdict(row) for row in known.of(wanted)]})
    else:
        _show(story, known, zone)


def _show(story: Story, known: Known, zone: Zone) -> None:
    of = f", {known.card.words}" if known.card is not None else ""
    click.echo(f"{story.job}, slot {moment(story.slot, zone)}{of}: {story.status}")
    rows = [["" if line.at_ms is None else moment(line.at_ms, zone), line.text] for line in story.lines]
    print_table([f"time, {zone_name(zone)}", "what happened"], rows)
    for line in story.lines:
        if line.error:
            click.echo("\n" + "\n".join(printable(line.error).splitlines()[-_LINES_OF_AN_ERROR:]))
    click.echo(f"\nwhat to do: {story.advice}")
