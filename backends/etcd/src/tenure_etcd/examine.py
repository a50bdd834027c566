"""What an operator may want to know of the cluster."""

from collections.abc import Iterator
from typing import Any

import grpc  # type: ignore[import-untyped]  # grpcio has no annotations
from tenure.model import Finding

from tenure_etcd import requests
from tenure_etcd.cluster import Cluster
from tenure_etcd.keys import Layout

_MUCH = 0.8
_DEFAULT_QUOTA = 2 * 2**30
"""Of the database, unless --quota-backend-bytes says another; the server does not tell."""


async def examine(cluster: Cluster, layout: Layout, clock_error_ms: int) -> list[Finding]:
    """Findings on the cluster; a question that it does not answer is one of them."""
    status, members = await _told(cluster, "status"), await _told(cluster, "members")
    return [
        *_status(status),
        *_members(cluster, members),
        *_way(cluster),
        await _rights(cluster, layout),
        Finding("time", "ok", f"known to {clock_error_ms} ms, from the Date header of the HTTP side"),
    ]


async def _told(cluster: Cluster, question: str) -> Any:
    """The answer, None where it may not be asked."""
    try:
        return await cluster.call(question, requests.about(question))
    except grpc.aio.AioRpcError:
        return None


async def _rights(cluster: Cluster, layout: Layout) -> Finding:
    try:
        await cluster.call("txn", requests.would_write(layout.format, layout.card("probe")))
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.PERMISSION_DENIED:
            raise
        remedy = f"etcdctl role grant-permission ROLE --prefix=true readwrite {layout.prefix}"
        return Finding("rights", "wrong", f"the user may not write keys that begin with {layout.prefix!r}", remedy)
    return Finding("rights", "ok", f"keys that begin with {layout.prefix!r} may be read and written")


def _status(status: Any) -> Iterator[Finding]:
    if status is None:
        yield Finding("database", "warning", "the member does not tell its status", "ask `etcdctl endpoint status`")
        return
    text = f"{status.dbSize / 2**20:.0f} MB, etcd {status.version}"
    if status.dbSize > _MUCH * _DEFAULT_QUOTA:
        remedy = "compact and defragment it, and let it compact by itself (--auto-compaction-retention)"
        yield Finding("database", "warning", f"{text}; the quota is 2 GB unless it was raised", remedy)
    else:
        yield Finding("database", "ok", text)


def _members(cluster: Cluster, answer: Any) -> Iterator[Finding]:
    known = len(cluster.settings.endpoints)
    if answer is None:
        return
    members = len(answer.members)
    if members < 3:
        text, remedy = f"{members} in the cluster", "three members survive the loss of one"
        yield Finding("members", "warning", text, remedy)
    elif known < 2:
        text, remedy = (
            f"{members} in the cluster, one in the URL",
            "name them all: etcd://host1:2379,host2:2379,host3:2379",
        )
        yield Finding("members", "warning", text, remedy)
    else:
        yield Finding("members", "ok", f"{members} in the cluster, {known} in the URL")


def _way(cluster: Cluster) -> Iterator[Finding]:
    settings = cluster.settings
    if settings.user is not None and settings.tls is None:
        yield Finding("way", "warning", "a password over a connection without TLS", "use etcds://")
