"""DynamoDB as dynalite has it, a server on Node.js that npm brings, which keeps its table over a restart."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tenure.model import Capabilities
from tenure.registry import connect

from tenure_conformance.faults.kit import FaultKit, proxied, with_option
from tenure_conformance.servers import HOST, Recipe, restart
from tenure_conformance.target import Target, Timing

DYNALITE = "dynalite@4.0.0"
CLOCK_ERROR_MS = 200
CAPABILITIES = Capabilities(clock_error_ms=CLOCK_ERROR_MS, durable=True, shared=True)
SLOWER = 2
"""How many times longer than other targets' a call may take in the rules of faults: forty calls at once are sixty
requests, and these servers need some milliseconds for each, one after the other."""
_ACCOUNT = "AKIDCONFORMANCE:a-secret-word"
"""These servers take any; without one, boto3 would search for its own."""
_NEWER = "#newer"
_clocks: dict[str, Any] = {}
"""The store's clock is the server's, also behind a proxy, and learning it takes a second."""


def url_of(port: int) -> str:
    """The URL of a local server on that port; the table is made by who enters first."""
    return f"dynamodb://{_ACCOUNT}@eu-west-1/tenure?create=true&timeout=20s&endpoint=http://{HOST}:{port}"


def endpoint_of(url: str, _port: int = 0) -> tuple[str, int]:
    """Host and port of the URL's endpoint."""
    (endpoint,) = parse_qs(urlsplit(url).query)["endpoint"]
    parts = urlsplit(endpoint)
    return parts.hostname or HOST, parts.port or 80


def through(url: str, host: str, port: int) -> str:
    """The URL with another endpoint."""
    return with_option(url, "endpoint", f"http://{host}:{port}")


@asynccontextmanager
async def opened(url: str, namespace: str) -> AsyncIterator[Any]:
    """The backend, entered; where the URL is marked, in a namespace that a much later version has entered before."""
    place, newer, _ = url.partition(_NEWER)
    if newer:
        await asyncio.to_thread(_entered_by_a_later_version, place, namespace)
    host, _ = endpoint_of(place)
    backend: Any = connect(place, namespace=namespace, clock=_clocks.get(host))
    async with backend:
        _clocks.setdefault(host, backend.clock)
        yield backend


def faults(*, restarts: bool) -> FaultKit:
    """What can be done to such a server."""
    kit = proxied(
        port=0,
        restart=restart if restarts else None,
        wrong=_wrong,
        newer=_newer,
        newer_job=_newer_job,
        endpoint=endpoint_of,
        through=through,
    )
    return FaultKit(powers=kit.powers, open=lambda url, timeout_ms: kit.open(url, SLOWER * timeout_ms))


def _wrong(url: str) -> Mapping[str, str]:
    other = url.replace("/tenure?", "/another-table?")
    return {
        "a table that does not exist": with_option(other, "create", "false"),
        "a table with other keys": _with_other_keys(url),
        "a profile that does not exist": with_option(url, "profile", "no-such-profile"),
    }


@cache
def _with_other_keys(url: str) -> str:
    """The URL of a table that is not tenure's, made once: a client takes a while to make."""
    client = _client(url)
    key = [{"AttributeName": "id", "KeyType": "HASH"}]
    attributes = [{"AttributeName": "id", "AttributeType": "S"}]
    try:
        client.create_table(
            TableName="other-keys", KeySchema=key, AttributeDefinitions=attributes, BillingMode="PAY_PER_REQUEST"
        )
    except client.exceptions.ResourceInUseException:
        pass
    finally:
        client.close()
    return url.replace("/tenure?", "/other-keys?")


async def _newer(url: str) -> str:
    """The server, marked for ``opened``: each namespace has a layout of its own."""
    return f"{url}{_NEWER}"


async def _newer_job(url: str, namespace: str, job: str) -> None:
    """The item of the job, with the layout of a much later version."""

    def change() -> None:
        client = _client(url)
        client.update_item(
            TableName="tenure",
            Key={"pk": {"S": json.dumps([namespace, job], separators=(",", ":"))}, "sk": {"S": "state"}},
            UpdateExpression="SET layout = :later",
            ExpressionAttributeValues={":later": {"N": "1000000"}},
        )
        client.close()

    await asyncio.to_thread(change)


def _entered_by_a_later_version(url: str, namespace: str) -> None:
    client = _client(url)
    item = {"pk": {"S": json.dumps([namespace])}, "sk": {"S": "layout"}, "layout": {"N": "1000000"}}
    client.put_item(TableName="tenure", Item=item)
    client.close()


def _client(url: str) -> Any:
    host, port = endpoint_of(url)
    key, secret = _ACCOUNT.split(":")
    session = import_module("boto3.session").Session(
        aws_access_key_id=key, aws_secret_access_key=secret, region_name="eu-west-1"
    )
    return session.client("dynamodb", endpoint_url=f"http://{host}:{port}")


def _modules() -> Path:
    """Where npm puts dynalite: the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "tenure-conformance" / DYNALITE / "node_modules"


def node_with_dynalite() -> Path | None:
    """Node.js, with dynalite installed by npm if it is not yet; None where that cannot be."""
    node, npm, modules = shutil.which("node"), shutil.which("npm"), _modules()
    if node is None or npm is None:
        return None
    if not (modules / "dynalite").exists():
        modules.parent.mkdir(parents=True, exist_ok=True)
        install = [npm, "install", "--no-audit", "--no-fund", "--no-save", "--prefix", str(modules.parent), DYNALITE]
        subprocess.run(install, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603  fixed
    return Path(node) if (modules / "dynalite").exists() else None


def _arguments(directory: Path, port: int) -> list[str]:
    script = files("tenure_conformance") / "servers" / "dynalite.cjs"
    return [str(script), str(_modules() / "dynalite"), HOST, str(port), str(directory / "db")]


server: Recipe = Recipe(
    name="dynamodb",
    url=url_of,
    port=4567,
    find=(node_with_dynalite,),
    arguments=_arguments,
    answers=lambda url: answers(url),
    remedy="install Node.js with npm, which brings dynalite, or use the target dynamodb-moto",
)


def answers(url: str) -> bool:
    """Whether something answers HTTP there."""
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(*endpoint_of(url), timeout=1)
    try:
        connection.request("GET", "/")
        connection.getresponse()
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
    return True


target: Target = Target(
    name="dynamodb",
    levels=("lease", "durable", "shared", "faults", "processes", "cards"),
    serve=server.serve,
    open=opened,
    capabilities=CAPABILITIES,
    timing=Timing(lease_ms=800),
    faults=faults(restarts=True),
    distribution="tenure-dynamodb",
    store=lambda: DYNALITE.replace("@", " "),
)
