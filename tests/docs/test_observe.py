"""What docs/observe.md lists is what there is, and its formatter shows it."""

import json
import logging
import re
from dataclasses import fields
from pathlib import Path

import pytest
from tenure import Health, Scheduler
from tenure.clock import SystemClock
from tenure.events import LOG_FIELDS, Events, Failure

PAGE = (Path(__file__).parents[2] / "docs/observe.md").read_text("utf-8")


def rows(header):
    """The cells of a table, which is found by the beginning of its header."""
    (table,) = re.findall(rf"^{re.escape(header)}.*\n\|[- |]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def code(cell):
    return re.findall(r"`([^`]+)`", cell)


def test_the_parts_of_a_health():
    listed = [name for part, _ in rows("| part |") for name in code(part)]
    assert set(listed) == {*(field.name for field in fields(Health)), "alive", "ready", "store_reachable"}
    assert set(listed) == set(Health(state="stopped").as_dict())


def test_the_attributes_of_a_log_record():
    assert {name for part, _ in rows("| attribute |") for name in code(part)} == {"event", *LOG_FIELDS}


def test_the_formatter_shows_an_event_s_facts(caplog):
    names = {}
    (block,) = [
        block
        for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
        if "class JsonLines" in block
    ]
    exec(block, names)
    ids = {"job": "sync", "slot": 10, "attempt": 2, "fence": 7, "instance": "a"}
    with caplog.at_level(logging.ERROR, "tenure"):
        Events(SystemClock()).emit(Failure(**ids, duration_ms=3, error="ValueError: x"))
    shown = json.loads(names["JsonLines"]().format(caplog.records[0]))
    assert shown.pop("message").startswith("sync 1970-01-01T00:00:00.010Z: failure, attempt 2")
    assert shown == {"level": "ERROR", "event": "failure", **ids}


class Meter:
    """Notes what is made with it."""

    def __init__(self):
        self.made = {}

    def get_meter(self, *args):
        return self

    def __getattr__(self, name):
        kind = name.removeprefix("create_").removeprefix("observable_").replace("up_down", "up-down").replace("_", " ")
        return lambda made, *args, **options: self.made.setdefault(made, kind)


def test_the_metrics():
    pytest.importorskip("opentelemetry")
    from tenure.otel import instrument

    meter = Meter()
    instrument(Scheduler("memory://"), meter_provider=meter)
    assert meter.made == {code(name)[0]: kind for name, kind, _, _ in rows("| metric |")}
