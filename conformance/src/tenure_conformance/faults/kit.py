"""What a target offers so that faults can be tried on it: a way to a store that can be harmed, and how."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tenure_conformance.faults.proxy import Proxy

Power = Literal["network", "silence", "restart", "wrong", "newer", "newer-job"]
"""``network``: bytes on the way can be harmed. ``silence``: the store gives no answer. ``restart``: it cuts off all its
clients and comes back with what it stored. ``wrong``: there are URLs that it will not serve. ``newer``: there is one of
a newer schema. ``newer-job``: a job's state can be made one that a later version has stored."""

Hook = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """A store that can be harmed, for one rule; what the target does not declare is never asked of it.

    Clients that are opened on ``url`` have a timeout of ``timeout_ms``; ``direct`` leads to the same store, unharmed
    where that is possible. ``silence`` lasts until ``heal``.
    """

    url: str
    direct: str
    timeout_ms: int
    silence: Hook
    heal: Hook
    restart: Hook | None = None
    wrong: Mapping[str, str] = field(default_factory=dict)
    """What is wrong, and a URL with that; entering it must be BackendMisconfigured."""
    newer: str | None = None
    newer_job: Callable[[str, str], Awaitable[None]] | None = None
    """Makes the state of a job that is stored one of a later version: ``newer_job(namespace, job)``."""
    proxy: Proxy | None = None

    @property
    def network(self) -> Proxy:
        """The proxy of a target that declares ``network``."""
        assert self.proxy is not None, "the target declares the power 'network' and has no proxy"
        return self.proxy


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKit:
    """How a target's store is harmed: ``open(url, timeout_ms)``, entered once by each rule of level ``faults``."""

    powers: frozenset[Power]
    open: Callable[[str, int], AbstractAsyncContextManager[Faults]]


def proxied(
    *,
    port: int,
    restart: Callable[[str], Awaitable[None]] | None = None,
    wrong: Callable[[str], Mapping[str, str]] | None = None,
    newer: Callable[[str], Awaitable[str]] | None = None,
    newer_job: Callable[[str, str, str], Awaitable[None]] | None = None,
    endpoint: Callable[[str, int], tuple[str, int]] | None = None,
    through: Callable[[str, str, int], str] | None = None,
    timeout_option: str = "timeout",
) -> FaultKit:
    """The faults of a store with a network: a proxy on its way, and what else the target knows to do.

    ``port`` is the one of a URL that names none. ``endpoint(url, port)`` finds the store's host and port and
    ``through(url, host, port)`` puts others in their place, for URLs that are not ``scheme://user@host:port/…``.
    ``restart(url)`` restarts the store and returns when it answers again, ``wrong(url)`` gives URLs that it will not
    serve, by what is wrong with them, and ``newer(url)`` one of a place with a schema of a later version.
    ``newer_job(url, namespace, job)`` makes the state of that job one that a later version has stored.
    """
    offered = {"restart": restart, "wrong": wrong, "newer": newer, "newer-job": newer_job}
    powers: set[Power] = {"network", "silence"}
    powers |= {power for power in ("restart", "wrong", "newer", "newer-job") if offered[power] is not None}

    @asynccontextmanager
    async def open_proxied(url: str, timeout_ms: int) -> AsyncIterator[Faults]:
        async with Proxy.between(*(endpoint or endpoint_of)(url, port)) as proxy:
            address = (through or rewritten)(url, proxy.host, proxy.port)

            async def restarted() -> None:
                assert restart is not None
                await restart(url)

            yield Faults(
                url=with_option(address, timeout_option, f"{timeout_ms}ms"),
                direct=url,
                timeout_ms=timeout_ms,
                silence=proxy.silence,
                heal=proxy.heal,
                restart=restarted if restart is not None else None,
                wrong=wrong(url) if wrong is not None else {},
                newer=await newer(url) if newer is not None else None,
                newer_job=partial(newer_job, url) if newer_job is not None else None,
                proxy=proxy,
            )

    return FaultKit(powers=frozenset(powers), open=open_proxied)


def endpoint_of(url: str, port: int) -> tuple[str, int]:
    """Host and port of ``scheme://user@host:port/…``."""
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or port


def rewritten(url: str, host: str, port: int) -> str:
    """The URL with another host and port, and the same user."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}{at}{host}:{port}"))


def with_option(url: str, name: str, value: str) -> str:
    """The URL with that option in its query, instead of the one that was there."""
    place, _, query = url.partition("?")
    return f"{place}?{urlencode({**dict(parse_qsl(query, keep_blank_values=True)), name: value})}"
