"""What a rule said of a target, and the calls that made it say so."""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

Outcome = Literal["pass", "fail", "inconclusive", "not-applicable", "waived"]

OUTCOMES: tuple[Outcome, ...] = ("pass", "fail", "inconclusive", "waived", "not-applicable")


@dataclass(slots=True)
class Call:
    """One call of one client, as it was seen from outside; times in milliseconds since the rule began.

    ``end_ms`` is None while it has not ended. ``error`` is set instead of ``answer`` if it raised, or was cancelled.
    """

    client: str
    name: str
    arguments: Mapping[str, Any]
    begin_ms: float
    end_ms: float | None = None
    answer: Any = None
    error: str | None = None
    suspect: bool = False
    """Its answer is what does not fit, where the rule can tell."""

    def to_json(self) -> dict[str, Any]:
        """The call with plain values only."""
        return {
            "client": self.client,
            "call": self.name,
            "arguments": {name: plain(value) for name, value in self.arguments.items()},
            "begin_ms": round(self.begin_ms, 3),
            "end_ms": None if self.end_ms is None else round(self.end_ms, 3),
            "answer": plain(self.answer),
            "error": self.error,
            "suspect": self.suspect,
        }

    def __str__(self) -> str:
        """The call on one line."""
        end = "…" if self.end_ms is None else f"{self.end_ms:.1f}"
        arguments = ", ".join(f"{name}={_short(value)}" for name, value in self.arguments.items())
        told = f"raised {self.error}" if self.error else _short(self.answer)
        return f"{self.begin_ms:9.1f}-{end} ms  {self.client}.{self.name}({arguments}) -> {told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a rule said; the calls of all clients are kept where it did not pass."""

    rule: str
    outcome: Outcome
    reason: str = ""
    """Why, where it is not a pass."""
    crashed: bool = False
    """It failed by an exception of the backend and not by a statement of the rule."""
    leases_ms: tuple[int, ...] = ()
    """The leases of the tries, the deciding one last."""
    seconds: float = 0.0
    calls: tuple[Call, ...] = ()
    error: BaseException | None = None

    def traceback(self) -> str:
        """The failure as Python tells it, empty if there is none."""
        return "".join(traceback.format_exception(self.error)) if self.error else ""

    def to_json(self) -> dict[str, Any]:
        """The verdict with its calls and plain values only."""
        return {
            "rule": self.rule,
            "outcome": self.outcome,
            "reason": self.reason,
            "crashed": self.crashed,
            "leases_ms": list(self.leases_ms),
            "seconds": round(self.seconds, 3),
            "calls": [call.to_json() for call in self.calls],
            "traceback": self.traceback(),
        }


def plain(value: Any) -> Any:
    """The value as JSON has it; a record becomes an object of those fields that say something."""
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: plain(part) for name, part in named.items() if part is not None and part != ()}
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def _short(value: Any) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        told = ", ".join(f"{name}={_short(part)}" for name, part in plain(value).items())
        text = f"{type(value).__name__}({told})"
    else:
        text = repr(value)
    return text if len(text) <= 400 else f"{text[:397]}..."
