"""What the commands that read a store have in common."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click

from tenure.errors import BackendMisconfigured, closest
from tenure.model import JobCard
from tenure.protocol import JobCards, LeaseBackend, has_leases
from tenure.registry import connect_existing, hide_secrets

Answer = TypeVar("Answer")
Command = TypeVar("Command", bound=Callable[..., Any])

_SHOWN = 8
"""So many names are told in a line."""


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


async def cards_of(backend: LeaseBackend) -> list[JobCard]:
    """The cards of the namespace, by job; none where the backend keeps none."""
    return await backend.cards() if isinstance(backend, JobCards) else []


async def jobs_of(backend: LeaseBackend, named: Sequence[str]) -> list[str]:
    """The jobs named or, if none is, all of which there are cards; UsageError where the backend keeps none."""
    if named:
        return list(named)
    if not isinstance(backend, JobCards):
        raise click.UsageError("which jobs? name them: this store does not keep which ones there are")
    return [card.job for card in await backend.cards()]


async def refuse_unknown(backend: LeaseBackend, named: Sequence[str], where: str) -> None:
    """ClickException for a job that has neither a card nor a run; a store without cards cannot tell."""
    if not named or not isinstance(backend, JobCards):
        return
    known = [card.job for card in await backend.cards()]
    for job in sorted(set(named) - set(known)):
        if not (await backend.active([job])).runs and not await backend.results(job, limit=1):
            raise unknown(job, known, where)


def unknown(job: str, known: Iterable[str], where: str) -> click.ClickException:
    """The error for a name that nobody uses."""
    return click.ClickException(f"nothing is known of a job {job!r} in {where}{_suggestion(job, known)}")


def place(url: str | None, namespace: str) -> str:
    """The store and the namespace for people."""
    return f"namespace {namespace!r} of {hide_secrets(url or '')}"


def _suggestion(job: str, known: Iterable[str]) -> str:
    """What may have been meant by a name that nobody uses."""
    names = list(known)
    close = closest(job, names)
    if close:
        return f"; did you mean {close!r}?"
    return f"; known are {', '.join(names[:_SHOWN])}{', …' if len(names) > _SHOWN else ''}" if names else ""
