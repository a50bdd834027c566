"""The claim-only example: a directory of files."""

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from tenure_conformance.target import Server, Target, connected


@contextmanager
def _serve(_how: Server) -> Iterator[str]:
    with TemporaryDirectory(prefix="tenure-conformance-") as directory:
        yield f"dir://{directory}"


target: Target = Target(
    name="directory",
    levels=("claim-only", "durable", "shared"),
    serve=_serve,
    open=connected,
    distribution="tenure-directory",
    store=lambda: "a directory of files",
)
