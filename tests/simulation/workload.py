"""What handlers do: they write to a journal that refuses a smaller fence, and end well, badly, late or never."""

import asyncio
from random import Random

from tenure.context import Context
from tenure.testing import World

from .node import Node
from .scenario import Behaviour, Spec
from .timeline import Execution, Timeline


class Refused(Exception):
    """The journal has seen a greater fence."""


class Crashed(Exception):
    """A handler's own error."""


class Journal:
    """An independent system that handlers write to; it compares fences as the context says they are to be."""

    def __init__(self, world: World, timeline: Timeline) -> None:
        self._world = world
        self._timeline = timeline
        self._fences: dict[tuple[str, int], int] = {}
        self.executions: list[Execution] = []

    def begin(self, ctx: Context, behaviour: str) -> Execution:
        now_s = self._world.elapsed_s
        one = Execution(ctx.job, ctx.slot_ms, ctx.attempt, ctx.fence, ctx.instance, ctx.overlap, behaviour, now_s, 0)
        one.began_seq = self._timeline.add("began", ctx.instance, one)
        self.executions.append(one)

        def told() -> None:
            one.told_s, one.reason = self._world.elapsed_s, ctx.signal.reason or ""
            self._timeline.add("told", one.who, one)

        ctx.signal._when_set(told)
        return one

    def write(self, ctx: Context, one: Execution) -> bool:
        """Write with the fence; False if a greater one has written."""
        scope = (ctx.job, -1 if ctx.fence_scope == "job" else ctx.slot_ms)
        if ctx.fence < self._fences.get(scope, 0):
            one.refused += 1
            self._timeline.add("refused", one.who, one)
            return False
        self._fences[scope] = ctx.fence
        one.written.append(self._world.elapsed_s)
        return True

    def end(self, one: Execution, how: str) -> None:
        one.ended_s, one.how = self._world.elapsed_s, how
        one.ended_seq = self._timeline.add("ended", one.who, one)


class Workload:
    def __init__(self, seed: int, world: World, journal: Journal) -> None:
        self._seed = seed
        self._world = world
        self._journal = journal

    async def handle(self, node: Node, spec: Spec, ctx: Context) -> None:
        rng = Random(f"handler {self._seed} {ctx.job} {ctx.slot_ms} {ctx.attempt}")
        behaviour = rng.choice(spec.behaviours)
        one = self._journal.begin(ctx, behaviour)
        try:
            await self._behave(behaviour, node, spec, ctx, one, rng)
        except BaseException as error:
            if not node.over:
                self._journal.end(one, type(error).__name__)
            raise
        if not node.over:
            self._journal.end(one, "returned")

    async def _behave(
        self, behaviour: Behaviour, node: Node, spec: Spec, ctx: Context, one: Execution, rng: Random
    ) -> None:
        lease_s = spec.lease_ms / 1000
        self._write(ctx, one)
        if behaviour == "quick":
            return
        if behaviour == "hang":
            await self._hang(spec, ctx)
        end_s = self._world.elapsed_s + lease_s * rng.choice([0.2, 0.6, 1.5, 3.0]) * (0.5 + rng.random())
        while (left_s := end_s - self._world.elapsed_s) > 1e-6 and not node.over:
            await self._step(behaviour, min(left_s, lease_s * rng.random()), node, spec, ctx, rng)
            if behaviour == "listen" and ctx.signal.is_set():
                return
            self._write(ctx, one)
        if behaviour == "raise":
            raise Crashed

    async def _step(
        self, behaviour: Behaviour, for_s: float, node: Node, spec: Spec, ctx: Context, rng: Random
    ) -> None:
        if behaviour == "block" and not spec.thread and rng.random() < 0.5:
            node.app_loop.block(for_s)
            for_s = 0
        try:
            await asyncio.sleep(for_s)
        except asyncio.CancelledError:
            if behaviour not in ("deaf", "block") or node.over:
                raise

    async def _hang(self, spec: Spec, ctx: Context) -> None:
        """Wait for what never comes; a thread is told to stop by its signal alone, and may take its time."""
        if spec.thread:
            await ctx.signal.wait_async()
            await asyncio.sleep(spec.lease_ms / 2000)
            raise Crashed
        await asyncio.get_running_loop().create_future()

    def _write(self, ctx: Context, one: Execution) -> None:
        if not self._journal.write(ctx, one):
            raise Refused
