"""A claim-only backend for tenure that needs nothing but a directory."""

import asyncio
import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote

from tenure.errors import BackendClosed, BackendMisconfigured, BackendUnavailable
from tenure.model import RunResult, check_name, check_run, new_token
from tenure.urls import split_url, url_options

TIMEOUT_S = 5
KEPT = {"*.claim": 1_000, "*.json": 100}  # of each job, the newest


def from_url(url: str, *, namespace: str = "tenure", **options: object) -> "DirectoryBackend":
    """``dir:///path``; there are no options."""
    return DirectoryBackend(unquote(split_url(url).path), namespace=namespace, **url_options(url, options, {}))


class DirectoryBackend:
    """Decides who runs a slot by who creates its file first."""

    def __init__(self, path: str | os.PathLike[str], *, namespace: str = "tenure") -> None:
        check_name(namespace, "namespace")
        self._namespace = namespace
        self._path = Path(path).absolute()
        self._root = self._path / _file_name(namespace)
        self._entered = False

    def __str__(self) -> str:
        return f"dir://{quote(str(self._path))} (namespace {self._namespace})"

    async def __aenter__(self) -> Self:
        await self._in_thread(lambda: self._root.mkdir(parents=True, exist_ok=True))
        self._entered = True
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._entered = False

    async def claim(self, job: str, slot: int, token: str) -> bool:
        check_run(job, slot, token)
        return bool(await self._in_thread(lambda: _claim(self._place(job) / f"{slot:015}.claim", token)))

    async def save_result(self, job: str, result: RunResult) -> None:
        check_name(job, "job")
        await self._in_thread(lambda: _save(self._place(job) / f"{result.slot:015}-{result.attempt}.json", result))

    def _place(self, job: str) -> Path:
        if not self._entered:
            raise BackendClosed(f"{self._root}: the backend is not entered; use it inside `async with`")
        return self._root / _file_name(job)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        try:
            return await asyncio.wait_for(asyncio.to_thread(work), TIMEOUT_S)
        except (PermissionError, FileExistsError, NotADirectoryError) as exc:
            raise BackendMisconfigured(f"{self._root}: {exc}; name a directory that may be written to") from exc
        except OSError as exc:
            raise BackendUnavailable(f"{self._root}: {str(exc) or 'no answer'}") from exc


def _claim(mine: Path, token: str) -> bool:
    won = _put(mine, token, os.link) or (mine.exists() and mine.read_text() == token)
    # Looked at after the linking: a claim that others have pruned already may come again, and is too old then.
    return won and mine in _prune(mine.parent, "*.claim")


def _save(record: Path, result: RunResult) -> None:
    keeps_others = result.attempt == 0 or result.status == "crashed"
    _put(record, json.dumps(asdict(result)), os.link if keeps_others else os.replace)
    _prune(record.parent, "*.json")


def _put(path: Path, text: str, into_place: Callable[[Path, Path], None]) -> bool:
    """Write a whole file and put it into place; False if the place is taken, which ``os.link`` respects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.parent / f".{new_token()}"
    try:
        with draft.open("x") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        into_place(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


def _prune(place: Path, pattern: str) -> list[Path]:
    """Remove all but the newest files; gives those that are kept."""
    files = sorted(place.glob(pattern))
    for old in files[: -KEPT[pattern]]:
        old.unlink(missing_ok=True)
    return files[-KEPT[pattern] :]


def _file_name(name: str) -> str:
    """Readable and yet another one for each name, whatever is in it and however the file system compares."""
    return f"{re.sub('[^a-z0-9]', '_', name.lower())[:40]}-{sha256(name.encode()).hexdigest()[:32]}"
