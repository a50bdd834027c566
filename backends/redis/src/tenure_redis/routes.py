"""The ways to the server that serves a key: it alone, the primary that sentinels name, or the nodes of a cluster."""

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from redis.asyncio.connection import AbstractConnection
from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, RedisError, ResponseError
from tenure.errors import BackendError, BackendMisconfigured

from tenure_redis.node import Node, Replication, Request, closed, dialled
from tenure_redis.settings import Address, Settings

HOPS = 5
"""Redirections that one call follows; if there are more, the cluster is rearranged faster than can be followed."""


class Route(Protocol):
    """Brings each request to the server that serves its key."""

    spread: bool
    """Whether jobs may be on different servers, so that no script can see several of them."""

    async def ask(self, request: Request) -> Any:
        """The server's reply; its error, or the driver's, is raised."""

    async def ask_all(self, request: Request) -> list[Any]:
        """The replies of all primaries."""

    async def dial(self) -> AbstractConnection:
        """A connection of its own to any server that passes on what is published."""

    async def aclose(self) -> None:
        """Close the connections, after what is on its way."""


class Connector:
    """Makes connections by the settings, and nodes of them."""

    def __init__(
        self,
        settings: Settings,
        *,
        timeout_ms: int,
        connections: int,
        silent: Callable[[], Exception],
        replication: Replication | None,
    ) -> None:
        self.settings = settings
        self.timeout_s: float = timeout_ms / 1_000
        self._node_options: dict[str, Any] = {
            "timeout_ms": timeout_ms,
            "connections": connections,
            "silent": silent,
            "replication": replication,
        }

    def node(self, dial: Callable[[], Awaitable[AbstractConnection]]) -> Node:
        """A node whose connections are made like this."""
        return Node(dial, **self._node_options)

    async def dial(self, address: Address | None) -> AbstractConnection:
        """A connection to that server; None is the one path of the settings."""
        return await self._dial(self.settings.connection, self.settings.options, address, self.timeout_s)

    async def dial_sentinel(self, address: Address, seconds: float) -> AbstractConnection:
        """A connection to a sentinel."""
        return await self._dial(self.settings.sentinel_connection, self.settings.sentinel_options, address, seconds)

    async def _dial(
        self, kind: type[AbstractConnection], options: Any, address: Address | None, seconds: float
    ) -> AbstractConnection:
        where = {} if address is None else {"host": address[0], "port": address[1]}
        # The deadline is the convoy's: a timeout of the driver's on each read would only cost time.
        limits = {"socket_timeout": None, "socket_connect_timeout": seconds, "protocol": 2}
        return await dialled(kind(**{**options, **where, **limits}))


def route_of(connector: Connector) -> Route:
    """The way that the settings name."""
    settings = connector.settings
    if settings.kind == "cluster":
        return ClusterRoute(connector)
    if settings.kind == "sentinel":
        return NodeRoute(connector, lambda: dial_primary(connector))
    address = settings.addresses[0] if settings.addresses else None
    return NodeRoute(connector, lambda: connector.dial(address))


class NodeRoute:
    """One server, whose address may be found anew for each connection."""

    spread = False

    def __init__(self, connector: Connector, dial: Callable[[], Awaitable[AbstractConnection]]) -> None:
        self._node = connector.node(dial)
        self._dial = dial

    async def ask(self, request: Request) -> Any:
        """See Route."""
        return await self._node.ask(request)

    async def ask_all(self, request: Request) -> list[Any]:
        """See Route."""
        return [await self._node.ask(request)]

    async def dial(self) -> AbstractConnection:
        """See Route."""
        return await self._dial()

    async def aclose(self) -> None:
        """See Route."""
        await self._node.aclose()


async def dial_primary(connector: Connector) -> AbstractConnection:
    """A connection to the primary, as the first sentinel that answers names it."""
    settings = connector.settings
    share_s = connector.timeout_s / (len(settings.addresses) + 1)
    errors: list[Exception] = []
    for sentinel in settings.addresses:
        try:
            async with asyncio.timeout(share_s):
                address = await _primary_by(connector, sentinel, share_s)
        except (RedisError, OSError) as error:  # of which TimeoutError is one
            errors.append(error)
            continue
        if address is not None:
            return await connector.dial(address)
        errors.append(BackendMisconfigured(f"{settings.shown}: no sentinel knows a primary {settings.service!r}"))
    raise errors[-1]


async def _primary_by(connector: Connector, sentinel: Address, seconds: float) -> Address | None:
    connection = await connector.dial_sentinel(sentinel, seconds)
    try:
        await connection.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", connector.settings.service)
        found = await connection.read_response(disable_decoding=True)
    finally:
        await closed(connection)
    return None if found is None else (found[0].decode(), int(found[1]))


