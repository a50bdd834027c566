"""``tenure jobs``."""

from dataclasses import asdict

import click

from tenure.cli.group import FAILURE
from tenure.cli.output import ago, moment, print_json, print_table
from tenure.cli.store import jobs_argument, of_store, place, read_store, refuse_unknown
from tenure.cli.survey import JobLine, Survey, survey
from tenure.protocol import LeaseBackend

HEADERS = ("job", "state", "schedule", "next slot, UTC", "last slot, UTC", "ended as", "last success", "overdue for")


@click.command()
@jobs_argument
@click.option("--overdue", "only_overdue", is_flag=True, help="Only those that are; exit code 1 if there is any.")
@of_store
def jobs(names: tuple[str, ...], only_overdue: bool, url: str | None, namespace: str, as_json: bool) -> None:
    """The jobs of a namespace: when each is due next, when it last succeeded, and whether it is overdue.

    They are those that instances have told the store of in the last thirty days; a store that keeps no job cards wants
    their names.
    """

    async def read(backend: LeaseBackend) -> Survey:
        await refuse_unknown(backend, names, place(url, namespace))
        return await survey(backend, names)

    found = read_store(url, namespace, read)
    shown = [line for line in found.jobs if line.overdue_ms or not only_overdue]
    if as_json:
        print_json({"now_ms": found.now_ms, "jobs": [{**asdict(line), "state": line.state} for line in shown]})
    elif shown:
        print_table(HEADERS, [cells(line, found.now_ms) for line in shown])
    else:
        what = "no job is overdue" if found.jobs else "no instance has told of a job"
        click.echo(f"{what} in {place(url, namespace)}")
    if only_overdue and shown:
        raise click.exceptions.Exit(FAILURE)


def cells(line: JobLine, now_ms: int) -> list[str]:
    """A row of the table."""
    seen = f", seen {ago(now_ms - line.seen_at_ms)} ago" if line.gone and line.seen_at_ms is not None else ""
    return [
        line.job,
        line.state + seen,
        line.schedule or "",
        "" if line.next_slot is None else moment(line.next_slot),
        "" if line.last_slot is None else moment(line.last_slot),
        line.last_status or "",
        "" if line.success_at_ms is None else f"{ago(now_ms - line.success_at_ms)} ago",
        ago(line.overdue_ms) if line.overdue_ms else "",
    ]
