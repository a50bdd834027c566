"""What happened in a simulation, put in order for the checker: attempts with their leases, calls, executions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tenure.events import Event

from .node import Node
from .scenario import Spec
from .simulation import Simulation
from .timeline import Call, Change, Execution

RunKey = tuple[str, int]
AttemptKey = tuple[str, int, int]

NEVER = float("inf")
_FEW = 8
ENDS = ("success", "failure", "interrupted")


@dataclass(eq=False)
class Tenure:
    """One attempt as the store knew it: from its win until it ended, was given back, taken or superseded."""

    won: Change
    spans: list[tuple[float, float]] = field(default_factory=list)
    over_s: float = NEVER
    status: str = "open"
    ended_s: float = NEVER
    """When the run was ended with it as the last one, also after it had been given back."""

    @property
    def key(self) -> AttemptKey:
        return self.won.job, self.won.slot, self.won.attempt

    def live(self, at_s: float) -> bool:
        return at_s < self.over_s and any(since <= at_s < until for since, until in self.spans)

    def lapses_s(self, from_s: float) -> float:
        """When its lease, live at ``from_s``, is first over."""
        until_s = from_s
        for since, until in self.spans:
            if since <= until_s:
                until_s = max(until_s, until)
        return min(until_s, self.over_s)


@dataclass(frozen=True, slots=True)
class Trouble:
    """An instance's checks fail: from when one failed until one that was sent later is answered."""

    began_s: float
    over_s: float
    began_seq: int
    answered_seq: float
    """When any was answered, also one that had been sent before."""


