"""The threads behind a scheduler, and the signals in front of it."""

import asyncio
import signal
import threading
import time
from concurrent.futures import Future

import pytest
from tenure.clock import SystemClock
from tenure.events import Events, Start
from tenure.host import EventThread, LoopThread, Pending, StopSignals, outcome

PATIENCE_S = 20


def event(slot):
    return Start(job="a", slot=slot, instance="i", mode="scheduled", late_ms=0)


# Answers of other threads


def test_a_pending_answer_is_awaited_and_waited_for():
    future = Future()
    pending = Pending(future)

    async def main():
        asyncio.get_running_loop().call_later(0.01, future.set_result, "answer")
        return await pending

    assert asyncio.run(main()) == "answer"
    assert pending.result() == "answer"
    assert pending.result("1s") == "answer"
    with pytest.raises(TimeoutError):
        Pending(Future()).result("1ms")


def test_an_answer_that_is_an_error_is_raised():
    future = Future()
    future.set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        Pending(future).result()
    with pytest.raises(ZeroDivisionError):
        asyncio.run(outcome(future))


def test_who_is_cancelled_while_it_waits_cancels_nothing():
    future = Future()

    async def main():
        waiting = asyncio.ensure_future(outcome(future))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert not future.cancelled()
    future.set_result("nobody waits any more")  # and the loop that did is closed
    assert future.result() == "nobody waits any more"


# Listeners


def test_events_are_told_in_order_on_one_thread_of_their_own():
    told = []
    thread = EventThread(Events(SystemClock(), (lambda event: told.append((event.slot, threading.current_thread())),)))
    assert not thread.is_current()
    for slot in range(100):
        thread.emit(event(slot))
    thread.stop(PATIENCE_S)
    assert [slot for slot, _ in told] == list(range(100))
    assert {teller.name for _, teller in told} == {"tenure-events"}
    assert not told[0][1].is_alive()


def test_a_listener_that_does_not_return_is_waited_for_no_longer_than_asked():
    end = threading.Event()
    thread = EventThread(Events(SystemClock(), (lambda event: end.wait(PATIENCE_S),)))
    thread.emit(event(1))
    began = time.monotonic()
    thread.stop(0.05)
    assert time.monotonic() - began < PATIENCE_S / 2
    end.set()
    thread.stop(PATIENCE_S)


# The loop of handlers


def test_a_loop_of_its_own_ends_with_what_was_left_on_it():
    thread = LoopThread()
    ended = []

    async def left():
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(asyncio.get_running_loop())

    asyncio.run_coroutine_threadsafe(left(), thread.loop)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), thread.loop).result(PATIENCE_S)
    thread.stop(PATIENCE_S)
    assert ended == [thread.loop]
    assert thread.loop.is_closed()


def test_a_task_that_heeds_no_cancellation_is_waited_for_no_longer_than_asked():
    thread = LoopThread()
    end = threading.Event()

    async def stubborn():
        while not end.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    stuck = asyncio.run_coroutine_threadsafe(stubborn(), thread.loop)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), thread.loop).result(PATIENCE_S)
    began = time.monotonic()
    thread.stop(0.05)
    assert time.monotonic() - began < PATIENCE_S / 2
    end.set()
    thread.stop(PATIENCE_S)
    assert stuck.done()


# Signals


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_once_and_then_hurry_and_are_left_as_they_were_found(signum):
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    stops = []
    with StopSignals(stops.append):
        for _ in range(3):
            signal.raise_signal(signum)
    assert stops == [False, True, True]
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_signal_that_is_ignored_stays_ignored():  # nohup
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    stops = []
    try:
        with StopSignals(stops.append):
            signal.raise_signal(signal.SIGINT)
            assert stops == []
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)
    assert stops == [False]


def test_a_thread_that_is_not_the_main_one_takes_no_signals():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def other():
        with StopSignals(seen.append):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(PATIENCE_S)
    assert seen == [before]
