"""The life of one run in this instance: claim, hold, execute, end (docs/run-lifecycle.md)."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Literal, Protocol, cast

from tenure.attempt import Attempt
from tenure.calls import Answer, Calls, asked
from tenure.errors import BackendError, SchedulerStateError
from tenure.events import Exhausted, InterruptReason, Skip, SkipReason, logger
from tenure.executor import Call, Executor
from tenure.heartbeat import Heartbeats, Lease
from tenure.instance import Delays, Instance
from tenure.job import Job
from tenure.model import Claim, Ending, LostAttempt, Mode, ResultStatus, RunResult, Triggered, new_token
from tenure.protocol import ClaimOnlyBackend
from tenure.schedule import next_slot_of
from tenure.unanswered import Unanswered, never_started
from tenure.watch import Watches

_GIVE_UP_LEASES = 10
"""A run that is never too late is claimed for so many leases while the store fails, or until the next slot is due."""
_MANUAL_TRIES = 5
_EARLY_WIDTH = 64
"""So many claims that were early are sent again at once; the jobs of a machine whose clock is fast all were."""
_TRIES_IN_A_LEASE = 10
_SAVE_PATIENCE_MS = 60_000


class Runner(Protocol):
    """Brings a run that is due to its end, or leaves it to another instance."""

    async def run(self, job: Job, slot: int, mode: Mode) -> None:
        """Claim the run, and start its handler if the claim is won; returns when the claim is decided, or failed."""

    async def trigger(self, job: Job) -> Triggered:
        """Run the job now, under its overlap rule; returns when the claim is decided."""


class LeaseRunner:
    """Runs jobs on a lease backend."""

    def __init__(self, instance: Instance, calls: Calls, executor: Executor, jobs: Mapping[str, Job]) -> None:
        self._instance = instance
        self._calls = calls
        self._executor = executor
        self._jobs = jobs
        self._heartbeats = Heartbeats(calls, instance)
        self._when_ended = self._handler_ended
        self._early: set[str] = set()
        self._early_turns = asyncio.Semaphore(_EARLY_WIDTH)
        self._ending: set[tuple[str, int]] = set()
        self._warned = False
        self._unanswered = Unanswered(instance, calls, self._save_unstarted)
        self.watches: Watches = Watches(calls, executor, instance, self, jobs)

    async def run(self, job: Job, slot: int, mode: Mode) -> None:
        """See Runner."""
        if self._executor.in_the_way(job, slot):
            _skip(self._instance, job, slot, "overlap")
            self.watches.back_up(job, slot, after=0)
            if not self._executor.executes(job.name, slot):
                self._instance.spawn(self._save_unstarted(job, slot, "overlap"))
            return
        claim = self._new_claim(job, slot, mode)
        try:
            answer = await self._calls.claim(claim)
        except Exception as error:  # noqa: BLE001 - whatever a backend raises is no answer
            self._instance.error("claim", error, job.name, slot)
            self._instance.spawn(self._claim_again(job, claim))
        else:
            self._answered(job, claim, answer)

    async def trigger(self, job: Job) -> Triggered:
        """See Runner; the slot is the store's time. BackendError if the store does not answer."""
        slot = self._calls.store_clock.now_ms()
        if self._executor.blocker(job):
            _skip(self._instance, job, slot, "overlap")
            return Triggered(slot, "overlap")
        for _ in range(_MANUAL_TRIES):
            claim = self._new_claim(job, slot, "manual")
            answer = await self._answer(job, claim)
            if answer is None:
                await self._given_up(job, claim)
                raise BackendError(f"the store did not answer the claim of {job.name!r}; see the error events")
            result = answer.result
            if result.outcome in ("won", "overlap"):
                self._answered(job, claim, answer)
                break
            slot = max(result.now_ms, slot + 1)
            _check_claims(self._instance, job)
        return Triggered(claim.slot, result.outcome)

    # What the watches ask for

    def takeover(self, job: Job, slot: int, after: int) -> Claim:
        """See Owner."""
        return self._new_claim(job, slot, "takeover", after)

    def won(self, job: Job, claim: Claim, answer: Answer) -> None:
        """See Owner."""
        self._hold(job, claim, answer)

    def done(self, job: Job, claim: Claim, answer: Answer) -> None:
        """See Owner."""
        if answer.result.status == "exhausted":
            self._instance.spawn(self._exhausted(job, claim, answer))

    def unwanted(self, claim: Claim) -> None:
        """See Owner."""
        self._instance.spawn(self._give_back(claim))

    def ends(self, name: str, slot: int) -> bool:
        """See Owner."""
        return (name, slot) in self._ending

    # The claim

    def _new_claim(self, job: Job, slot: int, mode: Mode, after: int = 0) -> Claim:
        return Claim(
            job=job.name,
            slot=slot,
            token=new_token(),
            instance=self._instance.name,
            lease_ms=job.lease_ms,
            mode=mode,
            overlap=job.overlap,
            max_attempts=job.max_attempts,
            max_late_ms=_max_late_ms(job, mode),
            after=after,
        )

    async def _answer(self, job: Job, claim: Claim) -> Answer | None:
        patience = partial(patience_ms, self._instance, job, claim.slot, claim.mode)
        ask = partial(self._calls.claim, claim)
        return await self._instance.until_answered("claim", ask, job.name, claim.slot, patience)

    async def _claim_again(self, job: Job, claim: Claim) -> None:
        """Repeat a claim that failed, with the same token, for as long as it is worth it."""
        ask = partial(self._calls.claim, claim)
        patience = patience_ms(self._instance, job, claim.slot, claim.mode)
        answer = await self._instance.again("claim", ask, job.name, claim.slot, patience)
        if answer is None:
            await self._given_up(job, claim)
            return
        self._answered(job, claim, answer)
        if never_started(answer.result):
            self._unanswered.add(job, claim.slot)

    async def _given_up(self, job: Job, claim: Claim) -> None:
        """The claim may have been carried out: watch the run, or give it back when stopping."""
        if self._instance.stopping.is_set():
            await self._give_back(claim)
        else:
            self.watches.watch(job, claim.slot, after=0)
            self._unanswered.add(job, claim.slot)

    async def _not_due(self, job: Job, claim: Claim, answer: Answer) -> None:
        """The store says it is too early, so this machine's clock is fast: wait and claim again, once a job."""
        _skip(self._instance, job, claim.slot, "early")
        wait_ms = answer.result.wait_ms
        if not self._warned:
            self._warned = True
            logger.warning("this machine's clock is %s ms ahead of the store's: set it right", wait_ms)
        if wait_ms is None or job.name in self._early:
            return
        self._early.add(job.name)
        await self._instance.pause(wait_ms)
        self._early.discard(job.name)
        async with self._early_turns:
            current = self._jobs.get(job.name)
            if current is not None and not self._instance.stopping.is_set():
                await self.run(current, claim.slot, claim.mode)

    def _answered(self, job: Job, claim: Claim, answer: Answer) -> None:
        result = answer.result
        match result.outcome:
            case "won":
                self._hold(job, claim, answer)
            case "running":
                _skip(self._instance, job, claim.slot, "taken", result.holder)
                self._watch(job, claim.slot, answer)
            case "overlap":
                _skip(self._instance, job, claim.slot, "overlap", result.holder)
                self._watch(job, claim.slot, answer)
                left_ms = result.lease_left_ms
                self.watches.back_up(job, result.slot or 0, after=0, lease_left_ms=left_ms, started=True)
                self._instance.spawn(self._save_unstarted(job, claim.slot, "overlap"))
            case "late":
                _skip(self._instance, job, claim.slot, "late")
                self._instance.spawn(self._save_unstarted(job, claim.slot, "late"))
            case "none" if claim.mode != "manual":
                self._instance.spawn(self._not_due(job, claim, answer))
            case "done" if result.status == "exhausted":
                self._instance.spawn(self._exhausted(job, claim, answer))
            case _:
                _skip(self._instance, job, claim.slot, "taken")

    def _watch(self, job: Job, slot: int, answer: Answer) -> None:
        result = answer.result
        self.watches.back_up(job, slot, after=result.attempt or 0, lease_left_ms=result.lease_left_ms)

    # A run that was won

    def _hold(self, job: Job, claim: Claim, answer: Answer) -> None:
        result = answer.result
        lease = Lease(self._heartbeats, job, claim, answer.sent_ms)
        if result.previous:
            self._instance.spawn(self._save_lost(job, claim.slot, result.previous))
        if not (lease.confirmed() and self._may_hold(job, claim.slot)):
            self._instance.spawn(self._hand_on(job, claim, result.attempt or 0))
            return
        attempt = Attempt(
            self._instance,
            job,
            claim.slot,
            claim.mode,
            started_at=result.now_ms,
            number=result.attempt or 1,
            fence=result.fence or 0,
            lease=lease,
        )
        attempt.started(result.previous)
        self._instance.hold()
        call = self._executor.start(job, attempt.ctx, lease)
        call.when_ended(self._when_ended, attempt)
        lease.keep(call)

    async def _hand_on(self, job: Job, claim: Claim, attempt: int) -> None:
        """A win that is too late starts nothing."""
        await self._give_back(claim)
        self.watches.watch(job, claim.slot, after=attempt)

    def _handler_ended(self, call: Call) -> None:
        self._instance.spawn(self._end(call))
        self._instance.let_go()

    def _may_hold(self, job: Job, slot: int) -> bool:
        """Whether a handler may start here still: things may have changed while the claim was on its way."""
        stopping = self._instance.stopping.is_set()
        return not stopping and job.name in self._jobs and not self._executor.in_the_way(job, slot)

    async def _end(self, call: Call) -> None:
        attempt = cast(Attempt, call.owner)
        lease = cast(Lease, attempt.lease)
        try:
            await self._record_end(attempt, lease, call)
        finally:
            lease.stop()

    async def _record_end(self, attempt: Attempt, lease: Lease, call: Call) -> None:
        ended = call.ended
        assert ended is not None
        if ended.how == "timeout":
            self._executor.timed_out(call)
        status = attempt.ended(ended)
        if status == "interrupted":
            await self._interrupted(attempt, lease, started=ended.how != "unstarted")
            return
        stored = await self._store_end(lease, status)
        lease.stop()
        if not stored:
            await self._lost(attempt)
            return
        await self._save(attempt.job, attempt.record(status))
        if status == "success":
            attempt.succeeded()
        else:
            attempt.failed(self._executor.going_on(attempt.job.name))

    async def _interrupted(self, attempt: Attempt, lease: Lease, *, started: bool) -> None:
        """A stop gives the attempt back, and so does a handler that never started; a lost one is used up."""
        stops = attempt.ctx.signal.reason == "stop"
        released = (stops or not started) and await self._store_end(lease, "release")
        lease.stop()
        await self._lost(attempt, "stop" if stops and released else None)

    async def _lost(self, attempt: Attempt, reason: InterruptReason | None = None) -> None:
        """This instance has the run no more: be a backup, learn why, record and tell it."""
        ctx = attempt.ctx
        self.watches.watch(attempt.job, ctx.slot_ms, after=ctx.attempt)
        if reason is None:
            ask = partial(self._why_lost, attempt)
            reason = await self._instance.until_answered("claim", ask, ctx.job, ctx.slot_ms, lambda: math.inf)
        await self._save(attempt.job, attempt.record("interrupted"))
        attempt.interrupted(reason or ("stop" if ctx.signal.reason == "stop" else "lost"))

    async def _store_end(self, lease: Lease, call: Ending | Literal["release"]) -> bool | None:
        run = lease.claim.job, lease.claim.slot
        self._ending.add(run)
        try:
            return await self._insist(lease, call)
        finally:
            self._ending.discard(run)

    async def _insist(self, lease: Lease, call: Ending | Literal["release"]) -> bool | None:
        """The store's answer, asked for until it comes; None when stopping with a lease that is over.

        While the lease may be held the delays stay short; after that, the first answer once the store is back decides.
        A stop asks once more: a heartbeat may have renewed the lease since, or nobody has taken the run.
        """
        claim, delays, stops = lease.claim, Delays(self._instance.rng), False
        while True:
            try:
                if call == "release":
                    return await self._calls.release(claim.job, claim.slot, claim.token)
                return await self._calls.finish(claim.job, claim.slot, claim.token, call)
            except Exception as error:  # noqa: BLE001 - whatever the backend raises is no answer
                self._instance.error("release" if call == "release" else "finish", error, claim.job, claim.slot)
            delay_ms = delays.next_ms()
            if lease.may_be_held():
                await self._instance.sleep(min(delay_ms, claim.lease_ms / _TRIES_IN_A_LEASE))
            elif stops:
                return None
            else:
                stops = await self._instance.pause(delay_ms)

    async def _give_back(self, claim: Claim) -> None:
        """Release what a claim won, or may have won; once, since such a lease ends by itself."""
        try:
            await self._calls.release(claim.job, claim.slot, claim.token)
        except Exception as error:  # noqa: BLE001 - whatever the backend raises is no answer
            self._instance.error("release", error, claim.job, claim.slot)

    async def _why_lost(self, attempt: Attempt) -> InterruptReason:
        """Ask who has the run: a takeover claim ``after`` 0 changes nothing about a run that was started (row 5)."""
        claim = self.takeover(attempt.job, attempt.ctx.slot_ms, after=0)
        result = (await self._calls.claim(claim)).result
        if result.status == "superseded" or result.status == "exhausted":
            return result.status
        taken = result.outcome == "done" or (result.attempt or 0) > attempt.ctx.attempt
        return "takeover" if taken else "lost"

    # History

    async def _exhausted(self, job: Job, claim: Claim, answer: Answer) -> None:
        result = answer.result
        self._instance.emit(
            Exhausted(
                job=job.name,
                slot=claim.slot,
                attempt=result.attempt or 0,
                instance=self._instance.name,
                previous=result.previous,
            )
        )
        await self._save_lost(job, claim.slot, result.previous)
        await self._save_unstarted(job, claim.slot, "exhausted")

    async def _save_lost(self, job: Job, slot: int, previous: tuple[LostAttempt, ...]) -> None:
        """Record the attempts that nobody ended; what their own holders saved stays."""
        for lost in previous:
            times = (lost.started_at, lost.ended_at)
            await self._save(job, RunResult(lost.slot, lost.attempt, lost.fence, "crashed", lost.holder, *times))
            if lost.slot != slot:
                await self._save_unstarted(job, lost.slot, "superseded")

    async def _save_unstarted(self, job: Job, slot: int, status: ResultStatus) -> None:
        await self._save(job, RunResult(slot, 0, 0, status, self._instance.name, None, None))

    async def _save(self, job: Job, result: RunResult) -> None:
        await _save(self._instance, partial(self._calls.save_result, job.name, result), job, result)


