"""Traces and metrics by OpenTelemetry, of whatever provider the application has (extra ``otel``)."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from typing import Any, Protocol, cast

from tenure.context import Context
from tenure.events import Error, Event, Exhausted, Failure, Interrupted, Skip, Start, Success, Takeover
from tenure.job import Job
from tenure.scheduler import Scheduler
from tenure.successes import Successes

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context as TraceContext
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation
    from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode, TraceFlags, Tracer, TracerProvider
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(
        f'tenure.otel needs {_missing.name}; run: pip install "tenure[otel]"', name=_missing.name
    ) from _missing

__all__ = ["instrument"]

_NAMED = "tenure", version("tenure")
"""What tracers and meters are asked for by; the version is read once, since that takes a millisecond."""
_CALL_BUCKETS_S = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]
_RUN_BUCKETS_S = [0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400]
_LATE_BUCKETS_S = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800]

Attributes = Mapping[str, str | int]


def instrument(
    scheduler: Scheduler,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    trace_scope: str | None = None,
    history: bool = True,
) -> None:
    """Trace and measure what the scheduler does, from its next start on; once for each scheduler.

    The providers are OpenTelemetry's global ones unless given. ``trace_scope`` tells the runs of this application from
    those of others that send traces to the same place; it is ``scheduler.store`` unless given, and must be the same in
    all instances. With ``history=False`` the store is not asked for the last success of each job.
    """
    scope = scheduler.store if trace_scope is None else trace_scope
    scheduler.observe(_Telemetry(_Spans(tracer_provider, scope), _Metrics(scheduler, meter_provider, history)))


class _Telemetry:
    """See Observer."""

    def __init__(self, spans: "_Spans", numbers: "_Metrics") -> None:
        self._spans = spans
        self.event = numbers.event
        self.called = numbers.called
        self._executing = numbers.executing

    @contextmanager
    def around(self, ctx: Context) -> Iterator[None]:
        with self._executing(ctx), self._spans.around(ctx):
            yield


# Traces


class _Ids(Protocol):
    """The SDK's generator of ids."""

    def generate_trace_id(self) -> int: ...

    def generate_span_id(self) -> int: ...

    def is_trace_id_random(self) -> bool: ...


_wanted: ContextVar[tuple[int, int] | None] = ContextVar("wanted", default=None)
"""The trace id and span id of the span that is being started."""


class _RunIds:
    """Gives spans the ids that are wanted for them; the API knows no other way to choose a span's own id."""

    def __init__(self, others: _Ids) -> None:
        self._others = others

    def generate_trace_id(self) -> int:
        wanted = _wanted.get()
        return self._others.generate_trace_id() if wanted is None else wanted[0]

    def generate_span_id(self) -> int:
        wanted = _wanted.get()
        return self._others.generate_span_id() if wanted is None else wanted[1]

    def is_trace_id_random(self) -> bool:
        return _wanted.get() is None and self._others.is_trace_id_random()


class _Spans:
    """One span for each attempt; those of one run share a trace, in whichever process they execute."""

    def __init__(self, provider: TracerProvider | None, scope: str) -> None:
        self._provider = provider
        self._scope = scope

    @contextmanager
    def around(self, ctx: Context) -> Iterator[None]:
        span = self._start(ctx)
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except BaseException as error:
                _raised(span, ctx, error)
                raise
            span.set_attribute("tenure.ending", "success")

    def _start(self, ctx: Context) -> Span:
        tracer = self._tracer()
        chosen = _chooses_ids(tracer)
        links = [self._link(ctx, ctx.attempt - 1)] if chosen and ctx.attempt > 1 else []
        token = _wanted.set(self._ids(ctx, ctx.attempt) if chosen else None)
        try:
            return tracer.start_span(f"run {ctx.job}", TraceContext(), attributes=_described(ctx), links=links)
        finally:
            _wanted.reset(token)

    def _tracer(self) -> Tracer:
        """Asked for each time: the application may set its provider after it has imported its jobs."""
        provider = trace.get_tracer_provider() if self._provider is None else self._provider
        return provider.get_tracer(*_NAMED)

    def _link(self, ctx: Context, attempt: int) -> Link:
        trace_id, span_id = self._ids(ctx, attempt)
        before = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        return Link(before, {"tenure.attempt": attempt})

    def _ids(self, ctx: Context, attempt: int) -> tuple[int, int]:
        """The trace's id by job and slot, the span's by the attempt: whoever knows these knows the ids."""
        run = hashlib.sha256(f"{self._scope}\0{ctx.job}\0{ctx.slot_ms}".encode()).digest()
        span = hashlib.sha256(run + attempt.to_bytes(8)).digest()
        return int.from_bytes(run[:16]) or 1, int.from_bytes(span[:8]) or 1


def _chooses_ids(tracer: Tracer) -> bool:
    """Let the tracer ask us for ids; False if it is not the SDK's, whose spans then have ids of their own."""
    ids = getattr(tracer, "id_generator", None)
    if ids is None:
        return False
    if not isinstance(ids, _RunIds):
        cast(Any, tracer).id_generator = _RunIds(ids)  # the tracer of this name alone: nobody else's spans
    return True


def _described(ctx: Context) -> dict[str, str | int]:
    return {
        "tenure.job": ctx.job,
        "tenure.slot": f"{ctx.slot:%Y-%m-%dT%H:%M:%S}.{ctx.slot_ms % 1000:03}Z",
        "tenure.attempt": ctx.attempt,
        "tenure.fence": ctx.fence,
        "tenure.mode": ctx.mode,
        "tenure.instance": ctx.instance,
    }


