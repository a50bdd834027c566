"""Plays the demo on a screen, and keeps its last picture."""

import io
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType

from tenure.demo.director import Director
from tenure.demo.place import Place, own_file
from tenure.demo.screens import LiveScreen, PlainScreen
from tenure.demo.story import Story

_RECORDED_WIDTH = 112


def playable() -> bool:
    """Whether this system has the signals that the demo is about."""
    return hasattr(signal, "SIGSTOP") and hasattr(signal, "pthread_sigmask")


def play(console: Console, *, place: Place | None = None, record: Path | None = None) -> bool:
    """Play the demo, half a minute at most; whether all was as it should be.

    Without a ``place`` it is a SQLite file of the demo's own. ``record`` is a file that gets the last picture, as SVG.
    No process and no file of the demo is left, also after a Ctrl-C or a SIGTERM, which raise KeyboardInterrupt.
    """
    live = console.is_terminal and not console.is_dumb_terminal
    with _interruptible(), tempfile.TemporaryDirectory(prefix="tenure-demo-") as directory:
        place = place or own_file(Path(directory))
        story = Story(place.subtitle)
        screen = LiveScreen(console, story) if live else PlainScreen(console, story)
        with screen:
            found = Director(place, Path(directory), story, screen).play()
        screen.end(found)
    if record is not None:
        _record(record, screen.picture(found, _RECORDED_WIDTH))
    return not found


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP clean up as Ctrl-C does."""
    before = {signum: signal.signal(signum, signal.default_int_handler) for signum in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _record(path: Path, picture: RenderableType) -> None:
    console = Console(record=True, width=_RECORDED_WIDTH, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    console.print(picture)
    path.write_text(console.export_svg(title="$ tenure demo"), encoding="utf-8")
