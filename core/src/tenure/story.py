"""The story of one slot in order, from what the store knows: due, claimed, lost, taken over, ended, and what to do."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Literal

from tenure.duration import to_text
from tenure.history import Row
from tenure.model import ActiveRun, JobCard
from tenure.outlook import next_slot, overdue_at_ms, starts_within_ms
from tenure.schedule import Schedule, schedule_of

Kind = Literal["due", "claim", "takeover", "end", "lost", "released", "running", "unstarted", "missed", "note"]

NOTHING_TO_DO = "nothing to do"
"""The advice for a run that went well."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened, or did not; ``at_ms`` is None where nobody knows when."""

    kind: Kind
    text: str
    at_ms: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """What became of a slot, and what to do about it in a line."""

    job: str
    slot: int
    status: str
    lines: tuple[Line, ...]
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was read of a job: all rows, the newest first, its unfinished runs, its card if there is one.

    ``gone``: instances tell of other jobs, and of this one no more.
    """

    job: str
    now_ms: int
    rows: Sequence[Row]
    active: Sequence[ActiveRun] = ()
    card: JobCard | None = None
    gone: bool = False

    @property
    def schedule(self) -> Schedule | None:
        """Of the card, if its text says enough."""
        return None if self.card is None else schedule_of(self.card.schedule)

    def of(self, slot: int) -> list[Row]:
        """The slot's rows, by attempt."""
        return sorted((row for row in self.rows if row.slot == slot), key=lambda row: row.attempt)


def tell(known: Known, slot: int) -> Story:
    """The story of a slot."""
    rows = known.of(slot)
    attempts = [row for row in rows if row.attempt]
    unstarted = [row for row in rows if not row.attempt]
    lines = [_due(known, slot), *_attempts(known, attempts), *(_unstarted(known, row, attempts) for row in unstarted)]
    lines = _in_order(lines, slot)
    status = (unstarted or attempts or [Row(slot, 0, _missing(known, slot))])[-1].status
    if not rows:
        lines += _without_record(known, slot, status)
    return Story(known.job, slot, status, tuple(lines), _advice(known, slot, status, attempts))


def tell_last(known: Known) -> Story | None:
    """The story of the newest slot of which anything is known, and of the slots since that should have run.

    None if no slot is on record, and none should be.
    """
    since = _missed_since(known)
    slot = newest(known)
    if slot is None:
        return None if since is None else tell(known, since)
    story = tell(known, slot)
    overdue_ms = _overdue_ms(known)
    if since is not None:
        story = replace(story, lines=(*story.lines, Line("missed", f"no slot since has a record: {_NOBODY_UP}", since)))
    if overdue_ms <= 0:
        return story
    over = f"a success has been overdue for {to_text(max(round(overdue_ms, -3), 1_000))}"
    return replace(story, advice=f"{over}: start an instance" if since is not None else f"{over}; {story.advice}")


def newest(known: Known) -> int | None:
    """The newest slot that anything is known of."""
    return max((row.slot for row in known.rows), default=None)


def newest_trouble(known: Known) -> int | None:
    """The newest slot whose run did not end in success, or that should have run and has no record."""
    ended_well = {row.slot for row in known.rows if row.status == "success"}
    going = {row.slot for row in known.rows if row.status == "running"}
    slots = [row.slot for row in known.rows if row.slot not in ended_well | going]
    return max([*slots, *_newest_missed(known)], default=None)


# The lines


def _in_order(lines: Iterable[Line], slot: int) -> list[Line]:
    """By time; what has none stays behind what it was told after."""
    timed, at_ms = [], slot
    for line in lines:
        at_ms = at_ms if line.at_ms is None else line.at_ms
        timed.append((at_ms, line))
    return [line for _, line in sorted(timed, key=lambda pair: pair[0])]


def _due(known: Known, slot: int) -> Line:
    schedule = known.schedule
    if schedule is not None and schedule.latest_slot(slot) != slot:
        assert known.card is not None
        return Line(
            "due", f"no slot of its schedule now ({known.card.words}): triggered, or of an earlier schedule", slot
        )
    return Line("due", "due" if slot <= known.now_ms else f"due in {_length(slot - known.now_ms)}", slot)


def _attempts(known: Known, attempts: Sequence[Row]) -> Iterator[Line]:
    held = {(run.slot, run.attempt): run for run in known.active}
    for row, later in zip_longest(attempts, attempts[1:]):
        before = next((other for other in attempts if other.attempt == row.attempt - 1), None)
        yield _began(row, before)
        yield from _ended(row, later, held.get((row.slot, row.attempt)), known.now_ms)


