"""What instances and backends say to each other: the protocol's records and limits (docs/protocol.md, section 2)."""

import os
import re
from dataclasses import dataclass
from typing import Literal

from tenure.errors import InvalidClaim, InvalidInput

Mode = Literal["scheduled", "catch-up", "manual", "takeover"]
Overlap = Literal["skip", "allow"]
Outcome = Literal["won", "running", "overlap", "late", "done", "none"]
Ending = Literal["success", "failed"]
DoneStatus = Literal["success", "failed", "exhausted", "superseded"]
ResultStatus = Literal["success", "failed", "interrupted", "crashed", "late", "overlap", "exhausted", "superseded"]

FindingState = Literal["ok", "warning", "wrong"]

MODES: frozenset[str] = frozenset(("scheduled", "catch-up", "manual", "takeover"))
OVERLAPS: frozenset[str] = frozenset(("skip", "allow"))
ENDINGS: frozenset[str] = frozenset(("success", "failed"))
ATTEMPT_STATUSES: frozenset[str] = frozenset(("success", "failed", "interrupted", "crashed"))
UNSTARTED_STATUSES: frozenset[str] = frozenset(("late", "overlap", "exhausted", "superseded"))

MAX_SLOT = 253_402_300_799_999
"""The last slot: 9999-12-31T23:59:59.999Z in milliseconds since the Unix epoch."""
MAX_NAME_BYTES = 200
MAX_TOKEN_CHARS = 64
MAX_ERROR_BYTES = 65_536
EARLY_MS = 1_000
"""A first start is granted at most this long before its slot, by the store's clock (row 11)."""

CARD_KEPT_MS = 30 * 86_400_000
"""The card of a job that no instance has said anything of for this long is forgotten."""
_MAX_CARD_TEXT = 500

_CUT_MARK = " … (cut)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An instance's request to own the next attempt of a run; InvalidClaim if it breaks a limit.

    ``after`` is the attempt the sender was last told of for this run, 0 if none; a win is attempt ``after + 1`` and no
    other. ``max_late_ms`` None means that the run is never too late.
    """

    job: str
    slot: int
    token: str
    instance: str
    lease_ms: int
    mode: Mode
    overlap: Overlap
    max_attempts: int
    max_late_ms: int | None
    after: int = 0

    def __post_init__(self) -> None:
        """Refuse what breaks a limit before anything is sent."""
        check_run(self.job, self.slot, self.token)
        check_name(self.instance, "instance")
        _check_int("lease_ms", self.lease_ms, 1)
        _check_int("max_attempts", self.max_attempts, 1)
        _check_int("after", self.after, 0)
        if self.max_late_ms is not None:
            _check_int("max_late_ms", self.max_late_ms, 0)
        if self.mode not in MODES:
            raise InvalidClaim(f"mode: {self.mode!r} is not one of {_choices(MODES)}")
        if self.overlap not in OVERLAPS:
            raise InvalidClaim(f"overlap: {self.overlap!r} is not one of {_choices(OVERLAPS)}")


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt whose lease ended without a finish; ``ended_at`` is when its lease was over, by the store's clock."""

    slot: int
    attempt: int
    fence: int
    holder: str
    started_at: int
    ended_at: int
    released: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResult:
    """A claim's answer.

    ========  =====================================================================================
    outcome   what is given with it
    ========  =====================================================================================
    won       attempt, fence, lease_left_ms, previous (the lost attempts that this win replaces)
    running   attempt, holder, lease_left_ms (0: ask again at once, with that attempt as ``after``)
    overlap   slot, holder, lease_left_ms of the run in the way; attempt of the claimed run, 0 if none
    late      nothing
    done      status; attempt if known; previous if exhausted
    none      wait_ms: how long until the slot is due by the store's clock, None if it is
    ========  =====================================================================================

    ``now_ms`` is the store's clock at the decision, always.
    """

    outcome: Outcome
    now_ms: int
    attempt: int | None = None
    fence: int | None = None
    slot: int | None = None
    status: DoneStatus | None = None
    lease_left_ms: int | None = None
    wait_ms: int | None = None
    holder: str | None = None
    previous: tuple[LostAttempt, ...] = ()


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """An unfinished run that was not superseded; ``lease_left_ms`` is 0 when its lease is over."""

    job: str
    slot: int
    attempt: int
    fence: int
    holder: str
    live: bool
    lease_left_ms: int
    started_at: int


