"""Where handlers run: on their loop, in threads, in virtual time; how they end, and which go on."""

import asyncio
import contextvars
import threading
import time

import pytest
from tenure.context import Context
from tenure.executor import Executor, Handover, OtherLoop, SameLoop, Threads
from tenure.job import make_job
from tenure.schedule import every

PATIENCE_S = 20


def a_job(handler, **options):
    return make_job("sync", every("10s"), handler, options)


def a_context(slot=1):
    return Context("sync", slot, 1, 1, "scheduled", "a", "skip")


class Permit:
    def __init__(self, holds=True):
        self.holds = holds

    def confirmed(self):
        return self.holds


class AppLoop:
    """The application's loop, in a thread of its own."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)

    def __enter__(self):
        self.thread.start()
        return self.loop

    def __exit__(self, *exc):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE_S)
        self.loop.close()


def run(body):
    """Runs ``body(executor, app_loop)`` on an engine's loop."""

    async def main(app_loop):
        here = asyncio.get_running_loop()
        executor = Executor(OtherLoop(here, app_loop), Threads(here, 4))
        async with asyncio.timeout(PATIENCE_S):
            return await body(executor, app_loop)

    with AppLoop() as app_loop:
        return asyncio.run(main(app_loop))


async def gone(call):
    executes_no_more = asyncio.Event()
    call.when_gone(lambda _: executes_no_more.set())
    await executes_no_more.wait()


def test_async_handlers_run_on_the_applications_loop_and_sync_ones_in_threads_of_their_own():
    seen = {}

    async def on_loop(ctx):
        seen["loop"] = asyncio.get_running_loop()

    def in_thread(ctx):
        seen["thread"] = threading.current_thread()
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()

    async def body(executor, app_loop):
        for slot, handler in enumerate((on_loop, in_thread)):
            call = executor.start(a_job(handler), a_context(slot))
            assert (await call.wait()).how == "returned"
        assert seen["loop"] is app_loop
        assert seen["thread"].daemon
        assert seen["thread"] is not threading.main_thread()
        assert executor.executing() == []

    run(body)


def test_a_sync_handler_sees_the_context_variables_of_its_start():
    variable = contextvars.ContextVar("variable")
    seen = []

    async def body(executor, _):
        variable.set("set")
        await executor.start(a_job(lambda ctx: seen.append(variable.get(None))), a_context()).wait()

    run(body)
    assert seen == ["set"]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("is_async", [True, False])
def test_whatever_a_handler_raises_ends_it_and_nothing_else(error, is_async):
    async def raises_async(ctx):
        raise error

    def raises(ctx):
        raise error

    async def body(executor, app_loop):
        ended = await executor.start(a_job(raises_async if is_async else raises), a_context()).wait()
        assert (ended.how, ended.error) == ("raised", error)
        assert type(error).__name__ in ended.text
        assert app_loop.is_running()

    run(body)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_does_not_start_without_its_permit(is_async):
    started = []

    async def handler_async(ctx):
        started.append(ctx)

    async def body(executor, _):
        call = executor.start(a_job(handler_async if is_async else started.append), a_context(), Permit(holds=False))
        assert (await call.wait()).how == "unstarted"

    run(body)
    assert started == []


def test_a_permit_is_asked_at_the_moment_of_the_start_and_not_before():
    """The application's loop is blocked while the lease runs out."""
    started, permit, blocked, free = [], Permit(), threading.Event(), threading.Event()

    async def handler(ctx):
        started.append(ctx)

    def block():
        blocked.set()
        free.wait(PATIENCE_S)

    async def body(executor, app_loop):
        app_loop.call_soon_threadsafe(block)
        blocked.wait(PATIENCE_S)
        call = executor.start(a_job(handler), a_context(), permit)
        permit.holds = False
        free.set()
        assert (await call.wait()).how == "unstarted"

    run(body)
    assert started == []


@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_that_was_told_to_stop_before_its_turn_does_not_start(is_async):
    started, free = [], threading.Event()

    async def handler_async(ctx):
        started.append(ctx)

    async def body(executor, app_loop):
        for slot in range(4):  # all threads are taken
            executor.start(a_job(lambda: free.wait(PATIENCE_S)), a_context(slot))
        if is_async:
            app_loop.call_soon_threadsafe(free.wait, PATIENCE_S)
        call = executor.start(a_job(handler_async if is_async else started.append), a_context(9), Permit())
        call.stop("stop", cancel=False)
        free.set()
        assert (await call.wait()).how == "unstarted"

    run(body)
    assert started == []


