"""What the commands that read a store have in common."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from tenure.errors import BackendMisconfigured, closest
from tenure.model import JobCard
from tenure.protocol import JobCards, LeaseBackend, has_leases
from tenure.registry import FIRST_PARTY, connect_existing, hide_secrets, schemes

Answer = TypeVar("Answer")
Command = TypeVar("Command", bound=Callable[..., Any])
Names = TypeVar("Names", str, tuple[str, ...])

_ENVVAR = "TENURE_URL"

_SHOWN = 8
"""So many names are told in a line."""


def of_store(command: Command) -> Command:
    """The options of commands that read a store."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="For programs; times are milliseconds since the epoch."),
        click.option("--namespace", default="tenure", show_default=True, help="The namespace of the jobs."),
        url_option,
    ):
        command = option(command)
    return command


def url_option(command: Command) -> Command:
    """The option ``--url``."""
    return click.option("--url", envvar=_ENVVAR, help="The store; TENURE_URL if not given.", metavar="URL")(command)


def url_as_word(metavar: str) -> Callable[[Command], Command]:
    """The URL as a word, for the commands that are about a whole store, or as ``--url``; ``given_url`` chooses."""
    return lambda command: click.argument("word", metavar=metavar, required=False)(url_option(command))


def given_url(word: str | None, url: str | None) -> str:
    """The word, or else the option or the environment; UsageError if both or none were given."""
    source = click.get_current_context().get_parameter_source("url")
    if word and source is ParameterSource.COMMANDLINE:
        raise click.UsageError("which store? give one URL, as a word or with --url")
    return _required(word or url)


def jobs_argument(command: Command) -> Command:
    """The names of jobs; a URL among them is refused."""
    return click.argument("names", metavar="[JOB...]", nargs=-1, callback=check_names)(command)


def check_names(_ctx: click.Context, _parameter: click.Parameter, value: Names) -> Names:
    """The name or names of jobs; UsageError for what looks like a URL."""
    for name in [value] if isinstance(value, str) else value:
        scheme, colon, _ = name.partition("://")
        if colon and scheme.lower() in (*FIRST_PARTY, *schemes()):  # a job may be called https://…
            raise click.UsageError(f"{hide_secrets(name)!r} looks like a URL; give it with --url")
    return value


def read_store(url: str | None, namespace: str, read: Callable[[LeaseBackend], Coroutine[Any, Any, Answer]]) -> Answer:
    """What ``read`` gives of the entered store; UsageError without a URL, BackendError."""

    async def main() -> Answer:
        async with entered(url, namespace) as backend:
            return await read(backend)

    return asyncio.run(main())


@asynccontextmanager
async def entered(url: str | None, namespace: str) -> AsyncIterator[LeaseBackend]:
    """The store of a URL, opened to be read; nothing is created."""
    url = _required(url)
    backend = connect_existing(url, namespace=namespace)
    if not has_leases(backend):
        raise BackendMisconfigured(f"{hide_secrets(url)} keeps no history and no leases that could be read")
    async with backend as opened:
        assert isinstance(opened, LeaseBackend)
        if not opened.capabilities.shared:
            raise BackendMisconfigured(f"{hide_secrets(url)} is not shared between processes: only its own can read it")
        yield opened


def _required(url: str | None) -> str:
    if not url:
        raise click.UsageError(f"which store? give --url, or set {_ENVVAR}, as in sqlite:///jobs.db")
    return url


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
