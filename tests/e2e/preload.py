"""A server that forks its workers after the application was loaded, and even after its scheduler was started."""

import logging
import os
import signal
import sys
import time
import warnings

from tenure import Scheduler

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
logging.getLogger("asyncio").setLevel(logging.ERROR)  # that a callback was slow is no news
url, period, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
scheduler = Scheduler(url, on_event=lambda event: say(event.kind, event.slot))


def say(*words):
    os.write(1, f"{' '.join(map(str, words))} {os.getpid()} {scheduler.instance}\n".encode())


@scheduler.every("sync", period, jitter="50ms")
def sync():
    pass


def serve():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    assert scheduler.instance is None
    assert [job.name for job in scheduler.jobs] == ["sync"]
    scheduler.start()
    say("ready", 0)
    try:
        while True:
            time.sleep(1)
    finally:
        scheduler.stop()
        say("stopped", 0)


scheduler.start()
say("ready", 0)
children = []
for _ in range(workers):
    child = os.fork()
    if child == 0:
        serve()
    children.append(child)

time.sleep(3)
for child in children:
    os.kill(child, signal.SIGTERM)
for child in children:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert scheduler.trigger("sync").result("20s")  # the parent's goes on
scheduler.stop()
say("stopped", 0)