def test_on_a_closed_loop_nothing_starts_each_time_and_a_cancellation_is_no_error():
    async def handler(ctx):
        pass

    async def main():
        closed = asyncio.new_event_loop()
        closed.close()
        here = asyncio.get_running_loop()
        executor = Executor(OtherLoop(here, closed), Threads(here, 1))
        for slot in range(2):
            call = executor.start(a_job(handler), a_context(slot), Permit())
            call.lose()
            async with asyncio.timeout(PATIENCE_S):
                assert (await call.wait()).how == "unstarted"
        await asyncio.sleep(0)
        assert executor.executing() == []

    asyncio.run(main())


@pytest.mark.parametrize("beside", [0, 1], ids=["alone", "in a burst"])
def test_an_async_handler_that_outlives_the_engine_ends_without_a_word(caplog, beside):
    """It was cancelled by its timeout just before a stop, for example."""
    began, leave = threading.Event(), asyncio.Event()

    async def handler(ctx):
        began.set()
        await leave.wait()

    async def start(app_loop):
        here = asyncio.get_running_loop()
        executor = Executor(OtherLoop(here, app_loop), Threads(here, 1))
        return [executor.start(a_job(handler), a_context(slot)) for slot in range(1 + beside)]

    with AppLoop() as app_loop:
        calls = asyncio.run(start(app_loop))  # the engine's loop is closed with them in it
        assert began.wait(PATIENCE_S)
        app_loop.call_soon_threadsafe(leave.set)
        end = time.monotonic() + PATIENCE_S
        while not all(call.task is not None and call.task.done() for call in calls):
            assert time.monotonic() < end
            time.sleep(0.005)
        assert [call.task.exception() for call in calls] == [None] * len(calls)
    assert not caplog.records


def test_no_more_threads_than_the_limit_and_everyone_gets_a_turn():
    lock, now, most, done = threading.Lock(), 0, 0, []

    def handler(ctx):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.002)
        with lock:
            now -= 1
        done.append(ctx.slot_ms)

    async def body(executor, _):
        calls = [executor.start(a_job(handler), a_context(slot)) for slot in range(40)]
        await asyncio.gather(*(call.wait() for call in calls))

    run(body)
    assert most <= 4
    assert sorted(done) == list(range(40))


def test_a_system_without_threads_starts_nothing_and_says_so(monkeypatch):
    async def body(executor, _):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            call = executor.start(a_job(lambda: None), a_context())
            ended = await call.wait()
        assert ended.how == "unstarted"
        assert "can't start new thread" in ended.text
        assert executor.executing() == []
        assert (await executor.start(a_job(lambda: None), a_context()).wait()).how == "returned"

    run(body)


def no_thread(self):
    raise RuntimeError("can't start new thread")


def test_a_timeout_counts_from_when_the_handler_really_starts():
    free = threading.Event()

    async def body(executor, _):
        for slot in range(4):
            executor.start(a_job(lambda: free.wait(PATIENCE_S)), a_context(slot))
        call = executor.start(a_job(lambda ctx: ctx.signal.wait("10ms"), timeout="20s"), a_context(9))
        late = executor.start(a_job(lambda ctx: None, timeout="1ms"), a_context(10))
        await asyncio.sleep(0.05)
        assert not late.ended
        free.set()
        assert (await call.wait()).how == "returned"

    run(body)


def test_a_thread_that_goes_on_after_its_timeout_is_known_until_it_ends():
    """CT03: a sync handler cannot be killed."""
    free = threading.Event()

    async def body(executor, _):
        job = a_job(lambda ctx: free.wait(PATIENCE_S), timeout="10ms")
        call = executor.start(job, a_context())
        assert (await call.wait()).how == "timeout"
        executor.timed_out(call)
        assert call.ctx.signal.reason == "timeout"
        assert len(executor.going_on("sync")) == 1
        assert executor.executing() == [call]
        assert executor.in_the_way(job, 2) is call  # a later run of the job
        assert executor.in_the_way(a_job(lambda: None, overlap="allow"), 2) is None
        free.set()
        await gone(call)
        assert executor.going_on("sync") == ()
        assert executor.in_the_way(job, 2) is None
        assert executor.executing() == []
        assert (await call.wait()).how == "timeout"  # what came later changes nothing

    run(body)


