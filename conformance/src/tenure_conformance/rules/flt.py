"""Faults: a store that is silent, restarted or misconfigured, and a network that loses, cuts, delays and repeats."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from tenure.errors import BackendError, BackendMisconfigured, BackendUnavailable
from tenure.model import ActiveRuns, Claim, RunResult

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import Client, Held, answered, outcomes, probe
from tenure_conformance.faults.blocking import longest_block
from tenure_conformance.faults.kit import Faults
from tenure_conformance.faults.proxy import CutReply, Delay, Dribble, Fault, LostRequest, LostRequests
from tenure_conformance.faults.scene import (
    LOOKS,
    Calls,
    Scene,
    assert_unavailable,
    faults_of,
    healthy,
    in_time,
    recovered,
    scene,
    stalls,
    told_of,
    win,
)
from tenure_conformance.histories import CLIENTS, assert_linearizable, play
from tenure_conformance.records import attempted
from tenure_conformance.rule import rule
from tenure_conformance.timing import Deadline, Span, Uncertain, monotonic_ms, sleep_until

RECORD = attempted()
REPLIES = 12
"""More than a call waits for, one after another."""
PATIENT_MS = 5_000
"""A timeout for calls that must be told something else than that it is over."""
BLOCK_MS = 50
ARRIVAL_MS = 200
"""What a message that was held back takes to arrive once all is well, generously."""


def _every_call(scene: Scene, held: Held) -> Calls:
    """Each of the calls, about a run that ``near`` holds."""
    near = scene.near
    return {
        "claim": lambda: near.ask(job="other"),
        "claim again": held.again,
        "heartbeat": held.heartbeat,
        "finish": held.finish,
        "release": held.release,
        "active": near.active,
        "save_result": partial(near.save_result, "job", RECORD),
        "results": near.results,
    }


def _assert_unasked(name: str, told: object, held: Held) -> None:
    """The store could not be asked to decide; what can be read all the same must be true."""
    if isinstance(told, ActiveRuns):
        assert [(run.slot, run.fence) for run in told.runs] == [(SLOT, held.fence)], f"{name}: {told}"
    elif isinstance(told, list):
        assert told == [RECORD], f"{name}: {told}"
    else:
        assert_unavailable(name, told)


async def _opening(bench: Bench) -> tuple[Scene, Held]:
    """A run that ``near`` holds and a record that it saved."""
    stage = await scene(bench)
    held = await win(stage.near)
    with healthy("save_result"):
        await stage.near.save_result("job", RECORD)
    return stage, held


@rule(
    "FLT-001",
    level="faults",
    needs="silence",
    spec=("errors-deadline", "errors-unavailable", "errors-cause", "errors-never-outcome"),
    pace="timed",
)
async def silent_store(bench: Bench) -> None:
    """Every call to a store that gives no answer ends by its deadline with BackendUnavailable, its cause attached;
    what can be read all the same is true."""
    stage, held = await _opening(bench)
    await stage.silence()
    for _ in range(2):
        told = await in_time(_every_call(stage, held), stage.faults.timeout_ms)
        for name, answer in told.items():
            _assert_unasked(name, answer, held)


@rule(
    "FLT-002",
    level="faults",
    needs="silence",
    spec=("errors-deadline-enter", "errors-unavailable", "errors-cause"),
    pace="timed",
)
async def entering_a_silent_store(bench: Bench) -> None:
    """Entering a store that gives no answer ends by its deadline with BackendUnavailable, and works later."""
    faults = await faults_of(bench)
    await faults.silence()

    async def enter() -> int:
        async with bench.visitor("guest", url=faults.url) as guest:
            return (await guest.win()).attempt

    assert_unavailable("entering", (await in_time({"entering": enter}, faults.timeout_ms))["entering"])
    await faults.heal()
    with healthy("entering"):
        assert await enter() == 1


@rule("FLT-003", level="faults", needs="silence", spec=("errors-deadline", "errors-closed"), pace="timed")
async def leaving_a_silent_store(bench: Bench) -> None:
    """Leaving a store that gives no answer ends by the deadline, amid calls too, and those end with it."""
    faults = await faults_of(bench)
    openings = [bench.target.open(faults.url, bench.namespace) for _ in range(2 * LOOKS)]
    with healthy("entering"):
        clients = [Client(f"guest {n}", await opening.__aenter__(), bench) for n, opening in enumerate(openings)]
    await faults.silence()

    async def leave(calls: int) -> list[object]:
        client, opening = clients.pop(), openings.pop()
        tasks = [asyncio.create_task(client.ask(job=f"job {number}")) for number in range(calls)]
        await asyncio.sleep(0.01)
        await opening.__aexit__(None, None, None)
        return await asyncio.gather(*tasks, return_exceptions=True)

    told = await in_time({"leaving": partial(leave, 0), "leaving amid calls": partial(leave, 4)}, 2 * faults.timeout_ms)
    await faults.heal()
    for opening in openings:
        await opening.__aexit__(None, None, None)
    for name, answers in told.items():
        assert isinstance(answers, list), f"{name} raised {answers!r}"
        for answer in answers:
            assert isinstance(answer, BackendError | asyncio.CancelledError), f"{name}: a claim was told {answer!r}"


@rule("FLT-004", level="faults", needs="silence", spec=("errors-recover", "errors-repeat"), pace="timed")
async def object_recovers(bench: Bench) -> None:
    """After the store gave no answer the same object works again as soon as the store does, call by call."""
    stage, held = await _opening(bench)
    for turn in range(2):
        await stage.silence()
        calls: Calls = {"heartbeat": held.heartbeat, "active": stage.near.active}
        for name, told in (await in_time(calls, stage.faults.timeout_ms)).items():
            _assert_unasked(name, told, held)
        await stage.heal()
        assert await recovered(stage, "heartbeat", held.heartbeat) is True
        told = await recovered(stage, "claim", partial(stage.near.ask, job=f"job {turn}", token=f"again {turn}"))
        assert (told.outcome, told.attempt) == ("won", 1)
        assert list(await bench.look(by=stage.far)) == [("job", SLOT)]
        assert await recovered(stage, "results", stage.near.results) == [RECORD]


@rule("FLT-005", level="faults", needs="silence", spec=("errors-recover", "word-live", "claim-row-3"), pace="timed")
async def outage_within_the_lease(bench: Bench) -> None:
    """A holder whose store gives no answer for less than the lease keeps the run: nobody takes it, and its
    heartbeat holds."""
    stage = await scene(bench)
    held = await win(stage.near, lease_ms=bench.granted(4 * stage.faults.timeout_ms))
    await stage.silence()
    told = await told_of(held.heartbeat())
    assert_unavailable("heartbeat", told)
    await stage.heal()
    assert await recovered(stage, "heartbeat", held.heartbeat) is True
    answer = await probe(held, held.deadline, 0.6, stage.far)
    assert (answer.outcome, answer.attempt, answer.holder) == ("running", 1, "near")
    assert await recovered(stage, "finish", held.finish) is True


@rule(
    "FLT-006",
    level="faults",
    needs="silence",
    spec=("claim-row-8", "heartbeat-refused", "finish-refused", "release-refused"),
    pace="timed",
)
async def outage_beyond_the_lease(bench: Bench) -> None:
    """A holder whose store gives no answer for longer than the lease has one successor at most, and is refused
    everything after it."""
    stage = await scene(bench)
    others = [stage.far, *[await bench.client(f"far {n}", url=stage.faults.direct) for n in range(2, 5)]]
    held = await win(stage.near, lease_ms=bench.lease_ms)
    await stage.silence()
    await held.lapse()
    await stage.heal()
    answers = await asyncio.gather(*(held.claimed_by(other) for other in others))
    won = outcomes(answers, "won")
    assert len(won) == 1, f"{len(won)} of {len(others)} took the run over"
    assert (won[0].attempt, [one.attempt for one in won[0].previous]) == (2, [1])
    assert len(outcomes(answers, "running")) == len(others) - 1
    for name, call in (("heartbeat", held.heartbeat), ("finish", held.finish), ("release", held.release)):
        assert await recovered(stage, name, call) is False, f"{name} of the former holder"
    assert (await bench.look(by=stage.far))["job", SLOT][:2] == (2, won[0].fence)


@rule(
    "FLT-007",
    level="faults",
    needs="silence",
    spec=("errors-repeat", "claim-row-2", "finish-repeat", "release-repeat", "results-one-record"),
    pace="timed",
)
async def unanswered_calls_repeated(bench: Bench) -> None:
    """Every call that ended without an answer can be repeated with its token, and has the effect of one."""
    stage = await scene(bench)
    near, far = stage.near, stage.far
    beaten, finished, released, taken = [
        await win(near, job=job) for job in ("beaten", "finished", "released", "taken")
    ]
    with healthy("release"):
        assert await taken.release()
    claim, takeover = bench.claim(job="claimed"), bench.claim(job="taken", mode="takeover", after=1)
    calls: Calls = {
        "claim": lambda: near.claim(claim),
        "takeover": lambda: near.claim(takeover),
        "heartbeat": beaten.heartbeat,
        "finish": lambda: finished.finish("failed"),
        "release": released.release,
        "save_result": partial(near.save_result, "job", RECORD),
    }
    await stage.silence()
    for name, told in (await in_time(calls, stage.faults.timeout_ms)).items():
        assert_unavailable(name, told)
    await stage.heal()
    told = {name: await recovered(stage, name, call) for name, call in calls.items()}
    assert (told["claim"].outcome, told["claim"].attempt) == ("won", 1)
    assert (told["takeover"].outcome, told["takeover"].attempt) == ("won", 2)
    assert [one.attempt for one in told["takeover"].previous] == [1]
    assert (told["heartbeat"], told["finish"], told["release"]) == (True, True, True)
    shown = await bench.look("beaten", "claimed", "finished", "released", "taken", by=far)
    assert {job: (run[0], run[3]) for (job, _), run in shown.items()} == {
        "beaten": (1, True),
        "claimed": (1, True),
        "released": (1, False),
        "taken": (2, True),
    }
    assert (await far.ask(job="finished")).status == "failed"
    assert await far.results() == [RECORD]


@rule("FLT-008", level="faults", needs="silence", spec=("errors-late-message", "claim-row-5"), pace="timed")
async def claim_given_up(bench: Bench) -> None:
    """A claim whose sender gave up, whether it arrives or not, costs others at most one attempt and one lease."""
    stage = await scene(bench)
    claim = bench.claim(instance="near", lease_ms=bench.short_ms)
    await stage.silence()
    assert_unavailable("claim", await told_of(stage.near.claim(claim)))
    await stage.heal()
    await sleep_until(monotonic_ms() + ARRIVAL_MS)
    answer = await stage.far.ask()
    if answer.outcome == "running":
        assert (answer.attempt, answer.holder) == (1, "near")
        await bench.deadline(bench.span(bench.calls[-1]), bench.short_ms).wait_over()
        answer = await stage.far.takeover(SLOT, after=1)
    assert answer.outcome == "won"
    assert answer.attempt is not None
    assert answer.attempt <= 2
    assert list(await bench.look(by=stage.far)) == [("job", SLOT)]


PAUSES_MS = (0, 1, 5, 20, 60)


@rule("FLT-009", level="faults", needs="silence", spec=("errors-cancel", "errors-never-outcome"), pace="timed")
async def cancelled_while_silent(bench: Bench) -> None:
    """A call that is cancelled while the store gives no answer ends at once, and the next calls of the object answer
    their own."""
    stage, held = await _opening(bench)
    shown = await stage.far.win(job="shown")
    calls = {**_every_call(stage, held), "claim of another": lambda: stage.near.ask(job="shown")}
    del calls["finish"], calls["release"]
    for pause_ms in PAUSES_MS:
        for name, call in calls.items():
            await stage.silence()
            await in_time({f"{name}, cancelled after {pause_ms} ms,": partial(_cancelled, call, pause_ms)}, pause_ms)
            await stage.heal()
            await _assert_own_answers(stage, held, shown)


async def _cancelled(call: Callable[[], Awaitable[Any]], pause_ms: float) -> object:
    task = asyncio.ensure_future(call())
    await asyncio.sleep(pause_ms / 1_000)
    task.cancel()
    return (await asyncio.gather(task, return_exceptions=True))[0]


async def _assert_own_answers(stage: Scene, held: Held, shown: Held) -> None:
    """Different calls in a row, none of which another's answer would fit."""
    near = stage.near
    told = await recovered(stage, "claim", lambda: near.ask(job="shown", token="again"))
    assert (told.outcome, told.holder, told.attempt) == ("running", "far", 1)
    assert await recovered(stage, "results", near.results) == [RECORD]
    assert await recovered(stage, "heartbeat", partial(near.heartbeat, "job", SLOT, "nobody")) is False
    assert await recovered(stage, "heartbeat", held.heartbeat) is True
    runs = (await recovered(stage, "active", partial(near.active, "shown"))).runs
    assert [(run.job, run.fence) for run in runs] == [("shown", shown.fence)]


