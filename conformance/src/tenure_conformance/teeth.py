"""Shows the proof of teeth: progress, and a table of what caught what."""

import os
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tenure_conformance import selftest
from tenure_conformance.mutants import MUTANTS
from tenure_conformance.selftest import Bite
from tenure_conformance.targets.memory import target as memory
from tenure_conformance.targets.sqlite import target as sqlite
from tenure_conformance.verdict import Verdict


def prove(console: Console, seed: int, names: Sequence[str] | None) -> bool:
    """Run the broken backends against the rules that list them; whether each is caught by each of these."""
    bites: list[Bite] = []
    total = sum(len(rules) for _, rules in selftest.planned(names))
    with _progress(console) as progress:
        task = progress.add_task("broken backends", total=total)

        def report(bite: Bite) -> None:
            bites.append(bite)
            progress.update(task, advance=1, description=bite.mutant.name)

        faults = selftest.run(seed=seed, report=report, mutants=names)
    _print_bites(console, bites, names)
    for fault in faults:
        console.print(fault, style="red", markup=False, highlight=False)
    caught = len({bite.mutant.name for bite in bites if bite.fault is None})
    count = len(MUTANTS if names is None else names)
    console.print(
        f"{caught} of {count} broken backends caught, in {len(bites)} trials; {len(faults)} faults of the suite"
    )
    return not faults


def show_matrix(console: Console, seed: int, names: Sequence[str] | None) -> None:
    """Print for each broken backend all rules that catch it."""
    for name, rules in selftest.matrix(seed=seed, mutants=names).items():
        console.print(f"{name}: {' '.join(rules) or 'nothing catches it'}", markup=False, highlight=False)


def repeat_loaded(console: Console, times: int) -> bool:
    """Run the right backends so often while every core is busy; whether no rule was ever falsely red."""
    wrong: list[Verdict] = []

    def report(turn: int, found: list[Verdict]) -> None:
        told = ", ".join(f"{verdict.rule} {verdict.outcome}: {verdict.reason}" for verdict in found)
        console.print(f"{turn} of {times}: {told or 'every rule passes'}", markup=False, highlight=False)

    for target in (memory, sqlite):
        console.print(f"{target.name}, with {_cores()} processes that only use the machine up", highlight=False)
        wrong += selftest.repeated(target, times=times, load=_cores(), report=report)
    failed = [verdict for verdict in wrong if verdict.outcome == "fail"]
    console.print(f"{len(failed)} false failures and {len(wrong) - len(failed)} inconclusive verdicts", highlight=False)
    return not failed


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _progress(console: Console) -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=console, transient=True)


def _print_bites(console: Console, bites: Sequence[Bite], names: Sequence[str] | None) -> None:
    by_mutant: dict[str, list[Bite]] = {name: [] for name in (MUTANTS if names is None else names)}
    for bite in bites:
        by_mutant[bite.mutant.name].append(bite)
    table = Table("broken backend", "its defect", "caught by", "not by", box=None)
    for name, its_bites in by_mutant.items():
        caught = sorted(bite.rule.id for bite in its_bites if bite.fault is None)
        missed = sorted(bite.rule.id for bite in its_bites if bite.fault is not None)
        table.add_row(name, MUTANTS[name].defect, " ".join(caught), f"[red]{' '.join(missed)}[/]")
    console.print(table)
