"""The command: run the rules against a target, and read what came of it."""

import asyncio
import inspect
import json
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tenure_conformance import certificate, outputs, waivers
from tenure_conformance.report import RENDERERS, comparison
from tenure_conformance.rule import AREAS, Rule, catalogue, rule_set_hash, select
from tenure_conformance.session import Session
from tenure_conformance.target import LEVELS, SERVER_HELP, Server, TargetError, load
from tenure_conformance.verdict import OUTCOMES, Verdict

CERTIFIED, FAILED, NOT_CERTIFIED, CANNOT = 0, 1, 2, 3
STYLES = {"pass": "green", "fail": "red", "inconclusive": "yellow", "waived": "yellow", "not-applicable": "dim"}


class _Command(click.Group):
    """A group where all that is no verdict on the backend is exit code 3, and never 1 by accident."""

    def invoke(self, ctx: click.Context) -> Any:
        """See click."""
        try:
            return super().invoke(ctx)
        except TargetError as error:
            raise _Cannot(str(error)) from error
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeyboardInterrupt, click.Abort) as error:
            raise _Cannot("interrupted before every rule came to a verdict") from error
        except Exception as error:
            traceback.print_exc()
            raise _Cannot(f"{type(error).__name__}: {error}") from error


class _Cannot(click.ClickException):
    exit_code = CANNOT


@click.group(cls=_Command)
@click.version_option(package_name="tenure-conformance")
def main() -> None:
    """Certify a backend of tenure: exit code 0 certified, 1 a rule failed, 2 not certified, 3 could not be run."""


@main.command()
@click.argument("target")
@click.option("--url", help="A store that is there already; the target's own, or one that is started, unless given.")
@click.option("--server", "how", default="auto", show_default=True, help=f"How to start one: {SERVER_HELP}.")
@click.option("--level", "levels", multiple=True, type=click.Choice(LEVELS), help="Only rules of this level.")
@click.option("--rule", "globs", multiple=True, help="Only rules whose id fits, such as 'CLM-*'.")
@click.option("--seed", default=1, show_default=True, help="What is random follows from it.")
@click.option("--waivers", "waived", type=click.Path(path_type=Path), help="A TOML file of known failures.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Where to write the certificate.")
@click.option("--quiet", is_flag=True, help="Say the conclusion only.")
@click.pass_context
def run(
    ctx: click.Context,
    target: str,
    *,
    url: str | None,
    how: Server,
    levels: tuple[str, ...],
    globs: tuple[str, ...],
    seed: int,
    waived: Path | None,
    out: Path | None,
    quiet: bool,
) -> None:
    """Run the rules against TARGET: a built-in one (memory, sqlite, directory) or module:object."""
    console = Console(stderr=True)
    chosen, found = load(target), select(globs, levels)
    filtered = len(found) < len(catalogue())
    known = waivers.load(waived) if waived else {}
    begun = time.monotonic()
    with chosen.serving(url, how) as address, _Show(console, found, quiet=quiet) as show:
        session = Session(target=chosen, url=address, rules=found, seed=seed, waivers=known, report=show.verdict)
        verdicts = asyncio.run(session.run())
    document = certificate.write(
        chosen, found, verdicts, seed=seed, filtered=filtered, seconds=time.monotonic() - begun
    )
    if not quiet:
        _print_table(Console(), found, verdicts)
    for path in outputs.write(out, document, verdicts) if out else ():
        console.print(f"wrote {path}", style="dim")
    conclusion = certificate.conclude(document["claims"]["verdicts"], filtered=filtered)
    click.echo(f"{chosen.name}: {conclusion.sentence}")
    ctx.exit(conclusion.code)


class _Show(AbstractContextManager["_Show"]):
    """Progress while rules run: a bar, and each failure as it comes."""

    def __init__(self, console: Console, rules: Sequence[Rule], *, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, disable=quiet, transient=True)
        self._task: TaskID = self._progress.add_task("rules", total=len(rules))

    def __enter__(self) -> "_Show":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def verdict(self, rule: Rule, verdict: Verdict) -> None:
        """Show what a rule said."""
        self._progress.update(self._task, advance=1, description=rule.id)
        if self._quiet or verdict.outcome in ("pass", "not-applicable"):
            return
        style = STYLES[verdict.outcome]
        self._console.print(f"{rule.id} {verdict.outcome}: {rule.sentence}", style=style, markup=False, highlight=False)
        self._console.print(f"    {verdict.reason}", markup=False, highlight=False)


def _print_table(console: Console, rules: Sequence[Rule], verdicts: Sequence[Verdict]) -> None:
    by_area: dict[str, Counter[str]] = {}
    for rule, verdict in zip(rules, verdicts, strict=True):
        by_area.setdefault(rule.area, Counter())[verdict.outcome] += 1
    table = Table("area", "", *OUTCOMES, box=None)
    for area, counted in by_area.items():
        cells = [f"[{STYLES[kind]}]{counted[kind]}[/]" if counted[kind] else "" for kind in OUTCOMES]
        table.add_row(area, AREAS[area], *cells)
    console.print(table)


