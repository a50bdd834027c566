"""Invariants of backups: who watches what, when they look, and how soon a run is taken over."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest

from tenure.model import ActiveRun

from .history import NEVER, History, Tenure, told_before_end
from .invariants import EPS_S, Found, invariant
from .node import Node
from .timeline import Call

_MOST_WATCHES = 16
_LEAST_PAUSE_S = 0.045


@dataclass(frozen=True, slots=True)
class _Duty:
    """An instance has to look at a run by then."""

    why: str
    node: Node
    job: str
    slot: int
    since_s: float
    since_seq: int
    due_s: float

    def found(self, text: str) -> Found:
        return Found(self.due_s, f"{self.node.name} {text} by {self.due_s:.3f}", self.job, self.slot)


def _duty(history: History, call: Call, why: str, slot: int, left_ms: int | None) -> _Duty:
    """After an answer, or a failure, an instance looks again; ``left_ms``: at the latest when that lease is over."""
    assert call.ended_s is not None
    node = history.nodes[call.who]
    wait_s = 2 * history.slowest_beat_s(node, call.job)
    if left_ms is not None:
        wait_s = min(wait_s, max(left_ms, 0) / 1000 + history.longest_spread_s(node, call.job))
    due_s = call.ended_s + wait_s + history.crowd_s + EPS_S
    return _Duty(why, node, call.job, slot, call.ended_s, call.ended_seq, due_s)


def _is_done(history: History, duty: _Duty, *, by_claim: bool = False) -> bool:
    """Whether it looked, or need not."""
    node, since_s, due_s = duty.node, duty.since_s, _when_due_s(history, duty)
    if due_s >= history.sim.end_s or not history.steady(node, duty.job, since_s, due_s):
        return True
    for call in history.claims.get((node.name, duty.job, duty.slot), ()):
        if call.sent_seq > duty.since_seq and call.sent_s <= due_s:
            return True
        if call.sent_seq < duty.since_seq and (call.ended_s is None or call.ended_seq > duty.since_seq):
            return True  # one is on its way, and its answer counts
        ended_since = call.ended_s is not None and duty.since_seq < call.ended_seq and call.ended_s <= due_s
        if ended_since and call.answered and call.answer.outcome != "running":
            return True
    looks = history.looks[node.name, duty.job]
    if any(look.sent_seq < duty.since_seq < look.ended_seq for look in looks):
        return True  # likewise
    if not by_claim and any(look.sent_s <= due_s and look.sent_seq > duty.since_seq for look in looks):
        return True
    if history.executes(node, duty.job, duty.slot, since_s, due_s):
        return True
    return _too_many(history, duty, due_s)


def _when_due_s(history: History, duty: _Duty) -> float:
    """Later if its checks fail: it sends one for all, and looks again when that is answered."""
    beats_s = 2 * history.slowest_beat_s(duty.node, duty.job) + EPS_S
    return max(duty.due_s, history.out_of_trouble_s(duty.node, duty.since_s, duty.due_s) + beats_s)


def _too_many(history: History, duty: _Duty, due_s: float) -> bool:
    """Under skip only so many of a job's runs are watched."""
    if all(spec.overlap == "allow" for spec in history.specs(duty.node, duty.job)):
        return False
    newer = sum(
        who == duty.node.name and job == duty.job and slot > duty.slot and calls[0].sent_s <= due_s
        for (who, job, slot), calls in history.claims.items()
    )
    return newer >= _MOST_WATCHES


def _watched_before(history: History, call: Call, slot: int) -> bool:
    """Whether the instance had asked for the run before this call was answered: then its watch has a time already."""
    earlier = history.claims.get((call.who, call.job, slot), ())
    if any(other is not call and other.sent_seq < call.ended_seq for other in earlier):
        return True
    return any(
        other.name == "active"
        and call.job in other.request
        and other.answered
        and other.ended_seq < call.ended_seq
        and any(run.job == call.job and run.slot == slot for run in other.answer.runs)
        for other in history.nodes[call.who].link.calls
    ) or any(
        other.answered
        and other.answer.outcome == "overlap"
        and other.answer.slot == slot
        and other.ended_seq < call.ended_seq
        for other in history.nodes[call.who].link.calls
        if other.name == "claim" and other.job == call.job and other is not call
    )


