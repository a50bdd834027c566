"""A lease backend for tenure whose store is a directory of files, shared by the processes of one host."""

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Self
from urllib.parse import quote, unquote

from tenure.cas import CasBackend, Key, Loaded
from tenure.errors import BackendMisconfigured
from tenure.model import Capabilities, new_token
from tenure.urls import Readers, split_url, url_options, whole_number

OPTIONS: Readers = {"timeout": str, "keep_results": whole_number}


def from_url(url: str, *, namespace: str = "tenure", **options: object) -> CasBackend:
    """``flock:///path``; options are ``timeout`` and ``keep_results``."""
    store = FlockStore(unquote(split_url(url).path))
    promised = Capabilities(durable=True, shared=True)
    return CasBackend(store, namespace=namespace, capabilities=promised, **url_options(url, options, OPTIONS))


class FlockStore:
    """Each value is a file; it is replaced whole, and only by who holds the directory's lock."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = Path(path).absolute()

    def __str__(self) -> str:
        return f"flock://{quote(str(self._root))}"

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._root.mkdir, parents=True, exist_ok=True)
        except (PermissionError, FileExistsError, NotADirectoryError) as exc:
            raise BackendMisconfigured(f"{self._root}: {exc}; name a directory that may be written to") from exc
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Nothing stays open between calls."""

    async def load(self, keys: Sequence[Key]) -> Loaded:
        return await asyncio.to_thread(self._load, keys)

    async def replace(self, key: Key, value: bytes, version: bytes | None) -> bool:
        return await asyncio.to_thread(self._replace, self._path(key), value, version)

    def _load(self, keys: Sequence[Key]) -> Loaded:
        now_ms = time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000_000  # the host's, one for all its processes
        values = [_read(self._path(key)) for key in keys]
        return Loaded(now_ms, [(value, value) for value in values])  # a value is its own version

    def _replace(self, path: Path, value: bytes, version: bytes | None) -> bool:
        draft = self._root / f".{new_token()}"
        try:
            _write(draft, value)
            with self._locked():
                if _read(path) != version:
                    return False
                draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among all processes; the kernel frees the lock of one that dies."""
        descriptor = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _path(self, key: Key) -> Path:
        return self._root / sha256(json.dumps(key).encode()).hexdigest()  # another one for each key, whatever is in it


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write(path: Path, value: bytes) -> None:
    with path.open("xb") as file:
        file.write(value)
        file.flush()
        os.fsync(file.fileno())
