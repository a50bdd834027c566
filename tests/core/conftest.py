"""What the engine's tests share: a world in virtual time, and work that remembers each execution."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from tenure.context import Context
from tenure.job import Job, make_job
from tenure.schedule import every
from tenure.testing import World


@dataclass
class Execution:
    """One execution of a handler; times in seconds since the world began."""

    instance: str
    slot_s: float
    attempt: int
    fence: int
    mode: str
    began_s: float
    ended_s: float | None = None
    how: str = ""
    told_s: float | None = None
    """When its signal was first seen set."""
    reason: str | None = None


@dataclass
class Work:
    """An async handler that takes a while of virtual time and remembers each execution."""

    world: World
    takes_s: float = 3
    executions: list[Execution] = field(default_factory=list)
    raises: BaseException | None = None
    stubborn: bool = False
    """Neither cancellation nor the signal ends it: what a thread does that looks at nothing."""

    async def __call__(self, ctx: Context) -> None:
        done = Execution(
            ctx.instance,
            (ctx.slot_ms - self.world.start_ms) / 1000,
            ctx.attempt,
            ctx.fence,
            ctx.mode,
            self.world.elapsed_s,
        )
        self.executions.append(done)
        listening = asyncio.ensure_future(self._listen(ctx, done))
        try:
            await self._work()
            if self.raises is not None:
                raise self.raises
            done.how = "returned"
        except BaseException as error:
            done.how = type(error).__name__
            raise
        finally:
            listening.cancel()
            done.ended_s = self.world.elapsed_s
            done.reason = ctx.signal.reason
            if done.reason is not None and done.told_s is None:  # told and cancelled in one go
                done.told_s = done.ended_s

    async def _work(self) -> None:
        end_s = self.world.elapsed_s + self.takes_s
        while (left_s := end_s - self.world.elapsed_s) > 1e-6:
            try:
                await asyncio.sleep(left_s)
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise

    async def _listen(self, ctx: Context, done: Execution) -> None:
        await ctx.signal.wait_async()
        done.told_s = self.world.elapsed_s

    @property
    def slots(self) -> list[float]:
        return [done.slot_s for done in self.executions]


START = "2026-12-01T12:00:00Z"


@pytest.fixture
def world() -> Iterator[World]:
    with World(START) as world:
        yield world


@pytest.fixture
def work(world: World) -> Work:
    return Work(world)


@pytest.fixture
def jobs() -> Callable[..., list[Job]]:
    """Makes the one job "sync", every 10 s, without jitter unless told otherwise."""

    def make(handler: object, *, name: str = "sync", schedule: object = None, **options: object) -> list[Job]:
        chosen = {"jitter": "0s", **options}
        return [make_job(name, every("10s") if schedule is None else schedule, handler, chosen)]  # type: ignore[arg-type]

    return make
