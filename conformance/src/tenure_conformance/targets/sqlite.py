"""A SQLite file, and its faults: another process amid a write, a file put in the place of the old one, a wrong file."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tenure.model import Capabilities

from tenure_conformance.faults.kit import FaultKit, Faults, with_option
from tenure_conformance.target import Server, Target, connected


class _File:
    """A file of a rule's own, in a directory that can be put elsewhere."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "store" / "faults.db"
        self.path.parent.mkdir()
        self._writer: sqlite3.Connection | None = None

    async def silence(self) -> None:
        """Hold the write lock, as a process does that was frozen amid a transaction."""
        if self._writer is None:
            self._writer = await asyncio.to_thread(self._locked)

    async def heal(self) -> None:
        """Let go of the lock; nothing was written."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.execute("rollback")
            writer.close()

    async def restart(self) -> None:
        """Put a copy of the files in their place, as after a power cut or a move: all connections are to old ones."""
        await self.heal()
        copy = self.root / "copy"
        copy.mkdir()
        for name in (self.path.name, f"{self.path.name}-wal"):
            if (self.path.parent / name).exists():
                shutil.copy2(self.path.parent / name, copy / name)
        self.path.parent.rename(self.root / f"old-{len(list(self.root.iterdir()))}")
        copy.rename(self.path.parent)

    def wrong(self, timeout_ms: int) -> Mapping[str, str]:
        """Files that are none."""
        text = self.root / "text.db"
        text.write_text("This is not a database, and long enough to be seen as none. " * 20)
        (self.root / "directory.db").mkdir()
        return {
            "a file that is no database": _url(text, timeout_ms),
            "a directory": _url(self.root / "directory.db", timeout_ms),
            "a directory that is missing": _url(self.root / "missing" / "jobs.db", timeout_ms),
        }

    def newer(self, timeout_ms: int) -> str:
        """A file as a much later version would leave it."""
        path = self.root / "newer.db"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("create table tenure_schema (version integer)")
            connection.execute("insert into tenure_schema values (1000000)")
        return _url(path, timeout_ms)

    async def newer_job(self, namespace: str, job: str) -> None:
        """Put the format of a much later version before the job's state."""

        def change() -> None:
            state = "cast('[1000000' || substr(cast(state as text), instr(cast(state as text), ',')) as blob)"
            with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
                where = "where namespace = ? and job = ?"
                connection.execute(f"update tenure_jobs set state = {state} {where}", (namespace, job))  # noqa: S608  fixed

        await asyncio.to_thread(change)

    def _locked(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=30)
        connection.execute("begin exclusive")
        return connection


def _url(path: Path, timeout_ms: int) -> str:
    return with_option(f"sqlite:///{path}", "timeout", f"{timeout_ms}ms")


@asynccontextmanager
async def _opened(_url_of_the_session: str, timeout_ms: int) -> AsyncIterator[Faults]:
    with TemporaryDirectory(prefix="tenure-faults-") as directory:
        file = _File(Path(directory))
        try:
            yield Faults(
                url=_url(file.path, timeout_ms),
                direct=f"sqlite:///{file.path}",
                timeout_ms=timeout_ms,
                silence=file.silence,
                heal=file.heal,
                restart=file.restart,
                wrong=file.wrong(timeout_ms),
                newer=file.newer(timeout_ms),
                newer_job=file.newer_job,
            )
        finally:
            await file.heal()


@contextmanager
def _serve(_how: Server) -> Iterator[str]:
    with TemporaryDirectory(prefix="tenure-conformance-") as directory:
        yield f"sqlite:///{directory}/conformance.db"


target: Target = Target(
    name="sqlite",
    levels=("lease", "durable", "shared", "faults", "processes", "cards"),
    serve=_serve,
    open=connected,
    capabilities=Capabilities(durable=True, shared=True),
    faults=FaultKit(powers=frozenset({"silence", "restart", "wrong", "newer", "newer-job"}), open=_opened),
    distribution="tenure-sqlite",
    store=lambda: f"SQLite {sqlite3.sqlite_version}",
)
