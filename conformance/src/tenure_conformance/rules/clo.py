"""Claim-only: a run is given once, to one token."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tenure.errors import BackendClosed, BackendUnavailable, InvalidClaim
from tenure.model import MAX_SLOT, new_token
from tenure.protocol import has_leases

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import answered, refused
from tenure_conformance.records import ATTEMPTED, UNSTARTED, attempted, unstarted
from tenure_conformance.rule import rule


@rule(
    "CLO-001",
    level="claim-only",
    spec=("claim-only-once", "claim-only-repeat"),
    catches=("once-given-twice", "once-answers-numbers"),
)
async def run_is_given_once(bench: Bench) -> None:
    """A run's first claim is `True`, and every other token's is `False`, over every client and for ever."""
    assert await bench.a.once(SLOT, "first")
    for _ in range(3):
        for client in (bench.a, bench.b):
            assert not await client.once(SLOT, "second")
            assert not await client.once(SLOT, new_token())


@rule(
    "CLO-002",
    level="claim-only",
    spec=("claim-only-repeat", "errors-repeat"),
    catches=("once-last-token", "once-not-repeated", "once-answers-numbers"),
)
async def same_token_is_true_again(bench: Bench) -> None:
    """The winner's token gets `True` again, over every client and also after others lost; the losers' stay `False`."""
    assert await bench.a.once(SLOT, "first")
    for _ in range(3):
        assert not await bench.b.once(SLOT, "second")
        for client in (bench.b, bench.a):
            assert await client.once(SLOT, "first")


@rule(
    "CLO-003",
    level="claim-only",
    spec=("claim-only-once", "claim-atomic"),
    catches=(
        "once-race",
        "once-slot-ignored",
        "once-slot-in-seconds",
        "once-last-token",
        "once-given-twice",
        "once-answers-numbers",
    ),
)
async def one_of_many_wins(bench: Bench) -> None:
    """Of many clients that claim a run at once exactly one gets it, again and again, and it alone is the winner
    after."""
    clients = await bench.clients()
    for turn in range(15):
        tokens = [new_token() for _ in clients]
        pairs = list(zip(clients, tokens, strict=True))
        won = await asyncio.gather(*(client.once(SLOT + turn, token) for client, token in pairs))
        assert won.count(True) == 1, won
        again = [await bench.b.once(SLOT + turn, token) for token in tokens]
        assert again == won


@rule(
    "CLO-004",
    level="claim-only",
    spec=("word-run", "claim-only-once", "namespace-only"),
    catches=(
        "once-job-ignored",
        "once-slot-ignored",
        "once-slot-in-seconds",
        "once-namespace-ignored",
        "once-given-twice",
        "once-answers-numbers",
    ),
)
async def runs_are_apart(bench: Bench) -> None:
    """Each slot, job and namespace has runs of its own; slots one millisecond apart are different."""
    other = await bench.client("other", namespace=bench.namespace + "-b")
    assert await bench.a.once(SLOT, "t")
    for slot in (
        SLOT + 1,
        SLOT - 1,
        SLOT + 1_000,
        SLOT // 1_000,
        SLOT * 10,
        0,
        1,
        2**31,
        2**32,
        2**53 % MAX_SLOT,
        MAX_SLOT,
    ):
        assert await bench.b.once(slot, f"t{slot}"), slot
        assert not await bench.a.once(slot, "x")
    assert await bench.b.once(SLOT, "x", job="other")
    assert await other.once(SLOT, "x")
    assert not await bench.b.once(SLOT, "x")


@rule(
    "CLO-005",
    level="claim-only",
    spec=("names-exact", "limits-name"),
    catches=("once-names-cut", "once-job-ignored", "once-names-folded", "once-names-normalized"),
)
@answered("a possible name")
async def names_are_exact(bench: Bench) -> None:
    """Names are compared exactly: case, spaces, Unicode forms, separators, pattern signs and the last of 200
    bytes count."""
    names = [
        "sync",
        "Sync",
        " sync",
        "sync ",
        "é",
        "e\u0301",
        "🎩",
        "💥",
        "a:b",
        "a/b",
        "a.b",
        "a",
        "..",
        ".",
        "*",
        "%",
        "_",
    ]
    names += [
        "'",
        '"',
        "\\",
        "null",
        "0",
        "a b",
        "x" * 200,
        "x" * 199 + "y",
        "x" * 199,
        f"sync:{SLOT}",
        "~",
        "con",
        "$x",
    ]
    for number, name in enumerate(names):
        assert await bench.a.once(SLOT, f"t{number}", job=name), f"{name!r} was taken for another name"
    for number, name in enumerate(names):
        assert await bench.b.once(SLOT, f"t{number}", job=name), name
        assert not await bench.b.once(SLOT, "other", job=name), name


@rule(
    "CLO-006",
    level="claim-only",
    spec=("names-exact", "limits-token"),
    catches=("once-tokens-cut", "once-tokens-folded"),
)
@answered("a possible token")
async def tokens_are_exact(bench: Bench) -> None:
    """Tokens of 1 to 64 printable ASCII characters work and are compared to the last one."""
    tokens = ["x", "X", "y" * 64, "y" * 63 + "z", " ", "a ", " a", "%", "*", "null", "0", "/", "../x", "\\", "'", '"']
    for number, token in enumerate(tokens):
        assert await bench.a.once(SLOT + number, token), token
        assert await bench.b.once(SLOT + number, token), token
        for other in tokens:
            assert await bench.b.once(SLOT + number, other) == (other == token), f"{other!r} on {token!r}"


@rule(
    "CLO-007",
    level="claim-only",
    spec=("limits-before-send", "limits-slot", "limits-name", "limits-token"),
    catches=("once-unchecked",),
)
async def impossible_claims_are_refused(bench: Bench) -> None:
    """A name, slot or token beyond the limits is InvalidClaim, and gives no run away."""
    impossible: list[tuple[Any, Any, Any]] = [
        (name, SLOT, "t") for name in ("", "a\x00", "a\nb", "\ud800", "x" * 201, 7)
    ]
    impossible += [("job", slot, "t") for slot in (-1, MAX_SLOT + 1, 1.5, "1", None, True)]
    impossible += [("job", SLOT, token) for token in ("", "x" * 65, "é", None, b"t")]
    for job, slot, token in impossible:
        with refused(InvalidClaim, f"claim of {job!r}, {slot!r}, {token!r}"):
            await bench.a.backend.claim(job, slot, token)
    assert await bench.b.once(SLOT, "t")


@rule(
    "CLO-008",
    level="claim-only",
    spec=("results-one-record", "result-statuses", "limits-error-text"),
    catches=("once-record-takes-the-run", "once-forgets-with-a-record", "once-long-errors-refused"),
)
@answered("saving records")
async def records_are_taken(bench: Bench) -> None:
    """Records of every status, with any text, are taken, also twice and for runs that nobody claimed, and give
    no run away."""
    for number, status in enumerate(ATTEMPTED):
        await bench.a.save_result("job", attempted(SLOT + number, 1, status, "𝕏" * number * 16_000 + "a\x00\ud800"))
        await bench.b.save_result("job", attempted(SLOT + number, 1, status))
    for status in UNSTARTED:
        await bench.a.save_result("job", unstarted(SLOT + 9, status))
    await bench.a.save_result("🎩 / .. ", attempted(MAX_SLOT, 2**31))
    assert await bench.b.once(SLOT, "t")
    await bench.b.save_result("job", attempted())
    assert not await bench.b.once(SLOT, "x")


@rule("CLO-009", level="claim-only", spec="backend-level", catches=("once-with-heartbeat",))
async def it_knows_no_leases(bench: Bench) -> None:
    """A claim-only backend has `claim` and `save_result`, and no `heartbeat`, by which a lease backend is known."""
    for client in (bench.a, bench.b):
        assert not has_leases(client.backend), "a backend with a method `heartbeat` is a lease backend: declare `lease`"
        assert callable(client.backend.claim)
        assert callable(client.backend.save_result)


@rule("CLO-010", level="claim-only", spec=("errors-closed", "enter-prepares"), catches=("once-works-when-left",))
async def left_backend_is_closed(bench: Bench) -> None:
    """After leaving, and before entering, calls raise BackendClosed; what was won stays won."""
    async with bench.visitor("guest") as guest:
        assert await guest.once(SLOT, "t")
    backends = [("after leaving", guest.backend)]
    unentered = bench.target.open(bench.url, bench.namespace)
    if hasattr(unentered, "save_result"):
        backends.append(("before entering", unentered))
    for when, backend in backends:
        calls: tuple[Callable[[], Awaitable[object]], ...] = (
            partial(backend.claim, "job", SLOT, "t"),
            partial(backend.save_result, "job", attempted()),
        )
        for call in calls:
            with refused(BackendClosed, f"a call {when}"):
                await call()
    assert not await bench.b.once(SLOT, "x")


@rule(
    "CLO-011",
    level="claim-only",
    spec=("errors-cancel", "errors-repeat"),
    catches=("once-cancelled-is-lost", "once-race-with-itself", "once-not-repeated"),
)
@answered("around a cancelled claim")
async def cancelled_claim(bench: Bench) -> None:
    """A claim that is cancelled at any moment was made or was not: its token gets the run, and another then
    does not."""
    for moment in range(25):
        task = asyncio.create_task(bench.a.once(SLOT + moment, "t"))
        if moment < 15:
            for _ in range(moment):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep((moment - 14) / 5_000)
        task.cancel()
        (told,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(told, BaseException) and not isinstance(told, asyncio.CancelledError | BackendUnavailable):
            raise told
        assert await bench.a.once(SLOT + moment, "t")
        assert not await bench.b.once(SLOT + moment, "x")


@rule(
    "CLO-012",
    level="claim-only",
    spec=("claim-only-once", "bounds-never-dropped"),
    catches=(
        "once-forgets-the-old",
        "once-forgets-with-a-record",
        "once-slot-ignored",
        "once-slot-in-seconds",
        "once-last-token",
        "once-given-twice",
    ),
)
async def old_runs_are_not_given_again(bench: Bench) -> None:
    """A run that was given is not given again after hundreds of newer ones, and records, of its job."""
    count = min(bench.target.limits.runs, 300)
    for number in range(count):
        assert await bench.a.once(SLOT + number, f"t{number}")
        if number % 3 == 0:
            await bench.a.save_result("job", attempted(SLOT + number))
    for number in range(count):
        assert not await bench.b.once(SLOT + number, "x"), number
    assert await bench.b.once(SLOT, "t0")


@rule(
    "CLO-013",
    level="claim-only",
    spec=("enter-prepares", "enter-concurrent", "claim-only-once"),
    catches=("once-entering-at-once-fails", "once-race", "once-given-twice", "once-answers-numbers"),
)
@answered("entering at once")
async def entering_at_once(bench: Bench) -> None:
    """Many objects that enter a fresh namespace at once all succeed, and one of them gets a run."""
    for turn in range(4):
        namespace = f"{bench.namespace}-{turn}"
        clients = await asyncio.gather(*(bench.client(f"n{number}", namespace=namespace) for number in range(8)))
        won = await asyncio.gather(*(client.once(SLOT, new_token()) for client in clients))
        assert won.count(True) == 1, won


@rule(
    "CLO-014",
    level="claim-only",
    spec=("claim-only-repeat", "errors-repeat", "claim-atomic"),
    catches=("once-race-with-itself", "once-not-repeated", "once-given-twice", "once-answers-numbers"),
)
async def claim_sent_at_once(bench: Bench) -> None:
    """A claim that arrives several times at once, over several clients, is `True` each time."""
    clients = await bench.clients(8)
    for turn in range(6):
        assert await asyncio.gather(*(client.once(SLOT + turn, "t") for client in clients)) == [True] * 8
        assert not await bench.b.once(SLOT + turn, "x")


@rule(
    "CLO-015",
    level="claim-only",
    spec=("namespace-only", "names-exact"),
    catches=(
        "once-names-as-files",
        "once-names-joined",
        "once-names-folded",
        "once-names-normalized",
        "once-namespace-ignored",
    ),
)
async def namespaces_are_exact(bench: Bench) -> None:
    """Namespaces that differ in case, a space, Unicode form or a separator are different, and do not join with
    names."""
    base = bench.namespace
    endings = ("\u00e9", "e\u0301", " ", ":job", "%", "*", "_", "-B", "-b", "/x", "\\", "'")
    clients = [await bench.client(f"n{number}", namespace=base + end) for number, end in enumerate(endings)]
    for client, ending in zip(clients, endings, strict=True):
        assert await client.once(SLOT, "t" + client.name, job="y"), ending
    for sign in (":", "/", ".", "-", "_", "#"):
        left = await bench.client("l", namespace=f"{base}-{ord(sign)}")
        right = await bench.client("r", namespace=f"{base}-{ord(sign)}{sign}x")
        assert await left.once(SLOT, "l", job=f"x{sign}y")
        assert await right.once(SLOT, "r", job="y"), f"joined by {sign!r}"
    assert await bench.a.once(SLOT, "t", job="y")


@rule(
    "CLO-016",
    level="durable",
    base="claim-only",
    spec=("capabilities-durable", "claim-only-once"),
    catches=("once-forgets-when-left", "once-last-token", "once-given-twice", "once-answers-numbers"),
)
async def runs_outlive_their_clients(bench: Bench) -> None:
    """What was given stays given when every client has left and new ones enter."""
    namespace = bench.namespace + "-kept"
    async with bench.visitor("first", namespace=namespace) as first:
        assert await first.once(SLOT, "mine")
    async with bench.visitor("second", namespace=namespace) as second:
        assert not await second.once(SLOT, "other")
        assert await second.once(SLOT, "mine")


@rule(
    "CLO-017",
    level="claim-only",
    spec=("limits-name", "limits-before-send", "namespace-only"),
    catches=("once-namespace-unchecked",),
)
async def impossible_namespaces_are_refused(bench: Bench) -> None:
    """A namespace beyond the limits of names is InvalidClaim, at the latest when its backend is entered."""
    for namespace in ("", "x" * 201, "é" * 101, "a\x00b", "a\n", "\ud800"):
        with refused(InvalidClaim, f"namespace {namespace!r}"):
            async with bench.target.open(bench.url, namespace):
                pass
