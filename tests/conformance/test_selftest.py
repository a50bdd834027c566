"""The proof of teeth is itself strict: a rule that does not catch what it lists, or only by a crash, is told."""

import asyncio
from dataclasses import replace

import pytest
from tenure.memory import MemoryBackend, MemoryStore
from tenure_conformance import selftest
from tenure_conformance.mutants import Mutant
from tenure_conformance.rule import catalogue, select
from tenure_conformance.target import Limits, Target, Timing


def mutant(name, backend):
    store = MemoryStore()
    target = Target(
        name=name,
        url="memory://",
        open=lambda _url, namespace: backend(store, namespace=namespace),
        timing=Timing(short_ms=10, slack_ms=5),
        limits=Limits(histories=4, examples=60),
    )
    return Mutant(name, "One defect.", target)


class LyingRelease(MemoryBackend):
    """release is True whatever happened."""

    async def release(self, job, slot, token):
        await super().release(job, slot, token)
        return True


class CrashingRelease(MemoryBackend):
    """release raises for what it does not know."""

    async def release(self, job, slot, token):
        if not await super().release(job, slot, token):
            raise ZeroDivisionError
        return True


@pytest.fixture
def teeth(monkeypatch):
    """Set the broken backends, and what rules say they catch."""

    def set_teeth(mutants, catches):
        rules = tuple(replace(rule, catches=catches.get(rule.id, ())) for rule in catalogue())
        monkeypatch.setattr(selftest, "MUTANTS", {one.name: one for one in mutants})
        monkeypatch.setattr(selftest, "catalogue", lambda: rules)

    return set_teeth


def faults(**options):
    return selftest.run(seed=1, report=lambda bite: None, **options)


def test_a_mutant_that_is_caught_by_a_statement_is_a_bite(teeth):
    teeth([mutant("lying", LyingRelease)], {"REL-007": ("lying",)})
    assert faults(mutants=["lying"]) == []


def test_a_rule_that_does_not_catch_what_it_lists_is_told(teeth):
    teeth([mutant("lying", LyingRelease)], {"CLM-001": ("lying",)})
    assert faults(mutants=["lying"]) == ["CLM-001 does not catch lying: pass"]


def test_a_crash_is_no_bite(teeth):
    teeth([mutant("crashing", CrashingRelease)], {"REL-005": ("crashing",)})
    assert "with a crash, not a statement" in faults(mutants=["crashing"])[0]


def test_a_rule_of_a_level_that_the_mutant_has_not_is_told(teeth):
    teeth([mutant("lying", LyingRelease)], {"HNT-001": ("lying",)})
    assert "does not declare the rule's level" in faults(mutants=["lying"])[0]


def test_gaps_are_told(teeth):
    teeth([mutant("lying", LyingRelease)], {"CLM-001": ("misspelt",)})
    told = list(selftest.gaps())
    assert "misspelt: no such broken backend" in told
    assert "lying: no rule says that it catches this" in told
    assert "CLM-002 catches no broken backend" in told


class Racing(MemoryBackend):
    """Reads, and writes what it decided a moment later."""

    async def heartbeat(self, job, slot, token):
        key = self._key(job)
        before = self.store.states.get(key)
        await asyncio.sleep(0)
        held = await super().heartbeat(job, slot, token)
        if before is not None and not held and any(run.held_by(token) for run in before.unfinished):
            self.store.states[key] = before
            return True
        return held


class LateByOne(MemoryBackend):
    """Allows one attempt more than the claim does."""

    async def claim(self, claim):
        return await super().claim(replace(claim, max_attempts=claim.max_attempts + 1))


class RoundedNow(MemoryBackend):
    """Tells the store's clock in seconds."""

    async def claim(self, claim):
        answer = await super().claim(claim)
        return replace(answer, now_ms=answer.now_ms // 1_000 * 1_000)


class SharedNames(MemoryBackend):
    """Cuts long names."""

    def _key(self, job):
        namespace, name = super()._key(job)
        return namespace, name[:150]


@pytest.mark.parametrize(
    ("backend", "rule"),
    [
        (Racing, "CON-006"),
        (LateByOne, "ATT-004"),
        (LateByOne, "CLM-106"),
        (RoundedNow, "PRC-004"),
        (SharedNames, "NAM-006"),
    ],
)
def test_defects_that_nobody_listed_are_caught_too(backend, rule):
    from tenure_conformance.session import Session

    one = mutant("unforeseen", backend).target
    (verdict,) = asyncio.run(Session(target=one, url="memory://", rules=select((rule,))).run())
    assert verdict.outcome == "fail"
    assert not verdict.crashed, verdict.reason
