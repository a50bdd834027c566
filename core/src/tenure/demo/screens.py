"""Where the demo is watched: a live picture on a terminal, plain lines elsewhere."""

import time
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from tenure.demo.picture import TITLE, lanes, slot_table, verdict
from tenure.demo.processes import Report
from tenure.demo.story import Story, slot_text

_LOG_LINES = 9
_REFRESH_S = 0.1
_NOTABLE = {"start", "refused", "interrupted"}
_STYLES = {"start": "bright_yellow", "refused": "bold red", "interrupted": "yellow", "success": "green"}


class PlainScreen:
    """A line for each thing that happens."""

    def __init__(self, console: Console, story: Story) -> None:
        self._console = console
        self._story = story
        self._log = Log(story)

    def __enter__(self) -> "PlainScreen":
        self._print(Text(f"{TITLE}: {self._story.subtitle}"))
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        """See Screen."""
        self._print(self._log.act(text))

    def told(self, worker: str, report: Report) -> None:
        """See Screen."""
        if line := self._log.report(worker, report):
            self._print(line)

    def refresh(self) -> None:
        """See Screen."""

    def end(self, found: list[str]) -> None:
        """The table and the verdict."""
        lines: list[RenderableType] = [Text(), slot_table(self._story), Text(), *verdict(self._story, found)]
        for line in lines:
            self._print(line)

    def picture(self, found: list[str], width: int) -> RenderableType:
        """What a terminal would show in the end."""
        return whole_picture(self._story, self._log, found, width)

    def _print(self, line: RenderableType) -> None:
        self._console.print(line, soft_wrap=True)


class LiveScreen:
    """Lanes that grow, with the latest lines below."""

    def __init__(self, console: Console, story: Story) -> None:
        self._console = console
        self._story = story
        self._log = Log(story)
        self._drawn = 0.0
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
        self._log.act(text)
        self._draw()

    def told(self, worker: str, report: Report) -> None:
        """See Screen."""
        self._log.report(worker, report)

    def refresh(self) -> None:
        """See Screen."""
        if time.monotonic() - self._drawn > _REFRESH_S:
            self._draw()

    def end(self, found: list[str]) -> None:
        """The picture of it all, the table and the verdict."""
        self._console.print(self.picture(found, self._console.width))

    def picture(self, found: list[str], width: int) -> RenderableType:
        """What the terminal shows in the end."""
        return whole_picture(self._story, self._log, found, width)

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        now = Group(
            _title(self._story),
            Text(),
            lanes(self._story, self._console.width),
            Text(),
            *self._log.notable[-_LOG_LINES:],
        )
        self._live.update(now, refresh=True)


class Log:
    """What has happened, as lines; the notable ones are kept."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._started = time.monotonic()
        self.notable: list[Text] = []

    def act(self, text: str) -> Text:
        """What is done, as a line."""
        line = self._stamped(Text(f"» {text}", style="bold"))
        self.notable.append(line)
        return line

    def report(self, worker: str, report: Report) -> Text | None:
        """A report as a line, None if it says nothing new."""
        text = narrated(self._story, worker, report)
        if text is None:
            return None
        line = self._stamped(text)
        if report["kind"] in _NOTABLE:
            self.notable.append(line)
        return line

    def _stamped(self, line: Text) -> Text:
        return Text.assemble((f"{time.monotonic() - self._started:5.1f} s  ", "dim"), line)


def whole_picture(story: Story, log: Log, found: list[str], width: int) -> RenderableType:
    """What is left on a terminal in the end."""
    parts = (Group(_title(story)), lanes(story, width), Group(*log.notable), slot_table(story))
    return Group(*(line for part in parts for line in (part, Text())), *verdict(story, found))


def narrated(story: Story, worker: str, report: Report) -> Text | None:
    """A report as a line, None if it says nothing new."""
    kind = report["kind"]
    if kind == "ready":
        return Text(f"{worker} is ready, pid {story.workers[worker].pid}")
    if "slot" not in report:
        return None
    words = _words(story, kind, report)
    return Text(f"{slot_text(report['slot'])} {worker} {words}", style=_STYLES[kind]) if words else None


def _words(story: Story, kind: str, report: Report) -> str | None:
    slot, attempt, fence = report["slot"], report["attempt"], report["fence"]
    match kind:
        case "start" if attempt > 1:
            lost = story.attempts.get((slot, attempt - 1))
            whom = f" from {lost.worker}, {lost.fate}" if lost else ""
            return f"takes over{whom}: attempt {attempt}, fence {fence}"
        case "refused":
            newer = story.attempts.get((slot, attempt + 1))
            seen = f", since it has seen {newer.fence}" if newer else ""
            return f"is refused by the ledger: fence {fence}{seen}"
        case "interrupted" if report["reason"] == "stop":
            return f"releases the run: attempt {attempt}"
        case "interrupted":
            return f"has lost the run, and the store refuses its end: attempt {attempt}"
        case "success":
            return f"done: attempt {attempt}"
    return None


def _title(story: Story) -> Text:
    return Text.assemble((TITLE, "bold"), f"  {story.subtitle}")