class ClaimOnlyRunner:
    """Runs jobs on a claim-only backend: no heartbeats, no backups, no recovery."""

    def __init__(self, instance: Instance, backend: ClaimOnlyBackend, executor: Executor) -> None:
        self._instance = instance
        self._contact = instance.contact
        self._backend = backend
        self._executor = executor

    async def run(self, job: Job, slot: int, mode: Mode) -> None:
        """See Runner."""
        if self._executor.in_the_way(job, slot):
            _skip(self._instance, job, slot, "overlap")
            return
        ask = partial(self._ask, job.name, slot, new_token())
        try:
            won = await ask()
        except Exception as error:  # noqa: BLE001 - whatever a backend raises is no answer
            self._instance.error("claim", error, job.name, slot)
            self._instance.spawn(self._claim_again(job, slot, mode, ask))
        else:
            self._answered(job, slot, mode, won)

    async def trigger(self, job: Job) -> Triggered:
        """See Runner; the slot is this machine's time. BackendError if the store does not answer."""
        slot = self._instance.clock.wall_ms()
        if self._executor.blocker(job):
            _skip(self._instance, job, slot, "overlap")
            return Triggered(slot, "overlap")
        for _ in range(_MANUAL_TRIES):
            won = await self._claim(job, slot, "manual")
            if won is None:
                raise BackendError(f"the store did not answer the claim of {job.name!r}; see the error events")
            if won:
                self._instance.spawn(self._execute(job, slot, "manual"))
                return Triggered(slot, "won")
            slot += 1
            _check_claims(self._instance, job)
        return Triggered(slot - 1, "running")

    async def _claim_again(self, job: Job, slot: int, mode: Mode, ask: Callable[[], Awaitable[bool]]) -> None:
        patience = patience_ms(self._instance, job, slot, mode)
        won = await self._instance.again("claim", ask, job.name, slot, patience)
        if won is not None:
            self._answered(job, slot, mode, won)

    def _answered(self, job: Job, slot: int, mode: Mode, won: bool) -> None:
        if won:
            self._instance.spawn(self._execute(job, slot, mode))
        else:
            _skip(self._instance, job, slot, "taken")

    async def _claim(self, job: Job, slot: int, mode: Mode) -> bool | None:
        patience = partial(patience_ms, self._instance, job, slot, mode)
        ask = partial(self._ask, job.name, slot, new_token())
        return await self._instance.until_answered("claim", ask, job.name, slot, patience)

    async def _ask(self, job: str, slot: int, token: str) -> bool:
        won: object = await self._contact.note("claim", asked(self._backend.claim(job, slot, token)))
        if not isinstance(won, bool):
            raise BackendError(f"the backend answered claim with {won!r}, which is neither True nor False")
        return won

    async def _record(self, job: str, result: RunResult) -> None:
        await self._contact.note("save_result", asked(self._backend.save_result(job, result)))

    async def _execute(self, job: Job, slot: int, mode: Mode) -> None:
        attempt = Attempt(self._instance, job, slot, mode, started_at=self._instance.clock.wall_ms())
        attempt.started()
        call = self._executor.start(job, attempt.ctx)
        if self._instance.stopping.is_set():  # the claim cannot be given back
            call.stop("stop", cancel=False)
        ended = await call.wait()
        if ended.how == "timeout":
            self._executor.timed_out(call)
        status = attempt.ended(ended)
        result = attempt.record(status)
        await _save(self._instance, partial(self._record, job.name, result), job, result)
        if status == "success":
            attempt.succeeded()
        elif status == "failed":
            attempt.failed(self._executor.going_on(job.name))
        else:
            attempt.interrupted("stop")


