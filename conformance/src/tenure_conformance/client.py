"""A client of the store: a backend object whose calls are written down, with verbs for what rules say most."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack

from tenure.model import (
    ActiveRuns,
    Capabilities,
    Claim,
    ClaimResult,
    Ending,
    JobCard,
    LostAttempt,
    Mode,
    Outcome,
    Overlap,
    RunResult,
)

from tenure_conformance.timing import Deadline, Span, Uncertain, monotonic_ms
from tenure_conformance.verdict import Call

if TYPE_CHECKING:
    from tenure_conformance.bench import Bench

T = TypeVar("T")

CALL_SECONDS = 30
"""A call that takes longer hangs, on any machine."""


class ClaimOptions(TypedDict, total=False):
    """What a rule says of a claim; the bench fills in the rest."""

    job: str
    slot: int
    token: str
    instance: str
    lease_ms: int
    mode: Mode
    overlap: Overlap
    max_attempts: int
    max_late_ms: int | None
    after: int


class Client:
    """One backend object of the store, entered, with a name in the transcript."""

    def __init__(self, name: str, backend: Any, bench: "Bench") -> None:
        self.name = name
        self.backend = backend
        self.bench = bench

    @property
    def capabilities(self) -> Capabilities:
        """The backend's, final since it is entered."""
        found = self.backend.capabilities
        assert isinstance(found, Capabilities), f"capabilities is {found!r}"
        return found

    async def claim(self, claim: Claim) -> ClaimResult:
        """The backend's claim."""
        return await self._answer("claim", {"claim": claim}, self.backend.claim(claim), ClaimResult)

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        """The backend's heartbeat."""
        arguments = {"job": job, "slot": slot, "token": token}
        return await self._answer("heartbeat", arguments, self.backend.heartbeat(job, slot, token), bool)

    async def finish(self, job: str, slot: int, token: str, status: Ending = "success") -> bool:
        """The backend's finish."""
        arguments = {"job": job, "slot": slot, "token": token, "status": status}
        return await self._answer("finish", arguments, self.backend.finish(job, slot, token, status), bool)

    async def release(self, job: str, slot: int, token: str) -> bool:
        """The backend's release."""
        arguments = {"job": job, "slot": slot, "token": token}
        return await self._answer("release", arguments, self.backend.release(job, slot, token), bool)

    async def active(self, *jobs: str) -> ActiveRuns:
        """The backend's active, of the job ``job`` if none is named."""
        asked: Sequence[str] = jobs or ("job",)
        return await self._answer("active", {"jobs": asked}, self.backend.active(asked), ActiveRuns)

    async def save_result(self, job: str, result: RunResult) -> None:
        """The backend's save_result."""
        arguments = {"job": job, "result": result}
        await self._answer("save_result", arguments, self.backend.save_result(job, result), type(None))

    async def results(self, job: str = "job", *, limit: int | None = None) -> list[RunResult]:
        """The backend's results, with its own default limit if none is given."""
        limits = {} if limit is None else {"limit": limit}
        return await self._answer("results", {"job": job, **limits}, self.backend.results(job, **limits), list)

    async def once(self, slot: int, token: str, *, job: str = "job") -> bool:
        """A claim-only backend's claim."""
        arguments = {"job": job, "slot": slot, "token": token}
        return await self._answer("claim", arguments, self.backend.claim(job, slot, token), bool)

    def changes(self, *jobs: str) -> AsyncIterator[str]:
        """The backend's hints; not in the transcript."""
        hints: AsyncIterator[str] = self.backend.changes(jobs)
        return hints

    async def save_cards(self, *cards: JobCard) -> None:
        """The backend's save_cards."""
        await self._answer("save_cards", {"cards": cards}, self.backend.save_cards(cards), type(None))

    async def cards(self) -> list[JobCard]:
        """The backend's cards."""
        return await self._answer("cards", {}, self.backend.cards(), list)

    async def ask(self, **options: Unpack[ClaimOptions]) -> ClaimResult:
        """A claim with the rest filled in: a fresh token, job ``job``, `skip`, a lease that outlasts the rule."""
        options.setdefault("instance", self.name)
        return await self.claim(self.bench.claim(**options))

    async def takeover(self, slot: int, /, **options: Unpack[ClaimOptions]) -> ClaimResult:
        """A backup's claim: mode ``takeover``, and the attempt that it was last told of, 1 unless given."""
        options["slot"], options["mode"] = slot, "takeover"
        options.setdefault("after", 1)
        return await self.ask(**options)

    async def win(self, **options: Unpack[ClaimOptions]) -> "Held":
        """A claim that must be won."""
        options.setdefault("instance", self.name)
        claim = self.bench.claim(**options)
        call = await self.record("claim", {"claim": claim}, self.backend.claim(claim))
        result = call.answer
        assert isinstance(result, ClaimResult), f"claim answered {result!r}"
        assert result.outcome == "won", f"expected won, {self.name} was told {result}"
        return Held(self, claim, result, self.bench.span(call))

    async def record(self, name: str, arguments: Mapping[str, Any], answer: Awaitable[Any]) -> Call:
        """Await a call of the backend and write it down; AssertionError if it hangs."""
        call = Call(self.name, name, arguments, self.bench.elapsed_ms())
        self.bench.calls.append(call)
        limit = asyncio.timeout(CALL_SECONDS)
        try:
            async with limit:
                call.answer = await answer
        except BaseException as error:
            call.error = type(error).__name__ + (f": {error}" if str(error) else "")
            if limit.expired():
                raise AssertionError(f"{name} did not answer within {CALL_SECONDS} s") from error
            raise
        finally:
            call.end_ms = self.bench.elapsed_ms()
        return call

    async def _answer(self, name: str, arguments: Mapping[str, Any], answer: Awaitable[Any], kind: type[T]) -> T:
        call = await self.record(name, arguments, answer)
        assert type(call.answer) is kind, f"{name} answered {call.answer!r}, not a {kind.__name__}"
        return call.answer


