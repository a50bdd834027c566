"""What the benchmarks of servers share: the claim that they make, and times of actions that are taken in turns."""

import statistics
import time

from tenure.model import Claim, new_token


def claim(slot, job="sync", **changes):
    fields = {
        "instance": "bench-host-12345-abcdef",
        "lease_ms": 30_000,
        "mode": "manual",
        "overlap": "skip",
        "max_attempts": 3,
        "max_late_ms": None,
        "token": new_token(),
    }
    return Claim(job=job, slot=slot, **{**fields, **changes})


class Measured:
    """Times of named actions, taken in turns, so that a busy moment falls on all of them."""

    def __init__(self):
        self.times = {}

    async def take(self, name, action):
        started = time.perf_counter()
        answer = await action
        self.times.setdefault(name, []).append((time.perf_counter() - started) * 1_000)
        return answer

    def show(self, ping="ping"):
        """Medians, and the quickest tenth, which says more where other programs keep the cores busy."""
        pings = statistics.quantiles(self.times[ping], n=100)
        for name, times in self.times.items():
            at = statistics.quantiles(times, n=100)
            ratios = f"{at[49] / pings[49]:5.2f} x ping   (p10 {at[9]:6.3f} ms {at[9] / pings[9]:5.2f} x)"
            print(f"  {name:34} p50 {at[49]:6.3f} ms {ratios}   p99 {at[98]:6.3f} ms")
