"""Calls of a backend and their answers as JSON, between a rule and its workers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from tenure.model import ActiveRun, ActiveRuns, Claim, ClaimResult, LostAttempt, RunResult


def _claim_result(told: Mapping[str, Any]) -> ClaimResult:
    return ClaimResult(**{**told, "previous": tuple(LostAttempt(**one) for one in told["previous"])})


def _active_runs(told: Mapping[str, Any]) -> ActiveRuns:
    return ActiveRuns(told["now_ms"], tuple(ActiveRun(**run) for run in told["runs"]))


def _results(told: Sequence[Mapping[str, Any]]) -> list[RunResult]:
    return [RunResult(**one) for one in told]


_ARGUMENTS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "claim": lambda claim: (Claim(**claim),),
    "save_result": lambda job, result: (job, RunResult(**result)),
}
_ANSWERS: dict[str, Callable[[Any], Any]] = {"claim": _claim_result, "active": _active_runs, "results": _results}


def to_plain(value: Any) -> Any:
    """The protocol's records as objects, all else as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return [to_plain(one) for one in value] if isinstance(value, list | tuple) else value


def arguments_of(call: str, told: Sequence[Any]) -> tuple[Any, ...]:
    """What a call was given, from its plain form."""
    return _ARGUMENTS[call](*told) if call in _ARGUMENTS else tuple(told)


def answer_of(call: str, told: Any) -> Any:
    """What a call answered, from its plain form."""
    return _ANSWERS[call](told) if call in _ANSWERS else told
