"""What the scripts answer, as the protocol's records."""

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from tenure.codec import decode_history, encode_history
from tenure.model import ActiveRun, Claim, ClaimResult, LostAttempt, RunResult


def slot_text(slot: int) -> str:
    """The slot as the scripts compare it: 15 digits."""
    return f"{slot:015d}"


def token_text(token: str) -> str:
    """The token without what would end its line."""
    return token if token.isalnum() else quote(token, safe="")


def place_text(result: RunResult) -> str:
    """What orders records by (slot, attempt); the length before the attempt keeps 9 before 10."""
    attempt = str(result.attempt)
    return f"{slot_text(result.slot)}{len(attempt):03d}{attempt}"


def record_text(result: RunResult) -> bytes:
    """The record as it is stored behind its place."""
    return encode_history((result,))


def record(stored: bytes) -> RunResult:
    """The record of what ``place_text`` and ``record_text`` gave; BackendMisconfigured if it is none."""
    _, _, text = stored.partition(b"[")
    (result,) = decode_history(b"[" + text)
    return result


class Facts:
    """The first line of a stored run."""

    __slots__ = ("attempt", "ends_at", "fence", "holder", "slot", "started_at", "status")

    def __init__(self, line: bytes) -> None:
        slot, status, attempt, _used, fence, lease, since, started, holder = line.split(b" ", 8)
        self.slot: int = int(slot)
        self.status: bytes = status
        self.attempt: int = int(attempt)
        self.fence: int = int(fence)
        self.ends_at: int = int(since) + int(lease)
        self.started_at: int = int(started)
        self.holder: str = holder.decode()

    def left_ms(self, now: int) -> int:
        """What is left of its lease."""
        return max(self.ends_at - now, 0) if self.status == b"open" else 0


def claim_result(claim: Claim, reply: Sequence[Any]) -> ClaimResult:
    """The answer to the claim."""
    outcome: str = reply[0].decode()
    return _READERS[outcome](claim, *reply[1:])


def active_run(job: str, line: bytes, now: int) -> ActiveRun:
    """An unfinished run."""
    run = Facts(line)
    left = run.left_ms(now)
    return ActiveRun(job, run.slot, run.attempt, run.fence, run.holder, left > 0, left, run.started_at)


def _won(_: Claim, now: int, line: bytes, lost: bytes) -> ClaimResult:
    run = Facts(line)
    return ClaimResult(
        outcome="won",
        now_ms=now,
        attempt=run.attempt,
        fence=run.fence,
        lease_left_ms=run.ends_at - now,
        previous=_previous(lost),
    )


def _running(_: Claim, now: int, line: bytes) -> ClaimResult:
    run = Facts(line)
    return ClaimResult(
        outcome="running", now_ms=now, attempt=run.attempt, holder=run.holder, lease_left_ms=run.left_ms(now)
    )


def _overlap(_: Claim, now: int, line: bytes, attempt: bytes) -> ClaimResult:
    run = Facts(line)
    return ClaimResult(
        outcome="overlap",
        now_ms=now,
        slot=run.slot,
        holder=run.holder,
        lease_left_ms=run.left_ms(now),
        attempt=int(attempt),
    )


def _done(_: Claim, now: int, status: bytes, attempt: bytes, lost: bytes) -> ClaimResult:
    return ClaimResult(
        outcome="done",
        now_ms=now,
        status=status.decode(),  # type: ignore[arg-type]  # the script knows no other words
        attempt=int(attempt) if attempt else None,
        previous=_previous(lost),
    )


def _late(_: Claim, now: int) -> ClaimResult:
    return ClaimResult(outcome="late", now_ms=now)


def _none(claim: Claim, now: int) -> ClaimResult:
    return ClaimResult(outcome="none", now_ms=now, wait_ms=claim.slot - now if claim.slot > now else None)


_READERS: dict[str, Callable[..., ClaimResult]] = {
    "won": _won,
    "running": _running,
    "overlap": _overlap,
    "done": _done,
    "late": _late,
    "none": _none,
}


def _previous(lost: bytes) -> tuple[LostAttempt, ...]:
    return tuple([_lost(line) for line in lost.split(b"\n")[1:]]) if lost else ()


def _lost(line: bytes) -> LostAttempt:
    run = Facts(line)
    return LostAttempt(
        run.slot, run.attempt, run.fence, run.holder, run.started_at, run.ends_at, run.status == b"released"
    )
