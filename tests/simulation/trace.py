"""A simulation as people read it: one line per thing that happened, by time, and who is up or frozen beside it."""

from collections.abc import Iterator
from typing import Any

from tenure.events import Event
from tenure.model import ActiveRuns, ClaimResult

from .invariants import Violation
from .simulation import Simulation
from .timeline import Call, Change, Execution, Moment

BEFORE_S = 8.0
AFTER_S = 1.0


class Trace:
    def __init__(self, simulation: Simulation) -> None:
        self._sim = simulation
        self._tokens: dict[str, str] = {}
        self._start_ms = simulation.world.start_ms

    def lines(self, job: str = "", since_s: float = 0.0, until_s: float = float("inf")) -> Iterator[str]:
        """Everything, or what concerns a job and what happened to instances and to the store."""
        for moment in self._sim.timeline.moments:
            line = self._line(moment)  # also of what is not shown: tokens have the same number in every part of a trace
            shown = since_s <= moment.at_s <= until_s and self._concerns(moment, job)
            if shown or self._is_fault(moment, until_s):
                yield line

    def around(self, violation: Violation) -> Iterator[str]:
        """What led to a violation, and a little more; all faults before it."""
        since_s = violation.at_s - BEFORE_S
        if violation.slot is not None:
            since_s = min(since_s, (violation.slot - self._start_ms) / 1000 - 0.5)
        return self.lines(violation.job, since_s, violation.at_s + AFTER_S)

    @staticmethod
    def _is_fault(moment: Moment, until_s: float) -> bool:
        return moment.what == "fault" and moment.at_s <= until_s

    @staticmethod
    def _concerns(moment: Moment, job: str) -> bool:
        about = moment.about
        looks = isinstance(about, Call) and about.name == "active" and job in about.request
        return job == "" or looks or getattr(about, "job", "") == job

    def _line(self, moment: Moment) -> str:
        what = getattr(self, "_" + moment.what.replace(" ", "_"), None)
        text = what(moment.about) if what is not None else f"{moment.what} {moment.about or ''}".rstrip()
        return f"{moment.at_s:9.3f}  {moment.who:<6} {text}"

    def _fault(self, fault: Any) -> str:
        return f"*** {fault}"

    def _sent(self, call: Call) -> str:
        return f"  -> {self._name(call)}"

    def _decided(self, call: Call) -> str:
        again = " again" if len(call.decided) > 1 else ""
        return f"       store{again}: {self._name(call)}: {self._answer(call.decided[-1][1])}"

    def _answered(self, call: Call) -> str:
        return f"  <- {self._name(call)}: {call.failed or self._answer(call.answer)}"

    def _changed(self, change: Change) -> str:
        run = f"{change.job}@{self._slot(change.slot)}"
        return f"       store: {run} attempt {change.attempt} {change.status} until {change.until_s:.3f} ({change.why})"

    def _began(self, one: Execution) -> str:
        return f"  == {self._run(one)} begins, fence {one.fence}, will {one.behaviour}"

    def _ended(self, one: Execution) -> str:
        return f"  == {self._run(one)} ended: {one.how}"

    def _told(self, one: Execution) -> str:
        return f"  == {self._run(one)} told to stop: {one.reason}"

    def _refused(self, one: Execution) -> str:
        return f"  == {self._run(one)}: the journal refuses fence {one.fence}"

    def _event(self, event: Event) -> str:
        text = str(event).removesuffix(f" ({event.instance})")
        if event.job:
            text = f"{event.job}@{self._slot(event.slot)}: {text.partition(': ')[2]}"
        return f"  !  {text.splitlines()[0]}"

    def _name(self, call: Call) -> str:
        run = f" {call.job}{f'@{self._slot(call.slot)}' if call.slot else ''}" if call.job else ""
        token = f" {self._token(call.token)}" if call.token else ""
        return f"#{call.number} {call.name}{run}{token}{self._request(call)}"

    def _request(self, call: Call) -> str:
        if call.name == "claim":
            return f" {call.request.mode} after {call.request.after}"
        if call.name == "active":
            return f" {' '.join(call.request)}"
        if call.name == "save_result":
            return f" attempt {call.request.attempt} {call.request.status}"
        return f" {call.request}" if call.name == "finish" else ""

    def _answer(self, answer: Any) -> str:
        if isinstance(answer, ClaimResult):
            parts = [answer.outcome]
            for name in ("attempt", "status", "lease_left_ms", "wait_ms", "holder"):
                value = getattr(answer, name)
                parts += [f"{name} {value}"] if value is not None else []
            parts += [f"run {self._slot(answer.slot)}"] if answer.slot is not None else []
            lost = [f"{self._slot(lost.slot)} attempt {lost.attempt}" for lost in answer.previous]
            return ", ".join(parts + ([f"previous {' and '.join(lost)}"] if lost else []))
        if isinstance(answer, ActiveRuns):
            runs = [
                f"{run.job}@{self._slot(run.slot)} attempt {run.attempt} {'live' if run.live else 'over'}"
                for run in answer.runs
            ]
            return ", ".join(runs) or "nothing unfinished"
        return f"{len(answer)} records" if isinstance(answer, list) else str(answer)

    def _run(self, one: Execution) -> str:
        return f"{one.job}@{self._slot(one.slot)} attempt {one.attempt}"

    def _slot(self, slot: int) -> str:
        """In seconds since the world began, as all times of a trace are."""
        return f"{(slot - self._start_ms) / 1000:g}"

    def _token(self, token: str) -> str:
        return self._tokens.setdefault(token, f"t{len(self._tokens) + 1}")
