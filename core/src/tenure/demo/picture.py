"""The demo's story drawn: a lane per process, a table of the slots, the verdict."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tenure.demo.story import Act, AttemptStory, Story, WorkerStory, now_ms, slot_text

TITLE = "tenure demo"

_LEAST_CELL_MS = 150
_SPAN_MS = 18_000
_LABEL_CELLS = 18
_FATES = {
    "running": ("running", "cyan"),
    "success": ("done", "green"),
    "interrupted": ("interrupted", "yellow"),
    "killed": ("killed", "red"),
    "frozen": ("frozen", "blue"),
    "stopped": ("stopped", "yellow"),
}
_LEGEND = (
    ("█", "green", "runs"),
    ("█", "bright_yellow", "runs what it took over"),
    ("✗", "bold red", "killed"),
    ("░", "blue", "frozen"),
    ("⊘", "bold red", "write refused"),
    ("▼", "bold yellow", "stopped"),
)


def lanes(story: Story, width: int) -> RenderableType:
    """Who does what, when: the last seconds that fit into the width."""
    cells = max(width - _LABEL_CELLS, 20)
    cell_ms = max(_LEAST_CELL_MS, _SPAN_MS // cells)
    now = _end_ms(story) or now_ms()
    born_ms = min((worker.ready_ms for worker in story.workers.values() if worker.ready_ms), default=now)
    first_ms = max(born_ms, now - cells * cell_ms) // cell_ms * cell_ms
    times = range(first_ms, min(now, first_ms + cells * cell_ms), cell_ms)
    rows = [_Lane(story, worker, cell_ms).draw(times) for worker in story.workers.values()]
    return Group(_axis(times, cell_ms), *rows, _legend())


def _end_ms(story: Story) -> int | None:
    """When the last process ended; None while one lives."""
    ends = [worker.gone_ms for worker in story.workers.values()]
    return None if None in ends else max((end for end in ends if end), default=None)


class _Lane:
    """One process's line."""

    def __init__(self, story: Story, worker: WorkerStory, cell_ms: int) -> None:
        self._worker = worker
        self._cell_ms = cell_ms
        self._attempts = [attempt for attempt in story.attempts.values() if attempt.worker == worker.name]
        self._acts = [act for act in story.acts if act.worker == worker.name]

    def draw(self, times: Sequence[int]) -> Text:
        """A cell for each of the times."""
        label = f"{self._worker.name} pid {self._worker.pid}".ljust(_LABEL_CELLS - 2)
        text = Text.assemble((f"{label}  ", "bold" if self._worker.gone_ms is None else "dim"))
        for time_ms in times:
            text.append(*self._cell(time_ms))
        return text

    def _cell(self, from_ms: int) -> tuple[str, str]:
        worker, to_ms = self._worker, from_ms + self._cell_ms
        for act in self._acts:
            if from_ms <= act.at_ms < to_ms and act.deed in ("killed", "stopped"):
                return ("✗", "bold red") if act.deed == "killed" else ("▼", "bold yellow")
        if any(attempt.refused and from_ms <= (attempt.ended_ms or 0) < to_ms for attempt in self._attempts):
            return "⊘", "bold red"
        if worker.frozen_ms is not None and worker.frozen_ms < to_ms and from_ms < (worker.thawed_ms or to_ms):
            return "░", "blue"
        if worker.ready_ms is None or to_ms <= worker.ready_ms or (worker.gone_ms or to_ms) < to_ms:
            return " ", ""
        return self._run(from_ms, to_ms)

    def _run(self, from_ms: int, to_ms: int) -> tuple[str, str]:
        runs = [run for run in self._attempts if run.started_ms < to_ms and from_ms < (run.ended_ms or to_ms)]
        if not runs:
            return "·", "dim"
        run = max(runs, key=lambda run: (run.number, run.slot))
        if run.number > 1:
            return "█", "bright_yellow"
        return "█", "green" if run.slot // 1_000 % 2 else "dark_green"


def _axis(times: Sequence[int], cell_ms: int) -> Text:
    line = [" "] * len(times)
    for cell, time_ms in enumerate(times):
        second_ms = -(-time_ms // 2_000) * 2_000
        label = slot_text(second_ms)[3:]
        if second_ms - time_ms < cell_ms and cell + len(label) <= len(line):
            line[cell : cell + len(label)] = label
    return Text(" " * _LABEL_CELLS + "".join(line), style="dim")


def _legend() -> Text:
    text = Text(" " * _LABEL_CELLS)
    for glyph, style, meaning in _LEGEND:
        text.append(glyph, style).append(f" {meaning}   ", "dim")
    return text


def slot_table(story: Story) -> Table:
    """A row per slot: its attempts with their owners, and how long each takeover took."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in ("slot", "attempts", "owners", "takeover"):
        table.add_column(header)
    acts = {(act.slot, act.attempt): act for act in story.acts}
    for slot, attempts in story.by_slot().items():
        struck = [act for attempt in attempts if (act := acts.get((slot, attempt.number)))]
        owners = Text(" → ").join(map(_attempt, attempts))
        took = Text(", ".join(f"{_takeover(story, act)} after it was {act.deed}" for act in struck))
        table.add_row(slot_text(slot), str(len(attempts)), owners, took)
    return table


def _attempt(attempt: AttemptStory) -> Text:
    word, style = _FATES[attempt.fate]
    refused = ", then refused" if attempt.refused else ""
    return Text.assemble(f"{attempt.worker} ", (f"{word}{refused}", style))


def _takeover(story: Story, act: Act) -> str:
    took_ms = story.takeover_ms(act)
    return "none" if took_ms is None else f"{took_ms / 1_000:.2f} s"


def verdict(story: Story, found: list[str]) -> list[Text]:
    """The last lines: what is wrong, or what has been shown."""
    if found:
        return [Text(fault, style="bold red") for fault in found]
    count = len(story.by_slot())
    refused = sum(attempt.refused for attempt in story.attempts.values())
    took = ", ".join(f"{act.deed} {_takeover(story, act)}" for act in story.acts)
    owners = "stale owner" if refused == 1 else "stale owners"
    return [
        Text(f"{count} slots, each ran to success exactly once; none was lost", style="bold green"),
        Text(f"{len(story.acts)} takeovers ({took}), {refused} {owners} refused"),
    ]
