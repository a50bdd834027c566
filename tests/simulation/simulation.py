"""Runs a scenario: the world, its store and instances, and the faults at their time."""

import logging
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

from tenure.testing import World

from . import build
from .agenda import Agenda
from .network import HintingLink, Link
from .node import Livelock, Node, Span
from .scenario import Fault, Scenario, Spec
from .store import Store
from .timeline import Timeline
from .workload import Journal, Workload

START = "2026-12-01T12:00:00Z"
_MOST_STEPS = 1_000_000
_DRAIN_S = 12.0
"""After the last stop everybody has so long to end."""


@dataclass(eq=False)
class Simulation:
    """What a scenario came to."""

    scenario: Scenario
    world: World
    store: Store
    journal: Journal
    timeline: Timeline
    nodes: dict[str, Node]
    store_troubles: list[Span]
    quiet_from_s: float
    stop_s: float
    """When the instances that were left were stopped."""
    end_s: float
    leftovers: dict[str, list[str]]
    livelock: str = ""
    """What ended it before its time: a loop that never waited."""


def run(scenario: Scenario, code: SimpleNamespace | None = None) -> Simulation:
    """Run it with tenure's own code, or with a changed copy."""
    logging.getLogger("tenure").setLevel(logging.CRITICAL + 1)
    return _Run(scenario, code or build.right()).run()


