"""Invariants of slots and claims, of the start of an instance and of its stop."""

import itertools
from collections import defaultdict
from collections.abc import Iterator

from tenure.model import ActiveRun

from .history import NEVER, History, frozen, frozen_s
from .invariants import EPS_S, Found, invariant
from .node import Node
from .scenario import Spec
from .timeline import Call

WIDTH = 64


def _firsts(history: History) -> Iterator[Call]:
    """The first sending of each claim."""
    seen: set[str] = set()
    for call in history.calls:
        if call.name == "claim" and call.token not in seen:
            seen.add(call.token)
            yield call


# Slots


@invariant("slots-same")
def slots_are_of_the_schedule(history: History) -> Iterator[Found]:
    for call in _firsts(history):
        if call.request.mode in ("scheduled", "catch-up"):
            periods = {spec.every_ms for spec in history.specs(history.nodes[call.who], call.job)}
            if all(call.slot % period for period in periods):
                yield Found(call.sent_s, f"{call.who} claims a slot that is none", call.job, call.slot)


@invariant("slots-jump")
def a_slot_fires_once(history: History) -> Iterator[Found]:
    """An instance claims a slot once; again after it was early, or when its clock was set back before it."""
    tokens: dict[tuple[str, str, int], set[str]] = defaultdict(set)
    early: dict[tuple[str, str, int], int] = defaultdict(int)
    for node, _, _, event in history.events("skip"):
        early[node.name, event.job, event.slot] += event.reason == "early"
    for call in _firsts(history):
        key = call.who, call.job, call.slot
        added = sum(
            version.spec.name == call.job and version.span.since_s <= call.sent_s
            for version in history.nodes[call.who].life.specs
        )
        if call.request.mode == "scheduled":
            tokens[key].add(call.token)
            if len(tokens[key]) > added + early[key] + _set_back(history.nodes[call.who], call.sent_s):
                yield Found(call.sent_s, f"{call.who} claims a slot {len(tokens[key])} times", call.job, call.slot)


def _set_back(node: Node, until_s: float) -> int:
    """How often its clock was set back: slots come again then, and the store knows that they are done."""
    clock = [(at_s, ahead_s) for at_s, ahead_s in node.life.clock if at_s <= until_s]
    return sum(after[1] < before[1] for before, after in itertools.pairwise(clock))


@invariant("slots-jump")
def the_last_slot_does_not_fire_again(history: History) -> Iterator[Found]:
    """When a clock is set back, the next slot that fires is not the one that was fired last."""
    scheduled: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in _firsts(history):
        if call.request.mode == "scheduled":
            scheduled[call.who, call.job].append(call)
    for (who, job), calls in scheduled.items():
        node = history.nodes[who]
        for since_s, until_s in _times_after_a_jump_back(node):
            before = [call for call in calls if call.sent_s < since_s]
            if not before or history.arrived_s(node, job, until_s) > before[-1].sent_s:
                continue
            told = history.events_of.get((who, job, before[-1].slot), ())
            if any(getattr(event, "reason", "") == "early" for _, _, event in told):
                continue
            after = next((call for call in calls if since_s <= call.sent_s < until_s), None)
            skipped = any(
                event.kind == "skip"
                and event.job == job
                and since_s <= at_s < (NEVER if after is None else after.sent_s)
                for at_s, _, event in node.events
            )
            if after is not None and after.slot == before[-1].slot and not skipped:
                yield Found(after.sent_s, f"{who} claims its last slot again", job, after.slot)


def _times_after_a_jump_back(node: Node) -> Iterator[tuple[float, float]]:
    """From each jump back until the clock is set the next time."""
    ends = [*(at_s for at_s, _ in node.life.clock[1:]), NEVER]
    before_s = 0.0
    for (at_s, ahead_s), until_s in zip(node.life.clock, ends, strict=True):
        if ahead_s < before_s - 0.1 and at_s > node.life.began_s:
            yield at_s, until_s
        before_s = ahead_s