@invariant("instance-watch")
def a_running_run_is_watched(history: History) -> Iterator[Found]:
    """Whoever is told that a run is another's looks again within two heartbeats."""
    for call in history.calls:
        running = call.name == "claim" and call.answered and call.answer.outcome == "running"
        if running and call.request.mode != "manual":
            duty = _duty(history, call, "running", call.slot, None)
            if not _is_done(history, duty):
                yield duty.found("does not watch a run that is another's")


@invariant("instance-watch-when")
def backups_look_when_the_lease_ends(history: History) -> Iterator[Found]:
    """And just after the lease that it was told of runs out."""
    for call, slot, left_ms in _tellings(history):
        duty = _duty(history, call, "lease end", slot, left_ms)
        if not _is_done(history, duty, by_claim=left_ms <= 0):
            yield duty.found("does not look when the lease is over")


def _tellings(history: History) -> Iterator[tuple[Call, int, int]]:
    """Answers that tell a backup how long the lease of a run lasts still."""
    for call in history.calls:
        if call.name == "claim" and call.answered and call.answer.outcome == "running":
            first = call.request.mode in ("scheduled", "catch-up") and not _watched_before(history, call, call.slot)
            looks = call.request.mode == "takeover" and not history.asks_why(call)
            if (first or looks) and not (call.answer.lease_left_ms <= 0 and call.answer.attempt == call.request.after):
                yield call, call.slot, call.answer.lease_left_ms
    for who, looks_at_all in history.checks.items():
        for look in looks_at_all:
            if look.name == "active" and look.answered:
                for run in look.answer.runs:
                    if _takes_part(history, history.nodes[who], look, run):
                        yield replace(look, job=run.job), run.slot, run.lease_left_ms if run.live else 0


def _takes_part(history: History, node: Node, look: Call, run: ActiveRun) -> bool:
    """Whether the instance surely was a backup for the run, and due to look at it."""
    claims = [call for call in history.claims.get((node.name, run.job, run.slot), ()) if call.sent_seq < look.ended_seq]
    if not claims or not claims[-1].answered or claims[-1].answer.outcome != "running":
        return False
    before = [call for call in history.looks[node.name, run.job] if call.sent_seq < look.sent_seq]
    told_s = max(call.ended_s or NEVER for call in (claims[-1], *before))  # of one on its way it waits for the answer
    long_ago = look.sent_s - told_s >= history.slowest_beat_s(node, run.job)
    return long_ago and history.steady(node, run.job, claims[-1].ended_s or 0.0, look.sent_s)


@invariant("instance-watch-when")
def backups_do_not_look_all_at_once(history: History) -> Iterator[Found]:
    """Their looks at the end of a lease are spread."""
    offsets = []
    last_s = 0.0
    for call, slot, left_ms in _tellings(history):
        claims = history.claims.get((call.who, call.job, slot), ())
        after = next((claim for claim in claims if claim.sent_seq > call.ended_seq), None)
        over_s = (call.ended_s or 0.0) + left_ms / 1000
        if after is not None and left_ms > 0 and over_s - EPS_S <= after.sent_s <= over_s + 2:
            offsets.append(after.sent_s - over_s)
            last_s = max(last_s, after.sent_s)
    at_once = sum(offset < EPS_S for offset in offsets)
    if len(offsets) >= 6 and at_once > 0.8 * len(offsets):
        yield Found(last_s, f"{at_once} of {len(offsets)} looks come exactly at the lease's end")


@invariant("instance-watch-error")
def a_failed_check_is_repeated(history: History) -> Iterator[Found]:
    """A claim that failed is repeated, with its token, once a check is answered; it never ends the watch."""
    for key, calls in history.claims.items():
        looks = [call for call in calls if call.request.mode == "takeover" and not history.asks_why(call)]
        for call, after in zip_longest(looks, looks[1:]):
            if not call.failed or call.failed == "cancelled" or call.ended_s is None:
                continue
            duty = _duty(history, call, "failed", call.slot, None)
            if not history.steady(duty.node, call.job, call.sent_s, call.ended_s):
                continue
            if not _is_done(history, duty, by_claim=True):
                yield duty.found("does not repeat its check that failed")
            elif after is not None and after.token != call.token and _is_repeated(history, key, call, after):
                yield Found(after.sent_s, f"{call.who} repeats its check with another token", call.job, call.slot)


