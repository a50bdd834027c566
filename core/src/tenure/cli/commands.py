"""The command line's commands, one module for each or for a few that belong together."""

import platform

import click

import tenure as library
from tenure.cli.demo import demo
from tenure.cli.doctor import doctor
from tenure.cli.group import OneLineErrors
from tenure.cli.jobs import jobs
from tenure.cli.migrate import migrate
from tenure.cli.next import next_
from tenure.cli.run import run
from tenure.cli.runs import active, runs
from tenure.cli.top import top
from tenure.cli.web import web
from tenure.cli.why import why
from tenure.schedule import tz_data_version


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


for _command in (run, next_, jobs, why, runs, active, top, doctor, migrate, demo, web):
    tenure.add_command(_command)
