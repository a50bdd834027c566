"""Calls that wait at the same moment travel to the store together; each has its own answer and its own deadline."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Send = Callable[[list[Request]], Awaitable[Sequence[Answer | Exception]]]


class Convoy(Generic[Request, Answer]):
    """Carries calls in batches over a bounded number of lanes, in one event loop.

    ``send(requests)`` carries one batch and gives an outcome for each request, in order: its answer, or the exception
    that is this request's alone; what it raises is that of every request of the batch. A lane carries one batch at a
    time, of at most ``most`` requests. A lone call leaves at once, those of a burst share few batches.

    No call waits longer than ``timeout_ms``; then it raises ``silent()``. A batch that is on its way for that long is
    cancelled and left behind, whether it ends or not, and its lane is free again: ``send`` must then dispose of its
    connection. A request whose caller is gone is not sent any more, or its answer is dropped.
    """

    def __init__(
        self,
        send: "Send[Request, Answer]",
        *,
        timeout_ms: int,
        lanes: int,
        most: int = 64,
        silent: Callable[[], Exception],
    ) -> None:
        self._send = send
        self._timeout_s = timeout_ms / 1_000
        self._most = most
        self._silent = silent
        self._free = lanes
        self._waiting: deque[tuple[Request, asyncio.Future[Answer]]] = deque()
        self._lanes: set[asyncio.Task[None]] = set()
        self._starting = False

    async def ask(self, request: Request) -> Answer:
        """The request's answer; its own error, that of its batch, or ``silent()`` after the timeout."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((request, answer))
        self._open_lane()
        timer = loop.call_later(self._timeout_s, self._give_up, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    async def aclose(self) -> None:
        """Wait for what is on its way or still waits; what has no answer after the timeout raises ``silent()``."""
        until = asyncio.get_running_loop().time() + self._timeout_s
        while self._lanes and (left_s := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._lanes, timeout=left_s)
        while self._waiting:
            self._give_up(self._waiting.popleft()[1])
        for lane in list(self._lanes):
            self._abandon(lane)

    def _open_lane(self) -> None:
        """Start a lane if one is free, unless one that was just started will take what waits."""
        if self._free and self._waiting and not self._starting:
            self._starting = True
            self._free -= 1
            lane = asyncio.get_running_loop().create_task(self._drive())
            self._lanes.add(lane)
            lane.add_done_callback(self._closed)

    async def _drive(self) -> None:
        """Carry batches while something waits."""
        lane = asyncio.current_task()
        assert lane is not None
        self._starting = False
        while batch := self._gather():
            timer = lane.get_loop().call_later(self._timeout_s, self._abandon, lane)
            try:
                outcomes = await self._send([request for request, _ in batch])
            except Exception as exc:  # noqa: BLE001  whatever it is, it is the answer to each of them
                outcomes = [exc] * len(batch)
            except asyncio.CancelledError:  # left behind, or the loop ends
                for _, answer in batch:
                    self._give_up(answer)
                raise
            finally:
                timer.cancel()
            for (_, answer), outcome in zip(batch, outcomes, strict=True):
                _settle(answer, outcome)
            batch.clear()  # a lane that waits for nothing keeps nothing alive
            if lane not in self._lanes:
                return  # it was left behind, and another has its place

    def _gather(self) -> list[tuple[Request, "asyncio.Future[Answer]"]]:
        batch: list[tuple[Request, asyncio.Future[Answer]]] = []
        while self._waiting and len(batch) < self._most:
            request, answer = self._waiting.popleft()
            if not answer.done():
                batch.append((request, answer))
        self._open_lane()
        return batch

    def _abandon(self, lane: "asyncio.Task[None]") -> None:
        self._closed(lane)
        lane.cancel()

    def _closed(self, lane: "asyncio.Task[None]") -> None:
        """Give the lane's place to another, once."""
        if lane in self._lanes:
            self._lanes.remove(lane)
            self._free += 1
            self._open_lane()

    def _give_up(self, answer: "asyncio.Future[Answer]") -> None:
        if not answer.done():
            answer.set_exception(self._silent())


def _settle(answer: "asyncio.Future[Any]", outcome: Any) -> None:
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
