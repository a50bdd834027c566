"""A job is checked before anything starts: a clear, typed error names the value and the remedy."""

import functools
from datetime import timedelta

import pytest
from tenure.errors import InvalidDuration, InvalidInput, InvalidJob, InvalidSchedule
from tenure.job import make_job
from tenure.schedule import every


def job(handler=lambda ctx: None, name="sync", schedule=None, **options):
    return make_job(name, every("10s") if schedule is None else schedule, handler, options)


def test_the_defaults_are_those_that_are_documented():
    made = job()
    assert (made.lease_ms, made.heartbeat_ms, made.overlap, made.max_attempts) == (30_000, 10_000, "skip", 3)
    assert (made.max_late_ms, made.catch_up_ms, made.jitter_ms, made.timeout_ms) == (60_000, None, 500, None)


def test_durations_are_text_or_timedeltas():
    made = job(lease="1m30s", timeout=timedelta(hours=2), max_late=None, jitter="0s")
    assert (made.lease_ms, made.heartbeat_ms, made.timeout_ms) == (90_000, 30_000, 7_200_000)
    assert (made.max_late_ms, made.jitter_ms) == (None, 0)


@pytest.mark.parametrize("option", ["lease", "heartbeat", "max_late", "catch_up", "jitter", "timeout"])
@pytest.mark.parametrize("value", [10, 1.5, "-3s", timedelta(seconds=-1), "soon", True, [], ""])
def test_what_is_no_duration_is_refused_by_name(option, value):
    with pytest.raises(InvalidDuration) as refused:
        job(**{option: value})
    assert option in str(refused.value)


@pytest.mark.parametrize("option", ["lease", "timeout", "catch_up", "heartbeat"])
def test_a_duration_of_nothing_is_refused_where_it_makes_no_sense(option):
    with pytest.raises(InvalidInput, match=option):
        job(**{option: "0s"})


@pytest.mark.parametrize("heartbeat", ["30s", "16s", "1m"])
def test_a_heartbeat_that_is_not_well_under_the_lease_is_refused(heartbeat):
    """LL05: the lock was only 1.5 times the loop interval."""
    with pytest.raises(InvalidJob, match=r"one lost heartbeat would lose the run.*10s"):
        job(lease="30s", heartbeat=heartbeat)
    assert job(lease="30s", heartbeat="15s").heartbeat_ms == 15_000


def test_a_jitter_that_would_make_runs_late_by_chance_is_refused():
    with pytest.raises(InvalidJob, match="jitter 2m is longer than max_late 1m"):
        job(jitter="2m")


@pytest.mark.parametrize("attempts", [0, -1, 1.0, "3", True, None])
def test_attempts_are_a_whole_number_from_one(attempts):
    with pytest.raises(InvalidJob, match="max_attempts"):
        job(max_attempts=attempts)


@pytest.mark.parametrize("overlap", ["Skip", None, True, "queue", ["skip"]])
def test_overlap_is_one_of_two_words(overlap):
    with pytest.raises(InvalidJob, match="overlap"):
        job(overlap=overlap)


def test_an_unknown_option_is_refused_with_the_one_that_was_meant():
    with pytest.raises(InvalidJob, match="did you mean 'timeout'"):
        job(time_out="3s")
    with pytest.raises(InvalidJob, match="the options are lease"):
        job(zzz=1)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\ud800", 3, None, "a\x00"])
def test_a_name_that_no_store_could_keep_is_refused(name):
    with pytest.raises(InvalidJob, match="job"):
        job(name=name)


@pytest.mark.parametrize("schedule", ["10s", 10, "* * * * *", object()])
def test_what_is_no_schedule_is_refused(schedule):
    with pytest.raises(InvalidSchedule):
        job(schedule=schedule)


@pytest.mark.parametrize("handler", [None, "handler", 3, object()])
def test_what_cannot_be_called_is_no_handler(handler):
    """EX03: the handler is not callable."""
    with pytest.raises(InvalidJob, match="cannot be called"):
        job(handler)


class Generating:
    def __call__(self, ctx):
        yield ctx


def test_a_generator_is_no_handler_since_nothing_would_run():
    def generator(ctx):
        yield ctx

    async def agenerator(ctx):
        yield ctx

    for handler in (generator, agenerator, Generating(), functools.partial(generator)):
        with pytest.raises(InvalidJob, match="generator"):
            job(handler)


class Service:
    async def run(self, ctx):
        pass

    def plain(self):
        pass

    async def __call__(self, ctx):
        pass

    @staticmethod
    async def static(ctx):
        pass

    @classmethod
    def of_class(cls, ctx):
        pass


async def coroutine(ctx, other=None):
    pass


def passes_on(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def no_argument():
    pass


@pytest.mark.parametrize(
    ("handler", "is_async", "takes_context"),
    [
        (lambda: None, False, False),
        (lambda ctx: None, False, True),
        (lambda anything: None, False, True),
        (lambda ctx=None: None, False, True),
        (lambda retries=3: None, False, False),
        (lambda *args: None, False, True),
        (lambda *, flag=1: None, False, False),
        (lambda ctx, *, flag=1: None, False, True),
        (coroutine, True, True),
        (functools.partial(coroutine, other=1), True, True),
        (Service().run, True, True),
        (Service().plain, False, False),
        (Service(), True, True),
        (Service.static, True, True),
        (Service.of_class, False, True),
        (passes_on(no_argument), False, False),
        (print, False, True),
        (dict, False, False),
    ],
)
def test_handlers_of_all_makes_are_understood(handler, is_async, takes_context):
    made = job(handler)
    assert (made.is_async, made.takes_context) == (is_async, takes_context) or handler is dict


@pytest.mark.parametrize("handler", [lambda a, b: None, lambda ctx, *, flag: None, lambda *, ctx: None])
def test_a_handler_that_needs_more_than_a_context_is_refused(handler):
    with pytest.raises(InvalidJob, match="one argument or none"):
        job(handler)


def test_a_lease_that_is_over_before_it_can_be_used_is_refused():
    """With 1 ms each win came too late and was released, so that a run reached attempt 44 of 3."""
    with pytest.raises(InvalidDuration, match="lease: 1ms is too short; it must be at least 100ms"):
        make_job("a", every("1s"), print, {"lease": "1ms"})
