"""What the checker says: violations, and in the open what it excused and why."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .story import Story


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not happen; ``rule`` is an anchor of docs/protocol.md."""

    rule: str
    at: float
    text: str
    job: str = ""
    slot: int = 0
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Excused:
    """Something that would be a violation, had it not a cause that was seen."""

    rule: str
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Measured:
    """How long something took that has a limit."""

    what: str
    at: float
    took_ms: float
    limit_ms: float


Finding = Violation | Excused | Measured
Check = Callable[[Story], Iterator[Finding]]
CHECKS: dict[str, Check] = {}


def check(rule: str) -> Callable[[Check], Check]:
    """Register a check under the anchor of the sentence that it is about."""

    def register(function: Check) -> Check:
        CHECKS[f"{rule}: {function.__name__}"] = function
        return function

    return register
