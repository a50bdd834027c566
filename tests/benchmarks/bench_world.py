"""A thousand virtual hours of 5 instances and 20 jobs with random crashes: how long they take."""

import asyncio
import sys
import time
from collections import Counter
from random import Random

from tenure import Scheduler
from tenure.testing import World


def main(hours: int = 1_000) -> None:
    """Print the time and what happened in it; the argument is the number of hours."""
    scheduler = Scheduler("memory://")
    for number in range(20):
        scheduler.every(f"job-{number}", f"{10 + 5 * number}m", handler, lease="1m")
    rng = Random(1)
    began = time.perf_counter()
    with World("2026-12-01T12:00:00Z", seed=1) as world:
        instances = [world.start(scheduler) for _ in range(5)]
        for _ in range(hours):
            world.advance("1h")
            if rng.random() < 0.1:
                crashed = rng.randrange(5)
                instances[crashed].crash()
                instances[crashed] = world.start(scheduler)
        kinds = Counter(event.kind for instance in world.instances for event in instance.events)
    took = time.perf_counter() - began
    print(f"{hours} hours in {took:.1f} s: {took / hours * 1000:.1f} s for a thousand; {dict(kinds)}")


async def handler() -> None:
    """Work for a while."""
    await asyncio.sleep(15)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
