"""The schedules people write: what they accept, refuse, answer and look like."""

import copy
import dataclasses
import doctest
import importlib.resources
import os
import pickle
import subprocess
import sys
import tracemalloc
import zoneinfo
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenure.errors import InvalidDuration, InvalidInput, InvalidSchedule
from tenure.model import MAX_SLOT
from tenure.schedule import (
    At,
    Cron,
    Every,
    Schedule,
    at,
    check_schedule,
    cron,
    every,
    latest_slot_of,
    next_slot_of,
    tz_data_version,
)

NOON = 1_796_126_400_000  # 2026-12-01T12:00:00Z


# every


@given(st.integers(1, 10**12), st.integers(-(10**13), 10**13), st.integers(-10, MAX_SLOT))
def test_every_is_aligned_to_its_anchor(period_ms, anchor_ms, at_ms):
    schedule = Every(period_ms, anchor_ms)
    coming, latest = schedule.next_slot(at_ms), schedule.latest_slot(at_ms)
    if coming is not None:
        assert at_ms < coming <= MAX_SLOT
        assert (coming - anchor_ms) % period_ms == 0
        assert coming - period_ms <= max(at_ms, -1)
        assert schedule.latest_slot(coming) == coming
    if latest is not None:
        assert 0 <= latest <= at_ms
        assert (latest - anchor_ms) % period_ms == 0
        assert at_ms < latest + period_ms
    else:
        assert at_ms < period_ms


def test_every_is_the_same_on_each_instance_whenever_it_was_added():
    """SS04: adding the identical job again postpones nothing."""
    slots = set()
    for second in range(0, 600, 10):
        slots.add(every("60s").next_slot(NOON + second * 1000))
    assert slots == {NOON + minute * 60_000 for minute in range(1, 11)}


def test_every_is_never_its_own_successor():
    schedule = every("10s")
    assert [schedule.next_slot(NOON + step) for step in (-1, 0, 1)] == [NOON, NOON + 10_000, NOON + 10_000]
    assert [schedule.latest_slot(NOON + step) for step in (-1, 0, 1)] == [NOON - 10_000, NOON, NOON]


def test_an_anchor_moves_the_slots():
    schedule = every("1d", anchor=datetime(2030, 1, 1, 9, tzinfo=ZoneInfo("Europe/Prague")))
    assert schedule.next_slot(NOON) == NOON + 20 * 3_600_000  # 08:00 UTC, also before the anchor
    assert schedule.latest_slot(NOON) == NOON - 4 * 3_600_000


def test_every_ends_with_time():
    schedule = every("1d")
    assert schedule.next_slot(-(10**18)) == 0
    assert schedule.latest_slot(10**18) == schedule.latest_slot(MAX_SLOT) == MAX_SLOT - 86_399_999
    assert schedule.next_slot(MAX_SLOT - 86_399_999) is None
    assert schedule.latest_slot(-1) is None
    assert every("1ms").next_slot(MAX_SLOT - 1) == MAX_SLOT


@pytest.mark.parametrize("period", ["0s", timedelta(0), timedelta(seconds=-10), "-10s", "", "10", 10, 0, None, "1.5ms"])
def test_every_refuses_what_is_no_period(period):
    with pytest.raises(InvalidDuration, match="every: "):
        every(period)


@pytest.mark.parametrize("period_ms", [0, -1, 1.5, True])
def test_every_refuses_it_also_in_milliseconds(period_ms):
    with pytest.raises(InvalidSchedule, match="a whole number from 1"):
        Every(period_ms)


def test_ten_thousand_everys_are_small():
    tracemalloc.start()
    try:
        schedules = [every("10s") for _ in range(10_000)]
        assert tracemalloc.get_traced_memory()[0] < 150 * len(schedules)
    finally:
        tracemalloc.stop()


# cron


def test_cron_takes_a_name_or_a_zone():
    prague = cron("0 9 * * mon-fri", tz="Europe/Prague")
    assert prague == cron("0 9 * * mon-fri", tz=ZoneInfo("Europe/Prague")) == Cron("0 9 * * mon-fri", prague.tz)
    assert prague.next_slot(NOON) == NOON + 20 * 3_600_000
    assert cron("0 9 * * *").tz is cron("0 9 * * *", tz="UTC").tz is cron("0 9 * * *", tz=UTC).tz is UTC


@pytest.mark.parametrize(
    ("tz", "remedy"),
    [
        ("Europe/Prag", "'Europe/Prague'"),
        ("prague", "'Europe/Prague'"),
        ("EUROPE/PRAGUE", "'Europe/Prague'"),
        ("new york", "'America/New_York'"),
        ("Nowhere/Atlantis", "pip install tzdata"),
        ("", "pip install tzdata"),
        ("../../etc/passwd", "pip install tzdata"),
        ("Europe", "pip install tzdata"),
        ("\0", "pip install tzdata"),
        ("x" * 10_000, "pip install tzdata"),
        (None, "Europe/Prague"),
        (2, "Europe/Prague"),
        (timezone(timedelta(hours=2)), "Europe/Prague"),
    ],
)
def test_unknown_zone_is_refused_with_a_remedy(tz, remedy):
    with pytest.raises(InvalidSchedule) as caught:
        cron("0 9 * * *", tz=tz)
    assert repr(tz)[:60] in str(caught.value)
    assert remedy in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("tz", ["local", "LOCAL", "localtime", "tzlocal()"])
