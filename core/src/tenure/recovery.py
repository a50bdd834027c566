"""What an instance does about a job before its first claim: unfinished runs, and the slot it may have missed."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial

from tenure.calls import Calls
from tenure.instance import Instance
from tenure.job import Job
from tenure.model import ActiveRun
from tenure.schedule import latest_slot_of
from tenure.watch import Watches

CatchUp = Callable[[Job, int | None], None]


class Recovery:
    """Asks once for all jobs that are new to this instance which runs are unfinished, until the store answers."""

    def __init__(self, instance: Instance, calls: Calls, watches: Watches, catch_up: CatchUp) -> None:
        self._instance = instance
        self._calls = calls
        self._watches = watches
        self._catch_up = catch_up
        self._waiting: dict[str, Job] = {}
        self._recovered: dict[str, asyncio.Event] = {}
        self._working = False

    def add(self, jobs: Iterable[Job]) -> None:
        """Recover the jobs soon; until then their runs wait."""
        recovered = asyncio.Event()
        for job in jobs:
            self._waiting[job.name] = job
            self._recovered[job.name] = recovered
        if self._waiting and not self._working:
            self._working = True
            self._instance.spawn(self._work())

    def leave(self, name: str) -> None:
        """The job is removed."""
        self._waiting.pop(name, None)
        self._recovered.pop(name, None)

    def is_done(self, name: str) -> bool:
        """Whether the job is recovered."""
        return name not in self._recovered

    async def done(self, name: str) -> None:
        """Wait until the job is recovered."""
        recovered = self._recovered.get(name)
        if recovered is not None:
            await recovered.wait()

    async def _work(self) -> None:
        while self._waiting:
            jobs, self._waiting = self._waiting, {}
            ask = partial(self._calls.active, list(jobs))
            answer = await self._instance.until_answered("active", ask, "", 0, lambda: float("inf"))
            unfinished: dict[str, list[ActiveRun]] = defaultdict(list)
            for run in answer.runs if answer else ():
                unfinished[run.job].append(run)
            for job in jobs.values():
                recovered = self._recovered.pop(job.name, None)
                if recovered is None:
                    continue  # removed in the meantime
                if answer:  # else the instance stops
                    self._recover(job, unfinished[job.name], answer.now_ms)
                recovered.set()
        self._working = False

    def _recover(self, job: Job, runs: list[ActiveRun], now_ms: int) -> None:
        latest = latest_slot(self._instance, job, now_ms)
        for run in runs:
            replaced = job.overlap == "skip" and latest is not None and latest > run.slot
            if run.live or not replaced:
                left_ms = run.lease_left_ms if run.live else 0
                self._watches.watch(job, run.slot, after=run.attempt, lease_left_ms=left_ms)
        if all(run.slot != latest for run in runs):
            self._catch_up(job, missed_slot(self._instance, job, now_ms))


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
    return latest if latest is not None and now_ms - latest < job.catch_up_ms else None