class History:
    def __init__(self, simulation: Simulation) -> None:
        self.sim = simulation
        self.network = simulation.scenario.network
        self.nodes = simulation.nodes
        self.executions = simulation.journal.executions
        self._recoveries: dict[tuple[str, str, float], Call | None] = {}

    @cached_property
    def calls(self) -> list[Call]:
        return [call for node in self.nodes.values() for call in node.link.calls]

    @cached_property
    def claims(self) -> dict[tuple[str, str, int], list[Call]]:
        """By instance and run, as they were sent."""
        found: dict[tuple[str, str, int], list[Call]] = defaultdict(list)
        for call in self.calls:
            if call.name == "claim":
                found[call.who, call.job, call.slot].append(call)
        return found

    @cached_property
    def by_token(self) -> dict[str, list[Call]]:
        found: dict[str, list[Call]] = defaultdict(list)
        for call in self.calls:
            if call.token:
                found[call.token].append(call)
        return found

    def of_token(self, token: str, *names: str) -> list[Call]:
        return [call for call in self.by_token.get(token, ()) if call.name in names]

    @cached_property
    def tenures(self) -> dict[AttemptKey, Tenure]:
        found: dict[AttemptKey, Tenure] = {}
        latest: dict[RunKey, Tenure] = {}
        for change in self.sim.store.changes:
            key = (change.job, change.slot, change.attempt)
            tenure = found.get(key)
            if tenure is None:
                before = latest.get((change.job, change.slot))
                if before is not None and before.over_s == NEVER:
                    before.over_s, before.status = change.at_s, "taken"
                tenure = found[key] = latest[change.job, change.slot] = Tenure(change)
            if change.status == "open":
                tenure.spans.append((change.at_s, change.until_s))
            elif tenure.status != "released":
                tenure.over_s, tenure.status = change.at_s, change.status
            if change.status not in ("open", "released"):
                tenure.ended_s = min(tenure.ended_s, change.at_s)
        return found

    @cached_property
    def runs(self) -> dict[RunKey, list[Tenure]]:
        found: dict[RunKey, list[Tenure]] = defaultdict(list)
        for tenure in self.tenures.values():
            found[tenure.won.job, tenure.won.slot].append(tenure)
        return found

    @cached_property
    def executed(self) -> dict[str, Execution]:
        """By token."""
        return {
            tenure.won.token: one
            for one in self.executions
            if (tenure := self.tenures.get((one.job, one.slot, one.attempt))) is not None
        }

    @cached_property
    def executed_by(self) -> dict[tuple[str, str], list[Execution]]:
        """By instance and job."""
        found: dict[tuple[str, str], list[Execution]] = defaultdict(list)
        for one in self.executions:
            found[one.who, one.job].append(one)
        return found

    @cached_property
    def changes_of(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = defaultdict(list)
        for change in self.sim.store.changes:
            found[change.job].append(change.at_s)
        return found

    @cached_property
    def hinted(self) -> dict[tuple[str, str], list[float]]:
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for moment in self.sim.timeline.moments:
            if moment.what == "hinted":
                found[moment.who, moment.about].append(moment.at_s)
        return found

    @cached_property
    def records(self) -> set[AttemptKey]:
        return {
            (job, result.slot, result.attempt)
            for job, history in self.sim.store.histories.items()
            for result in history
        }

    def events(self, *kinds: str) -> Iterator[tuple[Node, float, int, Event]]:
        for node in self.nodes.values():
            for at_s, seq, event in node.events:
                if event.kind in kinds:
                    yield node, at_s, seq, event

    @cached_property
    def events_of(self) -> dict[tuple[str, str, int], list[tuple[float, int, Event]]]:
        """By instance and run."""
        found: dict[tuple[str, str, int], list[tuple[float, int, Event]]] = defaultdict(list)
        for node in self.nodes.values():
            for at_s, seq, event in node.events:
                found[node.name, event.job, event.slot].append((at_s, seq, event))
        return found

    # The arrival of jobs

    def arrived_s(self, node: Node, job: str, at_s: float) -> float:
        """When the job last came to this instance, not counting replacements."""
        arrived_s = -NEVER
        before_s = -NEVER
        for version in node.life.specs:
            if version.spec.name == job and version.span.since_s <= at_s:
                if version.span.since_s != before_s:
                    arrived_s = version.span.since_s
                before_s = version.span.until_s
        return arrived_s

    def recovery(self, node: Node, job: str, arrived_s: float) -> Call | None:
        """The call that told what was unfinished of a job that came then, if one was answered.

        A job that was removed before it was recovered, and came again, is asked for anew after the first answer.
        """
        key = node.name, job, arrived_s
        if key not in self._recoveries:
            asked = [call for call in self.looks[node.name, job] if call.by == "Recovery._work"]
            before = [call for call in asked if call.sent_s < arrived_s]
            answered = [call for call in asked if call.answered and call.sent_s >= arrived_s]
            pending = bool(before) and not (before[-1].answered and (before[-1].ended_s or NEVER) <= arrived_s)
            self._recoveries[key] = next(iter(answered[int(pending) :]), None)
        return self._recoveries[key]

    # What backups ask

    @cached_property
    def looks(self) -> dict[tuple[str, str], list[Call]]:
        """By instance and job: when it asked what is unfinished of the job."""
        found: dict[tuple[str, str], list[Call]] = defaultdict(list)
        for call in self.calls:
            if call.name == "active":
                for job in call.request:
                    found[call.who, job].append(call)
        return found

    @cached_property
    def checks(self) -> dict[str, list[Call]]:
        """By instance: its looks and takeover claims, as they were sent."""
        return {
            name: [call for call in node.link.calls if call.by.startswith("Watches.")]
            for name, node in self.nodes.items()
        }

    @cached_property
    def troubles(self) -> dict[str, list[Trouble]]:
        """By instance."""
        return {name: list(_troubles(checks, filter(self._fails, checks))) for name, checks in self.checks.items()}

    def _fails(self, check: Call) -> bool:
        """Whether it failed, and the instance was told; a job that was removed meanwhile is watched no more."""
        if not check.failed or check.ended_s is None:
            return False
        node, ended_s = self.nodes[check.who], check.ended_s
        there = node.spec(check.job, ended_s) is not None and self.arrived_s(node, check.job, ended_s) <= check.sent_s
        return there or check.name != "claim"

    def out_of_trouble_s(self, node: Node, since_s: float, until_s: float) -> float:
        """When it was out of what kept it from its checks in that time; ``-inf`` if nothing did."""
        spans = self.troubles[node.name]
        return max((one.over_s for one in spans if one.began_s <= until_s and since_s <= one.over_s), default=-NEVER)

    def slot_s(self, slot: int) -> float:
        return (slot - self.sim.world.start_ms) / 1000

    def specs(self, node: Node, job: str) -> list[Spec]:
        return [version.spec for version in node.life.specs if version.spec.name == job]

    def slowest_beat_s(self, node: Node, job: str) -> float:
        return max((spec.heartbeat_ms for spec in self.specs(node, job)), default=0) / 1000

    def longest_spread_s(self, node: Node, job: str) -> float:
        """How long after a lease's end a backup may look."""
        return max((max(spec.lease_ms / 50, 50) for spec in self.specs(node, job)), default=0) / 1000 + self.crowd_s

    @property
    def crowd_s(self) -> float:
        """How much later a look may come where many are due at once: calls before it may hang for a while."""
        return 0.5 if len(self.sim.scenario.specs) > _FEW else 0.0

    def steady(self, node: Node, job: str, since_s: float, until_s: float) -> bool:
        """Whether the instance was up, not frozen, and had the same version of the job all the time."""
        life = node.life
        if not life.began_s <= since_s or life.gone_s <= until_s or frozen(node, since_s, until_s):
            return False
        return any(
            version.spec.name == job and version.span.since_s <= since_s and until_s < version.span.until_s
            for version in life.specs
        )

    def well(self, node: Node, job: str, since_s: float, until_s: float) -> bool:
        """Steady, and able to reach a store that answers."""
        spans = (*node.life.troubles, *self.sim.store_troubles)
        reaches = all(span.until_s < since_s or span.since_s > until_s for span in spans)
        return reaches and self.steady(node, job, since_s, until_s)

    def clock_right(self, node: Node, until_s: float) -> bool:
        """Whether its wall clock was never wrong until then."""
        return all(ahead_s == 0 for at_s, ahead_s in node.life.clock if at_s <= until_s)

    def executes(self, node: Node, job: str, slot: int, since_s: float, until_s: float) -> bool:
        """Whether a handler was in the way of checking the run: its own, or one that outlived its timeout."""
        return any(
            began_s <= until_s and ended_s >= since_s
            for its_slot, began_s, ended_s, one in self.occupied.get((node.name, job), ())
            if its_slot == slot or (one is not None and self.timed_out(one))
        )

    @cached_property
    def occupied(self) -> dict[tuple[str, str], list[tuple[int, float, float, Execution | None]]]:
        """By instance and job: from each win until its handler had ended and that was stored, if it was to be."""
        found: dict[tuple[str, str], list[tuple[int, float, float, Execution | None]]] = defaultdict(list)
        for call in self.calls:
            if call.name == "claim" and call.answered and call.answer.outcome == "won":
                one = self.executed.get(call.token)
                ends = [end.ended_s for end in self.of_token(call.token, "release", "finish")]
                ended_s = max((NEVER if end is None else end for end in ends), default=NEVER if one is None else 0.0)
                if one is not None:
                    ended_s = max(ended_s, self.heard_s(one))
                found[call.who, call.job].append((call.slot, call.ended_s or 0.0, ended_s, one))
        return found

    def heard_s(self, one: Execution) -> float:
        """When its instance knew that it had ended; where the application's loop is blocked, that may be later."""
        if one.ended_s is None:
            return NEVER
        told = self.events_of.get((one.who, one.job, one.slot), ())
        heard = [at_s for at_s, _, event in told if event.kind in ENDS and event.attempt == one.attempt]
        return max(one.ended_s, min(heard, default=NEVER) if one.reason == "lost" else one.ended_s)

    def asks_why(self, call: Call) -> bool:
        """Whether it is, or may be, a holder's question why it lost the run, which changes nothing."""
        return (
            call.request.mode == "takeover"
            and call.request.after == 0
            and any(
                slot == call.slot and won_s <= call.sent_s
                for slot, won_s, _, _ in self.occupied.get((call.who, call.job), ())
            )
        )

    def timed_out(self, one: Execution) -> bool:
        ended_s = NEVER if one.ended_s is None else one.ended_s
        return any(
            spec.timeout_ms is not None and ended_s >= one.began_s + spec.timeout_ms / 1000 - 0.001
            for spec in self.specs(self.nodes[one.who], one.job)
        )

    def end_s(self, one: Execution) -> float:
        """When it had ended, or its instance was killed."""
        node = self.nodes[one.who]
        crashed_s = node.life.gone_s if node.life.stop_s is None else NEVER
        return min(NEVER if one.ended_s is None else one.ended_s, crashed_s, self.sim.end_s)

    def free_until_s(self, one: Execution) -> float:
        """Until when it believed that it may go on."""
        return min(NEVER if one.told_s is None else one.told_s, self.end_s(one))


def _troubles(checks: Iterable[Call], failed: Iterable[Call]) -> Iterator[Trouble]:
    answered = sorted((call for call in checks if call.answered), key=_ended_seq)
    over_seq = -1.0
    for call in sorted(failed, key=_ended_seq):
        if call.ended_seq > over_seq:
            after = [one for one in answered if one.ended_seq > call.ended_seq]
            end = next((one for one in after if one.sent_seq > call.ended_seq), None)
            over_s, over_seq = (end.ended_s or 0.0, end.ended_seq) if end is not None else (NEVER, NEVER)
            yield Trouble(call.ended_s or 0.0, over_s, call.ended_seq, after[0].ended_seq if after else NEVER)


def _ended_seq(call: Call) -> int:
    return call.ended_seq


def frozen(node: Node, since_s: float, until_s: float) -> bool:
    return any(span.since_s <= until_s and since_s <= span.until_s for span in node.life.frozen)


def frozen_s(node: Node, since_s: float, until_s: float) -> float:
    """How much of the time it was frozen."""
    return sum(max(0.0, min(span.until_s, until_s) - max(span.since_s, since_s)) for span in node.life.frozen)


def thawed_by(node: Node, lapse_s: float, end_s: float) -> bool:
    """Whether it was frozen when something was due, and did it as soon as it was not."""
    return any(span.since_s <= lapse_s and end_s <= span.until_s + 0.001 for span in node.life.frozen)


def told_before_end(one: Execution) -> bool:
    """Whether it was told to stop while it executed."""
    return one.told_s is not None and (one.ended_s is None or one.told_s <= one.ended_s)
