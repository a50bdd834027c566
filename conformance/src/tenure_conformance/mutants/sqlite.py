"""The SQLite backend with one line of its SQL or of its thread changed; needs ``tenure-sqlite``."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

from tenure_conformance.mutants.mutant import Mutant, register
from tenure_conformance.mutants.reference import Edit, edited, load
from tenure_conformance.target import Level, Target, Timing
from tenure_conformance.targets.sqlite import target as sqlite

LEVELS: tuple[Level, ...] = ("lease", "durable", "shared")
TIMING = Timing(short_ms=20, slack_ms=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """What is changed in which file of the backend."""

    sql: tuple[Edit, ...] = ()
    schema: tuple[Edit, ...] = ()
    worker: tuple[Edit, ...] = ()
    database: tuple[Edit, ...] = ()
    backend: tuple[Edit, ...] = ()


def backend(edits: Edits) -> Any:
    """A copy of the backend's module over copies of what it stands on."""
    package = "tenure_sqlite"
    read = files(package)
    texts = edited(read.joinpath("queries.sql").read_text("utf-8"), edits.sql).split("-- name: ")[1:]
    named = {name.strip().upper(): text for name, text in (one.split("\n", 1) for one in texts)}
    statements = edited(read.joinpath("schema.sql").read_text("utf-8"), edits.schema).split(";\n")
    queries = SimpleNamespace(SCHEMA=statements, **named)
    database = load(package, "database.py", edits.database)
    thread = load(package, "worker.py", edits.worker)
    module = load(package, "backend.py", edits.backend)
    vars(database)["queries"] = queries
    vars(module).update(queries=queries, Database=database.Database, Worker=thread.Worker, Call=thread.Call)
    return module


def on_sqlite(name: str, make: Callable[[], Any]) -> Target:
    """A target on a file of its own."""
    made = cache(make)

    def opened(url: str, namespace: str) -> Any:
        return made().from_url(url, namespace=namespace)

    return replace(sqlite, name=name, open=opened, timing=TIMING, levels=LEVELS, faults=None)


def broken(name: str, defect: str, breaks: str, *, seen: str = "", **edits: tuple[Edit, ...]) -> None:
    """Register SQLite's backend with edits."""
    target = on_sqlite(name, lambda: backend(Edits(**edits)))
    register(Mutant(name, defect, target, tuple(breaks.split()), seen))


