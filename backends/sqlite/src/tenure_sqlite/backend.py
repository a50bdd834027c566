"""The protocol's methods on a SQLite file: each is one transaction, decided by ``tenure.decision``."""

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, unquote

from tenure import decision
from tenure.codec import decode_cards, decode_state, encode_card, encode_state
from tenure.decision import DEFAULT_KEEP_RESULTS, EMPTY, JobState
from tenure.duration import Duration, to_ms, to_text
from tenure.errors import BackendClosed, BackendUnavailable, InvalidUrl
from tenure.model import (
    CARD_KEPT_MS,
    ActiveRuns,
    Capabilities,
    Claim,
    ClaimResult,
    Ending,
    Finding,
    JobCard,
    RunResult,
    check_ending,
    check_limit,
    check_name,
    check_run,
)
from tenure.urls import Readers, hide_secrets, split_url, true_or_false, url_options, whole_number

from tenure_sqlite import queries
from tenure_sqlite.database import Database, Synchronous, has_table
from tenure_sqlite.examine import examine
from tenure_sqlite.worker import Call, Work, Worker

Answer = TypeVar("Answer")
Decide = Callable[[JobState, int], tuple[JobState, Answer]]

_SYNCHRONOUS = ("full", "normal")
_OPTIONS: Readers = {"synchronous": str, "timeout": str, "keep_results": whole_number, "create": true_or_false}


def from_url(url: str, *, namespace: str = "tenure", create: bool | None = None, **options: object) -> "SqliteBackend":
    """``sqlite:///relative.db`` or ``sqlite:////absolute.db``, with the options of SqliteBackend.

    InvalidUrl if it names no file, a host, or an option that is not known.
    """
    if create is not None:
        options["create"] = create
    parts = split_url(url)
    path = unquote(parts.path[1:])
    if parts.netloc:
        place = hide_secrets(f"sqlite:///{parts.netloc}{parts.path}")
        raise InvalidUrl(f'{hide_secrets(url)}: a file is named after three slashes; write "{place}"')
    return SqliteBackend(path, namespace=namespace, **url_options(url, options, _OPTIONS))


