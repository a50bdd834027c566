"""Backups: runs that another instance owns, checked until they are done or this instance wins their next attempt."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tenure.calls import Answer, Calls
from tenure.executor import Executor
from tenure.instance import Instance
from tenure.job import Job
from tenure.model import Claim

MOST_WATCHES = {"skip": 16, "allow": 1_000}
"""Watches of one job, the newest: while a store is away each slot would leave one more."""
_LEAST_SPREAD_MS = 50
_SPREAD_PART = 50
"""Backups look at a random moment in this part of the lease after it ran out, so that they do not all ask at once."""


class Owner(Protocol):
    """What a watch needs of the runner it works for."""

    def takeover(self, job: Job, slot: int, after: int) -> Claim:
        """A takeover claim with a fresh token, ``after`` the attempt last told of."""

    def won(self, job: Job, claim: Claim, answer: Answer) -> None:
        """This instance owns the next attempt, perhaps after the watch had ended."""

    def unwanted(self, claim: Claim) -> None:
        """A claim that may have been won, after the watch had ended."""

    def done(self, job: Job, claim: Claim, answer: Answer) -> None:
        """The run needs no backup any more."""

    def ends(self, name: str, slot: int) -> bool:
        """Whether this instance's own end of the run is on its way to the store."""


@dataclass(slots=True, eq=False)
class _Watch:
    job: Job
    slot: int
    after: int
    over_ms: float | None
    """When the lease it was last told of runs out, on the monotonic clock."""
    since_ms: float
    started: bool
    """Whether somebody is known to have started the run: then it may need a backup to come to its end."""
    ended: bool = False
    looks_now: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None
    """While it sleeps."""