def test_the_hosts_own_zone_is_refused(tz):
    """SE02: it is another zone on another host."""
    with pytest.raises(InvalidSchedule, match="instances would disagree; name the one you mean"):
        cron("0 9 * * *", tz=tz)


@pytest.mark.parametrize(("option", "value"), [("gap", "first"), ("fold", "skip"), ("gap", None)])
def test_unknown_choice_is_refused(option, value):
    with pytest.raises(InvalidSchedule, match=f"{option}={value!r} is not a choice; write "):
        cron("0 9 * * *", **{option: value})


def run_with_zones(path: str, code: str) -> str:
    """What a host with the zone data at ``path`` prints; without any there, the tzdata package's is used."""
    setup = "from tenure.schedule import *\n"
    environment = {**os.environ, "PYTHONTZPATH": path}
    command = [sys.executable, "-W", "error", "-c", setup + code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout


def a_zone_file(name: str) -> bytes:
    for directory in zoneinfo.TZPATH:
        if (Path(directory) / name).is_file():
            return (Path(directory) / name).read_bytes()
    return importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


def test_hosts_with_different_zone_data_disagree_and_say_so(tmp_path):
    """DR12: Vancouver keeps its summer time from 2026 on in newer releases; the version tells the hosts apart."""
    code = 'print(tz_data_version(), cron("0 9 * * *", tz="America/Vancouver").next_slot(1796083200000))'
    printed = []
    for version, zone in (("2025b", "America/Los_Angeles"), ("2099z", "America/Phoenix")):
        directory = tmp_path / version
        (directory / "America").mkdir(parents=True)
        (directory / "Europe").mkdir()
        (directory / "America" / "Vancouver").write_bytes(a_zone_file(zone))
        (directory / "Europe" / "London").write_bytes(a_zone_file("Europe/London"))
        (directory / "tzdata.zi").write_text(f"# version {version}\n# and more\n")
        printed.append(run_with_zones(str(directory), code).split())
    assert printed == [["2025b", "1796144400000"], ["2099z", "1796140800000"]]


def test_zone_data_version_comes_from_the_package_where_the_system_has_none():
    tzdata = pytest.importorskip("tzdata")
    assert run_with_zones("", "print(tz_data_version())").strip() == tzdata.IANA_VERSION


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({}, "unknown"),
        ({"tzdata.zi": b""}, "unknown"),
        ({"tzdata.zi": b"no version here\n"}, "unknown"),
        ({"tzdata.zi": b"\xff\xfe\n"}, "unknown"),
        ({"tzdata.zi": b"# version 2026a\n"}, "2026a"),
        ({"+VERSION": b"2026b\n", "tzdata.zi": b"# version 2026a\n"}, "2026b"),
        ({"+VERSION": b"", "tzdata.zi": b"# version 2026a\n"}, "2026a"),
    ],
)
def test_zone_data_version_of_a_system(files, version, tmp_path, monkeypatch):
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "London").touch()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path / "none"), str(tmp_path)))
    assert tz_data_version() == version


def test_zone_data_version_without_any_data(monkeypatch):
    monkeypatch.setattr(zoneinfo, "TZPATH", ())
    monkeypatch.setitem(sys.modules, "tzdata", None)
    assert tz_data_version() == "unknown"


def test_utc_needs_no_zone_data():
    hidden = "import sys, zoneinfo; sys.modules['tzdata'] = None\n"
    assert run_with_zones("", hidden + 'print(cron("0 0 * * *").next_slot(0))').strip() == "86400000"
    missing = 'try: cron("0 0 * * *", tz="Europe/Prague")\nexcept ValueError as error: print(error)'
    assert "no time zone data: pip install tzdata" in run_with_zones("", hidden + missing)


# at


def test_at_is_due_once_for_each_instant():
    schedule = at(
        datetime(2026, 12, 1, 13, tzinfo=ZoneInfo("Europe/Prague")),
        datetime(2026, 11, 30, 12, tzinfo=UTC),
        datetime(2026, 12, 1, 12, 0, 0, 999, tzinfo=UTC),  # part of a millisecond is dropped
    )
    assert schedule.slots == (NOON - 86_400_000, NOON)
    assert [schedule.next_slot(NOON + step) for step in (-86_400_001, -1, 0)] == [NOON - 86_400_000, NOON, None]
    assert [schedule.latest_slot(NOON + step) for step in (-86_400_001, -1, 0, 1)] == [
        None, NOON - 86_400_000, NOON, NOON,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("instants", "says"),
    [
        ((), "no instant"),
        ((datetime(2026, 1, 1),), "add tzinfo=UTC"),
        ((date(2026, 1, 1),), "not a datetime"),
        (("2026-01-01",), "not a datetime"),
        ((NOON,), "not a datetime"),
        ((datetime(1969, 12, 31, tzinfo=UTC),), "1970"),
    ],
)
def test_at_refuses_what_is_no_instant(instants, says):
    with pytest.raises(InvalidSchedule, match=says):
        at(*instants)