@main.command("list")
@click.option("--level", "levels", multiple=True, type=click.Choice(LEVELS))
@click.option("--rule", "globs", multiple=True)
def list_rules(levels: tuple[str, ...], globs: tuple[str, ...]) -> None:
    """List the rules: id, level, sentence."""
    for rule in select(globs, levels):
        click.echo(f"{rule.id}  {rule.level:10}  {rule.sentence}")


@main.command()
@click.argument("rule_id", metavar="RULE")
def explain(rule_id: str) -> None:
    """Explain a rule: what it says, where the protocol says so, what it catches, and how it looks."""
    for rule in select((rule_id,)):
        click.echo(f"{rule.id} ({AREAS[rule.area]}, level {rule.level}, since {rule.since})\n\n{rule.sentence}\n")
        click.echo("\n".join(f"docs/protocol.md#{anchor}" for anchor in rule.spec))
        if rule.catches:
            click.echo(f"\ncatches: {', '.join(rule.catches)}")
        click.echo(f"\n{inspect.getsource(rule.check)}")
        return
    raise _Cannot(f"there is no rule {rule_id}; see `tenure-conformance list`")


@main.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.pass_context
def diff(ctx: click.Context, before: Path, after: Path) -> None:
    """Compare two certificates: exit code 1 if a rule that passed does so no more."""
    one, other = _read_claims(before), _read_claims(after)
    found = certificate.differences(one, other)
    click.echo("\n".join(comparison.lines(one, other)))
    ctx.exit(FAILED if any(was == "pass" for _, was, _ in found) else CERTIFIED)


@main.command()
@click.argument("path", metavar="CERTIFICATE", type=click.Path(path_type=Path))
@click.pass_context
def verify(ctx: click.Context, path: Path) -> None:
    """Check a certificate: 1 if it was changed, 2 if it certifies nothing, or by other rules than these."""
    document = _read(path)
    if faults := certificate.faults(document):
        for fault in faults:
            click.echo(f"{path}: {fault}")
        ctx.exit(FAILED)
    claims = document["claims"]
    told = f"{path}: {claims['target']} {claims['version']} on {claims['store']}"
    if claims["rules"] != rule_set_hash():
        click.echo(f"{told}: intact, but of the rules of suite {claims['suite']}, which are not these")
        ctx.exit(NOT_CERTIFIED)
    click.echo(f"{told}: {'certified' if claims['certified'] else 'intact, and not certified'}")
    ctx.exit(CERTIFIED if claims["certified"] else NOT_CERTIFIED)


@main.command()
@click.argument("path", metavar="CERTIFICATE", type=click.Path(path_type=Path))
def badge(path: Path) -> None:
    """Print a certificate's badge as SVG."""
    click.echo(RENDERERS["badge.svg"](_read_claims(path), ()))


@main.command("selftest")
@click.option("--seed", default=1, show_default=True)
@click.option("--mutant", "names", multiple=True, help="Only this broken backend.")
@click.option("--matrix", is_flag=True, help="Show which rules catch it, of all there are; this takes long.")
@click.option("--repeat", default=0, help="Instead, run the right backends so often while every core is busy.")
@click.pass_context
def self_test(ctx: click.Context, seed: int, names: tuple[str, ...], repeat: int, *, matrix: bool) -> None:
    """Prove that the rules bite: run each broken backend against the rules that say they catch it."""
    from tenure_conformance.mutants import MUTANTS  # only here, since broken backends take a while to build
    from tenure_conformance.teeth import prove, repeat_loaded, show_matrix

    unknown = [name for name in names if name not in MUTANTS]
    if unknown:
        raise _Cannot(f"there is no broken backend {unknown[0]!r}")
    console = Console()
    if repeat:
        ctx.exit(CERTIFIED if repeat_loaded(console, repeat) else FAILED)
    if matrix:
        show_matrix(console, seed, names or None)
        return
    ctx.exit(CERTIFIED if prove(console, seed, names or None) else FAILED)


def _read_claims(path: Path) -> certificate.Document:
    """A certificate that says something, whether or not it is true: see `verify`."""
    document = _read(path)
    if not {"claims", "digest"} <= document.keys() or not isinstance(document["claims"], dict):
        raise _Cannot(f"{path}: not a certificate")
    return document


def _read(path: Path) -> certificate.Document:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise _Cannot(f"{path}: cannot be read as a certificate: {error}") from error
    if not isinstance(document, dict):
        raise _Cannot(f"{path}: not a certificate")
    return document


if __name__ == "__main__":
    main()
