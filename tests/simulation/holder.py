"""Invariants of holders: leases, deadlines, heartbeats, and how attempts end."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise, zip_longest

from .history import ENDS, NEVER, History, Tenure, frozen, frozen_s, thawed_by, told_before_end
from .invariants import EPS_S, Found, invariant
from .timeline import Call, Execution


def _tenure(history: History, one: Execution) -> Tenure | None:
    return history.tenures.get((one.job, one.slot, one.attempt))


def _confirmed(history: History, tenure: Tenure) -> list[Call]:
    """The calls that told the holder that it has the lease, as they were answered."""
    calls = [
        call
        for call in history.of_token(tenure.won.token, "claim", "heartbeat")
        if call.answered and (call.answer is True or (call.name == "claim" and call.answer.outcome == "won"))
    ]
    return sorted(calls, key=lambda call: call.ended_seq)


def _deadline_s(history: History, tenure: Tenure) -> float:
    """When the holder's own deadline first passed unconfirmed."""
    deadline_s = -NEVER
    lease_s = history.by_token[tenure.won.token][0].request.lease_ms / 1000
    for call in _confirmed(history, tenure):
        assert call.ended_s is not None
        if deadline_s != -NEVER and call.ended_s > deadline_s:
            break
        deadline_s = max(deadline_s, call.sent_s + lease_s)
    return deadline_s


_BLOCKED_S = 12.0
"""So long the application's loop may be blocked, and so late an instance may hear that a handler has ended."""


@invariant("instance-deadline")
def own_deadline(history: History) -> Iterator[Found]:
    """A holder stops its handler by its own deadline."""
    for one in history.executions:
        tenure = _tenure(history, one)
        if tenure is None:
            continue
        deadline_s, free_s = _deadline_s(history, tenure), history.free_until_s(one)
        if free_s > deadline_s + EPS_S and not thawed_by(history.nodes[one.who], deadline_s, free_s):
            late_s = free_s - deadline_s
            text = f"{one.who} was not told to stop {one.job} by its deadline {deadline_s:.3f}, {late_s:.3f} s late"
            yield Found(deadline_s, text, one.job, one.slot)


@invariant("instance-deadline")
def lease_is_live(history: History) -> Iterator[Found]:
    """While a handler believes in its lease, that is live in the store."""
    for one in history.executions:
        tenure = _tenure(history, one)
        if tenure is None:
            yield Found(one.began_s, f"{one.who} runs an attempt that the store knows nothing of", one.job, one.slot)
            continue
        lapse_s, free_s = tenure.lapses_s(one.began_s), history.free_until_s(one)
        if free_s > lapse_s + EPS_S and not thawed_by(history.nodes[one.who], lapse_s, free_s):
            text = f"{one.who} goes on with {one.job} after its lease was over at {lapse_s:.3f}, until {free_s:.3f}"
            yield Found(lapse_s, text, one.job, one.slot)


@invariant("instance-late-won")
def late_won_starts_nothing(history: History) -> Iterator[Found]:
    """A handler starts only before the deadline of its win."""
    for one in history.executions:
        tenure = _tenure(history, one)
        if tenure is not None and one.began_s > _deadline_s(history, tenure) + EPS_S:
            yield Found(one.began_s, f"{one.who} starts {one.job} after its lease was over", one.job, one.slot)


@invariant("claim-own-rules")
def one_holder(history: History) -> Iterator[Found]:
    """Under skip no two handlers of a job believe at once that they may go on."""
    of_job: dict[str, list[Execution]] = defaultdict(list)
    for one in history.executions:
        if one.overlap == "skip":
            of_job[one.job].append(one)
    for executions in of_job.values():
        for one in executions:
            free_s = _free_unfrozen_s(history, one)
            for other in executions:
                if one is not other and one.began_s < other.began_s < free_s - EPS_S:
                    text = f"{other.who} starts attempt {other.attempt} of {other.slot} while {one.who} goes on"
                    yield Found(other.began_s, text, one.job, one.slot)


def _free_unfrozen_s(history: History, one: Execution) -> float:
    """Until when it took steps in good faith; one that is frozen takes none, and is excused when it wakes up."""
    free_s = history.free_until_s(one)
    for span in history.nodes[one.who].life.frozen:
        if span.since_s <= free_s <= span.until_s + EPS_S:
            return span.since_s
    return free_s


@invariant("word-attempt")
def one_execution_of_an_attempt(history: History) -> Iterator[Found]:
    """An attempt is executed once."""
    seen = set()
    for one in history.executions:
        key = (one.job, one.slot, one.attempt)
        if key in seen:
            yield Found(one.began_s, f"{one.who} executes attempt {one.attempt} again", one.job, one.slot)
        seen.add(key)


