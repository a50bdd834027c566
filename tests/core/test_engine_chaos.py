"""Random crashes, pauses, cut-offs, wrong clocks and deploys, and what must hold through all of them.

``TENURE_CHAOS=500`` runs as many seeds; ``TENURE_CHAOS_SEED=17`` runs that one.
"""

import asyncio
import gc
import logging
import os
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

import pytest
from tenure.context import Context
from tenure.errors import BackendError, SchedulerStateError, UnknownJob
from tenure.job import make_job
from tenure.schedule import every
from tenure.testing import VirtualInstance, World
from tenure.watch import MOST_WATCHES

SEEDS = int(os.environ.get("TENURE_CHAOS", "24"))
ONE = os.environ.get("TENURE_CHAOS_SEED")
CHAOS_S = 300
QUIET_S = 150


@dataclass(eq=False)
class Execution:
    job: str
    slot: int
    attempt: int
    fence: int
    instance: str
    free: list[float] = field(default_factory=list)
    """When it took a step without having been told to stop, the first when it began."""


@dataclass(eq=False)
class Member:
    """An instance and since when it is in good health."""

    instance: VirtualInstance
    well_since: float | None
    spoilt: bool = False
    """Its clock was set once: its judgement of slots is not to be relied on."""
    state: str = "up"


