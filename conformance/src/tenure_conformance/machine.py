"""Sequences of calls that Hypothesis invents and shrinks, each answer compared with the reference's."""

import asyncio
from collections.abc import Coroutine
from itertools import count
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from tenure.decision import record
from tenure.model import Ending, Mode, Overlap, ResultStatus, RunResult

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.client import Client
from tenure_conformance.oracle import Oracle
from tenure_conformance.situations import MODES, OVERLAPS
from tenure_conformance.timing import LONG_MS, RATE, TICK_MS

T = TypeVar("T")

SLOTS = st.sampled_from((SLOT, SLOT + 1, SLOT + 2))
TOKENS = st.sampled_from(("t1", "t2", "t3"))
OF_A_RUN = st.one_of(st.none(), st.integers(0, 2), st.integers(0, 2))
"""Which known run's slot and token a call has, the one that was won last first; as a rule one of them."""
STEPS = 30
PATIENCE_MS = 200
"""Where the shortest lease takes longer, sequences do without lapsed ones, which the rules of the rows have."""


async def run_machine(bench: Bench) -> None:
    """Try sequences of calls; AssertionError with the shortest that shows a difference."""
    loop = asyncio.get_running_loop()
    jobs = (f"job {number}" for number in count())

    class Bound(_Machine):
        def __init__(self) -> None:
            super().__init__(bench, loop, next(jobs))

    chosen = settings(
        max_examples=bench.target.limits.examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        print_blob=False,
        verbosity=Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    seeded = seed(bench.random.randrange(2**32))(Bound)
    await asyncio.to_thread(run_state_machine_as_test, seeded, settings=chosen)


class _Machine(RuleBasedStateMachine):
    """One job, three slots, three tokens, two clients, and leases of which some lapse."""

    def __init__(self, bench: Bench, loop: asyncio.AbstractEventLoop, job: str) -> None:
        super().__init__()
        self.bench = bench
        self.loop = loop
        self.oracle = Oracle(bench, job)
        self.history: tuple[RunResult, ...] = ()
        bench.calls.clear()

    def do(self, call: Coroutine[Any, Any, T]) -> T:
        """Make a call on the loop that the clients live on."""
        return asyncio.run_coroutine_threadsafe(call, self.loop).result()

    def client(self, first: bool) -> Client:
        """One of the two clients."""
        return self.bench.a if first else self.bench.b

    def run(self, number: int | None, slot: int, token: str) -> tuple[int, str]:
        """Slot and token of a run that the store knows, or those that were invented."""
        known = sorted((*self.oracle.state.unfinished, *self.oracle.state.ended), key=lambda run: -run.fence)
        if number is None or not known:
            return slot, token
        chosen = known[number % len(known)]
        return chosen.slot, chosen.token

    @rule(
        first=st.booleans(),
        slot=SLOTS,
        token=TOKENS,
        mode=st.sampled_from(MODES),
        overlap=st.sampled_from(OVERLAPS),
        known=st.booleans(),
        after=st.integers(0, 4),
        max_attempts=st.integers(1, 4),
        late=st.booleans(),
        short=st.booleans(),
    )
    def claim(
        self,
        first: bool,
        slot: int,
        token: str,
        mode: Mode,
        overlap: Overlap,
        known: bool,
        after: int,
        max_attempts: int,
        late: bool,
        short: bool,
    ) -> None:
        """A claim, as a rule one that knows the run's attempt."""
        attempts = [run.attempt for run in self.oracle.state.unfinished if run.slot == slot]
        claim = self.bench.claim(
            job=self.oracle.job,
            slot=slot,
            token=token,
            instance=f"i-{token}",
            lease_ms=self.bench.short_ms if short else LONG_MS,
            mode=mode,
            overlap=overlap,
            max_attempts=max_attempts,
            max_late_ms=0 if late else None,
            after=(attempts or [0])[0] if known else after,
        )
        self.do(self.oracle.claim(self.client(first), claim))
        self.do(self.oracle.look(self.client(not first)))

    @rule(first=st.booleans(), number=OF_A_RUN, slot=SLOTS, token=TOKENS)
    def heartbeat(self, first: bool, number: int | None, slot: int, token: str) -> None:
        """A heartbeat of any token."""
        self.do(self.oracle.heartbeat(self.client(first), *self.run(number, slot, token)))

    @rule(first=st.booleans(), number=OF_A_RUN, slot=SLOTS, token=TOKENS, status=st.sampled_from(("success", "failed")))
    def finish(self, first: bool, number: int | None, slot: int, token: str, status: Ending) -> None:
        """A finish of any token."""
        self.do(self.oracle.finish(self.client(first), *self.run(number, slot, token), status))

    @rule(first=st.booleans(), number=OF_A_RUN, slot=SLOTS, token=TOKENS)
    def release(self, first: bool, number: int | None, slot: int, token: str) -> None:
        """A release of any token."""
        self.do(self.oracle.release(self.client(first), *self.run(number, slot, token)))

    @rule()
    def lapse(self) -> None:
        """Wait until the short leases are over, if there are any."""
        if self.bench.short_ms > PATIENCE_MS:
            return
        slack_ms = self.bench.target.timing.slack_ms + 2 * self.bench.a.capabilities.clock_error_ms
        if any(run.lease_ms < LONG_MS and run.status == "open" for run in self.oracle.state.unfinished):
            self.do(asyncio.sleep((self.bench.short_ms * (1 + RATE) + TICK_MS + slack_ms) / 1_000))
            self.do(self.oracle.look(self.bench.b))

    @rule(
        first=st.booleans(),
        slot=SLOTS,
        attempt=st.integers(1, 3),
        status=st.sampled_from(("success", "failed", "interrupted", "crashed")),
        text=st.sampled_from((None, "", "one", "two")),
    )
    def save_result(self, first: bool, slot: int, attempt: int, status: ResultStatus, text: str | None) -> None:
        """A record of an attempt."""
        result = RunResult(slot, attempt, attempt, status, "instance", SLOT, SLOT + 1, text)
        self.do(self.client(first).save_result(self.oracle.job, result))
        self.history = record(self.history, result, 100)

    @rule(first=st.booleans(), limit=st.integers(1, 6))
    def results(self, first: bool, limit: int) -> None:
        """The records so far."""
        found = self.do(self.client(first).results(self.oracle.job, limit=limit))
        assert found == list(self.history[:limit]), f"expected {self.history[:limit]}, was told {found}"
