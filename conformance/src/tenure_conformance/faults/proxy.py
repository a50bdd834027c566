"""A TCP proxy between a client and its store that sees only bytes: it loses, cuts, delays, holds and repeats them."""

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

from tenure_conformance.timing import monotonic_ms, sleep_until

CHUNK = 65_536
KEPT_BYTES = 4_000_000
"""What the clients sent is remembered up to this size."""
REPLAY_MS = 50
"""How long a replayed request waits for an answer before the next one is sent."""


class Cut(Exception):
    """The connection is ended on both sides, after the receiver got this much."""

    def __init__(self, data: bytes = b"", *, reset: bool = True) -> None:
        super().__init__()
        self.data = data
        self.reset = reset


class Fault:
    """What happens to the bytes of either direction; this one lets all of them through."""

    request_ms: float = 0
    """How long requests take to the store; as on a long way, one does not wait for another."""
    reply_ms: float = 0
    """How long replies take to the client."""

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
    """The next request is lost and its connection reset; then all is well again."""

    async def request(self, proxy: "Proxy", data: bytes) -> bytes:
        """See Fault."""
        del data
        proxy.strike()
        raise Cut


@dataclass
class LostRequests(Fault):
    """Every request with this text in it is lost and its connection reset; every one if no text is given."""

    text: str = ""

    async def request(self, proxy: "Proxy", data: bytes) -> bytes:
        """See Fault."""
        if self.text.encode() not in data:
            return data
        proxy.fired += 1
        raise Cut


@dataclass
class CutReply(Fault):
    """After ``passing`` replies one is cut after a part of it, and its connection is ended; then all is well again."""

    passing: int
    part: float = 0.0
    reset: bool = True
    """Ended by a reset, or as if that were all."""
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
        proxy.strike()
        raise Cut(data[: int(len(data) * self.part)], reset=self.reset)


@dataclass
class Delay(Fault):
    """Bytes take at least so long, each way."""

    request_ms: float
    reply_ms: float


@dataclass(eq=False)
class Link:
    """One connection of a client, and the one to the store that belongs to it."""

    client: asyncio.StreamWriter
    requests: list[bytes] = field(default_factory=list)
    store: asyncio.StreamWriter | None = None

    def end(self, *, reset: bool = True) -> None:
        """End both, with RST unless said otherwise, so that nobody takes what came so far for all."""
        for writer in (self.client, self.store):
            if writer is not None:
                _reset(writer) if reset else writer.close()


