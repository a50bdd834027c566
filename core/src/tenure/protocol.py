"""What a backend offers (docs/protocol.md, section 2): two levels, and hints on top."""

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from tenure.model import ActiveRuns, Capabilities, Claim, ClaimResult, Ending, Finding, JobCard, RunResult


class Entered(Protocol):
    """Entering connects and prepares the store once; leaving closes what was opened."""

    async def __aenter__(self) -> Self:
        """Connect; raises BackendUnavailable or BackendMisconfigured within the backend's timeout."""

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close what was opened; later calls raise BackendClosed."""


@runtime_checkable
class ClaimOnlyBackend(Entered, Protocol):
    """Decides who runs a slot, and does not know whether the owner is alive."""

    async def claim(self, job: str, slot: int, token: str) -> bool:
        """True once per run; the same token gets True again."""

    async def save_result(self, job: str, result: RunResult) -> None:
        """Keep one record per (job, slot, attempt)."""


@runtime_checkable
class LeaseBackend(Entered, Protocol):
    """Decides who runs a slot, for as long as the owner is alive.

    A failure is raised as BackendError and is never an outcome; what breaks a limit is InvalidClaim before anything
    is sent. Every call ends within the backend's timeout, and repeated with the same token has the effect of one.
    """

    @property
    def capabilities(self) -> Capabilities:
        """Final once entered; before that the least the backend promises."""

    async def claim(self, claim: Claim) -> ClaimResult:
        """Decide the claim in one atomic step (section 3)."""

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        """Renew the lease for its attempt's length; False: this token does not hold the run."""

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        """End the run; False: this token does not hold it. Repeated: True, and the first status stays."""

    async def release(self, job: str, slot: int, token: str) -> bool:
        """End the lease at once and leave the run unfinished; False: this token does not hold the run."""

    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        """Every unfinished, not superseded run of the jobs, live or not."""

    async def save_result(self, job: str, result: RunResult) -> None:
        """Keep one record per (job, slot, attempt); ``crashed`` and attempt 0 never overwrite another record."""

    async def results(self, job: str, *, limit: int = 20) -> list[RunResult]:
        """The newest records first, by (slot, attempt)."""


@runtime_checkable
class Hints(Protocol):
    """A backend that can push what a poll would find; a hint is never trusted, it only makes a backup ask now."""

    def changes(self, jobs: Sequence[str]) -> AsyncIterator[str]:
        """A job's name each time one of its leases was released, or ended where the store sees it."""


@runtime_checkable
class Migrates(Protocol):
    """A backend whose store has a schema that somebody else than the running application may have to make."""

    async def migrate(self) -> list[str]:
        """Make the schema what this version needs; what was done, nothing if it was that already.

        It is called on a backend that is not entered.
        """

    def migration_sql(self) -> str:
        """The same for a store that has no schema yet, as text for who may make one."""


@runtime_checkable
class JobCards(Protocol):
    """A backend that also keeps what the jobs of its namespace are; readers then need no names.

    Nothing that decides about runs reads a card. Instances save the cards of their jobs when they start, when a job is
    added or replaced, and now and then.
    """

    async def save_cards(self, cards: Sequence[JobCard]) -> None:
        """Keep one card per job, the one saved last; no job comes twice in one call.

        Those not seen for CARD_KEPT_MS by the store's clock are forgotten at some save, or not shown.
        """

    async def cards(self) -> list[JobCard]:
        """The cards of the namespace, by job."""


@runtime_checkable
class Examines(Protocol):
    """A backend that can look at its store with an operator's eyes."""

    async def examine(self) -> list[Finding]:
        """What it finds on an entered backend, good and bad; a question that fails is a finding, not an error."""


Backend = ClaimOnlyBackend | LeaseBackend


def has_leases(backend: Backend) -> bool:
    """Whether the backend is a lease backend: one with a method ``heartbeat``."""
    return callable(getattr(backend, "heartbeat", None))
