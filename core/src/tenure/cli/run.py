"""``tenure run``."""

import logging
import traceback
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NoReturn

import click

import tenure as library
from tenure.cli.load import LoadFailed, load_scheduler
from tenure.cli.output import in_words, moment, print_table
from tenure.host import StoppedEarly, StopSignals
from tenure.instance import new_instance_id
from tenure.schedule import tz_data_version
from tenure.scheduler import Scheduler

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEVELS = ("debug", "info", "warning", "error")


class _Ended(BaseException):
    """A signal came before the scheduler ran; no `except Exception` of a library is to swallow it."""


@click.command()
@click.argument("target", metavar="MODULE:SCHEDULER")
@click.option("--log-level", type=click.Choice(_LEVELS, case_sensitive=False), default="info", show_default=True)
def run(target: str, log_level: str) -> None:
    """Run a scheduler until SIGTERM or Ctrl-C; a second one does not wait for running handlers.

    MODULE is imported from the current directory first. SCHEDULER is the name of a Scheduler in it, or of a function
    that gives one.
    """
    scheduler = _loaded(target, traceback_wanted=log_level == "debug")
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    with suppress(_Ended, StoppedEarly), StopSignals(_stop_early):  # until the scheduler takes the signals to itself
        _announce(scheduler)
        scheduler.run()
    click.echo("stopped")


def _stop_early(_again: bool) -> NoReturn:
    raise _Ended


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
    rows = [[job.name, in_words(job.schedule), _next_slot(scheduler, job.name)] for job in scheduler.jobs]
    print_table(["job", "schedule", "next slot, UTC"], rows)
    click.echo()


def _next_slot(scheduler: Scheduler, job: str) -> str:
    slot = scheduler.next_slot(job)
    return "none" if slot is None else moment((slot - _EPOCH) // timedelta(milliseconds=1))
