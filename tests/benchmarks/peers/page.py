"""Makes the page of the results: its tables stand between marks, and no number in them is written by hand."""

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from peers.plan import IMPORTS, STORES, SUBJECTS, TENURE, WHY, Subject

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs/benchmarks/results.json"
PAGE = ROOT / "docs/benchmarks.md"
MARGIN = 1.1
"""Who is behind by less than this is not behind: rounds differ by as much."""
NEVER = float("inf")

Figure = Callable[[dict], float]


def read() -> dict:
    return json.loads(RESULTS.read_text("utf-8"))


def keep(results: dict) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def filled(text: str, results: dict) -> str:
    """The page with what the results give between its marks."""
    for name, make in PARTS.items():
        before, mark, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        assert end, f"{PAGE} needs a line <!-- {name} --> and, after it, <!-- end -->"
        text = f"{before}{mark}\n{make(results)}\n\n{end}{after}"
    return text


# Figures


def rounds(results: dict, measure: str, store: str, name: str) -> list[dict]:
    return results.get(measure, {}).get(store, {}).get(name, [])


def median(taken: list[dict], figure: Figure) -> float | None:
    """Of all rounds; None if it was not measured."""
    return statistics.median(map(figure, taken)) if taken else None


def cycle_ms(one: dict) -> float:
    return one["cycle"]["p50"]


def asked_ms(one: dict) -> float:
    return one["asked"]["p50"]


def pings(one: dict) -> float:
    return one["cycle"]["p50"] / one["ping"]["p50"]


def per_s(one: dict) -> float:
    return one["per_s"]


def took_s(one: dict) -> float:
    return NEVER if one["s"] is None else one["s"]


def late_ms(quantile: str) -> Figure:
    return lambda one: one["late_ms"][quantile]


def start_s(one: dict) -> float:
    return one["start_s"]


def bytes_per_job(one: dict) -> float:
    return one["bytes_per_job"]


COMPARED: dict[str, tuple[str, str, Figure, str]] = {
    "claim and finish": ("cycle", "lower", cycle_ms, "ms"),
    "asked until run": ("asked", "lower", asked_ms, "ms"),
    "runs, 50 at a time": ("runs", "higher", per_s, "a second"),
    "runs that wait": ("waiting", "higher", per_s, "a second"),
    "takeover": ("worker", "lower", took_s, "s"),
    "lateness, median": ("burst", "lower", late_ms("p50"), "ms"),
    "lateness, 99 %": ("burst", "lower", late_ms("p99"), "ms"),
    "lateness, last": ("burst", "lower", late_ms("max"), "ms"),
    "start": ("burst", "lower", start_s, "s"),
    "memory": ("burst", "lower", bytes_per_job, "bytes a job"),
}
"""What is compared: the measure, which figure is the better one, and how it is read."""


def behind(results: dict) -> Iterator[tuple[str, str, str, float, float]]:
    """Where a peer is better: what, on which store, which peer, tenure's figure and the peer's."""
    for what, (measure, better, figure, _) in COMPARED.items():
        for store in STORES:
            ours = median(rounds(results, measure, store, TENURE), figure)
            for name, taken in results.get(measure, {}).get(store, {}).items():
                theirs = median(taken, figure)
                if theirs is not None and ours is not None and _worse(ours, theirs, better):
                    yield what, store, name, ours, theirs
    yield from _slower_imports(results["imports"])


def _worse(ours: float, theirs: float, better: str) -> bool:
    return ours > theirs * MARGIN if better == "lower" else ours * MARGIN < theirs


def _slower_imports(taken: dict) -> Iterator[tuple[str, str, str, float, float]]:
    ours = {one.store: taken[one.name]["ms"] for one in IMPORTS if one.name.startswith(TENURE)}
    for one in IMPORTS:
        if _worse(ours[one.store], taken[one.name]["ms"], "lower"):
            yield "import", one.store, one.name, ours[one.store], taken[one.name]["ms"]


# Parts of the page


def machine(results: dict) -> str:
    at, stores = results["machine"], results["stores"]
    peers = ", ".join(sorted(results["versions"].values(), key=str.lower)).replace("==", " ")
    first = "before all other programs of the machine" if at["first_in_line"] else "beside all other programs"
    return (
        f"{at['date']}, {at['cpu']}, {at['cores']} cores, {at['system']}, Python {at['python']}; {first}.\n"
        f"tenure {at['tenure']} at `{at['commit']}`; {peers}.\n"
        f"{', '.join(stores[store] for store in stores)}; all on the same machine, reached over loopback."
    )