def _began(row: Row, before: Row | None) -> Line:
    who = f"{row.instance or 'an instance'}: attempt {row.attempt}" + (f", fence {row.fence}" if row.fence else "")
    if row.started_at is None:
        return Line("claim", f"claimed by {who}, at a time that nobody wrote down")
    if row.attempt == 1:
        return Line("claim", f"claimed by {who}, {_length(row.started_at - row.slot)} after the slot", row.started_at)
    since = ""
    if before is not None and before.ended_at is not None and before.ended_at <= row.started_at:
        since = f", {_length(row.started_at - before.ended_at)} later"
    return Line("takeover", f"taken over by {who}{since}", row.started_at)


def _ended(row: Row, later: Row | None, run: ActiveRun | None, now_ms: int) -> Iterator[Line]:
    took = "" if row.duration_ms is None else f" after {_length(row.duration_ms)}"
    match row.status:
        case "success":
            yield Line("end", f"success{took}", row.ended_at)
        case "failed":
            yield Line("end", f"failed{took}", row.ended_at, row.error)
        case "interrupted" if later is not None and _was_lost(row, later):
            text = f"interrupted: {row.instance} noticed{took} that it had lost the run"
            yield Line("lost", text, row.ended_at, row.error)
        case "interrupted":
            yield Line("released", f"interrupted{took}: a stop, or the run was lost", row.ended_at, row.error)
        case "crashed" if row.ended_at is None:
            yield Line("lost", f"attempt {row.attempt} left no record: its holder died, and so did who saw that")
        case "crashed":
            yield Line("lost", f"its lease was over: {row.instance} had been silent for it", row.ended_at)
        case _:
            yield _still(row, run, now_ms)


def _was_lost(row: Row, later: Row) -> bool:
    """Whether the run was taken over before its holder ended: one that stops gives the run back first."""
    return row.ended_at is not None and later.started_at is not None and later.started_at < row.ended_at


def _still(row: Row, run: ActiveRun | None, now_ms: int) -> Line:
    if row.status == "running":
        left = f", its lease for {_length(run.lease_left_ms)} still" if run is not None else ""
        return Line("running", f"runs still{left}", now_ms)
    return Line("lost", f"its lease is over, and nobody has taken it over yet: {row.instance} is silent", now_ms)


def _unstarted(known: Known, row: Row, attempts: Sequence[Row]) -> Line:
    by = f" (told by {row.instance})"
    if row.status == "late":
        limit = known.card.max_late_ms if known.card is not None else None
        within = f"within {to_text(limit)}" if limit is not None else "in time"
        return Line("unstarted", f"not run: nobody started it {within}{by}")
    if row.status == "overlap":
        return Line("unstarted", f"not run: {_in_the_way(known, row.slot)} was still going{by}")
    if row.status == "exhausted":
        used = "its only attempt was" if len(attempts) == 1 else f"its {len(attempts) or 'allowed'} attempts were"
        return Line("unstarted", f"given up: {used} used up{by}")
    newer = _newer(known, row.slot)
    of = "a newer run" if newer is None else f"the newer run of {_instant(newer.slot)}"
    return Line("unstarted", f"{'given up' if attempts else 'not run'}: {of} had started{by}")


def _in_the_way(known: Known, slot: int) -> str:
    for row in known.rows:
        ended_at = known.now_ms if row.ended_at is None else row.ended_at
        if (
            row.slot < slot
            and row.started_at is not None
            and row.started_at <= slot + _claimed_within_ms(known)
            and (ended_at >= slot)
        ):
            return f"the run of {_instant(row.slot)}, attempt {row.attempt} by {row.instance},"
    return "an earlier run"


def _claimed_within_ms(known: Known) -> int:
    return (known.card.max_late_ms if known.card is not None else None) or 0


def _newer(known: Known, slot: int) -> Row | None:
    """The run that started first of those that are newer."""
    started = [row for row in known.rows if row.slot > slot and row.attempt and row.started_at is not None]
    return min(started, key=lambda row: row.slot, default=None)


# A slot without a record

_NOBODY_UP = "no instance that has the job was up and reached the store"


def _newest_missed(known: Known) -> Iterator[int]:
    """At most one: the way back from now passes known slots alone until it comes to the first that is not."""
    schedule, oldest = known.schedule, _oldest_expected(known)
    if schedule is None or oldest is None:
        return
    on_record = {row.slot for row in known.rows}
    slot = schedule.latest_slot(_missed_until_ms(known))
    while slot is not None and slot in on_record:
        slot = schedule.latest_slot(slot - 1)
    if slot is not None and slot >= oldest:
        yield slot


