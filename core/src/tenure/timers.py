"""When each job is due: one timer per job, at its next slot plus a random jitter."""

import asyncio
import heapq
from collections.abc import Callable, Iterable
from random import Random

from tenure.clock import Clock
from tenure.job import Job
from tenure.model import MAX_SLOT
from tenure.schedule import next_slot_of

LONGEST_SLEEP_MS = 60_000
"""The wall clock is looked at again at least this often: that keeps a timer right over hours and finds jumps."""
_JUMP_MS = 100
"""A wall clock that fell back by more than this against the monotonic one has jumped."""
_STALE = 64
"""The heap is swept when it holds this many places more than two per job."""

Fire = Callable[[Job, int], None]
OnError = Callable[[Job, BaseException], None]


class _Timer:
    __slots__ = ("due_ms", "fired", "job", "serial", "slot")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.slot: int | None = None
        self.due_ms = 0
        self.fired = -1
        self.serial = 0  # of its place in the heap; an older place is stale


class JobTimers:
    """Calls ``fire(job, slot)`` once for each slot, never before it, in any event loop.

    The next slot is armed before the current one is fired. A slot that passed while this instance could not look
    (frozen, blocked, its clock set forward) is fired late while it may still start, and dropped otherwise.
    """

    def __init__(self, clock: Clock, rng: Random, fire: Fire, on_error: OnError) -> None:
        self._clock = clock
        self._rng = rng
        self._fire = fire
        self._on_error = on_error
        self._timers: dict[str, _Timer] = {}
        self._heap: list[tuple[int, int, _Timer]] = []
        self._serial = 0
        self._wake: asyncio.TimerHandle | None = None
        self._wake_at_ms = 0  # by the wall clock
        self._ahead_ms = clock.wall_ms() - clock.monotonic_ms()
        self._running = False

    def start(self) -> None:
        """Start to fire; jobs may have been added before."""
        self._running = True
        self._sleep()

    def stop(self) -> None:
        """Fire nothing any more."""
        self._running = False
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    def add(self, jobs: Iterable[Job]) -> None:
        """Arm the jobs; one of a known name is replaced, from its next slot on."""
        now = self._clock.wall_ms()
        for job in jobs:
            timer = self._timers.get(job.name)
            if timer is None:
                timer = self._timers[job.name] = _Timer(job)
            timer.job = job
            self._arm_after_now(timer, now)
        self._sleep()

    def remove(self, name: str) -> None:
        """Disarm the job."""
        timer = self._timers.pop(name)
        timer.serial = -1

    def next_slot(self, name: str) -> int | None:
        """The slot the job is armed for; None if its schedule has no more."""
        return self._timers[name].slot

    def _arm(self, timer: _Timer, after_ms: int) -> None:
        try:
            timer.slot = next_slot_of(timer.job.schedule, after_ms)
            retry_ms = None
        except Exception as error:  # noqa: BLE001 - a schedule of the user's own
            timer.slot = None
            retry_ms = self._clock.wall_ms() + LONGEST_SLEEP_MS
            self._on_error(timer.job, error)
        due_ms = retry_ms if timer.slot is None else timer.slot + int(self._rng.random() * timer.job.jitter_ms)
        self._serial += 1
        timer.serial = self._serial
        if due_ms is not None:
            timer.due_ms = due_ms
            heapq.heappush(self._heap, (due_ms, timer.serial, timer))
            if len(self._heap) > 2 * len(self._timers) + _STALE:
                self._sweep()

    def _sweep(self) -> None:
        """Drop the stale places of jobs that were replaced or removed long before they were due."""
        self._heap = [entry for entry in self._heap if entry[1] == entry[2].serial]
        heapq.heapify(self._heap)

    def _sleep(self) -> None:
        """Set the one timer of the loop for the earliest due slot."""
        if not self._running:
            return
        now = self._clock.wall_ms()
        wake_at_ms = min(self._heap[0][0] if self._heap else MAX_SLOT, now + LONGEST_SLEEP_MS)
        if self._wake is not None:
            if self._wake_at_ms <= wake_at_ms:
                return
            self._wake.cancel()
        self._wake_at_ms = wake_at_ms
        self._wake = asyncio.get_running_loop().call_later(max(wake_at_ms - now, 0) / 1000, self._look)

    def _look(self) -> None:
        self._wake = None
        if self._jumped_back():
            self._arm_again()
        now = self._clock.wall_ms()
        while self._running and self._heap and self._heap[0][0] <= now:
            _, serial, timer = heapq.heappop(self._heap)
            if serial == timer.serial:
                self._due(timer, now)
        self._sleep()

    def _due(self, timer: _Timer, now: int) -> None:
        job, slot = timer.job, timer.slot
        if slot is None:  # its schedule failed; ask it again
            self._arm_after_now(timer, now)
            return
        timer.fired = slot
        startable = now if job.max_late_ms is None else now - job.max_late_ms - 1
        self._arm(timer, max(slot, startable))
        self._fire(job, slot)

    def _jumped_back(self) -> bool:
        ahead_ms = self._clock.wall_ms() - self._clock.monotonic_ms()
        jumped = ahead_ms < self._ahead_ms - _JUMP_MS
        self._ahead_ms = ahead_ms
        return jumped

    def _arm_again(self) -> None:
        """After a jump back: no job waits for a slot of the wrong future, and none fires its last slot twice."""
        now = self._clock.wall_ms()
        for timer in self._timers.values():
            self._arm_after_now(timer, now)

    def _arm_after_now(self, timer: _Timer, now: int) -> None:
        """Arm the next slot; the one fired last may lie ahead after a jump back, and is not fired again."""
        if timer.slot is not None and timer.slot <= now and timer.slot != timer.fired:
            return  # it is due already, and waits for its jitter
        self._arm(timer, now)
        if timer.slot is not None and timer.slot == timer.fired:
            self._arm(timer, timer.fired)