def test_a_thread_sees_its_signal():
    async def body(executor, _):
        call = executor.start(a_job(lambda ctx: ctx.signal.wait("20s") or 1 / 0), a_context())
        call.stop("stop", cancel=True)
        assert (await call.wait()).how in ("returned", "unstarted")

    run(body)


def test_an_async_handler_is_cancelled_on_its_own_loop():
    cleaned, began = [], threading.Event()

    async def handler(ctx):
        began.set()
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            cleaned.append(asyncio.get_running_loop())

    async def body(executor, app_loop):
        call = executor.start(a_job(handler), a_context())
        await asyncio.to_thread(began.wait, PATIENCE_S)
        call.lose()
        ended = await call.wait()
        assert isinstance(ended.error, asyncio.CancelledError)
        assert cleaned == [app_loop]
        assert call.ctx.signal.reason == "lost"

    run(body)


def test_a_handler_cancelled_before_its_first_step_ends_too():
    async def main():
        executor = Executor(SameLoop(), SameLoop())
        call = executor.start(a_job(asyncio.sleep), a_context())
        call.stop("lost", cancel=True)
        ended = await call.wait()
        assert isinstance(ended.error, asyncio.CancelledError)
        assert executor.executing() == []

    asyncio.run(main())


def test_who_asks_after_a_handler_is_gone_is_told_at_once():
    async def body(executor, _):
        call = executor.start(a_job(lambda: None), a_context())
        await gone(call)
        told = []
        call.when_gone(told.append)
        assert told == [call]

    run(body)


def test_handovers_come_in_order_and_none_is_lost():
    async def main():
        here = asyncio.get_running_loop()
        handover, got, done = Handover(here), [], asyncio.Event()

        def put(thread):
            for number in range(500):
                handover.put(take, thread, number)

        def take(thread, number):
            got.append((thread, number))
            if len(got) == 2_000:
                done.set()

        threads = [threading.Thread(target=put, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        async with asyncio.timeout(PATIENCE_S):
            await done.wait()
        for name in range(4):
            assert [number for thread, number in got if thread == name] == list(range(500))

    asyncio.run(main())


def test_a_blocked_application_loop_leaves_no_trace_afterwards(caplog):
    """HB04: after a blocked loop, a future was left with an unretrieved exception."""

    async def handler(ctx):
        time.sleep(0.05)
        await asyncio.sleep(PATIENCE_S)

    async def body(executor, app_loop):
        app_loop.set_debug(True)
        app_loop.slow_callback_duration = PATIENCE_S
        call = executor.start(a_job(handler, timeout="10ms"), a_context())
        assert (await call.wait()).how == "timeout"
        await gone(call)

    run(body)
    assert not [record for record in caplog.records if record.name == "asyncio" and record.levelname != "DEBUG"]


def test_an_exception_is_put_into_words_where_it_was_raised():
    """A slow ``__str__`` of a handler's exception held up every heartbeat of the instance."""
    where = []

    class Slow(Exception):
        def __str__(self):
            where.append(threading.current_thread().name)
            return "slow"

    def raises(ctx):
        raise Slow

    async def body(executor, app_loop):
        assert "Slow: slow" in (await executor.start(a_job(raises), a_context()).wait()).text

    run(body)
    assert where
    assert all(name.startswith("tenure-sync") for name in where)


def test_a_task_that_cannot_be_made_leaves_its_run_unstarted():
    """An application's task factory that raised left the lease to be renewed for ever."""

    async def handler(ctx): ...

    async def body(executor, app_loop):
        app_loop.set_task_factory(lambda loop, work, **_: 1 / 0)
        calls = [executor.start(a_job(handler), a_context(slot)) for slot in (1, 2, 3)]
        assert [(await call.wait()).how for call in calls] == ["unstarted"] * 3

    run(body)


def test_a_handler_that_has_returned_is_not_too_slow_because_the_engine_hears_of_it_late():
    """Another handler blocks the application's loop just then, so that the end is handed over after the timeout."""

    class Late(SameLoop):
        def tell(self, call, ended):
            asyncio.get_running_loop().call_later(0.2, call.finished, ended)

    async def main():
        executor = Executor(Late(), Late())

        async def handler(ctx):
            pass

        call = executor.start(a_job(handler, timeout="100ms"), a_context())
        async with asyncio.timeout(PATIENCE_S):
            return (await call.wait()).how, call.ctx.signal.reason

    assert asyncio.run(main()) == ("returned", None)
