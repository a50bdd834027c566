"""Ways to break an instance on purpose, to see that a chaos run finds them."""

from collections.abc import Callable
from typing import Any

from tenure import heartbeat, runner, watch
from tenure.calls import Calls


def _always_says_yes() -> None:
    """A client that confirms each heartbeat and sends none."""

    async def yes(_self: Calls, _job: str, _slot: int, _token: str) -> bool:
        return True

    Calls.heartbeat = yes  # type: ignore[method-assign]


def _has_no_deadline() -> None:
    """A holder that is told of a lost lease by the store alone."""

    def look(self: Any) -> None:
        self.deadline_ms = float("inf")
        right(self)

    right = heartbeat.Lease.look
    heartbeat.Lease.look = look  # type: ignore[method-assign]


def _forgets_who_crashed() -> None:
    async def forget(_self: Any, *_: Any) -> None:
        pass

    runner.LeaseRunner._save_lost = forget  # type: ignore[method-assign]


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
    "always-says-yes": _always_says_yes,
    "has-no-deadline": _has_no_deadline,
    "forgets-who-crashed": _forgets_who_crashed,
    "sends-no-heartbeats": _sends_no_heartbeats,
    "looks-rarely": _looks_rarely,
}
