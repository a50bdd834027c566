"""What became of runs whose claim the store did not answer in time: if nobody has started them, history says so."""

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf

from tenure.calls import Calls
from tenure.decision import DEFAULT_KEEP_RESULTS
from tenure.instance import Instance
from tenure.job import Job
from tenure.model import ActiveRuns, ClaimResult, ResultStatus, RunResult

_MOST = 16
"""Of one job, the newest: while a store is away each slot adds one."""

Save = Callable[[Job, int, ResultStatus], Awaitable[None]]


class Unanswered:
    """Reads up on one job after the other; while the store is away, it asks for one alone, again and again."""

    def __init__(self, instance: Instance, calls: Calls, save: Save) -> None:
        self._instance = instance
        self._calls = calls
        self._save = save
        self._slots: dict[str, deque[int]] = {}
        self._jobs: dict[str, Job] = {}
        self._works = False

    def add(self, job: Job, slot: int) -> None:
        """Nobody may have started the run, nor told why."""
        self._jobs[job.name] = job
        self._slots.setdefault(job.name, deque(maxlen=_MOST)).append(slot)
        if not self._works:
            self._works = True
            self._instance.spawn(self._work())

    async def _work(self) -> None:
        while self._slots and not self._instance.stopping.is_set():  # a stop does not wait for history
            name = next(iter(self._slots))
            answer = await self._instance.until_answered("results", partial(self._read, name), name, 0, lambda: inf)
            if answer is None:  # the instance stops
                return
            job, slots = self._jobs.pop(name), self._slots.pop(name)
            for slot in slots:
                if status := unstarted(job, slot, *answer):
                    await self._save(job, slot, status)
        self._works = False

    async def _read(self, name: str) -> tuple[ActiveRuns, list[RunResult]]:
        """In this order: a run that ends in between is in both, not in neither."""
        active = await self._calls.active([name])
        return active, await self._calls.results(name, DEFAULT_KEEP_RESULTS)


def never_started(result: ClaimResult) -> bool:
    """Whether a newer run started before this one ever did, or so long after it that nobody knows."""
    return result.status == "superseded" and not result.attempt


def unstarted(job: Job, slot: int, active: ActiveRuns, results: list[RunResult]) -> ResultStatus | None:
    """Why nobody has started the run, nor will; None if somebody has or may still, or if that is on record."""
    started = {run.slot for run in active.runs} | {result.slot for result in results if result.attempt}
    known = started | {result.slot for result in results}
    forgotten = len(results) >= DEFAULT_KEEP_RESULTS and slot < results[-1].slot
    if slot in known or forgotten:
        return None
    if job.overlap == "skip" and max(started, default=0) > slot:
        return "superseded"
    too_late = job.max_late_ms is not None and active.now_ms - slot > job.max_late_ms
    return "late" if too_late else None