broken(
    "sqlite-no-transaction",
    "Reading a job and writing it are two transactions.",
    "claim-atomic",
    worker=(
        ('            connection.execute("begin immediate")\n', ""),
        ('            connection.execute("commit")\n', ""),
    ),
    backend=(
        (
            "            state, answer = decide(known, now)\n",
            "            state, answer = decide(known, now)\n            time.sleep(0.002)\n",
        ),
        ("import json\n", "import json\nimport time\n"),
    ),
    seen="autocommit",
)
broken(
    "sqlite-nocase",
    "Names are compared by a collation that knows no case.",
    "names-exact",
    schema=(
        (
            "    job text not null,\n    state",
            "    job text not null collate nocase,\n    state",
        ),
    ),
    seen="nacos#15543",
)
broken(
    "sqlite-trimmed",
    "Names are compared by a collation that ignores spaces at their end.",
    "names-exact",
    schema=(
        (
            "    job text not null,\n    state",
            "    job text not null collate rtrim,\n    state",
        ),
    ),
    seen="iam#1136",
)
broken(
    "sqlite-active-page",
    "`active` reads the first hundred jobs.",
    "active-all",
    sql=(("order by known.job;", "order by known.job limit 100;"),),
)
broken(
    "sqlite-active-like",
    "`active` compares names as patterns.",
    "active-named names-exact",
    sql=(
        (
            "known.job in (select value from json_each(:jobs))",
            "exists (select 1 from json_each(:jobs) where known.job like value)",
        ),
    ),
    seen="LIKE without ESCAPE",
)
broken(
    "sqlite-active-of-all-namespaces",
    "`active` reads the jobs of every namespace.",
    "namespace-only",
    sql=(("    on known.namespace = :namespace and known.job in", "    on known.job in"),),
)
broken(
    "sqlite-clock-in-seconds",
    "The clock is read in whole seconds.",
    "claim-now result-now word-live",
    sql=(
        (
            "select\n    cast(round((julianday('now') - 2440587.5) * 86400000) as integer),\n    (select",
            "select\n    cast(strftime('%s', 'now') as integer) * 1000,\n    (select",
        ),
    ),
    seen="CURRENT_TIMESTAMP",
)
broken(
    "sqlite-two-clocks",
    "`active` reads a clock that is a minute fast.",
    "result-now active-live time-store-clock",
    sql=(
        (
            "select\n    cast(round((julianday('now') - 2440587.5) * 86400000) as integer),\n    known",
            "select\n    cast(round((julianday('now') - 2440587.5) * 86400000) as integer) + 60000,\n    known",
        ),
    ),
)
broken(
    "sqlite-records-always-overwrite",
    "Any record overwrites another.",
    "results-crashed-yields",
    sql=(("\nwhere :overwrites;", ";"),),
)
broken(
    "sqlite-records-half-overwritten",
    "A record that replaces another keeps the old error text.",
    "results-overwrite results-one-record",
    sql=(("    ended_at = excluded.ended_at,\n    error = excluded.error\n", "    ended_at = excluded.ended_at\n"),),
)
broken(
    "sqlite-records-unordered",
    "The attempts of one run come in no order.",
    "results-order",
    sql=(("order by slot desc, attempt desc limit :limit", "order by slot desc, attempt limit :limit"),),
)
broken(
    "sqlite-records-as-text",
    "Slots of records are compared as texts.",
    "results-order results-one-record",
    schema=(("    slot integer not null,\n", "    slot text not null,\n"),),
)
broken(
    "sqlite-records-of-all-namespaces",
    "Records are read from every namespace.",
    "namespace-only",
    sql=(
        (
            "started_at, ended_at, error from tenure_results\nwhere namespace = :namespace and job = :job",
            "started_at, ended_at, error from tenure_results\nwhere job = :job",
        ),
    ),
)
broken(
    "sqlite-prunes-one-more",
    "One record less than promised is kept.",
    "bounds-history",
    sql=(("limit 1 offset :keep", "limit 1 offset :keep - 1"),),
)
broken(
    "sqlite-prunes-by-slot",
    "All attempts of the oldest run are dropped together.",
    "bounds-history",
    sql=(("and (slot, attempt) <= (\n    select slot, attempt from", "and slot <= (\n    select slot from"),),
)
broken(
    "sqlite-prunes-other-jobs",
    "Saving a record prunes the history of every job.",
    "namespace-only results-one-record bounds-history",
    sql=(
        (
            "delete from tenure_results\nwhere namespace = :namespace and job = :job and",
            "delete from tenure_results\nwhere namespace = :namespace and",
        ),
    ),
)
broken(
    "sqlite-new-state-lost",
    "A job's state is written once, and not again.",
    "claim-row-3 claim-writes",
    sql=(
        (
            "on conflict (namespace, job) do update set state = excluded.state",
            "on conflict (namespace, job) do nothing",
        ),
    ),
)
broken(
    "sqlite-in-memory",
    "Who leaves takes the jobs of its namespace along, as if they had been in its memory.",
    "capabilities-durable bounds-never-dropped",
    backend=(
        (
            "        worker = self._leave()\n        if worker",
            "        mine = (self._namespace,)\n"
            "        delete = 'delete from tenure_jobs where namespace = ?'\n"
            "        await self._call(lambda connection: connection.execute(delete, mine) and None, writes=True)\n"
            "        worker = self._leave()\n        if worker",
        ),
    ),
)
broken(
    "sqlite-batch-shares-one-answer",
    "Calls that share a transaction get the answer of the first.",
    "errors-cancel calls-guarded",
    worker=(("                call.settle(outcome)\n", "                call.settle(outcomes[0])\n"),),
)
broken(
    "sqlite-busy-is-raised",
    "A lock that another connection holds is raised as an error.",
    "errors-never-outcome claim-atomic",
    worker=(
        ("                if is_busy(exc):\n", "                if False:\n"),
        (
            "            self._connection = self._database.open()\n",
            "            self._connection = self._database.open()\n"
            '            self._connection.execute("pragma busy_timeout=0")\n',
        ),
    ),
    seen="database is locked",
)