class Proxy:
    """Listens on ``host`` and ``port``, of this host, and connects to the store's for each connection.

    It lives on a thread of its own, so that a client that blocks its loop does not hold it up. ``fault`` is set from
    outside; faults last until ``heal``, but for those that say otherwise.
    """

    def __init__(self, store_host: str, store_port: int) -> None:
        self.host: str = "127.0.0.1"
        self.port: int = 0
        self.fault: Fault = Fault()
        self.links: list[Link] = []
        self.live: set[Link] = set()
        """The connections that are open now."""
        self.turns: int = 0
        """How often a client sent something after it had been answered."""
        self.fired: int = 0
        """How often a fault has struck."""
        self._store = store_host, store_port
        self._answered = True
        self._reserved = socket.socket()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._open.set()

    @classmethod
    @asynccontextmanager
    async def between(cls, store_host: str, store_port: int) -> AsyncIterator[Self]:
        """A proxy that listens until the context is left."""
        proxy = cls(store_host, store_port)
        # Bound and never listening, the port stays this proxy's while it refuses.
        proxy._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        proxy._reserved.bind((proxy.host, 0))
        proxy.port = proxy._reserved.getsockname()[1]
        thread = threading.Thread(target=proxy._loop.run_forever, name="tenure-conformance-proxy", daemon=True)
        thread.start()
        try:
            await proxy._there(proxy._listen())
            yield proxy
        finally:
            await proxy._there(proxy._close())
            proxy._loop.call_soon_threadsafe(proxy._loop.stop)
            await asyncio.to_thread(thread.join)
            proxy._loop.close()
            proxy._reserved.close()

    async def silence(self) -> None:
        """Swallow everything, as a network that lost its route does; what was swallowed arrives after ``heal``."""
        await self._there(self._silence())

    async def refuse(self) -> None:
        """Reset every connection and refuse new ones."""
        await self._there(self._refuse())

    async def reset(self) -> None:
        """Reset every connection; new ones are taken. What was swallowed is lost."""
        await self._there(self._reset())

    async def heal(self) -> None:
        """Let everything through again; what was swallowed meanwhile arrives, also from clients that are gone."""
        self.fault = Fault()
        await self._there(self._heal())

    async def replay(self) -> None:
        """Send everything that was ever sent once more, each connection's requests over a new one."""
        await self._there(self._replay_all())

    def sent(self, text: str) -> int:
        """How often the clients have sent this text, 0 if it is encoded or encrypted."""
        return sum(b"".join(link.requests).count(text.encode()) for link in tuple(self.links))

    def strike(self) -> None:
        """A fault that strikes once has struck."""
        self.fired += 1
        self.fault = Fault()

    async def _there(self, work: Coroutine[Any, Any, None]) -> None:
        """On the proxy's own loop."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _silence(self) -> None:
        self._open.clear()

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._reset()

    async def _reset(self) -> None:
        for link in tuple(self.live):
            link.end()
            self.live.discard(link)

    async def _heal(self) -> None:
        self._open.set()
        if self._server is None:
            await self._listen()

    async def _replay_all(self) -> None:
        for link in tuple(self.links):
            await self._replay(tuple(link.requests))

    async def _listen(self) -> None:
        listening = socket.create_server((self.host, self.port), reuse_port=True)
        self._server = await asyncio.start_server(self._serve, sock=listening, limit=CHUNK)

    async def _close(self) -> None:
        await self._refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

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
            link.end()
        finally:
            self.live.discard(link)
            with suppress(asyncio.CancelledError):  # the task's end, which asyncio would log if it were cancelled
                await _closed(writer)

    async def _connect(self, link: Link, reader: asyncio.StreamReader) -> None:
        await self._open.wait()
        store_reader, link.store = await asyncio.open_connection(*self._store)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(link, reader, link.store, self._request))
                group.create_task(self._pump(link, store_reader, link.client, self._reply))
        except* OSError:
            link.end()
        finally:
            await _closed(link.store)

    async def _pump(
        self,
        link: Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        passed: Callable[[Link, float, bytes], Awaitable[bytes]],
    ) -> None:
        """Carry one direction until its end, which the other side is then told."""
        arrived: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        reading = asyncio.create_task(_read(reader, arrived))
        try:
            while (arrival := await arrived.get())[1]:
                await self._open.wait()
                for piece in self.fault.pieces(await passed(link, *arrival)):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
            await reading  # it may have ended with an error
            await self._open.wait()
            if writer.can_write_eof():
                writer.write_eof()
        except Cut as cut:
            with suppress(OSError):
                writer.write(cut.data)
                await writer.drain()
            link.end(reset=cut.reset)
        finally:
            reading.cancel()

    async def _request(self, link: Link, arrived_ms: float, data: bytes) -> bytes:
        if self._answered:
            self._answered = False
            self.turns += 1
        if sum(len(sent) for sent in link.requests) < KEPT_BYTES:
            link.requests.append(data)
        await sleep_until(arrived_ms + self.fault.request_ms)
        return await self.fault.request(self, data)

    async def _reply(self, _link: Link, arrived_ms: float, data: bytes) -> bytes:
        await sleep_until(arrived_ms + self.fault.reply_ms)
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


async def _read(reader: asyncio.StreamReader, arrived: "asyncio.Queue[tuple[float, bytes]]") -> None:
    """Note what comes, and when, until nothing more does."""
    try:
        while data := await reader.read(CHUNK):
            arrived.put_nowait((monotonic_ms(), data))
    finally:
        arrived.put_nowait((monotonic_ms(), b""))


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with suppress(OSError, AttributeError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