def _skip(instance: Instance, job: Job, slot: int, reason: SkipReason, holder: str | None = None) -> None:
    instance.emit(Skip(job=job.name, slot=slot, instance=instance.name, reason=reason, holder=holder))


def _check_claims(instance: Instance, job: Job) -> None:
    if instance.stopping.is_set():
        raise SchedulerStateError(f"trigger({job.name!r}): the scheduler stops and claims no more")


def _max_late_ms(job: Job, mode: Mode) -> int | None:
    if mode == "manual":
        return None
    return job.catch_up_ms if mode == "catch-up" else job.max_late_ms


def patience_ms(instance: Instance, job: Job, slot: int, mode: Mode) -> int:
    """How long a claim is worth repeating: until the run is too late, or the job's next one due."""
    now = instance.clock.wall_ms()
    max_late_ms = _max_late_ms(job, mode)
    if max_late_ms is not None:
        return slot + max_late_ms - now
    following = _following(job, now) if job.overlap == "skip" else None
    return job.lease_ms * _GIVE_UP_LEASES if following is None else following - now


def _following(job: Job, now: int) -> int | None:
    try:
        return next_slot_of(job.schedule, now)
    except Exception:  # noqa: BLE001 - a schedule of the user's own, which the timers complain about
        return None


async def _save(instance: Instance, save: Callable[[], Awaitable[None]], job: Job, result: RunResult) -> None:
    await instance.until_answered("save_result", save, job.name, result.slot, lambda: _SAVE_PATIENCE_MS)
