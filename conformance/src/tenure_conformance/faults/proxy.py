"""A TCP proxy between a client and its store that sees only bytes: it loses, cuts, delays, holds and repeats them."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from tenure_conformance.timing import monotonic_ms, sleep_until

CHUNK = 65_536
KEPT_BYTES = 4_000_000
"""What the clients sent is remembered up to this size."""
REPLAY_MS = 50
"""How long a replayed request waits for an answer before the next one is sent."""


class Cut(Exception):
    """The connection is reset on both sides, now."""


class Fault:
    """What happens to the bytes of either direction; this one lets all of them through."""

    async def request(self, proxy: "Proxy", data: bytes) -> bytes:
        """What the store gets of what a client sent; Cut ends the connection."""
        del proxy
        return data

    async def reply(self, proxy: "Proxy", data: bytes) -> bytes:
        """What the client gets of what the store sent; Cut ends the connection."""
        del proxy
        return data

    def pieces(self, data: bytes) -> Iterable[bytes]:
        """The parts in which it is passed on."""
        return (data,)


@dataclass
class Dribble(Fault):
    """Everything arrives in small parts: a byte at a time first, then seven."""

    single: int = 40

    def pieces(self, data: bytes) -> Iterable[bytes]:
        """See Fault."""
        first, rest = data[: self.single], data[self.single :]
        yield from (first[at : at + 1] for at in range(len(first)))
        yield from (rest[at : at + 7] for at in range(0, len(rest), 7))


@dataclass
class LostRequest(Fault):
    """The first request is lost, and its connection is reset."""

    async def request(self, proxy: "Proxy", data: bytes) -> bytes:
        """See Fault."""
        del data
        proxy.fault = Fault()
        proxy.fired += 1
        raise Cut


@dataclass
class NoRequests(Fault):
    """Every request is lost, and its connection is reset."""

    async def request(self, proxy: "Proxy", data: bytes) -> bytes:
        """See Fault."""
        del data
        proxy.fired += 1
        raise Cut


@dataclass
class CutReply(Fault):
    """After ``passing`` replies one is cut after a part of it, and its connection is reset; then all is well again."""

    passing: int
    part: float = 0.0
    _begun: int | None = None

    async def request(self, proxy: "Proxy", data: bytes) -> bytes:
        """See Fault."""
        if self._begun is None:
            self._begun = proxy.turns
        return data

    async def reply(self, proxy: "Proxy", data: bytes) -> bytes:
        """See Fault."""
        if self._begun is None or proxy.turns - self._begun < self.passing:
            return data
        proxy.fault = Fault()
        proxy.fired += 1
        raise PartialCut(data[: int(len(data) * self.part)])


class PartialCut(Cut):
    """The connection is reset after the client got this much."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data


@dataclass
class Delay(Fault):
    """Bytes take at least so long, each way."""

    request_ms: float
    reply_ms: float

    async def request(self, proxy: "Proxy", data: bytes) -> bytes:
        """See Fault."""
        del proxy
        await sleep_until(monotonic_ms() + self.request_ms)
        return data

    async def reply(self, proxy: "Proxy", data: bytes) -> bytes:
        """See Fault."""
        del proxy
        await sleep_until(monotonic_ms() + self.reply_ms)
        return data


@dataclass(eq=False)
class Link:
    """One connection of a client, and the one to the store that belongs to it."""

    client: asyncio.StreamWriter
    requests: list[bytes] = field(default_factory=list)
    store: asyncio.StreamWriter | None = None

    def reset(self) -> None:
        """End both with RST, so that nobody takes what came so far for the end."""
        for writer in (self.client, self.store):
            if writer is not None:
                _reset(writer)


