"""What a chaos run leaves behind: all that was written down by those who took part, none of whom is believed alone."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from tenure.model import RunResult

from .workload import JobSpec, jobs_of

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Span:
    """Monotonic milliseconds, shared by all processes of this host."""

    begin: float
    end: float = NEVER

    def meets(self, begin: float, end: float) -> bool:
        """Whether they have a moment in common."""
        return self.begin <= end and begin <= self.end

    def length(self, begin: float = -NEVER, end: float = NEVER) -> float:
        """How much of it lies between."""
        return max(min(self.end, end) - max(self.begin, begin), 0.0)


HarmKind = Literal["frozen", "cut", "lossy"]


@dataclass(frozen=True, slots=True)
class Harm:
    """What was done to an instance without ending it; ``cut``: nothing passes between it and the store."""

    kind: HarmKind
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One instance from its start to its end."""

    instance: str
    version: int
    spawned: float
    ready: float = NEVER
    """NEVER if it never was."""
    stopping: float = NEVER
    """When it was asked to stop."""
    end: float = NEVER
    how: Literal["killed", "stopped", "lives"] = "lives"
    code: int | None = None
    clock_ahead_ms: int = 0
    harms: tuple[Harm, ...] = ()
    said: str = ""
    """What it wrote to its stderr, where nothing is expected."""

    def harmed(self, begin: float, end: float, *kinds: HarmKind) -> bool:
        """Whether it was, between these moments."""
        return any(harm.span.meets(begin, end) and (not kinds or harm.kind in kinds) for harm in self.harms)

    def up(self, begin: float, end: float) -> bool:
        """Whether it ran all the time between."""
        return self.ready <= begin and end <= min(self.stopping, self.end)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the journal."""

    at: float
    instance: str
    job: str
    slot: int
    attempt: int
    fence: int
    scope: str
    kind: str
    accepted: bool


@dataclass(frozen=True, slots=True)
class Note:
    """A line of an instance's own log: an event of its scheduler, or what it noticed of itself."""

    at: float
    instance: str
    kind: str
    job: str = ""
    slot: int = 0
    attempt: int = 0
    fence: int = 0
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """A fault as it was carried out."""

    kind: str
    who: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the checker must know of the store."""

    target: str
    store: str = ""
    seed: int = 0
    minutes: float = 0
    lease_ms: int
    granularity_ms: int = 1
    late_ms: int = 0
    """How long after its end a lease may be seen as live."""
    clock_error_ms: int = 0
    timeout_ms: int = 5_000
    grace_ms: int = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that the checker looks at."""

    settings: Settings
    begin: float
    end: float
    """When the instances were told to stop."""
    wall_ahead: float
    """The right wall clock less the monotonic one, in milliseconds."""
    lives: Sequence[Life]
    journal: Sequence[Entry]
    notes: Sequence[Note]
    records: dict[str, list[RunResult]]
    faults: Sequence[Done] = ()
    away: Sequence[Span] = ()
    """When the store did not answer the director's probe, or only after long: measured, whatever was planned."""
    stalls: Sequence[Span] = ()
    """When the director itself was kept waiting by the machine."""

    def jobs(self, version: int) -> dict[str, JobSpec]:
        """The jobs of a version."""
        return jobs_of(version, self.settings.lease_ms)


def lines(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file; one that a kill cut is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def entry_of(line: dict[str, Any]) -> Entry:
    """A line of the journal."""
    return Entry(**{name: line[name] for name in Entry.__dataclass_fields__})


def note_of(line: dict[str, Any], instance: str) -> Note:
    """A line of an instance's log."""
    own = {name: line.pop(name) for name in ("at", "kind", "job", "slot", "attempt", "fence") if name in line}
    return Note(instance=instance, more=line, **own)


def merged(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, those that touch made one."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda one: one.begin):
        if found and span.begin <= found[-1].end:
            found[-1] = Span(found[-1].begin, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def saved(evidence: Evidence, path: Path) -> None:
    """Keep it, so that it can be judged again."""
    path.write_text(json.dumps(asdict(evidence)))


def loaded(path: Path) -> Evidence:
    """Evidence that was kept."""
    kept = json.loads(path.read_text())
    spans = {name: [Span(**span) for span in kept[name]] for name in ("away", "stalls")}
    return Evidence(
        **{name: kept[name] for name in ("begin", "end", "wall_ahead")},
        **spans,
        settings=Settings(**kept["settings"]),
        lives=[_life(life) for life in kept["lives"]],
        journal=[Entry(**entry) for entry in kept["journal"]],
        notes=[Note(**note) for note in kept["notes"]],
        records={job: [RunResult(**record) for record in records] for job, records in kept["records"].items()},
        faults=[Done(**{**fault, "span": Span(**fault["span"])}) for fault in kept["faults"]],
    )


def _life(kept: dict[str, Any]) -> Life:
    harms = tuple(Harm(harm["kind"], Span(**harm["span"])) for harm in kept["harms"])
    return Life(**{**kept, "harms": harms})