def test_an_anchor_needs_a_zone():
    with pytest.raises(InvalidSchedule, match=r"every: anchor: .* add tzinfo=UTC"):
        every("10s", anchor=datetime(2026, 1, 1))


# What they look like


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (every("10s"), "every 10s"),
        (every(timedelta(minutes=90)), "every 1h30m"),
        (every("1h", anchor=datetime(2026, 1, 1, 9, 30, tzinfo=UTC)), "every 1h from 2026-01-01T09:30:00Z"),
        (cron("0 9 * * mon-fri", tz="Europe/Prague"), "cron 0 9 * * mon-fri Europe/Prague"),
        (cron("@daily"), "cron @daily UTC"),
        (cron("0 2 * * *", tz="UTC", gap="skip", fold="both"), "cron 0 2 * * * UTC gap=skip fold=both"),
        (at(datetime(2026, 12, 1, 12, tzinfo=UTC)), "at 2026-12-01T12:00:00Z"),
        (
            At((0, 1, 60_000, 60_001, 60_002)),
            "at 1970-01-01T00:00:00Z, 1970-01-01T00:00:00.001Z, 1970-01-01T00:01:00Z and 2 more",
        ),
    ],
)
def test_a_schedule_reads_as_it_was_written(schedule, text):
    assert repr(schedule) == str(schedule) == text


@pytest.mark.parametrize(
    "schedule", [every("10s"), cron("0 9 * * *", tz="Europe/Prague", gap="skip"), at(datetime(2026, 1, 1, tzinfo=UTC))]
)
def test_a_schedule_is_a_value(schedule):
    for twin in (pickle.loads(pickle.dumps(schedule)), copy.deepcopy(schedule)):
        assert twin == schedule
        assert hash(twin) == hash(schedule)
        assert twin.next_slot(0) == schedule.next_slot(0)
    assert isinstance(schedule, Schedule)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(schedule, dataclasses.fields(schedule)[0].name, 1)


# Schedules of a user's own


class Own:
    def __init__(self, answer: object):
        self.answer = answer

    def next_slot(self, after_ms: int) -> object:
        return self.answer

    def latest_slot(self, at_ms: int) -> object:
        return self.answer

    def __repr__(self) -> str:
        return "<own>"


def test_an_own_schedule_is_accepted():
    for schedule in (Own(None), every("10s"), cron("0 9 * * *"), At((1,))):
        check_schedule(schedule, "job")


class NoLatest:
    def next_slot(self, after_ms: int) -> int | None:
        return None


class Async(Own):
    async def next_slot(self, after_ms: int) -> int | None:
        return None


@pytest.mark.parametrize(
    ("schedule", "remedy"),
    [
        ("10s", 'every("10s")'),
        (10, 'every("10s")'),
        (timedelta(seconds=10), 'every("10s")'),
        (None, "next_slot"),
        (Own, "pass an object of it"),
        (NoLatest(), "latest_slot(ms) -> int | None; add it"),
        (Async(None), "a plain function"),
    ],
)
def test_what_is_no_schedule_is_refused_by_name(schedule, remedy):
    with pytest.raises(InvalidSchedule) as caught:
        check_schedule(schedule, "report")
    assert "'report'" in str(caught.value)
    assert remedy in str(caught.value)


@pytest.mark.parametrize("answer", [1000.0, True, "1001", datetime(2026, 1, 1, tzinfo=UTC), NOON + 0.5, MAX_SLOT + 1])
def test_an_answer_that_is_no_slot_is_refused(answer):
    for ask in (next_slot_of, latest_slot_of):
        with pytest.raises(InvalidSchedule, match="<own>"):
            ask(Own(answer), 500)


@pytest.mark.parametrize("answer", [500, 499, 0, -1])
def test_a_next_slot_that_is_not_later_is_refused(answer):
    with pytest.raises(InvalidSchedule, match=r"next_slot\(500\) gave"):
        next_slot_of(Own(answer), 500)


@pytest.mark.parametrize("answer", [501, MAX_SLOT, -1])
def test_a_latest_slot_that_is_later_is_refused(answer):
    with pytest.raises(InvalidSchedule, match=r"latest_slot\(500\) gave"):
        latest_slot_of(Own(answer), 500)


def test_right_answers_pass():
    assert next_slot_of(Own(501), 500) == 501
    assert latest_slot_of(Own(500), 500) == 500
    assert next_slot_of(Own(None), 500) is latest_slot_of(Own(None), 500) is None


def test_every_error_is_a_value_error():
    assert issubclass(InvalidSchedule, InvalidInput)
    assert issubclass(InvalidInput, ValueError)


def test_the_documentation_tells_the_truth():
    page = Path(__file__).parents[2] / "docs" / "schedules.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 10
    assert result.failed == 0
