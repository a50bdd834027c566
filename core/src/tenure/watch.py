"""Backups: runs that another instance owns, checked until they are done or this instance wins their next attempt."""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tenure.calls import Answer, Calls
from tenure.executor import Executor
from tenure.instance import Delays, Instance
from tenure.job import Job
from tenure.model import ActiveRun, Claim

MOST_WATCHES = {"skip": 16, "allow": 1_000}
"""Watches of one job, the newest: while a store is away each slot would leave one more."""
_LEAST_SPREAD_MS = 50
_SPREAD_PART = 50
"""Backups look at a random moment in this part of the lease after it ran out, so that they do not all ask at once."""
_RESTS = 0.5
"""In a look that another watch is due for, one takes part whose last look was this part of its heartbeat ago."""
_TURN = 1_000
"""After so many runs of one look, others of the loop have their turn."""
_WIDTH = 64
"""So many claims are on their way at once: when an instance with thousands of runs dies, its leases end together."""
_FEW = 8
_CROWD_MS = 100
_GATHER_MS = 40
_SOME = 32
"""Where more than a few are to be claimed in so short a time they are looked at first, gathered for a moment: a backup
would else claim every run of an instance that died or was stopped, though others have taken most by then."""


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
    since_ms: float
    started: bool
    """Whether somebody is known to have started the run: then it may need a backup to come to its end."""
    over_ms: float | None = None
    """When the lease it was last told of runs out, on the monotonic clock."""
    due_ms: float = 0.0
    rests_until_ms: float = 0.0
    claim: Claim | None = None
    """From when it is first sent until it is answered."""
    sending: bool = False
    """Its claim is on its way."""
    busy: bool = False
    """Something else will plan it: an answer that is on its way, or a handler's end."""
    hinted: bool = False
    seen_over: bool = False
    """The store has just said that its lease is over."""
    ended: bool = False
    timer: asyncio.Handle | None = None