@rule("FLT-010", level="faults", needs="silence", spec=("errors-recover", "errors-cancel"), pace="timed")
async def many_calls_given_up(bench: Bench) -> None:
    """After many calls at once were cancelled or ran into their deadline, as many at once are answered again."""
    stage, held = await _opening(bench)
    await stage.silence()
    for wave in range(3):
        tasks = [asyncio.create_task(stage.near.ask(job=f"job {wave} {number}")) for number in range(40)]
        await asyncio.sleep(0.002 * wave)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    given_up: Calls = {f"heartbeat {number}": held.heartbeat for number in range(40)}
    for name, told in (await in_time(given_up, stage.faults.timeout_ms)).items():
        assert_unavailable(name, told)
    await stage.heal()
    assert await recovered(stage, "heartbeat", held.heartbeat) is True
    for _ in range(LOOKS):  # a busy machine is not too slow each time
        begun = monotonic_ms()
        async with stalls() as stall:
            answers = await asyncio.gather(*(told_of(held.heartbeat()) for _ in range(40)))
        took_ms = monotonic_ms() - begun
        if answers == [True] * 40:
            return
    if any(isinstance(answer, BackendUnavailable) for answer in answers) and stall.ms > stage.faults.timeout_ms / 2:
        raise Uncertain(f"forty heartbeats took {took_ms:.0f} ms while the machine stood still for {stall.ms:.0f} ms")
    raise AssertionError(f"forty heartbeats at once, {took_ms:.0f} ms: {[a for a in answers if a is not True]}")


