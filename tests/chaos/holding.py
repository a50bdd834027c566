"""Checks of who holds a run: one at a time, told in time, taken over only when silent, fences that rise."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from .evidence import Harm, Life
from .story import ENDED, Attempt, Story
from .verdict import Excused, Finding, Violation, check

SLACK_MS = 300
"""What a timer, a thread and a loop may take on a machine that does not stall."""
_EARLY_MS = 1_000
"""A run may be won so long before its slot."""
_PART = 0.15
"""A stall of this part of a lease may lose it: two heartbeats fit into one."""


@check("instance-deadline")
def a_holder_is_told_before_another_starts(story: Story) -> Iterator[Finding]:
    """Two handlers of one fence scope may execute at once only if the older was told to stop before, or was frozen."""
    for attempts in story.scopes.values():
        ordered = sorted(attempts, key=lambda one: one.fence)
        for index, older in enumerate(ordered):
            span = story.executes(older)
            for newer in ordered[index + 1 :]:
                if span is not None and newer.begun is not None and newer.begun < span.end:
                    yield from _overlap(story, older, newer, newer.begun)


def _overlap(story: Story, older: Attempt, newer: Attempt, at: float) -> Iterator[Finding]:
    rule, told = "instance-deadline", older.told.at if older.told else float("inf")
    if told <= at:
        yield Excused(rule, at, "a handler that was told to stop goes on")
        return
    life = story.lives.get(older.instance)
    frozen = [harm.span for harm in life.harms if harm.kind == "frozen" and harm.span.meets(at, at)] if life else []
    awake = max((span.end for span in frozen), default=at)
    limit = awake + SLACK_MS + story.stall_ms(older.instance, at, awake + SLACK_MS)
    span = story.executes(older)
    ended = bool(frozen) and span is not None and span.end <= limit
    if told <= limit or ended:
        why = "the holder was frozen, and told when it awoke" if frozen else "told at the same moment"
        yield Excused(rule, at, why)
        return
    text = f"{newer} began while {older} was executing, which {'was told late' if older.told else 'was never told'}"
    yield Violation(rule, at, text, older.job, older.slot, older.instance)


@check("instance-deadline")
def a_holder_that_cannot_renew_stops(story: Story) -> Iterator[Finding]:
    """A holder that was cut off, or frozen for longer than its lease, is told by its own deadline."""
    for life in story.evidence.lives:
        for harm in life.harms:
            if harm.kind != "lossy":
                yield from _told_in_time(story, life, harm)
    for fault in story.evidence.faults:
        if fault.kind == "store pause":
            for life in story.evidence.lives:
                yield from _told_in_time(story, life, Harm("cut", fault.span))


def _told_in_time(story: Story, life: Life, harm: Harm) -> Iterator[Finding]:
    lease_ms, frozen = story.settings.lease_ms, harm.kind == "frozen"
    if harm.span.end - harm.span.begin <= lease_ms + SLACK_MS:
        return
    begin = harm.span.end if frozen else harm.span.begin + lease_ms
    limit = begin + SLACK_MS + story.stall_ms(life.instance, harm.span.begin, begin + SLACK_MS)
    # A freeze meanwhile is a harm of its own.
    if not frozen and (life.harmed(harm.span.begin, limit, "frozen") or limit > harm.span.end):
        return
    for attempt in story.executing(life.instance, harm.span.begin):
        span = story.executes(attempt)
        if span is None or span.end <= limit or life.end <= limit:
            continue
        if attempt.told is None or attempt.told.at > limit:
            text = f"{attempt} had no lease {'when it awoke' if frozen else 'any more'}, and was not told in time"
            yield Violation("instance-deadline", limit, text, attempt.job, attempt.slot, life.instance)


@check("instance-lease-kept")
def nobody_who_lives_is_taken_over(story: Story) -> Iterator[Finding]:
    """A run is taken over only if its holder released it, or was silent for a lease for a reason that is known."""
    for attempts in story.runs.values():
        for older, newer in pairwise(attempts):
            at = (newer.takeover or newer.won).at if newer.takeover or newer.won else newer.at
            if newer.number == older.number + 1 and not is_released(older, newer) and older.won is not None:
                yield from _why_silent(story, older, at)


def _why_silent(story: Story, older: Attempt, at: float) -> Iterator[Finding]:
    rule, life = "instance-lease-kept", story.lives.get(older.instance)
    lost = min([at, *(note.at for note in (older.told, older.ended) if note is not None)])
    begin = lost - story.settings.lease_ms - story.settings.late_ms - SLACK_MS
    if life is None or at > story.evidence.end:
        return
    if life.end <= at or life.stopping <= at or life.harmed(begin, at):
        return  # that is what takeovers are for
    if story.away(begin, at):
        yield Excused(rule, at, "the store was away or slow")
        return
    if story.fails(older.instance, begin, at):
        yield Excused(rule, at, "calls of its holder failed, which must have a cause of its own")
        return
    if story.stall_ms(older.instance, begin, at) > _PART * story.settings.lease_ms:
        yield Excused(rule, at, "the machine stalled its holder for a good part of its lease")
        return
    yield Violation(rule, at, f"{older} lives, and was taken over", older.job, older.slot, older.instance)


def is_released(older: Attempt, newer: Attempt) -> bool:
    """Whether the newer attempt was told that the older one had been released."""
    lost = newer.takeover.more.get("previous", []) if newer.takeover else []
    return any(slot == older.slot and number == older.number and released for slot, number, _, _, released in lost)


@check("word-fence")
def fences_rise(story: Story) -> Iterator[Finding]:
    """Each attempt of a job has a greater fence than any earlier one."""
    of_job: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in story.attempts.values():
        if attempt.fence:
            of_job[attempt.job].append(attempt)
    for attempts in of_job.values():
        attempts.sort(key=lambda one: one.fence)
        for older, newer in pairwise(attempts):
            if why := _misordered(story, older, newer):
                yield Violation("word-fence", newer.at, f"{newer} and {older}: {why}", newer.job, newer.slot)


def _misordered(story: Story, smaller: Attempt, greater: Attempt) -> str:
    if smaller.fence == greater.fence:
        return "two attempts have one fence"
    if smaller.slot == greater.slot:
        return "" if smaller.number < greater.number else "a later attempt has a smaller fence"
    # The one with the greater fence started before the other one's slot was due.
    if greater.slot < smaller.slot and greater.at < story.monotonic(smaller.slot) - _EARLY_MS:
        return "a run of a later slot has a smaller fence"
    spec = story.spec(smaller)
    if spec is not None and spec.overlap == "skip" and greater.slot < smaller.slot:
        return "under skip an older run was owned after a newer one had started"
    return ""


@check("word-fence")
def the_journal_refuses_smaller_fences(story: Story) -> Iterator[Finding]:
    """No line is accepted after one with a greater fence of the same scope."""
    greatest: dict[str, int] = {}
    for entry in story.evidence.journal:
        if not entry.accepted:
            yield Excused("word-fence", entry.at, "a stale handler's write was refused")
            continue
        if entry.fence < greatest.get(entry.scope, 0):
            text = f"a write with fence {entry.fence} was accepted after one with {greatest[entry.scope]}"
            yield Violation("word-fence", entry.at, text, entry.job, entry.slot, entry.instance)
        greatest[entry.scope] = max(entry.fence, greatest.get(entry.scope, 0))


@check("finish-holds")
def a_run_ends_once(story: Story) -> Iterator[Finding]:
    """One attempt at most ends a run, and none begins after it."""
    for (job, slot), attempts in story.runs.items():
        ended = [one for one in attempts if _ends(one)]
        if len(ended) > 1:
            text = f"it was ended by {' and by '.join(map(str, ended))}"
            yield Violation("finish-holds", _ended_at(ended[-1]), text, job, slot)
        elif ended and ended[0] is not attempts[-1]:
            text = f"{attempts[-1]} followed {ended[0]}, which had ended it"
            yield Violation("finish-holds", attempts[-1].at, text, job, slot)


def _ends(attempt: Attempt) -> bool:
    recorded = attempt.record is not None and attempt.record.status in ("success", "failed")
    return recorded or (attempt.ended is not None and attempt.ended.kind in ENDED[:2])


def _ended_at(attempt: Attempt) -> float:
    return attempt.ended.at if attempt.ended else attempt.at
