"""Jobs are added with calls and decorators, and what cannot work is refused before anything starts."""

import functools
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tenure import (
    BackendMisconfigured,
    DuplicateJob,
    InvalidClaim,
    InvalidDuration,
    InvalidInput,
    InvalidJob,
    InvalidSchedule,
    InvalidUrl,
    MemoryBackend,
    Scheduler,
    SchedulerStateError,
    UnknownBackend,
    UnknownJob,
    at,
    connect,
    cron,
    every,
)


@pytest.fixture
def scheduler():
    return Scheduler("memory://")


def handler(ctx):
    """Does nothing."""


async def async_handler(ctx):
    """Does nothing."""


def only_job(scheduler):
    (job,) = scheduler.jobs
    return job


# Adding


def test_calls_add_jobs_in_order_and_give_the_handler(scheduler):
    assert scheduler.every("a", "10s", handler) is handler
    assert scheduler.cron("b", "0 9 * * mon-fri", handler, tz="Europe/Prague") is handler
    assert scheduler.add("c", at(datetime(2030, 1, 1, tzinfo=UTC)), async_handler) is async_handler
    assert [job.name for job in scheduler.jobs] == ["a", "b", "c"]
    assert [job.is_async for job in scheduler.jobs] == [False, False, True]
    assert scheduler.jobs[1].schedule == cron("0 9 * * mon-fri", tz="Europe/Prague")


def test_a_decorated_function_stays_itself(scheduler):
    def function(ctx):
        return ctx

    assert scheduler.every("a", "10s")(function) is function
    assert scheduler.cron("b", "* * * * *")(function) is function
    assert scheduler.add("c", every("1h"))(function) is function
    assert function("itself") == "itself"
    assert [job.handler for job in scheduler.jobs] == [function] * 3


def test_the_defaults_are_those_of_the_documentation(scheduler):
    scheduler.every("a", "10s", handler)
    job = only_job(scheduler)
    assert (job.lease_ms, job.heartbeat_ms, job.overlap, job.max_attempts) == (30_000, 10_000, "skip", 3)
    assert (job.max_late_ms, job.catch_up_ms, job.jitter_ms, job.timeout_ms) == (60_000, None, 500, None)


def test_a_job_s_option_wins_over_the_scheduler_s_and_that_over_the_default():
    scheduler = Scheduler("memory://", lease="9s", overlap="allow", timeout="1m")
    scheduler.every("a", "10s", handler, overlap="skip", timeout=None)
    job = only_job(scheduler)
    assert (job.lease_ms, job.heartbeat_ms, job.overlap, job.timeout_ms) == (9_000, 3_000, "skip", None)


def test_durations_are_texts_or_timedeltas(scheduler):
    scheduler.every("a", timedelta(minutes=2), handler, lease=timedelta(seconds=12), max_late="1h30m")
    job = only_job(scheduler)
    assert (job.lease_ms, job.max_late_ms) == (12_000, 5_400_000)
    assert job.schedule == every("2m")


def test_handlers_of_many_makes(scheduler):
    class Callable:
        def __call__(self):
            """Takes no context."""

        async def method(self, ctx):
            """Is async."""

    scheduler.every("object", "1s", Callable())
    scheduler.every("method", "1s", Callable().method)
    scheduler.every("partial", "1s", functools.partial(async_handler))
    scheduler.every("lambda", "1s", lambda: None)
    scheduler.every("builtin", "1s", print)
    makes = {job.name: (job.is_async, job.takes_context) for job in scheduler.jobs}
    assert makes["object"] == (False, False)
    assert makes["method"] == (True, True)
    assert makes["partial"] == (True, True)
    assert makes["lambda"] == (False, False)
    assert makes["builtin"] == (False, True)


def test_next_slot_is_aware_and_in_the_future(scheduler):
    scheduler.every("a", "10s", handler)
    scheduler.add("gone", at(datetime(2020, 1, 1, tzinfo=UTC)), handler)
    slot = scheduler.next_slot("a")
    assert datetime.now(UTC) - timedelta(seconds=1) < slot < datetime.now(UTC) + timedelta(seconds=11)
    assert (slot.tzinfo, slot.second % 10, slot.microsecond) == (UTC, 0, 0)
    assert scheduler.next_slot("gone") is None


def test_a_name_is_taken_once_unless_it_is_replaced(scheduler):
    scheduler.every("a", "10s", handler)
    with pytest.raises(DuplicateJob, match=r"'a'.*another name.*replace=True"):
        scheduler.every("a", "20s", handler)
    assert only_job(scheduler).schedule == every("10s")
    scheduler.every("a", "20s", handler, replace=True)
    assert only_job(scheduler).schedule == every("20s")


def test_a_removed_job_is_gone_and_its_name_free(scheduler):
    scheduler.every("a", "10s", handler)
    scheduler.remove("a")
    assert scheduler.jobs == ()
    scheduler.every("a", "10s", handler)


