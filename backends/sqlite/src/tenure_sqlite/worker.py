"""The thread that talks to SQLite: calls that wait together share one transaction, and no connection crosses a fork."""

import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from tenure.errors import BackendError, BackendMisconfigured

from tenure_sqlite.database import Database, is_busy

Answer = TypeVar("Answer")
Work = Callable[[sqlite3.Connection], Answer]

PAUSE_S = 1.0
"""How long a fork waits for the transaction under way; the child is refused if the disk holds it for longer."""
BATCH = 64
"""Calls that share a transaction at most, so that the write lock is not held for long."""


class Call(Generic[Answer]):
    """Work for the thread; who waits for it may cancel ``answer``, also while the lock is waited for."""

    def __init__(self, work: Work[Answer], *, writes: bool) -> None:
        self.work = work
        self.writes = writes
        self.answer: Future[Answer] = Future()

    def settle(self, outcome: Any) -> None:
        """Give the answer or raise the error, if somebody still waits."""
        if not self.answer.set_running_or_notify_cancel():
            return
        if isinstance(outcome, Exception):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


class Worker:
    """Serves calls in order on a thread and a connection of its own; belongs to the process that made it."""

    def __init__(self, database: Database) -> None:
        self.pid: int = os.getpid()
        self.ended: Future[None] = Future()
        self._database = database
        self._calls: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._next: Call[Any] | None = None
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._lock = threading.Lock()
        _workers.add(self)
        threading.Thread(target=self._run, name="tenure-sqlite", daemon=True).start()

    def successor(self) -> "Worker":
        """A worker for this process, which was forked from the one that made this."""
        if self._connection is not None:
            raise BackendMisconfigured(
                "this process was forked while the file was open in it, past os.register_at_fork or with a disk that"
                " hung, and SQLite would not lock here; fork before the backend is entered, or start a new program"
            )
        return Worker(self._database)

    def submit(self, call: Call[Any]) -> None:
        """Queue the call."""
        self._calls.put(call)

    def close(self) -> None:
        """End the thread after the calls that were queued; ``ended`` is set then. A second time it does nothing."""
        self._calls.put(None)

    def pause(self) -> bool:
        """Hold the thread between two transactions, with the connection closed, until ``resume``; False if it hangs."""
        paused = self._lock.acquire(timeout=PAUSE_S)
        if paused:
            self._disconnect()
        return paused

    def resume(self) -> None:
        """Go on; the next call opens the file again."""
        self._lock.release()

    def _run(self) -> None:
        try:
            while batch := self._gather():
                self._serve(batch)
                batch.clear()  # an idle thread keeps no call alive
            with self._lock:
                self._disconnect()
        finally:
            _workers.discard(self)
            if self.ended.set_running_or_notify_cancel():
                self.ended.set_result(None)

    def _gather(self) -> list[Call[Any]]:
        """The next call and, if it writes, those right behind it that do too; none at the end."""
        call = self._next or self._calls.get()
        self._next = None
        batch: list[Call[Any]] = []
        while call is not None:
            batch.append(call)
            if not call.writes or len(batch) == BATCH:
                return batch
            try:
                call = self._calls.get_nowait()
            except Empty:
                return batch
            if call is None:
                self._calls.put(None)
            elif not call.writes:
                self._next = call
                return batch
        return batch

    def _serve(self, batch: list[Call[Any]]) -> None:
        """Try until the lock is had or nobody waits any more."""
        while waiting := [call for call in batch if not call.answer.cancelled()]:
            try:
                with self._lock:
                    outcomes = self._attempt(waiting)
            except Exception as exc:  # noqa: BLE001  whatever it is, it belongs to who called
                if is_busy(exc):
                    time.sleep(random.uniform(0.001, 0.005))  # without it two that wait may stay in step
                    continue
                outcomes = [_caused(self._database.translate(exc), exc) for _ in waiting]
            for call, outcome in zip(waiting, outcomes, strict=True):
                call.settle(outcome)
            return

    def _attempt(self, calls: list[Call[Any]]) -> list[Any]:
        connection = self._connected()
        try:
            if not calls[0].writes:
                return [_outcome(call, connection) for call in calls]
            connection.execute("begin immediate")
            outcomes = [_outcome(call, connection) for call in calls]
            connection.execute("commit")
        except BaseException:
            self._recover(connection)
            raise
        return outcomes

    def _connected(self) -> sqlite3.Connection:
        """The connection to the file that is there now: one that was moved away is no longer the others' store."""
        if self._connection is not None and self._database.identity() != self._identity:
            self._disconnect()
        if self._connection is None:
            self._connection = self._database.open()
            self._identity = self._database.identity()
        return self._connection

    def _recover(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except sqlite3.Error:
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _outcome(call: Call[Any], connection: sqlite3.Connection) -> Any:
    """The call's answer, or the error that is this call's alone: it came before anything was written."""
    if call.answer.cancelled():
        return None  # it was given up while the lock was waited for
    try:
        return call.work(connection)
    except sqlite3.Error:
        raise
    except Exception as exc:  # noqa: BLE001  whatever it is, it belongs to who called
        return exc


def _caused(error: BackendError, cause: Exception) -> BackendError:
    if error is not cause:
        error.__cause__ = cause
    return error


# SQLite knows by process which locks it holds on a file, and a forked child inherits that knowledge but not the locks:
# even a connection that the child opens itself would then go without. So no connection is open while a process forks.
_workers: "weakref.WeakSet[Worker]" = weakref.WeakSet()
_paused: list[Worker] = []


def _pause_all() -> None:
    _paused.extend(worker for worker in list(_workers) if worker.pause())


def _resume_all() -> None:
    while _paused:
        _paused.pop().resume()


def _forget_all() -> None:
    _paused.clear()
    _workers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_pause_all, after_in_parent=_resume_all, after_in_child=_forget_all)
