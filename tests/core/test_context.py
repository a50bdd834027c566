"""The signal that tells a handler to stop: from threads and tasks, once, and without a trace of who waited."""

import asyncio
import threading
import time

import pytest
from tenure.context import Context, Signal
from tenure.errors import InvalidDuration, SchedulerStateError


def context(**changes):
    values = {"job": "sync", "slot_ms": 1_796_126_410_250, "attempt": 2, "fence": 7, "mode": "takeover"}
    return Context(**{**values, "instance": "a", "overlap": "skip", **changes})


def test_the_slot_is_an_aware_datetime():
    assert context().slot.isoformat() == "2026-12-01T12:00:10.250000+00:00"


def test_the_last_slot_there_is_can_be_shown():
    assert context(slot_ms=253_402_300_799_999).slot.year == 9999


@pytest.mark.parametrize(("overlap", "scope"), [("skip", "job"), ("allow", "run")])
def test_fences_are_compared_per_job_or_per_run(overlap, scope):
    assert context(overlap=overlap).fence_scope == scope


def test_each_attempt_has_a_signal_of_its_own():
    one, two = context(), context()
    one.signal.set("stop")
    assert (one.signal.reason, two.signal.reason) == ("stop", None)


def test_the_first_reason_stays():
    signal = Signal()
    assert (signal.is_set(), signal.reason) == (False, None)
    signal.set("timeout")
    signal.set("stop")
    assert (signal.is_set(), signal.reason) == (True, "timeout")


def test_a_thread_that_waits_is_woken():
    signal = Signal()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(signal.wait("30s")))
    thread.start()
    signal.set("stop")
    thread.join(10)
    assert answers == [True]


def test_a_wait_in_a_thread_ends_with_its_timeout():
    assert Signal().wait("1ms") is False


def test_waiting_for_a_set_signal_takes_no_time():
    signal = Signal()
    signal.set("lost")
    began = time.monotonic()
    assert signal.wait("30s") is True
    assert asyncio.run(signal.wait_async()) == "lost"
    assert time.monotonic() - began < 10


def test_a_task_that_waits_is_woken_from_another_thread():
    signal = Signal()

    async def main():
        waiting = asyncio.ensure_future(signal.wait_async())
        await asyncio.sleep(0)
        threading.Thread(target=signal.set, args=("stop",)).start()
        return await asyncio.wait_for(waiting, 10)

    assert asyncio.run(main()) == "stop"


def test_waiting_in_a_loop_as_a_thread_would_is_refused():
    async def main():
        Signal().wait("1s")

    with pytest.raises(SchedulerStateError, match="wait_async"):
        asyncio.run(main())


def test_a_timeout_in_bare_numbers_is_refused():
    with pytest.raises(InvalidDuration):
        Signal().wait(1)


def test_what_waited_in_vain_is_not_kept():
    """A handler's usual loop, ``while not ctx.signal.wait("1s")``, must not leave something behind each time."""
    signal = Signal()
    for _ in range(100):
        signal.wait("0s")

    async def main():
        for _ in range(100):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(signal.wait_async(), 0.0001)

    asyncio.run(main())
    assert not signal._waiters


def test_setting_it_reaches_everyone_although_the_loop_of_one_is_closed():
    """``asyncio.run(...)`` in a sync handler, ended with a wait in it, must not keep a stop from the others."""
    signal = Signal()
    loop = asyncio.new_event_loop()
    abandoned = loop.create_task(signal.wait_async())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    woken = []
    signal._when_set(lambda: woken.append(True))
    signal.set("stop")
    assert woken == [True]
    abandoned._log_destroy_pending = False