@pytest.mark.parametrize("call", ["remove", "trigger", "next_slot"])
def test_an_unknown_job_is_refused_with_those_that_are_alike(scheduler, call):
    scheduler.every("report", "10s", handler)
    with pytest.raises(UnknownJob, match=r"'raport'.*did you mean 'report'"):
        getattr(scheduler, call)("raport")


def test_trigger_needs_a_running_scheduler(scheduler):
    scheduler.every("a", "10s", handler)
    with pytest.raises(SchedulerStateError, match="start it first"):
        scheduler.trigger("a")


def test_nothing_is_opened_before_the_start(tmp_path):
    path = tmp_path / "jobs.db"
    Scheduler(f"sqlite:///{path}").every("a", "10s", handler)
    assert not path.exists()


# What a job cannot have


def generator(ctx):
    yield


async def async_generator(ctx):
    yield


def two_arguments(ctx, other):
    """Would lack one."""


def keyword_only(*, ctx):
    """Would not get it."""


class NoSchedule:
    def next_slot(self, after_ms):
        return after_ms + 1


BAD_JOBS = [
    ({"leese": "3s"}, InvalidJob, r"job 'a'.*'leese'.*did you mean 'lease'"),
    ({"replase": True}, InvalidJob, r"'replase'.*did you mean 'replace'"),
    ({"tz": "UTC"}, InvalidJob, r"'tz'.*the options are lease, heartbeat"),
    ({"lease": 30}, InvalidDuration, r"lease: 30 has no unit.*\"30s\".*timedelta\(seconds=30\)"),
    ({"lease": "-3s"}, InvalidDuration, r"lease: '-3s'"),
    ({"lease": timedelta(seconds=-3)}, InvalidDuration, r"lease: -3s is too short; it must be at least 100ms"),
    ({"lease": "0s"}, InvalidDuration, r"lease: 0s is too short"),
    ({"lease": None}, InvalidDuration, r"lease: None is not a duration"),
    ({"heartbeat": "16s"}, InvalidJob, r"job 'a': heartbeat 16s.*lease 30s.*10s"),
    ({"heartbeat": "-1s"}, InvalidDuration, r"heartbeat"),
    ({"jitter": timedelta(seconds=-1)}, InvalidDuration, r"jitter: -1s"),
    ({"jitter": "2m"}, InvalidJob, r"jitter 2m.*max_late 1m"),
    ({"timeout": "0s"}, InvalidDuration, r"timeout: 0s is too short"),
    ({"catch_up": timedelta(0)}, InvalidDuration, r"catch_up: 0s is too short"),
    ({"max_late": timedelta(milliseconds=-1)}, InvalidDuration, r"max_late: -1ms"),
    ({"max_attempts": 0}, InvalidJob, r"max_attempts 0.*at least 1"),
    ({"max_attempts": True}, InvalidJob, r"max_attempts True"),
    ({"overlap": "queue"}, InvalidJob, r"overlap 'queue'.*\"skip\".*\"allow\""),
    ({"handler": "sync"}, InvalidJob, r"'sync' cannot be called"),
    ({"handler": generator}, InvalidJob, r"generator.*return, not yield"),
    ({"handler": async_generator}, InvalidJob, r"generator.*return, not yield"),
    ({"handler": two_arguments}, InvalidJob, r"one argument or none"),
    ({"handler": keyword_only}, InvalidJob, r"one argument or none"),
    ({"name": ""}, InvalidJob, r"job: ''"),
    ({"name": "a\nb"}, InvalidJob, r"job: 'a\\nb'"),
    ({"name": "x" * 201}, InvalidJob, r"job: .*200"),
    ({"name": 7}, InvalidJob, r"job: 7 is not a string"),
    ({"schedule": "10s"}, InvalidSchedule, r"'10s'"),
    ({"schedule": every}, InvalidSchedule, r"every"),
    ({"schedule": NoSchedule()}, InvalidSchedule, r"latest_slot"),
]


@pytest.mark.parametrize(("changes", "error", "message"), BAD_JOBS, ids=[str(case[0]) for case in BAD_JOBS])
@pytest.mark.parametrize("decorated", [False, True])
def test_a_job_that_cannot_be_is_refused_and_not_added(scheduler, changes, error, message, decorated):
    options = {"name": "a", "schedule": every("10s"), "handler": handler, **changes}
    name, schedule, bad_handler = options.pop("name"), options.pop("schedule"), options.pop("handler")
    args = () if decorated else (bad_handler,)
    with pytest.raises(error, match=message):
        scheduler.add(name, schedule, *args, **options)(bad_handler)
    assert scheduler.jobs == ()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: s.every("a", "0s", handler), InvalidInput, "0s"),
        (lambda s: s.every("a", 10, handler), InvalidDuration, '10 has no unit; write "10s"'),
        (lambda s: s.every("a", "ten", handler), InvalidDuration, "'ten' is not a duration"),
        (lambda s: s.cron("a", "61 * * * *", handler), InvalidSchedule, "61"),
        (lambda s: s.cron("a", "0 0 30 2 *", handler), InvalidSchedule, "0 0 30 2"),
        (lambda s: s.cron("a", "0 0 * * *", handler, tz="Europe/Prag"), InvalidSchedule, "Europe/Prag"),
    ],
)
def test_an_impossible_schedule_is_refused(scheduler, call, error, message):
    with pytest.raises(error, match=message):
        call(scheduler)
    assert scheduler.jobs == ()


