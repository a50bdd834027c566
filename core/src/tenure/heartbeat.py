"""The holder's side of a lease: heartbeats, and a deadline of its own."""

import asyncio
from typing import Protocol

from tenure.calls import Calls
from tenure.instance import Instance
from tenure.job import Job
from tenure.model import Claim

_NEVER = float("inf")
_YOUNG_MS = 250
_RETRY_PART = 4
"""A heartbeat that failed is sent again after this part of the interval: several tries fit into one lease."""


class Losable(Protocol):
    """What runs under a lease."""

    def lose(self) -> None:
        """The lease is lost: a heartbeat was refused, or the deadline passed unconfirmed."""


class Heartbeats:
    """Keeps an instance's leases. Most runs end before their first heartbeat, and never cost a timer."""

    def __init__(self, calls: Calls, instance: Instance) -> None:
        self.calls = calls
        self.instance = instance
        self._young: list[Lease] = []

    def keep(self, lease: "Lease") -> None:
        """Let the lease set its timer, soon if its first heartbeat is far."""
        if lease.first_beat_in_ms < 2 * _YOUNG_MS:
            lease.sleep()
            return
        if not self._young:
            asyncio.get_running_loop().call_later(_YOUNG_MS / 1000, self._set_timers)
        self._young.append(lease)

    def _set_timers(self) -> None:
        young, self._young = self._young, []
        for lease in young:
            lease.look()  # after a pause it may be over already


class Lease:
    """A lease that was won, counted on the monotonic clock from the start of the call that brought it.

    It is lost, once, when a heartbeat is refused or when the deadline passes unconfirmed.
    """

    __slots__ = (
        "_beat_ms",
        "_beating",
        "_call",
        "_heartbeats",
        "_instance",
        "_next_beat_ms",
        "_stopped",
        "_timer",
        "claim",
        "deadline_ms",
        "lost",
    )

    def __init__(self, heartbeats: Heartbeats, job: Job, claim: Claim, sent_ms: float) -> None:
        self._heartbeats = heartbeats
        self._instance = heartbeats.instance
        # A job that was replaced while the claim was on its way has the heartbeat of another lease.
        self._beat_ms = min(job.heartbeat_ms, claim.lease_ms / 2)
        self.claim: Claim = claim
        self._call: Losable | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._beating = False
        self._stopped = False
        self._next_beat_ms = sent_ms + self._beat_ms
        self.deadline_ms: float = sent_ms + claim.lease_ms
        self.lost: bool = False

    def confirmed(self) -> bool:
        """Whether this holder may still believe in its lease; safe from any thread."""
        return not self.lost and self._instance.clock.monotonic_ms() < self.deadline_ms

    def may_be_held(self) -> bool:
        """Whether the store may have it still, also where the handler was stopped before a heartbeat renewed it."""
        return not self._stopped and self._instance.clock.monotonic_ms() < self.deadline_ms

    def keep(self, call: "Losable") -> None:
        """Send heartbeats until ``stop``; the call is told when the lease is lost."""
        self._call = call
        self._heartbeats.keep(self)

    def stop(self) -> None:
        """Send no more heartbeats; the answer of one on its way is dropped."""
        self._stopped = True
        self._call = None
        self.sleep()

    @property
    def first_beat_in_ms(self) -> float:
        """How long until the first heartbeat, or the deadline if that comes first."""
        return min(self._next_beat_ms, self.deadline_ms) - self._instance.clock.monotonic_ms()

    def sleep(self) -> None:
        """Set the timer for the next heartbeat or for the deadline, or none once stopped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stopped:
            return
        wake_ms = _NEVER if self._beating else self._next_beat_ms
        if not self.lost:
            wake_ms = min(wake_ms, self.deadline_ms)
        if wake_ms < _NEVER:
            delay_ms = max(wake_ms - self._instance.clock.monotonic_ms(), 0)
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self.look)

    def look(self) -> None:
        """Send the heartbeat that is due, give up a lease that is over, and sleep again."""
        if self._stopped:
            return
        now = self._instance.clock.monotonic_ms()
        if now >= self.deadline_ms:
            self._lose()
        if now >= self._next_beat_ms and not self._beating:
            self._beating = True
            self._instance.spawn(self._beat())
        self.sleep()

    async def _beat(self) -> None:
        sent_ms = self._instance.clock.monotonic_ms()
        try:
            held = await self._heartbeats.calls.heartbeat(self.claim.job, self.claim.slot, self.claim.token)
        except Exception as error:  # noqa: BLE001 - the lease is lost by its deadline, not by an error
            self._failed(error)
        else:
            self._answered(held, sent_ms)
        self._beating = False
        self.sleep()

    def _failed(self, error: Exception) -> None:
        self._next_beat_ms = self._instance.clock.monotonic_ms() + self._beat_ms / _RETRY_PART
        if not self._stopped:
            self._instance.error("heartbeat", error, self.claim.job, self.claim.slot)

    def _answered(self, held: bool, sent_ms: float) -> None:
        self._next_beat_ms = sent_ms + self._beat_ms
        if held:
            self.deadline_ms = sent_ms + self.claim.lease_ms
        elif not self._stopped:
            self._lose()
            self.stop()

    def _lose(self) -> None:
        self.lost = True
        if self._call is not None:
            call, self._call = self._call, None
            call.lose()
