"""One running scheduler in an event loop: jobs come and go, slots are fired, a stop drains."""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any, cast

from tenure.cards import Cards
from tenure.errors import BackendUnavailable, InvalidJob, SchedulerStateError, UnknownJob
from tenure.events import Skip, logger
from tenure.executor import Call, Executor
from tenure.instance import Instance
from tenure.job import Job
from tenure.lane import Lane
from tenure.levels import ClaimOnlyLevel, LeaseLevel, Level
from tenure.model import Mode, RunResult, Triggered, check_lease
from tenure.protocol import Backend, ClaimOnlyBackend, LeaseBackend, has_leases
from tenure.runner import patience_ms
from tenure.timers import JobTimers

_SETTLE_MS = 500
"""After grace, or when hurried, cancelled handlers get this long to end and to be released before ``stop`` returns."""


class Engine:
    """The engine of one instance; all methods are called on its loop."""

    def __init__(self, backend: Backend, instance: Instance, executor: Executor) -> None:
        self._backend = backend
        self._instance = instance
        self._executor = executor
        self._jobs: dict[str, Job] = {}
        self._timers = JobTimers(instance.clock, instance.rng, self._fire, self._schedule_failed)
        self._entered = AsyncExitStack()
        self._hurry = asyncio.Event()
        self._level = self._level_of(backend)
        self._lane = Lane(instance, self._claim)
        self._cards = Cards(instance, backend, self._jobs, self.next_slot)

    async def start(self, jobs: Iterable[Job]) -> None:
        """Enter the backend and start; BackendError, or InvalidJob for a lease that the store cannot grant."""
        await self._instance.contact.note("enter", self._entered.enter_async_context(self._backend))
        try:
            self.add(jobs)
        except BaseException:
            await self._entered.aclose()
            raise
        self._timers.start()
        logger.info("%s runs on %s, jobs: %d", self._instance.name, self._backend, len(self._jobs))
        if not self._jobs:
            logger.warning("%s has no jobs", self._instance.name)

    def add(self, jobs: Iterable[Job]) -> None:
        """Add jobs that are new to this instance, all or none."""
        jobs = list(jobs)
        for job in jobs:
            check_lease(job.lease_ms, self._level.capabilities, InvalidJob)
        self._jobs.update((job.name, job) for job in jobs)
        self._timers.add(jobs)
        self._level.arrive(jobs)
        self._cards.tell(job.name for job in jobs)

    def replace(self, job: Job) -> None:
        """The job serves from its next slot or attempt."""
        check_lease(job.lease_ms, self._level.capabilities, InvalidJob)
        self._jobs[job.name] = job
        self._timers.add((job,))
        self._level.replace(job)
        self._cards.tell((job.name,))

    def remove(self, name: str) -> None:
        """End the job's timer and watches; a running handler goes on to its end."""
        del self._jobs[name]
        self._timers.remove(name)
        self._level.leave(name)

    def next_slot(self, name: str) -> int | None:
        """The slot the job waits for."""
        return self._timers.next_slot(name)

    def executes(self, call: Call) -> bool:
        """Whether the handler executes in this instance."""
        return call in self._executor.executing()

    async def trigger(self, name: str) -> Triggered:
        """Run the job now, under its overlap rule."""
        job = self._jobs.get(name)
        if job is None:
            raise UnknownJob(f"there is no job {name!r} in this scheduler")
        if not await self._ready(job, self._instance.clock.wall_ms(), "manual"):
            raise BackendUnavailable(f"the store does not answer, so {name!r} cannot be run now; see the error events")
        if self._instance.stopping.is_set():
            raise SchedulerStateError(f"trigger({name!r}): the scheduler stops and claims no more")
        job = self._jobs.get(name)
        if job is None:
            raise UnknownJob(f"the job {name!r} was removed before it could be run")
        claim = self._instance.spawn(self._level.runner.trigger(job))  # a stop waits for it
        return await asyncio.shield(claim)

    async def stop(self, grace_ms: float) -> list[Call]:
        """Claim no more and drain; gives the handlers that still execute. A second call hurries the first.

        What is still executing keeps its lease, and is waited for by ``close``.
        """
        if self._instance.stopping.is_set():
            self._hurry.set()
            return self._executor.executing()
        self._instance.stopping.set()
        self._timers.stop()
        self._level.stop()
        for call in self._executor.executing():
            call.stop("stop", cancel=False)
        hurried = asyncio.ensure_future(self._hurry.wait())
        drained = await self._drained(grace_ms, hurried)
        hurried.cancel()
        if not drained:
            for call in self._executor.executing():
                call.stop("stop", cancel=True)
            await self._drained(_SETTLE_MS)
        return self._executor.executing()

    async def results(self, name: str, limit: int) -> list[RunResult]:
        """The job's newest records; none on a claim-only backend, which keeps them to itself. BackendError."""
        return await self._level.results(name, limit)

    def is_drained(self) -> bool:
        """Whether no work is under way."""
        return self._instance.is_drained()

    async def close(self) -> None:
        """Wait for what outlived ``stop``, then leave the backend."""
        await self._instance.drained()
        self.abandon()
        try:
            await self._entered.aclose()
        except Exception as error:  # noqa: BLE001 - the work is done; that the store went away is only told
            self._instance.error("close", error)

    def abandon(self) -> None:
        """Leave nothing of this engine behind in the process, also if its loop is not run any more."""
        self._lane.close()

    async def _drained(self, timeout_ms: float, *unless: asyncio.Future[Any]) -> bool:
        """Whether all work ended within the timeout, and before the others."""
        drained = asyncio.ensure_future(self._instance.drained())
        await asyncio.wait((drained, *unless), timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        return drained.done() or not drained.cancel()

    def _level_of(self, backend: Backend) -> Level:
        if has_leases(backend):
            leases = cast(LeaseBackend, backend)
            return LeaseLevel(leases, self._instance, self._executor, self._catch_up, self._jobs)
        return ClaimOnlyLevel(cast(ClaimOnlyBackend, backend), self._instance, self._executor, self._catch_up)

    def _fire(self, job: Job, slot: int) -> None:
        if self._too_late(job, slot):
            self._skip_late(job, slot)
        else:
            self._claim_when_ready(job, slot, "scheduled")

    def _too_late(self, job: Job, slot: int) -> bool:
        return job.max_late_ms is not None and self._instance.clock.wall_ms() - slot > job.max_late_ms

    def _claim_when_ready(self, job: Job, slot: int, mode: Mode) -> None:
        if self._level.is_ready(job.name):
            self._lane.put(job, slot, mode)
        else:
            self._instance.spawn(self._wait_and_claim(job, slot, mode))

    async def _claim(self, job: Job, slot: int, mode: Mode) -> None:
        """Claim what may start still: while a store is slow, a run waits in the lane for long."""
        if mode == "scheduled" and self._too_late(job, slot):
            self._skip_late(job, slot)
        elif job.name in self._jobs:
            await self._level.runner.run(job, slot, mode)

    async def _wait_and_claim(self, job: Job, slot: int, mode: Mode) -> None:
        if not await self._ready(job, slot, mode):
            self._skip_late(job, slot)
        elif job.name in self._jobs:
            self._lane.put(job, slot, mode)

    async def _ready(self, job: Job, slot: int, mode: Mode) -> bool:
        """Wait until the job is recovered, not longer than a claim would be repeated."""
        try:
            async with asyncio.timeout(patience_ms(self._instance, job, slot, mode) / 1000):
                while not self._level.is_ready(job.name):  # removed and added meanwhile, it is recovered anew
                    await self._level.ready(job.name)
        except TimeoutError:
            return False
        return True

    def _skip_late(self, job: Job, slot: int) -> None:
        self._instance.emit(Skip(job=job.name, slot=slot, instance=self._instance.name, reason="late"))

    def _catch_up(self, job: Job, slot: int | None) -> None:
        if slot is not None:
            self._instance.spawn(self._run_after_jitter(job, slot))

    async def _run_after_jitter(self, job: Job, slot: int) -> None:
        await self._instance.pause(self._instance.rng.random() * job.jitter_ms)
        self._claim_when_ready(job, slot, "catch-up")

    def _schedule_failed(self, job: Job, error: BaseException) -> None:
        self._instance.error("schedule", error, job.name)
