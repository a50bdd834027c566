"""The demo's plot: who is killed, frozen and stopped, and when."""

import asyncio
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, closing
from itertools import count
from pathlib import Path
from typing import Protocol, cast

from tenure.demo.ledger import Ledger
from tenure.demo.place import Place
from tenure.demo.processes import Process, Processes, Report
from tenure.demo.story import Act, AttemptStory, Deed, Story, WorkerStory, expected_slots, faults, now_ms, slot_text
from tenure.demo.worker import JOB, PERIOD_MS, WORK_MS
from tenure.model import Claim, RunResult, new_token
from tenure.protocol import LeaseBackend

PATIENCE_S = 15.0
"""A step takes a second or three; on a loaded machine it may take longer, and is not wrong for that."""
_MIDDLE_MS = range(WORK_MS * 2 // 5, WORK_MS * 2 // 3)
"""A run of this age is surely in the middle of its work."""
_LOOK_S = 0.05
_ASLEEP_S = 0.02
_MOST_TRIES = 5
_KEPT = 1_000


class Screen(Protocol):
    """Where the demo is watched."""

    def say(self, text: str) -> None:
        """What is being done, and to whom."""

    def told(self, worker: str, report: Report) -> None:
        """A worker has told something, which the story has taken in."""

    def refresh(self) -> None:
        """Time has passed."""


class PlotFailed(Exception):
    """A step of the demo did not come about."""


class Director:
    """Plays the demo on a store, with a ledger in a directory of its own."""

    def __init__(self, place: Place, directory: Path, story: Story, screen: Screen) -> None:
        self._place = place
        self._ledger_path = directory / "ledger.db"
        self._ledger = Ledger(self._ledger_path)
        self._story = story
        self._screen = screen
        self._names = _names()
        self._expected: list[int] = []

    def play(self) -> list[str]:
        """Play it all; gives what went wrong, a line each."""
        self._ledger.create()
        try:
            with Processes(self._place, self._ledger_path) as self._processes:
                self._plot()
        except PlotFailed as failed:
            return [str(failed)]
        return self._faults()

    def _plot(self) -> None:
        self._say(f"three processes start, on {self._place.shown}")
        first_slot = self._start(3)
        self._slots_pass(3)
        self._perform(self._kill)
        self._slots_pass(2)
        self._perform(self._freeze)
        self._slots_pass(2)
        self._perform(self._stop)
        self._slots_pass(1)
        self._end(first_slot)

    def _faults(self) -> list[str]:
        history = asyncio.run(read_history(self._place, self._expected, self._story))
        return faults(self._expected, history, self._ledger.entries())

    # The acts

    def _kill(self) -> bool:
        act = self._strike("killed", signal.SIGKILL, "SIGKILL to {worker}, which holds {run}")
        taken_over = self._taken_over(act)
        self._start(1)
        return taken_over

    def _freeze(self) -> bool:
        act = self._strike("frozen", signal.SIGSTOP, "SIGSTOP to {worker}, which holds {run}")
        if not self._sleeps_without_lock():
            return self._thaw(act)
        frozen = self._story.attempts[act.slot, act.attempt]
        if not self._taken_over(act):
            return self._thaw(act)
        self._say(f"SIGCONT to {act.worker}, which believes that it still holds its run, and writes to the ledger")
        self._thaw(act)
        self._until(lambda: frozen.ended_ms is not None, f"{act.worker} did not learn that it had lost its run")
        if not frozen.refused:
            raise PlotFailed(f"the ledger did not refuse {act.worker}, whose run had been taken over")
        return True

    def _stop(self) -> bool:
        act = self._strike("stopped", signal.SIGTERM, "SIGTERM to {worker}, which holds {run}, as in a deploy")
        taken_over = self._taken_over(act)
        self._exited(self._processes[act.worker])
        self._start(1)
        return taken_over

    def _end(self, first_slot: int) -> None:
        last_slot = now_ms() // PERIOD_MS * PERIOD_MS + 2 * PERIOD_MS
        self._say(f"enough: {slot_text(last_slot)} is the last slot, then all are stopped")
        living = [self._processes[worker.name] for worker in self._living()]
        for process in living:
            process.tell(str(last_slot))
        self._expected = expected_slots(first_slot, last_slot)
        self._until(self._all_done, "not every slot was done in the end")
        for process in living:
            process.signal(signal.SIGTERM)
        for process in living:
            self._exited(process)

    def _perform(self, scene: Callable[[], bool]) -> None:
        """Play a scene; again, should the run have ended before the signal came."""
        for _ in range(_MOST_TRIES):
            if scene():
                return
            self._story.acts.pop()
        raise PlotFailed("no holder could be struck in the middle of its run, and taken over")

    def _strike(self, deed: Deed, signum: signal.Signals, words: str) -> Act:
        """Send the signal to a holder in the middle of its run."""
        attempt = self._run_in_the_middle()
        act = self._story.act(deed, attempt)
        self._processes[attempt.worker].signal(signum)
        self._say(words.format(worker=attempt.worker, run=f"the run of {slot_text(attempt.slot)}"))
        return act

    def _sleeps_without_lock(self) -> bool:
        """Whether the sleeper holds no lock of a file: in the middle of a transaction it would stop everybody."""
        time.sleep(_ASLEEP_S)
        return all(_may_write(path) for path in (self._place.file, self._ledger_path) if path is not None)

    def _thaw(self, act: Act) -> bool:
        self._processes[act.worker].signal(signal.SIGCONT)
        self._story.thaw(act)
        return False

    # What is waited for

    def _start(self, number: int) -> int:
        """Start workers; gives the first slot that they see."""
        started = []
        for name in (next(self._names) for _ in range(number)):
            self._story.workers[name] = WorkerStory(name, self._processes.start(name).pid)
            started.append(self._story.workers[name])
        self._until(lambda: all(worker.ready_ms or worker.gone_ms for worker in started), "a process did not start")
        ready = [worker.ready_ms for worker in started if worker.ready_ms]
        if len(ready) < number:
            raise PlotFailed("a process ended before it was ready")
        return (min(ready) // PERIOD_MS + 1) * PERIOD_MS

    def _slots_pass(self, number: int) -> None:
        """Wait until so many more runs have ended well."""
        enough = self._successes() + number
        self._until(lambda: self._successes() >= enough, "no run ended well")

    def _run_in_the_middle(self) -> AttemptStory:
        """A first attempt in the middle of its work, of a run that is its holder's only one."""
        found: list[AttemptStory] = []

        def look() -> bool:
            found[:] = (
                attempt
                for attempt in self._story.attempts.values()
                if attempt.begun and attempt.number == 1 and self._story.held_by(attempt.worker) == [attempt]
                if attempt.fate == "running" and now_ms() - attempt.started_ms in _MIDDLE_MS
            )
            return bool(found)

        self._until(look, "no run started")
        return found[-1]

    def _taken_over(self, act: Act) -> bool:
        """Wait for the next attempt; False if there will be none, because the run ended as the signal came."""
        struck = self._story.attempts[act.slot, act.attempt]
        self._until(lambda: self._begun_again(act) or struck.fate == "success", f"nobody took over from {act.worker}")
        return self._begun_again(act)

    def _begun_again(self, act: Act) -> bool:
        following = self._story.following(act)
        return following is not None and following.begun

    def _exited(self, process: Process) -> None:
        self._until(lambda: process.wait(0) is not None, f"{process.name} did not stop")
        if code := process.wait(0):
            raise PlotFailed(f"{process.name} ended with exit code {code}")

    def _all_done(self) -> bool:
        done = {attempt.slot for attempt in self._story.attempts.values() if attempt.fate == "success"}
        return done.issuperset(self._expected)

    def _until(self, seen: Callable[[], bool], otherwise: str) -> None:
        """Take reports in until it is so; PlotFailed when patience is over."""
        deadline = time.monotonic() + PATIENCE_S
        while not seen():
            if time.monotonic() > deadline:
                raise PlotFailed(otherwise)
            if told := self._processes.next_report(_LOOK_S):
                self._story.take_in(*told)
                self._screen.told(*told)
            self._screen.refresh()

    def _successes(self) -> int:
        return sum(attempt.fate == "success" for attempt in self._story.attempts.values())

    def _living(self) -> list[WorkerStory]:
        return [worker for worker in self._story.workers.values() if worker.gone_ms is None]

    def _say(self, text: str) -> None:
        self._screen.say(text)


async def read_history(place: Place, expected: list[int], story: Story) -> list[RunResult]:
    """The store's records; of a slot without a success the store is asked whether its run has ended.

    A holder that is killed between the two writes of an end leaves no record of it.
    """
    async with AsyncExitStack() as stack:
        backend = cast(LeaseBackend, place.connected())
        await stack.enter_async_context(backend)
        history = await backend.results(JOB, limit=_KEPT)
        done = {result.slot for result in history if result.status == "success"}
        for slot in sorted({*expected} - done):
            answer = await backend.claim(_question(slot, place.lease_ms))
            known = story.attempts.get((slot, answer.attempt or 0))
            if answer.status == "success" and known is not None:
                times = (known.started_ms, known.started_ms)
                history.append(RunResult(slot, known.number, known.fence, "success", known.worker, *times))
        return history


def _question(slot: int, lease_ms: int) -> Claim:
    """A takeover claim ``after`` 0, which changes nothing about a run that was started (docs/protocol.md, row 5)."""
    return Claim(
        job=JOB,
        slot=slot,
        token=new_token(),
        instance="demo",
        lease_ms=lease_ms,
        mode="takeover",
        overlap="allow",
        max_attempts=_KEPT,
        max_late_ms=None,
    )


def _may_write(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(path, timeout=0.3, isolation_level=None)) as connection:
            connection.execute("begin immediate")
            connection.execute("rollback")
    except sqlite3.OperationalError:
        return False
    return True


def _names() -> Iterator[str]:
    return (chr(ord("A") + number) for number in count())
