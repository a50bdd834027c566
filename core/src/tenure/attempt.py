"""One attempt that this instance executes: what its handler is given, what is recorded and told of it."""

from typing import Literal, TypedDict

from tenure.context import Context
from tenure.events import Failure, Interrupted, InterruptReason, Start, Success, Takeover
from tenure.executor import Ended
from tenure.heartbeat import Lease
from tenure.instance import Instance
from tenure.job import Job
from tenure.model import LostAttempt, Mode, ResultStatus, RunResult, clean_error

AttemptStatus = Literal["success", "failed", "interrupted"]


class _Ids(TypedDict):
    job: str
    slot: int
    attempt: int
    fence: int
    instance: str


class Attempt:
    """An attempt from its win to its end. ``started_at`` is the store's time of the win, where there is one."""

    def __init__(
        self,
        instance: Instance,
        job: Job,
        slot: int,
        mode: Mode,
        *,
        started_at: int,
        number: int = 1,
        fence: int = 0,
        lease: Lease | None = None,
    ) -> None:
        self.job = job
        self.lease = lease
        # A job that was replaced while the claim was on its way has perhaps another rule than the store went by.
        overlap = job.overlap if lease is None else lease.claim.overlap
        self.ctx: Context = Context(job.name, slot, number, fence, mode, instance.name, overlap)
        self._instance = instance
        self._started_at = started_at
        self._started_ms = instance.clock.monotonic_ms()
        self._duration_ms = 0
        self._error: str | None = None
        self._timeout = False

    def started(self, previous: tuple[LostAttempt, ...] = ()) -> None:
        """Tell that the handler starts, and what it replaces."""
        if self.ctx.attempt > 1:
            self._instance.emit(Takeover(**self._ids(), previous=previous))
        if self._instance.wants("start"):
            late_ms = max(self._started_at - self.ctx.slot_ms, 0)
            self._instance.emit(Start(**self._ids(), mode=self.ctx.mode, late_ms=late_ms))

    def ended(self, ended: Ended) -> AttemptStatus:
        """Take the end in: a return is a success whatever the signal says, a raise after it an interruption."""
        self._duration_ms = round(self._instance.clock.monotonic_ms() - self._started_ms)
        text = ended.text
        self._error = None if text is None else clean_error(text)
        self._timeout = ended.how == "timeout"
        if ended.how == "returned":
            return "success"
        if ended.how == "raised" and self.ctx.signal.reason is None:
            return "failed"
        return "failed" if ended.how == "timeout" else "interrupted"

    def record(self, status: ResultStatus) -> RunResult:
        """The attempt's record in history."""
        ctx = self.ctx
        ended_at = self._started_at + self._duration_ms
        return RunResult(
            ctx.slot_ms, ctx.attempt, ctx.fence, status, ctx.instance, self._started_at, ended_at, self._error
        )

    def succeeded(self) -> None:
        """Tell that it is a success."""
        if self._instance.wants("success"):
            self._instance.emit(Success(**self._ids(), duration_ms=self._duration_ms))

    def failed(self, going_on: tuple[str, ...]) -> None:
        """Tell that it failed; ``going_on`` are handlers of the job that still execute after their timeout."""
        self._instance.emit(
            Failure(
                **self._ids(),
                duration_ms=self._duration_ms,
                error=self._error or "",
                timeout=self._timeout,
                going_on=going_on,
            )
        )

    def interrupted(self, reason: InterruptReason) -> None:
        """Tell that it was interrupted."""
        self._instance.emit(Interrupted(**self._ids(), reason=reason, duration_ms=self._duration_ms, error=self._error))

    def _ids(self) -> _Ids:
        ctx = self.ctx
        return {
            "job": ctx.job,
            "slot": ctx.slot_ms,
            "attempt": ctx.attempt,
            "fence": ctx.fence,
            "instance": ctx.instance,
        }