class ClusterRoute:
    """The primaries of a cluster; who serves which slots is asked when it is not known, or was found to be wrong."""

    spread = True

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._nodes: dict[Address, Node] = {}
        self._starts: list[int] = []
        self._owners: list[tuple[int, Address]] = []
        self._learning: asyncio.Task[None] | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._stale = True

    async def ask(self, request: Request) -> Any:
        """See Route; redirections are followed within one timeout."""
        async with asyncio.timeout(self._connector.timeout_s):
            address = await self._address_of(request.key)
            for _ in range(HOPS):
                try:
                    return await self._node(address).ask(request)
                except (RedisError, OSError, BackendError) as error:
                    elsewhere = _redirection(error)
                    if elsewhere is None:
                        self._stale = True
                        raise
                address = elsewhere.host or address[0], elsewhere.port  # no host: that of the sender
                moved = isinstance(elsewhere, MovedError)
                self._stale = self._stale or moved
                request = request._replace(asking=not moved)
            raise ClusterDownError("CLUSTERDOWN it redirects in circles")

    async def ask_all(self, request: Request) -> list[Any]:
        """See Route."""
        await self._learn()
        owners = {address for _, address in self._owners}
        return list(await asyncio.gather(*(self._node(address).ask(request) for address in owners)))

    async def dial(self) -> AbstractConnection:
        """See Route: each node passes on what was published at any other."""
        errors: list[Exception] = []
        for address in self._known():
            try:
                return await self._connector.dial(address)
            except (RedisError, OSError) as error:
                errors.append(error)
        raise errors[-1]

    async def aclose(self) -> None:
        """See Route."""
        closing = [*(node.aclose() for node in self._nodes.values()), *self._retiring]
        if self._learning is not None:
            closing.append(self._learning)
        await asyncio.gather(*closing, return_exceptions=True)

    def _node(self, address: Address) -> Node:
        if address not in self._nodes:
            self._nodes[address] = self._connector.node(lambda: self._connector.dial(address))
        return self._nodes[address]

    def _known(self) -> list[Address]:
        """The nodes to ask: those that serve slots, then those that were given."""
        return list(dict.fromkeys([*(address for _, address in self._owners), *self._connector.settings.addresses]))

    async def _address_of(self, key: str) -> Address:
        slot = key_slot(key.encode())
        if self._stale:
            await self._learn()
        index = bisect_right(self._starts, slot) - 1
        end, address = self._owners[index] if index >= 0 else (-1, ("", 0))
        if slot > end:
            self._stale = True
            raise ClusterDownError(f"CLUSTERDOWN no node serves slot {slot}")
        return address

    async def _learn(self) -> None:
        """Ask who serves which slots, once for all that wait for it."""
        if self._learning is None or self._learning.done():
            self._learning = asyncio.get_running_loop().create_task(self._ask_for_slots())
            self._learning.add_done_callback(_seen)
        await asyncio.shield(self._learning)

    async def _ask_for_slots(self) -> None:
        known = self._known()
        share_s = self._connector.timeout_s / (len(known) + 1)
        errors: list[Exception] = []
        for address in known:
            try:
                async with asyncio.timeout(share_s):
                    self._take(await self._node(address).ask(Request(("CLUSTER", "SLOTS"))), address)
            except (RedisError, OSError, BackendError) as error:  # of which TimeoutError is one
                errors.append(error)
            else:
                self._retire()
                return
        raise errors[-1]

    def _take(self, slots: Sequence[Any], sender: Address) -> None:
        ranges = sorted((start, end, _address(primary, sender)) for start, end, primary, *_ in slots)
        self._starts = [start for start, _, _ in ranges]
        self._owners = [(end, address) for _, end, address in ranges]
        self._stale = False

    def _retire(self) -> None:
        """Close what serves no slots any more; those that were given may be asked again."""
        known = set(self._known())
        for address in [address for address in self._nodes if address not in known]:
            task = asyncio.get_running_loop().create_task(self._nodes.pop(address).aclose())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)


def _seen(task: "asyncio.Task[None]") -> None:
    """Look at what came of it, even if nobody waits for it any more."""
    if not task.cancelled():
        task.exception()


def _redirection(error: Exception) -> AskError | None:
    """The redirection that the error is; before redis-py 6 only its cluster client knew them."""
    if isinstance(error, AskError):
        return error
    code, _, where = str(error).partition(" ")
    known = {"MOVED": MovedError, "ASK": AskError}.get(code) if isinstance(error, ResponseError) else None
    return known(where) if known is not None else None


def _address(primary: Sequence[Any], sender: Address) -> Address:
    host = (primary[0] or b"").decode()
    return (host if host not in ("", "?") else sender[0]), int(primary[1])
