"""Hints from a change stream: a run's status in a job's document became one that gives its lease up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from tenure.errors import BackendClosed, BackendError, BackendUnavailable

from tenure_mongo.expressions import Document
from tenure_mongo.link import Link, retrieve

OVER = ["released", "success", "failed"]
AWAITED_MS = 1_000
"""How long the server keeps a request for news that has none."""
PAUSE_S = 0.2
"""Before a lost stream is opened again."""


async def listen(link: Link, collection: str, ids: list[Document]) -> AsyncIterator[str]:
    """The name of a job each time one of its leases was given up, until the link is closed; a lost stream comes back.

    Raises BackendMisconfigured where the user may not read change streams.
    """
    listener = _Listener(link, collection, ids)
    task = asyncio.create_task(listener.listen())
    task.add_done_callback(retrieve)
    try:
        while (job := await listener.news.get()) is not None:
            yield job
        task.result()
    finally:
        listener.stopped = True


class _Listener:
    """Follows a change stream in a task that is asked to stop, and not cancelled: the driver does not bear it."""

    def __init__(self, link: Link, collection: str, ids: list[Document]) -> None:
        self.news: asyncio.Queue[str | None] = asyncio.Queue()
        self.stopped = False
        self._link = link
        self._collection = collection
        self._changes = changes_of(ids)
        self._since: dict[str, Any] = {"start_at_operation_time": link.operation_time}

    async def listen(self) -> None:
        """Tell the news, None when it is over."""
        try:
            while self._goes_on():
                with suppress(BackendUnavailable, BackendClosed):
                    await self._follow()
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_S):
                        await self._link.closed.wait()
        finally:
            self.news.put_nowait(None)

    async def _follow(self) -> None:
        awaited_ms = min(AWAITED_MS, self._link.timeout_ms // 2) or 1
        since, self._since = self._since, {}  # what cannot be gone on with is begun anew
        watched = self._link.watched(self._collection)
        opening = watched.watch(self._changes, max_await_time_ms=awaited_ms, **since)
        stream = await self._link.ask(opening, waited_for=False)
        try:
            while self._goes_on():
                change = await self._link.ask(stream.try_next(), waited_for=False)
                self._since = {"resume_after": stream.resume_token}
                if change is not None:
                    self.news.put_nowait(str(change["documentKey"]["_id"]["job"]))
        finally:
            with suppress(BackendError):
                await self._link.ask(stream.close(), waited_for=False)

    def _goes_on(self) -> bool:
        return not (self.stopped or self._link.closed.is_set())


def changes_of(ids: list[Document]) -> list[Document]:
    """A change stream's pipeline: updates of these jobs in which a run was released or ended."""
    changed = {"$objectToArray": {"$ifNull": ["$updateDescription.updatedFields", {}]}}
    over = {"$anyElementTrue": {"$map": {"input": changed, "as": "field", "in": {"$in": ["$$field.v", OVER]}}}}
    return [
        {"$match": {"operationType": "update", "documentKey._id": {"$in": ids}, "$expr": over}},
        {"$project": {"documentKey": 1}},
    ]
