"""The backend's SQL, read from the files in ``sql``, for a schema of any name."""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tenure.decision import KEPT_ENDED, KEPT_UNFINISHED
from tenure.model import EARLY_MS

_FILES = files(__package__) / "sql"
_NAMED = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)

DROPPED_TOGETHER = 16
"""Ended runs beyond those kept that are waited for before they are dropped."""

NOW_MS = "trunc(extract(epoch from clock_timestamp()) * 1000)::bigint"
"""The server's clock at this very moment, in milliseconds."""

MIGRATIONS = tuple(sorted(file.name for file in (_FILES / "migrations").iterdir()))
"""The files that make the schema, by number. None of them is changed once released: a function that must change gets
another name, so that instances of the former version go on."""


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL as it is sent, and the name that it is prepared under: the same for the same text alone."""

    text: bytes
    name: bytes


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements on one schema."""

    claim: Statement
    heartbeat: Statement
    finish: Statement
    release: Statement
    active: Statement
    save_result: Statement
    results: Statement
    save_cards: Statement
    forget_cards: Statement
    cards: Statement
    examine: Statement
    settings: Statement
    applied: Statement
    ensure_job: Statement
    lock_job: Statement
    lock_runs: Statement
    load_job: Statement
    load_runs: Statement
    ensure_transaction: Statement
    put_run: Statement
    drop_run: Statement
    put_job: Statement


@cache
def statements(schema: str) -> Statements:
    """The statements on the schema of that name."""
    _, *parts = _NAMED.split((_FILES / "statements.sql").read_text("utf-8"))
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    return Statements(**{name: _statement(_filled(text, schema)) for name, text in texts.items()})


def needs_function(number: int) -> bool:
    """Whether that migration makes functions, which a backend with functions=False does without."""
    return "_function_" in MIGRATIONS[number - 1]


def migration(number: int, schema: str) -> str:
    """The SQL of that migration."""
    return _filled((_FILES / "migrations" / MIGRATIONS[number - 1]).read_text("utf-8"), schema)


def quoted(name: str) -> str:
    """The name as an identifier of SQL, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """The text as a literal of SQL, whatever is in it."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"


def _filled(text: str, schema: str) -> str:
    return text.format(
        schema=quoted(schema),
        now_ms=NOW_MS,
        early_ms=EARLY_MS,
        kept_unfinished=KEPT_UNFINISHED,
        kept_ended_skip=KEPT_ENDED["skip"],
        kept_ended_allow=KEPT_ENDED["allow"],
        dropped_together=DROPPED_TOGETHER,
    )


def _statement(text: str) -> Statement:
    encoded = text.strip().encode()
    return Statement(encoded, b"tenure_" + hashlib.sha256(encoded).hexdigest()[:16].encode())
