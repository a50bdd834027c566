"""One run of rules against one target: what runs beside what, repetition on a slow machine, verdicts."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tenure.errors import TenureError

from tenure_conformance import assertion
from tenure_conformance.bench import Bench
from tenure_conformance.rule import Rule
from tenure_conformance.target import Target, TargetError
from tenure_conformance.timing import Uncertain
from tenure_conformance.verdict import Call, Verdict
from tenure_conformance.waivers import Waiver, waived

TRIES = 5
"""The lease of a timed rule is doubled four times before the rule is inconclusive."""
RULE_SECONDS = 300
"""A rule that takes longer is inconclusive: each of its calls answered in time, so the machine is too slow."""
SIDE_BY_SIDE = 24
"""Timed rules that run at once; they mostly sleep."""
QUICK = 8
"""Other rules that run at once."""
PROCESSES = 4
"""Rules with processes that run at once; starting one takes a core for a moment."""

Report = Callable[[Rule, Verdict], None]


@dataclass(kw_only=True)
class Session:
    """Rules to be run against a target on a URL; ``verdicts`` fills while ``run`` runs."""

    target: Target
    url: str
    rules: Sequence[Rule]
    seed: int = 1
    waivers: Mapping[str, Waiver] = field(default_factory=dict)
    report: Report = lambda _rule, _verdict: None
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    name: str = field(default_factory=lambda: os.urandom(4).hex())

    async def run(self) -> list[Verdict]:
        """Every rule's verdict, in the rules' order; TargetError if the target cannot be entered at all."""
        due = [rule for rule in self.rules if rule.applies(self.target)]
        for rule in self.rules:
            if rule not in due:
                self._say(rule, Verdict(rule=rule.id, outcome="not-applicable", reason=_why_not(rule, self.target)))
        if due:
            await self._enter_once()
        await self._run_all([rule for rule in due if rule.pace == "timed"], SIDE_BY_SIDE)
        await self._run_all([rule for rule in due if rule.pace == "quick"], QUICK)
        await self._run_all([rule for rule in due if rule.pace == "process"], PROCESSES)
        await self._run_all([rule for rule in due if rule.pace == "heavy"], 1)
        return [self.verdicts[rule.id] for rule in self.rules]

    async def _enter_once(self) -> None:
        """A store that is not there is no failure of the backend's."""
        try:
            async with asyncio.timeout(60), self.target.open(self.url, f"tc-{self.name}-enter"):
                pass
        except (TenureError, OSError) as error:
            raise TargetError(f"{self.target.name}: cannot be entered: {type(error).__name__}: {error}") from error

    async def _run_all(self, rules: Iterable[Rule], at_once: int) -> None:
        places = asyncio.Semaphore(at_once)

        async def run_one(rule: Rule) -> None:
            async with places:
                verdict = await self.verdict(rule)
            self._say(rule, waived(verdict, self.waivers.get(rule.id)))

        async with asyncio.TaskGroup() as group:
            for rule in rules:
                group.create_task(run_one(rule))

    async def verdict(self, rule: Rule) -> Verdict:
        """Run one rule, with doubled leases for as long as the machine is too slow for it."""
        begun = time.monotonic()
        verdict = Verdict(rule=rule.id, outcome="inconclusive")
        leases_ms: tuple[int, ...] = ()
        for number in range(TRIES):
            leases_ms = (*leases_ms, self.target.lease_ms * 2**number)
            verdict = await self._try(rule, number, leases_ms[-1])
            if verdict.outcome != "inconclusive":
                break
        return replace(verdict, leases_ms=leases_ms, seconds=time.monotonic() - begun)

    async def _try(self, rule: Rule, number: int, lease_ms: int) -> Verdict:
        calls: list[Call] = []
        namespace = f"tc-{self.name}-{rule.id.lower()}-{number}"
        opening = Bench.opened(
            self.target, self.url, namespace, lease_ms=lease_ms, seed=self.seed, calls=calls, salt=rule.id
        )
        limit = asyncio.timeout(RULE_SECONDS)
        try:
            async with limit, opening as bench:
                await rule.check(bench)
        except Exception as error:  # noqa: BLE001  # whatever a backend raises is a verdict on it
            too_long = Uncertain(f"did not end within {RULE_SECONDS} s")
            return _failed(rule, too_long if limit.expired() else error, calls)
        return Verdict(rule=rule.id, outcome="pass")

    def _say(self, rule: Rule, verdict: Verdict) -> None:
        self.verdicts[rule.id] = verdict
        self.report(rule, verdict)


def _why_not(rule: Rule, target: Target) -> str:
    missing = next((level for level in (rule.base, rule.level) if level not in target.levels), None)
    return f"the target does not declare {missing or f'the power {rule.needs} over its store'}"


def _failed(rule: Rule, error: BaseException, calls: list[Call]) -> Verdict:
    """The verdict for what a rule raised; of a group, for the first that says something about the backend."""
    while isinstance(error, BaseExceptionGroup):
        error = next((one for one in error.exceptions if not isinstance(one, Uncertain)), error.exceptions[0])
    told = tuple(calls)
    if isinstance(error, Uncertain):
        return Verdict(rule=rule.id, outcome="inconclusive", reason=str(error), calls=told)
    if isinstance(error, AssertionError):
        return Verdict(rule=rule.id, outcome="fail", reason=assertion.told(error), calls=told, error=error)
    reason = f"{type(error).__name__}: {error}"
    return Verdict(rule=rule.id, outcome="fail", reason=reason, crashed=True, calls=told, error=error)
