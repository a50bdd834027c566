"""Servers that are programs of this host: on PATH, or brought by pip."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from tenure_conformance.servers.recipe import NotHere, Recipe

STOP_SECONDS = 10
WORDS = 600
"""Characters of its log that are told of a server that ended."""


def on_path(program: str) -> Callable[[], Path | None]:
    """Finds a program on PATH."""

    def find() -> Path | None:
        found = shutil.which(program)
        return Path(found) if found else None

    return find


def in_package(package: str, pattern: str) -> Callable[[], Path | None]:
    """Finds a program among the files of an installed package, by a glob such as ``bin/redis-server``."""

    def find() -> Path | None:
        try:
            spec = find_spec(package)
        except ModuleNotFoundError:  # of a parent package
            return None
        places = (spec.submodule_search_locations if spec else None) or ()
        files = (file for place in places for file in sorted(Path(place).glob(pattern)))
        return next((file for file in files if file.is_file() and os.access(file, os.X_OK)), None)

    return find


class Program:
    """A server as a process, with its data and its log in a directory."""

    def __init__(self, recipe: Recipe, program: Path, directory: Path, port: int) -> None:
        self._command = [*recipe.called(program), *recipe.arguments(directory, port)]
        self._environment = {**os.environ, **recipe.environment}
        self._directory = directory
        self._log = directory / "server.log"
        self._process = self._started()

    def restart(self) -> None:
        """See Running."""
        self.stop()
        self._process = self._started()

    def ended(self) -> str | None:
        """See Running."""
        code = self._process.poll()
        if code is None:
            return None
        return f"exit code {code}: {self._log.read_text(errors='replace')[-WORDS:].strip() or 'it said nothing'}"

    def stop(self) -> None:
        """End it, by force if it takes too long."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _started(self) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603  # the command is the recipe's
                self._command,
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


@contextmanager
def started(recipe: Recipe, port: int, program_name: str) -> Iterator[Program]:
    """The named program, or the first that the recipe finds, running; NotHere if there is none."""
    places = (on_path(program_name),) if program_name else recipe.find
    program = next((found for find in places if (found := find()) is not None), None)
    if program is None:
        raise NotHere(f"no program {program_name or 'found'}" if places else "the recipe knows no program")
    with TemporaryDirectory(prefix="tenure-conformance-", ignore_cleanup_errors=True) as place:
        directory = Path(place)
        if recipe.prepare is not None:
            recipe.prepare(program, directory)
        server = Program(recipe, program, directory, port)
        try:
            yield server
        finally:
            server.stop()
