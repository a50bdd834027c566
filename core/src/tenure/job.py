"""A job: a named handler with a schedule and its options, checked before anything starts."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypedDict, get_args

from tenure.duration import Duration, to_ms, to_text
from tenure.errors import InvalidJob, closest
from tenure.model import Overlap, check_name
from tenure.schedule import Schedule, check_schedule

Handler = Callable[..., Any]


class JobOptions(TypedDict, total=False):
    """A job's options and the defaults of a scheduler."""

    lease: Duration
    """How long a holder that is silent keeps the run; 30s."""
    heartbeat: Duration | None
    """How often the holder renews its lease; a third of it."""
    overlap: Overlap
    """``skip``: no run starts while another of the job is alive. ``allow``: they may overlap."""
    max_attempts: int
    """Owners a run may have before it is given up; 3. A released attempt does not count."""
    max_late: Duration | None
    """How long after its slot a run may still start; 1m. None: any time."""
    catch_up: Duration | None
    """At start, run the latest slot if it was due less than this ago; None: don't."""
    jitter: Duration
    """Each instance claims after a random part of this; 500ms."""
    timeout: Duration | None
    """A handler that takes longer is told to stop and its run is failed; None: no limit."""


class JobChoices(JobOptions, total=False):
    """What is said when a job is added."""

    replace: bool
    """Replace the job of that name, if there is one; else DuplicateJob."""


DEFAULTS: JobOptions = {
    "lease": "30s",
    "heartbeat": None,
    "overlap": "skip",
    "max_attempts": 3,
    "max_late": "1m",
    "catch_up": None,
    "jitter": "500ms",
    "timeout": None,
}


