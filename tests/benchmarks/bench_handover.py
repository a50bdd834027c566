"""How soon a run that a stopping process gives back runs elsewhere: python tests/benchmarks/bench_handover.py [NAME…]

Three real processes share a job whose one run lasts for as long as there is a holder. Each deploy starts a fourth and
sends the holder SIGTERM; its handler raises at once, so the run is released. Measured is the time from that SIGTERM,
and from the moment at which the handler was left, until the handler runs in another process. NAME is a store whose
server the conformance suite can start; without hints, as with SQLite, a backup looks once in one to two heartbeats.
"""

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from queue import Queue
from threading import Thread
from uuid import uuid4

from tenure import Scheduler, connect

STORES = ("redis", "postgres", "etcd", "mongo", "dynamodb", "sqlite")
PROCESSES = 3
LEASE = "3s"
PATIENCE_S = 60


class Leaving(Exception):
    """The handler ends since it was asked to."""


def work(url, namespace, anchor):
    """What a process of the application does."""

    def tell(word):
        print(word, time.time(), flush=True)

    async def handler(ctx):
        tell("begun")
        await ctx.signal.wait_async()
        tell("left")
        raise Leaving

    scheduler = Scheduler(connect(url, namespace=namespace))
    scheduler.every("deploy", "1h", handler, lease=LEASE, anchor=datetime.fromisoformat(anchor), catch_up="1h")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before there are other threads: it is waited for here
    scheduler.start()
    tell("ready")
    signal.sigwait({signal.SIGTERM})
    scheduler.stop()


class Process:
    """A process of the application; what it tells goes to the queue with it."""

    def __init__(self, told, *arguments):
        command = [sys.executable, __file__, "--work", *arguments]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._told = told
        Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.popen.stdout:
            word, at = line.split()
            self._told.put((self, word, float(at)))

    def end(self):
        self.popen.terminate()


@contextmanager
def fleet(url):
    """Gives a function that starts one more process, and what all of them tell."""
    told = Queue()
    anchor = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    processes = []
    namespace = f"bench-{uuid4().hex}"

    def start():
        processes.append(Process(told, url, namespace, anchor))
        return processes[-1]

    try:
        yield start, told
    finally:
        for process in processes:
            process.popen.kill()
            process.popen.wait()


def wait_for(told, *words):
    """Who told each of them, and when; what two processes tell one after the other may arrive the other way round."""
    found = {}
    while not found.keys() >= set(words):
        process, said, at = told.get(timeout=PATIENCE_S)
        found[said] = process, at
    return [found[word] for word in words]


def deploys(url, count):
    """Milliseconds from SIGTERM, and from the end of the handler, to the handler elsewhere."""
    from_signal, from_end = [], []
    with fleet(url) as (start, told):
        for _ in range(PROCESSES):
            start()
        ((holder, _),) = wait_for(told, "begun")
        for _ in range(count):
            start()
            wait_for(told, "ready")
            time.sleep(0.3)  # a deploy goes on once the new process is settled
            asked = time.time()
            holder.end()
            (_, left), (holder, begun) = wait_for(told, "left", "begun")
            from_signal.append((begun - asked) * 1_000)
            from_end.append((begun - left) * 1_000)
    return from_signal, from_end


@contextmanager
def url_of(name):
    if name == "sqlite":
        with tempfile.TemporaryDirectory() as directory:
            yield f"sqlite:///{directory}/jobs.db"
    else:
        with import_module(f"tenure_conformance.targets.{name}").server.serve("binary") as url:
            yield url


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("names", nargs="*", default=STORES, metavar="NAME")
    arguments.add_argument("--deploys", type=int, default=50)
    given = arguments.parse_args()
    for name in given.names:
        with url_of(name) as url:
            for what, times in zip(("SIGTERM", "the handler's end"), deploys(url, given.deploys), strict=True):
                p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
                print(f"{name:9} {len(times)} deploys, from {what:17} p50 {p50:6.1f} ms  p99 {p99:6.1f} ms", flush=True)


if __name__ == "__main__":
    work(*sys.argv[2:]) if sys.argv[1:2] == ["--work"] else main()
