"""Calls in words: who asked for what and what was answered, with short names for slots and tokens."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tenure_conformance.bench import SLOT
from tenure_conformance.verdict import Call

NEAR = 100_000
"""Slots this close to the bench's are told by their distance from it."""
AT_A_TIME = 400

_ASKED = ("job", "slot", "mode", "overlap", "lease_ms", "after", "token", "status", "max_attempts", "max_late_ms")
_PLAIN: Mapping[str, Any] = {"job": "job", "mode": "scheduled", "overlap": "skip", "after": 0, "max_attempts": 3}
"""What a claim says if a rule does not say otherwise; it is not repeated at each call."""
_ANSWERED = ("status", "attempt", "slot", "holder", "lease_left_ms", "wait_ms")


def read(told: Iterable[Mapping[str, Any]]) -> list[Call]:
    """Calls as ``Call.to_json`` gives them, in the order in which they began."""
    calls = [
        Call(
            one["client"],
            one["call"],
            one["arguments"],
            one["begin_ms"],
            one["end_ms"],
            one["answer"],
            one["error"],
            one.get("suspect", False),
        )
        for one in told
    ]
    return sorted(calls, key=lambda call: call.begin_ms)


@dataclass
class Words:
    """Words for the calls of one rule; a token is ``t1``, ``t2``, … as it comes."""

    tokens: dict[str, str] = field(default_factory=dict)

    def asked(self, call: Call) -> str:
        """What a call asked for."""
        arguments = {**call.arguments, **claim_of(call)}
        told = [self._part(name, arguments[name]) for name in _ASKED if _says(arguments, name)]
        if "jobs" in arguments and list(arguments["jobs"]) != ["job"]:
            told.append(f"jobs {', '.join(map(repr, arguments['jobs']))}")
        if isinstance(result := arguments.get("result"), Mapping):
            told.append(f"{result.get('status')} of slot {slot(result.get('slot'))}, attempt {result.get('attempt')}")
        return _cut(", ".join(told))

    def answered(self, call: Call) -> str:
        """What it was told, or that it raised or never ended."""
        if call.error is not None:
            return _cut(f"raised {call.error}")
        if call.end_ms is None:
            return "no answer"
        return _cut(self._answer(call.answer))

    def details(self, call: Call) -> str:
        """What the answer says besides."""
        answer = call.answer
        if not isinstance(answer, Mapping) or "outcome" not in answer:
            return ""
        told = [self._part(name, answer[name]) for name in _ANSWERED if name in answer]
        told += [f"{len(answer['previous'])} previous"] if answer.get("previous") else []
        return _cut(", ".join(told))

    def _answer(self, answer: Any) -> str:
        if answer is None:
            return "done"
        if isinstance(answer, Mapping):
            runs = answer.get("runs", ())
            return str(answer["outcome"]) if "outcome" in answer else _runs(runs)
        if isinstance(answer, list):
            return f"{len(answer)} record{'' if len(answer) == 1 else 's'}"
        return str(answer)

    def _part(self, name: str, value: Any) -> str:
        if name == "slot":
            return f"slot {slot(value)}"
        if name == "token":
            return self.tokens.setdefault(str(value), f"t{len(self.tokens) + 1}")
        if name.endswith("_ms"):
            return f"{name.removesuffix('_ms').replace('_', ' ')} {duration(value)}"
        if name == "job":
            return f"job {value!r}"
        return f"{name} {value}" if name in ("attempt", "after", "holder", "max_attempts") else str(value)


def claim_of(call: Call) -> Mapping[str, Any]:
    """The claim that a call sent, empty if it sent none."""
    claim = call.arguments.get("claim")
    return claim if isinstance(claim, Mapping) else {}


def slot(value: Any) -> str:
    """A slot, as S, S+1 or S-1 where it is near to the bench's."""
    if type(value) is not int or abs(value - SLOT) > NEAR:
        return str(value)
    return "S" if value == SLOT else f"S{value - SLOT:+}"


def duration(value: Any) -> str:
    """Milliseconds in a unit that people read; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if value < 1_000:
        return f"{value:.0f} ms" if value == int(value) else f"{value:.1f} ms"
    return f"{value / 1000:.2f}".rstrip("0").rstrip(".") + " s"


def _says(arguments: Mapping[str, Any], name: str) -> bool:
    return name in arguments and not (name in _PLAIN and arguments[name] == _PLAIN[name])


def _runs(runs: Any) -> str:
    if not runs:
        return "no runs"
    shown = [f"{slot(run['slot'])} {'live' if run['live'] else 'over'}" for run in runs[:3]]
    return ", ".join(shown) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")


def _cut(text: str) -> str:
    return text if len(text) <= AT_A_TIME else f"{text[: AT_A_TIME - 1]}…"
