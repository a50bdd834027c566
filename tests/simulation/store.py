"""The store of a simulation: the real decision, a clock of its own, pauses and restarts, and a log of all changes."""

from collections.abc import Callable
from typing import Any

from tenure import decision
from tenure.decision import EMPTY, JobState, RunState
from tenure.model import ActiveRuns, RunResult
from tenure.testing import World

from .agenda import Agenda
from .timeline import Call, Change, Timeline

KEEP_RESULTS = 100_000

Answered = Callable[[object], None]


class ConnectionLost(Exception):
    """The store went down with the call in it, or is down."""


class Store:
    def __init__(self, world: World, agenda: Agenda, timeline: Timeline) -> None:
        self._world = world
        self._agenda = agenda
        self._timeline = timeline
        self._waiting: list[tuple[Call, Answered]] = []
        self.paused = False
        self.down = False
        self.states: dict[str, JobState] = {}
        self.histories: dict[str, tuple[RunResult, ...]] = {}
        self.changes: list[Change] = []
        self.listeners: dict[int, Callable[[str], None]] = {}
        """In the order they came, so that hints go out in an order that is the same each time."""

    def arrive(self, call: Call, answered: Answered) -> None:
        """A message came in; it is answered now, or when a pause is over."""
        if self.down:
            answered(ConnectionLost("the store is down"))
        elif self.paused:
            self._waiting.append((call, answered))
        else:
            answered(self._carry_out(call))

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        waiting, self._waiting = self._waiting, []
        for call, answered in waiting:
            self.arrive(call, answered)

    def go_down(self) -> None:
        self.down = True
        self.paused = False
        waiting, self._waiting = self._waiting, []
        for _, answered in waiting:
            answered(ConnectionLost("the store went down"))

    def come_up(self, longer: bool) -> None:
        """It is back with all it knew; leases may be longer for it, once."""
        self.down = False
        now = self._world.store_ms()
        for job, state in self.states.items() if longer else ():
            for run in state.unfinished:
                if run.status == "open" and run.live(now):
                    self._change(job, decision._renewed(self.states[job], run.renewed(run.lease_ms, now)), "restart")

    def _carry_out(self, call: Call) -> Any:
        answer = getattr(self, f"_{call.name}")(call)
        call.decided.append((self._world.elapsed_s, answer))
        self._timeline.add("decided", call.who, call)
        return answer

    # The calls

    def _claim(self, call: Call) -> Any:
        state, result = decision.claim(self._state(call.job), call.request, self._world.store_ms())
        self._change(call.job, state, "claim", call.request.overlap)
        return result

    def _heartbeat(self, call: Call) -> Any:
        return self._decide(call, decision.heartbeat, self._world.store_ms())

    def _finish(self, call: Call) -> Any:
        held = self._decide(call, decision.finish, call.request)
        self._hint(call.job)
        return held

    def _release(self, call: Call) -> Any:
        held = self._decide(call, decision.release, self._world.store_ms())
        self._hint(call.job)
        return held

    def _active(self, call: Call) -> Any:
        now = self._world.store_ms()
        runs = tuple(run for job in sorted(call.request) for run in decision.active(job, self._state(job), now))
        return ActiveRuns(now, runs)

    def _save_result(self, call: Call) -> Any:
        self.histories[call.job] = decision.record(self.histories.get(call.job, ()), call.request, KEEP_RESULTS)

    def _results(self, call: Call) -> Any:
        return list(self.histories.get(call.job, ())[: call.request])

    def _decide(self, call: Call, decide: Any, argument: Any) -> bool:
        state, held = decide(self._state(call.job), call.slot, call.token, argument)
        self._change(call.job, state, call.name)
        return held

    def _hint(self, job: str) -> None:
        for listener in list(self.listeners.values()):
            listener(job)

    def _state(self, job: str) -> JobState:
        return self.states.get(job, EMPTY)

    def _change(self, job: str, state: JobState, why: str, overlap: str = "") -> None:
        """Log each run that is not what it was."""
        before = self._state(job)
        self.states[job] = state
        if state is before:
            return
        known = {id(run) for run in (*before.unfinished, *before.ended)}
        for run in (*state.ended, *state.unfinished):
            if id(run) not in known:
                self._log(job, run, why, overlap)

    def _log(self, job: str, run: RunState, why: str, overlap: str) -> None:
        until_s = (run.expires_at - self._world.store_ms() + self._world.true_ms() - self._world.start_ms) / 1000
        change = Change(
            self._world.elapsed_s,
            0,
            job,
            run.slot,
            run.attempt,
            run.token,
            run.fence,
            run.holder,
            run.status,
            until_s,
            why,
            overlap,
        )
        change.seq = self._timeline.add("changed", run.holder, change)
        self.changes.append(change)
