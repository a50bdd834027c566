"""The examples of docs/where.md, as real processes on one SQLite file: they share the slots, and end when told."""

import configparser
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from tenure.duration import to_ms

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs/examples"
PAGE = (ROOT / "docs/where.md").read_text("utf-8")
PATIENCE_S = 60
RUN = r"^sync (\d\d:\d\d:\d\d) on (\S+)$"
LISTS = """
import os, django
os.environ["DJANGO_SETTINGS_MODULE"] = "mysite.settings"
django.setup()
from scheduling.scheduler import scheduler
print(*(job.name for job in scheduler.jobs), sep="\\n")
"""
SHOWN = sorted(
    path
    for folder in ("plain", "fastapi", "flask", "django", "gunicorn", "kubernetes")
    for path in (EXAMPLES / folder).rglob("*")
    if path.suffix in (".py", ".service", ".yaml") and path.stat().st_size
)


class Program:
    """A program of an example, and what it printed so far."""

    def __init__(self, output, *command, cwd, **environment):
        self.folder = cwd.parent
        self._output = output
        with output.open("w") as file:
            self.popen = subprocess.Popen(
                [sys.executable, "-W", "error::ResourceWarning", *command],
                cwd=cwd,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "HOME": str(cwd), **environment},
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def text(self):
        return self._output.read_text("utf-8", "replace")

    def find(self, pattern):
        return re.findall(pattern, self.text, re.MULTILINE)

    def wait_for(self, pattern, enough=bool):
        end = time.monotonic() + PATIENCE_S
        while not enough(found := self.find(pattern)):
            assert time.monotonic() < end, f"not printed: {pattern}\n{self.text}"
            assert self.popen.poll() is None, f"ended before it printed {pattern}\n{self.text}"
            time.sleep(0.02)
        return found

    def stop(self):
        """Send SIGTERM; its exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(PATIENCE_S)

    def kill(self):
        self.popen.kill()
        self.popen.wait()


@pytest.fixture
def start(tmp_path):
    """Starts a program of an example in a copy of its folder; all programs of a test share a store."""
    with ExitStack() as ending:

        def start(example, *command, **environment):
            folder = tmp_path / example
            if not folder.exists():
                shutil.copytree(EXAMPLES / example, folder, ignore=shutil.ignore_patterns("__pycache__"))
            output = tmp_path / f"output-{len(list(tmp_path.glob('output-*')))}"
            store = f"sqlite:///{tmp_path}/jobs.db"
            program = Program(output, *command, cwd=folder, **{"JOBS_STORE": store, **environment})
            ending.callback(program.kill)
            return program

        yield start


def wait_until(predicate, description):
    end = time.monotonic() + PATIENCE_S
    while not (found := predicate()):
        assert time.monotonic() < end, f"waited in vain until {description()}"
        time.sleep(0.05)
    return found


def runs(*programs):
    """(slot, instance) of each run."""
    return [run for program in programs for run in program.find(RUN)]


def instances(*programs):
    return {instance for _, instance in runs(*programs)}


def assert_shared(*programs):
    """Each slot was run once."""
    assert set(Counter(slot for slot, _ in runs(*programs)).values()) == {1}, [program.text for program in programs]


def get(port, path):
    """Status and body of an answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def ready(port, path):
    """Whether the probe of that path is answered with 200, once something answers there."""
    try:
        status, body = get(port, path)
    except OSError:
        return False
    return status == 200 and json.loads(body)["ready"]


def a_free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# Two processes, each with one instance


@pytest.mark.parametrize(
    ("example", "command", "needs"),
    [
        ("plain", ["app.py"], "tenure"),
        ("plain", ["asyncio_app.py"], "tenure"),
        ("django", ["manage.py", "run_jobs"], "django"),
    ],
)
def test_two_processes_share_the_slots_and_end_when_they_are_told(start, example, command, needs):
    pytest.importorskip(needs)
    one, two = start(example, *command), start(example, *command)
    wait_until(lambda: len(instances(one, two)) == 2, lambda: f"both ran: {one.text}\n{two.text}")
    assert (one.stop(), two.stop()) == (0, 0)
    assert_shared(one, two)
    assert "Traceback" not in one.text + two.text
    assert "ResourceWarning" not in one.text + two.text


def test_the_command_of_django_finds_the_jobs_of_all_apps_and_no_other_command_runs_them(start):
    pytest.importorskip("django")
    check = start("django", "manage.py", "check")
    assert check.popen.wait(PATIENCE_S) == 0
    assert not runs(check)
    assert not list(check.folder.glob("*.db*"))  # no store was opened
    listed = start("django", "-c", LISTS)
    assert listed.popen.wait(PATIENCE_S) == 0, listed.text
    assert listed.find("^sync$")


# Servers with two workers


