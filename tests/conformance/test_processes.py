"""The rules of level ``processes``: kept by what is right, broken by what is not; and the worker they are made of."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tenure.errors import BackendUnavailable
from tenure_conformance.processes import worker
from tenure_conformance.rule import catalogue, select
from tenure_conformance.session import Session
from tenure_conformance.targets.sqlite import target as sqlite

from .linestore.broken import BROKEN_PROCESSES
from .linestore.target import line

PROCESSES = [rule for rule in catalogue() if rule.level == "processes"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def workers_find_the_tests(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def verdicts(target, rules):
    with target.serving(None, "auto") as url:
        return asyncio.run(Session(target=target, url=url, rules=rules).run())


@pytest.mark.slow
@pytest.mark.parametrize("target", [sqlite, line], ids=lambda target: target.name)
def test_a_store_that_is_right_keeps_every_rule(target):
    told = verdicts(target, PROCESSES)
    assert {one.rule: (one.outcome, one.reason) for one in told} == {rule.id: ("pass", "") for rule in PROCESSES}


@pytest.mark.slow
@pytest.mark.parametrize(("target", "rules"), BROKEN_PROCESSES, ids=lambda one: getattr(one, "reference", "")[-16:])
def test_a_defect_is_caught_by_a_statement_of_its_rules(target, rules):
    for verdict in verdicts(target, select(rules)):
        assert verdict.outcome == "fail", f"{verdict.rule}: {verdict.outcome} {verdict.reason}"
        assert not verdict.crashed, f"{verdict.rule}: {verdict.traceback()}"


def test_each_rule_catches_a_defect():
    assert {rule for _, rules in BROKEN_PROCESSES for rule in rules} == {rule.id for rule in PROCESSES}


def run_worker(lines, *arguments, **environment):
    command = [sys.executable, "-P", worker.__file__, *arguments]
    told = subprocess.run(
        command, input=lines, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    assert told.returncode == 0, told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_a_worker_ends_when_its_input_does(tmp_path):
    (loaded,) = run_worker("", "sqlite", f"sqlite:///{tmp_path}/jobs.db", "app")
    assert loaded["loaded"] > 0


def test_a_worker_tells_what_keeps_it_from_entering(tmp_path):
    enter = '{"not_before_ms": 0}\n'
    _, told = run_worker(enter, "sqlite", f"sqlite:///{tmp_path}/missing/jobs.db", "app")
    assert told["error"]["type"] == "BackendMisconfigured"
    assert "missing" in told["error"]["text"]


CLOCKS = """
import datetime, runpy, sys, time
from time import time as before
{worker}
now = datetime.datetime.now(datetime.UTC)
assert isinstance(now, datetime.datetime)
assert abs(time.time() - time.time_ns() / 1e9) < 1
print(time.time() - before(), now.timestamp() - before(), datetime.datetime.now().timestamp() - before())
print(datetime.datetime.utcnow().replace(tzinfo=datetime.UTC).timestamp() - before())
print(time.mktime(time.localtime()) - before())
"""


def test_a_wrong_clock_is_wrong_wherever_it_is_asked():
    setting = f"import os; skew = runpy.run_path({worker.__file__!r})['skew_wall_clock']; skew(3_600_000)"
    code = CLOCKS.format(worker=setting)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert all(3_590 < float(number) < 3_650 for number in told.stdout.split()), told.stdout


def test_an_error_of_another_process_is_raised_here_with_its_cause():
    from tenure_conformance.processes.remote import _error

    error = _error({"type": "BackendUnavailable", "text": "no answer", "cause": "TimeoutError()"})
    assert isinstance(error, BackendUnavailable)
    assert "TimeoutError" in str(error.__cause__)
    assert isinstance(_error({"type": "SystemExit", "text": "", "cause": "None"}), RuntimeError)
