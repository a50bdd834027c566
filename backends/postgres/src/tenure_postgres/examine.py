"""What an operator may want to know of the server and of the role's rights."""

from collections.abc import Iterator

from tenure.model import Finding

_LONG_S = 600


def examine(row: list[bytes | None], schema_version: int, *, pooler: bool, functions: bool) -> list[Finding]:
    """Findings on the server, of what the statement ``examine`` gives."""
    version, commit, fsync, held, lacking, oldest_s = [None if value is None else value.decode() for value in row]
    return [
        Finding("server", "ok", f"PostgreSQL {version}{', behind a pooler' if pooler else ''}"),
        Finding("schema", "ok", f"version {schema_version}{'' if functions else ', without functions'}"),
        *_durability(commit or "", fsync or ""),
        _rights(lacking),
        *_load(int(held or 0), float(oldest_s or 0)),
        *_hints(pooler),
    ]


def _durability(commit: str, fsync: str) -> Iterator[Finding]:
    if fsync == "off":
        yield Finding("durability", "wrong", "fsync is off: a crash may damage the database", "set fsync on")
    elif commit == "off":
        remedy = "set it on for this role (alter role app set synchronous_commit = on)"
        yield Finding("durability", "warning", "synchronous_commit is off: a crash may lose the latest wins", remedy)
    else:
        yield Finding("durability", "ok", f"synchronous_commit {commit}, fsync {fsync}")


def _rights(lacking: str | None) -> Finding:
    if not lacking:
        return Finding("rights", "ok", "the role may do what is needed")
    return Finding("rights", "wrong", f"the role may not {lacking}", "grant what docs/postgres.md, permissions, lists")


def _load(most: int, oldest_s: float) -> Iterator[Finding]:
    if oldest_s > _LONG_S:
        text = f"a transaction has been open for {oldest_s / 60:.0f} minutes, so that dead rows pile up"
        yield Finding("vacuum", "warning", text, "end it; idle_in_transaction_session_timeout ends such ones")
    if most:
        yield Finding("connections", "ok", f"max_connections {most}")


def _hints(pooler: bool) -> Iterator[Finding]:
    if pooler:
        remedy = "connect directly for take-overs within 100 ms; without, backups poll"
        yield Finding("hints", "warning", "none behind a transaction pooler", remedy)
