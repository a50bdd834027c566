"""Events reach every listener and the log, whatever listeners do."""

import logging
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tenure.errors import InvalidInput
from tenure.events import Error, Events, Failure, Interrupted, Skip, Start, Success, Takeover, check_listener
from tenure.model import LostAttempt


class Clock:
    now = 0.0

    def wall_ms(self):
        return 0

    def monotonic_ms(self):
        return self.now


def a_success(**changes):
    return Success(**{"job": "sync", "slot": 1, "attempt": 1, "fence": 2, "instance": "a", "duration_ms": 3, **changes})


def an_error(call="claim", error=None):
    return Error(job="sync", slot=1, instance="a", call=call, error=error or OSError("away"))


def test_every_listener_is_told_in_order():
    told = []
    events = Events(Clock(), (lambda event: told.append(("one", event)), lambda event: told.append(("two", event))))
    event = a_success()
    events.emit(event)
    assert told == [("one", event), ("two", event)]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(2), KeyboardInterrupt(), GeneratorExit(), MemoryError()])
def test_a_listener_that_raises_anything_is_logged_once_and_changes_nothing(caplog, error):
    """EX01: a throwing listener stopped other listeners and the schedule."""
    told = []

    def raises(event):
        raise error

    events = Events(Clock(), (raises, told.append))
    events.emit(a_success())
    assert len(told) == 1
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "raises" in record.message
    assert record.exc_info[1] is error


def test_a_listener_that_gives_a_coroutine_is_told_off_and_nothing_is_left_unawaited(caplog):
    async def listen():
        pass

    events = Events(Clock(), (lambda event: listen(),))
    events.emit(a_success())
    assert "nobody awaits" in caplog.text


@pytest.mark.parametrize("listener", [None, "print", 3, object()])
def test_what_cannot_be_called_is_no_listener(listener):
    with pytest.raises(InvalidInput, match="on_event"):
        check_listener(listener)


def test_a_coroutine_function_is_no_listener():
    async def listen(event):
        pass

    with pytest.raises(InvalidInput, match="plain function"):
        check_listener(listen)


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (a_success(), logging.DEBUG),
        (Start(job="j", slot=1, instance="a", mode="scheduled", late_ms=0), logging.DEBUG),
        (Failure(job="j", slot=1, instance="a", duration_ms=1, error="e"), logging.ERROR),
        (an_error(), logging.WARNING),
    ],
)
def test_what_needs_attention_is_logged_where_people_look(caplog, event, level):
    with caplog.at_level(logging.DEBUG, "tenure"):
        Events(Clock()).emit(event)
    assert [record.levelno for record in caplog.records] == [level]
    assert event.job in caplog.records[0].getMessage()


def test_an_outage_does_not_flood_the_log_and_listeners_hear_it_all(caplog):
    """SO01: errors bounded, no log flood."""
    clock, told = Clock(), []
    events = Events(clock, (told.append,))
    for second in range(60):
        clock.now = second * 1000.0
        events.emit(an_error())
        events.emit(an_error(call="heartbeat"))
    assert len(told) == 120
    assert len(caplog.records) == 2 * 6


def test_different_errors_of_one_call_are_logged_each(caplog):
    events = Events(Clock())
    events.emit(an_error())
    events.emit(an_error(error=ValueError()))
    assert len(caplog.records) == 2


def test_whether_anyone_would_be_told_is_known_beforehand():
    logging.getLogger("tenure").setLevel(logging.WARNING)
    try:
        assert not Events(Clock()).wants("success")
        assert Events(Clock()).wants("error")
        assert Events(Clock(), (print,)).wants("success")
    finally:
        logging.getLogger("tenure").setLevel(logging.NOTSET)


def test_an_event_cannot_be_changed_by_a_listener():
    with pytest.raises(AttributeError):
        a_success().slot = 5


IDS = {"job": "sync", "slot": 1_796_126_410_500, "attempt": 2, "fence": 9, "instance": "a"}
LOST = LostAttempt(IDS["slot"], 1, 8, "b", 0, 1, False)
AT = "sync 2026-12-01T12:00:10.500Z"


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Start(**IDS, mode="takeover", late_ms=0), f"{AT}: start, attempt 2 (a)"),
        (Takeover(**IDS, previous=(LOST,)), f"{AT}: takeover, attempt 2 of b, which was silent for its lease (a)"),
        (
            Takeover(**IDS, previous=(replace(LOST, released=True),)),
            f"{AT}: takeover, attempt 2 of b, which released it (a)",
        ),
        (
            Failure(**IDS, duration_ms=7, error="Traceback …\nValueError: no\n", going_on=("sync@t",)),
            f"{AT}: failure, attempt 2, after 7 ms: ValueError: no; still executing: sync@t (a)",
        ),
        (Interrupted(**IDS, reason="lost", duration_ms=7), f"{AT}: interrupted, attempt 2, lost, after 7 ms (a)"),
        (Skip(**{**IDS, "attempt": 0}, reason="taken", holder="b"), f"{AT}: skip, taken by b (a)"),
        (
            Error(instance="a", call="active", error=OSError("away")),
            "all jobs: error, active failed: OSError: away (a)",
        ),
    ],
)
def test_an_event_reads_as_a_line_of_a_log(event, text):
    assert str(event) == text


def test_a_failure_is_logged_with_its_traceback_in_lines(caplog):
    Events(Clock()).emit(Failure(**IDS, duration_ms=7, error="Traceback …\n  File …\nValueError: no\n"))
    (record,) = caplog.records
    assert record.getMessage().splitlines()[1:] == ["Traceback …", "  File …", "ValueError: no"]


def test_an_event_tells_its_slot_as_a_datetime():
    assert Start(**IDS, mode="manual", late_ms=0).due == datetime(2026, 12, 1, 12, 0, 10, 500_000, tzinfo=UTC)
