"""The way to the store: a client of the driver, in the loop and process that entered, with a deadline for each call."""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

import pymongo
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from tenure.duration import to_text
from tenure.errors import BackendClosed, BackendError, BackendMisconfigured, BackendUnavailable

from tenure_mongo.errors import connection_error, server_error, translate
from tenure_mongo.expressions import Document

Answer = TypeVar("Answer")
Client = AsyncMongoClient[Document]
Documents = list[Document]

MAJORITY: Document = {"w": "majority", "j": True}
"""Of every write, whatever the URL or the client says."""
GRACE_S = 0.1
"""How much later than the driver's our own deadline is: its error says more."""
AGAIN = 5
"""How often what another call came between is tried at most."""

_DATES: CodecOptions[Document] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)


class Link:
    """An open client; ``owned`` is closed with it. It serves the process and the event loop that made it."""

    def __init__(self, client: Client, database: str, place: str, *, timeout_ms: int, owned: bool) -> None:
        self.place = place
        self.timeout_ms = timeout_ms
        self.closed: asyncio.Event = asyncio.Event()
        self.operation_time: Any = None
        """The server's, at the last command: what is listened to begins there, however late the stream is opened."""
        self._client = client
        self._owned = owned
        self._database: AsyncDatabase[Document] = client.get_database(
            database,
            codec_options=_DATES,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
        )
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._calls: set[asyncio.Task[Any]] = set()
        self._ahead_ms = 0.0

    async def ask(self, work: Coroutine[Any, Any, Answer], *, waited_for: bool = True) -> Answer:
        """The answer to what is asked of the driver, within a deadline for all of it; its errors as the protocol's.

        Closing waits for it unless it is said otherwise. It goes on when its caller is cancelled, and ends by the
        driver's own deadline: two cancellations in a row leave a lock of the driver's pool held for ever.
        """
        seconds = self.timeout_ms / 1_000
        with pymongo.timeout(seconds):
            task = self._loop.create_task(work)
        task.add_done_callback(retrieve)
        if waited_for:
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        await asyncio.wait([task], timeout=seconds + GRACE_S)
        if not task.done():
            raise self._silent() from TimeoutError(f"{seconds + GRACE_S} s are over")
        try:
            return task.result()
        except Exception as error:
            translated = translate(error, self.place)
            if translated is error:
                raise
            raise translated from error

    def _silent(self) -> BackendError:
        """What is told at the deadline, with what the driver knows of the servers."""
        faults = [server.error for server in self._client.topology_description.server_descriptions().values()]
        said = "; ".join(str(fault) for fault in faults if fault)
        return connection_error(self.place, f"no answer within {to_text(self.timeout_ms)}{said and ': '}{said}")

    async def command(self, command: Document) -> Document:
        """The server's reply. The driver sends a command once, to the primary, and never again by itself."""
        reply = await self._database.command(command, codec_options=_DATES)
        self.operation_time = reply.get("operationTime")
        for fault in (reply.get("writeConcernError"), *reply.get("writeErrors", ())):
            if fault:
                raise server_error(self.place, fault.get("code"), fault.get("errmsg", "a write failed"))
        return reply

    async def update(self, collection: str, **statement: Any) -> bool:
        """Whether this update statement changed a document."""
        reply = await self.command({"update": collection, "updates": [statement], "writeConcern": MAJORITY})
        return bool(reply["nModified"])

    async def find(self, collection: str, asked: Document, wanted: Document | None = None, **options: Any) -> Documents:
        """The documents that are asked for, read on the primary."""
        if not await self._client.is_primary:  # a direct connection goes on to a member that has stepped down
            raise BackendUnavailable(f"{self.place}: it is not the primary")
        return await self._database[collection].find(asked, wanted, **options).to_list()

    def learn_clock(self, now_ms: int) -> None:
        """The server's clock, as it has just told."""
        self._ahead_ms = now_ms - self._loop.time() * 1_000

    def guessed_ms(self) -> float:
        """About what the server's clock shows; good for a guess of what will be answered, and for nothing else."""
        return self._loop.time() * 1_000 + self._ahead_ms

    def watched(self, collection: str) -> AsyncCollection[Document]:
        """The collection, for its change stream."""
        return self._database[collection]

    def check(self) -> None:
        """Refuse another process or event loop, and what comes after closing."""
        if self._pid != os.getpid():
            raise BackendMisconfigured(
                f"{self.place}: this process was forked after the backend was entered; enter it after the fork"
            )
        if self._loop is not asyncio.get_running_loop():
            raise BackendMisconfigured(
                f"{self.place}: the backend was entered in another event loop; enter one object in each"
            )
        if self.closed.is_set():
            raise BackendClosed(f"{self.place}: the backend was left")

    async def close(self) -> None:
        """Wait for the calls on their way, no longer than their deadline, and close the client if it is owned."""
        if self._pid != os.getpid() or self._loop is not asyncio.get_running_loop():
            return
        self.closed.set()
        until = self._loop.time() + self.timeout_ms / 1_000
        if self._calls:
            await asyncio.wait(self._calls, timeout=until + GRACE_S - self._loop.time())
        if self._owned:
            await self._close_client(max(until - self._loop.time(), GRACE_S))

    async def _close_client(self, seconds: float) -> None:
        """Close it; where that takes too long, again, for then it no longer wants to tell the server."""
        for left_s in (seconds, GRACE_S):
            with pymongo.timeout(left_s):
                closing = self._loop.create_task(self._client.close())
            closing.add_done_callback(retrieve)
            ended, _ = await asyncio.wait([closing], timeout=left_s)
            if ended:
                return


def retrieve(task: "asyncio.Task[Any]") -> None:
    """Look at the error of a task that nobody may wait for any more."""
    if not task.cancelled():
        task.exception()