@invariant("slots-timers")
def each_slot_fires(history: History) -> Iterator[Found]:
    """An instance in good health claims each slot, or says why not, within its jitter."""
    for node, spec, slot, at_s in _slots(history):
        due_s = at_s + spec.jitter_ms / 1000 + 0.01
        if due_s >= history.sim.end_s or not history.steady(node, spec.name, at_s - 0.01, due_s):
            continue
        if not history.clock_right(node, due_s) or not _recovered_by(history, node, spec.name, at_s):
            continue
        claims = history.claims.get((node.name, spec.name, slot), ())
        events = history.events_of.get((node.name, spec.name, slot), ())
        fired = any(call.sent_s <= due_s for call in claims) or any(at <= due_s for at, _, _ in events)
        if not fired and not _crowded(history, node, at_s, due_s):
            yield Found(due_s, f"{node.name} neither claims nor skips its slot", spec.name, slot)


def _slots(history: History) -> Iterator[tuple[Node, Spec, int, float]]:
    """Each slot of each instance's jobs, and when it was due."""
    for node in history.nodes.values():
        for version in node.life.specs:
            spec, span = version.spec, version.span
            since_ms = history.sim.world.start_ms + int(span.since_s * 1000)
            until_s = min(span.until_s, node.life.gone_s, history.sim.end_s)
            until_ms = history.sim.world.start_ms + int(until_s * 1000)
            for slot in range(since_ms - since_ms % spec.every_ms + spec.every_ms, until_ms, spec.every_ms):
                yield node, spec, slot, history.slot_s(slot)


def _recovered_by(history: History, node: Node, job: str, at_s: float) -> bool:
    recovery = history.recovery(node, job, history.arrived_s(node, job, at_s))
    return recovery is not None and recovery.ended_s is not None and recovery.ended_s < at_s


def _crowded(history: History, node: Node, since_s: float, until_s: float) -> bool:
    """Whether its claims had to wait for each other."""
    calls = [call for call in node.link.calls if call.name == "claim" and call.sent_s <= until_s]
    return sum((NEVER if call.ended_s is None else call.ended_s) >= since_s for call in calls) >= WIDTH


@invariant("instance-events")
def each_slot_is_accounted_for(history: History) -> Iterator[Found]:
    """Each slot that an instance in good health met is started, or named late, overlap, taken or exhausted."""
    if not history.network.reliable:
        return
    named = {(event.job, event.slot) for _, _, _, event in history.events("skip", "exhausted")}
    for node, spec, slot, at_s in _slots(history):
        due_s = at_s + spec.jitter_ms / 1000 + 2 * history.network.round_trip_s + 0.1
        if due_s >= history.sim.stop_s or not history.well(node, spec.name, at_s - 0.01, due_s):
            continue
        if not history.clock_right(node, due_s) or not _recovered_by(history, node, spec.name, at_s):
            continue
        known = (spec.name, slot) in history.runs or (spec.name, slot) in named
        if not known and not _crowded(history, node, at_s, due_s):
            yield Found(due_s, "nobody starts the run or says why not", spec.name, slot)


# Claims


@invariant("claim-row-11")
def nothing_starts_early(history: History) -> Iterator[Found]:
    """By the store's clock, whatever the instance's says."""
    for one in history.executions:
        if history.slot_s(one.slot) - one.began_s > 1.001:
            yield Found(one.began_s, f"{one.who} starts a run early", one.job, one.slot)


@invariant("instance-claim-retry")
def a_failed_claim_is_repeated_with_its_token(history: History) -> Iterator[Found]:
    for calls in history.claims.values():
        for mode in ("scheduled", "catch-up", "manual"):
            of_mode = [call for call in calls if call.request.mode == mode]
            for call, after in itertools.pairwise(of_mode):
                if call.failed and call.failed != "cancelled" and after.token != call.token:
                    clock_set = any(
                        call.sent_s <= at_s <= after.sent_s for at_s, _ in history.nodes[call.who].life.clock
                    )
                    if after.sent_seq > call.ended_seq and not clock_set and not _arrived_between(history, call, after):
                        text = f"{call.who} repeats its claim with another token"
                        yield Found(after.sent_s, text, call.job, call.slot)


def _arrived_between(history: History, call: Call, after: Call) -> bool:
    return any(
        version.spec.name == call.job and call.sent_s <= version.span.since_s <= after.sent_s
        for version in history.nodes[call.who].life.specs
    )


