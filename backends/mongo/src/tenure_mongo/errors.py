"""The driver's errors as the protocol's, with the remedy; no text repeats a secret."""

import re

from bson.errors import InvalidDocument
from pymongo.errors import (
    AutoReconnect,
    ConfigurationError,
    ConnectionFailure,
    InvalidOperation,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
)
from tenure.errors import BackendClosed, BackendError, BackendMisconfigured, BackendUnavailable, InvalidClaim

_ERRORS = (PyMongoError, InvalidDocument, OverflowError, RuntimeError, TimeoutError)
"""What a call of the driver may raise."""

_GRANT = "grant its user a role that may, see the permissions in docs/mongo.md"
_NOT_OURS = "its collections tenure_jobs and tenure_results hold something else; use another database"
_NOT_SUCH_A_SERVER = "it must be MongoDB 6.0 or newer"
_WRONG_USER = "correct the URL's user, password and authSource"

_REMEDIES = {
    11: _WRONG_USER,
    13: _GRANT,
    18: _WRONG_USER,
    31: _GRANT,
    8000: _WRONG_USER,  # what Atlas says
    9: _NOT_SUCH_A_SERVER,
    59: _NOT_SUCH_A_SERVER,
    115: _NOT_SUCH_A_SERVER,
    238: _NOT_SUCH_A_SERVER,
    323: "leave Stable API version 1 off in strict mode",
    40324: _NOT_SUCH_A_SERVER,
    14: _NOT_OURS,
    20: _NOT_OURS,
    73: "use another database name",
    121: "its collections have a validator that refuses tenure's documents; remove it",
    166: _NOT_OURS,
    10003: _NOT_OURS,
    16554: _NOT_OURS,
    16556: _NOT_OURS,
    16883: _NOT_OURS,
    28651: _NOT_OURS,
    28664: _NOT_OURS,
    28724: _NOT_OURS,
    40081: _NOT_OURS,
    40400: _NOT_OURS,
}
"""The server's codes of what trying again will not help, and what will."""

_REASONS = {
    "CERTIFICATE_VERIFY_FAILED": "name the authority that signed its certificate with tlsCAFile",
    "replica set name": "correct the URL's replicaSet",
    "replica set named": "correct the URL's replicaSet",
}
"""What the driver only says in words while it searches a server."""

_REFUSED = re.compile(r"Connect call failed|[Cc]onnection refused")
_DETAILS = re.compile(r" \(configured timeouts: [^)]*\)|, Timeout: .*, Topology Description: .*", re.DOTALL)


def translate(error: Exception, place: str) -> Exception:
    """The error as a caller gets it; what is no fault of the store is given back as it is."""
    if isinstance(error, AttributeError) and error.name == "mark_dirty":
        # The driver wants to mark a change stream's session at a lost connection, and the session may be gone. What
        # it was handling is its context, unless somebody raised it again since.
        before = error.__context__
        error = before if isinstance(before, ConnectionFailure) else AutoReconnect("connection lost")
    if isinstance(error, BackendError) or not isinstance(error, _ERRORS):
        return error
    if isinstance(error, OverflowError):
        return InvalidClaim(f"a number is too large for MongoDB, which keeps 64 bits: {error}")
    if isinstance(error, InvalidOperation):
        return BackendClosed(f"{place}: {error}; give the backend a client that is open")
    if isinstance(error, OperationFailure):
        return server_error(place, error.code, str((error.details or {}).get("errmsg") or error))
    if isinstance(error, RuntimeError):
        return BackendMisconfigured(f"{place}: {error} Give the backend a URL, or a client that is not used elsewhere.")
    if isinstance(error, ConfigurationError):
        return BackendMisconfigured(f"{place}: {error}")
    if isinstance(error, NotPrimaryError):
        return BackendUnavailable(f"{place}: it is not the primary")
    if isinstance(error, ConnectionFailure):
        return connection_error(place, str(error))
    return BackendUnavailable(f"{place}: {error or type(error).__name__}")


def server_error(place: str, code: int | None, message: str) -> BackendError:
    """The error that the server told with this code."""
    return _error(place, message, _REMEDIES.get(code or 0))


def connection_error(place: str, message: str) -> BackendError:
    """The error that the driver told while it looked for a server; without its description of all that it knows."""
    remedy = next((_REASONS[words] for words in _REASONS if words in message), None)
    brief = _DETAILS.sub("", message)
    if remedy is None and _REFUSED.search(message):
        return BackendUnavailable(f"{place}: {brief}; is it running there? look at host and port")
    return _error(place, brief, remedy)


def _error(place: str, message: str, remedy: str | None) -> BackendError:
    return (
        BackendMisconfigured(f"{place}: {message}; {remedy}") if remedy else BackendUnavailable(f"{place}: {message}")
    )
