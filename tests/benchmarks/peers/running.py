"""Runs the scripts, each with the interpreter of an environment of its own, and reads what they print."""

import functools
import json
import math
import os
import queue
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from peers.measure import LEASE_S
from peers.plan import OURS, Import, Subject

HERE = Path(__file__).parent
LIMIT_S = 120
READY_S = 30
SETTLED_S = 0.5
"""After a process is ready, until it is a backup: it looks at what others run once more."""
COMPILING = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Or what is imported would be compiled each time, where an installer has not done so."""
NEVER_S = 15
"""How long a takeover is waited for: several times the setting."""


@functools.cache
def interpreter(script: str) -> str:
    """Of an environment that has what the script's header pins; tenure's own is the one that runs this."""
    if script == OURS:
        return sys.executable
    _uv("sync", "--quiet", "--python", sys.executable, "--script", str(HERE / script))
    return _uv("python", "find", "--script", str(HERE / script)).strip()


def _uv(*arguments: str) -> str:
    unbound = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    return subprocess.run(["uv", *arguments], check=True, stdout=subprocess.PIPE, text=True, env=unbound).stdout


def pinned(script: str) -> str:
    """What the script's header asks for first: the peer and its version."""
    text = (HERE / script).read_text("utf-8")
    return re.search(r'"(\w[\w-]*)(?:\[[\w,]+\])?(==[\w.]+)"', text).expand(r"\1\2")


def measured(subject: Subject, measure: str, *arguments: str, **environment: str) -> dict:
    """What a function of the script gives."""
    done = subprocess.run(
        [interpreter(subject.script), str(HERE / subject.script), measure, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=COMPILING | environment,
    )
    if done.returncode:
        raise SystemExit(f"{subject.name}, {measure}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def import_ms(one: Import, rounds: int = 15) -> dict:
    """How much longer a process takes that imports it than one that does nothing, in turns."""
    _process_ms(one.script, one.code)  # which compiles it
    more = [_process_ms(one.script, one.code) - _process_ms(one.script, "pass") for _ in range(rounds)]
    return {"ms": statistics.median(more)}


def _process_ms(script: str, code: str) -> float:
    started = time.perf_counter()
    subprocess.run([interpreter(script), "-c", code], check=True, env=COMPILING)
    return (time.perf_counter() - started) * 1_000


def takeover(subject: Subject, measure: str, url: str, part: float) -> dict:
    """Seconds from the SIGKILL of the process that runs a job until another one runs it; None if it never does.

    ``part``, from 0 to 1, is where in the lease's time the kill falls, counted from the run's begin. Heartbeats
    come in thirds of it or halves, so tries that differ in it fall at other moments between two of them.
    """
    name = f"bench_{uuid4().hex[:12]}"
    with _worker(subject, measure, url, name) as holder:
        holder.heard("ready", READY_S)
        holder.tell("begin")
        began = holder.heard("run", READY_S)
        with _worker(subject, measure, url, name) as backup:
            whole = math.ceil((backup.heard("ready", READY_S) + SETTLED_S - began) / LEASE_S)
            time.sleep(began + (whole + part) * LEASE_S - time.time())
            killed = time.time()
            holder.process.kill()
            try:
                return {"s": backup.heard("run", NEVER_S) - killed}
            except queue.Empty:
                return {"s": None}


class Worker:
    """A process of a peer, and the words that it prints with their times."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._words: queue.Queue[tuple[str, float]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            word, _, at = line.partition(" ")
            if word in {"ready", "run"}:
                self._words.put((word, float(at)))

    def tell(self, word: str) -> None:
        print(word, file=self.process.stdin, flush=True)

    def heard(self, wanted: str, within_s: float) -> float:
        """When it said so; queue.Empty if it does not in that time."""
        word, at = self._words.get(timeout=within_s)
        assert word == wanted, f"{word} before {wanted}"
        return at


@contextmanager
def _worker(subject: Subject, measure: str, url: str, name: str) -> Iterator[Worker]:
    worker = Worker([interpreter(subject.script), str(HERE / subject.script), measure, url, name])
    try:
        yield worker
    finally:
        worker.process.kill()
        worker.process.wait()
