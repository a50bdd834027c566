"""Lifecycle: entering, leaving, and what a backend says of itself."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from tenure.errors import BackendClosed, BackendError
from tenure.model import ActiveRuns, Capabilities, new_token
from tenure.protocol import JobCards, LeaseBackend

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import CALL_SECONDS, answered, outcomes, refused
from tenure_conformance.records import attempted
from tenure_conformance.rule import rule
from tenure_conformance.timing import monotonic_ms


def _every_call(bench: Bench, backend: Any) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
    return [
        ("claim", partial(backend.claim, bench.claim())),
        ("heartbeat", partial(backend.heartbeat, "job", SLOT, "token")),
        ("finish", partial(backend.finish, "job", SLOT, "token", "success")),
        ("release", partial(backend.release, "job", SLOT, "token")),
        ("active", partial(backend.active, ["job"])),
        ("active of nothing", partial(backend.active, [])),
        ("save_result", partial(backend.save_result, "job", attempted())),
        ("results", partial(backend.results, "job")),
        *([("cards", backend.cards), ("save_cards", partial(backend.save_cards, []))] if _keeps_cards(bench) else []),
    ]


def _keeps_cards(bench: Bench) -> bool:
    return "cards" in bench.target.levels


@rule(
    "LIF-001",
    level="lease",
    spec=("enter-prepares", "enter-concurrent", "claim-atomic"),
    catches=(
        "entering-at-once-fails",
        "busy-is-an-error",
        "race-first-claim",
        "race-claim",
        "sqlite-no-transaction",
        "always-won",
    ),
)
@answered("entering at once")
async def entering_at_once(bench: Bench) -> None:
    """Many objects that enter a fresh namespace at once all succeed, see one store, and one of them wins a run."""
    for turn in range(4):
        namespace = f"{bench.namespace}-{turn}"
        names = [f"n{number}" for number in range(bench.target.limits.clients // 2)]
        clients = await asyncio.gather(*(bench.client(name, namespace=namespace) for name in names))
        answers = await asyncio.gather(*(client.ask() for client in clients))
        assert len(outcomes(answers, "won")) == 1, [one.outcome for one in answers]
        assert len(outcomes(answers, "running")) == len(clients) - 1


@rule(
    "LIF-002",
    level="lease",
    spec="errors-closed",
    catches=("active-works-when-left", "works-when-left", "closed-is-runtime-error", "leaving-empties"),
)
async def left_backend_is_closed(bench: Bench) -> None:
    """After leaving every call raises BackendClosed, and so it does before entering."""
    async with bench.visitor("guest") as guest:
        await guest.win()
    for what, call in _every_call(bench, guest.backend):
        with refused(BackendClosed, f"{what} after leaving"):
            await call()
    unentered = bench.target.open(bench.url, bench.namespace)
    if hasattr(unentered, "heartbeat"):
        for what, call in _every_call(bench, unentered):
            with refused(BackendClosed, f"{what} before entering"):
                await call()
    assert (await bench.b.ask()).holder == "guest"


@rule(
    "LIF-003",
    level="lease",
    spec=("errors-closed", "enter-prepares", "errors-deadline"),
    catches=("leaving-cuts-calls-off", "closed-is-runtime-error", "leaving-closes-others"),
)
@answered("leaving amid calls")
async def leaving_amid_calls(bench: Bench) -> None:
    """Leaving while calls are on their way ends soon; each of them answers or raises a BackendError, and none
    is lost."""
    for turn in range(4):
        tasks: list[asyncio.Task[object]] = []
        begun = monotonic_ms()
        async with bench.visitor("guest") as guest:
            claims = [bench.claim(slot=SLOT + 20 * turn + number, overlap="allow") for number in range(20)]
            tasks = [asyncio.create_task(guest.claim(claim)) for claim in claims]
            for _ in range(turn):
                await asyncio.sleep(0)
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert monotonic_ms() - begun < 20_000
        for claim, answer in zip(claims, told, strict=True):
            if isinstance(answer, BaseException):
                assert isinstance(answer, BackendError | asyncio.CancelledError), repr(answer)
            assert (await bench.a.claim(claim)).attempt == 1


@rule("LIF-004", level="lease", spec="enter-prepares", pace="heavy", catches=("entering-leaks-tasks",))
@answered("entering again and again")
async def leaving_leaves_nothing(bench: Bench) -> None:
    """Entering and leaving again and again, and calls in between, leave no tasks, threads or open files behind."""

    async def visit() -> None:
        async with bench.visitor("guest") as guest:
            await asyncio.gather(*(guest.ask(slot=SLOT + number) for number in range(5)))

    def left() -> tuple[int, int, int]:
        files = Path("/proc/self/fd")
        return len(asyncio.all_tasks()), threading.active_count(), len(list(files.iterdir())) if files.exists() else 0

    for _ in range(3):
        await visit()
    before = left()
    for _ in range(15):
        await visit()
    after = left()
    for _ in range(100):
        if all(now < was + 5 for was, now in zip(before, after, strict=True)):
            break
        await asyncio.sleep(0.05)
        after = left()
    assert all(now < was + 5 for was, now in zip(before, after, strict=True)), (
        f"tasks, threads, files: {before}, {after}"
    )


@rule(
    "LIF-005",
    level="lease",
    spec=("capabilities-final", "time-min-lease"),
    catches=("promises-change", "promises-other-things"),
)
async def capabilities_are_as_declared(bench: Bench) -> None:
    """`capabilities` of every entered object are those that the target declares, and hold their limits."""
    for client in (bench.a, bench.b):
        promised = client.capabilities
        assert type(promised) is Capabilities
        assert promised == bench.target.capabilities, "declare in the target what the backend promises"
        assert promised.min_lease_ms >= 1
        assert promised.lease_granularity_ms >= 1
        assert promised.clock_error_ms >= 0
    await bench.a.win()
    assert bench.a.capabilities == bench.target.capabilities
    early = getattr(bench.target.open(bench.url, bench.namespace), "capabilities", None)
    if isinstance(early, Capabilities):
        assert early.durable <= bench.a.capabilities.durable, "before entering it promised to be durable"
        assert early.shared <= bench.a.capabilities.shared, "before entering it promised to be shared"


@rule(
    "LIF-006",
    level="lease",
    spec=("backend-level", "hint-what", "cards-what"),
    catches=("hints-missing", "cards-missing", "is-no-lease-backend"),
)
async def powers_are_as_declared(bench: Bench) -> None:
    """The backend has every method of its level, and pushes hints and keeps cards exactly if the target declares so."""
    for client in (bench.a, bench.b):
        assert isinstance(client.backend, LeaseBackend)
        has_hints = callable(getattr(client.backend, "changes", None))
        assert has_hints == ("hints" in bench.target.levels), "the level `hints` and the method `changes` disagree"
        has_cards = isinstance(client.backend, JobCards)
        assert has_cards == _keeps_cards(bench), "the level `cards` and the methods for it disagree"


@rule(
    "LIF-007",
    level="lease",
    spec=("enter-prepares", "namespace-only"),
    catches=(
        "entering-forgets-history",
        "leaving-closes-others",
        "leaving-empties",
        "entering-empties",
        "entering-releases",
    ),
)
@answered("entering a store in use")
async def entering_changes_nothing(bench: Bench) -> None:
    """Entering a store that is in use changes nothing of what it keeps: runs, leases and history."""
    held = await bench.a.win()
    released = await bench.a.win(slot=SLOT + 1, overlap="allow")
    assert await released.release()
    ended = await bench.a.win(slot=SLOT + 2, overlap="allow")
    assert await ended.finish("failed")
    await bench.a.save_result("job", attempted())
    async with bench.unchanged():
        for number in range(4):
            async with bench.visitor(f"guest {number}") as guest:
                assert (await guest.ask(slot=SLOT + 2)).status == "failed"
    assert await held.heartbeat()


@rule(
    "LIF-008",
    level="lease",
    spec=("claim-atomic", "errors-never-outcome", "calls-guarded"),
    catches=(
        "answers-out-of-order",
        "sqlite-batch-shares-one-answer",
        "heartbeat-of-any-token",
        "error-is-false",
        "error-is-running",
    ),
)
@answered("calls side by side")
async def calls_side_by_side(bench: Bench) -> None:
    """Fifty calls of every kind on one object at once get each their own answer."""
    held = [await bench.a.win(job=f"job {number}", slot=SLOT + number) for number in range(10)]
    jobs = [run.job for run in held]
    for job in jobs:
        await bench.a.save_result(job, attempted(SLOT, 1, error=job))

    async def all_of(number: int) -> None:
        run, client = held[number], bench.a
        beaten, other, told, active, results = await asyncio.gather(
            run.heartbeat(),
            client.heartbeat(run.job, run.slot, new_token()),
            client.ask(job=run.job, slot=run.slot),
            client.active(run.job),
            client.results(run.job),
        )
        assert (beaten, other) == (True, False)
        assert (told.outcome, told.attempt) == ("running", 1)
        assert [(one.job, one.slot, one.fence) for one in active.runs] == [(run.job, run.slot, run.fence)]
        assert [one.error for one in results] == [run.job]

    for _ in range(5):
        await asyncio.gather(*(all_of(number) for number in range(len(held))))


@rule(
    "LIF-009",
    level="durable",
    spec=("capabilities-durable", "bounds-never-dropped", "bounds-history"),
    catches=("sqlite-in-memory",),
)
@answered("after everyone left")
async def state_outlives_everyone(bench: Bench) -> None:
    """After everyone left, dropped runs stay dropped, ended ones ended, and history is as it was."""
    namespace = bench.namespace + "-kept"
    async with bench.visitor("first", namespace=namespace) as first:
        for number in range(30):
            held = await first.win(slot=SLOT + number)
            assert await held.finish()
        for number in range(5):
            await first.save_result("job", attempted(SLOT + number))
    for _ in range(2):
        async with bench.visitor("later", namespace=namespace) as later:
            for number in range(30):
                assert (await later.ask(slot=SLOT + number, overlap="allow")).outcome == "done", number
            assert [one.slot for one in await later.results()] == [SLOT + number for number in range(4, -1, -1)]
            assert await bench.look(by=later) == {}


@rule(
    "LIF-010",
    level="lease",
    spec=("enter-prepares", "backend-level"),
    catches=("entering-empties", "entering-releases", "token-known-to-its-object"),
)
async def objects_are_independent(bench: Bench) -> None:
    """An object knows nothing that the store does not: what one wins, another renews, releases, wins and finishes."""
    held = await bench.a.win()
    async with bench.visitor("guest") as guest:
        assert await held.heartbeat(by=guest)
        assert (await held.again(by=guest)).fence == held.fence
        assert await held.release(by=guest)
    taken = await bench.b.win(after=1)
    async with bench.visitor("guest") as guest:
        assert await taken.finish("failed", by=guest)
    assert await taken.finish(by=bench.a)
    assert (await bench.a.ask()).status == "failed"


@rule(
    "LIF-011",
    level="lease",
    spec=("enter-loop", "errors-deadline"),
    catches=("another-loop-is-runtime-error", "another-loop-takes-over"),
)
@answered("beside another event loop")
async def another_loop(bench: Bench) -> None:
    """A call from another event loop is answered rightly or raises a BackendError, in time, and the calls of the loop
    that entered go on."""
    held = await bench.a.win()

    async def call() -> object:
        async with asyncio.timeout(CALL_SECONDS):
            return await bench.a.backend.active(["job"])

    for _ in range(3):
        try:
            told = await asyncio.to_thread(asyncio.run, call())
        except BackendError:
            pass
        except Exception as error:
            raise AssertionError(f"a call from another loop raised {type(error).__name__}: {error}") from error
        else:
            assert isinstance(told, ActiveRuns)
            assert [(run.slot, run.fence) for run in told.runs] == [(held.slot, held.fence)]
        beaten, answer = await asyncio.gather(held.heartbeat(), bench.a.ask())
        assert (beaten, answer.outcome) == (True, "running")
