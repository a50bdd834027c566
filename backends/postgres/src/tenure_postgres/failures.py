"""The only place where psycopg's errors become tenure's."""

import re
from collections.abc import Iterable

import psycopg
from tenure.errors import BackendError, BackendMisconfigured, BackendUnavailable
from tenure.urls import HIDDEN

_REMEDIES = {
    "28": "look at the user, the password and pg_hba.conf",
    "3D000": "create the database, or name another one",
    "42501": "grant the rights that docs/postgres.md lists, or run `tenure migrate URL` as the owner of the schema",
    "3F000": "run `tenure migrate URL`, or enter with create=True",
    "42P01": "tenure's tables are not there; run `tenure migrate URL`, or enter with create=True",
    "42883": "tenure's functions are not there; run `tenure migrate URL`, or use functions=False",
    "42": "the schema holds what is not tenure's; use another one: schema=…",
    "TLS": "look at sslmode and sslrootcert, and at the server's certificate",
    "startup": "leave that parameter out of the URL, or allow it in the pooler's ignore_startup_parameters",
    "pool": "open the pool before the backend is entered, and close it after",
    "25000": "something before the server keeps transactions of another isolation level open; use pooler=True",
}
"""What will not help to try again, by SQLSTATE or its class, and what does."""
_ADVICE = {
    "25006": "the server is read-only: a standby, or a primary that steps down; name the primary, or all hosts with"
    " target_session_attrs=read-write",
    "53300": "the server has no connection to spare; raise max_connections, or lower connections=",
    "53100": "the server's disk is full; free some space",
    "57014": "the statement took longer than the timeout; look for who locks tenure's tables",
    "40001": "the isolation level was raised under it",
}
"""What may pass by itself, and what would help."""
_CONNECTING = (
    (r"authentication failed|no pg_hba.conf entry|no password supplied|role .* does not exist|auth failed", "28"),
    (r"database .* does not exist|no such database", "3D000"),
    (r"permission denied for database", "42501"),
    (r"certificate verify failed|root certificate|does not support SSL|server certificate|sslrootcert", "TLS"),
    (r"too many (clients|connections)|remaining connection slots|no more connections allowed", "53300"),
    (r"unsupported startup parameter", "startup"),
    (r"pool .* (is|was) (closed|not open)|pool is closed", "pool"),
)
"""While a connection is made libpq tells no SQLSTATE, only the server's words."""


class Unfit(Exception):
    """The server, its database or its schema will not do; the message says what will."""


def translated(error: Exception, place: str, secrets: Iterable[str] = ()) -> BackendError:
    """The error as tenure's, with the cause attached, at the place it is about; one of tenure's stays as it is."""
    if isinstance(error, BackendError):
        return error
    if isinstance(error, Unfit):
        unfit = BackendMisconfigured(f"{place}: {error}")
        unfit.__cause__ = error
        return unfit
    state = _state(error)
    remedy = _REMEDIES.get(state) or _REMEDIES.get(state[:2])
    kind = BackendUnavailable if remedy is None else BackendMisconfigured
    text = _without(_words(error), secrets)
    advice = remedy or _ADVICE.get(state)
    translation = kind(f"{place}: {text}{f'; {advice}' if advice else ''}")
    translation.__cause__ = error
    return translation


def _state(error: Exception) -> str:
    """Its SQLSTATE, also where only the words tell it; empty if nothing is known."""
    if isinstance(error, psycopg.Error) and error.sqlstate:
        return error.sqlstate
    text = str(error)
    for pattern, state in _CONNECTING:
        if re.search(pattern, text):
            return state
    return ""


def _words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not re.match(r"(LINE \d+:|\^|QUERY:|CONTEXT:|PL/pgSQL)", line)]
    words = " ".join(said).replace(" Is the server running", "; is the server running")
    return words or type(error).__name__


def _without(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(f'"{secret}"', f'"{HIDDEN}"')
    return text
