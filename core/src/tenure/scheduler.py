"""What people use: jobs are added to a scheduler, which runs on a thread of its own."""

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from tenure.clock import SystemClock
from tenure.duration import Duration, to_ms
from tenure.errors import BackendError, DuplicateJob, InvalidInput, InvalidJob, SchedulerStateError, UnknownJob, closest
from tenure.events import Events, Listener, check_listener, logger
from tenure.executor import Call, Executor, OtherLoop, Threads, current
from tenure.health import Contact, Health
from tenure.host import EngineThread, EventThread, LoopThread, Pending, StoppedEarly, StopSignals
from tenure.instance import Instance, new_instance_id
from tenure.job import Handler, Job, JobChoices, JobOptions, check_defaults, make_job
from tenure.model import Capabilities, RunResult, Triggered, check_lease, check_name
from tenure.observe import Observer, Observers
from tenure.protocol import Backend
from tenure.registry import connect
from tenure.schedule import Fold, Gap, Schedule, Zone, cron, every

if TYPE_CHECKING:
    from tenure.engine import Engine

__all__ = ["Pending", "Scheduler"]

Decorated = TypeVar("Decorated", bound=Handler)
_DECORATE: Any = object()
"""No handler was given, not even None: a decorator is wanted."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_THREAD_TIMEOUT_S = 5.0
"""How long a stop waits for listeners that are slow and tasks that heed no cancellation."""
_EXIT_TIMEOUT_S = 2.0
"""How long the end of the process waits for schedulers that nobody stopped."""
_LOOP_CLOSED = (
    "the event loop that the async handlers run on was closed, so the scheduler stops; "
    "use `async with scheduler:`, or `await scheduler.aclose()` before the loop ends"
)
_all: "weakref.WeakSet[Scheduler]" = weakref.WeakSet()
_left_behind: list[EngineThread] = []
"""Engines of a parent process: kept, since what they hold would be torn down by whoever frees it."""


class Scheduler:
    """Runs jobs; each slot is run by one of the instances that share the store, and by another if that one dies.

    ``backend`` is a URL (``sqlite:///jobs.db``) or a backend object that is not entered; ``namespace`` goes with a URL
    ("tenure" unless given). Further keywords are defaults for the options of jobs (JobOptions). ``on_event`` is a
    function of one event, or several; it is called on a thread of its own. At most ``threads`` sync handlers execute at
    once. One that runs when the process ends is stopped then, without grace.
    """

    def __init__(
        self,
        backend: str | Backend,
        *,
        namespace: str | None = None,
        instance: str | None = None,
        grace: Duration = "30s",
        on_event: Listener | Iterable[Listener] = (),
        threads: int = 256,
        **defaults: Unpack[JobOptions],
    ) -> None:
        check_defaults(defaults)
        if instance is not None:
            check_name(instance, "instance", InvalidInput)
        if type(threads) is not int or threads < 1:
            raise InvalidInput(f"threads: {threads!r} is not an integer of at least 1")
        self._grace_ms = to_ms(grace, "grace")
        self._listeners = _checked_listeners(on_event)
        self._connect = _connector(backend, namespace)
        self._backend: Backend | None = self._connect()
        self._capabilities: Capabilities = getattr(self._backend, "capabilities", Capabilities())
        self._instance_name = instance
        self._threads = threads
        self._defaults = defaults
        self._jobs: dict[str, Job] = {}
        self._lock = threading.RLock()
        self._thread: EngineThread | None = None
        self._events: EventThread | None = None
        self._instance: str | None = None
        self._observers: list[Observer] = []
        self._contact: Contact | None = None
        _all.add(self)

    # Jobs

    @overload
    def every(
        self, name: str, period: Duration, *, anchor: datetime | None = ..., **options: Unpack[JobChoices]
    ) -> Callable[[Decorated], Decorated]: ...

    @overload
    def every(
        self,
        name: str,
        period: Duration,
        handler: Decorated,
        *,
        anchor: datetime | None = ...,
        **options: Unpack[JobChoices],
    ) -> Decorated: ...

    def every(
        self,
        name: str,
        period: Duration,
        handler: Handler = _DECORATE,
        *,
        anchor: datetime | None = None,
        **options: Unpack[JobChoices],
    ) -> Any:
        """Add a job with a fixed period, aligned to the Unix epoch; without a handler, a decorator that adds it."""
        return self._add_or_decorate(name, every(period, anchor=anchor), handler, options)

    @overload
    def cron(
        self,
        name: str,
        expression: str,
        *,
        tz: str | Zone = ...,
        gap: Gap = ...,
        fold: Fold = ...,
        **options: Unpack[JobChoices],
    ) -> Callable[[Decorated], Decorated]: ...

    @overload
    def cron(
        self,
        name: str,
        expression: str,
        handler: Decorated,
        *,
        tz: str | Zone = ...,
        gap: Gap = ...,
        fold: Fold = ...,
        **options: Unpack[JobChoices],
    ) -> Decorated: ...

    def cron(
        self,
        name: str,
        expression: str,
        handler: Handler = _DECORATE,
        *,
        tz: str | Zone = UTC,
        gap: Gap = "shift",
        fold: Fold = "first",
        **options: Unpack[JobChoices],
    ) -> Any:
        """Add a job with a cron expression in a time zone; without a handler, a decorator that adds it."""
        return self._add_or_decorate(name, cron(expression, tz=tz, gap=gap, fold=fold), handler, options)

    @overload
    def add(self, name: str, schedule: Schedule, **options: Unpack[JobChoices]) -> Callable[[Decorated], Decorated]: ...

    @overload
    def add(self, name: str, schedule: Schedule, handler: Decorated, **options: Unpack[JobChoices]) -> Decorated: ...

    def add(self, name: str, schedule: Schedule, handler: Handler = _DECORATE, **options: Unpack[JobChoices]) -> Any:
        """Add a job with a schedule of any kind; also while the scheduler runs, from any thread.

        Raises DuplicateJob, InvalidJob, InvalidDuration or InvalidSchedule before anything is changed. With
        ``replace=True`` a job of that name is replaced: the new one serves from its next slot or attempt.
        """
        return self._add_or_decorate(name, schedule, handler, options)

    def remove(self, name: str) -> None:
        """End the job: a running handler goes on to its end, and what is stored stays. UnknownJob if unknown."""
        with self._lock:
            self._known(name)
            if thread := self._thread:
                thread.tell(lambda engine: engine.remove(name))
            del self._jobs[name]

    def trigger(self, name: str) -> Pending[Triggered]:
        """Run the job now, under its overlap rule, here if the claim is won; the answer comes when that is decided.

        Raises UnknownJob, and SchedulerStateError unless the scheduler runs. The answer may be a BackendError.
        """
        self._known(name)
        thread = self._thread
        if thread is None:
            raise SchedulerStateError(f"trigger({name!r}) needs a running scheduler; start it first")
        return Pending(thread.submit(lambda engine: engine.trigger(name)))

    def next_slot(self, name: str) -> datetime | None:
        """The job's first slot after now by this machine's clock, in UTC; None if its schedule has no more."""
        slot = self._known(name).schedule.next_slot(SystemClock().wall_ms())
        return None if slot is None else _EPOCH + timedelta(milliseconds=slot)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs, in the order they were added."""
        return tuple(self._jobs.values())

    @property
    def store(self) -> str:
        """The store and namespace that instances share, without secrets."""
        return str(self._backend or self._connect())

    @property
    def instance(self) -> str | None:
        """The id of the running instance; None while the scheduler does not run."""
        return self._instance if self._thread else None

    def results(self, name: str, *, limit: int = 20) -> Pending[list[RunResult]]:
        """The newest records of a job, of all instances; none on a claim-only backend.

        Raises SchedulerStateError unless the scheduler runs. The answer may be a BackendError.
        """
        thread = self._thread
        if thread is None:
            raise SchedulerStateError(f"results({name!r}) needs a running scheduler; start it first")
        return Pending(thread.submit(lambda engine: engine.results(name, limit)))

    # Looking at it

    def observe(self, observer: Observer) -> None:
        """Have it looked at from the next start on: events, calls of the store, and around handlers."""
        if self._thread is not None:
            raise SchedulerStateError("the scheduler runs already; observe it before it is started")
        self._observers.append(observer)

    def health(self) -> Health:
        """Whether it is alive and ready; asks nobody, so that it answers at once, in any thread or task."""
        thread, contact = self._thread, self._contact
        if thread is None or contact is None:
            return Health(state="stopped")
        return contact.health(thread.state, self._instance, thread.ticked_ms)

    # Running

    def start(self) -> None:
        """Start on threads of its own and return, for synchronous applications; async handlers get a loop of their own.

        Raises what entering the store raises (BackendError), and SchedulerStateError if it runs already or where a loop
        runs that async handlers should use. After an error nothing runs, and it may be started again.
        """
        _refuse_in_loop("start()", "`async with scheduler:`")
        self._begin(None).wait_started()

    def stop(self, grace: Duration | None = None) -> None:
        """Claim no more, tell running handlers to stop, wait for them up to ``grace``, and close the store.

        A handler that raises then is released, so that another instance runs it at once. A second call does not wait,
        and hurries the first. In a handler or listener, which it would wait for, it returns at once.
        """
        grace_ms = self._grace(grace)
        _refuse_in_loop("stop()", "`await scheduler.aclose()`")
        if thread := self._thread:
            thread.stop(grace_ms)
            if not self._waits_for_caller(thread):
                thread.wait_stopped()

    async def aclose(self, grace: Duration | None = None) -> None:
        """Do what ``stop`` does, inside an event loop."""
        grace_ms = self._grace(grace)
        if thread := self._thread:
            thread.stop(grace_ms)
            if not self._waits_for_caller(thread):
                await thread.stopped_async()

    async def serve(self) -> None:
        """Run inside an event loop until it is stopped or cancelled, or SIGTERM or SIGINT comes; a second hurries.

        It has these signals to itself: beside a server that handles them, use ``async with scheduler:``.
        """
        thread = self._begin(asyncio.get_running_loop())
        with self._stop_signals(thread):
            try:
                with suppress(StoppedEarly):
                    await thread.started_async()
                await thread.stopped_async()
            except asyncio.CancelledError:
                await self.aclose()
                raise

    def run(self) -> None:
        """Run until it is stopped, or SIGTERM or SIGINT comes: the last line of a plain script; a second one hurries.

        Handlers run beside the main thread, so that none of them can hold up a signal or the end of the process. An
        error of the start comes without the errors that led to it, which a script's user would have to read through;
        they are logged at the level debug.
        """
        _refuse_in_loop("run()", "`await scheduler.serve()`")
        early: list[bool] = []

        def stop(again: bool) -> None:
            if thread := self._thread:
                thread.stop(0 if again else self._grace_ms)
            else:
                early.append(again)

        with StopSignals(stop):
            thread = self._begin(None)
            for again in early:
                stop(again)
            with suppress(StoppedEarly):
                _wait_started_in_script(thread)
            thread.wait_stopped()

    async def __aenter__(self) -> Self:
        """Start; async handlers run on this loop."""
        await self._begin(asyncio.get_running_loop()).started_async()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop, with the scheduler's grace."""
        await self.aclose()

    def __enter__(self) -> Self:
        """Start, as ``start()`` does."""
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop, as ``stop()`` does."""
        self.stop()

    # Behind it

    def _add_or_decorate(self, name: str, schedule: Schedule, handler: Handler, options: Mapping[str, Any]) -> Any:
        if handler is not _DECORATE:
            self._add(name, schedule, handler, options)
            return handler

        def decorate(handler: Decorated) -> Decorated:
            self._add(name, schedule, handler, options)
            return handler

        return decorate

    def _add(self, name: str, schedule: Schedule, handler: Handler, options: Mapping[str, Any]) -> None:
        replace = options.get("replace", False)
        chosen = {option: value for option, value in options.items() if option != "replace"}
        job = make_job(name, schedule, handler, {**self._defaults, **chosen})
        check_lease(job.lease_ms, self._capabilities, InvalidJob)
        with self._lock:
            known = name in self._jobs
            if known and not replace:
                raise DuplicateJob(f"there is a job {name!r} already; choose another name, or pass replace=True")
            if thread := self._thread:
                thread.tell(lambda engine: engine.replace(job) if known else engine.add((job,)))
            self._jobs[name] = job

    def _known(self, name: str) -> Job:
        job = self._jobs.get(name)
        if job is None:
            close = closest(str(name), self._jobs)
            hint = f"did you mean {close!r}?" if close else f"its jobs are {', '.join(map(repr, self._jobs)) or 'none'}"
            raise UnknownJob(f"there is no job {name!r} in this scheduler; {hint}")
        return job

    def _grace(self, grace: Duration | None) -> int:
        return self._grace_ms if grace is None else to_ms(grace, "grace")

    def _begin(self, handlers: asyncio.AbstractEventLoop | None) -> EngineThread:
        """Start an engine on its thread; async handlers run on the loop given, else on one of their own."""
        with self._lock, ExitStack() as closing:
            if self._thread is not None:
                raise SchedulerStateError("the scheduler runs already; stop it before it is started again")
            backend, self._backend = self._backend or self._connect(), None
            if handlers is None:
                own = LoopThread()
                closing.callback(own.stop, _THREAD_TIMEOUT_S)
                handlers = own.loop
            listeners = (*self._listeners, *(observer.event for observer in self._observers))
            events = EventThread(Events(SystemClock(), listeners))
            closing.callback(events.stop, _THREAD_TIMEOUT_S)
            name = self._instance_name or new_instance_id()
            observers = Observers(self._observers)
            contact = Contact(SystemClock(), observers)
            build = partial(self._build, backend, name, events, handlers, contact, observers)
            thread = EngineThread(build, self._jobs.values(), self._stopped, closing.pop_all().close)
            self._thread, self._events, self._instance, self._contact = thread, events, name, contact
            thread.start()
            return thread

    def _build(
        self,
        backend: Backend,
        name: str,
        events: EventThread,
        handlers: asyncio.AbstractEventLoop,
        contact: Contact,
        observers: Observers,
        loop: asyncio.AbstractEventLoop,
    ) -> "Engine":
        from tenure.engine import Engine  # loaded at the first start: an import of tenure does not pay for it

        instance = Instance(name, SystemClock(), Random(), events, contact)
        places = OtherLoop(loop, handlers, self._loop_closed), Threads(loop, self._threads)
        executor = Executor(*places, observers.around)
        return Engine(backend, instance, executor)

    def _loop_closed(self) -> None:
        if thread := self._thread:
            logger.error(_LOOP_CLOSED)
            thread.stop(0, SchedulerStateError(_LOOP_CLOSED))

    def _waits_for_caller(self, thread: EngineThread) -> bool:
        """Whether a handler or listener asks, which ends or goes on only after the answer."""
        call = current.get(None)
        return (call is not None and thread.executes(call)) or (self._events is not None and self._events.is_current())

    def _stop_signals(self, thread: EngineThread) -> StopSignals:
        return StopSignals(lambda again: thread.stop(0 if again else self._grace_ms))

    def _stopped(self, thread: EngineThread, executing: list[Call]) -> None:
        """Called on the engine's thread, which takes no lock of ours: who holds it may wait for that thread."""
        if self._thread is thread:
            self._thread = None
        for call in executing:
            logger.warning(
                "the handler of %r at %s outlived the stop; its lease is kept until it ends",
                call.job.name,
                call.ctx.slot,
            )

    def _forget(self) -> None:
        """In a forked child: the threads stayed in the parent, and so did its connections."""
        if self._thread is not None:
            _left_behind.append(self._thread)
            self._thread = self._events = self._backend = None
        self._lock = threading.RLock()

    def _stop_at_exit(self) -> EngineThread | None:
        if thread := self._thread:
            thread.stop(0)
        return thread


def _connector(backend: str | Backend, namespace: str | None) -> Callable[[], Backend]:
    """A URL is connected anew at each start; an object is entered again."""
    if isinstance(backend, str):
        return partial(connect, backend, namespace="tenure" if namespace is None else namespace)
    fault = _fault_of(backend)
    if fault is not None:
        raise InvalidInput(f"backend: {backend!r} {fault}")
    if namespace is not None:
        raise InvalidInput(f"namespace: {namespace!r} goes with a URL; a backend object is given its own")
    return lambda: backend


_CLAIM_ONLY = ("claim", "save_result", "__aenter__", "__aexit__")
_LEASES = ("heartbeat", "finish", "release", "active", "results", "capabilities")


def _fault_of(backend: object) -> str | None:
    """What keeps the object from being a backend, and the remedy."""
    if isinstance(backend, type):
        return "is a class; give an object of it"
    if not hasattr(backend, "claim"):
        return 'is neither a URL nor a backend; give "sqlite:///jobs.db" for one'
    wanted = (*_CLAIM_ONLY, *_LEASES) if hasattr(backend, "heartbeat") else _CLAIM_ONLY
    missing = ", ".join(name for name in wanted if not hasattr(backend, name))
    return f"is no backend: it lacks {missing}; see tenure.ClaimOnlyBackend and LeaseBackend" if missing else None


def _checked_listeners(on_event: object) -> tuple[Listener, ...]:
    if callable(on_event):
        return (check_listener(on_event),)
    if not isinstance(on_event, Iterable):
        raise InvalidInput(f"on_event: {on_event!r} is neither a function of an event nor several")
    return tuple(map(check_listener, on_event))


def _wait_started_in_script(thread: EngineThread) -> None:
    try:
        thread.wait_started()
    except (BackendError, InvalidInput) as error:
        logger.debug("the start failed", exc_info=error)
        raise error.with_traceback(None) from None


def _refuse_in_loop(call: str, remedy: str) -> None:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise SchedulerStateError(f"{call} would block the event loop; use {remedy}")


def _forget_threads() -> None:
    for scheduler in list(_all):
        scheduler._forget()


def _stop_all() -> None:
    """At the end of the process: what can still be given back, another instance takes at once."""
    stopping = [thread for scheduler in list(_all) if (thread := scheduler._stop_at_exit())]
    end = time.monotonic() + _EXIT_TIMEOUT_S
    for thread in stopping:
        with suppress(BaseException):
            if thread.stopped.result(max(end - time.monotonic(), 0)):
                thread.closed.result(max(end - time.monotonic(), 0))


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
