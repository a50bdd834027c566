"""Checks of what is remembered: every slot is answered for, and every attempt has its record."""

from collections.abc import Iterator

from .evidence import Life, Note
from .story import Attempt, Story
from .verdict import Excused, Finding, Violation, check
from .workload import JITTER_MS, JobSpec

_BEFORE_MS = 200
_AFTER_MS = 700
"""Around its slot an instance that is well claims it."""
_SETTLE_LEASES = 6
"""Runs that are due so short before the end may be unfinished then."""
_SOON_MS = 3_000
"""What has happened to a saver by then may have kept it from saving."""
_NEXT = 30
"""Newer runs that may have superseded one."""


@check("claim-order")
def every_slot_is_answered_for(story: Story) -> Iterator[Finding]:
    """A slot that somebody was well enough to claim ends once, or somebody says why it did not."""
    begin = story.evidence.begin + story.evidence.wall_ahead
    end = story.evidence.end + story.evidence.wall_ahead - _SETTLE_LEASES * story.settings.lease_ms
    asked: set[tuple[str, int]] = set()
    for life in story.evidence.lives:
        for spec in story.evidence.jobs(life.version).values():
            first = -int(-max(begin, life.ready + story.evidence.wall_ahead) // spec.period_ms)
            last = int(min(end, life.end + story.evidence.wall_ahead) // spec.period_ms)
            for slot in range(first * spec.period_ms, (last + 1) * spec.period_ms, spec.period_ms):
                if (spec.name, slot) not in asked and _is_well(story, life, slot):
                    asked.add((spec.name, slot))
                    yield from _answered(story, spec, slot)


def _is_well(story: Story, life: Life, slot: int) -> bool:
    """Whether the instance surely claims the slot, and hears what becomes of its claim."""
    due = story.monotonic(slot)
    begin, end = due - _BEFORE_MS, due + JITTER_MS + _AFTER_MS
    if story.away(begin, end):
        end += story.settings.timeout_ms + 1_000
    well = life.up(begin, end) and not life.clock_ahead_ms and not life.harmed(begin, end)
    return well and story.stall_ms(life.instance, begin, end) < _AFTER_MS / 2


def _answered(story: Story, spec: JobSpec, slot: int) -> Iterator[Finding]:
    rule, due = "claim-order", story.monotonic(slot)
    attempts, reasons = story.runs.get((spec.name, slot), []), story.reasons.get((spec.name, slot), [])
    notes = story.notes_of.get((spec.name, slot), [])
    if any(_has_ended(one) for one in attempts) or reasons:
        return
    if any(_names(note) for note in notes):
        return
    if any(note.kind == "error" and note.more.get("call") == "claim" for note in notes) and not attempts:
        yield Excused(rule, due, "its claim failed, and was given up when it was too late")
        return
    newer = _newer(story, spec.name, slot)
    if spec.overlap == "skip" and newer and not attempts:
        yield Excused(rule, due, "a newer run had started before anybody claimed it")
        return
    if spec.overlap == "skip" and any(not _saves(story, one.instance, one.at) for one in newer):
        yield Excused(rule, due, "who superseded it ended before that was recorded")
        return
    if attempts and any(_finished_and_died(story, one) for one in attempts):
        yield Excused(rule, due, "its holder ended between its end and its record")
        return
    if _unsettled(story, notes, known=bool(attempts)):
        yield Excused(rule, due, "the store was away, slow or overloaded until the very end")
        return
    told = "; ".join(str(one) for one in attempts) or "nobody started it"
    yield Violation(rule, due, f"no one says what became of it: {told}", spec.name, slot)


def _unsettled(story: Story, notes: list[Note], *, known: bool) -> bool:
    """Whether a run that somebody knows of could not be brought to its end before all were stopped."""
    end = story.evidence.end
    known = known or any(note.kind == "skip" and note.more.get("reason") == "taken" for note in notes)
    begin = end - _SETTLE_LEASES * story.settings.lease_ms / 2
    failing = any(story.fails(life.instance, begin, end) for life in story.evidence.lives)
    return known and (failing or story.away(begin, end))


def _has_ended(attempt: Attempt) -> bool:
    if attempt.record is not None and attempt.record.status in ("success", "failed"):
        return True
    return attempt.ended is not None and attempt.ended.kind in ("success", "failure")


def _names(note: Note) -> bool:
    """Whether the event says why the slot was not run."""
    if note.kind == "exhausted":
        return True
    if note.kind == "interrupted":
        return note.more.get("reason") in ("superseded", "exhausted")
    return note.kind == "skip" and note.more.get("reason") in ("late", "overlap", "early")


def _newer(story: Story, job: str, slot: int) -> list[Attempt]:
    """The attempts of the job's next runs."""
    slots = [one for one in story.slots.get(job, []) if one > slot][:_NEXT]
    return [attempt for one in slots for attempt in story.runs[job, one]]


def _saves(story: Story, instance: str, at: float) -> bool:
    """Whether an instance that had something to save at this moment surely did."""
    life = story.lives.get(instance)
    if life is None:
        return False
    end = at + _SOON_MS
    return min(life.end, life.stopping) > end and not life.harmed(at - _SOON_MS, end) and not story.away(at, end)


def _finished_and_died(story: Story, attempt: Attempt) -> bool:
    """Whether its handler came to its end and its instance to its own before it had told of it."""
    life = story.lives.get(attempt.instance)
    return attempt.handler_ended is not None and life is not None and life.how == "killed" and attempt.ended is None


@check("instance-crashed-records")
def every_attempt_has_its_record(story: Story) -> Iterator[Finding]:
    """Of each attempt history has one record, saved by its holder or by who replaced it, and it says the same."""
    for (job, _), attempts in story.runs.items():
        for index, attempt in enumerate(attempts):
            if attempt.at > story.evidence.end:
                continue
            if attempt.record is not None:
                yield from _agrees(story, attempt)
            else:
                following = attempts[index + 1] if index + 1 < len(attempts) else None
                yield from _missing(story, job, attempt, following)


def _agrees(story: Story, attempt: Attempt) -> Iterator[Finding]:
    record, rule = attempt.record, "instance-crashed-records"
    assert record is not None
    if (record.instance, record.fence) != (attempt.instance, attempt.fence):
        text = f"its record is of {record.instance} with fence {record.fence}, and it was {attempt}"
        yield Violation(rule, attempt.at, text, attempt.job, attempt.slot)
    if attempt.ended is not None:
        status = {"success": "success", "failure": "failed", "interrupted": "interrupted"}[attempt.ended.kind]
        if record.status == "crashed" and _failed_to_save(story, attempt):
            yield Excused(rule, attempt.at, "its record could not be saved before its saver ended")
        elif record.status != status:
            text = f"{attempt} told {attempt.ended.kind}, and its record says {record.status}"
            yield Violation(rule, attempt.ended.at, text, attempt.job, attempt.slot)


def _missing(story: Story, job: str, attempt: Attempt, following: Attempt | None) -> Iterator[Finding]:
    rule, slot = "instance-crashed-records", attempt.slot
    if _failed_to_save(story, attempt):
        yield Excused(rule, attempt.at, "its record could not be saved before its saver ended")
    elif attempt.ended is not None:
        yield Violation(rule, attempt.ended.at, f"{attempt} told its end, and has no record", job, slot)
    elif following is not None:
        if following.takeover is not None and _saves(story, following.instance, following.at):
            text = f"{following} replaced {attempt}, which has no record"
            yield Violation(rule, following.at, text, job, slot)
        else:
            yield Excused(rule, attempt.at, "a winner ended in between")
    elif _finished_and_died(story, attempt):
        yield Excused(rule, attempt.at, "its holder ended between its end and its record")
    else:
        yield from _missing_of_the_last(story, job, attempt)


def _missing_of_the_last(story: Story, job: str, attempt: Attempt) -> Iterator[Finding]:
    """Nobody took the run over, so a newer run has superseded it, or it is exhausted."""
    rule, life = "instance-crashed-records", story.lives.get(attempt.instance)
    newer = _newer(story, job, attempt.slot)
    exhausting = [note for note in story.notes_of[job, attempt.slot] if note.kind == "exhausted"]
    savers = [(note.instance, note.at) for note in exhausting] or [(one.instance, one.at) for one in newer[:1]]
    if savers and all(_saves(story, *saver) for saver in savers) and attempt.handler_ended is None:
        text = f"{attempt} has no record, and who came after it was well"
        yield Violation(rule, attempt.at, text, job, attempt.slot)
    elif savers or (life is not None and life.how == "killed"):
        yield Excused(rule, attempt.at, "a winner ended in between")
    else:
        yield Violation(rule, attempt.at, f"{attempt} has no record, no end and no successor", job, attempt.slot)


def _failed_to_save(story: Story, attempt: Attempt) -> bool:
    """Whether a record of this slot could not be saved, until the instance that wanted to was gone."""
    failed = [
        note.instance
        for note in story.notes_of[attempt.job, attempt.slot]
        if note.kind == "error" and note.more.get("call") == "save_result"
    ]
    return any(story.lives[instance].how != "lives" for instance in failed)
