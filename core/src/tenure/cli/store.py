"""What the commands that read a store have in common."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click

from tenure.errors import BackendMisconfigured
from tenure.protocol import LeaseBackend, has_leases
from tenure.registry import connect_existing, hide_secrets

Answer = TypeVar("Answer")
Command = TypeVar("Command", bound=Callable[..., Any])


def of_store(command: Command) -> Command:
    """The options of commands that read a store."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="For programs; times are milliseconds since the epoch."),
        click.option("--namespace", default="tenure", show_default=True, help="The namespace of the jobs."),
        click.option("--url", envvar="TENURE_URL", help="The store; TENURE_URL if not given.", metavar="URL"),
    ):
        command = option(command)
    return command


def read_store(url: str | None, namespace: str, read: Callable[[LeaseBackend], Coroutine[Any, Any, Answer]]) -> Answer:
    """What ``read`` gives of the entered store; UsageError without a URL, BackendError."""

    async def main() -> Answer:
        async with entered(url, namespace) as backend:
            return await read(backend)

    return asyncio.run(main())


@asynccontextmanager
async def entered(url: str | None, namespace: str) -> AsyncIterator[LeaseBackend]:
    """The store of a URL, opened to be read; nothing is created."""
    if not url:
        raise click.UsageError("which store? give --url, or set TENURE_URL, as in sqlite:///jobs.db")
    backend = connect_existing(url, namespace=namespace)
    if not has_leases(backend):
        raise BackendMisconfigured(f"{hide_secrets(url)} keeps no history and no leases that could be read")
    async with backend as opened:
        assert isinstance(opened, LeaseBackend)
        if not opened.capabilities.shared:
            raise BackendMisconfigured(f"{hide_secrets(url)} is not shared between processes: only its own can read it")
        yield opened
