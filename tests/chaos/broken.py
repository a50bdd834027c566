"""Ways to break an instance on purpose, to see that a chaos run finds them."""

from collections.abc import Callable
from typing import Any

from tenure import heartbeat, watch
from tenure.calls import Calls


def _believes_for_ever() -> None:
    """A holder that no deadline stops, and that takes every heartbeat for confirmed."""

    async def heartbeat_(self: Calls, job: str, slot: int, token: str) -> bool:
        await self._backend.heartbeat(job, slot, token)
        return True

    def never(_self: Any) -> None:
        pass

    Calls.heartbeat = heartbeat_  # type: ignore[method-assign]
    heartbeat.Lease._lose = never  # type: ignore[method-assign]


def _sends_no_heartbeats() -> None:
    async def beat(self: Any) -> None:
        self._next_beat_ms = float("inf")
        self._beating = False
        self.sleep()

    heartbeat.Lease._beat = beat  # type: ignore[method-assign]


def _looks_rarely() -> None:
    """A backup that looks at its own pace, also when a lease runs out."""
    watch.Watches._delay_ms = lambda self, one: one.job.lease_ms * 3.0  # type: ignore[method-assign]


BROKEN: dict[str, Callable[[], None]] = {
    "believes-for-ever": _believes_for_ever,
    "sends-no-heartbeats": _sends_no_heartbeats,
    "looks-rarely": _looks_rarely,
}