class Watches:
    """The runs this instance is a backup for; it never runs a handler.

    What is live is looked at together, by one ``active``; what is over, or was hinted at, is claimed. While checks
    fail, one at a time is sent for all of them, and all go on once one is answered.
    """

    def __init__(
        self, calls: Calls, executor: Executor, instance: Instance, owner: Owner, jobs: Mapping[str, Job]
    ) -> None:
        self._calls = calls
        self._executor = executor
        self._instance = instance
        self._owner = owner
        self._jobs = jobs
        self._watches: dict[str, dict[int, _Watch]] = {}
        self._turns = asyncio.Semaphore(_WIDTH)
        self._wanted: deque[float] = deque(maxlen=_FEW)
        self._claiming = 0
        self._few_claim = asyncio.Event()
        self._few_claim.set()
        self._doubtful: list[_Watch] = []
        self._doubts = False
        self._looks_soon = False
        self._in_trouble = False
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
        started = started or after > 0
        known = self._watches.get(job.name, {}).get(slot)
        if known is None:
            self._begin(_Watch(current, slot, after, self._now_ms(), started), lease_left_ms)
            return
        known.after = max(known.after, after)
        known.started = known.started or started
        if lease_left_ms is not None:
            self._told(known, lease_left_ms)

    def back_up(
        self, job: Job, slot: int, *, after: int, lease_left_ms: int | None = None, started: bool = False
    ) -> None:
        """Watch another's run; one that executes or ends here is watched by its holder, once it has lost it."""
        if not (self._executor.executes(job.name, slot) or self._owner.ends(job.name, slot)):
            self.watch(job, slot, after=after, lease_left_ms=lease_left_ms, started=started)

    def expect(self, job: Job, slot: int, now_ms: int) -> None:
        """Watch a run that nobody is known to have started, if at the store's ``now_ms`` somebody still could."""
        if _may_start(job, slot, now_ms):
            self.back_up(job, slot, after=0)

    def hint(self, name: str) -> None:
        """Check the job's runs now."""
        for watch in self._watches.get(name, {}).values():
            watch.hinted = True
            if not watch.busy:
                self._arm(watch, self._now_ms())

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

    def _all(self) -> Iterator[_Watch]:
        for of_job in self._watches.values():
            yield from of_job.values()

    def _begin(self, watch: _Watch, lease_left_ms: int | None) -> None:
        of_job = self._watches.setdefault(watch.job.name, {})
        of_job[watch.slot] = watch
        watch.over_ms, watch.seen_over = _over_ms(watch.since_ms, lease_left_ms), lease_left_ms == 0
        self._plan(watch)
        if len(of_job) > MOST_WATCHES[watch.job.overlap]:
            self._end(min(of_job.values(), key=_worth))

    def _end(self, watch: _Watch) -> None:
        watch.ended = True
        if watch.timer is not None:
            watch.timer.cancel()
        if watch.claim is not None and not watch.sending:
            self._owner.unwanted(watch.claim)
        of_job = self._watches.get(watch.job.name, {})
        if of_job.get(watch.slot) is watch:
            del of_job[watch.slot]
            if not of_job:
                del self._watches[watch.job.name]

    # When a watch is checked

    def _now_ms(self) -> float:
        return self._instance.clock.monotonic_ms()

    def _plan(self, watch: _Watch, part: float | None = None) -> None:
        """Check it in one to two heartbeats, or just after its lease; what is looked at together shares ``part``."""
        watch.busy = False
        if watch.ended:
            return
        now, beat_ms = self._now_ms(), watch.job.heartbeat_ms
        watch.rests_until_ms = now + beat_ms * _RESTS
        due_ms = now + beat_ms * (1 + (self._instance.rng.random() if part is None else part))
        self._arm(watch, now if watch.hinted else min(due_ms, self._after_lease_ms(watch, now)))

    def _after_lease_ms(self, watch: _Watch, now: float) -> float:
        if watch.over_ms is None:
            return float("inf")
        if watch.over_ms <= now:  # over: the answer named the attempt to ask for, at once
            return now
        spread_ms = max(watch.job.lease_ms / _SPREAD_PART, _LEAST_SPREAD_MS)
        return watch.over_ms + self._instance.rng.random() * spread_ms

    def _told(self, watch: _Watch, lease_left_ms: int) -> None:
        """Something else told when the lease is over: check it then, if that is sooner."""
        now = self._now_ms()
        watch.over_ms = now + lease_left_ms
        due_ms = self._after_lease_ms(watch, now)
        if due_ms < watch.due_ms and not watch.busy:
            self._arm(watch, due_ms)

    def _arm(self, watch: _Watch, due_ms: float) -> None:
        watch.due_ms = due_ms
        if watch.timer is not None:
            watch.timer.cancel()
        loop, delay_ms = asyncio.get_running_loop(), due_ms - self._now_ms()
        later = delay_ms > 0
        watch.timer = loop.call_later(delay_ms / 1000, self._due, watch) if later else loop.call_soon(self._due, watch)

    def _due(self, watch: _Watch) -> None:
        watch.timer = None
        if self._in_trouble or self._has_to_wait(watch):
            return
        if self._wants_claim(watch):
            self._claim_or_doubt(watch)
            return
        watch.rests_until_ms = 0
        if not self._looks_soon:
            self._looks_soon = True
            self._instance.spawn(self._look())

    def _claim_or_doubt(self, watch: _Watch) -> None:
        watch.busy = True
        if watch.seen_over or watch.claim is not None or not self._is_crowd():
            self._claiming += 1
            if self._claiming >= _FEW:
                self._few_claim.clear()
            self._instance.spawn(self._claim_in_turn(watch))
            return
        self._doubtful.append(watch)
        if not self._doubts:
            self._doubts = True
            self._instance.spawn(self._resolve())

    def _is_crowd(self) -> bool:
        now, full = self._now_ms(), len(self._wanted) == _FEW
        oldest_ms = self._wanted[0] if full else 0
        self._wanted.append(now)
        return full and now - oldest_ms < _CROWD_MS

    def _wants_claim(self, watch: _Watch) -> bool:
        """Whether it is to be claimed; what is live is only looked at."""
        over = watch.over_ms is not None and watch.over_ms <= self._now_ms()
        return over or watch.hinted or watch.claim is not None

    def _has_to_wait(self, watch: _Watch) -> bool:
        """Whether it may not be checked now; it is planned anew when it may."""
        if watch.busy or watch.ended:
            return True
        if call := self._executor.in_the_way(watch.job, watch.slot):
            watch.busy = True
            call.when_gone(lambda _: self._may_go_on(watch))
            return True
        if self._owner.ends(watch.job.name, watch.slot):  # to take it over would repeat what is complete
            self._arm(watch, self._now_ms() + watch.job.heartbeat_ms)
            return True
        return False

    def _may_go_on(self, watch: _Watch) -> None:
        watch.busy = False
        if not watch.ended:
            self._arm(watch, self._now_ms())

    # Checks: true if the store answered

    async def _look(self) -> bool:
        """Ask what became of all that is live, as far as it was known, in one call."""
        self._looks_soon = False
        watches = [watch for watch in self._all() if self._takes_part(watch)]
        return await self._look_at(watches)

    async def _resolve(self) -> None:
        """Look at what may be over, some at a time and in an order of its own, and let what is be claimed."""
        while self._doubtful and not self._in_trouble:
            self._instance.rng.shuffle(self._doubtful)
            watches, self._doubtful = self._doubtful[:_SOME], self._doubtful[_SOME:]
            look = self._instance.spawn(self._look_at([watch for watch in watches if not watch.ended]))
            await asyncio.wait((look,), timeout=_CROWD_MS / 1000)  # one that hangs holds up no other run
            gather_ms = 0 if len(self._doubtful) > _FEW else self._instance.rng.random() * _GATHER_MS
            await self._instance.sleep(gather_ms)  # in which they begin to be claimed
            with suppress(TimeoutError):
                async with asyncio.timeout(_CROWD_MS / 1000):
                    await self._few_claim.wait()
        for watch in self._doubtful:
            watch.busy = False  # the trouble's end plans it anew
        self._doubtful.clear()
        self._doubts = False

    async def _look_at(self, looked_at: list[_Watch]) -> bool:
        if not looked_at:
            return False
        watches = [(watch, watch.started) for watch in looked_at]
        for watch in looked_at:
            watch.busy, watch.hinted = True, False
        try:
            answer = await self._calls.active(sorted({watch.job.name for watch in looked_at}))
        except Exception as error:  # noqa: BLE001 - a failed look ends no watch
            self._instance.error("active", error)
            self._fail(looked_at)
            return False
        runs = {(run.job, run.slot): run for run in answer.runs}
        part = self._instance.rng.random()
        for number, (watch, started) in enumerate(watches, 1):
            self._seen(watch, runs.get((watch.job.name, watch.slot)), started, answer.now_ms, part)
            if number % _TURN == 0:
                await asyncio.sleep(0)
        return True

    def _takes_part(self, watch: _Watch) -> bool:
        rests = self._now_ms() < watch.rests_until_ms
        return not (rests or self._wants_claim(watch) or self._has_to_wait(watch))

    def _seen(self, watch: _Watch, run: ActiveRun | None, started: bool, now_ms: int, part: float) -> None:
        """``started``: whether it was known to be when the look was sent; not unfinished, it has ended then."""
        if run is not None:
            watch.after, watch.started = run.attempt, True
            watch.over_ms = self._now_ms() + (run.lease_left_ms if run.live else 0)
            watch.seen_over = not run.live
        elif started or not self._may_still_start(watch, now_ms):
            self._end(watch)
        self._plan(watch, part)

    async def _claim_in_turn(self, watch: _Watch) -> None:
        async with self._turns:
            watch.busy = False
            if not (self._in_trouble or self._has_to_wait(watch)):
                await self._claim(watch)
        self._claiming -= 1
        if self._claiming < _FEW:
            self._few_claim.set()

    async def _claim(self, watch: _Watch) -> bool:
        watch.busy, watch.sending, watch.hinted, watch.seen_over = True, True, False, False
        claim = watch.claim = watch.claim or self._owner.takeover(watch.job, watch.slot, watch.after)
        try:
            answer = await self._calls.claim(claim)
        except Exception as error:  # noqa: BLE001 - a failed check never ends the watch
            watch.sending = False
            self._claim_failed(watch, claim, error)
            return False
        watch.sending, watch.claim = False, None
        self._answered(watch, claim, answer)
        self._plan(watch)
        return True

    def _claim_failed(self, watch: _Watch, claim: Claim, error: Exception) -> None:
        if watch.ended:
            self._owner.unwanted(claim)
            return
        self._instance.error("claim", error, claim.job, claim.slot)
        if watch.over_ms is not None and watch.over_ms <= self._now_ms():
            watch.over_ms = None  # this was the check for it
        self._fail([watch])

    def _answered(self, watch: _Watch, claim: Claim, answer: Answer) -> None:
        result = answer.result
        told = result.attempt or 0
        # "Over" with the attempt that was asked for is no answer of the protocol: do not ask again at once.
        over = (result.lease_left_ms or 0) <= 0
        left_ms = None if over and told == claim.after else result.lease_left_ms
        watch.over_ms, watch.seen_over = _over_ms(self._now_ms(), left_ms), left_ms == 0
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
        if watch.job.max_late_ms is None:
            return self._now_ms() - watch.since_ms < watch.job.lease_ms
        return _may_start(watch.job, watch.slot, now_ms)

    # While checks fail

    def _fail(self, watches: list[_Watch]) -> None:
        for watch in watches:
            self._plan(watch)
            watch.rests_until_ms = 0
        if not self._in_trouble:
            self._in_trouble = True
            self._instance.spawn(self._probe())

    async def _probe(self) -> None:
        """Send one check at a time for all, at growing distances, until one is answered."""
        delays = Delays(self._instance.rng)
        while self._watches:
            pause_ms = min(delays.next_ms(), self._patience_ms())
            if await self._instance.pause(pause_ms) or await self._check_one():
                break
        self._in_trouble = False
        for watch in self._all():
            if watch.timer is None and not watch.busy:
                self._arm(watch, watch.due_ms)

    def _patience_ms(self) -> float:
        """The next check is due a heartbeat later at the latest, and when a lease runs out that was live before."""
        now, spread_ms = self._now_ms(), self._instance.rng.random() * _LEAST_SPREAD_MS
        beat_ms = min(watch.job.heartbeat_ms for watch in self._all())
        ends = (watch.over_ms for watch in self._all() if watch.over_ms is not None and watch.over_ms > now)
        next_end_ms = min(ends, default=float("inf")) - now + spread_ms
        return min(beat_ms, max(next_end_ms, _LEAST_SPREAD_MS))

    async def _check_one(self) -> bool:
        """Check what has waited longest, a claim if there is one to send: a store may read and not write."""
        waiting = [watch for watch in self._all() if not self._has_to_wait(watch)]
        wanted = [watch for watch in waiting if self._wants_claim(watch)]
        if wanted:
            return await self._claim(min(wanted, key=_due_ms))
        return await self._look()


def _may_start(job: Job, slot: int, now_ms: int) -> bool:
    return job.max_late_ms is None or now_ms - slot <= max(job.max_late_ms, job.catch_up_ms or 0)


def _worth(watch: _Watch) -> tuple[bool, int]:
    """By which the least one is given up when there are too many."""
    return watch.started, watch.slot


def _due_ms(watch: _Watch) -> float:
    return watch.due_ms


def _over_ms(now: float, lease_left_ms: int | None) -> float | None:
    return None if lease_left_ms is None else now + lease_left_ms
