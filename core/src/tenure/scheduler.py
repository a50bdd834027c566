"""What people use: jobs are added to a scheduler, which runs on a thread of its own."""

import asyncio
import difflib
import os
import signal
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from tenure.clock import SystemClock
from tenure.duration import Duration, to_ms
from tenure.engine import Engine
from tenure.errors import DuplicateJob, InvalidInput, InvalidJob, SchedulerStateError, UnknownJob
from tenure.events import Events, Listener, check_listener, logger
from tenure.executor import Call, Executor, OtherLoop, Threads
from tenure.host import EngineThread, EventThread, LoopThread
from tenure.instance import Instance, new_instance_id
from tenure.job import Handler, Job, JobChoices, JobOptions, check_options, make_job
from tenure.model import check_lease, check_name
from tenure.protocol import Backend, has_leases
from tenure.registry import connect
from tenure.runner import Triggered
from tenure.schedule import Fold, Gap, Schedule, Zone, cron, every

Decorated = TypeVar("Decorated", bound=Handler)
Result = TypeVar("Result")

_Stopped = asyncio.Future[tuple[EngineThread, Future[list[Call]]]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EVENTS_TIMEOUT_S = 5.0
_running: "weakref.WeakSet[Scheduler]" = weakref.WeakSet()


class Pending(Generic[Result]):
    """An answer that is on its way: ``await`` it in a task, or call ``result()`` in a thread."""

    def __init__(self, future: "Future[Result]") -> None:
        self._future = future

    def result(self, timeout: Duration | None = None) -> Result:
        """Wait for the answer; TimeoutError when it takes longer."""
        return self._future.result(None if timeout is None else to_ms(timeout, "timeout") / 1000)

    def __await__(self) -> Generator[Any, None, Result]:
        return asyncio.wrap_future(self._future).__await__()


class Scheduler:
    """Runs jobs, each run once among all instances that share the store.

    ``backend`` is a URL (``sqlite:///jobs.db``) or a backend object that is not entered. Further keywords are defaults
    for the options of jobs (JobOptions). ``on_event`` is a function of one event, or several; it is called on a thread
    of its own. At most ``threads`` sync handlers execute at once.
    """

    def __init__(
        self,
        backend: str | Backend,
        *,
        namespace: str = "tenure",
        instance: str | None = None,
        grace: Duration = "30s",
        on_event: Listener | Iterable[Listener] = (),
        threads: int = 256,
        **defaults: Unpack[JobOptions],
    ) -> None:
        check_options(defaults, "Scheduler")
        if instance is not None:
            check_name(instance, "instance", InvalidInput)
        if type(threads) is not int or threads < 1:
            raise InvalidInput(f"threads: {threads!r} is not an integer of at least 1")
        self._connect = _connector(backend, namespace)
        self._backend: Backend | None = self._connect()
        self._capabilities = getattr(self._backend, "capabilities", None) if has_leases(self._backend) else None
        self._instance_name = instance
        self._grace_ms = to_ms(grace, "grace")
        self._listeners = tuple(map(check_listener, [on_event] if callable(on_event) else on_event))
        self._threads = threads
        self._defaults = defaults
        self._jobs: dict[str, Job] = {}
        self._lock = threading.RLock()
        self._thread: EngineThread | None = None
        self._instance: str | None = None

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
        handler: Handler | None = None,
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
        handler: Handler | None = None,
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

    def add(self, name: str, schedule: Schedule, handler: Handler | None = None, **options: Unpack[JobChoices]) -> Any:
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
                thread.call(lambda engine: engine.remove(name))
            del self._jobs[name]

    def trigger(self, name: str) -> Pending[Triggered]:
        """Run the job now, under its overlap rule, here if the claim is won.

        Raises UnknownJob, and SchedulerStateError unless the scheduler runs.
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
    def instance(self) -> str | None:
        """The id of the running instance; None while the scheduler does not run."""
        return self._instance if self._thread else None

    # Running

    def start(self) -> None:
        """Start on threads of its own and return, for synchronous applications; async handlers get a loop of their own.

        Raises what entering the store raises (BackendError), and SchedulerStateError if it runs already.
        """
        handlers = LoopThread()
        try:
            self._begin(handlers.loop, handlers.stop).started.result()
        except BaseException:
            self._thread = None
            raise

    def stop(self, grace: Duration | None = None) -> None:
        """Claim no more, tell running handlers to stop, wait for them up to ``grace``, and close the store.

        A handler that raises then is released, so that another instance runs it at once. A second call does not wait.
        """
        if _in_a_loop():
            raise SchedulerStateError("stop() would block the event loop; use `await scheduler.aclose()`")
        if thread := self._thread:
            executing = thread.stop(self._grace(grace)).result()
            if not executing:
                thread.closed.result()
            self._stopped(thread, executing)

    async def aclose(self, grace: Duration | None = None) -> None:
        """Do what ``stop`` does, inside an event loop."""
        if thread := self._thread:
            await self._stopping(thread, thread.stop(self._grace(grace)))

    async def serve(self) -> None:
        """Run inside an event loop until it is cancelled, or SIGTERM or SIGINT comes; the second one does not wait."""
        stopped: _Stopped = asyncio.get_running_loop().create_future()
        async with self:
            with self._signals(stopped):
                thread, stopping = await stopped
                await self._stopping(thread, stopping)

    def run(self) -> None:
        """Run until SIGTERM or SIGINT: the last line of a plain script."""
        asyncio.run(self.serve())

    async def __aenter__(self) -> Self:
        """Start; async handlers run on this loop."""
        try:
            await asyncio.wrap_future(self._begin(asyncio.get_running_loop(), lambda: None).started)
        except BaseException:
            self._thread = None
            raise
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

    def _add_or_decorate(
        self, name: str, schedule: Schedule, handler: Handler | None, options: Mapping[str, Any]
    ) -> Any:
        if handler is not None:
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
        if self._capabilities is not None:
            check_lease(job.lease_ms, self._capabilities, InvalidJob)
        with self._lock:
            known = name in self._jobs
            if known and not replace:
                raise DuplicateJob(f"there is a job {name!r} already; choose another name, or pass replace=True")
            if thread := self._thread:
                thread.call(lambda engine: engine.replace(job) if known else engine.add((job,)))
            self._jobs[name] = job

    def _known(self, name: str) -> Job:
        job = self._jobs.get(name)
        if job is None:
            close = ", ".join(map(repr, difflib.get_close_matches(str(name), self._jobs))) or "none is alike"
            raise UnknownJob(f"there is no job {name!r} in this scheduler; did you mean: {close}?")
        return job

    def _grace(self, grace: Duration | None) -> int:
        return self._grace_ms if grace is None else to_ms(grace, "grace")

    def _begin(self, handlers: asyncio.AbstractEventLoop, on_closed: Callable[[], None]) -> EngineThread:
        """Start an engine on its thread; async handlers run on the loop given."""
        with self._lock:
            if self._thread is not None:
                raise SchedulerStateError("the scheduler runs already; stop it before it is started again")
            backend, self._backend = self._backend or self._connect(), None
            clock = SystemClock()
            events = EventThread(Events(clock, self._listeners))
            self._instance = name = self._instance_name or new_instance_id()

            def build(loop: asyncio.AbstractEventLoop) -> Engine:
                executor = Executor(OtherLoop(loop, handlers), Threads(loop, self._threads))
                return Engine(backend, Instance(name, clock, Random(), events), executor)

            def closed() -> None:
                events.stop(_EVENTS_TIMEOUT_S)
                on_closed()

            self._thread = EngineThread(build, self._jobs.values(), closed)
            _running.add(self)
            return self._thread

    async def _stopping(self, thread: EngineThread, stopping: "Future[list[Call]]") -> None:
        executing = await asyncio.wrap_future(stopping)
        if not executing:
            await asyncio.wrap_future(thread.closed)
        self._stopped(thread, executing)

    def _stopped(self, thread: EngineThread, executing: list[Call]) -> None:
        if self._thread is thread:
            self._thread = None
            _running.discard(self)
        for call in executing:
            logger.warning(
                "the handler of %r at %s outlived the stop; its lease is kept until it ends",
                call.job.name,
                call.ctx.slot,
            )

    def _forget(self) -> None:
        self._thread = None
        self._backend = None
        self._lock = threading.RLock()

    @contextmanager
    def _signals(self, stopped: _Stopped) -> Iterator[None]:
        """Stop at SIGTERM and SIGINT; at once also where a handler blocks the application's loop."""
        thread = self._thread
        if thread is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = stopped.get_loop()
        came: list[int] = []

        def on_signal(signum: int, _frame: object) -> None:
            stopping = thread.stop(0 if came else self._grace_ms)
            if not came:
                loop.call_soon_threadsafe(stopped.set_result, (thread, stopping))
            came.append(signum)

        before = {signum: signal.signal(signum, on_signal) for signum in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)


def _connector(backend: str | Backend, namespace: str) -> Callable[[], Backend]:
    """A URL is connected anew at each start; an object is entered again."""
    if isinstance(backend, str):
        return partial(connect, backend, namespace=namespace)
    if not callable(getattr(backend, "claim", None)) or not callable(getattr(backend, "save_result", None)):
        raise InvalidInput(f'backend: {backend!r} is neither a URL nor a backend; give "sqlite:///jobs.db" for one')
    return lambda: backend


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _forget_threads() -> None:
    """In a forked child: the threads stayed in the parent, and so did its connections."""
    for scheduler in list(_running):
        scheduler._forget()  # this module's own class
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