def test_each_worker_of_uvicorn_is_an_instance(start):
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    web = start("fastapi", "-m", "uvicorn", "app:app", "--workers", "2", "--port", "0")
    port = web.wait_for(r"http://127\.0\.0\.1:(\d+)")[0]
    wait_until(lambda: len(instances(web)) == 2, lambda: web.text)
    wait_until(lambda: ready(port, "/jobs/ready"), lambda: web.text)
    assert get(port, "/jobs/live")[0] == 200
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/sync", method="POST")
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
        assert json.load(answer)["outcome"] in ("won", "overlap")
    assert web.stop() == 0
    assert "Traceback" not in web.text


@pytest.mark.parametrize("preload", [[], ["--preload"]], ids=["", "preload"])
def test_each_worker_of_gunicorn_is_an_instance(start, preload):
    pytest.importorskip("gunicorn")
    web = start("gunicorn", "-m", "gunicorn", "web:app", "-b", "127.0.0.1:0", *preload)
    port = web.wait_for(r"http://127\.0\.0\.1:(\d+)")[0]
    wait_until(lambda: len(instances(web)) == 2, lambda: web.text)
    wait_until(lambda: ready(port, "/jobs/ready"), lambda: web.text)
    assert get(port, "/")[1] == b"the shop"
    assert web.stop() == 0
    assert_shared(web)
    assert "Traceback" not in web.text


def test_the_flask_application_under_gunicorn_stops_at_its_exit(start):
    pytest.importorskip("flask")
    pytest.importorskip("gunicorn")
    web = start("flask", "-m", "gunicorn", "app:app", "--workers", "2", "-b", "127.0.0.1:0")
    wait_until(lambda: len(instances(web)) == 2, lambda: web.text)
    assert web.stop() == 0
    assert_shared(web)
    assert "Traceback" not in web.text


# Kubernetes


def test_the_worker_answers_the_probes_of_its_pod_and_ends_within_its_time(start):
    ports = a_free_port(), a_free_port()
    pods = [start("kubernetes", "worker.py", PROBES_PORT=str(port)) for port in ports]
    (container,) = the_deployment()["spec"]["template"]["spec"]["containers"]
    paths = [container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")]
    for port in ports:
        for path in paths:
            wait_until(lambda: ready(port, path), lambda: "\n".join(pod.text for pod in pods))  # noqa: B023 - used at once
    wait_until(lambda: len(instances(*pods)) == 2, lambda: "\n".join(pod.text for pod in pods))
    assert [pod.stop() for pod in pods] == [0, 0]
    assert_shared(*pods)
    assert "Traceback" not in "".join(pod.text for pod in pods)


def the_manifests():
    yaml = pytest.importorskip("yaml")
    return {each["kind"]: each for each in yaml.safe_load_all((EXAMPLES / "kubernetes/jobs.yaml").read_text("utf-8"))}


def the_deployment():
    return the_manifests()["Deployment"]


def grace_ms(example):
    (grace,) = re.findall(r'grace="(\w+)"', (EXAMPLES / example).read_text("utf-8"))
    return to_ms(grace, "grace")


@pytest.mark.parametrize("kind", ["Deployment", "PodDisruptionBudget"])
def test_the_manifests_fit_the_schema_of_kubernetes(kind):
    validate = pytest.importorskip("kubernetes_validate")
    manifest = the_manifests()[kind]
    validate.validate(manifest, validate.latest_version(), strict=True)
    with pytest.raises(validate.ValidationError):  # it does look
        validate.validate(
            {**manifest, "spec": {**manifest["spec"], "selctor": {}}}, validate.latest_version(), strict=True
        )


def test_the_manifests_fit_each_other_and_the_worker():
    manifests = the_manifests()
    spec = manifests["Deployment"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["selector"]["matchLabels"] == labels
    assert manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert manifests["PodDisruptionBudget"]["spec"]["minAvailable"] < spec["replicas"]
    assert container["command"] == ["python", "worker.py"]
    (port,) = container["ports"]
    assert f'"PROBES_PORT", "{port["containerPort"]}"' in (EXAMPLES / "kubernetes/worker.py").read_text("utf-8")
    assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} == {port["name"]}
    assert [env["name"] for env in container["env"]] == ["JOBS_STORE"]


def test_whoever_sends_sigkill_waits_longer_than_the_grace():
    pod = the_deployment()["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] * 1000 >= grace_ms("kubernetes/worker.py") + 5_000
    unit = configparser.ConfigParser()
    unit.read(EXAMPLES / "plain/jobs.service")
    assert unit.getint("Service", "TimeoutStopSec") * 1000 >= grace_ms("plain/app.py") + 5_000
    (patience,) = re.findall(r"graceful_timeout = (\d+)", (EXAMPLES / "gunicorn/gunicorn.conf.py").read_text("utf-8"))
    assert int(patience) * 1000 >= grace_ms("gunicorn/jobs.py") + 5_000


# The page


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_the_page_shows_each_file_as_it_is(path):
    text = path.read_text("utf-8")
    assert f"```{ {'.py': 'python', '.yaml': 'yaml', '.service': 'ini'}[path.suffix] }\n{text}```" in PAGE


def test_the_page_shows_nothing_else():
    shown = re.findall(r"^```(?:python|yaml|ini)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert set(shown) <= {path.read_text("utf-8") for path in SHOWN}