@rule("FLT-011", level="faults", needs="silence", spec=("backend-level", "errors-deadline"), pace="heavy")
async def loop_is_not_blocked(bench: Bench) -> None:
    """While the store takes 300 ms to answer, the event loop never stands still for longer than 50 ms."""
    stage, held = await _opening(bench)
    calls = (held.heartbeat, held.again, stage.near.active, stage.near.results)

    async def slow() -> None:
        await stage.silence()
        tasks = [asyncio.create_task(told_of(call())) for call in calls]
        await asyncio.sleep(0.3)
        await stage.heal()
        await asyncio.gather(*tasks)

    found: list[float] = []
    while len(found) < 3 and min(found, default=BLOCK_MS + 1) > BLOCK_MS:
        found.append(await longest_block(slow))
    assert min(found) <= BLOCK_MS, f"in each of {len(found)} rounds the loop stood still, {min(found):.0f} ms at least"


@rule(
    "FLT-012",
    level="faults",
    needs="restart",
    spec=("capabilities-durable", "errors-recover", "bounds-never-dropped", "claim-fence"),
    pace="heavy",
)
async def restart_keeps_everything(bench: Bench) -> None:
    """After a restart of the store the same object works, and runs, holders, ended runs, history and fences are as
    before."""
    stage = await scene(bench)
    assert stage.faults.restart is not None
    ended = await win(stage.near)
    with healthy("calls"):
        assert await ended.finish("failed")
        await stage.near.save_result("job", RECORD)
    held = await win(stage.near, slot=SLOT + 1, overlap="allow")
    released = await win(stage.near, slot=SLOT + 2, overlap="allow")
    with healthy("release"):
        assert await released.release()
    before = await bench.look(by=stage.far)
    await stage.faults.restart()
    assert await recovered(stage, "heartbeat", held.heartbeat) is True
    after = await recovered(stage, "active", partial(bench.look, by=stage.near))
    assert {run: told[:-1] for run, told in after.items()} == {run: told[:-1] for run, told in before.items()}
    assert await recovered(stage, "results", stage.near.results) == [RECORD]
    told = await recovered(stage, "claim", lambda: stage.near.ask(overlap="allow"))
    assert (told.outcome, told.status) == ("done", "failed")
    taken = await recovered(stage, "takeover", lambda: stage.near.takeover(SLOT + 2, overlap="allow", token="taken"))
    assert (taken.outcome, taken.attempt) == ("won", 2)
    assert taken.fence > released.fence, f"the fence was {released.fence}, and is {taken.fence} after the restart"
    assert await recovered(stage, "release", released.release) is False
    assert await recovered(stage, "finish", held.finish) is True


