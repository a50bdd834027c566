"""The way of an instance to the store: messages are late, lost, doubled, refused or swallowed."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from random import Random
from typing import Any, Self

from tenure.errors import BackendUnavailable
from tenure.model import ActiveRuns, Capabilities, Claim, ClaimResult, Ending, RunResult
from tenure.testing import World

from .agenda import Agenda
from .scenario import Network
from .store import Store
from .timeline import Call, Timeline

_LATE_TIMEOUTS = 3


class Link:
    """A backend as an instance has it; messages live outside of it, so that they outlive a crash."""

    capabilities = Capabilities()

    def __init__(
        self, who: str, world: World, agenda: Agenda, store: Store, timeline: Timeline, network: Network, rng: Random
    ) -> None:
        self._who = who
        self._world = world
        self._agenda = agenda
        self._store = store
        self._timeline = timeline
        self._network = network
        self._rng = rng
        self._listening: dict[int, asyncio.Queue[str | None]] = {}
        self.calls: list[Call] = []
        self.fault: str | None = None
        self.slower_s = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def claim(self, claim: Claim) -> ClaimResult:
        return await self._ask("claim", claim.job, claim.slot, claim.token, claim)

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        return await self._ask("heartbeat", job, slot, token)

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        return await self._ask("finish", job, slot, token, status)

    async def release(self, job: str, slot: int, token: str) -> bool:
        return await self._ask("release", job, slot, token)

    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        return await self._ask("active", "", 0, "", tuple(jobs))

    async def save_result(self, job: str, result: RunResult) -> None:
        await self._ask("save_result", job, result.slot, "", result)

    async def results(self, job: str, *, limit: int = 20) -> list[RunResult]:
        return await self._ask("results", job, 0, "", limit)

    def end_hints(self) -> None:
        """Whoever listens to hints is told that the connection is lost."""
        for queue in self._listening.values():
            queue.put_nowait(None)

    async def _ask(self, name: str, job: str, slot: int, token: str, request: Any = None) -> Any:
        now_s = self._world.elapsed_s
        call = Call(len(self.calls), self._who, name, job, slot, token, request, now_s, 0, _sender())
        call.sent_seq = self._timeline.add("sent", self._who, call)
        self.calls.append(call)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        timer = loop.call_later(self._network.timeout_ms / 1000, _give_up, future)
        self._send(call, loop, future)
        try:
            call.answer = await future
        except BackendUnavailable as error:
            call.failed = str(error)
            raise
        except asyncio.CancelledError:
            call.failed = "" if self._timeline.over else "cancelled"
            raise
        finally:
            timer.cancel()
            if not self._timeline.over:
                call.ended_s = self._world.elapsed_s
                call.ended_seq = self._timeline.add("answered", self._who, call)
        return call.answer

    def _send(self, call: Call, loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]") -> None:
        def answered(answer: object) -> None:
            self._reply(loop, future, answer)

        if self.fault == "refused":
            self._agenda.after(self._way_s(), _deliver, loop, future, BackendUnavailable("refused"))
            return
        rng, network = self._rng, self._network
        way_s = self._way_s()
        if rng.random() < network.late:
            way_s += rng.random() * _LATE_TIMEOUTS * network.timeout_ms / 1000
        if rng.random() < network.doubled:
            again_s = way_s + rng.random() * _LATE_TIMEOUTS * network.timeout_ms / 1000
            self._agenda.after(again_s, self._store.arrive, call, _nobody)
        if not rng.random() < network.lost_requests:
            self._agenda.after(way_s, self._arrive, call, answered)

    def _arrive(self, call: Call, answered: Any) -> None:
        if self.fault not in ("silent", "refused"):
            self._store.arrive(call, answered)

    def _reply(self, loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", answer: object) -> None:
        if self.fault is None and not self._rng.random() < self._network.lost_replies:
            self._agenda.after(self._way_s(), _deliver, loop, future, answer)

    def _way_s(self) -> float:
        network = self._network
        return (network.latency_ms + self._rng.random() * network.spread_ms) / 1000 + self.slower_s


class HintingLink(Link):
    """A link to a store that gives hints; some are lost, and the stream may break."""

    async def changes(self, jobs: Sequence[str]) -> AsyncGenerator[str, None]:
        wanted, loop = set(jobs), asyncio.get_running_loop()
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        key = self._timeline.add("listens", self._who, tuple(jobs))

        def listen(job: str) -> None:
            if job in wanted and self.fault is None and not self._rng.random() < self._network.lost_hints:
                self._agenda.after(self._way_s(), _hint, loop, queue, job)

        self._store.listeners[key] = listen
        self._listening[key] = queue
        try:
            while True:
                job = await queue.get()
                if job is None:
                    raise BackendUnavailable("the stream of hints broke")
                self._timeline.add("hinted", self._who, job)
                yield job
        finally:
            del self._store.listeners[key], self._listening[key]


def _sender() -> str:
    task = asyncio.current_task()
    return "" if task is None else task.get_coro().__qualname__  # type: ignore[union-attr]


def _nobody(_: object) -> None:
    pass


def _give_up(future: "asyncio.Future[Any]") -> None:
    if not future.done():
        future.set_exception(BackendUnavailable("timed out"))


def _hint(loop: asyncio.AbstractEventLoop, queue: "asyncio.Queue[str | None]", job: str) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(queue.put_nowait, job)


def _deliver(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", answer: object) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(_resolve, future, answer)


def _resolve(future: "asyncio.Future[Any]", answer: object) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer if isinstance(answer, BackendUnavailable) else BackendUnavailable(str(answer)))
    else:
        future.set_result(answer)
