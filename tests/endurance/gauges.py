"""What is measured: the memory, files and threads of processes, and how much the store keeps."""

import asyncio
import base64
import json
import os
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from chaos.stores import descendants

Sizes = dict[str, float]

NAMESPACE = "endure"


def of_process(pid: int) -> Sizes:
    """An instance, looked at from outside, so that looking costs it nothing."""
    place = Path(f"/proc/{pid}")
    return {
        "memory KB": _pss_kb(pid),
        "open files": len(os.listdir(place / "fd")),
        "threads": len(os.listdir(place / "task")),
    }


def of_server(pid: int) -> Sizes:
    """A server with all processes that it started."""
    return {"memory KB": sum(_pss_kb(one) for one in (pid, *descendants(pid)))}


def _pss_kb(pid: int) -> float:
    """Its own pages, and its part of those that it shares: the sum over processes counts none twice."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return float(line.split()[1])
    return 0.0  # a server's helper that ended meanwhile


async def _sqlite(url: str) -> Sizes:
    path = urlsplit(url).path.replace("//", "/")

    def look() -> Sizes:
        with closing(sqlite3.connect(path, timeout=10)) as connection:
            (pages,) = connection.execute(
                "select page_count * page_size from pragma_page_count, pragma_page_size"
            ).fetchone()
            tables = ("tenure_jobs", "tenure_results", "tenure_cards")
            rows = sum(connection.execute(f"select count(*) from {table}").fetchone()[0] for table in tables)
        log = Path(f"{path}-wal")  # gone once the last connection was closed
        return {"rows": rows, "bytes": pages, "bytes of the log": log.stat().st_size if log.exists() else 0}

    return await asyncio.to_thread(look)


async def _redis(url: str) -> Sizes:
    from redis.asyncio import Redis

    async with Redis.from_url(url.partition("?")[0]) as client:
        memory = await client.info("memory")
        return {"keys": await client.dbsize(), "bytes": memory["used_memory_dataset"]}


async def _postgres(url: str) -> Sizes:
    from psycopg import AsyncConnection

    tables = "select oid, relname from pg_class where relkind = 'r' and relnamespace = 'tenure'::regnamespace"
    async with await AsyncConnection.connect(url.partition("?")[0], autocommit=True) as connection:
        found = await (
            await connection.execute(f"select relname, pg_total_relation_size(oid) from ({tables}) t")
        ).fetchall()
        counts = [
            await (await connection.execute(f"select count(*) from tenure.{name}")).fetchone() for name, _ in found
        ]
    return {"rows": sum(count for (count,) in counts), "bytes": float(sum(size for _, size in found))}


async def _mongo(url: str) -> Sizes:
    from pymongo import AsyncMongoClient

    async with AsyncMongoClient(url.partition("?")[0], directConnection=True) as client:
        stats = await client["tenure"].command("dbStats")
    on_disk = stats["storageSize"] + stats["indexSize"]
    return {"documents": stats["objects"], "bytes": stats["dataSize"], "bytes on disk": on_disk}


async def _dynamodb(url: str) -> Sizes:
    from boto3.session import Session

    (endpoint,) = parse_qs(urlsplit(url).query)["endpoint"]

    def look() -> Sizes:
        session = Session(aws_access_key_id="any", aws_secret_access_key="any", region_name="eu-west-1")
        with closing(session.client("dynamodb", endpoint_url=endpoint)) as client:
            pages = client.get_paginator("scan").paginate(TableName="tenure")
            items = [item for page in pages for item in page["Items"]]
        return {"items": len(items), "bytes": len(json.dumps(items, default=str))}

    return await asyncio.to_thread(look)


async def _etcd(url: str) -> Sizes:
    """Its file has all revisions until they are compacted, which is the operator's to ask for, and is done here."""
    place = f"http://{urlsplit(url).netloc}/v3"

    def asked(path: str, **content: object) -> dict[str, dict[str, str]]:
        with urllib.request.urlopen(f"{place}/{path}", json.dumps(content).encode(), timeout=10) as reply:
            return json.load(reply)

    def look() -> Sizes:
        first, last = (
            base64.b64encode(text.encode()).decode() for text in (f"tenure/{NAMESPACE}/", f"tenure/{NAMESPACE}0")
        )
        counted = asked("kv/range", key=first, range_end=last, count_only=True)
        with suppress(urllib.error.HTTPError):  # nothing was written since the last time
            asked("kv/compaction", revision=counted["header"]["revision"], physical=True)
        status = asked("maintenance/status")
        return {"keys": float(str(counted["count"])), "bytes": float(str(status["dbSizeInUse"]))}

    return await asyncio.to_thread(look)


OF_STORE: dict[str, Callable[[str], Awaitable[Sizes]]] = {
    "sqlite": _sqlite,
    "redis": _redis,
    "postgres": _postgres,
    "mongo": _mongo,
    "dynamodb": _dynamodb,
    "etcd": _etcd,
}
"""How much each store keeps, by target."""
