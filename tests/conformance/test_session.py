"""A run of rules: verdicts, repetition with longer leases, waivers, and what is no verdict at all."""

import asyncio
from dataclasses import replace
from datetime import date

import pytest
from tenure.errors import BackendUnavailable
from tenure.model import Capabilities
from tenure_conformance import waivers
from tenure_conformance.rule import Rule, select
from tenure_conformance.session import Session
from tenure_conformance.target import Target, TargetError, load
from tenure_conformance.targets.memory import target as memory
from tenure_conformance.timing import Uncertain
from tenure_conformance.verdict import Verdict


def a_rule(check, pace="quick", level="lease", base="lease"):
    return Rule(
        id="CLM-999",
        sentence="A rule.",
        level=level,
        base=base,
        spec=(),
        since="1.0",
        pace=pace,
        catches=(),
        check=check,
    )


def verdict_of(check, target=memory, **options):
    (verdict,) = asyncio.run(Session(target=target, url="memory://", rules=[a_rule(check, **options)]).run())
    return verdict


def test_a_rule_that_returns_is_a_pass_without_a_transcript():
    async def check(bench):
        assert (await bench.a.win()).attempt == 1

    verdict = verdict_of(check)
    assert verdict.outcome == "pass"
    assert verdict.calls == ()


def test_a_failure_has_the_calls_of_all_clients():
    async def check(bench):
        held = await bench.a.win()
        told = await bench.b.ask()
        assert told.attempt == held.attempt + 1

    verdict = verdict_of(check)
    assert verdict.outcome == "fail"
    assert not verdict.crashed
    assert [(call.client, call.name) for call in verdict.calls] == [("a", "claim"), ("b", "claim")]
    told = verdict.to_json()["calls"]
    assert told[0]["answer"]["outcome"] == "won"
    assert told[1]["answer"]["outcome"] == "running"
    assert told[0]["begin_ms"] <= told[0]["end_ms"] <= told[1]["begin_ms"]


def test_an_exception_of_the_backend_is_a_crash():
    async def check(bench):
        raise BackendUnavailable("gone")

    verdict = verdict_of(check)
    assert (verdict.outcome, verdict.crashed) == ("fail", True)
    assert "gone" in verdict.reason


def test_an_uncertain_rule_is_repeated_with_doubled_leases():
    tried = []

    async def check(bench):
        tried.append(bench.lease_ms)
        if len(tried) < 3:
            raise Uncertain("slow")

    verdict = verdict_of(check, pace="timed")
    assert verdict.outcome == "pass"
    assert tried == [400, 800, 1_600]
    assert verdict.leases_ms == (400, 800, 1_600)


def test_a_rule_that_stays_uncertain_is_inconclusive_and_not_red():
    async def check(bench):
        raise Uncertain("slow")

    verdict = verdict_of(check, pace="timed")
    assert verdict.outcome == "inconclusive"
    assert verdict.leases_ms == (400, 800, 1_600, 3_200, 6_400)


def test_each_try_has_a_namespace_of_its_own():
    seen = []

    async def check(bench):
        seen.append(bench.namespace)
        await bench.a.win()
        if len(seen) < 3:
            raise Uncertain("slow")

    assert verdict_of(check).outcome == "pass"
    assert len(set(seen)) == 3


def test_a_level_that_is_not_declared_is_not_applicable():
    async def check(bench):
        raise AssertionError("not run")

    assert verdict_of(check, level="durable").outcome == "not-applicable"
    assert verdict_of(check, level="claim-only", base="claim-only").outcome == "not-applicable"


def test_timed_rules_wait_side_by_side():
    inside = []

    async def check(bench):
        inside.append(bench)
        async with asyncio.timeout(20):
            while len(inside) < 8:
                await asyncio.sleep(0.001)

    rules = [replace(a_rule(check, pace="timed"), id=f"CLM-{number}") for number in range(900, 908)]
    verdicts = asyncio.run(Session(target=memory, url="memory://", rules=rules).run())
    assert [one.outcome for one in verdicts] == ["pass"] * 8


def test_a_store_that_is_not_there_is_no_failure_of_the_backend():
    def unreachable(url, namespace):
        raise BackendUnavailable("connection refused")

    with pytest.raises(TargetError, match="connection refused"):
        asyncio.run(Session(target=replace(memory, open=unreachable), url="x", rules=select(("CLM-001",))).run())


@pytest.mark.parametrize(
    "levels", [(), ("lease", "claim-only"), ("durable",), ("lease", "nonsense"), ("lease", "shared")]
)
def test_levels_that_do_not_fit_are_refused(levels):
    with pytest.raises(TargetError):
        Target(name="t", open=memory.open, levels=levels)


def test_levels_and_capabilities_must_agree():
    target = Target(name="t", open=memory.open, levels=("lease", "durable"), capabilities=Capabilities(durable=True))
    assert target.lease_ms == 400


def test_leases_are_never_shorter_than_the_store_can_grant():
    slow = replace(memory, capabilities=Capabilities(min_lease_ms=2_000))
    assert (slow.lease_ms, slow.short_ms) == (2_000, 2_000)


@pytest.mark.parametrize(
    "name", ["nothing", "no.such.module:thing", "tenure_conformance.targets.memory:nothing", "json:dumps"]
)
def test_a_target_that_is_none_is_refused(name):
    with pytest.raises((TargetError, TypeError)):
        load(name)


def test_built_in_targets_are_found_by_name():
    assert load("memory") is memory
    assert load("directory").levels[0] == "claim-only"


WAIVER = waivers.Waiver("CLM-999", "known, see #1", date(2026, 6, 30))
FAILED = Verdict(rule="CLM-999", outcome="fail", reason="broken")


def test_a_known_failure_is_waived_until_its_day():
    assert waivers.waived(FAILED, WAIVER, date(2026, 6, 30)).outcome == "waived"
    assert waivers.waived(FAILED, WAIVER, date(2026, 7, 1)).outcome == "fail"
    assert waivers.waived(FAILED, None).outcome == "fail"


def test_a_waived_rule_that_passes_fails():
    verdict = waivers.waived(Verdict(rule="CLM-999", outcome="pass"), WAIVER, date(2026, 6, 1))
    assert verdict.outcome == "fail"
    assert "remove the waiver" in verdict.reason


@pytest.mark.parametrize(
    "text",
    [
        '[[waiver]]\nrule = "XYZ-001"\nreason = "r"\nuntil = 2026-01-01',
        '[[waiver]]\nrule = "CLM-001"\nuntil = 2026-01-01',
        '[[waiver]]\nrule = "CLM-001"\nreason = " "\nuntil = 2026-01-01',
        '[[waiver]]\nrule = "CLM-001"\nreason = "r"\nuntil = "soon"',
        "nonsense",
    ],
)
def test_waivers_are_strict(tmp_path, text):
    path = tmp_path / "waivers.toml"
    path.write_text(text)
    with pytest.raises(TargetError):
        waivers.load(path)