class Watches:
    """The runs this instance is a backup for, each checked on its own; it never runs a handler."""

    def __init__(
        self, calls: Calls, executor: Executor, instance: Instance, owner: Owner, jobs: Mapping[str, Job]
    ) -> None:
        self._calls = calls
        self._executor = executor
        self._instance = instance
        self._owner = owner
        self._jobs = jobs
        self._watches: dict[str, dict[int, _Watch]] = {}
        self._closed = False

    def watch(
        self, job: Job, slot: int, *, after: int, lease_left_ms: int | None = None, started: bool = False
    ) -> None:
        """Be a backup for the run; ``lease_left_ms`` as it was told, None if it was not.

        The job is taken as it is now: removed it is not watched, replaced the new one serves from the next attempt.
        """
        current = self._jobs.get(job.name)
        if self._closed or current is None:
            return
        job = current
        of_job = self._watches.setdefault(job.name, {})
        known = of_job.get(slot)
        started = started or after > 0
        if known is not None:
            known.after = max(known.after, after)
            known.started = known.started or started
            if lease_left_ms is not None:
                self._told(known, lease_left_ms)
            return
        now = self._instance.clock.monotonic_ms()
        watch = of_job[slot] = _Watch(job, slot, after, _over_ms(now, lease_left_ms), now, started)
        if len(of_job) > MOST_WATCHES[job.overlap]:
            self._end(min(of_job.values(), key=_worth))
        self._instance.spawn(self._run(watch))

    def back_up(
        self, job: Job, slot: int, *, after: int, lease_left_ms: int | None = None, started: bool = False
    ) -> None:
        """Watch another's run; one that executes or ends here is watched by its holder, once it has lost it."""
        if not (self._executor.executes(job.name, slot) or self._owner.ends(job.name, slot)):
            self.watch(job, slot, after=after, lease_left_ms=lease_left_ms, started=started)

    def hint(self, name: str) -> None:
        """Look at the job's runs now."""
        for watch in self._watches.get(name, {}).values():
            watch.looks_now = True
            watch.wake.set()

    def replace(self, job: Job) -> None:
        """A replaced job serves from the next attempt."""
        for watch in self._watches.get(job.name, {}).values():
            watch.job = job

    def end(self, name: str) -> None:
        """End the job's watches; a claim on its way is given back if it wins."""
        for watch in list(self._watches.get(name, {}).values()):
            self._end(watch)

    def close(self) -> None:
        """End all watches, and start none any more."""
        self._closed = True
        for name in list(self._watches):
            self.end(name)

    def watched(self, name: str) -> list[int]:
        """The slots of the job that this instance is a backup for."""
        return sorted(self._watches.get(name, ()))

    def _end(self, watch: _Watch) -> None:
        watch.ended = True
        watch.wake.set()
        of_job = self._watches.get(watch.job.name, {})
        if of_job.get(watch.slot) is watch:
            del of_job[watch.slot]
            if not of_job:
                del self._watches[watch.job.name]

    async def _run(self, watch: _Watch) -> None:
        claim: Claim | None = None
        while await self._turn(watch):
            claim = claim or self._owner.takeover(watch.job, watch.slot, watch.after)
            try:
                answer = await self._calls.claim(claim)
            except Exception as error:  # noqa: BLE001 - a failed check never ends the watch
                if not watch.ended:
                    self._failed(watch, claim, error)
                continue  # with the same token
            self._answered(watch, claim, answer)
            claim = None
        if claim is not None:
            self._owner.unwanted(claim)

    def _failed(self, watch: _Watch, claim: Claim, error: Exception) -> None:
        self._instance.error("claim", error, claim.job, claim.slot)
        if watch.over_ms is not None and watch.over_ms <= self._instance.clock.monotonic_ms():
            watch.over_ms = None  # this was the check for it

    async def _turn(self, watch: _Watch) -> bool:
        """Wait until the run is to be checked; False if it is not any more."""
        await self._sleep(watch, self._delay_ms(watch))
        while not watch.ended and (call := self._executor.in_the_way(watch.job, watch.slot)):
            watch.wake.clear()
            call.when_gone(lambda _: watch.wake.set())
            await watch.wake.wait()
        while not watch.ended and self._owner.ends(watch.job.name, watch.slot):
            await self._sleep(watch, watch.job.heartbeat_ms)  # to take it over would repeat what is complete
        return not watch.ended

    def _delay_ms(self, watch: _Watch) -> float:
        job = watch.job
        poll_ms = job.heartbeat_ms * (1 + self._instance.rng.random())
        if watch.over_ms is None:
            return poll_ms
        left = watch.over_ms - self._instance.clock.monotonic_ms()
        if left <= 0:  # over: the answer named the attempt to ask for, at once
            return 0
        return min(poll_ms, left + self._instance.rng.random() * max(job.lease_ms / _SPREAD_PART, _LEAST_SPREAD_MS))

    async def _sleep(self, watch: _Watch, delay_ms: float) -> None:
        if watch.looks_now or watch.ended:
            watch.looks_now = False
            return
        watch.wake.clear()
        watch.timer = asyncio.get_running_loop().call_later(delay_ms / 1000, watch.wake.set)
        await watch.wake.wait()
        watch.timer.cancel()
        watch.timer = None
        watch.looks_now = False

    def _told(self, watch: _Watch, lease_left_ms: int) -> None:
        """Something else told when the lease is over: look then, if that is sooner."""
        watch.over_ms = self._instance.clock.monotonic_ms() + lease_left_ms
        if watch.timer is None:
            return
        loop, delay_s = asyncio.get_running_loop(), self._delay_ms(watch) / 1000
        if loop.time() + delay_s < watch.timer.when():
            watch.timer.cancel()
            watch.timer = loop.call_later(delay_s, watch.wake.set)

    def _answered(self, watch: _Watch, claim: Claim, answer: Answer) -> None:
        result = answer.result
        told = result.attempt or 0
        # "Over" with the attempt that was asked for is no answer of the protocol: do not ask again at once.
        over = (result.lease_left_ms or 0) <= 0
        left_ms = None if over and told == claim.after else result.lease_left_ms
        watch.over_ms = _over_ms(self._instance.clock.monotonic_ms(), left_ms)
        watch.after = told  # also a smaller one, of a store that lost its latest writes
        watch.started = told > 0
        if result.outcome == "won":
            self._end(watch)
            self._owner.won(watch.job, claim, answer)
        elif result.outcome in ("done", "late"):
            self._end(watch)
            self._owner.done(watch.job, claim, answer)
        elif watch.ended:
            return
        elif result.outcome == "overlap" and result.slot is not None:
            self.back_up(watch.job, result.slot, after=0, lease_left_ms=result.lease_left_ms, started=True)
        elif result.outcome == "none" and not self._may_still_start(watch, result.now_ms):
            self._end(watch)

    def _may_still_start(self, watch: _Watch, now_ms: int) -> bool:
        """Whether someone could still start a run that nobody has started."""
        job = watch.job
        if job.max_late_ms is None:
            return self._instance.clock.monotonic_ms() - watch.since_ms < job.lease_ms
        return now_ms - watch.slot <= max(job.max_late_ms, job.catch_up_ms or 0)


def _worth(watch: _Watch) -> tuple[bool, int]:
    """By which the least one is given up when there are too many."""
    return watch.started, watch.slot


def _over_ms(now: float, lease_left_ms: int | None) -> float | None:
    return None if lease_left_ms is None else now + lease_left_ms