@invariant("claim-fence")
def fences_rise(history: History) -> Iterator[Found]:
    """Each win of a job has a greater fence, and the handler is given that one."""
    last: dict[str, int] = defaultdict(int)
    for tenure in sorted(history.tenures.values(), key=lambda tenure: tenure.won.seq):
        won = tenure.won
        if won.fence <= last[won.job]:
            yield Found(won.at_s, f"fence {won.fence} after {last[won.job]}", won.job, won.slot)
        last[won.job] = won.fence
    for one in history.executions:
        tenure = _tenure(history, one)
        if tenure is not None and one.fence != tenure.won.fence:
            yield Found(one.began_s, f"the handler has fence {one.fence}, not {tenure.won.fence}", one.job, one.slot)


@invariant("instance-lease-kept")
def lease_is_kept(history: History) -> Iterator[Found]:
    """A lease is not given up, and a run not ended, while the handler executes; but for its timeout."""
    for token, one in history.executed.items():
        ended_seq = one.ended_seq if one.ended_s is not None else NEVER
        for call in history.of_token(token, "release", "finish"):
            if one.began_seq < call.sent_seq < ended_seq and not (call.name == "finish" and history.timed_out(one)):
                text = f"{one.who} sends {call.name} while its handler executes"
                yield Found(call.sent_s, text, one.job, one.slot)


@invariant("instance-heartbeats")
def one_heartbeat_at_a_time(history: History) -> Iterator[Found]:
    for token, one in history.executed.items():
        beats = history.of_token(token, "heartbeat")
        for before, after in pairwise(beats):
            if before.ended_s is None or after.sent_seq < before.ended_seq:
                text = f"{one.who} sends a heartbeat while one is on its way"
                yield Found(after.sent_s, text, one.job, one.slot)


@invariant("instance-heartbeats")
def heartbeats_go_on(history: History) -> Iterator[Found]:
    """Heartbeats come in time until the handler has ended."""
    for one, since_s, until_s in _silences(history):
        if one.ended_s is None or until_s <= one.ended_s:
            text = f"{one.who} sends no heartbeat from {since_s:.3f} to {until_s:.3f}"
            yield Found(until_s, text, one.job, one.slot)


@invariant("instance-finish-stored")
def heartbeats_until_finish(history: History) -> Iterator[Found]:
    """Heartbeats go on until the end is stored."""
    for one, since_s, until_s in _silences(history):
        if one.ended_s is not None and until_s > one.ended_s:
            text = f"{one.who} sends no heartbeat from {since_s:.3f} to {until_s:.3f} though its end is not stored"
            yield Found(until_s, text, one.job, one.slot)


def _silences(history: History) -> Iterator[tuple[Execution, float, float]]:
    """Times that are too long without a heartbeat while one was due."""
    for token, one in history.executed.items():
        node = history.nodes[one.who]
        claims = [call for call in history.of_token(token, "claim") if call.answered]
        if not claims:
            continue
        lease_s = claims[0].request.lease_ms / 1000
        beat_s = min(history.slowest_beat_s(node, one.job), lease_s / 2)
        longest_s = beat_s * 1.25 + history.network.timeout_ms / 1000 + 0.01
        sent_s = [call.sent_s for call in history.of_token(token, "heartbeat")]
        needed_s = _needed_until_s(history, one, token)
        times = [claims[0].ended_s or 0.0, *sent_s, needed_s]
        for before, after in pairwise(times):
            if min(after, needed_s) - before - frozen_s(node, before, after) > longest_s:
                yield one, before, min(after, needed_s)


def _needed_until_s(history: History, one: Execution, token: str) -> float:
    """Until when its lease had to be renewed."""
    node = history.nodes[one.who]
    ends = [call.ended_s for call in history.of_token(token, "finish", "release") if call.answered]
    ends += [call.ended_s for call in history.of_token(token, "heartbeat") if call.answered and call.answer is False]
    if one.reason == "lost" and told_before_end(one):
        ends.append(history.end_s(one))
    if node.life.stop_s is not None:
        tenure = _tenure(history, one)
        assert tenure is not None
        executes_s = 0.0 if history.timed_out(one) else history.end_s(one)
        ends.append(max(executes_s, node.life.stop_s, _deadline_s(history, tenure)))
    crashed_s = node.life.gone_s if node.life.stop_s is None else NEVER
    return min([crashed_s, history.sim.end_s, *(end for end in ends if end is not None)])


