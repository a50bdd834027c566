"""What the conformance suite is told of this backend."""

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from tenure import connect
from tenure.model import Capabilities
from tenure_conformance import Target


@contextmanager
def directory(_how: str) -> Iterator[str]:
    with TemporaryDirectory() as path:
        yield f"flock://{path}?timeout=20s"  # whatever else the machine does meanwhile


TARGET = Target(
    name="flock",
    levels=("lease", "durable", "shared", "processes"),
    capabilities=Capabilities(durable=True, shared=True),
    open=lambda url, namespace: connect(url, namespace=namespace),
    serve=directory,
    distribution="tenure-flock",
    store=lambda: "a directory of files",
)