@rule("FLT-013", level="faults", needs="restart", spec=("time-restart", "word-live"), pace="heavy")
async def restart_shortens_no_lease(bench: Bench) -> None:
    """A restart of the store never shortens a lease, and lengthens it by no more than one length."""
    stage = await scene(bench)
    assert stage.faults.restart is not None
    held = await win(stage.near, lease_ms=bench.granted(3 * bench.lease_ms))
    begun = monotonic_ms()
    await stage.faults.restart()
    again = Deadline(Span(begun, monotonic_ms()), held.deadline.lease_ms, held.deadline.slack_ms)
    async with bench.visitor("guest", url=stage.faults.direct) as guest:
        answer = await probe(held, held.deadline, 0.9, guest)
        assert (answer.outcome, answer.attempt) == ("running", 1)
        await again.wait_over()
        assert (await held.claimed_by(guest)).outcome == "won"


@rule("FLT-014", level="faults", needs="wrong", spec=("errors-misconfigured", "errors-deadline-enter"), pace="timed")
async def wrong_urls(bench: Bench) -> None:
    """Where trying again will not help, entering ends by its deadline with BackendMisconfigured, without repeating
    a password."""
    faults = await faults_of(bench, timeout_ms=PATIENT_MS)
    assert faults.wrong, "the target declares the power 'wrong' and gives no URL"

    async def enter(url: str) -> None:
        async with bench.visitor("guest", url=url) as guest:
            await guest.active()

    for what, url in faults.wrong.items():
        told = (await in_time({what: partial(enter, url)}, faults.timeout_ms))[what]
        assert isinstance(told, BackendMisconfigured), f"{what}: {told!r}, and not BackendMisconfigured"
        password = urlsplit(url).password
        assert not password or password not in f"{told} {told.__cause__}", f"{what}: the message repeats the password"


@rule("FLT-015", level="faults", needs="newer", spec=("enter-newer-schema", "errors-misconfigured"), pace="timed")
async def newer_schema(bench: Bench) -> None:
    """A store whose schema is newer than the code is refused with BackendMisconfigured and the remedy."""
    faults = await faults_of(bench, timeout_ms=PATIENT_MS)
    assert faults.newer is not None, "the target declares the power 'newer' and gives no URL"
    url = faults.newer

    async def enter() -> None:
        async with bench.visitor("guest", url=url) as guest:
            await guest.ask()

    told = (await in_time({"entering": enter}, faults.timeout_ms))["entering"]
    assert isinstance(told, BackendMisconfigured), f"{told!r} is not BackendMisconfigured"
    assert "upgrade" in str(told).lower(), f"the message names no remedy: {told}"


@rule(
    "FLT-016",
    level="faults",
    needs="newer-job",
    spec=("enter-newer-schema", "errors-misconfigured", "errors-never-outcome"),
    pace="timed",
)
async def newer_job(bench: Bench) -> None:
    """What a later version has stored for a job is refused with the remedy by clients that were there before, in each
    call that would tell, take or end its runs, and other jobs go on."""
    faults = await faults_of(bench, timeout_ms=PATIENT_MS)
    assert faults.newer_job is not None, "the target declares the power 'newer-job' and cannot make one"
    with healthy("entering"):
        near = await bench.client("near", url=faults.url)
    taken, other = await win(near, job="taken"), await win(near, job="other")
    await faults.newer_job(bench.namespace, "taken")
    refused: Calls = {
        "finish": taken.finish,
        "release": taken.release,
        "claim": lambda: near.ask(job="taken"),
        "claim of the next slot": lambda: near.ask(job="taken", slot=SLOT + 1),
        "active": lambda: near.active("taken"),
    }
    told = (await in_time({"heartbeat": taken.heartbeat}, faults.timeout_ms))["heartbeat"]
    # It may be the store's own lease that is renewed, which has no version.
    assert told is True or isinstance(told, BackendMisconfigured), f"heartbeat: {told!r}"
    for name, call in refused.items():
        told = (await in_time({name: call}, faults.timeout_ms))[name]
        assert isinstance(told, BackendMisconfigured), f"{name}: {told!r} is not BackendMisconfigured"
        assert "upgrade" in str(told).lower(), f"{name}: the message names no remedy: {told}"
    assert await _goes_on(other), "another job no longer goes on"


async def _goes_on(held: Held) -> bool:
    """Whether its holder still holds it."""
    with healthy("a heartbeat of another job"):
        return await held.heartbeat()


