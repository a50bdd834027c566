"""Totals in files that refuse a stale attempt: a lock makes one step of compare and replace, on one host."""

import fcntl
import json
from pathlib import Path

from tenure import Context


class Stale(Exception):
    """A newer attempt has taken or written the file."""


def connect(directory: str) -> Path:
    """Give the directory, which is made if it is not there."""
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    return path


def take(directory: Path, region: str, ctx: Context) -> int:
    """Give the total; from here on no older attempt can write."""
    return _replace(directory, region, ctx, None)


def save(directory: Path, region: str, total: int, ctx: Context) -> None:
    """Write the total; Stale if a newer attempt was here."""
    _replace(directory, region, ctx, total)


def _replace(directory: Path, region: str, ctx: Context, total: int | None) -> int:
    path = directory / f"{region}.json"
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed, also by the death of the process
        known: dict[str, int] = json.loads(path.read_text("utf-8")) if path.exists() else {"fence": 0, "total": 0}
        if known["fence"] > ctx.fence:
            raise Stale(region)
        new = {"fence": ctx.fence, "total": known["total"] if total is None else total}
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(new), "utf-8")
        draft.replace(path)
        return new["total"]