def shared(results: dict) -> str:
    """The table of those that share a store."""
    columns = ("claim and finish, ms", "in pings", "asked until run, ms", "runs/s", "waiting/s", "takeover, s")
    lines = [f"| | | {' | '.join(columns)} |", f"| --- | --- |{' --- |' * len(columns)}"]
    lines += [_shared_row(results, subject) for subject in SUBJECTS if subject.store != "memory"]
    return "\n".join(lines)


def _shared_row(results: dict, subject: Subject) -> str:
    def of(measure: str) -> list[dict]:
        return rounds(results, measure, subject.store, subject.name)

    cells = [
        STORES[subject.store],
        subject.name,
        shown(median(of("cycle"), cycle_ms)),
        shown(median(of("cycle"), pings)),
        shown(median(of("asked"), asked_ms)),
        _with_default(median(of("runs"), per_s), median(of("runs_by_default"), per_s)),
        shown(median(of("waiting"), per_s)),
        _with_default(_span(of("worker")), _span(of("worker_by_default"))),
    ]
    return f"| {' | '.join(cells)} |"


def _with_default(value: float | str | None, default: float | str | None) -> str:
    told = value if isinstance(value, str) else shown(value)
    by_default = default if isinstance(default, str) else shown(default)
    return f"{told}; {by_default} by default" if by_default else told


def _span(taken: list[dict]) -> str:
    """The median, the least and the most."""
    if not taken:
        return ""
    times = [took_s(one) for one in taken]
    if min(times) == NEVER:
        return "never"
    return f"{shown(statistics.median(times))} ({shown(min(times))} to {shown(max(times))})"


def alone(results: dict) -> str:
    """The table of those that run without a store."""
    lines = [
        "| | late by, ms: median | 99 % | the last | start, s | bytes a job |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, taken in results["burst"]["memory"].items():
        figures = (late_ms("p50"), late_ms("p99"), late_ms("max"), start_s, bytes_per_job)
        lines.append(f"| {name} | {' | '.join(shown(median(taken, figure)) for figure in figures)} |")
    return "\n".join(lines)


def imports(results: dict) -> str:
    lines = ["| | | ms |", "| --- | --- | --- |"]
    ordered = sorted(IMPORTS, key=lambda one: results["imports"][one.name]["ms"])
    lines += [f"| {one.name} | `{one.code}` | {shown(results['imports'][one.name]['ms'])} |" for one in ordered]
    return "\n".join(lines)


def work(_: dict) -> str:
    """What each does for the same work."""
    lines = ["| | | a slot claimed and finished | what stands for a lease of 2 s |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {STORES[subject.store]} | {subject.name} | {subject.cycle} | {subject.takeover} |"
        for subject in SUBJECTS
        if subject.store != "memory"
    ]
    return "\n".join(lines)


def reasons(results: dict) -> str:
    """Each figure in which a peer is better by more than the margin, and why. KeyError if nobody has said why."""
    lines = [
        f"- **{what}, {STORES[store]}: {name}** {shown(theirs)}, tenure {shown(ours)}. {WHY[what, store, name]}"
        for what, store, name, ours, theirs in behind(results)
    ]
    return "\n".join(lines) or "Nowhere in this run."


def shown(value: float | None) -> str:
    """Three digits that count; nothing if it was not measured."""
    if value is None:
        return ""
    if value == NEVER:
        return "never"
    digits = next((digits for limit, digits in ((1, 3), (10, 2), (100, 1)) if abs(value) < limit), 0)
    return f"{value:,.{digits}f}"


PARTS: dict[str, Callable[[dict], str]] = {
    "machine": machine,
    "shared": shared,
    "alone": alone,
    "imports": imports,
    "work": work,
    "reasons": reasons,
}


def make() -> None:
    """Write the page and its plots anew."""
    from peers.drawing import draw  # which needs matplotlib, and a test of the page does not

    results = read()
    PAGE.write_text(filled(PAGE.read_text("utf-8"), results), "utf-8")
    draw(results)
