"""The target, and how to make one of a broken client or server."""

import asyncio
from urllib.parse import urlsplit

from tenure.model import Capabilities
from tenure_conformance.faults import proxied, with_option
from tenure_conformance.target import Target

from .client import LineBackend
from .server import Server, server_on, serving


async def restart(url):
    await asyncio.to_thread(server_on(urlsplit(url).port).restart)


def wrong(url):
    return {"a wrong password": url.replace(":secret@", ":guessed@")}


async def newer(url):
    """One whose client is of an older schema."""
    return with_option(url, "schema", "0")


async def newer_job(url, namespace, job):
    server_on(urlsplit(url).port).outdate(namespace, job)


def make_target(client_type=LineBackend, server_type=Server, *, reference=""):
    return Target(
        name="line",
        levels=("lease", "durable", "shared", "faults", "processes", "hints"),
        serve=lambda _how: serving(server_type),
        open=lambda url, namespace: client_type(url, namespace=namespace),
        capabilities=Capabilities(durable=True, shared=True),
        faults=proxied(port=4321, restart=restart, wrong=wrong, newer=newer, newer_job=newer_job),
        reference=reference or f"{__name__}:line",
    )


line = make_target()
