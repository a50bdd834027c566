"""Servers in real containers: started, restarted, told of when they end, and never left behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from tenure_conformance.servers import HOST, Recipe, docker, restart
from tenure_conformance.servers.recipe import NotHere
from tenure_conformance.target import TargetError

from ..containers.build_images import Missing, build

SLOW = 60
HOLDER = """
import sys, time
from tenure_conformance.servers import HOST, Recipe
recipe = Recipe(name="Held", url=lambda port: f"redis://{HOST}:{port}", port=6379)
with recipe.serve(sys.argv[1]) as url:
    print(url, flush=True)
    time.sleep(600)
"""


def missing(reason):
    """Skip, or fail where Docker was started for these tests: TENURE_DOCKER=required."""
    pytest.fail(reason) if os.environ.get("TENURE_DOCKER") == "required" else pytest.skip(reason)


@pytest.fixture(scope="module")
def client():
    try:
        container = docker.container_of("none")
    except NotHere as error:
        missing(str(error))
    yield container.get_docker_client().client
    container.stop()


@pytest.fixture(scope="module")
def image(client):
    try:
        return build(client, "redis")
    except Missing as error:
        missing(f"no image of Redis can be built: {error}")


@pytest.fixture
def how(image):
    return f"docker:{image}"


def say(url, words):
    host, _, port = url.removeprefix("redis://").partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(words.encode() + b"\r\n")
        return connection.recv(100)


def pongs(url):
    try:
        return say(url, "PING") == b"+PONG\r\n"
    except OSError:
        return False


redis = Recipe(
    name="Redis",
    url=lambda port: f"redis://{HOST}:{port}",
    port=6379,
    command=("--appendonly", "yes", "--appendfsync", "always"),
    answers=pongs,
)


def owned_by(client, process):
    """The containers that a process started and that are still there."""
    left = client.api.containers(all=True, filters={"label": docker.OWNER})
    return [one["Id"] for one in left if one["Labels"][docker.OWNER].endswith(f" {process}")]


@pytest.fixture
def held(how):
    """A process that holds a server, and the server's URL."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, how], stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_a_restart_keeps_the_port_and_what_was_stored(client, how):
    with redis.serve(how) as url:
        assert say(url, "SET key kept") == b"+OK\r\n"
        asyncio.run(restart(url))
        assert say(url, "GET key") == b"$4\r\nkept\r\n"
    assert not pongs(url)
    assert owned_by(client, os.getpid()) == []


def test_it_can_be_reached_from_this_host_only(client, how):
    with redis.serve(how):
        (container,) = owned_by(client, os.getpid())
        asked = client.api.inspect_container(container)["HostConfig"]["PortBindings"]
    assert [bound["HostIp"] for bound in asked["6379/tcp"]] == [HOST]


def test_a_server_that_ends_at_once_is_told_with_its_last_words(client, how):
    broken = Recipe(name="Redis", url=redis.url, port=6379, command=("--no-such-option", "1"), answers=pongs)
    with pytest.raises(TargetError, match=r"(?s)exited: .*no-such-option"), broken.serve(how):
        pass
    assert owned_by(client, os.getpid()) == []


def test_a_start_that_fails_leaves_nothing(client, image):
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NotHere, match=f"cannot be started: .*{port}"), docker.started(redis, port, image):
            pass
    assert owned_by(client, os.getpid()) == []


def test_an_image_that_is_nowhere_is_named_with_the_remedy(client):
    nowhere = "localhost:1/no-such-image:1"
    with (
        pytest.raises(TargetError, match=rf"{nowhere} is not here .*--server docker:IMAGE"),
        redis.serve(f"docker:{nowhere}"),
    ):
        pass


def test_a_process_that_is_terminated_ends_its_container_first(client, held):
    process, url = held
    assert pongs(url)
    process.send_signal(signal.SIGTERM)
    process.wait(SLOW)
    assert owned_by(client, process.pid) == []


def test_what_a_killed_process_left_is_removed_by_the_next_run_and_nothing_else(client, how, held):
    process, url = held
    with redis.serve(how) as mine:
        process.kill()
        process.wait(SLOW)
        assert len(owned_by(client, process.pid)) == 1
        with redis.serve(how):
            assert owned_by(client, process.pid) == []
        assert pongs(mine)
        assert not pongs(url)


def test_a_docker_that_hangs_is_as_good_as_none(tmp_path, monkeypatch):
    pytest.importorskip("testcontainers.core.container", reason="testcontainers is not installed")
    monkeypatch.setattr(docker, "ANSWER_SECONDS", 0.2)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{tmp_path}/docker.sock")
        silent.listen()
        begun = time.monotonic()
        with pytest.raises(TargetError, match=r"Docker does not answer: .*timed out"), redis.serve("docker:x"):
            pass
    assert time.monotonic() - begun < SLOW / 2, "docker's own limit is a minute"
