"""What an operator sees of jobs that run on each store, by the command line and from the URL alone."""

import json
import time

import pytest
from tenure import Context, Scheduler

pytest.importorskip("click")
pytest.importorskip("rich")

from click.testing import CliRunner
from tenure.cli.commands import tenure
from tenure_etcd.keys import quoted

from .servers_etcd import etcd, programs

PATIENCE_S = 60
NAMESPACE = "operate eu/1"


def called(*arguments: str) -> tuple[int, str]:
    result = CliRunner(env={"TENURE_URL": None}).invoke(tenure, arguments)
    assert result.stderr == "", result.stderr
    return result.exit_code, result.stdout


def told(*arguments: str):
    code, text = called(*arguments, "--json", "--namespace", NAMESPACE)
    assert code == 0, text
    return json.loads(text)


@pytest.fixture(params=["sqlite", "redis", "postgres", "mongo", "dynamodb", "etcd"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
    elif request.param == "etcd":
        with etcd(programs()[0]) as (member,):
            yield f"etcd://{member.address}/{quoted('op')}"
    else:
        server = request.getfixturevalue(f"{request.param}_server")
        if request.param == "postgres":
            name = server.schema()
            server.sql(f"create database {name}")
            yield server.url(f"/{name}")
            server.sql(f"drop database {name} with (force)")
        elif request.param == "mongo":
            yield server.url("operate")
        else:
            yield server.url if request.param == "redis" else server.url()


def test_jobs_that_run_on_a_store_are_seen_from_its_url_alone(url: str) -> None:
    scheduler = Scheduler(url, namespace=NAMESPACE)

    @scheduler.every("good", "1s", jitter="0s", lease="5s")
    def good() -> None:
        pass

    @scheduler.every("bad", "1s", jitter="0s", lease="5s", max_late="10s")
    async def bad(ctx: Context) -> None:
        raise ValueError("no such customer")

    scheduler.start()
    try:
        until = time.monotonic() + PATIENCE_S
        while not (jobs := _settled(url)) and time.monotonic() < until:
            time.sleep(0.2)
    finally:
        scheduler.stop()
    assert [(line["job"], line["schedule"]) for line in jobs] == [("bad", "every second"), ("good", "every second")]
    runs = told("runs", "--url", url, "--limit", "1000")["runs"]
    ended = {"success", "lease over"}  # the latter of a run that was won while the scheduler stopped, and given back
    assert {run["status"] for run in runs if run["job"] == "good"} <= ended
    slot = next(run["slot"] for run in runs if (run["job"], run["status"]) == ("bad", "failed"))
    story = told("why", "bad", str(slot), "--url", url)
    assert (story["status"], [line["kind"] for line in story["lines"]]) == ("failed", ["due", "claim", "end"])
    assert "\nValueError: no such customer" in story["lines"][-1]["error"]
    assert not any(run["live"] for run in told("active", "--url", url)["runs"])
    _is_well(url)


def _settled(url: str) -> list[dict]:
    """The jobs, once both have run and the store knows what they are."""
    jobs = told("jobs", "--url", url)["jobs"]
    ended = {line["job"]: line["last_status"] for line in jobs}
    return jobs if ended.get("good") == "success" and ended.get("bad") == "failed" else []


def _is_well(url: str) -> None:
    code, text = called("doctor", url, "--namespace", NAMESPACE, "--json")
    findings = {finding["what"]: finding for finding in json.loads(text)["findings"]}
    wrong = [finding for finding in findings.values() if finding["state"] == "wrong"]
    assert all(finding["text"].startswith("fsync is off") for finding in wrong)  # a server of tests waits for no disk
    assert code == (1 if wrong else 0)
    assert {"store", "clock", "round trip", "zone data", "jobs"} < findings.keys()
    assert findings["clock"]["state"] == "ok"
    assert len(findings) > 5
