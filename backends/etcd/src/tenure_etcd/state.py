"""A job as it is stored: the runs in one value, who is alive in keys beside it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tenure.decision import EMPTY, JobState, RunState, RunStatus
from tenure.errors import BackendMisconfigured
from tenure.model import LostAttempt

from tenure_etcd.keys import JobKeys

FORMAT = 1
"""Raised when what follows it changes its meaning; a reader refuses what is newer than itself."""
SOON_MS = 250
"""What is said to be left of a lease that is live beyond its time: etcd ends leases a little late, and gives all of
them their full length again after a restart or when another member leads."""

_STATUSES: dict[str, RunStatus] = {"s": "success", "f": "failed", "x": "exhausted", "p": "superseded"}
_CODES = {status: code for code, status in _STATUSES.items()}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the keys beside an unfinished run are, and the lease that its last winner was given."""

    number: int
    lease: int


@dataclass(frozen=True, slots=True)
class View:
    """A job as it was at some moment. ``revision`` is that of its last change, 0 if there was none."""

    revision: int = 0
    state: JobState = EMPTY
    places: Mapping[int, Place] = field(default_factory=dict)
    """Of each unfinished run, by slot."""
    live: frozenset[int] = frozenset()
    """The slots of runs whose lease was live. A lease that is over stays so until ``revision`` changes."""
    asked_at: float = 0.0
    """When the request was sent whose answer this is, by the loop's clock."""

    def at(self, now: int) -> JobState:
        """The state with leases that are live or over by etcd's word, whatever the clock says of their ends."""
        if not self.state.unfinished:
            return self.state
        unfinished = tuple([self._as_of(run, now) for run in self.state.unfinished])
        return JobState(self.state.fence, self.state.floor, unfinished, self.state.ended)

    def with_end(self, slot: int, expires_at: int) -> "View":
        """After a heartbeat of the run."""
        runs = self.state.unfinished
        unfinished = tuple([replace(run, expires_at=expires_at) if run.slot == slot else run for run in runs])
        return replace(self, state=JobState(self.state.fence, self.state.floor, unfinished, self.state.ended))

    def free_place(self) -> int:
        """The lowest number that no unfinished run has."""
        taken = {place.number for place in self.places.values()}
        return next(number for number in range(len(taken) + 1) if number not in taken)

    def _as_of(self, run: RunState, now: int) -> RunState:
        if run.status != "open":
            return run
        is_live = run.slot in self.live
        end = max(run.expires_at, now + SOON_MS) if is_live else min(run.expires_at, now)
        return run if end == run.expires_at else replace(run, expires_at=end)


def decode(job: JobKeys, kvs: Iterable[Any], asked_at: float, known: View | None = None) -> View:
    """The job of its keys; BackendMisconfigured if a newer tenure or something else wrote them.

    ``known`` is an earlier view of it: what did not change since is taken from there.
    """
    values = {kv.key: kv for kv in kvs}
    stored = values.get(job.state)
    if stored is None:
        return View(asked_at=asked_at)
    try:
        if known is not None and known.revision == stored.mod_revision:
            state, places = known.state, known.places
        else:
            state, places = _state(stored.value, stored.mod_revision)
        ends = {slot: _beat(job, values, place) for slot, place in places.items()}
    except (ValueError, TypeError, KeyError, IndexError) as exc:
        raise BackendMisconfigured(
            f"{job.state!r} holds {stored.value[:40]!r}, which tenure did not write; use another root for it"
        ) from exc
    live = frozenset(slot for slot, place in places.items() if _hangs_on(values.get(job.live(place.number)), place))
    return View(stored.mod_revision, _with_ends(state, ends), places, live, asked_at)


def _state(value: bytes, revision: int) -> tuple[JobState, dict[int, Place]]:
    floor, unfinished, ended = _content(value)
    runs = tuple([_unfinished(row, revision) for row in unfinished])
    places = {row[0]: Place(*row[-3:-1]) for row in unfinished}
    return JobState(0, floor, runs, tuple([_ended(*row) for row in ended])), places


