"""Prints what a slot costs, next to cronsim measured in the same run: ``python tests/benchmarks/bench_schedule.py``."""

import importlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count, islice
from zoneinfo import ZoneInfo

from cronsim import CronSim
from tenure.schedule import Schedule, cron, every

cron_module = importlib.import_module("tenure.cron")  # tenure.cron is also a function

START = datetime(2026, 1, 1, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
ROUNDS = 5
EXPRESSIONS = [
    ("*/5 * * * *", "UTC", 5_000),
    ("*/5 * * * *", "Europe/Prague", 5_000),
    ("0 9 * * mon-fri", "UTC", 2_000),
    ("0 9 * * mon-fri", "Europe/Prague", 2_000),
    ("30 2 * * *", "Australia/Lord_Howe", 2_000),
    ("0 0 29 2 *", "UTC", 200),
    ("0 0 29 2 *", "Europe/Prague", 200),
    ("0 0 L * *", "Europe/Prague", 500),
]


def forward(schedule: Schedule) -> Iterator[int]:
    at = START_MS
    while True:
        at = schedule.next_slot(at)
        yield at


def backward(schedule: Schedule, at: int) -> Iterator[int]:
    while True:
        at = schedule.latest_slot(at) - 1
        yield at


def forget() -> None:
    for cached in (cron_module._parse, cron_module._stretches):
        cached.cache_clear()


def best_us(make: Callable[[], Iterator], slots: int) -> float:
    """Microseconds per slot of the best round, each with cold caches."""
    rounds = []
    for _ in range(ROUNDS):
        forget()
        iterator = make()
        started = time.perf_counter()
        for _ in islice(iterator, slots):
            pass
        rounds.append((time.perf_counter() - started) / slots * 1e6)
    return min(rounds)


def iterate() -> None:
    print(f"{'us per slot, iterating':<38}{'cronsim':>9}{'next':>9}{'ratio':>7}{'latest':>9}{'ratio':>7}")
    for expression, zone, slots in EXPRESSIONS:
        start = START.astimezone(ZoneInfo(zone))
        schedule = cron(expression, tz=zone)
        end = list(islice(forward(schedule), slots))[-1]
        peer = best_us(lambda e=expression, s=start: CronSim(e, s), slots)
        ours = best_us(lambda s=schedule: forward(s), slots)
        back = best_us(lambda s=schedule, e=end: backward(s, e), slots)
        name = f"{expression} {zone}"
        print(f"{name:<38}{peer:>9.2f}{ours:>9.2f}{ours / peer:>7.2f}{back:>9.2f}{back / peer:>7.2f}")


def first() -> None:
    print(f"\n{'us to parse and give the first slot':<38}{'cronsim':>9}{'ours':>9}{'ratio':>7}{'parsed before':>16}")
    for expression, zone, _ in EXPRESSIONS:
        start = START.astimezone(ZoneInfo(zone))
        tz = ZoneInfo(zone)
        peer = best_us(lambda e=expression, s=start: (next(CronSim(e, s)) for _ in count()), 1)
        ours = best_us(lambda e=expression, z=tz: (cron(e, tz=z).next_slot(START_MS) for _ in count()), 1)
        again = best_us(lambda e=expression, z=tz: (cron(e, tz=z).next_slot(START_MS) for _ in count()), 500)
        print(f"{expression + ' ' + zone:<38}{peer:>9.1f}{ours:>9.1f}{ours / peer:>7.2f}{again:>16.1f}")


def periods() -> None:
    schedule = every("10s")
    built = best_us(lambda: (every("10s") for _ in count()), 10_000)
    print(f"\nevery: built {built:.2f} us, next_slot {best_us(lambda: forward(schedule), 50_000):.2f} us")


def main() -> None:
    iterate()
    first()
    periods()


if __name__ == "__main__":
    main()