@invariant("instance-claim-retry")
def a_failed_claim_is_repeated(history: History) -> Iterator[Found]:
    """For as long as the run is not too late."""
    for calls in history.claims.values():
        tries: dict[str, int] = defaultdict(int)
        for call in calls:
            if call.request.mode != "scheduled" or not call.failed or call.ended_s is None:
                continue
            node = history.nodes[call.who]
            due_s = call.ended_s + min(0.1 * 2 ** tries[call.token], 10) + EPS_S
            tries[call.token] += 1
            late_s = [
                history.slot_s(call.slot) + spec.max_late_ms / 1000
                for spec in history.specs(node, call.job)
                if spec.max_late_ms is not None
            ]
            if len(late_s) < len(history.specs(node, call.job)) or due_s >= min(late_s):
                continue
            if not history.clock_right(node, due_s) or not history.steady(node, call.job, call.sent_s, due_s):
                continue
            if not any(other.sent_seq > call.ended_seq and other.sent_s <= due_s for other in calls):
                yield Found(due_s, f"{call.who} does not repeat its claim that failed", call.job, call.slot)


@invariant("instance-no-second")
def no_claim_beside_its_own_handler(history: History) -> Iterator[Found]:
    """An instance does not claim or check a run whose earlier handler still executes in it."""
    for call in history.calls:
        if call.name != "claim":
            continue
        for one in history.executed_by.get((call.who, call.job), ()):
            ended_seq = NEVER if one.ended_s is None else one.ended_seq
            if one.slot == call.slot and one.began_seq < call.sent_seq < ended_seq:
                again = history.by_token[call.token][0].sent_seq < one.began_seq  # it may arrive at any time anyway
                if not again and not history.asks_why(call):
                    text = f"{call.who} sends a claim ({call.request.mode}) for a run that it executes"
                    yield Found(call.sent_s, text, call.job, call.slot)


@invariant("instance-events")
def claims_are_not_a_flood(history: History) -> Iterator[Found]:
    """At most 64 slots are claimed at once, and as many that were early before; not counting what is repeated."""
    early: dict[tuple[str, str, int], float] = {}
    for node, at_s, _, event in history.events("skip"):
        if event.reason == "early":
            early.setdefault((node.name, event.job, event.slot), at_s)
    marks: dict[tuple[str, bool], list[tuple[int, int, float]]] = defaultdict(list)
    for call in _firsts(history):
        if call.request.mode in ("scheduled", "catch-up"):
            again = early.get((call.who, call.job, call.slot), NEVER) < call.sent_s
            of_kind = marks[call.who, again]
            of_kind += [(call.sent_seq, 1, call.sent_s)]
            of_kind += [(call.ended_seq, -1, call.ended_s)] if call.ended_s is not None else []
    for (who, _), of_kind in marks.items():
        on_their_way = 0
        for _, one, at_s in sorted(of_kind):
            on_their_way += one
            if on_their_way > WIDTH:
                yield Found(at_s, f"{who} has {on_their_way} claims on their way")
                break


# The start


@invariant("instance-recovery-first")
def recovery_comes_first(history: History) -> Iterator[Found]:
    """No claim before the store was asked what is unfinished."""
    for call in _firsts(history):
        node = history.nodes[call.who]
        arrived_s = history.arrived_s(node, call.job, call.sent_s)
        asked = any(
            other.name == "active"
            and call.job in other.request
            and other.answered
            and other.sent_s >= arrived_s
            and other.ended_seq < call.sent_seq
            for other in node.link.calls
        )
        before = history.claims[call.who, call.job, call.slot][0].sent_s < arrived_s  # it is known from an earlier time
        if not asked and not before and not history.asks_why(call):
            yield Found(call.sent_s, f"{call.who} claims before it has recovered", call.job, call.slot)


@invariant("instance-recovery")
def unfinished_runs_are_taken_up(history: History) -> Iterator[Found]:
    """What is over is claimed at once, what is live is watched; but under skip the newest slot alone."""
    for node in history.nodes.values():
        came = [(one.spec.name, history.arrived_s(node, one.spec.name, one.span.since_s)) for one in node.life.specs]
        for job, arrived_s in sorted(set(came)):
            call = history.recovery(node, job, arrived_s)
            if call is None or history.arrived_s(node, job, call.ended_s or 0.0) != arrived_s:
                continue
            for run in call.answer.runs:
                if run.job == job:
                    yield from _taken_up(history, node, call, run)


