"""Claims and what follows them: decided by ``tenure.decision``, made true by transactions on an unchanged job."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from tenure import decision
from tenure.dateclock import DateClock, Interval
from tenure.decision import KEPT_UNFINISHED, JobState, RunState
from tenure.model import ActiveRuns, Claim, ClaimResult, Ending

from tenure_etcd import requests
from tenure_etcd.cluster import Cluster
from tenure_etcd.dates import monotonic_ms
from tenure_etcd.keys import KEPT, JobKeys, Layout
from tenure_etcd.leases import Lease, Spares
from tenure_etcd.state import Place, View, decode, encode
from tenure_etcd.turns import Turns

Decide = Callable[[JobState, int], tuple[JobState, bool]]

AT_ONCE = 64
"""Jobs that are read at the same time."""
PAUSE_S = 0.01


class Runs:
    """The jobs of a namespace, as one process sees and changes them.

    What was last known of a job is kept. A change is made from that without reading, since it is refused if the job
    was changed meanwhile; an answer that changes nothing is only given of what was read after the call began.
    """

    def __init__(self, cluster: Cluster, layout: Layout, clock: DateClock) -> None:
        self._cluster = cluster
        self._layout = layout
        self._clock = clock
        self._views: dict[str, View] = {}
        self._lost: set[str] = set()
        """Jobs whose last claim was not won: others are there, so the next claim looks first."""
        self._turns = Turns()
        self._spares = Spares(cluster)

    async def claim(self, claim: Claim) -> ClaimResult:
        """See LeaseBackend; ``lease_ms`` is in whole seconds."""
        name, begun = claim.job, self._cluster.loop.time()
        lease = Lease(self._cluster, self._spares, claim.lease_ms)
        if claim.mode != "takeover" and name not in self._lost and name not in self._views:
            lease.ask()  # while the job is read
        try:
            async with self._turns.of(name):
                result = await self._claim(self._layout.job(name), claim, lease, begun)
        finally:
            lease.leave()
        if result.outcome == "won":
            self._lost.discard(name)
        elif claim.mode != "takeover":
            self._lost.add(name)
        return result

    async def heartbeat(self, name: str, slot: int, token: str) -> bool:
        """See LeaseBackend; two requests at once where the run hangs on the lease that we know of."""
        job = self._layout.job(name)
        view = self._views.get(name) or await self._read(job)
        run = _held(view, slot, token)
        if run is not None and await self._renew(job, view, run):
            return True
        async with self._turns.of(name):
            return await self._revive(job, slot, token)

    async def finish(self, name: str, slot: int, token: str, status: Ending) -> bool:
        """See LeaseBackend."""
        return await self._end(name, slot, lambda state, _: decision.finish(state, slot, token, status))

    async def release(self, name: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        return await self._end(name, slot, lambda state, now: decision.release(state, slot, token, now))

    async def active(self, names: Sequence[str]) -> ActiveRuns:
        """See LeaseBackend."""
        jobs = [self._layout.job(name) for name in names]
        views: list[View] = []
        for start in range(0, len(jobs), AT_ONCE):
            views += await self._read_all(jobs[start : start + AT_ONCE])
        now = self._now().middle
        found = zip(names, views, strict=True)
        return ActiveRuns(now, tuple([run for name, view in found for run in decision.active(name, view.at(now), now)]))

    async def _claim(self, job: JobKeys, claim: Claim, lease: Lease, begun: float) -> ClaimResult:
        view = self._views.get(claim.job)
        if view is not None and claim.job in self._lost and not self._is_fresh(view, begun):
            view = None
        for tries in count():
            view = view or await self._read(job)
            now = self._now().nearest(claim.slot)  # in doubt it is neither late nor early
            known = view.at(now)
            state, result = decision.claim(known, claim, now)
            is_fresh = self._is_fresh(view, begun)
            if state is known and is_fresh:
                return result
            if state is known or (not is_fresh and len(known.unfinished) >= KEPT_UNFINISHED):
                view = None  # so many are only bounded by who is alive now
                continue
            if result.outcome != "won":
                changed, view = await self._replace(job, view, state)
                if changed:
                    return result
            else:
                view = await self._win(job, view, state, claim.slot, lease)
                if view is not None and lease.used:
                    return replace(result, fence=_of(view.state, claim.slot).fence)
            await _pause(tries)
        raise AssertionError("unreachable")

    async def _win(self, job: JobKeys, view: View, state: JobState, slot: int, lease: Lease) -> View | None:
        """Store a win, new or repeated: in both cases the run hangs on a lease of its own from then on.

        What is known of the job now; ``lease.used`` tells whether it was stored.
        """
        former = view.places.get(slot)
        place = Place(view.free_place() if former is None else former.number, await lease.take())
        is_new = former is None or _of(view.state, slot).attempt != _of(state, slot).attempt
        lease.used = True  # also if the answer is lost: then it may have been stored
        stored = await lease.carry(self._replace(job, view, state, placed=(slot, place), is_win=is_new))
        if stored is None:
            return None
        changed, after = stored
        lease.used = changed
        if changed and former is not None and slot in view.live:
            self._cluster.give_back(former.lease, _of(view.state, slot).lease_ms // 1_000)
        return after

    async def _renew(self, job: JobKeys, view: View, run: RunState) -> bool:
        """Renew the lease and store its new end; True if the run still hung on it.

        Whichever of the two comes first, there was a moment when the run was held and its lease live.
        """
        place, end = view.places[run.slot], self._now().middle + run.lease_ms
        left_s, stored = await asyncio.gather(
            self._cluster.keep_alive(place.lease),
            self._cluster.call("txn", requests.write_beat(job, place, run.token, end)),
        )
        if not (left_s > 0 and stored.succeeded):
            return False
        known = self._views.get(job.name)
        if known is not None and known.places.get(run.slot) == place:
            self._views[job.name] = known.with_end(run.slot, end)
        return True

    async def _revive(self, job: JobKeys, slot: int, token: str) -> bool:
        """Put the run that the token holds on a new lease, whatever became of the former one."""
        for tries in count():
            view = await self._read(job)
            run = _held(view, slot, token)
            if run is None:
                return False
            lease = Lease(self._cluster, self._spares, run.lease_ms)
            now = self._now().middle
            state, _ = decision.heartbeat(view.at(now), slot, token, now)
            if await self._win(job, view, state, slot, lease) is not None and lease.used:
                return True
            lease.leave()
            await _pause(tries)
        raise AssertionError("unreachable")

    async def _end(self, name: str, slot: int, decide: Decide) -> bool:
        begun = self._cluster.loop.time()
        job = self._layout.job(name)
        async with self._turns.of(name):
            view = self._views.get(name)
            for tries in count():
                view = view or await self._read(job)
                now = self._now().middle
                known = view.at(now)
                state, held = decide(known, now)
                is_fresh = self._is_fresh(view, begun)
                if state is known and is_fresh:
                    return held
                if state is known or (not is_fresh and _of(view.state, slot).expires_at <= now):
                    view = None  # of a lease that may be over it is told when it was
                    continue
                before = view
                changed, view = await self._replace(job, before, state)
                if changed and slot in before.live:
                    run = _of(before.state, slot)
                    self._spares.add(before.places[slot].lease, run.lease_ms // 1_000, (run.expires_at - now) / 1_000)
                if changed:
                    return held
                await _pause(tries)
        raise AssertionError("unreachable")

    async def _replace(
        self,
        job: JobKeys,
        view: View,
        state: JobState,
        *,
        placed: tuple[int, Place] | None = None,
        is_win: bool = False,
    ) -> tuple[bool, View]:
        """Store the state if the job is as in the view; whether it was stored, and what is known of the job now."""
        all_places = {**view.places, **dict([placed] if placed else [])}
        places = {run.slot: all_places[run.slot] for run in state.unfinished}
        live = frozenset(run.slot for run in state.unfinished if run.status == "open" and run.slot in view.live)
        request = requests.replace_state(
            job,
            view.revision,
            encode(state, places, placed[0] if placed and is_win else None),
            live=None if placed is None else placed[1],
            held=view.places[placed[0]] if placed is not None and not is_win and placed[0] in view.live else None,
            token="" if placed is None else _of(state, placed[0]).token,
            over=[view.places[one] for one in view.live - live],
        )
        asked_at = self._cluster.loop.time()
        answer = await self._cluster.call("txn", request)
        if answer.succeeded:
            revision = answer.header.revision
            if placed is not None:
                live |= {placed[0]}
                state = _fenced(state, placed[0], revision) if is_win else state
            after = View(revision, state, places, live, view.asked_at)  # who else is alive was not looked at
        else:
            after = decode(job, answer.responses[0].response_range.kvs, asked_at)
        self._keep(job.name, after)
        return answer.succeeded, after

    async def _read(self, job: JobKeys) -> View:
        asked_at = self._cluster.loop.time()
        answer = await self._cluster.call("read", requests.read_job(job))
        view = decode(job, answer.kvs, asked_at, self._views.get(job.name))
        self._keep(job.name, view)
        return view

    async def _read_all(self, jobs: Sequence[JobKeys]) -> list[View]:
        """Each by a request of its own: a transaction that only reads, and is cancelled, ends an etcd before 3.5.7."""
        asked_at = self._cluster.loop.time()
        answers = await asyncio.gather(*[self._cluster.call("read", requests.read_job(job)) for job in jobs])
        return [decode(job, answer.kvs, asked_at) for job, answer in zip(jobs, answers, strict=True)]

    def _keep(self, name: str, view: View) -> None:
        if len(self._views) >= KEPT and name not in self._views:
            forgotten = next(iter(self._views))
            del self._views[forgotten]
            self._lost.discard(forgotten)
        self._views[name] = view

    def _is_fresh(self, view: View, begun: float) -> bool:
        """Whether it was asked for after the call began."""
        return view.asked_at >= begun

    def _now(self) -> Interval:
        return self._clock.at(monotonic_ms())


def _held(view: View, slot: int, token: str) -> RunState | None:
    """The run, if the token holds it."""
    return next((run for run in view.state.unfinished if run.slot == slot and run.held_by(token)), None)


def _of(state: JobState, slot: int) -> RunState:
    return next(run for run in state.unfinished if run.slot == slot)


def _fenced(state: JobState, slot: int, fence: int) -> JobState:
    """The state with the fence of the run that was just won."""
    unfinished = tuple([replace(run, fence=fence) if run.slot == slot else run for run in state.unfinished])
    return JobState(0, state.floor, unfinished, state.ended)


async def _pause(tries: int) -> None:
    """Let others go first, who change the same job all the time; no longer each time, or who loses goes on losing."""
    if tries:
        await asyncio.sleep(random.uniform(0, PAUSE_S))