@invariant("instance-watch-error")
def checks_go_on_while_they_fail(history: History) -> Iterator[Found]:
    """One is sent at the latest a heartbeat after one that failed."""
    for who, checks in history.checks.items():
        node = history.nodes[who]
        for call in checks:
            if call.name != "claim" or not call.failed or call.failed == "cancelled" or call.ended_s is None:
                continue
            due_s = call.ended_s + history.slowest_beat_s(node, call.job) + EPS_S
            idle = not any(one.sent_seq > call.sent_seq and one.sent_s <= due_s for one in checks)
            if idle and due_s < history.sim.end_s and not _relieved(history, node, call.job, call.sent_s, due_s):
                yield Found(due_s, f"{who} sends no check after one that failed", call.job, call.slot)


def _relieved(history: History, node: Node, job: str, since_s: float, until_s: float) -> bool:
    """Whether it may have had nothing to check any more, or not been able to."""
    return not history.steady(node, job, since_s, until_s) or any(
        began_s <= until_s and ended_s >= since_s
        for _, began_s, ended_s, _ in history.occupied.get((node.name, job), ())
    )


@invariant("instance-watch-error")
def checks_that_fail_are_few(history: History) -> Iterator[Found]:
    """While checks fail an instance sends one at a time."""
    for who, troubles in history.troubles.items():
        claims = [call for call in history.checks[who] if call.name == "claim"]
        for trouble in troubles:
            sent = [
                call
                for call in claims
                if trouble.began_seq < call.sent_seq < trouble.answered_seq
                and history.steady(history.nodes[who], call.job, trouble.began_s, call.sent_s)  # else it began anew
            ]
            for call, after in pairwise(sent):
                if call.ended_s is None or after.sent_s < call.ended_s + _LEAST_PAUSE_S:
                    text = f"{who} sends many checks though they fail since {trouble.began_s:.3f}"
                    yield Found(after.sent_s, text, after.job, after.slot)
                    break


def _is_repeated(history: History, key: tuple[str, str, int], call: Call, after: Call) -> bool:
    """Whether it is the same watch's next check; the answer to another claim of the run may have ended that one."""
    if after.sent_seq < call.ended_seq:
        return False
    others = [other for other in history.claims[key] if other is not call and other.answered]
    answered_between = any(call.sent_seq < other.ended_seq < after.sent_seq for other in others)
    return history.steady(history.nodes[call.who], call.job, call.sent_s, after.sent_s) and not answered_between


@invariant("instance-watch-overlap")
def both_runs_are_watched_after_overlap(history: History) -> Iterator[Found]:
    """After overlap an instance watches the run in the way, and its own."""
    for call in history.calls:
        if call.name != "claim" or not call.answered or call.answer.outcome != "overlap" or history.asks_why(call):
            continue
        for slot in (call.slot, call.answer.slot):
            duty = _duty(history, call, "overlap", slot, None)
            if not _is_done(history, duty):
                which = "its own run" if slot == call.slot else f"run {slot}, which is in the way,"
                yield duty.found(f"does not watch {which} after overlap")


@invariant("instance-watch")
def a_lost_run_is_watched(history: History) -> Iterator[Found]:
    """Whoever lost a run without a stop is a backup for it, once its handler has ended."""
    for one in history.executions:
        if one.reason != "lost" or one.ended_s is None or one.how == "returned" or not told_before_end(one):
            continue
        node = history.nodes[one.who]
        wait_s = 2 * history.slowest_beat_s(node, one.job) + EPS_S
        asked = history.claims.get((one.who, one.job, one.slot), ())
        heard_s = min(
            (call.sent_s for call in asked if call.sent_s >= one.ended_s and history.asks_why(call)), default=NEVER
        )
        duty = _Duty("lost", node, one.job, one.slot, heard_s + EPS_S, one.ended_seq, heard_s + wait_s)
        others = [other for other in history.executed_by[one.who, one.job] if other is not one]
        busy = any(other.began_s <= duty.due_s and history.end_s(other) >= one.ended_s for other in others)
        if not busy and not history.timed_out(one) and not _looked(history, duty):
            yield duty.found("does not watch the run that it lost")


def _looked(history: History, duty: _Duty) -> bool:
    due_s = _when_due_s(history, duty)
    if due_s >= history.sim.end_s or not history.steady(duty.node, duty.job, duty.since_s - EPS_S, due_s):
        return True
    looks_at_all = history.looks[duty.node.name, duty.job]
    if any(look.sent_seq > duty.since_seq and look.sent_s <= due_s for look in looks_at_all):
        return True
    looks = history.claims.get((duty.node.name, duty.job, duty.slot), ())
    # Two calls: one may be the question why the run was lost.
    return (
        sum(call.sent_seq > duty.since_seq and call.sent_s <= due_s for call in looks) >= 2
        or any(call.sent_seq > duty.since_seq and call.answered and call.answer.outcome != "running" for call in looks)
        or any(call.sent_seq > duty.since_seq and call.sent_s <= due_s and call.failed for call in looks)
    )


