"""The command: exit codes, and what it says."""

import json

import pytest
from click.testing import CliRunner
from tenure_conformance.cli import main


def run(*arguments):
    return CliRunner().invoke(main, [str(one) for one in arguments])


@pytest.fixture
def target(tmp_path, monkeypatch):
    """A module with targets: good, broken, gone."""
    (tmp_path / "some_targets.py").write_text(
        """
from tenure.errors import BackendUnavailable
from tenure.memory import MemoryBackend, MemoryStore
from tenure_conformance import Target

class Broken(MemoryBackend):
    async def release(self, job, slot, token):
        await super().release(job, slot, token)
        return True

def gone(url, namespace):
    raise BackendUnavailable("connection refused")

store = MemoryStore()
levels = ("lease", "hints")
good = Target(name="good", url="m://", open=lambda url, ns: MemoryBackend(store, namespace=ns), levels=levels)
broken = Target(name="broken", url="m://", open=lambda url, ns: Broken(store, namespace=ns), levels=levels)
unreachable = Target(name="gone", url="m://", open=gone)
homeless = Target(name="homeless", open=gone)

def strange(how):
    raise RuntimeError("docker is strange")

def stopped(how):
    raise KeyboardInterrupt

strange = Target(name="strange", open=gone, serve=strange)
stopped = Target(name="stopped", open=gone, serve=stopped)
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "some_targets"


def test_a_filtered_run_is_2_and_says_so(target):
    result = run("run", f"{target}:good", "--rule", "REL-*")
    assert result.exit_code == 2
    assert "only some of the rules were run" in result.output


def test_a_failed_rule_is_1_and_is_shown_with_its_sentence(target):
    result = run("run", f"{target}:broken", "--rule", "REL-007")
    assert result.exit_code == 1
    assert "REL-007 fail: Release of an unknown run" in result.output
    assert "assert" in result.output


@pytest.mark.parametrize("name", ["unreachable", "homeless", "nothing", "strange", "stopped"])
def test_what_cannot_be_run_is_3(target, name):
    assert run("run", f"{target}:{name}", "--rule", "REL-001").exit_code == 3


def test_no_rule_run_is_an_error(target):
    result = run("run", f"{target}:good", "--rule", "CLO-*")
    assert result.exit_code == 2
    assert "no rule was run" in result.output
    assert run("run", f"{target}:good", "--rule", "NOPE-*").exit_code == 2


def test_a_waived_rule_is_2_and_an_unknown_one_3(target, tmp_path):
    path = tmp_path / "waivers.toml"
    path.write_text('[[waiver]]\nrule = "REL-007"\nreason = "known"\nuntil = 2999-01-01\n')
    result = run("run", f"{target}:broken", "--rule", "REL-007", "--waivers", path)
    assert result.exit_code == 2
    assert "1 rule waived" in result.output
    assert run("run", f"{target}:good", "--rule", "REL-007", "--waivers", path).exit_code == 1
    path.write_text('[[waiver]]\nrule = "ABC-007"\nreason = "known"\nuntil = 2999-01-01\n')
    assert run("run", f"{target}:broken", "--rule", "REL-007", "--waivers", path).exit_code == 3


def test_out_leaves_a_certificate_that_can_be_verified_and_compared(target, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    assert run("run", f"{target}:good", "--rule", "REL-007", "--out", one).exit_code == 2
    assert run("run", f"{target}:broken", "--rule", "REL-007", "--out", two).exit_code == 1
    path = one / "certificate.json"
    result = run("verify", path)
    assert result.exit_code == 2
    assert "intact, and not certified" in result.output
    compared = run("diff", path, two / "certificate.json")
    assert compared.exit_code == 1
    assert "REL-007  pass -> fail" in compared.output
    assert run("diff", two / "certificate.json", path).exit_code == 0
    (told,) = json.loads((two / "verdicts.json").read_text())
    assert told["calls"]
    document = json.loads(path.read_text())
    document["claims"]["certified"] = True
    path.write_text(json.dumps(document))
    assert run("verify", path).exit_code == 1


def test_a_certificate_that_cannot_be_read_is_3(tmp_path):
    assert run("verify", tmp_path / "nothing.json").exit_code == 3
    (tmp_path / "list.json").write_text("[]")
    assert run("verify", tmp_path / "list.json").exit_code == 3


def test_list_and_explain():
    listed = run("list", "--rule", "TKO-*")
    assert listed.exit_code == 0
    assert "TKO-001" in listed.output
    assert "CLM-001" not in listed.output
    explained = run("explain", "clm-001")
    assert explained.exit_code == 0
    assert "docs/protocol.md#claim-row-14" in explained.output
    assert "async def first_claim_wins" in explained.output
    assert run("explain", "CLM-777").exit_code == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["memory", "directory"])
def test_built_in_targets_are_certified(tmp_path, name):
    result = run("run", name, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "certified" in result.output.splitlines()[-1]
    assert run("verify", tmp_path / "certificate.json").exit_code == 0
