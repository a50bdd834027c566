"""Where the demo is watched: a live picture on a terminal, plain lines elsewhere."""

import time
from collections import deque
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from tenure.demo.picture import SUBTITLE, TITLE, lanes, slot_table, verdict
from tenure.demo.processes import Report
from tenure.demo.story import Story, slot_text

_LOG_LINES = 9
_REFRESH_S = 0.1
_STYLES = {
    "act": "bold",
    "takeover": "bright_yellow",
    "refused": "bold red",
    "interrupted": "yellow",
    "success": "green",
}


class PlainScreen:
    """A line for each thing that happens."""

    def __init__(self, console: Console, story: Story) -> None:
        self._console = console
        self._story = story
        self._started = time.monotonic()

    def __enter__(self) -> "PlainScreen":
        self._line(Text(f"{TITLE}: {SUBTITLE}"))
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        """See Screen."""
        self._line(_stamped(self._started, Text(f">> {text}", style=_STYLES["act"])))

    def told(self, worker: str, report: Report) -> None:
        """See Screen."""
        if line := narrated(self._story, worker, report):
            self._line(_stamped(self._started, line))

    def refresh(self) -> None:
        """See Screen."""

    def end(self, found: list[str]) -> None:
        """The table and the verdict."""
        self._line(Text())
        self._console.print(slot_table(self._story), soft_wrap=True)
        self._line(Text())
        for line in verdict(self._story, found):
            self._line(line)

    def _line(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


class LiveScreen:
    """Lanes that grow, with the latest lines below."""

    def __init__(self, console: Console, story: Story) -> None:
        self._console = console
        self._story = story
        self._started = time.monotonic()
        self._drawn = 0.0
        self._log: deque[Text] = deque(maxlen=_LOG_LINES)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> "LiveScreen":
        self._live.__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.__exit__(exc_type, exc, traceback)

    def say(self, text: str) -> None:
        """See Screen."""
        self._log.append(_stamped(self._started, Text(text, style=_STYLES["act"])))
        self._draw()

    def told(self, worker: str, report: Report) -> None:
        """See Screen."""
        line = narrated(self._story, worker, report)
        if line and report["kind"] != "success":
            self._log.append(_stamped(self._started, line))

    def refresh(self) -> None:
        """See Screen."""
        if time.monotonic() - self._drawn > _REFRESH_S:
            self._draw()

    def end(self, found: list[str]) -> None:
        """The picture of it all, the table and the verdict."""
        self._live.stop()
        self._console.print(whole_picture(self._story, found, self._console.width))

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._live.update(Group(_title(), Text(), lanes(self._story, self._console.width), Text(), *self._log))
        self._live.refresh()


def whole_picture(story: Story, found: list[str], width: int) -> RenderableType:
    """What is left on the screen in the end."""
    return Group(_title(), Text(), lanes(story, width), Text(), slot_table(story), Text(), *verdict(story, found))


def narrated(story: Story, worker: str, report: Report) -> Text | None:
    """A report as a line, None if it says nothing new."""
    kind = report["kind"]
    if kind == "ready":
        return Text(f"{worker} is ready, pid {story.workers[worker].pid}")
    if "slot" not in report:
        return None
    slot, attempt, fence = slot_text(report["slot"]), report["attempt"], report["fence"]
    match kind:
        case "start" if attempt > 1:
            lost = story.attempts.get((report["slot"], attempt - 1))
            whom = f" from {lost.worker}, {lost.fate}" if lost else ""
            text = f"{slot} {worker} takes over{whom}: attempt {attempt}, fence {fence}"
            return Text(text, style=_STYLES["takeover"])
        case "refused":
            newer = story.attempts.get((report["slot"], attempt + 1))
            seen = f", since it has seen {newer.fence}" if newer else ""
            return Text(f"{slot} {worker} is refused by the ledger: fence {fence}{seen}", style=_STYLES[kind])
        case "interrupted":
            told = (
                "has lost the run, and the store refuses its end" if report["reason"] != "stop" else "releases the run"
            )
            return Text(f"{slot} {worker} {told}: attempt {attempt}", style=_STYLES[kind])
        case "success":
            return Text(f"{slot} {worker} done: attempt {attempt}", style=_STYLES[kind])
    return None


def _title() -> Text:
    return Text.assemble((TITLE, "bold"), f"  {SUBTITLE}")


def _stamped(started: float, line: Text) -> Text:
    return Text.assemble((f"{time.monotonic() - started:5.1f} s  ", "dim"), line)