@invariant("instance-watch-when")
def takeovers_come_in_time(history: History) -> Iterator[Found]:
    """A run whose holder is silent is taken over just after its lease, if a backup in good health is there."""
    if not history.network.reliable:
        return
    for key, tenure in history.tenures.items():
        job, slot, _ = key
        if not tenure.spans:
            continue
        lapse_s = max(until for _, until in tenure.spans)
        if tenure.over_s < lapse_s and tenure.status != "released":
            continue
        lapse_s = min(lapse_s, tenure.over_s) if tenure.status == "released" else lapse_s
        for node in history.nodes.values():
            bound_s = _takeover_bound_s(history, node, job, released=tenure.status == "released")
            if node.name == tenure.won.holder or not _backs_up(history, node, tenure, lapse_s, bound_s):
                continue
            if not _went_on(history, tenure, lapse_s, lapse_s + bound_s):
                text = f"{node.name} does not take over by {lapse_s + bound_s:.3f} what was over at {lapse_s:.3f}"
                yield Found(lapse_s + bound_s, text, job, slot)


def _takeover_bound_s(history: History, node: Node, job: str, *, released: bool) -> float:
    ways_s = 2 * history.network.round_trip_s + EPS_S
    wait_s = 2 * history.slowest_beat_s(node, job) if released else history.longest_spread_s(node, job)
    return wait_s + ways_s


def _backs_up(history: History, node: Node, tenure: Tenure, lapse_s: float, bound_s: float) -> bool:
    """Whether the instance had been told of this very attempt in time, and was well from then on."""
    won = tenure.won
    early_s = lapse_s - 2 * history.slowest_beat_s(node, won.job) - 2 * history.network.round_trip_s
    told = [
        call
        for call in history.claims.get((node.name, won.job, won.slot), ())
        if call.answered and call.ended_s is not None and call.ended_s < lapse_s
    ]
    if not told or told[-1].answer.outcome != "running" or told[-1].answer.attempt != won.attempt:
        return False
    since_s = min(early_s, told[-1].sent_s)
    return history.well(node, won.job, since_s, lapse_s + bound_s) and not history.executes(
        node, won.job, won.slot, since_s, lapse_s + bound_s
    )


def _went_on(history: History, tenure: Tenure, lapse_s: float, due_s: float) -> bool:
    """Whether the run was taken, renewed, ended or replaced by then, or another run of the job was in the way."""
    won = tenure.won
    if due_s >= history.sim.end_s or any(lapse_s <= since <= due_s for since, _ in tenure.spans):
        return True
    if tenure.ended_s <= due_s:
        return True
    return any(
        other is not tenure
        and other.won.job == won.job
        and lapse_s - 1 <= (other.won.at_s if other.won.slot == won.slot else due_s)
        and (
            (other.won.slot == won.slot and other.won.attempt > won.attempt and other.won.at_s <= due_s)
            or (other.won.slot > won.slot and other.won.at_s <= due_s)
            or other.live(due_s)
            or other.live(lapse_s)
        )
        for other in history.tenures.values()
    )


@invariant("instance-watch-when")
def looks_are_few(history: History) -> Iterator[Found]:
    """A watch asks about once a heartbeat, and more only when something happened to the job."""
    for (who, job, slot), calls in history.claims.items():
        looks = [call for call in calls if call.request.mode == "takeover" and not call.failed]
        if len(looks) < 6:
            continue
        since_s, until_s = looks[0].sent_s, looks[-1].sent_s
        beat_s = min(spec.heartbeat_ms for spec in history.specs(history.nodes[who], job)) / 1000
        happened = sum(since_s - 1 <= at_s <= until_s for at_s in history.changes_of[job])
        hinted = sum(since_s - 1 <= at_s <= until_s for at_s in history.hinted.get((who, job), ()))
        most = 6 + (until_s - since_s) / beat_s + 2 * happened + hinted
        if len(looks) > most:
            text = f"{who} asks {len(looks)} times in {until_s - since_s:.3f} s for a run, at most {most:.0f} are due"
            yield Found(until_s, text, job, slot)


