"""Servers in containers, through testcontainers, which the extra ``tenure-conformance[docker]`` brings."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from tenure_conformance.servers.recipe import HOST, NotHere, Recipe

STOP_SECONDS = 10
WORDS = 600


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
        if wrapped.status in ("created", "running", "restarting"):
            return None
        return f"{wrapped.status}: {wrapped.logs().decode(errors='replace')[-WORDS:].strip() or 'it said nothing'}"


@contextmanager
def started(recipe: Recipe, port: int) -> Iterator[Container]:
    """The recipe's image, running; NotHere without an image, testcontainers, or a Docker that answers."""
    if recipe.image is None:
        raise NotHere("the recipe names no image")
    container = _container(recipe, port)
    try:
        container.start()
    except Exception as error:  # testcontainers and docker raise errors of many kinds
        raise NotHere(f"{recipe.image} cannot be started: {type(error).__name__}: {error}") from error
    try:
        yield Container(container)
    finally:
        container.stop()


def _container(recipe: Recipe, port: int) -> Any:
    try:
        containers = import_module("testcontainers.core.container")
    except ImportError as error:
        raise NotHere('testcontainers is not installed; pip install "tenure-conformance[docker]"') from error
    try:
        # The client asks Docker for its version as soon as it is made.
        container = containers.DockerContainer(recipe.image)
    except Exception as error:  # as above
        raise NotHere(f"Docker does not answer: {type(error).__name__}: {error}") from error
    container.with_bind_ports(recipe.port, (HOST, port))
    for name, value in recipe.environment.items():
        container.with_env(name, value)
    if recipe.command:
        container.with_command(list(recipe.command))
    return container
