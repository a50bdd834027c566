"""Servers: which way is taken, what is said when there is none, and that a restart keeps port and data."""

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import types
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from tenure_conformance.cli import main
from tenure_conformance.servers import HOST, Recipe, in_package, on_path, restart
from tenure_conformance.servers.recipe import NotHere, connects, serving
from tenure_conformance.target import Target, TargetError
from tenure_conformance.timing import Uncertain

recipe = Recipe(
    name="Files",
    url=lambda port: f"http://{HOST}:{port}",
    port=80,
    find=(lambda: Path(sys.executable),),
    arguments=lambda directory, port: ["-m", "http.server", str(port), "--bind", HOST, "--directory", str(directory)],
    prepare=lambda _program, directory: (directory / "kept").write_text("data"),
    remedy="put a program on PATH",
)
nothing = Target(
    name="nothing", open=lambda _url, _namespace: None, serve=replace(recipe, find=(on_path("no-such-program"),)).serve
)


def read(url):
    with urlopen(f"{url}/kept", timeout=10) as reply:
        return reply.read().decode()


def test_a_program_is_started_on_a_free_port_and_ended():
    with recipe.serve("binary") as one, recipe.serve("binary") as other:
        assert one != other
        assert read(one) == read(other) == "data"
    with pytest.raises(OSError, match="refused"):
        read(one)


def test_a_restart_keeps_the_port_and_the_data():
    with recipe.serve("binary") as url:
        asyncio.run(restart(url))
        assert read(url) == "data"


def test_what_was_not_started_here_cannot_be_restarted():
    with pytest.raises(Uncertain, match="--server"):
        asyncio.run(restart("http://elsewhere"))


def test_a_server_that_ends_at_once_is_told_with_its_last_words():
    broken = replace(recipe, arguments=lambda _directory, _port: ["-c", "raise SystemExit('no disk')"])
    with pytest.raises(TargetError, match="exit code 1: no disk"), broken.serve("binary"):
        pass


class Fake:
    """A way of starting that is there, or not."""

    def __init__(self, name, log, *, here):
        self.name, self.log, self.here = name, log, here

    @contextmanager
    def __call__(self, recipe, port, which):
        if not self.here:
            raise NotHere(f"no {self.name} today")
        self.log.append(" ".join(filter(None, (self.name, which, f"on {port > 0}"))))
        yield self
        self.log.append(f"{self.name} ended")

    def restart(self):
        self.log.append("restarted")

    def ended(self):
        return None


def ways(log, **here):
    return {name: Fake(name, log, here=is_here) for name, is_here in here.items()}


answering = replace(recipe, answers=lambda _url: True)


def test_docker_comes_before_programs():
    log = []
    with serving(answering, "auto", ways(log, docker=True, binary=True)) as url:
        assert url.startswith("http://127.0.0.1:")
    assert log == ["docker on True", "docker ended"]


def test_a_program_is_taken_where_there_is_no_docker():
    log = []
    with serving(answering, "auto", ways(log, docker=False, binary=True)) as url:
        asyncio.run(restart(url))
    assert log == ["binary on True", "restarted", "binary ended"]


def test_a_way_that_is_named_is_the_only_one():
    with (
        pytest.raises(TargetError, match="no docker today"),
        serving(answering, "docker", ways([], docker=False, binary=True)),
    ):
        pass


def test_an_image_may_be_named_instead_of_the_recipes():
    log = []
    with serving(answering, "docker:files:2", ways(log, docker=True, binary=True)):
        assert log == ["docker files:2 on True"]


def test_a_program_may_be_named_instead_of_the_recipes(tmp_path):
    other = tmp_path / "other-python"
    other.symlink_to(sys.executable)
    without = replace(recipe, find=())
    with without.serve(f"binary:{other}") as url:
        assert read(url) == "data"
    with pytest.raises(TargetError, match="no program no-such-program"), without.serve("binary:no-such-program"):
        pass


@pytest.mark.parametrize("how", ["Docker", "auto:redis", "podman:redis", ""])
@pytest.mark.parametrize("url", [None, "http://given"])
def test_a_way_that_does_not_exist_is_refused_with_those_that_do(how, url):
    with pytest.raises(TargetError, match=f"called {how!r}; there are auto, docker or docker:IMAGE, binary or"):
        nothing.serving(url, how)


def test_without_any_way_it_is_said_what_was_tried_and_what_helps():
    with (
        pytest.raises(TargetError, match=r"--url; put a program on PATH \(docker: no docker today; binary: no binary"),
        serving(answering, "auto", ways([], docker=False, binary=False)),
    ):
        pass


def test_an_error_inside_is_not_taken_for_a_way_that_is_not_there():
    log = []
    with pytest.raises(NotHere, match="mine"), serving(answering, "auto", ways(log, docker=True, binary=True)):
        raise NotHere("mine")
    assert log == ["docker on True"]


@pytest.mark.parametrize("how", ["auto", "docker", "binary"])
def test_the_command_ends_with_3_and_never_skips(monkeypatch, how):
    module = types.ModuleType("targets_of_a_test")
    module.nothing = nothing
    monkeypatch.setitem(sys.modules, "targets_of_a_test", module)
    told = CliRunner().invoke(main, ["run", "targets_of_a_test:nothing", "--server", how])
    assert told.exit_code == 3
    assert "no server; give --url" in told.output


def test_a_url_comes_before_any_server():
    with nothing.serving("http://given", "auto") as url:
        assert url == "http://given"


HOLDER = f"""
import sys, time
from tenure_conformance.servers import HOST, Recipe
arguments = lambda _directory, port: ["-m", "http.server", str(port), "--bind", HOST]
recipe = Recipe(name="Held", url=lambda port: f"http://{{HOST}}:{{port}}", port=80, arguments=arguments)
with recipe.serve("binary:{sys.executable}") as url:
    print(url, flush=True)
    time.sleep(600)
"""


def test_a_process_that_is_terminated_ends_its_server_first():
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as holder:
        try:
            url = holder.stdout.readline().strip()
            assert hears(url)
            holder.send_signal(signal.SIGTERM)
            holder.wait(60)
            assert not hears(url)
        finally:
            holder.kill()


def hears(url):
    try:
        urlopen(url, timeout=10).close()
    except OSError:
        return False
    return True


def test_a_connection_that_is_hung_up_on_is_no_answer():
    with socket.create_server((HOST, 0)) as listening:
        url = f"tcp://{HOST}:{listening.getsockname()[1]}"
        closing = threading.Thread(target=lambda: listening.accept()[0].close())
        closing.start()
        assert not connects(url)
        closing.join()
        assert connects(url)
    assert not connects(url)


def test_docker_without_testcontainers_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "testcontainers.core.container", None)
    with pytest.raises(TargetError, match=r"tenure-conformance\[docker\]"), replace(recipe, image="x").serve("docker"):
        pass


def test_programs_are_found_on_the_path_and_in_packages(tmp_path, monkeypatch):
    program = tmp_path / "wheel_of_a_server" / "bin" / "the-server"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    (tmp_path / "wheel_of_a_server" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", str(program.parent))
    assert on_path("the-server")() is None
    assert in_package("wheel_of_a_server", "bin/the-*")() is None
    program.chmod(0o755)
    assert on_path("the-server")() == program
    assert in_package("wheel_of_a_server", "bin/the-*")() == program
    assert in_package("no_such.wheel", "bin/*")() is None
    assert in_package("no_such_wheel", "bin/*")() is None
