"""The two levels of backends, as the engine sees them: what accompanies the runner of each."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from tenure.calls import Calls
from tenure.executor import Executor
from tenure.hints import HintListener
from tenure.instance import Instance
from tenure.job import Job
from tenure.model import Capabilities, RunResult
from tenure.protocol import ClaimOnlyBackend, LeaseBackend
from tenure.recovery import CatchUp, Recovery, missed_slot
from tenure.runner import ClaimOnlyRunner, LeaseRunner, Runner


class Level(Protocol):
    """What happens around the runs of an instance."""

    @property
    def runner(self) -> Runner:
        """Runs what is due."""

    @property
    def capabilities(self) -> Capabilities:
        """What the entered backend promises."""

    def arrive(self, jobs: Iterable[Job]) -> None:
        """The jobs are new to this instance: recover them, and catch up."""

    def is_ready(self, name: str) -> bool:
        """Whether the job may be claimed already."""

    async def ready(self, name: str) -> None:
        """Wait until the job may be claimed for the first time."""

    def replace(self, job: Job) -> None:
        """The job serves from its next slot or attempt."""

    def leave(self, name: str) -> None:
        """The job is removed."""

    async def results(self, name: str, limit: int) -> list[RunResult]:
        """The job's newest records."""

    def stop(self) -> None:
        """The instance stops: be a backup no more."""


class LeaseLevel:
    """Recovery, backups and hints."""

    def __init__(
        self,
        backend: LeaseBackend,
        instance: Instance,
        executor: Executor,
        catch_up: CatchUp,
        jobs: Mapping[str, Job],
    ) -> None:
        self._calls = calls = Calls(backend, instance.clock, instance.contact)
        self._backend = backend
        self.runner: LeaseRunner = LeaseRunner(instance, calls, executor, jobs)
        self._watches = self.runner.watches
        self._recovery = Recovery(instance, calls, self._watches, catch_up)
        self._hints = HintListener(instance, backend, self._watches, jobs)

    @property
    def capabilities(self) -> Capabilities:
        """See Level."""
        return self._backend.capabilities

    def arrive(self, jobs: Iterable[Job]) -> None:
        """See Level."""
        self._recovery.add(jobs)
        self._hints.refresh()

    def is_ready(self, name: str) -> bool:
        """See Level."""
        return self._recovery.is_done(name)

    async def ready(self, name: str) -> None:
        """See Level."""
        await self._recovery.done(name)

    def replace(self, job: Job) -> None:
        """See Level."""
        self._recovery.replace(job)
        self._watches.replace(job)

    def leave(self, name: str) -> None:
        """See Level."""
        self._recovery.leave(name)
        self._watches.end(name)
        self._hints.refresh()

    async def results(self, name: str, limit: int) -> list[RunResult]:
        """See Level."""
        return await self._calls.results(name, limit)

    def stop(self) -> None:
        """See Level."""
        self._watches.close()
        self._hints.stop()


class ClaimOnlyLevel:
    """Catching up is all that a claim-only backend allows."""

    capabilities: Capabilities = Capabilities()

    def __init__(self, backend: ClaimOnlyBackend, instance: Instance, executor: Executor, catch_up: CatchUp) -> None:
        self._instance = instance
        self._catch_up = catch_up
        self.runner: ClaimOnlyRunner = ClaimOnlyRunner(instance, backend, executor)

    def arrive(self, jobs: Iterable[Job]) -> None:
        """See Level."""
        for job in jobs:
            self._catch_up(job, missed_slot(self._instance, job, self._instance.clock.wall_ms()))

    def is_ready(self, name: str) -> bool:  # noqa: ARG002 - there is nothing to wait for
        """See Level."""
        return True

    async def ready(self, name: str) -> None:
        """See Level."""

    def replace(self, job: Job) -> None:
        """See Level."""

    def leave(self, name: str) -> None:
        """See Level."""

    async def results(self, name: str, limit: int) -> list[RunResult]:  # noqa: ARG002 - no part of that protocol
        """See Level."""
        return []

    def stop(self) -> None:
        """See Level."""
