"""What an instance does about a job before its first claim: unfinished runs, and the slot it may have missed."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from tenure.calls import Calls
from tenure.instance import Instance
from tenure.job import Job
from tenure.model import ActiveRun, ActiveRuns
from tenure.schedule import latest_slot_of
from tenure.watch import Watches

CatchUp = Callable[[Job, int | None], None]


@dataclass(slots=True, eq=False)
class _Batch:
    """Jobs that were added together, as they are now."""

    jobs: dict[str, Job]
    recovered: asyncio.Event = field(default_factory=asyncio.Event)


class Recovery:
    """Asks once for all jobs that are new to this instance which runs are unfinished, until the store answers."""

    def __init__(self, instance: Instance, calls: Calls, watches: Watches, catch_up: CatchUp) -> None:
        self._instance = instance
        self._calls = calls
        self._watches = watches
        self._catch_up = catch_up
        self._waiting: list[_Batch] = []
        self._batches: dict[str, _Batch] = {}  # of each job that is not recovered
        self._working = False

    def add(self, jobs: Iterable[Job]) -> None:
        """Recover the jobs soon; until then their runs wait."""
        batch = _Batch({job.name: job for job in jobs})
        if not batch.jobs:
            return
        self._batches.update(dict.fromkeys(batch.jobs, batch))
        self._waiting.append(batch)
        if not self._working:
            self._working = True
            self._instance.spawn(self._work())

    def replace(self, job: Job) -> None:
        """The job is replaced, perhaps before it is recovered."""
        if batch := self._batches.get(job.name):
            batch.jobs[job.name] = job

    def leave(self, name: str) -> None:
        """The job is removed."""
        if batch := self._batches.pop(name, None):
            del batch.jobs[name]

    def is_done(self, name: str) -> bool:
        """Whether the job is recovered."""
        return name not in self._batches

    async def done(self, name: str) -> None:
        """Wait until the job is recovered, or removed."""
        if batch := self._batches.get(name):
            await batch.recovered.wait()

    async def _work(self) -> None:
        while self._waiting:
            batches, self._waiting = self._waiting, []
            names = [name for batch in batches for name in batch.jobs]
            ask = partial(self._calls.active, names)
            answer = await self._instance.until_answered("active", ask, "", 0, lambda: float("inf"))
            for batch in batches:
                if answer is not None:  # else the instance stops
                    self._recover_all(batch.jobs.values(), answer)
                for name in batch.jobs:
                    self._batches.pop(name, None)
                batch.recovered.set()
        self._working = False

    def _recover_all(self, jobs: Iterable[Job], answer: ActiveRuns) -> None:
        unfinished: dict[str, list[ActiveRun]] = defaultdict(list)
        for run in answer.runs:
            unfinished[run.job].append(run)
        for job in jobs:
            self._recover(job, unfinished[job.name], answer.now_ms)

    def _recover(self, job: Job, runs: list[ActiveRun], now_ms: int) -> None:
        latest = latest_slot(self._instance, job, now_ms)
        for run in runs:
            replaced = job.overlap == "skip" and latest is not None and latest > run.slot
            if run.live or not replaced:
                left_ms = run.lease_left_ms if run.live else 0
                self._watches.back_up(job, run.slot, after=run.attempt, lease_left_ms=left_ms)
        if latest is None or any(run.slot == latest for run in runs):
            return
        if _is_missed(job, latest, now_ms):
            self._catch_up(job, latest)
        else:  # others may be about to claim it, and then stop or die
            self._watches.expect(job, latest, now_ms)


def latest_slot(instance: Instance, job: Job, now_ms: int) -> int | None:
    """The latest slot due; None if there is none, or if the schedule fails, which is told."""
    try:
        return latest_slot_of(job.schedule, now_ms)
    except Exception as error:  # noqa: BLE001 - a schedule of the user's own
        instance.error("schedule", error, job.name)
        return None


def missed_slot(instance: Instance, job: Job, now_ms: int) -> int | None:
    """The latest slot, if it was due less than the job's ``catch_up`` ago: only that one, never a backlog."""
    if job.catch_up_ms is None:
        return None
    latest = latest_slot(instance, job, now_ms)
    return latest if latest is not None and _is_missed(job, latest, now_ms) else None


def _is_missed(job: Job, latest: int, now_ms: int) -> bool:
    return job.catch_up_ms is not None and now_ms - latest < job.catch_up_ms