@invariant("instance-watch-active")
def all_is_looked_at_together(history: History) -> Iterator[Found]:
    """However much an instance watches, it looks once a heartbeat, and when a handler ends that was in the way."""
    for who, checks in history.checks.items():
        node = history.nodes[who]
        looks = [call for call in checks if call.name == "active"]
        if len(looks) < 6:
            continue
        since_s, until_s = looks[0].sent_s, looks[-1].sent_s
        beat_s = min(version.spec.heartbeat_ms for version in node.life.specs) / 1000
        failed = sum(bool(call.failed) for call in checks)
        gone = sum(since_s <= (one.ended_s or 0) <= until_s for one in history.executions if one.who == who)
        most = 6 + 2 * (until_s - since_s) / beat_s + failed + gone
        if len(looks) > most:
            text = f"{who} looks {len(looks)} times in {until_s - since_s:.3f} s, at most {most:.0f} are due"
            yield Found(until_s, text)


@invariant("instance-watch-until")
def a_run_that_was_started_ends(history: History) -> Iterator[Found]:
    """Nothing that was started is left behind while somebody is there."""
    quiet_s, at_s = history.sim.quiet_from_s, history.sim.stop_s - EPS_S  # just before everyone is stopped
    for (job, slot), tenures in history.runs.items():
        last = tenures[-1]
        if last.won.at_s > at_s or last.ended_s <= at_s:
            continue
        backups = [
            node
            for node in history.nodes.values()
            if history.well(node, job, quiet_s + EPS_S, at_s) and _knows(history, node, tenures[0])
        ]
        fresh = any(node.life.began_s >= quiet_s - EPS_S for node in backups)  # it has asked what is unfinished
        if not fresh or _replaced(history, job, slot, at_s):
            continue
        lapse_s = max(quiet_s + EPS_S, min(max(until for _, until in last.spans), last.over_s))
        due_s = lapse_s + _patience_s(history, backups, job)
        if due_s < at_s and not _in_the_way(history, job, slot, lapse_s, at_s):
            text = f"attempt {last.won.attempt} was over by {lapse_s:.3f}, and nobody ended the run"
            yield Found(due_s, text, job, slot)


def _knows(history: History, node: Node, first: Tenure) -> bool:
    """Whether the instance asked for the run, or came after it was won, or while it could be.

    Nobody but its holder knows of a run that was triggered.
    """
    job, slot, won_s = first.won.job, first.won.slot, first.won.at_s
    asked = [call for call in history.looks[node.name, job] if call.answered and call.by == "Recovery._work"]
    if (node.name, job, slot) in history.claims or any(call.sent_s >= won_s for call in asked):
        return True
    spec = node.spec(job, won_s)
    if spec is None or spec.max_late_ms is None or won_s > history.slot_s(slot) + spec.max_late_ms / 1000:
        return False
    return any(call.answer.now_ms // spec.every_ms == slot / spec.every_ms for call in asked)


def _patience_s(history: History, backups: list[Node], job: str) -> float:
    """How long a lease may be over before somebody in good health has seen to the run."""
    looks_s = max(2 * history.slowest_beat_s(node, job) + history.longest_spread_s(node, job) for node in backups)
    return looks_s + 1 + history.network.timeout_ms / 1000 * (1 if history.network.reliable else 3)


def _replaced(history: History, job: str, slot: int, at_s: float) -> bool:
    """Whether, under skip, a newer run started or was due: then this one may be left."""
    skip = any(spec.overlap == "skip" for node in history.nodes.values() for spec in history.specs(node, job))
    newer = any(
        other.won.job == job and other.won.slot > slot and other.won.at_s <= at_s for other in history.tenures.values()
    )
    return skip and newer


def _in_the_way(history: History, job: str, slot: int, since_s: float, until_s: float) -> bool:
    """Whether, under skip, another run of the job is live, or a handler that nobody may pass still executed."""
    skip = any(spec.overlap == "skip" for node in history.nodes.values() for spec in history.specs(node, job))
    if skip and any(
        other.live(until_s - EPS_S)
        for other in history.tenures.values()
        if other.won.job == job and other.won.slot != slot
    ):
        return True
    return all(
        history.executes(node, job, slot, since_s, until_s)
        for node in history.nodes.values()
        if history.well(node, job, since_s, until_s)
    )
