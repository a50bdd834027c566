"""The suite's own proof: each broken backend is caught by every rule that says so, and by a statement of the rule."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tenure_conformance.mutants import MUTANTS, Mutant
from tenure_conformance.rule import Rule, catalogue
from tenure_conformance.session import Session
from tenure_conformance.target import Target
from tenure_conformance.verdict import Verdict

AT_ONCE = 6
"""Broken backends that are tried side by side."""
TRIES = 3
"""A machine that stands still for a moment hides a defect: a lease that lasted too long is over, a race is not run."""


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


Report = Callable[[Bite], None]


def gaps() -> Iterator[str]:
    """What the catalogue lacks: rules that catch nothing, broken backends that nothing catches, names of none."""
    named = {name for rule in catalogue() for name in rule.catches}
    # Defects that show under faults and over processes need a store behind a wire: the suite's own tests have one.
    idle = [rule for rule in catalogue() if not (rule.catches or rule.needs or rule.level == "processes")]
    yield from (f"{rule.id} catches no broken backend" for rule in idle)
    yield from (f"{name}: no such broken backend" for name in sorted(named - MUTANTS.keys()))
    yield from (f"{name}: no rule says that it catches this" for name in MUTANTS if name not in named)


def meant(mutant: Mutant, *, every_rule: bool = False) -> list[Rule]:
    """The rules that say they catch it, or all that can be run against it."""
    applying = [rule for rule in catalogue() if rule.applies(mutant.target)]
    return [rule for rule in applying if every_rule or mutant.name in rule.catches]


def planned(mutants: Iterable[str] | None = None, *, every_rule: bool = False) -> list[tuple[Mutant, list[Rule]]]:
    """What is to be run: each broken backend, or those named, with the rules for it."""
    names = MUTANTS if mutants is None else mutants
    return [(MUTANTS[name], meant(MUTANTS[name], every_rule=every_rule)) for name in names]


async def bites(
    *, seed: int, report: Report, mutants: Iterable[str] | None = None, every_rule: bool = False
) -> list[Bite]:
    """Run each broken backend, or those named, against every rule that lists it, or against all there are."""
    found: list[Bite] = []
    places = asyncio.Semaphore(AT_ONCE)

    async def try_one(mutant: Mutant, rules: Sequence[Rule]) -> None:
        async with places:
            for bite in await _bitten(mutant, rules, seed, tries=1 if every_rule else TRIES):
                found.append(bite)
                report(bite)

    plan = planned(mutants, every_rule=every_rule)
    async with asyncio.TaskGroup() as group:
        for mutant, rules in plan:
            group.create_task(try_one(mutant, [rule for rule in rules if rule.pace != "heavy"]))
    for mutant, rules in plan:  # these want the machine, and what is in it, for themselves
        await try_one(mutant, [rule for rule in rules if rule.pace == "heavy"])
    order = {name: number for number, name in enumerate(MUTANTS)}
    return sorted(found, key=lambda bite: (order[bite.mutant.name], bite.rule.id))


async def _bitten(mutant: Mutant, rules: Sequence[Rule], seed: int, *, tries: int) -> list[Bite]:
    """Each rule's bite; one that missed bites again."""
    if not rules:
        return []
    with mutant.target.serving(None, "auto") as url:
        verdicts = await Session(target=mutant.target, url=url, rules=rules, seed=seed).run()
    found = [Bite(rule, mutant, verdict) for rule, verdict in zip(rules, verdicts, strict=True)]
    missed = [bite.rule for bite in found if bite.verdict.outcome != "fail"]
    if tries == 1 or not missed:
        return found
    again = await _bitten(mutant, missed, seed, tries=tries - 1)
    return [bite for bite in found if bite.rule not in missed] + again


def run(*, seed: int, report: Report, mutants: Iterable[str] | None = None) -> list[str]:
    """Everything that is wrong with the suite's teeth, empty if nothing is."""
    named = list(MUTANTS if mutants is None else mutants)
    found = asyncio.run(bites(seed=seed, report=report, mutants=named))
    met = {(bite.rule.id, bite.mutant.name) for bite in found}
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


@contextmanager
def burners(count: int) -> Iterator[None]:
    """So many processes that do nothing but use the machine up."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def repeated(
    target: Target,
    *,
    times: int,
    load: int,
    report: Callable[[int, list[Verdict]], None],
    rules: Sequence[Rule] | None = None,
) -> list[Verdict]:
    """The verdicts that are no pass when a right target runs its rules so often, beside so many burners."""
    wrong: list[Verdict] = []
    applying = [rule for rule in catalogue() if rule.applies(target)]
    with burners(load):
        for turn in range(1, times + 1):
            with target.serving(None, "auto") as url:
                due = applying if rules is None else rules
                verdicts = asyncio.run(Session(target=target, url=url, rules=due, seed=turn).run())
            found = [verdict for verdict in verdicts if verdict.outcome != "pass"]
            report(turn, found)
            wrong += found
    return wrong