def _taken_up(history: History, node: Node, call: Call, run: ActiveRun) -> Iterator[Found]:
    job, slot, now_s = run.job, run.slot, call.ended_s
    spec = node.spec(job, now_s)
    if spec is None:
        return
    latest = call.answer.now_ms - call.answer.now_ms % spec.every_ms
    live = run.live
    if spec.overlap == "skip" and latest > slot and not live:
        return
    beats_s = 2 * history.slowest_beat_s(node, job)
    due_s = now_s + (beats_s if live else 0.0) + 0.01
    due_s = max(due_s, history.out_of_trouble_s(node, now_s, due_s) + beats_s + 0.01)
    if due_s >= history.sim.end_s or not history.steady(node, job, now_s, due_s):
        return
    if history.executes(node, job, slot, now_s, due_s):
        return
    checks = [*history.claims.get((node.name, job, slot), ()), *(history.looks[node.name, job] if live else ())]
    if not any(other is not call and other.sent_s <= due_s and (other.ended_s or NEVER) >= now_s for other in checks):
        yield Found(due_s, f"{node.name} does not take up what it found unfinished", job, slot)


@invariant("instance-recovery-expect")
def what_may_start_still_is_watched(history: History) -> Iterator[Found]:
    """Who comes between a slot and its first claim is a backup for that run too."""
    for node in history.nodes.values():
        for version in node.life.specs:
            yield from _expected(history, node, version.spec.name, version.span.since_s)


def _expected(history: History, node: Node, job: str, since_s: float) -> Iterator[Found]:
    call = history.recovery(node, job, since_s) if history.arrived_s(node, job, since_s) == since_s else None
    spec = None if call is None or call.ended_s is None else node.spec(job, call.ended_s)
    if call is None or call.ended_s is None or spec is None:
        return
    latest = call.answer.now_ms - call.answer.now_ms % spec.every_ms
    if not _may_start(spec, latest, call.answer.now_ms) or (job, latest) in [
        (run.job, run.slot) for run in call.answer.runs
    ]:
        return
    beats_s = 2 * history.slowest_beat_s(node, job) + EPS_S
    due_s = call.ended_s + beats_s
    due_s = max(due_s, history.out_of_trouble_s(node, call.ended_s, due_s) + beats_s)
    if due_s >= history.sim.end_s or not history.steady(node, job, call.ended_s, due_s):
        return
    checks = (*history.looks[node.name, job], *history.claims.get((node.name, job, latest), ()))
    checked = any(one.sent_seq > call.sent_seq and one.sent_s <= due_s for one in checks)
    if not checked and not history.executes(node, job, latest, call.ended_s, due_s):
        yield Found(due_s, f"{node.name} does not watch what may start still", job, latest)


def _may_start(spec: Spec, slot: int, now_ms: int) -> bool:
    """Whether somebody may start the run still, but this instance does not claim it in order to catch up."""
    if spec.catch_up_ms is not None and now_ms - slot < spec.catch_up_ms:
        return False
    return spec.max_late_ms is None or now_ms - slot <= spec.max_late_ms


@invariant("instance-catch-up")
def the_latest_slot_is_caught_up(history: History) -> Iterator[Found]:
    """At the start, if it was due less than ``catch_up`` ago and nobody has it; and only that one."""
    caught: dict[tuple[str, str, float], set[int]] = defaultdict(set)
    for call in _firsts(history):
        if call.request.mode == "catch-up":
            slots = caught[call.who, call.job, history.arrived_s(history.nodes[call.who], call.job, call.sent_s)]
            slots.add(call.slot)
            if len(slots) > 1:
                yield Found(call.sent_s, f"{call.who} catches up a backlog", call.job, call.slot)
    for node in history.nodes.values():
        for version in node.life.specs:
            yield from _caught_up(history, node, version.spec, version.span.since_s)


def _caught_up(history: History, node: Node, spec: Spec, since_s: float) -> Iterator[Found]:
    if spec.catch_up_ms is None or history.arrived_s(node, spec.name, since_s) != since_s:
        return
    active = history.recovery(node, spec.name, since_s)
    if active is None or active.ended_s is None:
        return
    latest = active.answer.now_ms - active.answer.now_ms % spec.every_ms
    due_s = active.ended_s + spec.jitter_ms / 1000 + 0.01
    if active.answer.now_ms - latest >= spec.catch_up_ms or not history.steady(node, spec.name, since_s, due_s):
        return
    if any(run.job == spec.name and run.slot == latest for run in active.answer.runs):
        return
    claims = history.claims.get((node.name, spec.name, latest), ())
    if due_s >= history.sim.end_s or history.executes(node, spec.name, latest, since_s, due_s):
        return
    if not any(call.sent_s <= due_s for call in claims) and not _crowded(history, node, since_s, due_s):
        yield Found(due_s, f"{node.name} does not catch up", spec.name, latest)