class SqliteBackend:
    """A lease backend on a file of a local disk, for the processes of one host.

    A relative ``path`` is taken from the directory that is current now. ``synchronous`` "full" keeps every answer over
    a power cut, "normal" may lose the last ones then; a process that dies loses nothing either way. With ``create``
    False only a store that is there is opened: BackendMisconfigured where there is no file, or one without a store.
    """

    capabilities: Capabilities = Capabilities(durable=True, shared=True)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        namespace: str = "tenure",
        synchronous: Synchronous = "full",
        timeout: Duration = "5s",
        keep_results: int = DEFAULT_KEEP_RESULTS,
        create: bool = True,
    ) -> None:
        check_name(namespace, "namespace")
        check_limit(keep_results)
        if synchronous not in _SYNCHRONOUS:
            raise InvalidUrl(f"synchronous: {synchronous!r} is not one of {', '.join(_SYNCHRONOUS)}")
        if type(create) is not bool:
            raise InvalidUrl(f"create: {create!r} is neither True nor False")
        self._database = Database(_checked(os.fspath(path)), synchronous, create)
        self._namespace = namespace
        self._timeout_ms = to_ms(timeout, "timeout", minimum_ms=1)
        self._keep_results = keep_results
        self._entered = 0
        self._worker: Worker | None = None

    def __str__(self) -> str:
        return f"sqlite:///{quote(self._database.path)} (namespace {self._namespace})"

    async def __aenter__(self) -> Self:
        """See Entered; the file is opened with the first and closed with the last of several."""
        self._entered += 1
        try:
            await self._call(_touch, writes=False)
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """See Entered; a thread that a dead disk holds is not waited for longer than the timeout."""
        worker = self._leave()
        if worker is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_ms / 1_000):
                    await asyncio.wrap_future(worker.ended)

    async def claim(self, claim: Claim) -> ClaimResult:
        """See LeaseBackend."""
        return await self._decide(claim.job, lambda state, now: decision.claim(state, claim, now))

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        return await self._decide(job, lambda state, now: decision.heartbeat(state, slot, token, now))

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        check_ending(status)
        return await self._decide(job, lambda state, _: decision.finish(state, slot, token, status))

    async def release(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        return await self._decide(job, lambda state, now: decision.release(state, slot, token, now))

    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        """See LeaseBackend."""
        for job in jobs:
            check_name(job, "job")
        asked = {"namespace": self._namespace, "jobs": json.dumps(list(jobs), ensure_ascii=False)}

        def read(connection: sqlite3.Connection) -> ActiveRuns:
            rows = connection.execute(queries.ACTIVE, asked).fetchall()
            now = rows[0][0]
            runs = [run for _, job, state in rows if job for run in decision.active(job, decode_state(state), now)]
            return ActiveRuns(now, tuple(runs))

        return await self._call(read, writes=False)

    async def save_result(self, job: str, result: RunResult) -> None:
        """See LeaseBackend."""
        key = self._key(job)
        record = {**key, **asdict(result), "overwrites": decision.overwrites(result)}

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(queries.SAVE_RESULT, record)
            connection.execute(queries.PRUNE, {**key, "keep": self._keep_results})

        await self._call(write, writes=True)

    async def results(self, job: str, *, limit: int = 20) -> list[RunResult]:
        """See LeaseBackend."""
        check_limit(limit)
        asked = {**self._key(job), "limit": min(limit, self._keep_results)}
        rows = await self._call(lambda connection: connection.execute(queries.RESULTS, asked).fetchall(), writes=False)
        return [RunResult(*row) for row in rows]

    async def save_cards(self, cards: Sequence[JobCard]) -> None:
        """See JobCards."""
        namespace = self._namespace
        forget = {"namespace": self._namespace, "kept_ms": CARD_KEPT_MS}

        def write(connection: sqlite3.Connection) -> None:
            rows = ((namespace, card.job, encode_card(card), card.seen_at_ms) for card in cards)
            connection.executemany(queries.SAVE_CARD, rows)
            connection.execute(queries.FORGET_CARDS, forget)

        await self._call(write, writes=True)

    async def cards(self) -> list[JobCard]:
        """See JobCards."""

        def read(connection: sqlite3.Connection) -> list[str]:
            if not has_table(connection, "tenure_cards"):
                return []  # a store of an earlier version, opened to be read
            return [card for (card,) in connection.execute(queries.CARDS, {"namespace": self._namespace})]

        return await decode_cards(await self._call(read, writes=False))

    async def examine(self) -> list[Finding]:
        """See Examines."""
        return await self._call(lambda connection: examine(self._database, connection), writes=False)

    def _key(self, job: str) -> dict[str, Any]:
        check_name(job, "job")
        return {"namespace": self._namespace, "job": job}

    async def _decide(self, job: str, decide: Decide[Answer]) -> Answer:
        """Read state and clock, decide and write, in one transaction that no other can come between."""
        key = self._key(job)

        def work(connection: sqlite3.Connection) -> Answer:
            now, stored = connection.execute(queries.LOAD, key).fetchone()
            known = EMPTY if stored is None else decode_state(stored)
            state, answer = decide(known, now)
            if state is not known:
                connection.execute(queries.STORE, {**key, "state": encode_state(state)})
            return answer

        return await self._call(work, writes=True)

    async def _call(self, work: Work[Answer], *, writes: bool) -> Answer:
        call = Call(work, writes=writes)
        self._serving().submit(call)
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                return await asyncio.wrap_future(call.answer)
        except TimeoutError as exc:
            raise BackendUnavailable(
                f"{self._database.path}: no answer within {to_text(self._timeout_ms)}; another process holds the file's"
                " write lock, or the disk is slow"
            ) from exc

    def _serving(self) -> Worker:
        if not self._entered:
            raise BackendClosed(f"{self._database.path}: the backend is not entered; use it inside `async with`")
        if self._worker is None:
            self._worker = self._started()
        elif self._worker.pid != os.getpid():
            self._worker = self._worker.successor()
        return self._worker

    def _started(self) -> Worker:
        try:
            return Worker(self._database)
        except RuntimeError as exc:  # no more threads
            raise BackendUnavailable(f"{self._database.path}: {exc}") from exc

    def _leave(self) -> Worker | None:
        """The worker that ends now, if this was the last to leave and it is this process's."""
        self._entered -= 1
        if self._entered or self._worker is None:
            return None
        worker, self._worker = self._worker, None
        if worker.pid != os.getpid():
            return None
        worker.close()
        return worker


def _checked(path: str) -> str:
    if path in ("", ":memory:"):
        raise InvalidUrl(
            f'{path!r} names no file; write "sqlite:///jobs.db", or "memory://" for what this process alone needs'
        )
    if "\x00" in path:
        raise InvalidUrl(f"{path!r}: a file's name has no NUL")
    return str(Path(path).absolute())


def _touch(connection: sqlite3.Connection) -> None:
    """What entering asks for: that the file is opened and prepared."""
    connection.execute("select 1")
