"""Draws the results, in colours that can be told apart on white and on black."""

import hashlib
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib as mpl
from matplotlib import pyplot
from matplotlib.axes import Axes
from peers.page import NEVER, RESULTS, cycle_ms, median, per_s, rounds, took_s
from peers.plan import STORES, SUBJECTS, TENURE
from peers.running import NEVER_S

INK, OURS, THEIRS = "#808890", "#e8743b", "#6f8fb5"
SHARING = [store for store in STORES if store != "memory"]
WIDTH_IN = 8.0


def draw(results: dict) -> None:
    """Write the plots beside the results."""
    with _plot("claim", "A slot claimed and finished, ms (median)") as axes:
        _bars(axes, _shared(results, "cycle", cycle_ms))
    with _plot("runs", "Whole runs a second, 50 at a time") as axes:
        _bars(axes, _shared(results, "runs", per_s))
    with _plot("takeover", "From SIGKILL of the holder to the next attempt, s (lease or its like: 2 s)") as axes:
        _takeovers(axes, results)
    with _plot("lateness", "10,000 jobs due in one second: late by, ms (median, 99 %, the last)") as axes:
        _lateness(axes, results)


def digest() -> str:
    """What a plot says about the results it is of."""
    return hashlib.sha256(RESULTS.read_bytes()).hexdigest()


@contextmanager
def _plot(name: str, title: str) -> Iterator[Axes]:
    ink = dict.fromkeys(("text.color", "axes.edgecolor", "xtick.color", "ytick.color", "axes.labelcolor"), INK)
    with mpl.rc_context(ink | {"svg.hashsalt": name, "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure, axes = pyplot.subplots(figsize=(WIDTH_IN, 1))
        yield axes
        axes.set_title(title, fontsize=11, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.invert_yaxis()
        figure.set_size_inches(WIDTH_IN, 0.7 + 0.28 * len(axes.get_yticks()))
        figure.savefig(
            RESULTS.parent / f"{name}.svg",
            transparent=True,
            bbox_inches="tight",
            metadata={"Date": None, "Description": f"results.json {digest()}"},
        )
        pyplot.close(figure)


def _shared(results: dict, measure: str, figure) -> list[tuple[str, str, float]]:
    """The store, the name and the figure of those that share a store."""
    rows = [
        (subject.store, subject.name, median(rounds(results, measure, subject.store, subject.name), figure))
        for subject in SUBJECTS
        if subject.store in SHARING
    ]
    return [row for row in rows if row[2] is not None]


def _bars(axes: Axes, rows: list[tuple[str, str, float]]) -> None:
    values = [value for _, _, value in rows]
    bars = axes.barh(range(len(rows)), values, color=[_colour(name) for _, name, _ in rows])
    axes.bar_label(bars, [f"{value:,.2f}" if value < 100 else f"{value:,.0f}" for value in values], padding=4)
    axes.get_xaxis().set_visible(False)
    axes.spines["bottom"].set_visible(False)
    _name_rows(axes, [f"{name}, {STORES[store]}" for store, name, _ in rows])


def _takeovers(axes: Axes, results: dict) -> None:
    """A dot for each try; those that did not happen stand at the edge."""
    taken = [
        (
            f"{subject.name}{more}, {STORES[subject.store]}",
            subject.name,
            rounds(results, measure, subject.store, subject.name),
        )
        for subject in SUBJECTS
        for measure, more in (("worker", ""), ("worker_by_default", " by default"))
        if rounds(results, measure, subject.store, subject.name)
    ]
    for row, (_, name, tries) in enumerate(taken):
        times = [min(took_s(one), NEVER_S) for one in tries]
        axes.plot(times, [row] * len(times), "o", color=_colour(name), alpha=0.8)
        if any(took_s(one) == NEVER for one in tries):
            axes.text(NEVER_S - 0.2, row, f"not within {NEVER_S} s", va="center", ha="right")
    axes.set_xlim(0, NEVER_S + 0.2)
    _name_rows(axes, [label for label, _, _ in taken])


def _lateness(axes: Axes, results: dict) -> None:
    taken = results["burst"]["memory"]
    for row, (name, tries) in enumerate(taken.items()):
        p50, p99, last = (statistics.median(one["late_ms"][at] for one in tries) for at in ("p50", "p99", "max"))
        axes.barh(row, last, color=_colour(name), alpha=0.35)
        axes.barh(row, p50, color=_colour(name))
        axes.plot([p99, p99], [row - 0.4, row + 0.4], color=INK)
        axes.text(last, row, f"  {p50:,.0f}, {p99:,.0f}, {last:,.0f}", va="center")
    _name_rows(axes, list(taken))


def _name_rows(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names)


def _colour(name: str) -> str:
    return OURS if name == TENURE else THEIRS