@rule(
    "FLT-020",
    level="faults",
    needs="network",
    spec=("errors-unavailable", "errors-cause", "errors-never-outcome", "errors-recover"),
    pace="timed",
)
async def refused_connections(bench: Bench) -> None:
    """While connections are refused every call and entering raise BackendUnavailable with its cause, and the same
    object works afterwards."""
    stage, held = await _opening(bench)
    await stage.network.refuse()

    async def enter() -> None:
        async with bench.visitor("guest", url=stage.faults.url):
            pass

    calls: Calls = {**_every_call(stage, held), "entering": enter}
    for _ in range(2):
        for name, told in (await in_time(calls, stage.faults.timeout_ms)).items():
            assert_unavailable(name, told)
    await stage.heal()
    assert await recovered(stage, "heartbeat", held.heartbeat) is True
    assert (await held.claimed_by(stage.far)).outcome == "running"


Prepare = Callable[[str], Awaitable[Any]]
Check = Callable[[Any, Any], Awaitable[None]]


async def _with_lost_replies(
    stage: Scene, prepare: Prepare, call: Callable[[Any], Awaitable[Any]], check: Check
) -> None:
    """Make the call in a fresh job each time, with its first, second, … reply lost, until it has no more of them."""
    struck = 0
    for passing in range(REPLIES):
        with healthy("preparing"):
            prepared = await prepare(f"job {passing}")
        fired = stage.network.fired
        stage.network.fault = CutReply(passing)
        told = await told_of(call(prepared))
        stage.network.fault = Fault()
        if isinstance(told, BackendError):
            assert_unavailable(f"after reply {passing + 1} was lost", told)
        await check(prepared, told)
        if stage.network.fired == fired:
            if isinstance(told, BackendError):
                raise Uncertain(f"the call failed before reply {passing + 1} came: {told}")
            break
        struck += 1
    assert struck, "no reply came by the proxy: does the URL that the target gives for it lead through it?"


@rule("FLT-021", level="faults", needs="network", spec=("errors-repeat", "claim-row-2", "errors-never-outcome"))
async def claim_without_its_reply(bench: Bench) -> None:
    """A claim whose reply was lost is no outcome: its token wins attempt 1, with the fence that was given, and others
    are told `running`."""
    stage = await scene(bench)
    reached = []

    async def prepare(job: str) -> Claim:
        return bench.claim(job=job, instance="near")

    async def check(claim: Claim, told: Any) -> None:
        assert isinstance(told, BackendError) or (told.outcome, told.attempt) == ("won", 1), f"the claim: {told}"
        shown = await bench.look(claim.job, by=stage.far)
        reached.append(bool(shown))
        again = await recovered(stage, "claim", lambda: stage.near.claim(claim))
        assert (again.outcome, again.attempt) == ("won", 1), f"the same claim again: {again}"
        assert all(run[1] == again.fence for run in shown.values())
        other = await stage.far.ask(job=claim.job)
        assert (other.outcome, other.attempt, other.holder) == ("running", 1, "near")

    await _with_lost_replies(stage, prepare, stage.near.claim, check)
    assert any(reached), "none of the claims had reached the store when its reply was lost"


@rule("FLT-022", level="faults", needs="network", spec=("errors-repeat", "claim-row-2", "previous-repeat"))
async def takeover_without_its_reply(bench: Bench) -> None:
    """A takeover whose reply was lost is one attempt: its token wins it, and is told of the lost attempt."""
    stage = await scene(bench)

    async def prepare(job: str) -> Claim:
        held = await stage.near.win(job=job)
        assert await held.release()
        return bench.claim(job=job, instance="near", mode="takeover", after=1)

    async def check(claim: Claim, told: Any) -> None:
        assert isinstance(told, BackendError) or (told.outcome, told.attempt) == ("won", 2), f"the takeover: {told}"
        again = await recovered(stage, "takeover", lambda: stage.near.claim(claim))
        assert (again.outcome, again.attempt) == ("won", 2), f"the same takeover again: {again}"
        assert [one.attempt for one in again.previous] == [1]
        assert (await bench.look(claim.job, by=stage.far))[claim.job, SLOT][:2] == (2, again.fence)

    await _with_lost_replies(stage, prepare, stage.near.claim, check)


_GUARDED: dict[str, Callable[[Held], Awaitable[bool]]] = {
    "heartbeat": lambda held: held.heartbeat(),
    "finish": lambda held: held.finish("failed"),
    "release": lambda held: held.release(),
}


async def _guarded_with_lost_replies(stage: Scene, name: str, after: Callable[[Held], Awaitable[None]]) -> None:
    """For a call that a token guards: neither a lost reply nor the repetition is a `False`."""
    call = _GUARDED[name]

    async def prepare(job: str) -> Held:
        return await stage.near.win(job=job)

    async def check(held: Held, told: Any) -> None:
        assert isinstance(told, BackendError) or told is True, f"{name}, its reply lost, said {told!r}"
        again = await recovered(stage, name, lambda: call(held))
        assert again is True, f"{name}, repeated after its reply was lost, said {again!r}"
        await after(held)

    await _with_lost_replies(stage, prepare, call, check)


@rule("FLT-023", level="faults", needs="network", spec=("errors-repeat", "heartbeat-holds", "errors-never-outcome"))
async def heartbeat_without_its_reply(bench: Bench) -> None:
    """A heartbeat whose reply was lost is never `False`, and repeated it holds."""
    stage = await scene(bench)

    async def after(held: Held) -> None:
        assert (await held.claimed_by(stage.far)).outcome == "running"

    await _guarded_with_lost_replies(stage, "heartbeat", after)