# What a scheduler cannot have


class Incomplete:
    capabilities = connect("memory://").capabilities

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc_info):
        pass

    async def claim(self, claim): ...

    async def heartbeat(self, job, slot, token): ...

    async def save_result(self, job, result): ...


async def async_listener(event):
    """Would never be awaited."""


BAD_SCHEDULERS = [
    (("redis2://localhost",), {}, UnknownBackend, r"redis2"),
    (("jobs.db",), {}, InvalidUrl, r'"sqlite:///jobs.db"'),
    (("sqlite:///x.db?timeoot=3s",), {}, InvalidUrl, r"timeoot"),
    ((None,), {}, InvalidInput, r"backend: None is neither a URL nor a backend"),
    ((Path("jobs.db"),), {}, InvalidInput, r"neither a URL nor a backend"),
    ((MemoryBackend,), {}, InvalidInput, r"is a class; give an object of it"),
    ((Incomplete(),), {}, InvalidInput, r"it lacks finish, release, active, results"),
    (("memory://",), {"namespace": ""}, InvalidClaim, r"namespace: ''"),
    (("memory://",), {"namespace": "a\x00"}, InvalidClaim, r"namespace"),
    ((MemoryBackend(),), {"namespace": "app"}, InvalidInput, r"namespace: 'app' goes with a URL"),
    (("memory://",), {"instance": "a\nb"}, InvalidInput, r"instance: 'a\\nb'"),
    (("memory://",), {"instance": ""}, InvalidInput, r"instance: ''"),
    (("memory://",), {"threads": 0}, InvalidInput, r"threads: 0"),
    (("memory://",), {"threads": True}, InvalidInput, r"threads: True"),
    (("memory://",), {"grace": 30}, InvalidDuration, r'grace: 30 has no unit; write "30s"'),
    (("memory://",), {"grace": timedelta(seconds=-1)}, InvalidDuration, r"grace: -1s"),
    (("memory://",), {"on_event": 5}, InvalidInput, r"on_event: 5"),
    (("memory://",), {"on_event": ["print"]}, InvalidInput, r"on_event: 'print' cannot be called"),
    (("memory://",), {"on_event": async_listener}, InvalidInput, r"on_event: .*coroutine function.*starts a task"),
    (("memory://",), {"leese": "3s"}, InvalidJob, r"Scheduler.*'leese'.*did you mean 'lease'"),
    (("memory://",), {"lease": 3}, InvalidDuration, r"lease: 3 has no unit"),
    (("memory://",), {"jitter": None}, InvalidDuration, r"jitter: None"),
    (("memory://",), {"max_attempts": 1.5}, InvalidJob, r"max_attempts 1.5"),
]


@pytest.mark.parametrize(("args", "options", "error", "message"), BAD_SCHEDULERS)
def test_a_scheduler_that_cannot_be_is_refused(args, options, error, message):
    with pytest.raises(error, match=message):
        Scheduler(*args, **options)


def test_defaults_that_fit_only_with_a_job_s_options_are_accepted():
    scheduler = Scheduler("memory://", heartbeat="20s", jitter="5m", timeout=None)
    scheduler.every("a", "1h", handler, lease="1m", max_late="10m")
    assert only_job(scheduler).heartbeat_ms == 20_000


def test_a_lease_below_what_the_store_can_grant_is_refused_when_the_job_is_added():
    class Coarse(MemoryBackend):
        capabilities = type(MemoryBackend.capabilities)(min_lease_ms=5_000)

    scheduler = Scheduler(Coarse())
    with pytest.raises(InvalidJob, match=r"5s|5000"):
        scheduler.every("a", "10s", handler, lease="3s")
    assert scheduler.jobs == ()


def test_a_file_that_is_not_sqlite_is_told_by_the_start(tmp_path):
    path = tmp_path / "jobs.db"
    path.write_text("not a database, but long enough to have a header that could be one" * 50)
    scheduler = Scheduler(f"sqlite:///{path}")
    with pytest.raises(BackendMisconfigured, match=r"jobs\.db.*not a SQLite database"):
        scheduler.start()
