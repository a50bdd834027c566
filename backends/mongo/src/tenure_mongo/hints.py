"""Hints from a change stream: a run's status in a job's document became one that gives its lease up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from pymongo.asynchronous.change_stream import AsyncChangeStream
from tenure.errors import BackendClosed, BackendError, BackendUnavailable

from tenure_mongo.expressions import Document
from tenure_mongo.link import Link

OVER = ["released", "success", "failed"]
AWAITED_MS = 1_000
"""How long the server keeps a request for news that has none."""
PAUSE_S = 0.2
"""Before a lost stream is opened again."""


async def listen(link: Link, collection: str, ids: list[Document]) -> AsyncIterator[str]:
    """The name of a job each time one of its leases was given up, until the link is closed; a lost stream comes back.

    Raises BackendMisconfigured where the user may not read change streams.
    """
    while not link.closed.is_set():
        with suppress(BackendUnavailable, BackendClosed):
            async with _stream(link, collection, ids) as stream:
                while True:
                    async with link.call(waited_for=False):
                        change = await stream.try_next()
                    if change is not None:
                        yield str(change["documentKey"]["_id"]["job"])
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_S):
                await link.closed.wait()


@asynccontextmanager
async def _stream(link: Link, collection: str, ids: list[Document]) -> AsyncIterator[AsyncChangeStream[Document]]:
    awaited_ms = min(AWAITED_MS, link.timeout_ms // 2) or 1
    async with link.call(waited_for=False):
        stream = await link.watched(collection).watch(changes_of(ids), max_await_time_ms=awaited_ms)
    try:
        yield stream
    finally:
        with suppress(BackendError):
            async with link.call(waited_for=False):
                await stream.close()


def changes_of(ids: list[Document]) -> list[Document]:
    """A change stream's pipeline: updates of these jobs in which a run was released or ended."""
    changed = {"$objectToArray": {"$ifNull": ["$updateDescription.updatedFields", {}]}}
    over = {"$anyElementTrue": {"$map": {"input": changed, "as": "field", "in": {"$in": ["$$field.v", OVER]}}}}
    return [
        {"$match": {"operationType": "update", "documentKey._id": {"$in": ids}, "$expr": over}},
        {"$project": {"documentKey": 1}},
    ]