@rule("FLT-024", level="faults", needs="network", spec=("errors-repeat", "finish-repeat", "errors-never-outcome"))
async def finish_without_its_reply(bench: Bench) -> None:
    """A finish whose reply was lost is never `False`, and repeated it is `True`: the run ended once, as it said."""
    stage = await scene(bench)

    async def after(held: Held) -> None:
        assert (await held.claimed_by(stage.far)).status == "failed"
        assert await bench.look(held.job, by=stage.far) == {}

    await _guarded_with_lost_replies(stage, "finish", after)


@rule("FLT-025", level="faults", needs="network", spec=("errors-repeat", "release-repeat", "claim-released-not-used"))
async def release_without_its_reply(bench: Bench) -> None:
    """A release whose reply was lost is never `False`, and repeated it is `True` and has given back one attempt."""
    stage = await scene(bench)

    async def after(held: Held) -> None:
        taken = await stage.far.win(job=held.job, mode="takeover", after=1, max_attempts=1)
        assert [one.released for one in taken.result.previous] == [True]
        assert await taken.heartbeat()

    await _guarded_with_lost_replies(stage, "release", after)


@rule("FLT-026", level="faults", needs="network", spec=("errors-repeat", "results-one-record"))
async def record_without_its_reply(bench: Bench) -> None:
    """A record whose reply was lost is saved again as one record, and is as it was."""
    stage = await scene(bench)

    async def prepare(job: str) -> tuple[str, RunResult]:
        return job, attempted(error=job)

    async def save(prepared: tuple[str, RunResult]) -> None:
        await stage.near.save_result(*prepared)

    async def check(prepared: tuple[str, RunResult], _told: Any) -> None:
        job, record = prepared
        await recovered(stage, "save_result", lambda: stage.near.save_result(job, record))
        assert await stage.far.results(job) == [record]

    await _with_lost_replies(stage, prepare, save, check)


@rule("FLT-027", level="faults", needs="network", spec=("errors-repeat", "errors-never-outcome", "errors-unavailable"))
async def lost_requests(bench: Bench) -> None:
    """A call whose request was lost changes nothing, is no outcome, and works when it is repeated."""
    stage, held = await _opening(bench)
    claim = bench.claim(job="other", instance="near")
    calls: Calls = {
        "claim": lambda: stage.near.claim(claim),
        "heartbeat": held.heartbeat,
        "active": partial(stage.near.active, "other"),
        "results": stage.near.results,
        "save_result": partial(stage.near.save_result, "job", RECORD),
        "finish": held.finish,
    }
    expected = _told(claim.job)
    for name, call in calls.items():
        before = await bench.look("job", "other", by=stage.far)
        stage.network.fault = LostRequest()
        told = await told_of(call())
        stage.network.fault = Fault()
        if isinstance(told, BackendError):
            assert_unavailable(name, told)
            assert (await bench.look("job", "other", by=stage.far)).keys() == before.keys(), f"{name} was carried out"
        else:
            assert expected[name](told), f"{name}, its request lost, answered {told}"
        again = await recovered(stage, name, call)
        assert expected[name](again), f"{name}, repeated after its request was lost, answered {again}"
    assert (await held.claimed_by(stage.far)).status == "success"


def _told(job: str) -> dict[str, Callable[[Any], bool]]:
    """What each call answers when all is well."""
    return {
        "claim": lambda told: (told.outcome, told.attempt) == ("won", 1),
        "heartbeat": lambda told: told is True,
        "finish": lambda told: told is True,
        "active": lambda told: [run.job for run in told.runs] == [job],
        "results": lambda told: told == [RECORD],
        "save_result": lambda told: told is None,
    }


@rule(
    "FLT-028", level="faults", needs="network", spec=("errors-no-driver-retries", "errors-late-message"), pace="timed"
)
async def calls_are_sent_once(bench: Bench) -> None:
    """A call that failed was sent once, and is not sent again behind its caller's back."""
    stage = await scene(bench)
    for turn in range(3):
        claim = bench.claim(job=f"job {turn}")
        stage.network.fault = LostRequests(claim.token)
        told = await told_of(stage.near.claim(claim))
        if not stage.network.sent(claim.token):  # encoded, or encrypted: only the store can tell
            claim = bench.claim(job=f"unseen {turn}")
            stage.network.fault = LostRequests()
            told = await told_of(stage.near.claim(claim))
        assert_unavailable("claim", told)
        await sleep_until(monotonic_ms() + ARRIVAL_MS)
        await stage.heal()
        await sleep_until(monotonic_ms() + ARRIVAL_MS)
        sent = stage.network.sent(claim.token)
        assert sent <= 1, f"a claim whose request was lost was sent {sent} times; the driver's retries must be off"
        shown = await bench.look(claim.job, by=stage.far)
        assert shown == {}, "a claim that was lost and had failed was carried out afterwards"
        assert (await recovered(stage, "claim", partial(stage.near.claim, claim))).attempt == 1


@rule(
    "FLT-029",
    level="faults",
    needs="network",
    spec=("errors-repeat", "errors-late-message", "finish-repeat", "results-one-record"),
    pace="timed",
)
async def requests_delivered_twice(bench: Bench) -> None:
    """Everything that a client sent, delivered once more, makes no attempt, ends no other's run and leaves one record
    of each."""
    stage = await scene(bench)
    near, far = stage.near, stage.far
    held = await win(near)
    with healthy("calls"):
        assert await held.heartbeat()
        await near.save_result("job", RECORD)
    await stage.network.replay()
    assert (await bench.look(by=far))["job", SLOT][:4] == (1, held.fence, "near", True)
    with healthy("finish"):
        assert await held.finish("failed")
    released = await win(near, job="taken")
    with healthy("release"):
        assert await released.release()
    taken = await far.win(job="taken", mode="takeover", after=1)
    await stage.network.replay()
    assert (await held.claimed_by(far)).status == "failed"
    assert await far.results() == [RECORD]
    shown = await bench.look("job", "taken", by=far)
    assert {job: run[:4] for (job, _), run in shown.items()} == {"taken": (2, taken.fence, "far", True)}
    assert await taken.finish()


