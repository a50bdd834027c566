"""``tenure runs`` and ``tenure active``."""

from dataclasses import asdict

import click

from tenure.cli.output import last_line, moment, print_json, print_table, seconds
from tenure.cli.store import of_store, read_store
from tenure.history import Row, read_rows
from tenure.model import ActiveRun, ActiveRuns
from tenure.protocol import LeaseBackend
from tenure.registry import hide_secrets


@click.command()
@click.argument("job")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, help="How many rows.")
@of_store
def runs(job: str, limit: int, url: str | None, namespace: str, as_json: bool) -> None:
    """The history of JOB, the newest first: one row per attempt, and why a slot was not run.

    An attempt that nobody recorded, since its holder and its successor died, is shown as crashed.
    """

    async def read(backend: LeaseBackend) -> list[Row]:
        active = await backend.active([job])
        return read_rows(await backend.results(job, limit=limit), active.runs, limit)

    rows = read_store(url, namespace, read)
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


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@of_store
def active(jobs: tuple[str, ...], url: str | None, namespace: str, as_json: bool) -> None:
    """The unfinished runs of the JOBs: who holds them, and for how long still."""

    async def read(backend: LeaseBackend) -> ActiveRuns:
        return await backend.active(jobs)

    found = read_store(url, namespace, read)
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