@dataclass(frozen=True, slots=True)
class ActiveRuns:
    """The unfinished runs of the jobs asked for, by job and slot, and the store's clock."""

    now_ms: int
    runs: tuple[ActiveRun, ...]


@dataclass(frozen=True, slots=True)
class RunResult:
    """One record of history, of one attempt; with attempt 0 and no times, why a slot was not run.

    Times are milliseconds since the Unix epoch, by the store's clock where it has one. InvalidClaim if the record
    breaks a limit; an error text is cleaned and cut here, so that every store can keep it.
    """

    slot: int
    attempt: int
    fence: int
    status: ResultStatus
    instance: str
    started_at: int | None
    ended_at: int | None
    error: str | None = None

    def __post_init__(self) -> None:
        """Refuse what breaks a limit, clean the error's text."""
        _check_int("slot", self.slot, 0, MAX_SLOT)
        _check_int("attempt", self.attempt, 0)
        _check_int("fence", self.fence, 0)
        check_name(self.instance, "instance")
        allowed = ATTEMPT_STATUSES if self.attempt else UNSTARTED_STATUSES
        if self.status not in allowed:
            raise InvalidClaim(f"status: {self.status!r} of attempt {self.attempt} is not one of {_choices(allowed)}")
        for name, time_ms in (("started_at", self.started_at), ("ended_at", self.ended_at)):
            if self.attempt:
                _check_int(name, time_ms, 0)
            elif time_ms is not None:
                raise InvalidClaim(f"{name}: {time_ms!r} of attempt 0; a slot that was not run has no times")
        if self.error is not None:
            object.__setattr__(self, "error", clean_error(self.error))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCard:
    """What a job is in its namespace, as an instance that has it said last; for readers, no decision uses it.

    ``schedule`` is the schedule's text, which ``schedule_of`` reads, ``words`` the same for people; both are cut to
    500 characters. ``next_slot`` is the next one known when the card was written, None if the schedule had no more.
    ``seen_at_ms`` is the store's clock then, as the instance knew it. InvalidClaim if the card breaks a limit.
    """

    job: str
    schedule: str
    words: str
    lease_ms: int
    overlap: Overlap
    max_attempts: int
    max_late_ms: int | None
    next_slot: int | None
    instance: str
    seen_at_ms: int

    def __post_init__(self) -> None:
        """Refuse what breaks a limit, clean the texts."""
        check_name(self.job, "job")
        check_name(self.instance, "instance")
        _check_int("lease_ms", self.lease_ms, 1)
        _check_int("max_attempts", self.max_attempts, 1)
        _check_int("seen_at_ms", self.seen_at_ms, 0)
        if self.max_late_ms is not None:
            _check_int("max_late_ms", self.max_late_ms, 0)
        if self.next_slot is not None:
            _check_int("next_slot", self.next_slot, 0, MAX_SLOT)
        if self.overlap not in OVERLAPS:
            raise InvalidClaim(f"overlap: {self.overlap!r} is not one of {_choices(OVERLAPS)}")
        for name in ("schedule", "words"):
            object.__setattr__(self, name, clean_text(getattr(self, name), _MAX_CARD_TEXT))


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a store's examination looked at; ``remedy`` says what to do about it, if it is not ``ok``."""

    what: str
    state: FindingState
    text: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Triggered:
    """What became of ``trigger(job)``: the run's slot, and ``won`` if its handler starts here."""

    slot: int
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend promises; final once it is entered, before that the least it promises."""

    min_lease_ms: int = 1
    """A shorter lease is InvalidClaim."""
    lease_granularity_ms: int = 1
    """Leases are rounded up to a multiple of this, never down."""
    clock_error_ms: int = 0
    """How far the backend's idea of the store's clock may be off, either way."""
    durable: bool = False
    """The state survives a restart of the store."""
    shared: bool = False
    """The store can be reached from other processes."""


_tokens: list[str] = []
"""Tokens for later: each call of the system's generator lets other threads run, which is felt in a burst of claims."""


