"""One server: its few connections, and the calls that travel over them together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from hiredis import pack_command  # the connection's own is in Python, and took a third of a burst
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError, RedisError, ResponseError
from tenure.convoy import Convoy

from tenure_redis.errors import is_demoted
from tenure_redis.scripts import Script

Word = bytes | str | int
Command = tuple[Any, ...]
"""Words; the packer's types know no unions in a tuple."""
Dial = Callable[[], Awaitable[AbstractConnection]]


FAREWELL_S = 0.1


class Request(NamedTuple):
    """A command, or a script with its keys and arguments."""

    words: Command
    script: Script | None = None
    key: str = ""
    """One of its keys, which says where in a cluster it is served."""
    wins: Callable[[Any], bool] | None = None
    """Whether an answer is a win that replicas must have too; None where they need not."""
    asking: bool = False
    """Whether the node is importing the key's slot and serves it only when asked like this."""


def scripted(script: Script, keys: Sequence[str], *arguments: Word) -> Request:
    """A call of a script."""
    return Request(("EVALSHA", script.sha, len(keys), *keys, *arguments), script, keys[0] if keys else "")


class NotReplicated(Exception):
    """A win that too few replicas have, so many of them; it must be given back."""


@dataclass(frozen=True, slots=True)
class Replication:
    """How many replicas must have a win, and how long they are waited for."""

    replicas: int
    wait_ms: int


class Node:
    """A server that ``dial`` connects to; a connection that failed, or whose caller gave up, is never used again."""

    def __init__(
        self,
        dial: Dial,
        *,
        timeout_ms: int,
        connections: int,
        silent: Callable[[], Exception],
        replication: Replication | None = None,
    ) -> None:
        self._dial = dial
        self._replication = replication
        self._idle: list[AbstractConnection] = []
        self._convoy: Convoy[Request, Any] = Convoy(self._send, timeout_ms=timeout_ms, lanes=connections, silent=silent)

    async def ask(self, request: Request) -> Any:
        """The reply; the driver's error, or ``silent()``, if there is none."""
        return await self._convoy.ask(request)

    async def aclose(self) -> None:
        """Wait for what is on its way, within the timeout, and close the connections."""
        await self._convoy.aclose()
        idle, self._idle = self._idle, []
        await asyncio.gather(*map(closed, idle))

    async def _send(self, requests: list[Request]) -> list[Any]:
        connection = await self._connected()
        try:
            replies = await _exchange(connection, requests)
            await self._send_scripts(connection, requests, replies)
            await self._replicate(connection, requests, replies)
        except BaseException:
            await connection.disconnect(nowait=True)
            await self._close_idle()
            raise
        if any(map(is_demoted, replies)):
            await connection.disconnect(nowait=True)
            await self._close_idle()
        else:
            self._idle.append(connection)
        return replies

    async def _connected(self) -> AbstractConnection:
        """A connection that the server has not closed, as far as can be seen."""
        while self._idle:
            connection = self._idle.pop()
            if not await _is_stale(connection):
                return connection
            await connection.disconnect(nowait=True)
        return await self._dial()

    async def _send_scripts(self, connection: AbstractConnection, requests: list[Request], replies: list[Any]) -> None:
        """Send the source of what the server does not know (any more), once each, with the calls that need it."""
        unknown = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if not unknown:
            return
        sent: set[str] = set()
        again = []
        for index in unknown:
            request = requests[index]
            assert request.script is not None  # only scripts are unknown
            if request.script.sha not in sent:
                sent.add(request.script.sha)
                request = request._replace(words=("EVAL", request.script.source, *request.words[2:]))
            again.append(request)
        for index, reply in zip(unknown, await _exchange(connection, again), strict=True):
            replies[index] = reply

    async def _replicate(self, connection: AbstractConnection, requests: list[Request], replies: list[Any]) -> None:
        """Wait until enough replicas have the wins among the replies, or say that they have not."""
        wanted = self._replication
        if wanted is None:
            return
        pairs = enumerate(zip(requests, replies, strict=True))
        wins = [index for index, (request, reply) in pairs if request.wins is not None and request.wins(reply)]
        if wins:
            (have,) = await _exchange(connection, [Request(("WAIT", wanted.replicas, wanted.wait_ms))])
            if isinstance(have, Exception) or have < wanted.replicas:
                for index in wins:
                    replies[index] = NotReplicated(have)

    async def _close_idle(self) -> None:
        """Close what waits for use: where one connection failed, the others are likely to be dead too."""
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)


async def dialled(connection: AbstractConnection) -> AbstractConnection:
    """The connection, connected; closed again if that fails."""
    try:
        await connection.connect()  # type: ignore[no-untyped-call]  # the driver's types have a hole here
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return connection


async def closed(connection: AbstractConnection) -> None:
    """Close the connection; one with TLS takes leave of the server first, for a moment at most."""
    with suppress(TimeoutError, RedisError, OSError):
        async with asyncio.timeout(FAREWELL_S):
            await connection.disconnect()


async def _is_stale(connection: AbstractConnection) -> bool:
    """Whether the server has closed it, or has said something that nobody asked for."""
    look = getattr(connection, "can_read", None) or connection.can_read_destructive  # its name before redis-py 8
    try:
        return bool(await look())
    except (RedisError, OSError):
        return True


async def _exchange(connection: AbstractConnection, requests: Sequence[Request]) -> list[Any]:
    """Send the requests in one go and read their replies, an error reply being that of its request alone."""
    packed: list[bytes] = []
    for request in requests:
        if request.asking:
            packed.append(pack_command(("ASKING",)))
        packed.append(pack_command(request.words))
    await connection.send_packed_command(b"".join(packed), check_health=False)
    replies: list[Any] = []
    for request in requests:
        if request.asking:
            with suppress(ResponseError):
                await connection.read_response(disable_decoding=True)
        try:
            replies.append(await connection.read_response(disable_decoding=True))
        except ResponseError as error:
            replies.append(error)
    return replies
