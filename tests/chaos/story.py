"""The evidence put together: attempts and runs as all who wrote something down tell of them, and who could act."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tenure.model import RunResult

from .evidence import NEVER, Entry, Evidence, Life, Note, Span
from .workload import JobSpec

Run = tuple[str, int]
ENDED = ("success", "failure", "interrupted")
_SURE_MS = 50
"""A stall so short is no excuse."""


@dataclass(slots=True)
class Attempt:
    """One attempt of a run."""

    job: str
    slot: int
    number: int
    instance: str = ""
    fence: int = 0
    won: Note | None = None
    """The event ``start``."""
    takeover: Note | None = None
    told: Note | None = None
    """When its handler was first told to stop, and why."""
    ended: Note | None = None
    """The event that tells its end."""
    lines: list[Entry] = field(default_factory=list)
    handler_ended: float | None = None
    record: RunResult | None = None

    @property
    def begun(self) -> float | None:
        """When its handler began to work, as the journal says."""
        return self.lines[0].at if self.lines else None

    @property
    def at(self) -> float:
        """The first moment at which it is known of, NEVER if only its record is."""
        known = [note.at for note in (self.takeover, self.won) if note] + [line.at for line in self.lines[:1]]
        return min(known, default=NEVER)

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.instance} (fence {self.fence})"


class Story:
    """What the rules ask."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.settings = evidence.settings
        self.lives = {life.instance: life for life in evidence.lives}
        self.attempts: dict[tuple[str, int, int], Attempt] = {}
        self.notes_of: dict[Run, list[Note]] = defaultdict(list)
        self.reasons: dict[Run, list[RunResult]] = defaultdict(list)
        """Records of slots that were not run."""
        for note in evidence.notes:
            self._take_note(note)
        for entry in evidence.journal:
            self._attempt(entry.job, entry.slot, entry.attempt, entry.instance, entry.fence).lines.append(entry)
        for job, records in evidence.records.items():
            self._take_records(job, records)

    def _take_note(self, note: Note) -> None:
        if note.job:
            self.notes_of[note.job, note.slot].append(note)
        if not note.attempt:
            return
        if note.kind in ("start", "takeover", "told", "handler end", *ENDED):
            attempt = self._attempt(note.job, note.slot, note.attempt, note.instance, note.fence)
            match note.kind:
                case "start":
                    attempt.won = attempt.won or note
                case "takeover":
                    attempt.takeover = attempt.takeover or note
                case "told":
                    attempt.told = attempt.told or note
                case "handler end":
                    attempt.handler_ended = note.at
                case _:
                    attempt.ended = attempt.ended or note

    def _take_records(self, job: str, records: list[RunResult]) -> None:
        for record in records:
            if record.attempt:
                key = record.instance, record.fence
                self._attempt(job, record.slot, record.attempt, *key).record = record
            else:
                self.reasons[job, record.slot].append(record)

    def _attempt(self, job: str, slot: int, number: int, instance: str, fence: int) -> Attempt:
        attempt = self.attempts.setdefault((job, slot, number), Attempt(job, slot, number))
        attempt.instance = attempt.instance or instance
        attempt.fence = attempt.fence or fence
        return attempt

    @cached_property
    def runs(self) -> dict[Run, list[Attempt]]:
        """The attempts of each run, in order."""
        found: dict[Run, list[Attempt]] = defaultdict(list)
        for job, slot, number in sorted(self.attempts):
            found[job, slot].append(self.attempts[job, slot, number])
        return dict(found)

    @cached_property
    def slots(self) -> dict[str, list[int]]:
        """The slots of each job that somebody has started."""
        found: dict[str, list[int]] = defaultdict(list)
        for job, slot in sorted(self.runs):
            found[job].append(slot)
        return dict(found)

    @cached_property
    def scopes(self) -> dict[str, list[Attempt]]:
        """The attempts whose handlers have written, by what their fences are compared within."""
        found: dict[str, list[Attempt]] = defaultdict(list)
        for attempt in self.attempts.values():
            if attempt.lines:
                found[attempt.lines[0].scope].append(attempt)
        return dict(found)

    def spec(self, attempt: Attempt) -> JobSpec | None:
        """The job as the attempt's instance had it."""
        life = self.lives.get(attempt.instance)
        return self.evidence.jobs(life.version).get(attempt.job) if life else None

    def executes(self, attempt: Attempt) -> Span | None:
        """From the first to the last moment of its handler; None if it never began."""
        if attempt.begun is None:
            return None
        last = [line.at for line in attempt.lines if line.kind == "end"]
        end = last[-1] if last else attempt.handler_ended
        life = self.lives.get(attempt.instance)
        if end is None:
            end = life.end if life else NEVER
        return Span(attempt.begun, max(end, attempt.begun))

    def executing(self, instance: str, at: float) -> Iterator[Attempt]:
        """The attempts whose handlers the instance was executing at that moment."""
        for attempt, span in self._executed.get(instance, ()):
            if span.begin <= at < span.end:
                yield attempt

    @cached_property
    def _executed(self) -> dict[str, list[tuple[Attempt, Span]]]:
        found: dict[str, list[tuple[Attempt, Span]]] = defaultdict(list)
        for attempt in self.attempts.values():
            if (span := self.executes(attempt)) is not None:
                found[attempt.instance].append((attempt, span))
        return dict(found)

    # Excuses, all of them measured

    def stall_ms(self, instance: str, begin: float, end: float) -> float:
        """How long the machine kept an instance from running, its freezes not counted; and the director."""
        life = self.lives.get(instance)
        frozen = [harm.span for harm in life.harms if harm.kind == "frozen"] if life else []
        own = (
            span.length(begin, end)
            for span in self._stalls.get(instance, ())
            if not any(one.meets(span.begin, span.end) for one in frozen)
        )
        return sum(own) + sum(span.length(begin, end) for span in self.evidence.stalls)

    @cached_property
    def _stalls(self) -> dict[str, list[Span]]:
        found: dict[str, list[Span]] = defaultdict(list)
        for note in self.evidence.notes:
            if note.kind == "stall" and note.more["ms"] > _SURE_MS:
                found[note.instance].append(Span(note.at - note.more["ms"], note.at))
        return dict(found)

    def fails(self, instance: str, begin: float, end: float) -> bool:
        """Whether calls of the instance failed between; that this has a cause is checked by itself."""
        return any(begin <= at <= end for at in self._failed.get(instance, ()))

    @cached_property
    def _failed(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = defaultdict(list)
        for note in self.evidence.notes:
            if note.kind == "error":
                found[note.instance].append(note.at)
        return dict(found)

    def away(self, begin: float, end: float) -> bool:
        """Whether the store was away or slow at any moment between."""
        return any(span.meets(begin, end) for span in self.evidence.away)

    def away_ms(self, begin: float, end: float) -> float:
        """How much of the time between that was."""
        return sum(span.length(begin, end) for span in self.evidence.away)

    def monotonic(self, slot: int) -> float:
        """When a slot was due by the right clock."""
        return slot - self.evidence.wall_ahead

    def has_job(self, life: Life, job: str, slot: int) -> bool:
        """Whether the instance has the job, with a schedule that knows the slot."""
        spec = self.evidence.jobs(life.version).get(job)
        return spec is not None and slot % spec.period_ms == 0

    def is_blocked(self, life: Life, attempt: Attempt, begin: float, end: float) -> bool:
        """Whether a handler that goes on in the instance keeps it from looking at the run."""
        return any(
            one.job == attempt.job and one is not attempt and span.meets(begin, end)
            for one, span in self._executed.get(life.instance, ())
        )
