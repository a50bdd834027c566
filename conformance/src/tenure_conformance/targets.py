"""The targets that come with the suite."""

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tenure.memory import MemoryBackend, MemoryStore
from tenure.model import Capabilities

from tenure_conformance.faults.sqlite import sqlite_faults
from tenure_conformance.target import Limits, Server, Target, Timing

_memory_store = MemoryStore()

memory = Target(
    name="memory",
    levels=("lease", "hints"),
    url="memory://",
    open=lambda _url, namespace: MemoryBackend(_memory_store, namespace=namespace),
    timing=Timing(short_ms=10, slack_ms=5),
    limits=Limits(situations=60, histories=20, examples=60, runs=1_100),
    distribution="tenure",
    store=lambda: "this process's memory",
)


def _connect(url: str, namespace: str) -> AbstractAsyncContextManager[Any]:
    from tenure.registry import connect  # the suite also runs where only a part of tenure is needed

    return connect(url, namespace=namespace)


@contextmanager
def _sqlite_file(_how: Server) -> Iterator[str]:
    with TemporaryDirectory(prefix="tenure-conformance-") as directory:
        yield f"sqlite:///{directory}/conformance.db"


sqlite = Target(
    name="sqlite",
    levels=("lease", "durable", "shared", "faults", "processes"),
    serve=_sqlite_file,
    open=_connect,
    capabilities=Capabilities(durable=True, shared=True),
    faults=sqlite_faults,
    distribution="tenure-sqlite",
    store=lambda: f"SQLite {sqlite3.sqlite_version}",
)


@contextmanager
def _directory(_how: Server) -> Iterator[str]:
    with TemporaryDirectory(prefix="tenure-conformance-") as directory:
        yield f"dir://{Path(directory)}"


directory = Target(
    name="directory",
    levels=("claim-only", "durable", "shared"),
    serve=_directory,
    open=_connect,
    distribution="tenure-directory",
    store=lambda: "a directory of files",
)
