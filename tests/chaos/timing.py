"""Checks of how long things take: takeovers, hand-overs, stops."""

from collections.abc import Iterator
from itertools import pairwise

from .evidence import Harm, Life
from .holding import SLACK_MS, is_released
from .story import Attempt, Story
from .verdict import Excused, Finding, Measured, Violation, check

_AWAY_PART = 3
"""A store that was away for this part of a lease has let calls fail; for less, they have waited."""
_LONGEST_RETRY_MS = 10_000
_SETTLE_MS = 500


@check("instance-watch-when")
def a_silent_holder_is_replaced_within_its_lease(story: Story) -> Iterator[Finding]:
    """From its death, its freeze or its cut on, within the lease and a little, if a backup was well all the time."""
    for older, newer, at in takeovers(story):
        since = _silent_since(story, older, at)
        if since is not None and not is_released(older, newer) and at <= story.evidence.end:
            limit_ms = _lease_is_over_ms(story) + SLACK_MS
            yield from _in_time(story, "instance-watch-when", "takeover", older, newer, since, at, limit_ms)


@check("instance-stop-handlers")
def a_released_run_is_taken_soon(story: Story) -> Iterator[Finding]:
    """What a stopping holder released is run elsewhere within two heartbeats, hints or none."""
    for older, newer, at in takeovers(story):
        stopped = older.ended is not None and older.ended.more.get("reason") == "stop"
        if is_released(older, newer) and stopped and older.ended is not None and at <= story.evidence.end:
            spec = story.spec(newer)
            limit_ms = 2 * (spec.heartbeat_ms if spec else 0) + SLACK_MS
            rule = "instance-stop-handlers"
            yield from _in_time(story, rule, "hand-over", older, newer, older.ended.at, at, limit_ms)


def takeovers(story: Story) -> Iterator[tuple[Attempt, Attempt, float]]:
    """Attempts that replaced others, and when."""
    for attempts in story.runs.values():
        for older, newer in pairwise(attempts):
            if newer.number == older.number + 1 and newer.takeover is not None:
                yield older, newer, newer.takeover.at


def _lease_is_over_ms(story: Story) -> float:
    """How long after its last renewal a backup surely finds a lease over."""
    settings = story.settings
    granted = -(-settings.lease_ms // settings.granularity_ms) * settings.granularity_ms
    return granted + settings.late_ms + 2 * settings.clock_error_ms


def _silent_since(story: Story, older: Attempt, at: float) -> float | None:
    """When the holder was killed, frozen or cut off for good; None if it was silent for another reason."""
    life = story.lives.get(older.instance)
    if life is None:
        return None
    moments = [life.end] if life.how == "killed" and life.end <= at else []
    lease_ms = story.settings.lease_ms
    for harm in life.harms:
        silences = harm.kind != "lossy" and harm.span.begin <= at and harm.span.length() >= lease_ms
        if silences and (harm.span.end >= at or _lost_by(story, older, harm)):
            moments.append(harm.span.begin)
    return min(moments, default=None)


def _lost_by(story: Story, older: Attempt, harm: Harm) -> bool:
    """Whether the attempt was told that it had lost its lease because of this."""
    return older.told is not None and harm.span.meets(older.told.at, older.told.at + SLACK_MS)


def _in_time(
    story: Story, rule: str, what: str, older: Attempt, newer: Attempt, since: float, at: float, limit_ms: float
) -> Iterator[Finding]:
    since = max(since, older.at if older.at <= at else since)
    backups = [life for life in story.evidence.lives if _is_backup(story, life, older, since, at)]
    stall_ms = max((story.stall_ms(life.instance, since, at) for life in backups), default=0.0)
    stall_ms = max(stall_ms, story.stall_ms(newer.instance, since, at))
    away_ms = story.away_ms(since - story.settings.lease_ms, at)
    if backups and away_ms < story.settings.lease_ms / _AWAY_PART:
        yield Measured(what, at, max(at - since, 0), limit_ms)
        if at - since <= limit_ms:
            return
        if at - since <= limit_ms + stall_ms + away_ms:
            yield Excused(rule, at, f"the {what} was late by a stall of the machine or the store")
            return
        text = f"the {what} from {older} to {newer} took {at - since:.0f} ms, more than {limit_ms:.0f}"
        yield Violation(rule, at, text, older.job, older.slot, newer.instance)
        return
    yield from _in_time_after(story, rule, what, older, newer, max(since + limit_ms, 0), at, stall_ms)


def _in_time_after(
    story: Story, rule: str, what: str, older: Attempt, newer: Attempt, over: float, at: float, stall_ms: float
) -> Iterator[Finding]:
    """Nobody was well all the time: then soon after somebody was."""
    able = min((_able_since(story, life, older, at) for life in story.evidence.lives), default=at)
    patience_ms = 2 * story.settings.lease_ms / 3 + min(_LONGEST_RETRY_MS, story.settings.timeout_ms + at - over)
    limit = max(over, able + patience_ms) + SLACK_MS + stall_ms
    if at > limit:
        text = f"the {what} from {older} to {newer} came {at - limit:.0f} ms too late after the others were well again"
        yield Violation(rule, at, text, older.job, older.slot, newer.instance)
    else:
        yield Excused(rule, at, f"no backup was well all the time before the {what}")


def _is_backup(story: Story, life: Life, older: Attempt, since: float, at: float) -> bool:
    """Whether the instance was ready to take the run over, all the time."""
    begin = since - story.settings.lease_ms
    well = life.up(min(begin, older.at), at) and not life.harmed(min(begin, older.at), at)
    able = well and life.instance != older.instance and story.has_job(life, older.job, older.slot)
    return able and not life.clock_ahead_ms and not story.is_blocked(life, older, begin, at)


def _able_since(story: Story, life: Life, older: Attempt, at: float) -> float:
    """The moment after which the instance was well until this one, which it is itself if it was not."""
    if not (life.ready <= at <= min(life.end, life.stopping)) or not story.has_job(life, older.job, older.slot):
        return at
    if life.harmed(at, at) or story.is_blocked(life, older, at, at):
        return at
    ends = [harm.span.end for harm in life.harms if harm.span.end <= at]
    ends += [span.end for span in story.evidence.away if span.begin <= at]
    return min(max([life.ready, *ends]), at)


@check("instance-stop-order")
def a_stop_ends(story: Story) -> Iterator[Finding]:
    """A graceful stop returns after grace, what cancelled handlers may take, and one call to the store."""
    stopped = {note.instance: note.at for note in story.evidence.notes if note.kind == "stopped"}
    stopping = {note.instance: note.at for note in story.evidence.notes if note.kind == "stopping"}
    settings = story.settings
    limit_ms = settings.grace_ms + _SETTLE_MS + settings.timeout_ms + 1_000
    for life in story.evidence.lives:
        if life.how != "stopped" or life.instance not in stopping:
            continue
        begin = stopping[life.instance]
        took_ms = stopped.get(life.instance, life.end) - begin
        yield Measured("stop", begin, took_ms, limit_ms)
        if life.code:
            text = f"{life.instance} ended with exit code {life.code}"
            yield Violation("instance-stop-order", life.end, text, instance=life.instance)
        if took_ms > limit_ms + story.stall_ms(life.instance, begin, begin + took_ms):
            text = f"the stop of {life.instance} took {took_ms:.0f} ms, more than {limit_ms}"
            yield Violation("instance-stop-order", begin, text, instance=life.instance)
