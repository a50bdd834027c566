"""Traces and metrics, as OpenTelemetry's own SDK collects them."""

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter
from importlib.metadata import version

import pytest
from tenure import (
    BackendUnavailable,
    Context,
    Exhausted,
    Interrupted,
    LostAttempt,
    MemoryBackend,
    MemoryStore,
    Scheduler,
    Skip,
    Start,
    Success,
    Takeover,
)
from tenure.clock import SystemClock

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import INVALID_SPAN, NoOpTracerProvider, StatusCode
from tenure.otel import instrument
from tenure.successes import Successes

from .waiting import PATIENCE_S, wait_until

SLOT = 1_796_115_600_123


class Collected:
    """What the SDK collected of some schedulers."""

    def __init__(self, **options):
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(**options)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider([self._reader])

    def instrument(self, scheduler, **options):
        instrument(scheduler, **{"tracer_provider": self.tracers, "meter_provider": self._meters, **options})
        return scheduler

    @property
    def spans(self):
        return self._exporter.get_finished_spans()

    def points(self, name):
        """The points of a metric, by their attributes' values in order of their names."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        metrics = [metric for of in data.resource_metrics for scope in of.scope_metrics for metric in scope.metrics]
        points = [point for metric in metrics if metric.name == name for point in metric.data.data_points]
        return {tuple(value for _, value in sorted(point.attributes.items())): point for point in points}

    def counts(self, name):
        return {attributes: point.value for attributes, point in self.points(name).items()}

    def close(self):
        self.tracers.shutdown()
        self._meters.shutdown()


@pytest.fixture
def collected():
    collected = Collected()
    yield collected
    collected.close()


@pytest.fixture
def another():
    another = Collected()
    yield another
    another.close()


def a_scheduler(collected, handler, backend="memory://", **options):
    scheduler = collected.instrument(Scheduler(backend, jitter="0s"), **options)
    scheduler.every("sync", "100ms", handler)
    return scheduler


def an_attempt(spans, number=1, slot=SLOT, job="sync", raises=None, told=None, scope="here"):
    """The span of one attempt, as a process of its own would make it."""
    scheduler = spans.instrument(Scheduler("memory://"), trace_scope=scope)
    (telemetry,) = scheduler._observers
    ctx = Context(job, slot, number, 7 + number, "scheduled" if number == 1 else "takeover", "a", "skip")
    if told:
        ctx.signal.set(told)
    with contextlib.suppress(BaseException), telemetry.around(ctx):
        if raises is not None:
            raise raises
    return spans.spans[-1]


# Traces


def test_a_span_says_which_run_and_attempt_it_is(collected):
    span = an_attempt(collected)
    assert span.name == "run sync"
    assert span.parent is None
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes) == {
        "tenure.job": "sync",
        "tenure.slot": "2026-12-01T09:00:00.123Z",
        "tenure.attempt": 1,
        "tenure.fence": 8,
        "tenure.mode": "scheduled",
        "tenure.instance": "a",
        "tenure.ending": "success",
    }


def test_all_attempts_of_a_run_share_a_trace_and_each_links_to_the_one_before(collected, another):
    first = an_attempt(collected)
    second, third = an_attempt(another, 2), an_attempt(collected, 3)  # in two processes
    assert not first.links
    assert second.links[0].context.span_id == first.context.span_id
    assert third.links[0].context.span_id == second.context.span_id
    assert second.links[0].attributes == {"tenure.attempt": 1}
    assert {span.context.trace_id for span in (first, second, third)} == {second.links[0].context.trace_id}
    assert len({span.context.span_id for span in (first, second, third)}) == 3


@pytest.mark.parametrize("other", [{"slot": SLOT + 1}, {"job": "report"}, {"scope": "elsewhere"}])
def test_another_run_is_another_trace(collected, other):
    one, two = an_attempt(collected), an_attempt(collected, **other)
    assert one.context.trace_id != two.context.trace_id
    assert one.context.span_id != two.context.span_id


def test_the_trace_scope_is_the_store_unless_it_is_given(collected):
    backend = MemoryBackend(MemoryStore(), namespace="billing")
    an_attempt(collected, scope=None)
    by_store = collected.instrument(Scheduler(backend))
    assert by_store._observers[0]._spans._scope == by_store.store


def test_a_sampler_keeps_all_attempts_of_a_run_or_none():
    sampled = Collected(sampler=TraceIdRatioBased(0.5))
    kept = Counter()
    for slot in range(40):
        for number in (1, 2):
            before = len(sampled.spans)
            with contextlib.suppress(IndexError):
                an_attempt(sampled, number, slot=slot)
            kept[slot] += len(sampled.spans) - before
    assert set(kept.values()) == {0, 2}
    sampled.close()


def test_spans_of_others_keep_their_ids_random(collected):
    an_attempt(collected)
    ids = {collected.tracers.get_tracer("of the application").start_span("x").context.span_id for _ in range(3)}
    assert len(ids) == 3
    tracer = collected.tracers.get_tracer("tenure", version("tenure"))
    assert tracer.start_span("x").context.trace_id != tracer.start_span("x").context.trace_id


@pytest.mark.parametrize(
    ("told", "ending", "status"),
    [
        (None, "failed", StatusCode.ERROR),
        ("timeout", "failed", StatusCode.ERROR),
        ("stop", "interrupted", StatusCode.UNSET),
        ("lost", "interrupted", StatusCode.UNSET),
    ],
)
def test_a_span_says_how_its_attempt_ended(collected, told, ending, status):
    span = an_attempt(collected, raises=asyncio.CancelledError() if told else KeyError("x"), told=told)
    assert span.attributes["tenure.ending"] == ending
    assert span.attributes.get("tenure.signal") == told
    assert span.status.status_code is status
    assert [event.name for event in span.events] == (["exception"] if ending == "failed" else [])


def test_a_handler_that_returns_after_its_signal_is_a_success(collected):
    assert an_attempt(collected, told="stop").attributes["tenure.ending"] == "success"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_the_handlers_own_spans_are_children_of_its_attempt_s(collected, kind):
    tracer = collected.tracers.get_tracer("of the application")

    def sync():
        with tracer.start_as_current_span("inner"):
            pass

    async def async_():
        await asyncio.sleep(0)
        with tracer.start_as_current_span("inner"):
            await asyncio.sleep(0)

    with a_scheduler(collected, sync if kind == "sync" else async_):
        wait_until(lambda: "run sync" in [span.name for span in collected.spans], "a run has ended")
    inner, outer = collected.spans[:2]
    assert (inner.name, outer.name) == ("inner", "run sync")
    assert inner.parent.span_id == outer.context.span_id
    assert inner.context.trace_id == outer.context.trace_id


def test_a_span_is_no_child_of_what_started_the_scheduler(collected):
    tracer, scheduler = collected.tracers.get_tracer("of the application"), a_scheduler(collected, lambda: None)

    async def main():
        with tracer.start_as_current_span("startup"):
            async with scheduler:
                await asyncio.to_thread(wait_until, lambda: collected.spans, "a run has ended")

    asyncio.run(main())
    assert collected.spans[0].name == "run sync"
    assert collected.spans[0].parent is None
    with tracer.start_as_current_span("whatever"):
        assert an_attempt(collected).parent is None


def test_a_tracer_that_chooses_its_own_ids_makes_no_link_to_an_id_that_no_span_has(collected):
    made = []

    class Other(NoOpTracerProvider):
        def get_tracer(self, *args, **options):
            return self

        def start_span(self, name, context, attributes, links):
            made.append((name, links))
            return INVALID_SPAN

    scheduler = collected.instrument(Scheduler("memory://"), tracer_provider=Other())
    (telemetry,) = scheduler._observers
    with telemetry.around(Context("sync", SLOT, 2, 9, "takeover", "a", "skip")):
        pass
    assert made == [("run sync", [])]


def test_without_the_sdk_everything_runs_on(collected):
    scheduler, ran = Scheduler("memory://", jitter="0s"), []
    instrument(scheduler, tracer_provider=NoOpTracerProvider())
    scheduler.every("sync", "100ms", lambda: ran.append(trace.get_current_span().is_recording()))
    with scheduler:
        wait_until(lambda: ran, "it ran")
    assert ran[0] is False


# Metrics


def test_runs_are_counted_and_timed_by_their_ending(collected):
    def fails():
        raise ValueError

    async def hangs():
        await asyncio.Event().wait()

    scheduler = a_scheduler(collected, lambda: None)
    scheduler.every("fails", "100ms", fails)
    scheduler.every("hangs", "100ms", hangs, timeout="50ms")
    wanted = {("success", "sync"), ("failed", "fails"), ("timeout", "failed", "hangs")}
    named = {  # the attributes' values, by the names' order
        "sync": ("success", "sync"),
        "fails": ("failed", "fails"),
        "hangs": ("timeout", "failed", "hangs"),
    }
    with scheduler:
        wait_until(lambda: wanted <= set(collected.counts("tenure.runs")), f"{wanted}")
        assert all(count >= 1 for count in collected.counts("tenure.runs").values())
        durations = collected.points("tenure.run.duration")
        assert durations[named["hangs"]].sum >= 0.05 * durations[named["hangs"]].count
        late = collected.points("tenure.run.lateness")["sync", "scheduled"]
        assert 0 <= late.sum < 10 * late.count


def test_calls_of_the_store_are_timed_and_its_clock_is_compared(collected):
    class Away(MemoryBackend):
        async def save_result(self, *args):
            raise BackendUnavailable("away")

    with a_scheduler(collected, lambda: None, Away()):
        wait_until(lambda: ("BackendUnavailable", "save_result") in collected.points("tenure.call.duration"), "a call")
        calls = collected.points("tenure.call.duration")
        assert {("enter",), ("active",), ("claim",), ("finish",)} <= set(calls)
        assert 0 < calls["claim",].sum < 10 * calls["claim",].count
        (offset,) = collected.counts("tenure.clock.offset").values()
        assert abs(offset) < 10
        wait_until(
            lambda: ("BackendUnavailable", "save_result", "sync") in collected.counts("tenure.errors"), "the event"
        )
    assert collected.counts("tenure.clock.offset") == {}


def test_times_are_in_seconds(collected):
    scheduler = collected.instrument(Scheduler("memory://"))
    (telemetry,) = scheduler._observers
    ids = {"job": "sync", "slot": 1, "attempt": 1, "fence": 3, "instance": "a"}
    telemetry.called("claim", 250, None)
    telemetry.event(Start(**ids, mode="scheduled", late_ms=500))
    telemetry.event(Success(**ids, duration_ms=2_000))
    names = ("tenure.call.duration", "tenure.run.lateness", "tenure.run.duration")
    assert [point.sum for name in names for point in collected.points(name).values()] == [0.25, 0.5, 2]


def test_the_clock_offset_of_a_machine_that_is_ahead_is_negative(collected, monkeypatch):
    right = SystemClock.wall_ms
    store = MemoryStore()
    with a_scheduler(collected, lambda: None, MemoryBackend(store)):
        wait_until(lambda: collected.counts("tenure.clock.offset"), "the store has told its time")
        monkeypatch.setattr(SystemClock, "wall_ms", lambda clock: right(clock) + 600)
        (offset,) = collected.counts("tenure.clock.offset").values()
        monkeypatch.undo()
    assert -1.2 < offset < -0.5


def test_what_executes_now_is_counted(collected):
    leave = threading.Event()
    with a_scheduler(collected, lambda: leave.wait(PATIENCE_S)):
        try:
            wait_until(lambda: collected.counts("tenure.executing") == {("sync",): 1}, "it executes")
        finally:
            leave.set()
        leave.set()
    assert collected.counts("tenure.executing") == {("sync",): 0}


def test_takeovers_lost_leases_skips_and_given_up_runs_are_counted(collected):
    scheduler = collected.instrument(Scheduler("memory://"))
    (telemetry,) = scheduler._observers
    ids = {"job": "sync", "slot": 1, "attempt": 2, "fence": 3, "instance": "a"}

    def lost(released):
        return (LostAttempt(1, 1, 2, "b", 0, 1, released),)

    for event in [
        Takeover(**ids, previous=lost(released=True)),
        Takeover(**ids, previous=lost(released=False)),
        Takeover(**ids, previous=()),
        Interrupted(**ids, reason="takeover", duration_ms=1),
        Interrupted(**ids, reason="stop", duration_ms=1),
        Skip(job="sync", slot=1, instance="a", reason="late"),
        Exhausted(**ids, previous=()),
    ]:
        telemetry.event(event)
    assert collected.counts("tenure.takeovers") == {("sync", "released"): 1, ("sync", "expired"): 2}
    assert collected.counts("tenure.leases.lost") == {("sync", "takeover"): 1}
    assert collected.counts("tenure.skips") == {("sync", "late"): 1}
    assert collected.counts("tenure.exhausted") == {("sync",): 1}
    assert collected.counts("tenure.runs") == {
        ("interrupted", "sync", "takeover"): 1,
        ("interrupted", "sync", "stop"): 1,
    }


# The last success, of any instance


class Wall:
    """A clock that is ahead of the true one by as much as a test says."""

    ahead_ms = 0

    def wall_ms(self):
        return SystemClock().wall_ms() + self.ahead_ms

    def monotonic_ms(self):
        return SystemClock().monotonic_ms() + self.ahead_ms


@pytest.fixture
def store():
    return MemoryStore()


def test_an_instance_that_ran_nothing_knows_the_last_success_of_another(collected, store):
    with a_scheduler(collected, lambda: None, MemoryBackend(store)):
        wait_until(lambda: collected.counts("tenure.runs"), "a run has ended")
    looks = Scheduler(MemoryBackend(store))
    looks.every("sync", "1d", lambda: None)
    looks.every("never", "1d", lambda: None)
    other = Collected()
    other.instrument(looks)
    with looks:
        ages = wait_until(lambda: other.counts("tenure.job.success.age"), "the store was asked")
        assert set(ages) == {("sync",)}
        assert 0 <= ages["sync",] < PATIENCE_S
        assert other.counts("tenure.job.overdue") == {("sync",): 0, ("never",): 0}
    assert other.counts("tenure.job.success.age") == {}
    other.close()


def looking(store, handler, **options):
    scheduler = Scheduler(MemoryBackend(store), jitter="0s")
    scheduler.every("sync", "100ms", handler, **options)
    clock = Wall()
    return scheduler, scheduler.jobs[0], clock, Successes(scheduler, clock)


def test_a_job_is_overdue_once_its_next_success_should_have_been(store):
    scheduler, job, clock, successes = looking(store, lambda: None)
    with scheduler:
        wait_until(lambda: scheduler.results("sync").result("10s"), "it succeeded")
        assert successes.overdue_ms(job, 0) is None
        assert successes.overdue_ms(job, successes.look()) == 0
    clock.ahead_ms = 3_600_000  # an hour without a success; max_late and lease are 90 s
    other = Scheduler(MemoryBackend(store))
    other.every("unrelated", "1d", lambda: None)
    assert successes.look() is None  # it does not run
    now_ms = clock.wall_ms()
    assert 3_600_000 - 100_000 < successes.overdue_ms(job, now_ms) < 3_600_000 - 80_000
    assert 3_600_000 <= successes.age_ms(job, now_ms) < 3_600_000 + PATIENCE_S * 1000


def test_a_job_that_only_fails_is_overdue_since_its_oldest_record(store):
    scheduler, job, clock, successes = looking(store, lambda: 1 / 0)
    with scheduler:
        wait_until(lambda: scheduler.results("sync").result("10s"), "it failed")
        clock.ahead_ms = 3_600_000
        now_ms = successes.look()
        assert successes.age_ms(job, now_ms) is None
        assert 3_600_000 - 120_000 < successes.overdue_ms(job, now_ms) < 3_600_000


def test_a_timeout_is_time_that_a_success_may_take(store):
    scheduler, job, clock, successes = looking(store, lambda: None, timeout="1h", max_late=None)
    with scheduler:
        wait_until(lambda: scheduler.results("sync").result("10s"), "it succeeded")
        successes.look()
    now_ms = clock.wall_ms()
    assert successes.overdue_ms(job, now_ms + 3_600_000) == 0
    assert successes.overdue_ms(job, now_ms + 3_600_000 + 120_000) > 0


def test_a_new_job_is_not_overdue_for_slots_before_it_was_there(store):
    scheduler = Scheduler(MemoryBackend(store))
    scheduler.every("yearly", "52w", lambda: None)
    successes = Successes(scheduler)
    with scheduler:
        wait_until(lambda: scheduler.health().clock_offset_ms is not None, "the store has told its time")
        assert successes.overdue_ms(scheduler.jobs[0], successes.look()) == 0


def test_the_store_is_asked_only_for_jobs_of_which_a_slot_came_due(store):
    asked = []

    class Counting(MemoryBackend):
        async def results(self, job, *, limit=20):
            asked.append(job)
            return await super().results(job, limit=limit)

    scheduler = Scheduler(Counting(store))
    for number in range(3):
        scheduler.every(f"yearly-{number}", "52w", lambda: None)
    clock = Wall()
    successes = Successes(scheduler, clock)
    with scheduler:
        wait_until(lambda: scheduler.health().clock_offset_ms is not None, "the store has told its time")
        for _ in range(3):
            successes.look()
            clock.ahead_ms += 10_000
        assert sorted(asked) == ["yearly-0", "yearly-1", "yearly-2"]
        removed = scheduler.jobs[0]
        assert successes.overdue_ms(removed, 0) == 0
        scheduler.remove("yearly-0")
        clock.ahead_ms += 53 * 7 * 86_400_000
        successes.look()
        assert sorted(asked[3:]) == ["yearly-1", "yearly-2"]
        assert successes.overdue_ms(removed, 0) is None


def test_a_store_that_is_away_leaves_what_was_known_and_holds_up_nobody(store):
    class Away(MemoryBackend):
        hangs = False

        async def results(self, job, *, limit=20):
            if self.hangs:
                await asyncio.sleep(4)  # as long as a backend with a deadline may take
            return await super().results(job, limit=limit)

    backend = Away(store)
    scheduler = Scheduler(backend, jitter="0s")
    scheduler.every("sync", "100ms", lambda: None)
    clock = Wall()
    successes = Successes(scheduler, clock)
    with scheduler:
        wait_until(lambda: scheduler.results("sync").result("10s"), "it succeeded")
        successes.look()
        backend.hangs = True
        clock.ahead_ms = 60_000
        began = time.monotonic()
        now_ms = successes.look()
        assert 1.5 < time.monotonic() - began < PATIENCE_S
        assert 60_000 <= successes.age_ms(scheduler.jobs[0], now_ms) < 60_000 + PATIENCE_S * 1000


def test_a_claim_only_backend_tells_of_no_last_success(collected, tmp_path):
    with a_scheduler(collected, lambda: None, f"dir:///{tmp_path}"):
        wait_until(lambda: collected.counts("tenure.runs"), "a run has ended")
        assert collected.counts("tenure.job.success.age") == {}
        assert collected.counts("tenure.job.overdue") == {}


def test_history_may_be_left_alone(collected):
    with a_scheduler(collected, lambda: None, history=False):
        wait_until(lambda: collected.counts("tenure.runs"), "a run has ended")
        assert collected.counts("tenure.job.overdue") == {}


def test_jobs_that_one_look_did_not_reach_come_first_in_the_next(store, monkeypatch):
    """Otherwise, of too many jobs the last ones would never be looked up."""
    asked, clock = [], Wall()

    class Slow(MemoryBackend):
        async def results(self, job, *, limit=20):
            asked.append(job)
            clock.ahead_ms += 1_500  # two fit into a look
            return await super().results(job, limit=limit)

    monkeypatch.setattr("tenure.successes._AT_ONCE", 1)
    scheduler = Scheduler(Slow(store))
    for number in range(4):
        scheduler.every(f"job-{number}", "52w", lambda: None)
    successes = Successes(scheduler, clock)
    with scheduler:
        wait_until(lambda: scheduler.health().clock_offset_ms is not None, "the store has told its time")
        for _ in range(3):
            successes.look()
            clock.ahead_ms += 53 * 7 * 86_400_000  # each has come due again
    assert asked == ["job-0", "job-1", "job-2", "job-3", "job-0", "job-1"]


def test_without_opentelemetry_the_remedy_is_named():
    code = "import sys; sys.modules['opentelemetry'] = None; import tenure.otel"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert 'pip install "tenure[otel]"' in ended.stderr.splitlines()[-1]