# The stop


@invariant("instance-stop-claims")
def no_claims_after_a_stop(history: History) -> Iterator[Found]:
    for call in _firsts(history):
        life = history.nodes[call.who].life
        if life.stop_s is not None and call.sent_s > life.stop_s + EPS_S and not history.asks_why(call):
            yield Found(call.sent_s, f"{call.who} claims though it stops", call.job, call.slot)


@invariant("instance-stop-claims")
def a_claim_on_its_way_is_given_back(history: History) -> Iterator[Found]:
    """What is won while stopping is released, and so is what may have been won."""
    for token, calls in history.by_token.items():
        claims = [call for call in calls if call.name == "claim"]
        if not claims or token in history.executed:
            continue
        last = claims[-1]
        life = history.nodes[last.who].life
        if life.stop_s is None or last.ended_s is None or last.ended_s <= life.stop_s + EPS_S:
            continue
        won = last.answered and last.answer.outcome == "won"
        unknown = last.failed and last.failed != "cancelled"
        if ((won or unknown) and not history.asks_why(last) and last.ended_s + 0.1 < history.sim.end_s) and not any(
            call.name == "release" and call.sent_seq > last.ended_seq for call in calls
        ):
            yield Found(last.ended_s, f"{last.who} stops and keeps a lease that it won", last.job, last.slot)


@invariant("instance-stop-handlers")
def handlers_are_told_to_stop(history: History) -> Iterator[Found]:
    for one in history.executions:
        stop_s = history.nodes[one.who].life.stop_s
        if (
            stop_s is not None
            and one.began_s < stop_s - EPS_S
            and history.end_s(one) > stop_s + EPS_S
            and (
                (one.told_s is None or one.told_s > stop_s + EPS_S)
                and not frozen(history.nodes[one.who], stop_s, stop_s)
            )
        ):
            yield Found(stop_s, f"{one.who} does not tell its handler to stop", one.job, one.slot)


@invariant("instance-stop-handlers")
def a_stop_ends_in_time(history: History) -> Iterator[Found]:
    """After its grace, and half a second for what is cancelled then."""
    for node in history.nodes.values():
        life = node.life
        if life.stop_s is None:
            continue
        due_s = life.stop_s + life.grace_s + 0.5 + 0.01 + frozen_s(node, life.stop_s, history.sim.end_s)
        if (NEVER if life.stopped_s is None else life.stopped_s) > due_s and due_s < history.sim.end_s:
            yield Found(due_s, f"{node.name} has not stopped in time")


@invariant("instance-stop-order")
def nothing_is_left_behind(history: History) -> Iterator[Found]:
    """No task, timer, watch or handler is left of an instance that has stopped."""
    for name, left in history.sim.leftovers.items():
        if left:
            yield Found(history.sim.end_s, f"{name} left behind: {', '.join(left[:5])}")


@invariant("instance-stop-order")
def the_store_is_closed_last(history: History) -> Iterator[Found]:
    """An instance closes once nothing executes any more, and then sends nothing."""
    for node in history.nodes.values():
        life = node.life
        if life.stop_s is None:
            continue
        executing = any(one.ended_s is None for one in history.executions if one.who == node.name)
        waits_s = life.stop_s + 10 + 4 * history.network.timeout_ms / 1000
        if (
            life.closed_s is None
            and not executing
            and history.sim.end_s > waits_s
            and not any(
                history.end_s(one) > history.sim.end_s - 12 for one in history.executions if one.who == node.name
            )
        ):
            yield Found(history.sim.end_s, f"{node.name} never closes")
        if life.closed_s is not None:
            for call in node.link.calls:
                if call.sent_s > life.closed_s + EPS_S:
                    yield Found(call.sent_s, f"{node.name} sends {call.name} after it closed", call.job, call.slot)


@invariant("instance-events")
def no_exception_goes_unheard(history: History) -> Iterator[Found]:
    for node in history.nodes.values():
        for complaint in node.life.complaints:
            yield Found(history.sim.end_s, f"{node.name}: {complaint}")


@invariant("slots-timers")
def time_goes_on(history: History) -> Iterator[Found]:
    """No instance is so busy that it never waits."""
    if history.sim.livelock:
        yield Found(history.sim.end_s, history.sim.livelock)
