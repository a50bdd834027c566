"""The suite's own proof: each broken backend is caught by every rule that says so, and by a statement of the rule."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tenure_conformance.mutants import MUTANTS, Mutant
from tenure_conformance.rule import Rule, catalogue
from tenure_conformance.session import Session
from tenure_conformance.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Bite:
    """A rule against a broken backend that it says it catches."""

    rule: Rule
    mutant: Mutant
    verdict: Verdict

    @property
    def fault(self) -> str | None:
        """Why this is no bite, None if it is one."""
        if self.verdict.outcome != "fail":
            return f"{self.rule.id} does not catch {self.mutant.name}: {self.verdict.outcome}"
        if self.verdict.crashed:
            return f"{self.rule.id} meets {self.mutant.name} with a crash, not a statement: {self.verdict.reason}"
        return None


def gaps() -> Iterator[str]:
    """What the catalogue lacks: rules that catch nothing, broken backends that nothing catches, names of none."""
    named = {name for rule in catalogue() for name in rule.catches}
    yield from (f"{rule.id} catches no broken backend" for rule in catalogue() if not rule.catches)
    yield from (f"{name}: no such broken backend" for name in sorted(named - MUTANTS.keys()))
    yield from (f"{name}: no rule says that it catches this" for name in MUTANTS if name not in named)


async def bites(
    *, seed: int, report: Callable[[Bite], None], mutants: Iterable[str] | None = None, every_rule: bool = False
) -> list[Bite]:
    """Run each broken backend, or those named, against every rule that lists it, or against all there are."""
    found: list[Bite] = []
    for name in MUTANTS if mutants is None else mutants:
        mutant = MUTANTS[name]
        applying = [rule for rule in catalogue() if rule.applies(mutant.target)]
        rules = [rule for rule in applying if every_rule or name in rule.catches]
        with mutant.target.serving(None, "auto") as url:
            verdicts = await Session(target=mutant.target, url=url, rules=rules, seed=seed).run()
        for rule, verdict in zip(rules, verdicts, strict=True):
            found.append(Bite(rule, mutant, verdict))
            report(found[-1])
    return found


def run(*, seed: int, report: Callable[[Bite], None], mutants: Iterable[str] | None = None) -> list[str]:
    """Everything that is wrong with the suite's teeth, empty if nothing is."""
    found = asyncio.run(bites(seed=seed, report=report, mutants=mutants))
    met = {(bite.rule.id, bite.mutant.name) for bite in found}
    named = MUTANTS if mutants is None else list(mutants)
    unmet = [
        f"{rule.id} cannot catch {name}: its target does not declare the rule's level"
        for rule in catalogue()
        for name in named
        if name in rule.catches and (rule.id, name) not in met
    ]
    return [*(gaps() if mutants is None else ()), *unmet, *(bite.fault for bite in found if bite.fault)]


def matrix(*, seed: int, mutants: Iterable[str] | None = None) -> dict[str, list[str]]:
    """Which rules catch which broken backend by a statement: what ``catches`` may say."""
    found = asyncio.run(bites(seed=seed, report=lambda _bite: None, mutants=mutants, every_rule=True))
    caught: dict[str, list[str]] = {}
    for bite in found:
        caught.setdefault(bite.mutant.name, []).extend([bite.rule.id] if bite.fault is None else [])
    return caught
