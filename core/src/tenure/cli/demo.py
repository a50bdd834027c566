"""``tenure demo``."""

from pathlib import Path

import click
from rich.console import Console

from tenure.cli.group import FAILURE
from tenure.registry import connect


@click.command()
@click.option(
    "--record", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Keep the last picture, as SVG."
)
@click.option("--backend", metavar="URL", help="A store to play on, instead of a SQLite file of the demo's own.")
def demo(record: Path | None, backend: str | None) -> None:
    """Watch a failover: three processes, one killed, one frozen, one stopped; each slot ends once.

    It takes about fifteen seconds. The exit code is 1 if a slot ended twice, or was lost. In a store of yours it uses a
    namespace of its own, tenure-demo-…, in which one job is left.
    """
    connect(backend or "sqlite:///demo.db")  # is it installed? nothing is opened
    from tenure.demo.place import store_at
    from tenure.demo.play import play, playable

    if not playable():
        raise click.ClickException("the demo needs SIGKILL, SIGSTOP and SIGCONT; run it on Linux or macOS, or in WSL")
    if not play(Console(), place=store_at(backend) if backend else None, record=record):
        raise click.exceptions.Exit(FAILURE)
