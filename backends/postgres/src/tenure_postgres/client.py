"""What is open between entering and leaving: the sessions, and the convoy that carries calls over them."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from tenure.convoy import Convoy
from tenure.duration import to_text
from tenure.errors import BackendMisconfigured, BackendUnavailable

from tenure_postgres.connections import Connections
from tenure_postgres.hints import Hint, listen
from tenure_postgres.session import Query, Session

_UNFIT = frozenset(("25006", "57P01", "57P02", "57P03"))
"""A server that does not serve any more: its connection is not used again."""


@dataclass(frozen=True, slots=True)
class Work:
    """What takes several steps on one session."""

    steps: Callable[[Session], Awaitable[Any]]


class Client:
    """Belongs to the event loop and the process that it was made in."""

    def __init__(self, connections: Connections, *, timeout_ms: int, lanes: int, place: str) -> None:
        self.connections = connections
        self._place = place
        self._timeout_ms = timeout_ms
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._listening: set[asyncio.Task[None]] = set()
        self._convoy: Convoy[Query | Work, Any] = Convoy(
            self._send, timeout_ms=timeout_ms, lanes=max(lanes - 1, 1), silent=self._silent
        )
        self._under_way = 0
        self._alone = asyncio.Lock()
        self._express = lanes > 1
        """Whether one of the connections is kept for calls that travel alone."""

    def check(self) -> None:
        """Refuse a use from elsewhere, where the connections do not work or are another's."""
        if os.getpid() != self._pid:
            raise BackendMisconfigured(f"{self._place}: entered before a fork; enter a backend in each process")
        if asyncio.get_running_loop() is not self._loop:
            raise BackendMisconfigured(f"{self._place}: entered in another event loop; use a backend for each loop")

    async def ask(self, request: Query | Work) -> Any:
        """The request's result; its own error, its connection's, or BackendUnavailable after the timeout."""
        self.check()
        self._under_way += 1
        try:
            if isinstance(request, Query) and (session := self._for_one_alone()) is not None:
                async with self._alone:
                    return await self._asked_alone(session, request)
            return await self._convoy.ask(request)
        finally:
            self._under_way -= 1

    def _for_one_alone(self) -> Session | None:
        return self.connections.idle() if self._express and self._under_way == 1 else None

    async def _asked_alone(self, session: Session, query: Query) -> Any:
        """A lone call needs no convoy and no task of its own, which would be a quarter of its time."""
        timer = self._loop.call_later(self._timeout_ms / 1_000, session.give_up)
        try:
            outcome = await session.ask_alone(query)
            if _unfit(outcome):
                await session.close()
        except TimeoutError as exc:
            await session.close()
            raise self._silent() from exc
        except BaseException:
            await session.close()
            raise
        finally:
            timer.cancel()
            await self.connections.give(session)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def listen(self, channel: str, jobs: Collection[str], hint: Hint) -> "asyncio.Task[None]":
        """Pass hints of the jobs on, until it is cancelled or this is closed."""
        self.check()
        listening = self._loop.create_task(listen(self.connections, channel, jobs, self._timeout_ms, hint))
        self._listening.add(listening)
        listening.add_done_callback(self._listening.discard)
        return listening

    async def close(self) -> None:
        """Wait for what is on its way, then close; in another process or loop there is nothing of its own to close."""
        if os.getpid() == self._pid and asyncio.get_running_loop() is self._loop:
            for listening in self._listening:
                listening.cancel()
            await self._convoy.aclose()
            await self._alone.acquire()  # what travels alone is waited for, too
            await self.connections.close()

    async def _send(self, requests: list[Query | Work]) -> Sequence[Any]:
        session = await self.connections.take()
        try:
            return await _carried(session, requests)
        except BaseException:
            await session.close()
            raise
        finally:
            await self.connections.give(session)

    def _silent(self) -> BackendUnavailable:
        error = BackendUnavailable(f"{self._place}: no answer within {to_text(self._timeout_ms)}")
        error.__cause__ = TimeoutError(f"{self._timeout_ms} ms")
        return error


async def _carried(session: Session, requests: list[Query | Work]) -> list[Any]:
    """The outcome of each: queries travel in one pipeline, work that takes several steps follows, one after another."""
    queries = [request for request in requests if isinstance(request, Query)]
    answers = iter(await session.ask(queries) if queries else ())
    outcomes = [
        next(answers) if isinstance(request, Query) else await _worked(session, request) for request in requests
    ]
    if any(map(_unfit, outcomes)):
        await session.close()
    return outcomes


def _unfit(outcome: Any) -> bool:
    return isinstance(outcome, psycopg.Error) and outcome.sqlstate in _UNFIT


async def _worked(session: Session, work: Work) -> Any:
    try:
        return await work.steps(session)
    except Exception as exc:  # noqa: BLE001  whatever it is, it is the answer to this one
        return exc
