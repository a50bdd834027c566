"""The errors a user of tenure can meet.

::

    TenureError
    ├── InvalidInput (ValueError)
    │   ├── InvalidClaim          a limit of the protocol is broken (section 2)
    │   ├── InvalidDuration       a duration that is not one
    │   ├── InvalidSchedule       a schedule that is impossible, or cannot be read
    │   ├── InvalidJob            a job's name, handler or options
    │   │   └── DuplicateJob      the name is taken in this scheduler
    │   └── InvalidUrl            a backend URL that cannot be used
    │       └── UnknownBackend    no installed distribution serves the URL's scheme
    ├── UnknownJob (LookupError)  no job of that name in this scheduler
    ├── SchedulerStateError       a call that does not fit the scheduler's state
    └── BackendError              a store failed; the cause is attached
        ├── BackendUnavailable    trying again may help
        ├── BackendMisconfigured  trying again will not help
        └── BackendClosed         used before entering or after leaving
"""

from collections.abc import Iterable


class TenureError(Exception):
    """Whatever tenure raises on purpose."""


class InvalidInput(TenureError, ValueError):
    """A value that cannot be used; the message names it and the remedy."""


class InvalidClaim(InvalidInput):
    """A protocol limit is broken; nothing was sent to the store."""


class InvalidDuration(InvalidInput):
    """A duration that is not one."""


class InvalidSchedule(InvalidInput):
    """A schedule that is impossible or cannot be read."""


class InvalidJob(InvalidInput):
    """A job's name, handler or options cannot be used."""


class DuplicateJob(InvalidJob):
    """The job's name is taken in this scheduler."""


class InvalidUrl(InvalidInput):
    """A backend URL that cannot be used; secrets in it are never repeated."""


class UnknownBackend(InvalidUrl):
    """No installed distribution serves the URL's scheme."""


class UnknownJob(TenureError, LookupError):
    """No job of that name in this scheduler."""


class SchedulerStateError(TenureError):
    """A call that does not fit the scheduler's state."""


class BackendError(TenureError):
    """A store failed; an error is never an outcome (protocol, section 6)."""


class BackendUnavailable(BackendError):
    """The store could not be asked now: trying again may help."""


class BackendMisconfigured(BackendError):
    """The store will not serve this backend as configured: trying again will not help."""


class BackendClosed(BackendError):
    """The backend was used before it was entered or after it was left."""


def closest(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """What was meant by a misspelt word, for the message of an error; None if nothing known is alike."""
    import difflib  # loaded late: an import of tenure does not pay for it

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=likeness)), None)
