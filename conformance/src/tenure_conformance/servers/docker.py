"""Servers in containers, through testcontainers, which the extra ``tenure-conformance[docker]`` brings."""

import gc
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from tenure_conformance.servers.recipe import HOST, NotHere, Recipe

ANSWER_SECONDS = 5
"""A Docker that takes longer to say its version hangs, and is as good as none."""
CALL_SECONDS = 60
STOP_SECONDS = 10
WORDS = 600
OWNER = "tenure-conformance.owner"
"""The label that says which process a container was started by."""
OVER = ("exited", "dead", "removing")


class Container:
    """A server in a container; its port of this host is fixed, so that it stays over a restart."""

    def __init__(self, container: Any) -> None:
        self._container = container

    def restart(self) -> None:
        """See Running."""
        self._container.get_wrapped_container().restart(timeout=STOP_SECONDS)

    def ended(self) -> str | None:
        """See Running."""
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        if wrapped.status not in OVER:
            return None
        return f"{wrapped.status}: {wrapped.logs().decode(errors='replace')[-WORDS:].strip() or 'it said nothing'}"


@contextmanager
def started(recipe: Recipe, port: int, image: str) -> Iterator[Container]:
    """The image, or the recipe's, running; NotHere without an image, testcontainers, or a Docker that answers."""
    image = image or recipe.image or ""
    if not image:
        raise NotHere("the recipe names no image")
    container = _prepared(recipe, port, image)
    client = container.get_docker_client().client.api
    client.timeout = CALL_SECONDS
    try:
        _start(container, client, image)
        yield Container(container)
    finally:
        container.stop()  # removes it, with its data; one that was made and not started too


def container_of(image: str) -> Any:
    """A container of testcontainers, not started; NotHere without testcontainers, or a Docker that answers."""
    # Ryuk, which ends containers of killed processes, is an image more to have; the label does the same a run later.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    try:
        containers = import_module("testcontainers.core.container")
    except ImportError as error:
        raise NotHere('testcontainers is not installed; pip install "tenure-conformance[docker]"') from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # docker forgets the socket on which nothing answered
        try:
            # The client asks Docker for its version as soon as it is made.
            return containers.DockerContainer(image, docker_client_kw={"timeout": ANSWER_SECONDS})
        except Exception as error:  # noqa: BLE001  # testcontainers and docker raise errors of many kinds
            why = f"{type(error).__name__}: {error}"
        gc.collect()
    raise NotHere(f"Docker does not answer: {why}")


def _prepared(recipe: Recipe, port: int, image: str) -> Any:
    container = container_of(image)
    container.ports[recipe.port] = (HOST, port)  # with_bind_ports knows no address, and would open it to the network
    for name, value in recipe.environment.items():
        container.with_env(name, value)
    if recipe.command:
        container.with_command(list(recipe.command))
    return container.with_kwargs(labels={OWNER: f"{_place()} {os.getpid()}"})


def _start(container: Any, client: Any, image: str) -> None:
    try:
        _remove_left_behind(client)
        container.start()
    except Exception as error:  # as above
        why = getattr(error, "explanation", None) or f"{type(error).__name__}: {error}"
        if _is_here(client, image):
            raise NotHere(f"{image} cannot be started: {why}") from error
        remedy = "name one that is here by --server docker:IMAGE, or build a stand-in as docs/conformance.md says"
        raise NotHere(f"the image {image} is not here and cannot be pulled; {remedy}: {why}") from error


def _is_here(client: Any, image: str) -> bool:
    try:
        client.inspect_image(image)
    except Exception:  # noqa: BLE001  # as above
        return False
    return True


def _remove_left_behind(client: Any) -> None:
    """Remove the containers whose process is gone: one that was killed could not do it itself."""
    for left in client.containers(all=True, filters={"label": OWNER}):
        place, _, process = left["Labels"][OWNER].rpartition(" ")
        if place == _place() and not _lives(int(process)):
            with suppress(Exception):  # another run may be removing it too
                client.remove_container(left["Id"], force=True, v=True)


def _place() -> str:
    """Where a process has the same number as seen from here: containers may share a Docker, but not their processes."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = "pid"
    return f"{socket.gethostname()} {namespace}"


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
