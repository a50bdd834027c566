"""``tenure web``: serves the page to look at."""

import asyncio
import socket
from contextlib import AbstractContextManager, nullcontext
from ipaddress import ip_address
from typing import TYPE_CHECKING

import click

from tenure.cli.load import load_scheduler
from tenure.cli.store import entered, given_url, url_as_word
from tenure.errors import BackendUnavailable
from tenure.scheduler import Scheduler

if TYPE_CHECKING:
    from starlette.applications import Starlette

_NEEDED = {"starlette", "uvicorn", "anyio"}


@click.command()
@url_as_word("[URL|MODULE:SCHEDULER]")
@click.option("--namespace", default="tenure", show_default=True, help="The namespace of the jobs; goes with a URL.")
@click.option("--job", "jobs", multiple=True, metavar="NAME", help="Show this job too; the store may not know of it.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8_787, show_default=True, help="0: any that is free.")
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="A name under which browsers may ask for it."
)
@click.option("--allow-trigger", is_flag=True, help="Let the page run jobs: here, in an instance of the application.")
def web(
    word: str | None,
    url: str | None,
    namespace: str,
    jobs: tuple[str, ...],
    host: str,
    port: int,
    hosts: tuple[str, ...],
    allow_trigger: bool,
) -> None:
    """Serve a page that shows the jobs, who holds what, and the story of each slot, live.

    It reads the store at URL (TENURE_URL if not given), or the one of an application's scheduler, and changes nothing
    in it. With --allow-trigger it starts that scheduler: this process is one more instance then, and runs what is due
    as any other.
    """
    source = _source(given_url(word, url), namespace, allow_trigger)
    application = _application(source, namespace, jobs, {*hosts, host}, allow_trigger)
    with _listening(host, port) as listener, _running(source, allow_trigger):
        _announce(listener, host, allow_trigger)
        _serve(application, listener)


def _source(target: str, namespace: str, allow_trigger: bool) -> str | Scheduler:
    if not _is_url(target):
        return load_scheduler(target)
    if allow_trigger:
        raise click.UsageError(
            "--allow-trigger: a job runs where its handler is; instead of the URL name the application, "
            "as in app:scheduler"
        )
    asyncio.run(_look(target, namespace))
    return target


def _is_url(target: str) -> bool:
    """Whether it is one, or was to be: then ``connect`` says what is wrong, and no module is imported."""
    return ":/" in target or (":" not in target and target.endswith((".db", ".sqlite", ".sqlite3")))


async def _look(url: str, namespace: str) -> None:
    """Refuse at once what will not work later either; a store that is away may come."""
    try:
        async with entered(url, namespace):
            pass
    except BackendUnavailable as error:
        click.echo(f"tenure: {error}; the page tells when it is there", err=True)


def _application(
    source: str | Scheduler, namespace: str, jobs: tuple[str, ...], hosts: set[str], allow_trigger: bool
) -> "Starlette":
    try:
        from tenure.web import page
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        raise click.ClickException(f'the page needs {missing}; run: pip install "tenure[web]"') from None
    return page(source, namespace=namespace, jobs=jobs, hosts=hosts, allow_trigger=allow_trigger)


def _running(source: str | Scheduler, allow_trigger: bool) -> AbstractContextManager[object]:
    return source if isinstance(source, Scheduler) and allow_trigger else nullcontext()


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise click.ClickException(f"cannot listen at {host}, port {port}: {error.strerror}; choose --port") from None


def _announce(listener: socket.socket, host: str, allow_trigger: bool) -> None:
    shown = f"[{host}]" if ":" in host else host
    if not _is_loopback(host):
        what = "see the jobs and their errors, and run them" if allow_trigger else "see the jobs and their errors"
        click.echo(f"tenure: whoever reaches {shown} can {what}: the page asks for no password", err=True)
    click.echo(f"http://{shown}:{listener.getsockname()[1]}/ (Ctrl-C ends it)")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _serve(application: "Starlette", listener: socket.socket) -> None:
    from tenure.web.serve import serve

    serve(application, listener)