@rule("FLT-030", level="faults", needs="network", spec=("errors-unavailable", "errors-never-outcome", "errors-recover"))
async def replies_cut_in_the_middle(bench: Bench) -> None:
    """A reply that was cut in its middle is BackendUnavailable or whole, never a part, and the next calls answer their
    own."""
    stage = await scene(bench)
    runs = [await win(stage.near, slot=SLOT + number, overlap="allow") for number in range(12)]
    with healthy("save_result"):
        for number in range(6):
            await stage.near.save_result("job", attempted(SLOT + number, error="e" * 300))
    expected = {
        "active": lambda told: [run.fence for run in told.runs] == [run.fence for run in runs],
        "results": lambda told: [one.slot for one in told] == [SLOT + number for number in range(5, -1, -1)],
        "heartbeat": lambda told: told is True,
        "claim": lambda told: (told.outcome, told.attempt) == ("won", 1),
    }
    calls: Calls = {
        "active": stage.near.active,
        "results": stage.near.results,
        "heartbeat": runs[0].heartbeat,
        "claim": runs[1].again,
    }
    for name, call in calls.items():
        for part, reset in itertools.product((0.02, 0.3, 0.5, 0.9, 0.99), (True, False)):
            stage.network.fault = CutReply(0, part, reset)
            told = await told_of(call())
            stage.network.fault = Fault()
            if isinstance(told, BackendError):
                assert_unavailable(f"{name}, cut at {part:.0%}", told)
            else:
                assert expected[name](told), f"{name}, its reply cut at {part:.0%}, answered {told}"
            assert expected[name](await recovered(stage, name, call)), f"{name} after a reply that was cut"


@rule("FLT-031", level="faults", needs="network", spec=("backend-level", "errors-never-outcome"))
@answered("calls in small parts")
async def replies_in_small_parts(bench: Bench) -> None:
    """Requests and replies that arrive in small parts are put together, whatever their size."""
    stage = await scene(bench, timeout_ms=10_000)
    stage.network.fault = Dribble()
    runs = [await win(stage.near, slot=SLOT + number, overlap="allow") for number in range(3)]
    record = attempted(error="an error text of some length, ä 😀 " * 20)
    with healthy("calls in small parts"):
        await stage.near.save_result("job", record)
        assert await stage.near.results() == [record]
        assert [run.fence for run in (await stage.near.active()).runs] == [run.fence for run in runs]
        assert await runs[0].finish("failed")
        assert (await runs[0].claimed_by(stage.near)).status == "failed"


@rule("FLT-032", level="faults", needs="network", spec=("time-store-clock", "word-live"), pace="timed")
async def lease_counts_in_the_store(bench: Bench) -> None:
    """A lease runs from the moment of the store's decision, not from when the claim or heartbeat was sent or its reply
    came."""
    stage = await scene(bench, timeout_ms=5_000)
    way_ms = bench.lease_ms / 5  # a win may take two round trips, and must be had before its lease is nearly over
    with healthy("active"):
        await stage.near.active()
    stage.network.fault = Delay(way_ms, way_ms)
    held = await win(stage.near, lease_ms=bench.lease_ms)
    stage.network.fault = Fault()
    # The proxy surely held the request and the reply for so long, whatever else took time. Where the store has no clock
    # in that step, the decision's moment is any from the call on, not from the arrival on.
    arrived = held.won.begin + (0 if bench.a.capabilities.clock_error_ms else way_ms)
    decided = Span(arrived, held.won.end - way_ms)
    deadline = bench.deadline(decided, bench.lease_ms)
    assert (await probe(held, deadline, 0.85, stage.far)).outcome == "running", "the lease ran from when it was sent"
    await deadline.wait_over()
    answer = await held.claimed_by(stage.far)
    assert answer.outcome == "won", f"the lease ran from when the reply came: {answer}"


