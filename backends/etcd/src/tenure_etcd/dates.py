"""Learns the store's clock from the Date headers of its HTTP side, since its gRPC side tells no time."""

import asyncio
import ssl
from contextlib import suppress

from tenure.clock import SystemClock
from tenure.dateclock import DateClock
from tenure.errors import BackendMisconfigured, BackendUnavailable

from tenure_etcd.settings import Settings

ENOUGH_MS = 15
"""The clock is looked at until it is known as well as this, or the time for it is over."""
STEP_MS = 20
MEASURE_S = 1.1
"""Within a second its end is seen."""
REFRESH_S = 20.0
_LIMIT = 65_536

_clocks: dict[tuple[str, ...], DateClock] = {}
"""Of each cluster that this process has used: it takes up to a second to learn one."""

monotonic_ms = SystemClock().monotonic_ms


def clock_of(settings: Settings) -> DateClock:
    """The clock of the cluster, shared by all backends of this process."""
    return _clocks.setdefault(settings.endpoints, DateClock())


class Dates:
    """Asks the members' HTTP side for the date, and tells the clock."""

    def __init__(self, settings: Settings, clock: DateClock) -> None:
        self._settings = settings
        self._clock = clock
        self._context = None if settings.tls is None else settings.tls.context()
        self._turn = 0

    async def measure(self, within_s: float) -> None:
        """Look until the clock is well known, for that long at most; raises BackendError if there is no date at all."""
        loop = asyncio.get_running_loop()
        until = loop.time() + min(within_s, MEASURE_S)
        if self._clock.known and self._clock.at(monotonic_ms()).error_ms <= ENOUGH_MS:
            return
        async with _Connection(self._endpoint(), self._context) as connection:
            while True:
                await connection.look(self._clock)
                if self._clock.at(monotonic_ms()).error_ms <= ENOUGH_MS or loop.time() >= until:
                    return
                await asyncio.sleep(STEP_MS / 1_000)

    async def keep_fresh(self) -> None:
        """Look now and then, at the moment that tells most, for as long as nobody ends it."""
        while True:
            await asyncio.sleep(REFRESH_S)
            now_ms = monotonic_ms()
            await asyncio.sleep((self._clock.best_moment_ms(now_ms) - now_ms) / 1_000)
            try:
                async with asyncio.timeout(REFRESH_S), _Connection(self._endpoint(), self._context) as connection:
                    await connection.look(self._clock)
            except (BackendUnavailable, BackendMisconfigured, OSError, TimeoutError):
                self._turn += 1  # the interval only widens meanwhile

    def _endpoint(self) -> tuple[str, int]:
        endpoints = self._settings.endpoints
        return self._settings.http_endpoint(endpoints[self._turn % len(endpoints)])


class _Connection:
    """An HTTP connection to one member."""

    def __init__(self, endpoint: tuple[str, int], context: ssl.SSLContext | None) -> None:
        self._host, self._port = endpoint
        self._context = context
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> "_Connection":
        try:
            self._streams = await asyncio.open_connection(
                self._host, self._port, ssl=self._context, limit=_LIMIT, happy_eyeballs_delay=0.25
            )
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


def _fields(head: str) -> dict[str, str]:
    """The header's fields, by their names in small letters."""
    pairs = (line.partition(":") for line in head.split("\r\n")[1:] if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