class Proxy:
    """Listens on ``host`` and ``port``, new ones of this host, and connects to the store's for each connection.

    Faults last until ``heal``, but for those that say otherwise.
    """

    def __init__(self, store_host: str, store_port: int) -> None:
        self._store = store_host, store_port
        self._open = asyncio.Event()
        self._open.set()
        self._reserved = socket.socket()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._answered = True
        self.host, self.port = "127.0.0.1", 0
        self.fault: Fault = Fault()
        self.links: list[Link] = []
        self.live: set[Link] = set()
        """The connections that are open now."""
        self.turns = 0
        """How often a client sent something after it had been answered."""
        self.fired = 0
        """How often a fault that strikes once has struck."""

    @classmethod
    @asynccontextmanager
    async def between(cls, store_host: str, store_port: int) -> AsyncIterator[Self]:
        """A proxy that listens until the context is left."""
        proxy = cls(store_host, store_port)
        # Bound and never listening, the port stays this proxy's while it refuses.
        proxy._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        proxy._reserved.bind((proxy.host, 0))
        proxy.port = proxy._reserved.getsockname()[1]
        try:
            await proxy._listen()
            yield proxy
        finally:
            await proxy._close()

    def silence(self) -> None:
        """Swallow everything, as a network that lost its route does; what was swallowed arrives after ``heal``."""
        self._open.clear()

    async def refuse(self) -> None:
        """Reset every connection and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.reset()

    def reset(self) -> None:
        """Reset every connection; new ones are taken. What was swallowed is lost."""
        for link in tuple(self.live):
            link.reset()
            self.live.discard(link)

    async def heal(self) -> None:
        """Let everything through again; what was swallowed meanwhile arrives, also from clients that are gone."""
        self.fault = Fault()
        self._open.set()
        if self._server is None:
            await self._listen()

    def sent(self, text: str) -> int:
        """How often the clients have sent this text, 0 if it is encoded or encrypted."""
        return sum(b"".join(link.requests).count(text.encode()) for link in self.links)

    async def replay(self) -> None:
        """Send everything that was ever sent once more, each connection's requests over a new one."""
        for link in tuple(self.links):
            await self._replay(tuple(link.requests))

    async def _listen(self) -> None:
        listening = socket.create_server((self.host, self.port), reuse_port=True)
        self._server = await asyncio.start_server(self._serve, sock=listening, limit=CHUNK)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._reserved.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        link = Link(writer)
        self.links.append(link)
        self.live.add(link)
        try:
            await self._connect(link, reader)
        except (OSError, asyncio.CancelledError):
            link.reset()
        finally:
            self.live.discard(link)
            await _closed(writer)

    async def _connect(self, link: Link, reader: asyncio.StreamReader) -> None:
        await self._open.wait()
        store_reader, link.store = await asyncio.open_connection(*self._store)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(link, reader, link.store, self._request))
                group.create_task(self._pump(link, store_reader, link.client, self._reply))
        except* OSError:
            link.reset()
        finally:
            await _closed(link.store)

    async def _pump(
        self,
        link: Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        passed: Callable[[Link, bytes], Awaitable[bytes]],
    ) -> None:
        """Carry one direction until its end, which the other side is then told."""
        try:
            while data := await reader.read(CHUNK):
                await self._open.wait()
                for piece in self.fault.pieces(await passed(link, data)):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
            await self._open.wait()
            if writer.can_write_eof():
                writer.write_eof()
        except PartialCut as cut:
            with suppress(OSError):
                writer.write(cut.data)
                await writer.drain()
            link.reset()
        except Cut:
            link.reset()

    async def _request(self, link: Link, data: bytes) -> bytes:
        if self._answered:
            self._answered = False
            self.turns += 1
        if sum(len(sent) for sent in link.requests) < KEPT_BYTES:
            link.requests.append(data)
        return await self.fault.request(self, data)

    async def _reply(self, _link: Link, data: bytes) -> bytes:
        passed = await self.fault.reply(self, data)
        self._answered = True
        return passed

    async def _replay(self, requests: tuple[bytes, ...]) -> None:
        reader, writer = await asyncio.open_connection(*self._store)
        try:
            with suppress(OSError):
                for data in requests:
                    writer.write(data)
                    await writer.drain()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(REPLAY_MS / 1_000):
                            await reader.read(CHUNK)
        finally:
            await _closed(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with suppress(OSError, AttributeError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
