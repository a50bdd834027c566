"""``tenure why``."""

from dataclasses import asdict

import click

from tenure.cli.moments import slot_ms
from tenure.cli.output import iso, moment, print_json, print_table, printable
from tenure.cli.store import cards_of, check_names, of_store, place, read_store, unknown
from tenure.history import read_rows
from tenure.outlook import is_gone
from tenure.protocol import LeaseBackend
from tenure.schedule import Zone, cron, zone_name
from tenure.story import NOTHING_TO_DO, Known, Story, newest_trouble, tell, tell_last

_RECORDS = 1_000
_LINES_OF_AN_ERROR = 40


@click.command()
@click.argument("job", callback=check_names)
@click.argument("slot", metavar="[SLOT]", default="last")
@click.option("--tz", default="UTC", show_default=True, help="The IANA zone of SLOT, and of the times that are shown.")
@of_store
def why(job: str, slot: str, tz: str, url: str | None, namespace: str, as_json: bool) -> None:
    """The story of one slot of JOB: who claimed it, what became of it and why, and what to do about it.

    SLOT is an ISO time (2026-12-01T02:00), milliseconds since the epoch, "last" for the newest slot of which anything
    is known, which is the default, or "bad" for the newest one that did not end in success, or should have run and was
    not. Of a job that is overdue, "last" tells of the slots since too.
    """
    zone = cron("* * * * *", tz=tz).tz
    named = None if slot in ("last", "bad") else slot_ms(slot, zone)

    async def read(backend: LeaseBackend) -> Known:
        active = await backend.active([job])
        rows = read_rows(await backend.results(job, limit=_RECORDS), active.runs, _RECORDS)
        cards = {card.job: card for card in await cards_of(backend)}
        card = cards.get(job)
        gone = card is not None and is_gone(card, max(each.seen_at_ms for each in cards.values()))
        if not rows and card is None:
            raise unknown(job, cards, place(url, namespace))
        return Known(job=job, now_ms=active.now_ms, rows=rows, active=active.runs, card=card, gone=gone)

    known = read_store(url, namespace, read)
    story = _story(known, slot, named)
    if story is None:
        click.echo("null" if as_json else f"{job}: no {'trouble' if slot == 'bad' else 'slot'} is on record")
    elif as_json:
        attempts = [asdict(row) for row in known.of(story.slot)]
        print_json({**asdict(story), "utc": iso(story.slot), "attempts": attempts})
    else:
        _show(story, known, zone)


def _story(known: Known, slot: str, named: int | None) -> Story | None:
    if slot == "last":
        return tell_last(known)
    wanted = newest_trouble(known) if named is None else named
    return None if wanted is None else tell(known, wanted)


def _show(story: Story, known: Known, zone: Zone) -> None:
    of = f", {known.card.words}" if known.card is not None else ""
    click.echo(f"{story.job}, slot {moment(story.slot, zone)}{of}: {story.status}")
    rows = [["" if line.at_ms is None else moment(line.at_ms, zone), line.text] for line in story.lines]
    print_table([f"time, {zone_name(zone)}", "what happened"], rows)
    for line in story.lines:
        if line.error:
            click.echo("\n" + "\n".join(printable(line.error).splitlines()[-_LINES_OF_AN_ERROR:]))
    click.echo(f"\n{story.advice}" if story.advice == NOTHING_TO_DO else f"\nwhat to do: {story.advice}")
