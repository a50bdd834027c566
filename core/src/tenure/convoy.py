"""Calls that wait at the same moment travel to the store together; each has its own answer and its own deadline."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Item = TypeVar("Item")
Send = Callable[[list[Request]], Awaitable[Sequence[Answer | Exception]]]
Batch = list[tuple[Request, asyncio.Future[Answer]]]


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
        self._calls: _Deadlines[asyncio.Future[Answer]] = _Deadlines(timeout_ms, _is_done, self._give_up)
        self._trips: _Deadlines[tuple[asyncio.Task[None], Batch[Request, Answer]]] = _Deadlines(
            timeout_ms, _has_come_back, self._leave_behind
        )
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
        self._calls.add(loop, answer)
        return await answer

    async def aclose(self) -> None:
        """Wait for what is on its way or still waits; what has no answer after the timeout raises ``silent()``."""
        until = asyncio.get_running_loop().time() + self._timeout_s
        while self._lanes and (left_s := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._lanes, timeout=left_s)
        while self._waiting:
            self._give_up(self._waiting.popleft()[1])
        for lane in list(self._lanes):
            self._abandon(lane)
        self._calls.close()
        self._trips.close()

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
            self._trips.add(lane.get_loop(), (lane, batch))
            try:
                outcomes = await self._send([request for request, _ in batch])
            except Exception as exc:  # noqa: BLE001  whatever it is, it is the answer to each of them
                outcomes = [exc] * len(batch)
            except asyncio.CancelledError:  # left behind, or the loop ends
                for _, answer in batch:
                    self._give_up(answer)
                batch.clear()
                raise
            for (_, answer), outcome in zip(batch, outcomes, strict=True):
                _settle(answer, outcome)
            batch.clear()  # a lane that waits for nothing keeps nothing alive
            if lane not in self._lanes:
                return  # it was left behind, and another has its place

    def _gather(self) -> Batch[Request, Answer]:
        batch: Batch[Request, Answer] = []
        while self._waiting and len(batch) < self._most:
            request, answer = self._waiting.popleft()
            if not answer.done():
                batch.append((request, answer))
        self._open_lane()
        return batch

    def _leave_behind(self, trip: tuple[asyncio.Task[None], Batch[Request, Answer]]) -> None:
        self._abandon(trip[0])

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


class _Deadlines(Generic[Item]):
    """Items that may all take the same time from when they are added: one timer, for the oldest that is not done."""

    def __init__(self, timeout_ms: int, is_done: Callable[[Item], bool], give_up: Callable[[Item], None]) -> None:
        self._timeout_s = timeout_ms / 1_000
        self._is_done = is_done
        self._give_up = give_up
        self._items: deque[tuple[float, Item]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, loop: asyncio.AbstractEventLoop, item: Item) -> None:
        """Give the item up if it is not done in time."""
        items = self._items
        while items and self._is_done(items[0][1]):
            items.popleft()
        items.append((loop.time() + self._timeout_s, item))
        if self._timer is None:
            self._timer = loop.call_at(items[0][0], self._ring, loop)

    def close(self) -> None:
        """Give nothing up any more."""
        self._items.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        now, items = loop.time(), self._items
        while items and (items[0][0] <= now or self._is_done(items[0][1])):
            _, item = items.popleft()
            if not self._is_done(item):
                self._give_up(item)
        self._timer = loop.call_at(items[0][0], self._ring, loop) if items else None


def _is_done(answer: "asyncio.Future[Any]") -> bool:
    return answer.done()


def _has_come_back(trip: tuple[asyncio.Task[None], Batch[Any, Any]]) -> bool:
    return not trip[1]


def _settle(answer: "asyncio.Future[Any]", outcome: Any) -> None:
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
