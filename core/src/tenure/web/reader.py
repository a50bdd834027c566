"""Reads the store for the page: once for all who look, and only while somebody looks."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from tenure.clock import Clock, SystemClock
from tenure.errors import BackendMisconfigured, BackendUnavailable, TenureError
from tenure.events import logger
from tenure.history import read_rows
from tenure.protocol import Backend, LeaseBackend, has_leases
from tenure.story import Known
from tenure.web.board import Board
from tenure.web.rounds import Rounds

_ROUND_S = 1.0
_LINGER_S = 10.0
"""A browser that comes back soon finds the reader at work."""
_ENTER_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_RECORDS = 1_000


class Reader:
    """Keeps a board of what the store says; ``jobs`` are named besides those that the store has cards of."""

    def __init__(self, connect: Callable[[], Backend], jobs: Sequence[str] = (), *, clock: Clock | None = None) -> None:
        self.board: Board = Board()
        self._connect = connect
        self._clock = clock or SystemClock()
        self._rounds = Rounds(self.board, jobs, self._clock)
        self._watchers = 0
        self._task: asyncio.Task[None] | None = None
        self._backend: LeaseBackend | None = None
        self._entered = asyncio.Event()

    def now_ms(self) -> int:
        """The store's time, as the last answer told; before the first, this machine's."""
        return self._rounds.now_ms()

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Board]:
        """Have the board kept up to date meanwhile, and for some seconds longer."""
        self._watchers += 1
        self._task = self._task or asyncio.create_task(self._read())
        try:
            yield self.board
        finally:
            self._watchers -= 1
            asyncio.get_running_loop().call_later(_LINGER_S, self._rest)

    async def aclose(self) -> None:
        """Read no more, and leave the store."""
        if task := self._task:
            self._stop(task)
            with suppress(asyncio.CancelledError):
                await task

    def expect(self, job: str) -> None:
        """Look at the job in the next rounds: something will have happened to it."""
        self._rounds.expect(job)

    async def known(self, job: str) -> Known:
        """All that is kept of a job. Raises BackendError."""
        async with self.watched():
            backend = await self._store()
            active = await backend.active([job])
            rows = read_rows(await backend.results(job, limit=_RECORDS), active.runs, _RECORDS)
            return Known(job=job, now_ms=active.now_ms, rows=rows, active=active.runs, card=self._rounds.card(job))

    def _rest(self) -> None:
        if self._task and not self._watchers:
            self._stop(self._task)

    def _stop(self, task: asyncio.Task[None]) -> None:
        self._task = None
        task.cancel()
        self._rounds.forget()

    async def _store(self) -> LeaseBackend:
        try:
            async with asyncio.timeout(_ENTER_S):
                await self._entered.wait()
        except TimeoutError:
            raise BackendUnavailable(f"the store could not be reached within {_ENTER_S:g} seconds") from None
        assert self._backend is not None
        return self._backend

    async def _read(self) -> None:
        """Go on until cancelled, with growing pauses while the store is away."""
        pause_s = _FIRST_PAUSE_S
        self.board.put("store", {"state": "connecting"})
        while True:
            try:
                async with self._connect() as backend:
                    self._backend = readable(backend)
                    self._entered.set()
                    while True:
                        await self._round(self._backend)
                        pause_s = _FIRST_PAUSE_S
            except Exception as error:  # noqa: BLE001 - the page says so, and goes on when the store is back
                self._say_away(error)
            finally:
                self._entered.clear()
                self._backend = None
            await asyncio.sleep(pause_s * random.uniform(0.75, 1.25))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _round(self, backend: LeaseBackend) -> None:
        began_ms = self._clock.monotonic_ms()
        await self._rounds.round(backend)
        self.board.put("store", {"state": "there"})
        took_s = (self._clock.monotonic_ms() - began_ms) / 1_000
        await asyncio.sleep(max(_ROUND_S - took_s, took_s))  # a slow store is asked for half of the time at most

    def _say_away(self, error: Exception) -> None:
        if not isinstance(error, TenureError):
            logger.error("the page could not read the store", exc_info=error)
        text = str(error) if isinstance(error, TenureError) else f"{type(error).__name__}, see the log"
        known = self.board.since(0).get("store", {})
        since_ms = known.get("since_ms") or self.now_ms()
        self.board.put("store", {"state": "away", "since_ms": since_ms, "error": text})


def readable(backend: Backend) -> LeaseBackend:
    """The entered backend, if there is something to read; BackendMisconfigured if not."""
    if not has_leases(backend):
        raise BackendMisconfigured(f"{backend} keeps no history and no leases that could be read")
    assert isinstance(backend, LeaseBackend)
    return backend
