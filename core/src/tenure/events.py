"""What an instance tells its listeners: one typed record per thing that happened to a run."""

import inspect
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, Protocol, cast

from tenure.clock import Clock
from tenure.errors import InvalidInput
from tenure.model import LostAttempt, Mode

SkipReason = Literal["late", "taken", "overlap", "early"]
InterruptReason = Literal["stop", "takeover", "superseded", "exhausted", "lost"]

logger: logging.Logger = logging.getLogger("tenure")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOG_PAUSE_MS = 10_000
"""The same kind of store error is logged once in this time: an outage must not flood the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What all events carry. ``slot`` is in milliseconds since the Unix epoch; attempt and fence are 0 if unknown."""

    kind: ClassVar[str]

    job: str
    slot: int
    attempt: int = 0
    fence: int = 0
    instance: str

    @property
    def due(self) -> datetime:
        """The slot, aware, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.slot)

    def __str__(self) -> str:
        run = f"{self.job} {self.due:%Y-%m-%dT%H:%M:%S}.{self.slot % 1000:03}Z" if self.job else "all jobs"
        attempt = f", attempt {self.attempt}" if self.attempt else ""
        return f"{run}: {self.kind}{attempt}{self._details()} ({self.instance})"

    def _details(self) -> str:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Event):
    """A handler starts."""

    kind = "start"
    mode: Mode
    late_ms: int
    """From the slot to the win of this attempt, by the store's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Success(Event):
    """A handler returned and its run is ended."""

    kind = "success"
    duration_ms: int

    def _details(self) -> str:
        return f", after {self.duration_ms} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(Event):
    """A handler raised or ran past its timeout, and its run is ended.

    ``going_on`` names this job's handlers, as ``job@slot``, that still execute in this instance after their timeout.
    """

    kind = "failure"
    duration_ms: int
    error: str
    timeout: bool = False
    going_on: tuple[str, ...] = ()

    def _details(self) -> str:
        going_on = f"; still executing: {', '.join(self.going_on)}" if self.going_on else ""
        return f", after {self.duration_ms} ms: {_last_line(self.error)}{going_on}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted(Event):
    """A handler was told to stop, or its run turned out to belong to another; the run is not ended by it."""

    kind = "interrupted"
    reason: InterruptReason
    duration_ms: int
    error: str | None = None

    def _details(self) -> str:
        return f", {self.reason}, after {self.duration_ms} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip(Event):
    """This instance does not run a slot: too late, taken by another, overlapping, or early by the store's clock."""

    kind = "skip"
    reason: SkipReason
    holder: str | None = None

    def _details(self) -> str:
        return f", {self.reason}" + (f" by {self.holder}" if self.holder else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover(Event):
    """This instance owns the next attempt of a run; ``previous`` are the attempts it replaces."""

    kind = "takeover"
    previous: tuple[LostAttempt, ...]

    def _details(self) -> str:
        return _lost(self.previous)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhausted(Event):
    """A run has used up its attempts and is ended as such."""

    kind = "exhausted"
    previous: tuple[LostAttempt, ...]

    def _details(self) -> str:
        return _lost(self.previous)


@dataclass(frozen=True, slots=True, kw_only=True)
class Error(Event):
    """A call failed, of the store or of a schedule; ``call`` names it. Job is empty when it concerns them all."""

    kind = "error"
    job: str = ""
    slot: int = 0
    call: str
    error: BaseException

    def _details(self) -> str:
        return f", {self.call} failed: {type(self.error).__name__}: {self.error}"


KINDS = tuple(kind.kind for kind in (Start, Success, Failure, Interrupted, Skip, Takeover, Exhausted, Error))

Listener = Callable[[Event], None]

LOG_FIELDS = ("job", "slot", "attempt", "fence", "instance")
"""Attributes of the log's records."""

_LEVELS = {
    "failure": logging.ERROR,
    "exhausted": logging.ERROR,
    "error": logging.WARNING,
    "interrupted": logging.WARNING,
    "takeover": logging.WARNING,
}


def check_listener(listener: object) -> Listener:
    """Refuse (InvalidInput) what cannot be called with an event, or would have to be awaited."""
    if not callable(listener):
        raise InvalidInput(f"on_event: {listener!r} cannot be called; give a function that takes an event")
    if inspect.iscoroutinefunction(listener):
        raise InvalidInput(f"on_event: {listener!r} is a coroutine function; give a plain function that starts a task")
    return cast(Listener, listener)


class Emitter(Protocol):
    """Where events go."""

    def wants(self, kind: str) -> bool:
        """Whether anyone would be told of such an event; if not, it need not be made."""

    def emit(self, event: Event) -> None:
        """Tell whoever listens; never raises, never blocks."""


class Events:
    """Hands each event to the log and to the listeners; what a listener raises is logged and changes nothing."""

    def __init__(self, clock: Clock, listeners: tuple[Listener, ...] = ()) -> None:
        self._clock = clock
        self._listeners = listeners
        self._logged: dict[tuple[str, str], float] = {}

    def emit(self, event: Event) -> None:
        """Tell everyone; never raises."""
        level = _level(event.kind)
        if logger.isEnabledFor(level) and not (isinstance(event, Error) and self._too_often(event)):
            _log(level, "%s%s", event, _traceback(event), extra=_fields(event))
        for listener in self._listeners:
            self._tell(listener, event)

    def wants(self, kind: str) -> bool:
        """Whether anyone would be told of such an event."""
        return bool(self._listeners) or logger.isEnabledFor(_level(kind))

    def _tell(self, listener: Listener, event: Event) -> None:
        try:
            answer = cast(object, listener(event))
        except BaseException:  # noqa: BLE001 - logged, whatever it is
            _log(logging.ERROR, "the listener %r failed on %s", listener, event, exc_info=True)
            return
        if inspect.iscoroutine(answer):
            cast(Coroutine[Any, Any, Any], answer).close()
            _log(logging.ERROR, "the listener %r gave a coroutine, which nobody awaits; start a task in it", listener)

    def _too_often(self, event: Error) -> bool:
        key = (event.call, type(event.error).__name__)
        now = self._clock.monotonic_ms()
        if now - self._logged.get(key, -_LOG_PAUSE_MS) < _LOG_PAUSE_MS:
            return True
        self._logged[key] = now
        return False


def _log(
    level: int, message: str, *args: object, exc_info: bool = False, extra: dict[str, object] | None = None
) -> None:
    """Log it; an application's filter or handler may raise, and then there is nowhere to say so."""
    with suppress(Exception):
        logger.log(level, message, *args, exc_info=exc_info, extra=extra)


def _fields(event: Event) -> dict[str, object]:
    """What a formatter that writes JSON shows beside the message."""
    return {"event": event.kind, **{name: getattr(event, name) for name in LOG_FIELDS}}


def _traceback(event: Event) -> str:
    return f"\n{event.error}" if isinstance(event, Failure) and not event.timeout else ""


def _last_line(error: str) -> str:
    """What was raised; a traceback's last line says it."""
    return error.rstrip().rpartition("\n")[2]


def _lost(previous: tuple[LostAttempt, ...]) -> str:
    if not previous:
        return ""
    lost = previous[0]
    return f" of {lost.holder}, which {'released it' if lost.released else 'was silent for its lease'}"


def _level(kind: str) -> int:
    return _LEVELS.get(kind, logging.DEBUG)
