"""Threads for calls that block: bounded, with a deadline for each, in one event loop of one process."""

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tenure.convoy import Convoy
from tenure.errors import BackendError

from tenure_dynamodb.driver import CONNECTIONS

Answer = TypeVar("Answer")
Work = Callable[[float], Answer]
"""It blocks, and is told its deadline, of ``time.monotonic``."""

LANES = CONNECTIONS // 2
"""Calls on their way at once. A call that is given up keeps its thread until the socket's own timeout, at most as long
again; so there are twice as many threads."""


OWN_PART = 0.95
"""The part of the timeout that is a call's own, so that it can still say why it ends."""


class Lanes:
    """Carries calls to threads; belongs to the loop and the process that made it."""

    def __init__(self, place: str, timeout_ms: int, silent: Callable[[], Exception]) -> None:
        self._place = place
        self._timeout_s = timeout_ms / 1_000
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(2 * LANES, thread_name_prefix="tenure-dynamodb")
        self._convoy: Convoy[tuple[Work[Any], float], Any] = Convoy(
            self._send, timeout_ms=timeout_ms, lanes=LANES, most=1, silent=silent
        )

    async def ask(self, work: Work[Answer]) -> Answer:
        """The work's answer or its error, within the timeout."""
        self.check_home()
        answer: Answer = await self._convoy.ask((work, time.monotonic() + self._timeout_s * OWN_PART))
        return answer

    def check_home(self) -> None:
        """Refuse other processes and other loops: neither threads nor connections go along with a fork."""
        if os.getpid() != self._pid:
            raise BackendError(
                f"{self._place}: this process was forked from the one that entered the backend; enter one here"
            )
        if asyncio.get_running_loop() is not self._loop:
            raise BackendError(f"{self._place}: the backend was entered in another event loop; enter one in this")

    async def aclose(self) -> None:
        """Wait for the calls that are on their way, each until its deadline at most."""
        await self._convoy.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _send(self, works: list[tuple[Work[Any], float]]) -> list[Any]:
        ((work, deadline),) = works
        return [await self._loop.run_in_executor(self._threads, work, deadline)]
