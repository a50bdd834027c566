"""Learns the store's clock from the Date headers of its HTTP side, since its gRPC side tells no time."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress

from tenure.clock import SystemClock
from tenure.dateclock import DateClock
from tenure.errors import BackendError, BackendMisconfigured, BackendUnavailable

from tenure_etcd.settings import Settings

CLOCK_ERROR_MS = 50
"""What is promised: more than what is enough, and than two clocks can drift apart until the next look."""
ENOUGH_MS = 20
STEP_MS = 15
REFRESH_S = 20.0
_LIMIT = 65_536

_clocks: dict[int, DateClock] = {}
"""Of each cluster that this process has used, by its id: it takes up to a second to learn one."""

monotonic_ms: Callable[[], float] = SystemClock().monotonic_ms


def clock_of(cluster_id: int) -> DateClock:
    """The clock of the cluster, shared by all backends of this process."""
    return _clocks.setdefault(cluster_id, DateClock())


class Dates:
    """Asks the members' HTTP side for the date, and tells a clock."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._context = None if settings.tls is None else settings.tls.context()
        self._turn = 0

    async def measure(self, clock: DateClock) -> None:
        """Look until a second's end was seen, and the clock is known well; BackendError if no member tells the date."""
        for _ in self._settings.endpoints[1:]:
            with suppress(BackendUnavailable):
                return await self._measure(clock)
            self._turn += 1
        return await self._measure(clock)

    async def keep_fresh(self, clock: DateClock) -> None:
        """Look now and then, at the moment that tells most, for as long as nobody ends it."""
        while True:
            await asyncio.sleep(REFRESH_S)
            now_ms = monotonic_ms()
            await asyncio.sleep((clock.best_moment_ms(now_ms) - now_ms) / 1_000)
            try:
                async with asyncio.timeout(REFRESH_S), self._connection() as connection:
                    await connection.look(clock)
                if not _is_known(clock, CLOCK_ERROR_MS):  # it was set
                    await self._measure(clock)
            except (BackendError, TimeoutError):
                self._turn += 1  # the interval only widens meanwhile

    async def _measure(self, clock: DateClock) -> None:
        if _is_known(clock, ENOUGH_MS):
            return
        async with self._connection() as connection:
            await connection.look(clock)
            while not _is_known(clock, ENOUGH_MS):
                await asyncio.sleep(STEP_MS / 1_000)
                await connection.look(clock)

    def _connection(self) -> "_Connection":
        endpoints = self._settings.endpoints
        return _Connection(self._settings.http_endpoint(endpoints[self._turn % len(endpoints)]), self._context)


def _is_known(clock: DateClock, error_ms: int) -> bool:
    return clock.known and clock.at(monotonic_ms()).error_ms <= error_ms


class _Connection:
    """An HTTP connection to one member."""

    def __init__(self, endpoint: tuple[str, int], context: ssl.SSLContext | None) -> None:
        self._host, self._port = endpoint
        self._context = context
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> "_Connection":
        try:
            self._streams = await asyncio.open_connection(self._host, self._port, ssl=self._context, limit=_LIMIT)
        except OSError as exc:
            raise BackendUnavailable(f"http://{self._host}:{self._port}: {exc}") from exc
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._streams is not None:
            writer = self._streams[1]
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def look(self, clock: DateClock) -> None:
        """Let the clock learn from one reply."""
        assert self._streams is not None
        reader, writer = self._streams
        sent_ms = monotonic_ms()
        writer.write(f"GET /version HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            received_ms = monotonic_ms()
            fields = _fields(head)
            await reader.readexactly(int(fields.get("content-length", "0")))
            clock.observe(fields["date"], sent_ms, received_ms)
        except (KeyError, ValueError, asyncio.LimitOverrunError) as exc:
            raise BackendMisconfigured(
                f"http://{self._host}:{self._port}/version: it tells no date, and etcd's client port does;"
                " give http_port if its HTTP side is on another (--listen-client-http-urls)"
            ) from exc
        except (OSError, EOFError) as exc:
            raise BackendUnavailable(f"http://{self._host}:{self._port}: {exc or 'it hung up'}") from exc


_ASKS_FOR_TLS = "it asks for TLS; write etcds:// instead of etcd://"


async def wrong_speech(settings: Settings, endpoint: str) -> str | None:
    """What is wrong about TLS on the way to a member that did not answer over gRPC; None if nothing is."""
    host, _, port = endpoint.rpartition(":")
    place = host.strip("[]"), int(port)
    try:
        if settings.tls is None:
            async with _Connection(place, _any_certificate()):
                return _ASKS_FOR_TLS
        async with _Connection(place, None) as connection:
            await connection.look(DateClock())
            return "it does not speak TLS; write etcd:// instead of etcds://"
    except BackendError as exc:
        # A server that asks for the client's certificate may break off, but it does so in the words of TLS.
        alerted = isinstance(exc.__cause__, ssl.SSLError) and "ALERT" in str(exc.__cause__).upper()
        return _ASKS_FOR_TLS if alerted and settings.tls is None else None


def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is told to it, nor believed
    return context


def _fields(head: str) -> dict[str, str]:
    """The header's fields, by their names in small letters."""
    pairs = (line.partition(":") for line in head.split("\r\n")[1:] if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