def new_token() -> str:
    """A fresh random token, different also in processes that were forked from one."""
    try:
        return _tokens.pop()
    except IndexError:
        random = os.urandom(16 * 128).hex()
        _tokens.extend(random[start : start + 32] for start in range(32, len(random), 32))
        return random[:32]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tokens.clear)


def check_run(job: str, slot: int, token: str) -> None:
    """Refuse (InvalidClaim) a job, slot or token that breaks a limit."""
    check_name(job, "job")
    _check_int("slot", slot, 0, MAX_SLOT)
    check_token(token)


def check_name(name: str, what: str, error: type[InvalidInput] = InvalidClaim) -> None:
    """Refuse a name that is not 1 to 200 bytes of UTF-8 without control characters."""
    if type(name) is str and name.isascii() and name.isprintable() and 0 < len(name) <= MAX_NAME_BYTES:
        return  # by far the most
    fault = _fault_of_name(name) if isinstance(name, str) else "is not a string"
    if fault is not None:
        raise error(f"{what}: {_shown(name)} {fault}")


def check_token(token: str) -> None:
    """Refuse (InvalidClaim) a token that is not 1 to 64 ASCII characters."""
    if not isinstance(token, str) or not token.isascii() or not 1 <= len(token) <= MAX_TOKEN_CHARS:
        raise InvalidClaim(f"token: {_shown(token)} is not {1} to {MAX_TOKEN_CHARS} ASCII characters")


def check_ending(status: str) -> None:
    """Refuse (InvalidClaim) a status that ``finish`` does not know."""
    if status not in ENDINGS:
        raise InvalidClaim(f"status: {status!r} is not one of {_choices(ENDINGS)}")


def check_lease(lease_ms: int, capabilities: Capabilities, error: type[InvalidInput] = InvalidClaim) -> None:
    """Refuse a lease that is shorter than the store can grant."""
    if lease_ms < capabilities.min_lease_ms:
        raise error(
            f"lease: {lease_ms} ms is shorter than this store can grant; use {capabilities.min_lease_ms} ms or more"
        )


def round_lease(lease_ms: int, capabilities: Capabilities) -> int:
    """The lease the store grants for ``lease_ms``: rounded up to its granularity, never down."""
    granularity = capabilities.lease_granularity_ms
    return -(-lease_ms // granularity) * granularity


def check_limit(limit: int) -> None:
    """Refuse (InvalidClaim) a number of results that is not at least 1."""
    _check_int("limit", limit, 1)


def clean_error(text: str) -> str:
    """An error's text as every store can keep it: no NUL, no lone surrogates, at most 64 KiB of UTF-8."""
    clean = _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text[: MAX_ERROR_BYTES + 1])
    encoded = clean.encode()
    if len(encoded) <= MAX_ERROR_BYTES:
        return clean
    return encoded[: MAX_ERROR_BYTES - len(_CUT_MARK.encode())].decode("utf-8", "ignore") + _CUT_MARK


def clean_text(text: str, longest: int) -> str:
    """A line as every store can keep it and every terminal show it: no control characters, no lone surrogates."""
    clean = _CONTROL.sub(" ", _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text[: longest + 1]))
    return clean if len(clean) <= longest else f"{clean[: longest - 2]} …"


def _fault_of_name(name: str) -> str | None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "has a lone surrogate; use text that is valid Unicode"
    if not 1 <= size <= MAX_NAME_BYTES:
        return f"is {size} bytes of UTF-8; use 1 to {MAX_NAME_BYTES}"
    if _CONTROL.search(name):
        return "has a control character; leave it out"
    return None


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def _check_int(name: str, value: object, lowest: int, highest: int | None = None) -> None:
    if type(value) is int and value >= lowest and (highest is None or value <= highest):
        return
    bounds = f"at least {lowest}" if highest is None else f"{lowest} to {highest}"
    raise InvalidClaim(f"{name}: {_shown(value)} is not an integer of {bounds}")


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _choices(values: frozenset[str]) -> str:
    return ", ".join(repr(value) for value in sorted(values))
