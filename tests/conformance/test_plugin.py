"""The pytest plug-in, as its user starts it."""

import subprocess
import sys

import pytest


def pytest_run(tmp_path, *arguments):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "tenure_conformance", *arguments]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)


def test_there_is_one_test_per_rule_and_selection_works(tmp_path):
    done = pytest_run(tmp_path, "--tenure-target", "memory", "-k", "REL-00 or CLO-001", "-v")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_rule[REL-001-release_ends_the_lease] PASSED" in done.stdout
    assert "SKIPPED" in done.stdout
    assert "not certified: only some of the rules were run" in done.stdout


def test_without_a_target_it_is_a_usage_error(tmp_path):
    done = pytest_run(tmp_path)
    assert done.returncode == 4 or "--tenure-target is missing" in done.stdout + done.stderr
    assert "--tenure-target is missing" in done.stdout + done.stderr


def test_an_unknown_target_is_a_usage_error(tmp_path):
    done = pytest_run(tmp_path, "--tenure-target", "nothing")
    assert done.returncode == 4
    assert "no target 'nothing'" in done.stdout + done.stderr


@pytest.fixture
def broken(tmp_path):
    (tmp_path / "broken.py").write_text(
        """
from tenure.memory import MemoryBackend, MemoryStore
from tenure_conformance import Target

class Broken(MemoryBackend):
    async def release(self, job, slot, token):
        await super().release(job, slot, token)
        return True

store = MemoryStore()
TARGET = Target(name="broken", url="m://", open=lambda url, ns: Broken(store, namespace=ns))
"""
    )
    return tmp_path


def test_a_failure_shows_the_rewritten_assertion_and_the_calls(broken):
    done = pytest_run(broken, "--tenure-target", "broken:TARGET", "-k", "REL-007", "--tenure-out", "out")
    assert done.returncode == 1
    assert "the last calls of all clients" in done.stdout
    assert "where True = " in done.stdout or "assert not True" in done.stdout
    assert (broken / "out" / "certificate.json").exists()
