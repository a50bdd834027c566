"""All that happened in a simulation, in order: what the checker judges and the trace shows."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class Call:
    """One call of an instance to the store, from its sending to its end there and here."""

    number: int
    who: str
    name: str
    job: str
    slot: int
    token: str
    request: Any
    sent_s: float
    sent_seq: int
    by: str = ""
    """Which part of the instance sent it: the coroutine of its task."""
    decided: list[tuple[float, Any]] = field(default_factory=list)
    """When the store carried it out, and its answer; more than once if the message was doubled."""
    ended_s: float | None = None
    ended_seq: int = 0
    answer: Any = None
    failed: str = ""
    """Why it raised, if it did; ``cancelled`` if nobody waited any more."""

    @property
    def answered(self) -> bool:
        return self.ended_s is not None and not self.failed


@dataclass(slots=True, eq=False)
class Change:
    """A run as the store knows it after a call that changed it."""

    at_s: float
    seq: int
    job: str
    slot: int
    attempt: int
    token: str
    fence: int
    holder: str
    status: str
    until_s: float
    """When the lease is over, in the world's time."""
    why: str
    overlap: str = ""
    """Of the claim that won."""


@dataclass(slots=True, eq=False)
class Execution:
    """One execution of a handler."""

    job: str
    slot: int
    attempt: int
    fence: int
    who: str
    overlap: str
    behaviour: str
    began_s: float
    began_seq: int
    ended_s: float | None = None
    ended_seq: int = 0
    how: str = ""
    told_s: float | None = None
    """When its signal was set."""
    reason: str = ""
    refused: int = 0
    """Writes that the journal refused because of a greater fence."""
    written: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Moment:
    at_s: float
    what: str
    who: str
    about: Any


class Timeline:
    """The one list that everything is added to."""

    def __init__(self, now_s: Any) -> None:
        self._now_s = now_s
        self.moments: list[Moment] = []
        self.over = False
        """What is cancelled from here on, for the process to be rid of it, happened to nobody."""

    def add(self, what: str, who: str, about: Any) -> int:
        """Add a moment now; gives its place."""
        if not self.over:
            self.moments.append(Moment(self._now_s(), what, who, about))
        return len(self.moments) - 1
