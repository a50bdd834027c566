"""A distributed scheduler: each slot runs under a lease, a crashed run is taken over, fences expose stale owners."""

from tenure.context import Context, Signal
from tenure.errors import (
    BackendClosed,
    BackendError,
    BackendMisconfigured,
    BackendUnavailable,
    DuplicateJob,
    InvalidClaim,
    InvalidDuration,
    InvalidInput,
    InvalidJob,
    InvalidSchedule,
    InvalidUrl,
    SchedulerStateError,
    TenureError,
    UnknownBackend,
    UnknownJob,
)
from tenure.events import Error, Event, Exhausted, Failure, Interrupted, Skip, Start, Success, Takeover
from tenure.health import Health
from tenure.memory import MemoryBackend, MemoryStore
from tenure.model import (
    ActiveRun,
    ActiveRuns,
    Capabilities,
    Claim,
    ClaimResult,
    Finding,
    JobCard,
    LostAttempt,
    RunResult,
    Triggered,
)
from tenure.observe import Observer
from tenure.protocol import Backend, ClaimOnlyBackend, Examines, Hints, JobCards, LeaseBackend, Migrates
from tenure.registry import connect
from tenure.schedule import At, Cron, Every, Schedule, at, cron, every, schedule_of, tz_data_version
from tenure.scheduler import Scheduler

__version__ = "0.1.0"

__all__ = [
    "ActiveRun",
    "ActiveRuns",
    "At",
    "Backend",
    "BackendClosed",
    "BackendError",
    "BackendMisconfigured",
    "BackendUnavailable",
    "Capabilities",
    "Claim",
    "ClaimOnlyBackend",
    "ClaimResult",
    "Context",
    "Cron",
    "DuplicateJob",
    "Error",
    "Event",
    "Every",
    "Examines",
    "Exhausted",
    "Failure",
    "Finding",
    "Health",
    "Hints",
    "Interrupted",
    "InvalidClaim",
    "InvalidDuration",
    "InvalidInput",
    "InvalidJob",
    "InvalidSchedule",
    "InvalidUrl",
    "JobCard",
    "JobCards",
    "LeaseBackend",
    "LostAttempt",
    "MemoryBackend",
    "MemoryStore",
    "Migrates",
    "Observer",
    "RunResult",
    "Schedule",
    "Scheduler",
    "SchedulerStateError",
    "Signal",
    "Skip",
    "Start",
    "Success",
    "Takeover",
    "TenureError",
    "Triggered",
    "UnknownBackend",
    "UnknownJob",
    "at",
    "connect",
    "cron",
    "every",
    "schedule_of",
    "tz_data_version",
]
