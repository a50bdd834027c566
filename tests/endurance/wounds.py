"""How all connections to a store are ended: by the server's own means, or by a proxy where it has none."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from chaos.stores import Store
from tenure_conformance.faults.proxy import Proxy

Sever = Callable[[], Awaitable[None]]


@asynccontextmanager
async def way_to(target: str, store: Store) -> AsyncIterator[tuple[str, Sever | None]]:
    """The URL for the instances, and what ends their connections; None for a store without any."""
    if store.endpoint is None:
        yield store.url, None
    elif target in _ENDED_BY_SERVER:
        yield store.url, lambda: _ENDED_BY_SERVER[target](store.url)
    else:
        async with Proxy.between(*store.endpoint) as proxy:
            yield store.through(proxy.host, proxy.port), proxy.reset


async def _redis(url: str) -> None:
    from redis.asyncio import Redis

    async with Redis.from_url(url.partition("?")[0]) as client:
        for kind in ("normal", "pubsub"):
            await client.client_kill_filter(_type=kind, skipme=True)


async def _postgres(url: str) -> None:
    from psycopg import AsyncConnection

    ending = (
        "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'client backend' and pid <> %s"
    )
    async with await AsyncConnection.connect(url.partition("?")[0], autocommit=True) as connection:
        await connection.execute(ending, [connection.info.backend_pid])


_ENDED_BY_SERVER: dict[str, Callable[[str], Awaitable[None]]] = {"redis": _redis, "postgres": _postgres}