@dataclass(frozen=True, slots=True)
class Held:
    """A run that was won, and the calls of its holder; ``by`` lets another client make them."""

    client: Client
    claim: Claim
    result: ClaimResult
    won: Span

    @property
    def job(self) -> str:
        """The run's job."""
        return self.claim.job

    @property
    def slot(self) -> int:
        """The run's slot."""
        return self.claim.slot

    @property
    def token(self) -> str:
        """The holder's token."""
        return self.claim.token

    @property
    def attempt(self) -> int:
        """The attempt that was won."""
        assert type(self.result.attempt) is int, f"won with attempt {self.result.attempt!r}"
        return self.result.attempt

    @property
    def fence(self) -> int:
        """The fence that came with it."""
        assert type(self.result.fence) is int, f"won with fence {self.result.fence!r}"
        return self.result.fence

    @property
    def started_at(self) -> int:
        """When it was won, by the store's clock."""
        return self.result.now_ms

    @property
    def expires_at(self) -> int:
        """When its lease ends unless renewed, by the store's clock."""
        assert type(self.result.lease_left_ms) is int, f"won with lease_left_ms {self.result.lease_left_ms!r}"
        return self.result.now_ms + self.result.lease_left_ms

    @property
    def deadline(self) -> Deadline:
        """The end of the lease as the clients can know it."""
        return self.client.bench.deadline(self.won, self.claim.lease_ms)

    def lost(self, *, released: bool = False, ended_at: int | None = None) -> LostAttempt:
        """This attempt as its successor is told of it."""
        over = self.expires_at if ended_at is None else ended_at
        holder = self.claim.instance
        return LostAttempt(self.slot, self.attempt, self.fence, holder, self.started_at, over, released)

    async def heartbeat(self, by: Client | None = None) -> bool:
        """The holder's heartbeat."""
        return await (by or self.client).heartbeat(self.job, self.slot, self.token)

    async def finish(self, status: Ending = "success", by: Client | None = None) -> bool:
        """The holder's finish."""
        return await (by or self.client).finish(self.job, self.slot, self.token, status)

    async def release(self, by: Client | None = None) -> bool:
        """The holder's release."""
        return await (by or self.client).release(self.job, self.slot, self.token)

    async def again(self, by: Client | None = None) -> ClaimResult:
        """The very same claim, sent again."""
        return await (by or self.client).claim(self.claim)

    async def lapse(self) -> None:
        """Wait until the lease is surely over."""
        await self.deadline.wait_over()

    async def claimed_by(self, other: Client, **options: Unpack[ClaimOptions]) -> ClaimResult:
        """Another client's takeover of this very attempt."""
        options.setdefault("job", self.job)
        options.setdefault("after", self.attempt)
        options.setdefault("mode", "takeover")
        options["slot"] = self.slot
        return await other.ask(**options)


async def probe(
    held: Held, deadline: Deadline, part: float, by: Client, **options: Unpack[ClaimOptions]
) -> ClaimResult:
    """Another client's takeover at that part of the lease; Uncertain if it was not surely within it."""
    await deadline.wait(part)
    begin = monotonic_ms()
    answer = await held.claimed_by(by, **options)
    if not deadline.surely_alive(Span(begin, monotonic_ms())):
        raise Uncertain(f"a probe at {part:.0%} of {deadline.lease_ms} ms came too late")
    return answer


def outcomes(answers: Sequence[ClaimResult], outcome: Outcome) -> list[ClaimResult]:
    """Those of the answers with that outcome."""
    return [answer for answer in answers if answer.outcome == outcome]


def only(found: Sequence[T]) -> T:
    """The one thing that was found; AssertionError if it was none, or several."""
    assert len(found) == 1, f"expected one, found {len(found)}: {list(found)}"
    return found[0]


@contextmanager
def refused(kind: type[Exception], what: str) -> Iterator[None]:
    """What happens inside must raise that error; anything else is an AssertionError that names ``what``."""
    try:
        yield
    except kind:
        return
    except Exception as error:
        raise AssertionError(f"{what}: raised {type(error).__name__} ({error}), not {kind.__name__}") from error
    raise AssertionError(f"{what}: did not raise {kind.__name__}")


@asynccontextmanager
async def answered(what: str) -> AsyncIterator[None]:
    """Around a rule that says that calls are answered: an error that one raises fails the rule."""
    try:
        yield
    except (AssertionError, Uncertain):
        raise
    except Exception as error:
        raise AssertionError(f"{what}: raised {type(error).__name__}: {error}") from error


Verb = Literal["heartbeat", "finish", "release"]


async def guarded(client: Client, verb: Verb, job: str, slot: int, token: str) -> bool:
    """One of the three calls that a token guards."""
    call: Any = getattr(client, verb)
    answer: bool = await call(job, slot, token)
    return answer


VERBS: tuple[Verb, ...] = ("heartbeat", "finish", "release")
