"""``tenure runs`` and ``tenure active``."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

import click

from tenure.cli.output import last_line, moment, print_json, print_table, seconds
from tenure.cli.store import jobs_argument, jobs_of, of_store, place, read_store, refuse_unknown
from tenure.history import Row, read_rows
from tenure.model import ActiveRun, ActiveRuns
from tenure.protocol import LeaseBackend

_AT_ONCE = 16


@click.command()
@jobs_argument
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, help="How many rows.")
@of_store
def runs(names: tuple[str, ...], limit: int, url: str | None, namespace: str, as_json: bool) -> None:
    """The history of the JOBs, or of all jobs that instances have told of: one row per attempt, the newest first.

    A slot that was not run has a row that says why. An attempt that nobody recorded, since its holder and its successor
    died, is shown as crashed.
    """

    async def read(backend: LeaseBackend) -> list[tuple[str, Row]]:
        await refuse_unknown(backend, names, place(url, namespace))
        return await _rows(backend, await jobs_of(backend, names), limit)

    rows = read_store(url, namespace, read)
    if as_json:
        _print_json(names, rows)
    elif rows:
        several = len(names) != 1
        headers = ["slot, UTC", "attempt", "status", "fence", "instance", "started, UTC", "duration", "error"]
        print_table(["job"] * several + headers, [[job] * several + _run_cells(row) for job, row in rows])
    else:
        which = repr(names[0]) + " has" if len(names) == 1 else "the jobs have"
        click.echo(f"{which} no runs in {place(url, namespace)}")


async def _rows(backend: LeaseBackend, names: Sequence[str], limit: int) -> list[tuple[str, Row]]:
    active = await backend.active(names)
    turns = asyncio.Semaphore(_AT_ONCE)

    async def of(name: str) -> list[tuple[str, Row]]:
        async with turns:
            results = await backend.results(name, limit=limit)
        return [(name, row) for row in read_rows(results, [run for run in active.runs if run.job == name], limit)]

    rows = [row for part in await asyncio.gather(*map(of, names)) for row in part]
    return sorted(rows, key=lambda row: (row[1].slot, row[0], row[1].attempt), reverse=True)[:limit]


def _print_json(jobs: Sequence[str], rows: Sequence[tuple[str, Row]]) -> None:
    """Of one job that was named, the job once; of several, in each run."""
    told = [(job, {**asdict(row), "duration_ms": row.duration_ms}) for job, row in rows]
    if len(jobs) == 1:
        print_json({"job": jobs[0], "runs": [row for _, row in told]})
    else:
        print_json({"runs": [{"job": job, **row} for job, row in told]})


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
@jobs_argument
@of_store
def active(names: tuple[str, ...], url: str | None, namespace: str, as_json: bool) -> None:
    """The unfinished runs of the JOBs, or of all that instances have told of: who holds them, for how long still."""

    async def read(backend: LeaseBackend) -> ActiveRuns:
        await refuse_unknown(backend, names, place(url, namespace))
        return await backend.active(await jobs_of(backend, names))

    found = read_store(url, namespace, read)
    if as_json:
        print_json({"now_ms": found.now_ms, "runs": [asdict(run) for run in found.runs]})
    elif found.runs:
        headers = ["job", "slot, UTC", "attempt", "fence", "holder", "started, UTC", "lease", "left"]
        print_table(headers, list(map(_active_cells, found.runs)))
    else:
        click.echo(f"no unfinished runs in {place(url, namespace)}")


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
