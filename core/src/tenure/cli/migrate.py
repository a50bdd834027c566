"""``tenure migrate``."""

import asyncio

import click

from tenure.cli.store import given_url, url_as_word
from tenure.protocol import Migrates
from tenure.registry import connect, hide_secrets


@click.command()
@url_as_word("[URL]")
@click.option("--sql", is_flag=True, help="Print what makes the schema in a store that has none, and change nothing.")
def migrate(word: str | None, url: str | None, sql: bool) -> None:
    """Make the schema in the store at URL, or bring it up to date; TENURE_URL if URL is not given.

    For a role that may, so that the one that runs the jobs need not. Instances that still run go on.
    """
    url = given_url(word, url)
    backend = connect(url)
    if not isinstance(backend, Migrates):
        raise click.ClickException(f"{hide_secrets(url)} has no schema to migrate; what it needs is made on entering")
    if sql:
        click.echo(backend.migration_sql())
        return
    done = asyncio.run(backend.migrate())
    click.echo("\n".join(f"done: {name}" for name in done) or "the schema is up to date")
