"""Records of history that rules save."""

from tenure.model import ResultStatus, RunResult

from tenure_conformance.bench import SLOT

ATTEMPTED: tuple[ResultStatus, ...] = ("success", "failed", "interrupted", "crashed")
UNSTARTED: tuple[ResultStatus, ...] = ("late", "overlap", "exhausted", "superseded")


def attempted(
    slot: int = SLOT, attempt: int = 1, status: ResultStatus = "success", error: str | None = None
) -> RunResult:
    """The record of an attempt; slot and attempt show in its other fields."""
    return RunResult(slot, attempt, slot * 10 + attempt, status, f"instance {attempt}", SLOT + 1, SLOT + 20, error)


def other_than(result: RunResult, status: ResultStatus) -> RunResult:
    """A record of the same attempt that differs in everything else."""
    return RunResult(result.slot, result.attempt, result.fence + 7, status, "other", SLOT + 3, SLOT + 99, "other")


def unstarted(slot: int, status: ResultStatus) -> RunResult:
    """The record of why a slot was not run."""
    return RunResult(slot, 0, 0, status, "instance", None, None)