def _raised(span: Span, ctx: Context, error: BaseException) -> None:
    reason = ctx.signal.reason
    if reason is not None:
        span.set_attribute("tenure.signal", reason)
    interrupted = reason in ("stop", "lost")
    span.set_attribute("tenure.ending", "interrupted" if interrupted else "failed")
    if not interrupted:
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))


# Metrics


class _Metrics:
    """Counts and times by job."""

    def __init__(self, scheduler: Scheduler, provider: MeterProvider | None, history: bool) -> None:
        meter = (metrics.get_meter_provider() if provider is None else provider).get_meter(*_NAMED)
        self._scheduler = scheduler
        self._runs = meter.create_counter("tenure.runs", "{run}", "Attempts that ended here, by ending.")
        self._skips = meter.create_counter("tenure.skips", "{run}", "Slots that this instance did not run, by reason.")
        self._takeovers = meter.create_counter("tenure.takeovers", "{run}", "Runs taken over from another instance.")
        self._lost = meter.create_counter("tenure.leases.lost", "{lease}", "Runs that were lost to another instance.")
        self._exhausted = meter.create_counter("tenure.exhausted", "{run}", "Runs seen to have used up their attempts.")
        self._errors = meter.create_counter("tenure.errors", "{error}", "Calls that failed and were told as events.")
        self._executing = meter.create_up_down_counter("tenure.executing", "{handler}", "Handlers that execute now.")
        self._duration = _times(meter, "tenure.run.duration", "How long handlers took.", _RUN_BUCKETS_S)
        self._late = _times(meter, "tenure.run.lateness", "From slot to win, by the store's clock.", _LATE_BUCKETS_S)
        self._calls = _times(meter, "tenure.call.duration", "How long the store took to answer.", _CALL_BUCKETS_S)
        meter.create_observable_gauge(
            "tenure.clock.offset", [self._offset], "s", "The store's clock minus this host's."
        )
        if history:
            _Gauges(scheduler).show(meter)

    def called(self, call: str, took_ms: float, error: BaseException | None) -> None:
        """See Observer."""
        failed = {} if error is None else {"error.type": type(error).__name__}
        self._calls.record(took_ms / 1000, {"tenure.call": call, **failed})

    def event(self, event: Event) -> None:
        """See Observer."""
        job = {"tenure.job": event.job}
        match event:
            case Start():
                self._late.record(event.late_ms / 1000, {**job, "tenure.mode": event.mode})
            case Success():
                self._ended("success", event.duration_ms, job)
            case Failure():
                timeout = {"error.type": "timeout"} if event.timeout else {}
                self._ended("failed", event.duration_ms, {**job, **timeout})
            case Interrupted():
                self._ended("interrupted", event.duration_ms, {**job, "tenure.reason": event.reason})
                if event.reason != "stop":
                    self._lost.add(1, {**job, "tenure.reason": event.reason})
            case Skip():
                self._skips.add(1, {**job, "tenure.reason": event.reason})
            case Takeover():
                self._takeovers.add(1, {**job, "tenure.reason": _why(event)})
            case Exhausted():
                self._exhausted.add(1, job)
            case Error():
                self._errors.add(1, {**job, "tenure.call": event.call, "error.type": type(event.error).__name__})

    @contextmanager
    def executing(self, ctx: Context) -> Iterator[None]:
        job = {"tenure.job": ctx.job}
        self._executing.add(1, job)
        try:
            yield
        finally:
            self._executing.add(-1, job)

    def _ended(self, ending: str, duration_ms: int, attributes: Attributes) -> None:
        self._runs.add(1, {**attributes, "tenure.ending": ending})
        self._duration.record(duration_ms / 1000, {**attributes, "tenure.ending": ending})

    def _offset(self, options: CallbackOptions) -> Iterable[Observation]:  # noqa: ARG002 - OpenTelemetry's signature
        offset_ms = self._scheduler.health().clock_offset_ms
        return [] if offset_ms is None else [Observation(offset_ms / 1000)]


def _times(meter: Meter, name: str, words: str, buckets_s: Sequence[float]) -> Histogram:
    return meter.create_histogram(name, "s", words, explicit_bucket_boundaries_advisory=buckets_s)


def _why(takeover: Takeover) -> str:
    """Whether the run was given back, or its holder had been silent for its lease."""
    released = bool(takeover.previous) and takeover.previous[0].released
    return "released" if released else "expired"


class _Gauges:
    """The last success of each job and how overdue the next one is, looked up when they are exported."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._successes = Successes(scheduler)

    def show(self, meter: Meter) -> None:
        age, overdue = "Since the job's last success, of any instance.", "How long a success has been overdue."
        meter.create_observable_gauge("tenure.job.success.age", [self.ages], "s", age)
        meter.create_observable_gauge("tenure.job.overdue", [self.overdue], "s", overdue)

    def ages(self, options: CallbackOptions) -> Iterable[Observation]:  # noqa: ARG002 - OpenTelemetry's signature
        return self._of_each_job(self._successes.age_ms)

    def overdue(self, options: CallbackOptions) -> Iterable[Observation]:  # noqa: ARG002 - OpenTelemetry's signature
        return self._of_each_job(self._successes.overdue_ms)

    def _of_each_job(self, measure: Callable[[Job, int], int | None]) -> Iterable[Observation]:
        now_ms = self._successes.look()
        if now_ms is None:
            return
        for job in self._scheduler.jobs:
            ms = measure(job, now_ms)
            if ms is not None:
                yield Observation(ms / 1000, {"tenure.job": job.name})
