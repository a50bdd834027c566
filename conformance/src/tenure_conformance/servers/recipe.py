"""How the server that a backend needs is started: one recipe per store, and the ways to follow it in turn."""

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tenure_conformance.target import Server, TargetError
from tenure_conformance.timing import Uncertain

HOST = "127.0.0.1"
READY_SECONDS = 60
STEP_S = 0.05
HANG_UP_S = 0.2


class NotHere(Exception):
    """This way of starting the server is not there; the message says why."""


class Running(Protocol):
    """A server that was started here."""

    def restart(self) -> None:
        """Stop it and start it again, on the same port and with what it stored; it need not answer yet."""

    def ended(self) -> str | None:
        """Its last words, if it is no more; None while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A store's server; a target's ``serve`` is ``recipe.serve``, and its restart for faults ``restart``."""

    name: str
    url: Callable[[int], str]
    """The URL of a server on this host's port."""
    port: int
    """The one that it listens on in a container."""
    image: str | None = None
    """What Docker runs."""
    command: Sequence[str] = ()
    """What the container is started with, instead of the image's own."""
    environment: Mapping[str, str] = field(default_factory=dict)
    find: Sequence[Callable[[], Path | None]] = ()
    """Where a program may be, the best first: ``on_path``, ``in_package``."""
    arguments: Callable[[Path, int], Sequence[str]] = lambda _directory, _port: ()
    """What the program is started with: its data belongs in the directory, and it listens on the port of HOST."""
    called: Callable[[Path], Sequence[str]] = lambda program: (str(program),)
    """How the program is called, where it needs another one around it."""
    prepare: Callable[[Path, Path], None] | None = None
    """Makes the directory ready for the program, once."""
    answers: Callable[[str], bool] | None = None
    """Whether the server at a URL answers, asked by its own client; that it keeps a connection, unless given."""
    remedy: str = ""
    """What to install where nothing is found."""

    def serve(self, how: Server) -> AbstractContextManager[str]:
        """A running server's URL; TargetError, with what was tried, if there is no way to start one."""
        return serving(self, how)


Kind = Callable[[Recipe, int, str], AbstractContextManager[Running]]
"""Starts a recipe's server on a port of this host, with the image or program of that name if it is not empty; NotHere
if it cannot be done this way."""

_running: dict[str, tuple[Recipe, Running]] = {}


@contextmanager
def serving(recipe: Recipe, how: Server, kinds: Mapping[str, Kind] | None = None) -> Iterator[str]:
    """Start the server in the first of the ways that is there, Docker before programs, or in the one that is named."""
    ways = kinds if kinds is not None else _kinds()
    kind, _, which = how.partition(":")
    tried: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(_terminated_as_interrupted())
        for name in ways if kind == "auto" else (kind,):
            port = free_port()
            try:
                running = stack.enter_context(ways[name](recipe, port, which))
            except NotHere as error:
                tried.append(f"{name}: {error}")
                continue
            url = recipe.url(port)
            wait_until_it_answers(recipe, url, running)
            _running[url] = recipe, running
            stack.callback(_running.pop, url)
            yield url
            return
    remedy = f"; {recipe.remedy}" if recipe.remedy else ""
    raise TargetError(f"{recipe.name}: no server; give --url{remedy} ({'; '.join(tried)})")


async def restart(url: str) -> None:
    """Restart the server that was started here for this URL, and return when it answers; Uncertain if none was."""
    if url not in _running:
        raise Uncertain("the store was not started here, so it cannot be restarted; use --server instead of --url")
    recipe, running = _running[url]
    await asyncio.to_thread(running.restart)
    await asyncio.to_thread(wait_until_it_answers, recipe, url, running)


def wait_until_it_answers(recipe: Recipe, url: str, running: Running) -> None:
    """TargetError, with its last words, if the server ends or does not answer in a minute."""
    limit = time.monotonic() + READY_SECONDS
    answers = recipe.answers or connects
    while not answers(url):
        words = running.ended()
        if words is not None:
            raise TargetError(f"{recipe.name}: the server ended: {words}")
        if time.monotonic() > limit:
            raise TargetError(f"{recipe.name}: the server does not answer after {READY_SECONDS} s")
        time.sleep(STEP_S)


def free_port() -> int:
    """A port of this host that nothing listens on."""
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        port: int = listening.getsockname()[1]
        return port


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM end this process as Ctrl-C does, so that it ends its servers first."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda _number, _frame: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def connects(url: str) -> bool:
    """Whether a server of this URL accepts a connection and keeps it."""
    from tenure_conformance.faults.kit import endpoint_of

    try:
        connection = socket.create_connection(endpoint_of(url, 0), timeout=1)
    except OSError:
        return False
    with connection:
        return _keeps(connection)


def _keeps(connection: socket.socket) -> bool:
    """Whether it is not hung up on: Docker accepts, and hangs up, while nothing listens in the container."""
    connection.settimeout(HANG_UP_S)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


def _kinds() -> dict[str, Kind]:
    from tenure_conformance.servers import binary, docker

    return {"docker": docker.started, "binary": binary.started}
