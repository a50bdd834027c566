"""A job's item: a state, and the calls that were carried out since; both are read by ``tenure.decision``. Pure."""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from tenure import decision
from tenure.codec import decode_state, encode_state
from tenure.decision import EMPTY, JobState, RunState
from tenure.errors import BackendMisconfigured
from tenure.model import Claim, ClaimResult

from tenure_dynamodb.clock import Moment

LAYOUT = 1
"""Raised when attributes change their meaning; a reader refuses what is newer than itself."""
MOST_CALLS = 16
"""Calls an item holds at most; the next one writes their outcome instead, and takes a second round trip."""

Attributes = Mapping[str, Any]
"""An item or its values, as the driver's client has them: {"name": {"S": "text"}}."""
Call = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Known:
    """A job's state as it was read, and what the item must still be to be replaced."""

    state: JobState
    exists: bool
    stamp: bytes | None = None
    calls: int = 0


NOTHING = Known(EMPTY, exists=False)


def holder(slot: int, token: str) -> bytes:
    """What an item's set ``held`` has of a run whose token holds it."""
    return blake2b(f"{slot} {token}".encode(), digest_size=16).digest()


def encode(state: JobState, stamp: bytes) -> dict[str, Any]:
    """The attributes of a state, without calls, and what the conditions of later calls ask for."""
    held = [holder(run.slot, run.token) for run in state.unfinished if run.status == "open"]
    attributes: dict[str, Any] = {
        "layout": _number(LAYOUT),
        "stamp": {"B": stamp},
        "base": {"B": zlib.compress(encode_state(state))},
        "calls": {"L": []},
        "newest": _number(max(state.floor, *(run.slot for run in (*state.unfinished[-1:], *state.ended[-1:])), -1)),
        "fence": _number(state.fence),
        "unfinished": _number(len(state.unfinished)),
    }
    return {**attributes, "held": {"BS": held}} if held else attributes


def decode(item: Attributes | None) -> Known:
    """What an item says; BackendMisconfigured if it was written by a newer tenure or by something else."""
    if item is None:
        return NOTHING
    try:
        check_layout(item)
        stamp, base = (item[name]["B"] if name in item else None for name in ("stamp", "base"))
        state = EMPTY if base is None else decode_state(zlib.decompress(base))
        calls = [json.loads(call["S"]) for call in item["calls"]["L"]]
        for call in calls:
            state = _carried_out(state, call)
    except (KeyError, ValueError, TypeError, zlib.error) as exc:
        raise BackendMisconfigured(
            f"the table holds an item with {', '.join(sorted(item))} where tenure keeps its state; use another table"
        ) from exc
    return Known(state, True, stamp, len(calls))


def claimed(claim: Claim, now: int) -> str:
    """The entry of a claim that won attempt 1 with nothing in its way, at that moment."""
    return _entry("claim", now, claim.slot, claim.token, claim.instance, claim.lease_ms, claim.overlap)


def renewed(slot: int, token: str, now: int) -> str:
    """The entry of a heartbeat."""
    return _entry("heartbeat", now, slot, token)


def finished(slot: int, token: str, status: str) -> str:
    """The entry of a finish."""
    return _entry("finish", slot, token, status)


def released(slot: int, token: str, now: int) -> str:
    """The entry of a release."""
    return _entry("release", now, slot, token)


def claim(state: JobState, claim: Claim, moment: Moment) -> tuple[JobState, ClaimResult]:
    """Decide a claim by the interval's beginning, and grant what it wins from the interval's end."""
    decided, answer = decision.claim(state, claim, moment.early)
    if answer.outcome != "won" or not moment.doubt_ms:
        return decided, answer
    run = _run(decided, claim.slot)
    assert run is not None
    granted = replace(run, expires_at=moment.late + run.lease_ms)
    if decided.fence != state.fence:  # a new attempt
        fence = max(state.fence + 1, moment.late)
        granted = replace(granted, fence=fence, started_at=moment.late)
        decided = replace(decided, fence=fence)
    answer = replace(answer, now_ms=moment.late, fence=granted.fence, lease_left_ms=granted.lease_ms)
    return _with(decided, granted), answer


def heartbeat(state: JobState, slot: int, token: str, now: int) -> tuple[JobState, bool]:
    """Decide a heartbeat; one that was held up on its way takes nothing from what a later one was granted."""
    before = _run(state, slot)
    if before is not None and before.held_by(token) and before.expires_at > now + before.lease_ms:
        return state, True
    return decision.heartbeat(state, slot, token, now)


def _carried_out(state: JobState, call: Call) -> JobState:
    name, *arguments = call
    if name == "claim":
        now, slot, token, instance, lease_ms, overlap = arguments
        won = Claim(
            job="any",
            slot=slot,
            token=token,
            instance=instance,
            lease_ms=lease_ms,
            mode="scheduled",
            overlap=overlap,
            max_attempts=1,
            max_late_ms=None,
        )
        return decision.claim(state, won, now)[0]
    if name == "heartbeat":
        now, slot, token = arguments
        return heartbeat(state, slot, token, now)[0]
    if name == "finish":
        return decision.finish(state, *arguments)[0]
    if name == "release":
        now, slot, token = arguments
        return decision.release(state, slot, token, now)[0]
    raise ValueError(f"no call {name!r}")


def check_layout(item: Attributes) -> None:
    """Refuse (BackendMisconfigured) what a later version wrote."""
    layout = int(item["layout"]["N"]) if "layout" in item else LAYOUT
    if layout > LAYOUT:
        raise BackendMisconfigured(
            f"the table has layout {layout} and this tenure-dynamodb knows up to {LAYOUT}; upgrade tenure-dynamodb here"
        )


def _run(state: JobState, slot: int) -> RunState | None:
    return next((run for run in state.unfinished if run.slot == slot), None)


def _with(state: JobState, granted: RunState) -> JobState:
    runs = tuple(granted if run.slot == granted.slot else run for run in state.unfinished)
    return replace(state, unfinished=runs)


def _entry(*call: Any) -> str:
    return json.dumps(call, ensure_ascii=False, separators=(",", ":"))


def _number(value: int) -> dict[str, str]:
    return {"N": str(value)}
