"""A process that takes the total, works until it is told to go on, and saves; ``freeze.py`` starts two."""

import signal
import sys
from importlib import import_module

from tenure import Context, Scheduler

guard, place, store, name = sys.argv[1:]
totals = import_module(f"{guard}_totals")
scheduler = Scheduler(store, instance=name)


@scheduler.every("add_up", "1d", lease="1s", max_late=None)
def add_up(ctx: Context) -> None:
    """Add one; a thread that does not look at ``ctx.signal`` is what a fence is for."""
    target = totals.connect(place)
    total = totals.take(target, "eu", ctx)
    print("works", flush=True)
    sys.stdin.readline()
    try:
        totals.save(target, "eu", total + 1, ctx)
    except totals.Stale:
        print("refused", flush=True)
    else:
        print("saved", flush=True)


if __name__ == "__main__":
    scheduler.start()
    if name == "first":
        scheduler.trigger("add_up")
    signal.pause()