class Chaos:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World(
            "2026-12-01T12:00:00Z",
            seed=seed,
            latency=self.rng.choice(["0s", "5ms", "120ms"]),
            hints=self.rng.random() < 0.5,
            keep_results=100_000,
        )
        self.executions: list[Execution] = []
        self.members: list[Member] = []
        self.complaints: list[dict[str, object]] = []
        """What the loops had to say of exceptions that nobody looked at."""
        self.well: list[tuple[float, float]] = []
        """Spans in which some instance was in good health."""
        self.jobs = self._jobs()
        self._troubles = [
            *(self._start, self._crash, self._freeze, self._cut, self._jump, self._stop, self._slow, self._mend),
            *(self._replace, self._remove, self._trigger),
        ]

    def _jobs(self):
        rng = self.rng
        common = {"jitter": rng.choice(["0s", "500ms"]), "max_attempts": rng.choice([1, 2, 3, 9])}
        lease = rng.choice(["3s", "9s", "20s"])
        return [
            make_job("skip", every("10s"), self._handle, {**common, "lease": lease}),
            make_job("long", every("7s"), self._handle, {**common, "lease": "4s", "max_late": None, "catch_up": "30s"}),
            make_job("allow", every("11s"), self._handle, {**common, "lease": lease, "overlap": "allow"}),
            make_job("timed", every("13s"), self._handle, {**common, "lease": "6s", "timeout": "5s"}),
        ]

    async def _handle(self, ctx: Context) -> None:
        done = Execution(ctx.job, ctx.slot_ms, ctx.attempt, ctx.fence, ctx.instance)
        self.executions.append(done)
        rng = Random(f"{ctx.job} {ctx.slot_ms} {ctx.attempt}")
        steps = rng.choice([0, 1, 3, 8, 20])
        stubborn = rng.random() < 0.2
        for _ in range(steps):
            self._step(ctx, done)
            try:
                await asyncio.sleep(rng.random() * 1.5)
            except asyncio.CancelledError:
                if not stubborn:
                    raise
        self._step(ctx, done)
        if rng.random() < 0.15:
            raise ValueError(ctx.attempt)

    def _step(self, ctx: Context, done: Execution) -> None:
        if not ctx.signal.is_set():
            done.free.append(self.world.elapsed_s)

    # What happens

    def run(self) -> None:
        with self.world:
            for _ in range(3):
                self._start()
            while self.world.elapsed_s < CHAOS_S:
                self._advance(self.rng.choice([0.05, 0.5, 2, 10]) * self.rng.random())
                self.rng.choice(self._troubles)()
                self._check_bounds()
            for member in self.members:
                self._heal(member)
            self._start()
            self._advance(QUIET_S)
            self._check_runs()
            for member in self._up():
                self._spoil(member)
                member.instance.stop("1s", wait=False)
            self._advance(100)
            self._check_leaks()

    def _advance(self, seconds: float) -> None:
        self.world.advance(timedelta(seconds=round(seconds, 3)))

    def _up(self) -> list[Member]:
        return [member for member in self.members if member.state != "gone"]

    def _start(self) -> None:
        if len(self._up()) < 5:
            instance = self.world.start(self.jobs, f"i{len(self.members)}")
            instance._loop.set_exception_handler(lambda _, context: self.complaints.append(context))
            self.members.append(Member(instance, self.world.elapsed_s))

    def _pick(self) -> Member | None:
        up = self._up()
        return self.rng.choice(up) if len(up) > 1 else None

    def _spoil(self, member: Member) -> None:
        if member.well_since is not None:
            self.well.append((member.well_since, self.world.elapsed_s))
            member.well_since = None

    def _heal(self, member: Member) -> None:
        if member.state == "gone":
            return
        if member.state == "frozen":
            member.instance.thaw()
        member.instance.reconnect()
        member.instance.slow_down("10ms")
        self._add_what_is_missing(member.instance)
        member.state = "up"
        if member.well_since is None and not member.spoilt:
            member.well_since = self.world.elapsed_s + 12  # what it repeats may wait as long

    def _crash(self) -> None:
        if member := self._pick():
            self._spoil(member)
            member.instance.crash()
            member.state = "gone"

    def _freeze(self) -> None:
        if (member := self._pick()) and member.state == "up":
            self._spoil(member)
            member.instance.freeze()
            member.state = "frozen"

    def _cut(self) -> None:
        if member := self._pick():
            self._spoil(member)
            member.instance.cut_off(self.rng.choice(["refused", "silent", "replies lost"]))

    def _slow(self) -> None:
        if member := self._pick():
            self._spoil(member)
            member.instance.slow_down(timedelta(seconds=round(self.rng.random() ** 2 * 4, 3)))

    def _jump(self) -> None:
        if member := self._pick():
            self._spoil(member)
            member.spoilt = True
            member.instance.jump_clock(timedelta(seconds=self.rng.choice([-3600, -60, -5, -0.5, 0.5, 5, 60, 3600])))

    def _stop(self) -> None:
        if (member := self._pick()) and member.state == "up":
            self._spoil(member)
            member.instance.stop(self.rng.choice(["0s", "2s", "30s"]), wait=False)
            member.state = "gone"

    def _replace(self) -> None:
        if (member := self._pick()) and member.state == "up":
            job = self.rng.choice(self.jobs)
            if job.name in member.instance._names:
                member.instance._call(lambda: member.instance._engine.replace(job))

    def _remove(self) -> None:
        if (member := self._pick()) and member.state == "up":
            job = self.rng.choice(self.jobs)
            if job.name in member.instance._names:
                self._spoil(member)
                member.instance.remove(job.name)

    def _add_what_is_missing(self, instance: VirtualInstance) -> None:
        missing = [job for job in self.jobs if job.name not in instance._names]
        instance._call(lambda: instance._engine.add(missing))
        instance._names.update(job.name for job in missing)

    def _trigger(self) -> None:
        if (member := self._pick()) and member.state == "up":
            member.instance._begin(self._triggered(member.instance, self.rng.choice(self.jobs).name))

    async def _triggered(self, instance: VirtualInstance, name: str) -> None:
        with suppress(BackendError, UnknownJob, SchedulerStateError):
            await instance._engine.trigger(name)

    def _mend(self) -> None:
        for member in self._up():
            if self.rng.random() < 0.7:
                self._heal(member)

    # What must hold

    def _check_bounds(self) -> None:
        for member in self._up():
            engine = member.instance._engine
            assert len(engine._instance._tasks) < 400
            for job in self.jobs:
                assert len(engine._level._watches.watched(job.name)) <= MOST_WATCHES[job.overlap]

    def _check_runs(self) -> None:
        for member in self._up():
            self._spoil(member)
        self._no_slot_succeeds_twice()
        self._no_two_at_once()
        self._fences_rise()
        self._nothing_is_left_behind()
        self._every_slot_is_run()

    def _no_slot_succeeds_twice(self) -> None:
        told: dict[tuple[str, int], int] = defaultdict(int)
        for instance in self.world.instances:
            for event in instance.events:
                told[event.job, event.slot] += event.kind == "success"
        assert max(told.values()) == 1
        for job in self.jobs:
            recorded = [result.slot for result in self.world.results(job.name, 10_000) if result.status == "success"]
            assert len(set(recorded)) == len(recorded)
            missing = {slot for (name, slot), count in told.items() if name == job.name and count} - set(recorded)
            assert missing <= self._unsaved(job.name)  # an event comes after its record

    def _unsaved(self, job: str) -> set[int]:
        """Slots whose record could not be saved, which was told."""
        return {
            event.slot
            for instance in self.world.instances
            for event in instance.events
            if event.kind == "error" and event.job == job and event.call == "save_result"
        }

    def _no_two_at_once(self) -> None:
        for job in self.jobs:
            if job.overlap == "skip":
                of_job = [done for done in self.executions if done.job == job.name and done.free]
                for one in of_job:
                    for other in of_job:
                        if one is not other:
                            inside = [at for at in other.free if one.free[0] < at < one.free[-1]]
                            assert not inside, (one, other)

    def _fences_rise(self) -> None:
        last: dict[tuple[str, int], int] = {}
        for done in self.executions:  # in the order they began
            overlap = next(job.overlap for job in self.jobs if job.name == done.job)
            scope = (done.job, 0 if overlap == "skip" else done.slot)
            assert done.fence > last.get(scope, 0), done
            last[scope] = done.fence

    def _nothing_is_left_behind(self) -> None:
        """Each run that was started has come to an end by now, but for the latest ones."""
        for job in self.jobs:
            for run in self.world.active(job.name):
                newer = job.overlap == "skip"  # a newer slot supersedes it when that is won
                assert self.world.store_ms() - run.slot < 100_000 or (newer and run.live), run

    def _every_slot_is_run(self) -> None:
        """Whatever came while an instance in good health was there to run it."""
        started = {(done.job, done.slot) for done in self.executions}
        known = started | {
            (event.job, event.slot)
            for instance in self.world.instances
            for event in instance.events
            if event.kind == "exhausted" or (event.kind == "skip" and event.reason in ("overlap", "taken"))
        }
        for job in self.jobs:
            for at in range(20, CHAOS_S + QUIET_S - 20):
                slot = self.world.start_ms + at * 1000
                if job.schedule.next_slot(slot - 1) == slot and self._someone_is_well(at - 1, at + 12):
                    assert (job.name, slot) in known, (job.name, at)
        for job, slot in started:  # under allow a start is not undone by a newer one
            if job == "allow" and slot < self.world.store_ms() - 100_000:
                assert self._ended(job, slot), (job, slot)

    def _someone_is_well(self, since: float, until: float) -> bool:
        return any(began <= since and until <= ended for began, ended in self.well)

    def _ended(self, job: str, slot: int) -> bool:
        state = self.world.store.states["tenure", job]
        return slot <= state.floor or any(run.slot == slot for run in state.ended)

    def _check_leaks(self) -> None:
        gc.collect()
        assert self.complaints == []
        for member in self.members:
            instance = member.instance
            if instance.stopped:
                assert instance._engine._instance._tasks == set()
                assert asyncio.all_tasks(instance._loop) == set()
                assert instance._engine._executor.executing() == []
                assert [timer for timer in instance._loop._scheduled if not timer.cancelled()] == []

    def trace(self) -> list[str]:
        return [repr(event) for instance in self.world.instances for event in instance.events]


@pytest.mark.parametrize("seed", [int(ONE)] if ONE else range(SEEDS))
def test_through_chaos(seed, caplog):
    caplog.set_level(logging.CRITICAL, "tenure")  # thousands of warnings are expected
    Chaos(seed).run()


def test_the_same_seed_is_the_same_chaos(caplog):
    caplog.set_level(logging.CRITICAL, "tenure")

    def one():
        chaos = Chaos(4)
        chaos.run()
        return chaos.trace()

    first = one()
    assert len(first) > 100
    assert one() == first
