"""The jobs that every instance of a chaos run has, in two versions as before and after a deploy."""

from dataclasses import dataclass, replace
from typing import Any, Literal

JITTER_MS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job; ``work_ms`` is how long its handler takes if nobody tells it to stop."""

    name: str
    period_ms: int
    handler: str
    lease_ms: int
    work_ms: int = 0
    overlap: Literal["skip", "allow"] = "skip"
    max_attempts: int = 3
    max_late_ms: int = 4_000
    timeout_ms: int | None = None

    @property
    def heartbeat_ms(self) -> float:
        """Tenure's own default."""
        return self.lease_ms / 3

    def options(self) -> dict[str, Any]:
        """What is said when the job is added."""
        return {
            "lease": f"{self.lease_ms}ms",
            "overlap": self.overlap,
            "max_attempts": self.max_attempts,
            "max_late": f"{self.max_late_ms}ms",
            "jitter": f"{JITTER_MS}ms",
            "timeout": None if self.timeout_ms is None else f"{self.timeout_ms}ms",
        }


def jobs_of(version: int, lease_ms: int) -> dict[str, JobSpec]:
    """The jobs of that version of the application, by name; odd ones are alike, and so are even ones."""
    jobs = _second(lease_ms) if version % 2 == 0 else _first(lease_ms)
    return {job.name: job for job in jobs}


def _first(lease_ms: int) -> list[JobSpec]:
    def job(name: str, period_ms: int, handler: str, work_leases: float, **options: Any) -> JobSpec:
        work_ms = round(work_leases * lease_ms)
        options = {"name": name, "period_ms": period_ms, "handler": handler, "work_ms": work_ms, **options}
        return JobSpec(lease_ms=lease_ms, **options)

    return [
        job("tick", 200, "sleeping", 0.01),
        job("beat", 500, "polite", 0.02, overlap="allow"),
        job("work", 1_000, "polite", 0.4),
        job("pair", 1_000, "sleeping", 0.8, overlap="allow"),
        job("fails", 1_000, "raising", 0.05, overlap="allow"),
        job("long", 2_000, "sleeping", 1.5),
        job("once", 2_000, "polite", 0.4, max_attempts=1),
        job("leaving", 2_000, "polite", 0.4),
        job("prompt", 3_000, "sleeping", 0.2, max_late_ms=150),
        job("deaf", 4_000, "deaf", 1.2, overlap="allow"),
        job("stubborn", 5_000, "stubborn", 1.2),
        job("hangs", 5_000, "hanging", 0, timeout_ms=lease_ms // 2),
        job("hung", 10_000, "deaf", 2.5, timeout_ms=lease_ms // 2),
        job("blocks", 10_000, "blocking", 1.2),
    ]


def _second(lease_ms: int) -> list[JobSpec]:
    """After a deploy: another schedule, a job that is gone, a new one, a handler that takes longer."""
    jobs = {job.name: job for job in _first(lease_ms)}
    del jobs["leaving"]
    jobs["beat"] = replace(jobs["beat"], period_ms=700)
    jobs["work"] = replace(jobs["work"], work_ms=round(lease_ms * 0.6))
    jobs["arriving"] = replace(jobs["pair"], name="arriving", overlap="skip")
    return list(jobs.values())