SHORTEST_LEASE_MS = 100
"""A shorter one would be over before an instance could use it: each win would come too late, and be released."""
_SHORTEST_MS = {"lease": SHORTEST_LEASE_MS, "heartbeat": 1, "max_late": 0, "catch_up": 1, "jitter": 0, "timeout": 1}
_OPTIONAL = ("heartbeat", "max_late", "catch_up", "timeout")


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the engine uses it; times in milliseconds."""

    name: str
    schedule: Schedule
    handler: Handler
    is_async: bool
    takes_context: bool
    lease_ms: int
    heartbeat_ms: int
    overlap: Overlap
    max_attempts: int
    max_late_ms: int | None
    catch_up_ms: int | None
    jitter_ms: int
    timeout_ms: int | None


def make_job(name: str, schedule: Schedule, handler: object, options: Mapping[str, Any]) -> Job:
    """The job, or InvalidJob (InvalidDuration, InvalidSchedule) that names the value and the remedy."""
    check_name(name, "job", InvalidJob)
    check_schedule(schedule, name)
    is_async, takes_context = _check_handler(name, handler)
    check_options(options, f"job {name!r}")
    values = {**DEFAULTS, **options}
    lease_ms = to_ms(values["lease"], "lease", minimum_ms=_SHORTEST_MS["lease"])
    max_late_ms = _optional_ms(values, "max_late")
    jitter_ms = to_ms(values["jitter"], "jitter")
    if max_late_ms is not None and jitter_ms > max_late_ms:
        raise InvalidJob(
            f"job {name!r}: jitter {to_text(jitter_ms)} is longer than max_late {to_text(max_late_ms)}, so that runs "
            "would be late by chance; shorten jitter or lengthen max_late"
        )
    return Job(
        name=name,
        schedule=schedule,
        handler=handler,  # type: ignore[arg-type] # _check_handler has seen to it
        is_async=is_async,
        takes_context=takes_context,
        lease_ms=lease_ms,
        heartbeat_ms=_heartbeat_ms(name, values["heartbeat"], lease_ms),
        overlap=values["overlap"],
        max_attempts=values["max_attempts"],
        max_late_ms=max_late_ms,
        catch_up_ms=_optional_ms(values, "catch_up"),
        jitter_ms=jitter_ms,
        timeout_ms=_optional_ms(values, "timeout"),
    )


def check_options(options: Mapping[str, Any], whose: str, others: tuple[str, ...] = ("replace",)) -> None:
    """Refuse (InvalidJob) unknown options and values that no job can have; durations are checked by ``make_job``."""
    for option in options:
        if option not in DEFAULTS:
            known = (*DEFAULTS, *others)
            close = closest(option, known)
            hint = f"did you mean {close!r}?" if close else f"the options are {', '.join(known)}"
            raise InvalidJob(f"{whose}: there is no option {option!r}; {hint}")
    overlap = options.get("overlap", "skip")
    if overlap not in get_args(Overlap):
        raise InvalidJob(f'{whose}: overlap {overlap!r} is neither "skip" nor "allow"')
    attempts = options.get("max_attempts", 1)
    if type(attempts) is not int or attempts < 1:
        raise InvalidJob(f"{whose}: max_attempts {attempts!r} is not an integer of at least 1 (1: at most once)")


def check_defaults(defaults: Mapping[str, Any]) -> None:
    """Refuse (InvalidJob, InvalidDuration) defaults that no job could have, each by itself."""
    check_options(defaults, "Scheduler", ("namespace", "instance", "grace", "on_event", "threads"))
    for option, value in defaults.items():
        if option in _SHORTEST_MS and not (value is None and option in _OPTIONAL):
            to_ms(value, option, minimum_ms=_SHORTEST_MS[option])


def _heartbeat_ms(name: str, heartbeat: Duration | None, lease_ms: int) -> int:
    if heartbeat is None:
        return max(lease_ms // 3, 1)
    heartbeat_ms = to_ms(heartbeat, "heartbeat", minimum_ms=_SHORTEST_MS["heartbeat"])
    if heartbeat_ms * 2 > lease_ms:
        raise InvalidJob(
            f"job {name!r}: heartbeat {to_text(heartbeat_ms)} is not well under the lease {to_text(lease_ms)}: one "
            f"lost heartbeat would lose the run; use {to_text(lease_ms // 3)} or leave it out"
        )
    return heartbeat_ms


def _optional_ms(values: Mapping[str, Any], option: str) -> int | None:
    return None if values[option] is None else to_ms(values[option], option, minimum_ms=_SHORTEST_MS[option])


def _check_handler(name: str, handler: object) -> tuple[bool, bool]:
    """Whether the handler is async, and whether it is called with a context."""
    if not callable(handler):
        raise InvalidJob(f"job {name!r}: the handler {handler!r} cannot be called; give a function of ctx")
    call = handler if isinstance(handler, FunctionType) else getattr(handler, "__call__", handler)  # noqa: B004
    if any(inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code) for code in (handler, call)):
        raise InvalidJob(
            f"job {name!r}: the handler {handler!r} is a generator and would not run; use return, not yield"
        )
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
    return is_async, _takes_context(name, handler)


def _takes_context(name: str, handler: Callable[..., Any]) -> bool:
    """Whether one argument is passed: if it is required, called ``ctx``, or taken by ``*args`` (a decorator's)."""
    if type(handler) is FunctionType and not hasattr(handler, "__wrapped__"):
        code = handler.__code__  # inspect.signature would take longer than all the rest of adding a job
        required = code.co_argcount - len(handler.__defaults__ or ())
        if required <= 1 and not code.co_kwonlyargcount:
            return required == 1 or code.co_varnames[:1] == ("ctx",) or bool(code.co_flags & inspect.CO_VARARGS)
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return True  # a builtin that does not tell
    args = (None,) if any(map(_wants_argument, signature.parameters.values())) else ()
    try:
        signature.bind(*args)
    except TypeError as error:
        raise InvalidJob(
            f"job {name!r}: the handler {handler!r} cannot be called with a context alone ({error}); "
            "it takes one argument or none"
        ) from None
    return bool(args)


def _wants_argument(parameter: inspect.Parameter) -> bool:
    if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        return parameter.default is parameter.empty or parameter.name == "ctx"
    return parameter.kind is parameter.VAR_POSITIONAL