def _missed_since(known: Known) -> int | None:
    """The first slot after the newest known one that should have run."""
    newest_slot = newest(known)
    if known.card is None:
        return None
    slot = known.card.next_slot if newest_slot is None else next_slot(known.card, newest_slot)
    return slot if slot is not None and slot <= _missed_until_ms(known) else None


def _oldest_expected(known: Known) -> int | None:
    """Before it nothing can be called missed."""
    return min((row.slot for row in known.rows), default=known.card.next_slot if known.card is not None else None)


def _missed_until_ms(known: Known) -> int:
    """A slot after this may start still, or waits for a run that goes on, or nobody wants it any more."""
    if known.card is None or known.gone or any(run.live for run in known.active):
        return max((row.slot for row in known.rows), default=-1)
    return known.now_ms - starts_within_ms(known.card) - 1


def _overdue_ms(known: Known) -> int:
    at_ms = None if known.card is None or known.gone else overdue_at_ms(known.card, known.rows)
    return 0 if at_ms is None else known.now_ms - at_ms


def _missing(known: Known, slot: int) -> str:
    schedule = known.schedule
    oldest = min((row.slot for row in known.rows), default=None)
    if slot > known.now_ms:
        return "not due"
    if schedule is not None and schedule.latest_slot(slot) != slot:
        return "no slot"
    if oldest is not None and slot < oldest:
        return "forgotten"
    may_start_ms = None if known.card is None else known.card.max_late_ms
    return "not yet" if may_start_ms is not None and known.now_ms - slot <= may_start_ms else "missed"


def _without_record(known: Known, slot: int, status: str) -> Iterator[Line]:
    if status == "missed":
        yield Line("missed", "not run: nobody claimed it, and nobody was left to say why")
    elif status == "not yet":
        yield Line("note", "nobody has claimed it yet; it may start still")
    elif status == "forgotten":
        oldest = min(row.slot for row in known.rows)
        yield Line("note", f"history goes back to {_instant(oldest)} only, or the job was not there yet")
    yield from _neighbours(known, slot)


def _neighbours(known: Known, slot: int) -> Iterator[Line]:
    """The nearest slots of which something is known: they tell who was up."""
    before = next((row for row in known.rows if row.slot < slot), None)
    after = next((row for row in reversed(known.rows) if row.slot > slot), None)
    for row, where in ((before, "before"), (after, "after")):
        if row is not None:
            by = f" by {row.instance}" if row.instance else ""
            yield Line("note", f"the known slot {where} it, {_instant(row.slot)}: {row.status}{by}")


# What to do


_ADVICE = {
    "failed": "the handler raised, or took longer than its timeout, and is not repeated: fix it; trigger the job if "
    "its work cannot wait for the next slot",
    "exhausted": "each holder died or was cut off: see what became of them (killed for memory? frozen? no network?), "
    "fix that, and trigger the job",
    "late": "instances or store were away or slow at that time; a longer max_late, or catch_up, lets it start later",
    "overlap": "runs take longer than the time between slots: shorten them, let them be due less often, or "
    'say overlap="allow"',
    "superseded": "its holder died, or the store was away, until a newer slot was due; a shorter lease is taken over "
    "sooner",
    "lease over": "no instance that has the job is up, or none reaches the store: start one",
    "running": "wait for its end",
    "interrupted": "its holder was stopped or cut off, and nobody has taken it over yet: start an instance",
    "crashed": "its holder died and nobody has taken it over: start an instance",
    "missed": "no instance that has the job was up and reached the store: look at the logs of that time; catch_up "
    "makes up for the latest slot missed",
    "forgotten": "keep more records with keep_results",
    "no slot": "ask for a slot of its schedule",
    "not due": "wait for it",
    "not yet": "wait until it is too late",
}


def _advice(known: Known, slot: int, status: str, attempts: Sequence[Row]) -> str:
    if status != "success":
        return _ADVICE.get(status, "")
    lost = [row for row in attempts if row.status == "crashed"]
    if lost:
        who = ", ".join(dict.fromkeys(row.instance or "an instance that nobody knows" for row in lost))
        return f"the work is done; see what became of {who}"
    began = attempts[0].started_at
    late_ms = 0 if began is None else began - slot
    limit = known.card.max_late_ms if known.card is not None else None
    if limit and late_ms > limit / 2:
        return f"the work is done; it began {_length(late_ms)} late, and {to_text(limit)} is the limit"
    return NOTHING_TO_DO


def _length(ms: int) -> str:
    if abs(ms) < 60_000:
        return f"{ms / 1_000:.3f} s"
    return to_text(round(ms, -3))


def _instant(ms: int) -> str:
    return (
        (_EPOCH + timedelta(milliseconds=ms))
        .isoformat(" ", "milliseconds" if ms % 1_000 else "seconds")
        .removesuffix("+00:00")
    )