def _with_ends(state: JobState, ends: Mapping[int, int | None]) -> JobState:
    """With the ends of leases as of the last heartbeats, where there were any."""
    if not any(ends.values()):
        return state
    ended = [(run, ends[run.slot] or run.expires_at) for run in state.unfinished]
    unfinished = tuple([run if end == run.expires_at else replace(run, expires_at=end) for run, end in ended])
    return JobState(state.fence, state.floor, unfinished, state.ended)


def encode(state: JobState, places: Mapping[int, Place], won: int | None = None) -> bytes:
    """The state's value; the fence of the run that this very change is the win of is the change's revision."""
    unfinished = [_unfinished_row(run, places[run.slot], run.slot == won) for run in state.unfinished]
    content = [FORMAT, state.floor, unfinished, [_ended_row(run) for run in state.ended]]
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def encode_beat(place: Place, expires_at: int) -> bytes:
    """What a heartbeat stores."""
    return b"%d %d" % (place.lease, expires_at)


def _content(value: bytes) -> list[Any]:
    content = json.loads(value)
    if type(content) is not list or type(content[0]) is not int:
        raise TypeError("not a list that begins with a format number")
    if content[0] > FORMAT:
        raise _newer(content[0])
    return content[1:]


def check_format(value: bytes, key: bytes) -> None:
    """BackendMisconfigured unless that is a format that is known here."""
    if not value.isdigit():
        raise BackendMisconfigured(
            f"{key!r} holds {value[:40]!r}, which tenure did not write; use another root, as in etcd://host/apps/tenure"
        )
    if int(value) > FORMAT:
        raise _newer(int(value))


def _newer(found: object) -> BackendMisconfigured:
    return BackendMisconfigured(
        f"the store holds format {found} and this tenure-etcd reads up to {FORMAT}; upgrade tenure-etcd here"
    )


def _hangs_on(live: Any, place: Place) -> bool:
    return live is not None and live.lease == place.lease


def _beat(job: JobKeys, values: Mapping[bytes, Any], place: Place) -> int | None:
    """When the lease ends as of the last heartbeat; None if there was none on this lease."""
    stored = values.get(job.beat(place.number))
    if stored is None:
        return None
    lease, expires_at = stored.value.split()
    return int(expires_at) if int(lease) == place.lease else None


def _unfinished_row(run: RunState, place: Place, won: bool) -> list[Any]:
    return [
        run.slot,
        run.attempt,
        run.used,
        0 if won else run.fence,
        run.token,
        run.holder,
        run.lease_ms,
        run.started_at,
        run.expires_at,
        run.status == "released",
        place.number,
        place.lease,
        _lost_rows(run),
    ]


def _unfinished(row: list[Any], revision: int) -> RunState:
    slot, attempt, used, fence, token, holder, lease_ms, started_at, expires_at, released, _, _, lost = row
    return RunState(
        slot,
        attempt,
        used,
        fence or revision,
        token,
        holder,
        lease_ms,
        started_at,
        expires_at,
        "released" if released else "open",
        tuple([LostAttempt(*one) for one in lost]),
    )


def _ended_row(run: RunState) -> list[Any]:
    """Only what is ever told of an ended run."""
    row = [run.slot, run.attempt, run.token, _CODES[run.status]]
    return [*row, _lost_rows(run)] if run.status == "exhausted" else row


def _ended(slot: int, attempt: int, token: str, code: str, lost: Iterable[list[Any]] = ()) -> RunState:
    previous = tuple([LostAttempt(*one) for one in lost])
    return RunState(slot, attempt, 0, 0, token, "", 0, 0, 0, _STATUSES[code], previous)


def _lost_rows(run: RunState) -> list[list[Any]]:
    return [
        [one.slot, one.attempt, one.fence, one.holder, one.started_at, one.ended_at, one.released]
        for one in run.previous
    ]