class _Run:
    def __init__(self, scenario: Scenario, code: SimpleNamespace) -> None:
        self._scenario = scenario
        self._code = code
        self._world = World(START, seed=scenario.seed)
        self._timeline = Timeline(lambda: self._world.elapsed_s)
        self._agenda = Agenda(self._world)
        self._store = Store(self._world, self._agenda, self._timeline)
        self._journal = Journal(self._world, self._timeline)
        self._workload = Workload(scenario.seed, self._world, self._journal)
        self._nodes: dict[str, Node] = {}
        self._store_troubles: list[Span] = []
        self._steps = 0

    def run(self) -> Simulation:
        scenario = self._scenario
        for name in scenario.instances:
            self._start(name, scenario.specs)
        for fault in scenario.faults:
            self._agenda.at(fault.at_s, self._fault, fault)
        quiet_from_s = stop_s = 0.0
        leftovers: dict[str, list[str]] = {}
        livelock = ""
        try:
            quiet_from_s = self._through_trouble()
            self._advance(scenario.quiet_s)
            stop_s = self._world.elapsed_s
            self._stop_all()
            leftovers = {node.name: node.leftovers() for node in self._nodes.values() if self._has_closed(node)}
        except Livelock as error:
            livelock = str(error)
        finally:
            self._timeline.over = True
            for node in self._nodes.values():
                node.discard()
        return Simulation(
            scenario,
            self._world,
            self._store,
            self._journal,
            self._timeline,
            self._nodes,
            self._store_troubles,
            quiet_from_s,
            stop_s,
            self._world.elapsed_s,
            leftovers,
            livelock,
        )

    def _through_trouble(self) -> float:
        self._advance(self._scenario.trouble_s)
        self._mend()
        return self._world.elapsed_s

    def _stop_all(self) -> None:
        for node in self._up():
            self._timeline.add("fault", node.name, Fault(self._world.elapsed_s, "stop", node.name, detail=1.0))
            node.stop(1.0)
        self._advance(_DRAIN_S)

    def _has_closed(self, node: Node) -> bool:
        return node.life.stop_s is not None and node.life.closed_s is not None and node.name in self._nodes

    def _advance(self, for_s: float) -> None:
        world, end_s = self._world, self._world.elapsed_s + for_s
        while loop := world._next(end_s):
            world._step(loop)
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise Livelock(f"the world made {_MOST_STEPS} steps, and time went on to {world.elapsed_s:.6f} s only")
        world.elapsed_s = end_s

    def _up(self) -> list[Node]:
        return [node for node in self._nodes.values() if node.is_up]

    def _start(self, name: str, specs: tuple[Spec, ...]) -> None:
        scenario = self._scenario
        kind = HintingLink if scenario.network.hints else Link
        link_rng = Random(f"link {scenario.seed} {name}")
        link = kind(name, self._world, self._agenda, self._store, self._timeline, scenario.network, link_rng)
        self._nodes[name] = Node(
            name,
            self._world,
            self._code,
            link,
            self._timeline,
            self._workload.handle,
            Random(f"node {scenario.seed} {name}"),
            scenario.clocks_ahead_s.get(name, 0.0),
        )
        self._nodes[name].start(specs)

    # Faults

    def _fault(self, fault: Fault) -> None:
        apply = getattr(self, "_do_" + fault.kind.replace(" ", "_"))
        node = self._nodes.get(fault.who)
        if fault.kind == "start" or not fault.who:
            self._timeline.add("fault", fault.who, fault)
            apply(fault)
        elif node is not None and node.is_up and not node.is_frozen:
            self._timeline.add("fault", fault.who, fault)
            apply(node, fault)

    def _do_start(self, fault: Fault) -> None:
        changed: Spec | None = fault.detail
        specs = self._scenario.specs
        if changed is not None:
            specs = tuple(changed if spec.name == changed.name else spec for spec in specs)
        self._start(fault.who, specs)

    def _do_crash(self, node: Node, fault: Fault) -> None:
        node.crash()

    def _do_stop(self, node: Node, fault: Fault) -> None:
        node.stop(fault.detail)

    def _do_freeze(self, node: Node, fault: Fault) -> None:
        node.freeze()
        span = self._trouble(node, "frozen")
        self._agenda.after(fault.for_s, self._thaw, node, span)

    def _thaw(self, node: Node, span: Span) -> None:
        if node.is_frozen and node.is_up:
            self._timeline.add("fault", node.name, "thaw")
            node.thaw()
            self._end(span)

    def _do_cut(self, node: Node, fault: Fault) -> None:
        node.link.fault = fault.detail
        span = self._trouble(node, "cut")
        self._agenda.after(fault.for_s, self._reconnect, node, span)

    def _reconnect(self, node: Node, span: Span) -> None:
        self._end(span)
        if not self._still(node, "cut"):
            self._timeline.add("fault", node.name, "reconnect")
            node.link.fault = None

    def _do_slow(self, node: Node, fault: Fault) -> None:
        node.link.slower_s = fault.detail
        span = self._trouble(node, "slow")
        self._agenda.after(fault.for_s, self._fast, node, span)

    def _fast(self, node: Node, span: Span) -> None:
        self._end(span)
        if not self._still(node, "slow"):
            node.link.slower_s = 0.0

    def _do_clock(self, node: Node, fault: Fault) -> None:
        node.jump_clock(fault.detail)

    def _do_block(self, node: Node, fault: Fault) -> None:
        node.app_loop.block(fault.for_s)

    def _do_hints_end(self, node: Node, fault: Fault) -> None:
        node.link.end_hints()

    def _do_replace(self, node: Node, fault: Fault) -> None:
        if node.has(fault.detail.name):
            node.replace(fault.detail)

    def _do_remove(self, node: Node, fault: Fault) -> None:
        spec = node.spec(fault.detail, self._world.elapsed_s)
        if spec is not None:
            node.remove(fault.detail)
            self._agenda.after(fault.for_s, self._add_back, node, spec)

    def _add_back(self, node: Node, spec: Spec) -> None:
        if node.is_up and not node.is_frozen and not node.has(spec.name):
            self._timeline.add("fault", node.name, Fault(self._world.elapsed_s, "add", node.name, detail=spec.name))
            node.add(spec)

    def _do_trigger(self, node: Node, fault: Fault) -> None:
        node.trigger(fault.detail)

    def _do_store_pause(self, fault: Fault) -> None:
        if not self._store.down:
            self._store.pause()
            self._store_trouble("pause", fault.for_s, self._store_resume)

    def _store_resume(self) -> None:
        if self._store.paused:
            self._store.resume()

    def _do_store_restart(self, fault: Fault) -> None:
        if not self._store.down:
            self._store.go_down()
            self._store_trouble("restart", fault.for_s, self._store_up, fault.detail)

    def _store_up(self, longer: bool) -> None:
        if self._store.down:
            self._store.come_up(longer)

    def _store_trouble(self, what: str, for_s: float, end: Any, *args: Any) -> None:
        span = Span(self._world.elapsed_s, what=what)
        self._store_troubles.append(span)

        def over() -> None:
            self._timeline.add("fault", "", f"store {what} over")
            self._end(span)
            end(*args)

        self._agenda.after(for_s, over)

    def _trouble(self, node: Node, what: str) -> Span:
        span = Span(self._world.elapsed_s, what=what)
        node.life.troubles.append(span)
        return span

    def _end(self, span: Span) -> None:
        span.until_s = min(span.until_s, self._world.elapsed_s)

    def _still(self, node: Node, what: str) -> bool:
        return any(span.what == what and span.until_s > self._world.elapsed_s for span in node.life.troubles)

    def _mend(self) -> None:
        """All is well from here on, also what would have lasted longer."""
        if self._store.down:
            self._store.come_up(longer=False)
        self._store.resume()
        for span in self._store_troubles:
            self._end(span)
        for node in self._up():
            if node.is_frozen:
                node.thaw()
            for span in node.life.troubles:
                self._end(span)
            node.link.fault = None
            node.link.slower_s = 0.0
            node.set_clock()