@rule(
    "FLT-033", level="faults", needs="network", spec=("time-store-clock", "claim-row-12", "claim-row-11"), pace="timed"
)
async def lateness_counts_the_way(bench: Bench) -> None:
    """Lateness and earliness are judged when the claim arrives, by the store's clock: the way counts."""
    stage = await scene(bench, timeout_ms=5_000)
    way_ms = 500 + 4 * bench.a.capabilities.clock_error_ms
    with healthy("active"):
        await stage.near.active()
    stage.network.fault = Delay(way_ms, 0)
    with healthy("claims"):
        now_ms = (await stage.far.active()).now_ms
        late, due = await asyncio.gather(
            stage.near.ask(job="late", slot=now_ms, max_late_ms=way_ms // 2),
            stage.near.ask(job="due", slot=now_ms + 1_000 + way_ms // 2),
        )
    # Where the store has no clock in that step, the decision's moment is any between call and answer, and both tell it.
    exact = bench.a.capabilities.clock_error_ms == 0
    if exact or late.now_ms - now_ms > way_ms // 2 + bench.loose_ms:
        assert late.outcome == "late", f"a claim that took {way_ms} ms, allowed to be {way_ms // 2} ms late: {late}"
    if exact or due.now_ms - now_ms > way_ms // 2 + bench.loose_ms:
        assert due.outcome == "won", f"a claim that arrived {way_ms} ms later, when its slot was near enough: {due}"
    for told in (late, due):
        assert now_ms - bench.loose_ms <= told.now_ms, f"decided before it was called, at {now_ms}: {told}"


@rule(
    "FLT-034",
    level="faults",
    needs="network",
    spec=("errors-late-message", "heartbeat-refused", "finish-refused", "release-refused"),
    pace="timed",
)
async def late_messages_after_a_takeover(bench: Bench) -> None:
    """Messages of a former holder that arrive after its run was taken over change nothing of the successor's run."""
    stage = await scene(bench)
    runs = [await win(stage.near, job=f"job {number}", lease_ms=bench.short_ms) for number in range(4)]
    await stage.silence()
    calls: Calls = {
        "heartbeat": runs[0].heartbeat,
        "finish": runs[1].finish,
        "release": runs[2].release,
        "claim again": runs[3].again,
    }
    for name, told in (await in_time(calls, stage.faults.timeout_ms)).items():
        assert_unavailable(name, told)
    for run in runs:
        await run.lapse()
    taken = [await stage.far.win(job=run.job, mode="takeover", after=1) for run in runs]
    jobs = [run.job for run in taken]
    async with bench.unchanged(*jobs):
        await stage.heal()
        await sleep_until(monotonic_ms() + ARRIVAL_MS)
    for run in taken:
        assert await run.heartbeat()
        assert await run.finish()


@rule("FLT-035", level="faults", needs="network", spec=("errors-recover", "errors-unavailable"), pace="timed")
async def resets_amid_calls(bench: Bench) -> None:
    """Connections that are reset again and again amid many calls cost those calls, and nothing of the runs."""
    stage = await scene(bench)
    runs = [await win(stage.near, job=f"job {number}") for number in range(6)]

    async def beat(run: Held) -> None:
        for _ in range(25):
            told = await told_of(run.heartbeat())
            assert told is True or isinstance(told, BackendUnavailable), f"a heartbeat amid resets: {told!r}"

    async def reset() -> None:
        for _ in range(8):
            await asyncio.sleep(0.01)
            await stage.network.reset()

    async with asyncio.TaskGroup() as group:
        group.create_task(reset())
        for run in runs:
            group.create_task(beat(run))
    for run in runs:
        assert await recovered(stage, "heartbeat", run.heartbeat) is True
        assert (await run.claimed_by(stage.far)).attempt == 1


@rule("FLT-036", level="faults", needs="network", spec=("errors-cancel", "errors-recover"), pace="timed")
async def connections_do_not_pile_up(bench: Bench) -> None:
    """Calls that are cancelled or fail again and again leave no more connections to the store than before."""
    stage, held = await _opening(bench)
    open_after = []
    for wave in range(6):
        await asyncio.gather(*(told_of(held.heartbeat()) for _ in range(20)))
        stage.network.fault = Delay(0, 20)
        tasks = [asyncio.create_task(held.heartbeat()) for _ in range(20)]
        await asyncio.sleep(0.005)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        stage.network.fault = CutReply(0) if wave % 2 else Fault()
        await told_of(held.heartbeat())
        stage.network.fault = Fault()
        assert await recovered(stage, "heartbeat", held.heartbeat) is True
        await _until_settled(stage)
        open_after.append(len(stage.network.live))
    assert open_after[-1] <= open_after[0] + 10, f"open connections after each of 6 waves of 20 calls: {open_after}"


async def _until_settled(stage: Scene) -> None:
    """Until the number of open connections no longer changes, or is small."""
    before = -1
    for _ in range(40):
        now = len(stage.network.live)
        if now <= 2 or now == before:
            return
        before = now
        await asyncio.sleep(0.05)


HISTORIES = 4


@rule(
    "FLT-037",
    level="faults",
    needs="network",
    spec=("claim-atomic", "errors-repeat", "errors-never-outcome", "errors-late-message"),
    pace="heavy",
)
@answered("calls amid faults")
async def histories_amid_faults(bench: Bench) -> None:
    """The answers to eight clients whose requests and replies are lost, cut and held up fit one order of their calls,
    those that failed having been carried out then, later or never."""
    faults = await faults_of(bench)
    with healthy("entering"):
        clients = [await bench.client(f"c{number}", url=faults.url) for number in range(CLIENTS)]
    for number in range(HISTORIES):
        harm = asyncio.create_task(_harm(bench, faults))
        try:
            calls = await play(bench, "faulty", clients, number)
        finally:
            harm.cancel()
            await asyncio.gather(harm, return_exceptions=True)
            await faults.heal()
        assert_linearizable(bench, calls)


async def _harm(bench: Bench, faults: Faults) -> None:
    """One fault after another, at random, for as long as nobody ends it."""
    while True:
        await asyncio.sleep(bench.random.uniform(0.005, 0.02))
        await bench.random.choice((_strike, _strike, _reset, _hold_up))(bench, faults)


async def _strike(bench: Bench, faults: Faults) -> None:
    faults.network.fault = bench.random.choice((LostRequest(), CutReply(0), CutReply(0, 0.5), CutReply(0, 0.5, False)))


async def _reset(_bench: Bench, faults: Faults) -> None:
    await faults.network.reset()


async def _hold_up(bench: Bench, faults: Faults) -> None:
    await faults.silence()
    await asyncio.sleep(bench.random.uniform(0.001, 0.03))
    await faults.heal()