@invariant("instance-finish-stored")
def finish_is_repeated(history: History) -> Iterator[Found]:
    """A finish or release that failed is sent again, often while the lease may be held."""
    for token, one in history.executed.items():
        node = history.nodes[one.who]
        calls = history.of_token(token, "finish", "release")
        for call, after in zip_longest(calls, calls[1:]):
            if not call.failed or call.ended_s is None:
                continue
            tenure = _tenure(history, one)
            assert tenure is not None
            refused = any(beat.answer is False for beat in history.of_token(token, "heartbeat"))
            held = call.ended_s < _deadline_s(history, tenure) - EPS_S and not refused
            lease_s = history.by_token[token][0].request.lease_ms / 1000
            due_s = call.ended_s + (lease_s / 10 if held else 10.0) + EPS_S
            next_s = NEVER if after is None else after.sent_s
            stopping = node.life.stop_s is not None and node.life.stop_s < due_s and not held
            gone = history.sim.end_s <= due_s or (node.life.stop_s is None and node.life.gone_s <= due_s)
            if next_s > due_s and not (stopping or gone or frozen(node, call.ended_s, due_s)):
                text = f"{one.who} does not repeat its {call.name} that failed at {call.ended_s:.3f}"
                yield Found(due_s, text, one.job, one.slot)


@invariant("instance-finish-stored")
def no_takeover_of_its_own_end(history: History) -> Iterator[Found]:
    """While an instance has a run's end to store, it does not ask for that run's next attempt."""
    for token, one in history.executed.items():
        finishes = history.of_token(token, "finish")
        if not finishes:
            continue
        since_seq = max(finishes[0].sent_seq, one.ended_seq if one.ended_s is not None else 0)
        for call in history.claims.get((one.who, one.job, one.slot), ()):
            if since_seq < call.sent_seq < finishes[-1].ended_seq and call.request.after == one.attempt:
                text = f"{one.who} asks for the next attempt of a run whose end it is storing"
                yield Found(call.sent_s, text, one.job, one.slot)


@invariant("instance-ending")
def ends_as_it_ended(history: History) -> Iterator[Found]:
    """What is stored as a run's end is what its handler did."""
    for token, one in history.executed.items():
        told = told_before_end(one) and one.reason != "timeout"
        for call in history.of_token(token, "finish"):
            timed_out = call.request == "failed" and history.timed_out(one)
            right = "success" if one.how == "returned" else "failed"
            if not timed_out and (call.request != right or (right == "failed" and told and one.told_s != one.ended_s)):
                text = f"{one.who} sends finish {call.request} for a handler that ended by {one.how or 'nothing'}"
                yield Found(call.sent_s, text, one.job, one.slot)


@invariant("instance-ending")
def each_end_is_stored(history: History) -> Iterator[Found]:
    """A handler that returned or raised by itself is finished at once."""
    for token, one in history.executed.items():
        node = history.nodes[one.who]
        if one.ended_s is None or (one.told_s is not None and one.told_s <= one.ended_s and one.how != "returned"):
            continue
        crashed_s = node.life.gone_s if node.life.stop_s is None else NEVER
        finishes = history.of_token(token, "finish")
        if (
            not finishes
            and one.ended_s + _BLOCKED_S < min(crashed_s, history.sim.end_s)
            and not frozen(node, one.ended_s, one.ended_s + EPS_S)
        ):
            yield Found(one.ended_s, f"{one.who} does not send finish", one.job, one.slot)


@invariant("instance-timeout")
def timeout_is_kept(history: History) -> Iterator[Found]:
    """A handler that is too slow is told, and its run is failed at once."""
    for token, one in history.executed.items():
        node = history.nodes[one.who]
        timeouts = {spec.timeout_ms for spec in history.specs(node, one.job)}
        if len(timeouts) != 1 or None in timeouts:
            continue
        due_s = one.began_s + timeouts.pop() / 1000  # type: ignore[operator]
        if history.end_s(one) <= due_s + EPS_S or frozen(node, one.began_s, due_s + EPS_S):
            continue
        if one.told_s is None or one.told_s > due_s + EPS_S:
            yield Found(due_s, f"{one.who} does not tell its handler that its time is over", one.job, one.slot)
        elif not any(call.sent_s <= due_s + EPS_S for call in history.of_token(token, "finish")):
            yield Found(due_s, f"{one.who} does not send finish when time is over", one.job, one.slot)


