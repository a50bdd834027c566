"""Freeze a holder in the middle of its work, and see its write refused: ``python freeze.py sql totals.db``."""

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GUARDS = sorted(path.name.removesuffix("_totals.py") for path in Path(__file__).parent.glob("*_totals.py"))
USAGE = f"""\
usage: python freeze.py GUARD PLACE [STORE]
GUARD  {", ".join(GUARDS)}
PLACE  where its totals are: a file, a directory, a URL, or the name of a table or bucket
STORE  where tenure keeps its leases; a file of SQLite unless given"""
PATIENCE_S = 60


class Holder:
    """A process whose handler waits for a word before it writes."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("holder.py")), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def says(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"it ended, or said nothing for {PATIENCE_S} s")
        return line

    def writes(self) -> str:
        """Let it write; what became of that."""
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()
        return self.says()


@contextmanager
def holding(*arguments: str) -> Iterator[Holder]:
    """A holder that works."""
    holder = Holder(*arguments)
    limit = threading.Timer(PATIENCE_S, holder.process.kill)
    limit.start()
    try:
        holder.says()
        yield holder
    finally:
        limit.cancel()
        holder.process.kill()
        holder.process.communicate()


def freeze(guard: str, place: str, store: str) -> None:
    """Tell what happens."""
    with holding(guard, place, store, "first") as first:
        first.process.send_signal(signal.SIGSTOP)
        print("first:  has taken the total, and is frozen")
        with holding(guard, place, store, "second") as second:
            print("second: has taken the run over, and the total")
            first.process.send_signal(signal.SIGCONT)
            print("first:  wakes, and writes:", first.writes())
            print("second: writes:", second.writes())


def main(words: list[str]) -> None:
    """Freeze as the words of the command say; how to write them, if they are wrong."""
    if len(words) not in (2, 3) or words[0] not in GUARDS:
        sys.exit(USAGE)
    with tempfile.TemporaryDirectory() as directory:
        guard, place, store = [*words, f"sqlite:///{directory}/jobs.db"][:3]
        freeze(guard, place, store)


if __name__ == "__main__":
    main(sys.argv[1:])