@invariant("instance-stop-handlers")
def only_a_stop_gives_back(history: History) -> Iterator[Found]:
    """A run that was started is released only because of a stop: an attempt that was lost is used up."""
    for token, one in history.executed.items():
        for call in history.of_token(token, "release"):
            if one.reason != "stop" or one.how == "returned":
                text = f"{one.who} gives back an attempt that it lost ({one.reason or 'no reason'}, {one.how})"
                yield Found(call.sent_s, text, one.job, one.slot)


@invariant("instance-finish-decides")
def events_tell_the_truth(history: History) -> Iterator[Found]:
    """Success and failure are told only of what the store has as such, once a run; each execution is told of once."""
    ended: set[tuple[str, int]] = set()
    told: set[tuple[str, int, int]] = set()
    for node, at_s, seq, event in history.events(*ENDS):
        tenure = history.tenures.get((event.job, event.slot, event.attempt))
        token = tenure.won.token if tenure is not None else ""
        stored = any(call.answer is True and call.ended_seq < seq for call in history.of_token(token, "finish"))
        if stored != (event.kind != "interrupted"):
            yield Found(
                at_s, f"{node.name} tells {event.kind}, and the store has it differently", event.job, event.slot
            )
        if event.kind != "interrupted":
            if (event.job, event.slot) in ended:
                yield Found(at_s, f"{node.name} tells of a second end", event.job, event.slot)
            ended.add((event.job, event.slot))
        if (event.job, event.slot, event.attempt) in told:
            yield Found(at_s, f"{node.name} tells twice of attempt {event.attempt}", event.job, event.slot)
        told.add((event.job, event.slot, event.attempt))
    for one in history.executions:
        node = history.nodes[one.who]
        closed = node.life.stop_s is not None and node.life.closed_s is not None
        if closed and one.ended_s is not None and (one.job, one.slot, one.attempt) not in told:
            yield Found(one.ended_s, f"{one.who} never tells how its handler ended", one.job, one.slot)


@invariant("instance-ending-order")
def first_stored_then_recorded_then_told(history: History) -> Iterator[Found]:
    for call in history.calls:
        if call.name != "save_result" or call.request.status not in ("success", "failed"):
            continue
        tenure = history.tenures.get((call.job, call.slot, call.request.attempt))
        token = tenure.won.token if tenure is not None else ""
        finishes = history.of_token(token, "finish")
        if not any(finish.answer is True and finish.ended_seq < call.sent_seq for finish in finishes):
            text = f"{call.who} records {call.request.status} before it is stored"
            yield Found(call.sent_s, text, call.job, call.slot)
    for node, at_s, seq, event in history.events("success", "failure"):
        saves = [
            call
            for call in node.link.calls
            if call.name == "save_result" and (call.job, call.slot) == (event.job, event.slot) and call.request.attempt
        ]
        if not any(call.sent_seq < seq and 0 < call.ended_seq < seq for call in saves):
            yield Found(at_s, f"{node.name} tells {event.kind} before it is recorded", event.job, event.slot)


@invariant("instance-crashed-records")
def each_attempt_has_a_record(history: History) -> Iterator[Found]:
    """Unless whoever learned of it died before it could save one."""
    reported = _reported(history)
    for key, tenure in history.tenures.items():
        if key not in history.records and any(_lived_on(history, *told) for told in reported.get(key, ())):
            job, slot, attempt = key
            yield Found(tenure.won.at_s, f"attempt {attempt} ({tenure.status}) has no record", job, slot)


def _reported(history: History) -> dict[tuple[str, int, int], list[tuple[str, float]]]:
    """By attempt: who was told that it is over, and when."""
    found: dict[tuple[str, int, int], list[tuple[str, float]]] = defaultdict(list)
    for call in history.calls:
        if call.name == "claim" and call.answered and call.ended_s is not None:
            if call.request.mode == "takeover" and call.request.after == 0 and call.answer.outcome == "done":
                continue  # a holder asks why it lost: whoever exhausted the run was told before
            for lost in call.answer.previous:
                found[call.job, lost.slot, lost.attempt].append((call.who, call.ended_s))
    for node, at_s, _, event in history.events(*ENDS):
        found[event.job, event.slot, event.attempt].append((node.name, at_s))
    return found


def _lived_on(history: History, who: str, since_s: float) -> bool:
    """Whether it could reach the store long enough after that."""
    node, until_s = history.nodes[who], since_s + 2 * history.network.timeout_ms / 1000 + 1
    if not history.network.reliable:
        until_s += 10
    spans = (*node.life.troubles, *node.life.frozen, *history.sim.store_troubles)
    return until_s < node.life.gone_s and all(span.until_s < since_s or until_s < span.since_s for span in spans)
