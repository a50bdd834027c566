"""What tenure costs against its size: 1 to 200 instances on virtual time, 10 to 20,000 jobs in one process.

``--plots docs`` also draws what docs/scale.md shows; that needs ``matplotlib``.
"""

import argparse
import asyncio
import gc
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

from tenure import MemoryBackend, Scheduler
from tenure.job import make_job
from tenure.memory import MemoryStore
from tenure.model import Claim, new_token
from tenure.schedule import cron, every
from tenure.testing import World

INSTANCES = (1, 2, 5, 10, 20, 50, 100, 200)
JOBS = (10, 100, 1_000, 5_000, 10_000, 20_000)
KINDS = ("claim", "heartbeat", "finish", "save_result", "active")

RUNS = 20
STEADY_S = 300
CRASHES = 5
CROWDS = ((2, 1_000), (5, 1_000), (20, 500), (5, 4_000))
"""So many backups of an instance with so many runs."""

LEASE_S = 9
BEAT_S = 3
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Counting(MemoryBackend):
    """The in-memory backend; how often each call was made, and how long each ``active`` took."""

    def __init__(self, store):
        super().__init__(store)
        self.counts = Counter()

    async def claim(self, claim):
        self.counts["claim"] += 1
        return await super().claim(claim)

    async def heartbeat(self, job, slot, token):
        self.counts["heartbeat"] += 1
        return await super().heartbeat(job, slot, token)

    async def finish(self, job, slot, token, status):
        self.counts["finish"] += 1
        return await super().finish(job, slot, token, status)

    async def active(self, jobs):
        self.counts["active"] += 1
        return await super().active(jobs)

    async def save_result(self, job, result):
        self.counts["save_result"] += 1
        await super().save_result(job, result)


class Slow(Counting):
    """Without hints, and no call is answered at once."""

    changes = None

    async def claim(self, claim):
        await asyncio.sleep(0.002)
        return await super().claim(claim)

    async def active(self, jobs):
        await asyncio.sleep(0.002)
        return await super().active(jobs)


class Hinting(Slow):
    changes = Counting.changes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["instances", "jobs"])
    parser.add_argument(
        "--plots", type=Path, metavar="DIRECTORY", help="draw scale-instances.svg and scale-jobs.svg there"
    )
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.getLogger("tenure").setLevel(logging.CRITICAL)  # a killed instance is a warning for each of its runs
    if options.size is not None:
        print(json.dumps(asyncio.run(measure_jobs(options.size))))
        return
    if options.only != "jobs":
        show_instances(options.plots)
        show_crowds()
    if options.only != "instances":
        show_jobs(options.plots)


# Instances, on virtual time


def show_instances(plots):
    rows = []
    kinds = " ".join(f"{kind:>11}" for kind in KINDS)
    print("calls per second of all instances; lease 30 s, heartbeat 10 s")
    print(f"          {f'{RUNS} runs that last':{len(kinds) + 41}}{RUNS} jobs each 10 s, runs of 1 s")
    print(f"instances {kinds}   takeover p50, last ms; claims for it {kinds}")
    for count in INSTANCES:
        row = {"instances": count, **lasting_runs(count), "short": short_runs(count)}
        rows.append(row)
        delays = row["takeover_ms"]
        took = f"{statistics.median(delays):13.0f} {max(delays):8.0f} {row['claims']:14.1f}" if delays else f"{'-':>37}"
        print(f"{count:9} {rates(row['lasting'])}   {took:37} {rates(row['short'])}", flush=True)
    if plots is not None:
        draw_instances(rows, plots / "scale-instances.svg")


def rates(counts):
    return " ".join(f"{counts.get(kind, 0):11.2f}" for kind in KINDS)


def lasting_runs(count):
    """Calls per second while ``RUNS`` runs go on; how long after a killed holder's lease each was taken over, and with
    how many claims.
    """
    backend, world = new_world(count)
    started = {}

    async def forever(ctx):
        started[ctx.job] = world.elapsed_s
        await asyncio.sleep(1e6)

    with world:
        jobs = [
            make_job(f"job{n}", cron("10 0 12 * * *"), forever, {"lease": "30s", "max_attempts": 99})
            for n in range(RUNS)
        ]
        instances = {f"i{n}": world.start(jobs, f"i{n}", backend=backend) for n in range(count)}
        world.advance("80s")
        lasting = steady(world, backend)
        backend.counts.clear()
        delays = [delay for _ in range(min(CRASHES, count - 1)) for delay in killed(world, instances, started)]
        claims = backend.counts["claim"] / max(len(delays), 1)
    return {"lasting": lasting, "takeover_ms": delays, "claims": claims}


def short_runs(count):
    """Calls per second of jobs whose runs are short, so that most of it is the claims of each slot."""
    backend, world = new_world(count)
    with world:
        jobs = [make_job(f"job{n}", every("10s"), one_second, {"lease": "30s"}) for n in range(RUNS)]
        for n in range(count):
            world.start(jobs, f"i{n}", backend=backend)
        world.advance("95s")  # until nothing is expected any more that was due before the start
        return steady(world, backend, 60)


def new_world(count):
    world = World("2026-12-01T12:00:00Z", seed=count)
    backend = Counting(world.store)
    return backend, world


def show_crowds():
    print("\nan instance with many runs leaves; each call takes 2 ms")
    print("backups   runs  it      claims a run   looks  taken over p50, last ms")
    for backups, runs in CROWDS:
        for leaves in ("dies", "stops"):
            claims, looks, delays = crowd(backups, runs, leaves)
            times = f"{statistics.median(delays):6.0f} {max(delays):6.0f}"
            print(f"{backups:7} {runs:6}  {leaves:6} {claims:13.2f} {looks:7} {times}", flush=True)


def crowd(backups, runs, leaves):
    """Claims for each run of an instance that dies, or stops and gives hints; looks; how soon all are elsewhere."""
    world = World("2026-12-01T12:00:00Z", seed=backups)
    backend, started = (Hinting if leaves == "stops" else Slow)(world.store), {}

    async def until_told(ctx):
        started[ctx.job] = world.elapsed_s
        await ctx.signal.wait_async()
        raise InterruptedError

    with world:
        options = {"lease": "30s", "jitter": "0s"}
        jobs = [make_job(f"job{n}", cron("10 0 12 * * *"), until_told, options) for n in range(runs)]
        leaving = world.start(jobs, "leaving", backend=backend)
        world.advance("11s")
        for number in range(backups):
            world.start(jobs, f"backup{number}", backend=backend)
        world.advance("60s")
        backend.counts.clear()
        left_s = world.elapsed_s
        if leaves == "stops":
            over_s = dict.fromkeys(started, left_s)
            leaving.stop(wait=False)
        else:
            over_s = {run.job: left_s + run.lease_left_ms / 1000 for run in world.active(*started)}
            leaving.crash()
        world.run_until(lambda: all(at_s > left_s for at_s in started.values()), within="60s")
        world.advance("2s")
    delays = [(started[job] - over_s[job]) * 1000 for job in started]
    return backend.counts["claim"] / runs, backend.counts["active"], delays


async def one_second():
    await asyncio.sleep(1)


def steady(world, backend, for_s=STEADY_S):
    backend.counts.clear()
    world.advance(timedelta(seconds=for_s))
    return {kind: number / for_s for kind, number in backend.counts.items()}


def killed(world, instances, started):
    """Kill the holder of most runs; by how much each of these was taken over after its lease, in milliseconds."""
    runs, killed_s = world.active(*started), world.elapsed_s
    held = Counter(run.holder for run in runs)
    holder = max(held, key=held.__getitem__)
    instances.pop(holder).crash()
    over_s = {run.job: killed_s + run.lease_left_ms / 1000 for run in runs if run.holder == holder}
    world.run_until(lambda: all(started[job] > killed_s for job in over_s), within="40s", what="takeovers")
    return [(started[job] - over) * 1000 for job, over in over_s.items()]


# Jobs, in real time


def show_jobs(plots):
    rows = []
    print("\none process, in-memory backend")
    print("  jobs  start ms  KB a job  KB a watch  calls/s  CPU %  stall ms  takeover p50  last ms")
    for size in JOBS:
        run = subprocess.run(
            [sys.executable, __file__, "--size", str(size)], capture_output=True, text=True, check=True
        )
        row = json.loads(run.stdout)
        rows.append(row)
        median_ms, last_ms = row["takeover_ms"]
        print(
            f"{size:6} {row['start_ms']:9.0f} {row['job_kb']:9.2f} {row['watch_kb']:11.2f} {row['calls']:8.2f} "
            f"{row['cpu']:6.1f} {row['stall_ms']:9.1f} {median_ms:13.0f} {last_ms:8.0f}",
            flush=True,
        )
    if plots is not None:
        draw_jobs(rows, plots / "scale-jobs.svg")


async def measure_jobs(size):
    """A scheduler that finds a run of each job held by another, watches them all, and takes all over at once."""
    store = MemoryStore()
    backend, names = Counting(store), [f"job{n}" for n in range(size)]
    scheduler, starts = Scheduler(backend), []

    async def handler():
        starts.append(time.time())

    gc.collect()
    before = rss()
    for name in names:
        scheduler.every(name, "1d", handler, lease=f"{LEASE_S}s", jitter="0s")
    row = {"size": size, "job_kb": (rss() - before) / size / 1024}
    over_s = await hold(store, names)
    before, began = rss(), time.perf_counter()
    async with scheduler:
        while len(scheduler_watches(scheduler)) < size:
            await asyncio.sleep(0.001)
        row["start_ms"] = (time.perf_counter() - began) * 1000
        row["watch_kb"] = (rss() - before) / size / 1024
        row.update(await watching(backend, scheduler))
        while len(starts) < size:
            await asyncio.sleep(0.02)
        row["takeover_ms"] = [(statistics.median(starts) - over_s) * 1000, (max(starts) - over_s) * 1000]
    return row


def scheduler_watches(scheduler):
    """The jobs that are watched: looked up where they are, since nothing public tells."""
    engine = scheduler._thread._engine
    return engine._level._watches._watches if engine is not None else {}


async def hold(store, names):
    """Another instance holds the latest slot of each job, for so long; when its first lease is over."""
    slot = int(time.time() * 1000) // 86_400_000 * 86_400_000
    over_s = time.time() + 5 * BEAT_S
    async with MemoryBackend(store) as other:
        for name in names:
            left_ms = int((over_s - time.time()) * 1000)
            fields = {"mode": "manual", "overlap": "skip", "max_attempts": 3, "max_late_ms": None}
            await other.claim(
                Claim(job=name, slot=slot, token=new_token(), instance="other", lease_ms=left_ms, **fields)
            )
    return over_s


async def watching(backend, scheduler):
    """What it costs to watch, for three heartbeats: calls, processor, and the most of it that was used in one go.

    All that the scheduler does meanwhile waits for that long, its heartbeats included.
    """
    loop = scheduler._thread._loop
    stalls, done = [], threading.Event()

    async def feel():
        while not done.is_set():
            began = time.thread_time()
            await asyncio.sleep(0.005)
            stalls.append(time.thread_time() - began)

    feeling = asyncio.run_coroutine_threadsafe(feel(), loop)
    backend.counts.clear()
    cpu_s, began = cpu(), time.perf_counter()
    await asyncio.sleep(3 * BEAT_S)
    took_s = time.perf_counter() - began
    calls, used = sum(backend.counts.values()) / took_s, (cpu() - cpu_s) / took_s * 100
    done.set()
    await asyncio.wrap_future(feeling)
    return {"calls": calls, "cpu": used, "stall_ms": max(stalls) * 1000}


def rss():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * _PAGE


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


# Plots


def draw_instances(rows, path):
    figure, (lasting, short, takeover) = panels(3)
    counts = [row["instances"] for row in rows]
    for kind in KINDS:
        for axes, name in ((lasting, "lasting"), (short, "short")):
            values = [row[name].get(kind, 0) for row in rows]
            if max(values) > 0 and kind != "save_result":
                label = "finish; save_result" if kind == "finish" else kind
                axes.plot(counts, [value or None for value in values], marker="o", markersize=3, label=label)
    by_run = [max(count - 1, 0) * RUNS / 15 or None for count in counts]
    lasting.plot(counts, by_run, linestyle="--", color="grey", label="were each run asked for alone")
    dress(lasting, f"{RUNS} runs that last", "instances", "calls/s of all instances", logy=True)
    dress(short, f"{RUNS} jobs, each 10 s a run of 1 s", "instances", "calls/s of all instances", logy=True)
    several = [row for row in rows if row["takeover_ms"]]
    counts = [row["instances"] for row in several]
    takeover.plot(
        counts, [statistics.median(row["takeover_ms"]) for row in several], marker="o", markersize=3, label="median"
    )
    takeover.plot(counts, [max(row["takeover_ms"]) for row in several], marker="o", markersize=3, label="slowest")
    dress(takeover, "takeover of a killed holder's runs", "instances", "ms after the end of the lease")
    save(figure, path)


def draw_jobs(rows, path):
    figure, (start, memory, watch, takeover) = panels(4)
    sizes = [row["size"] for row in rows]
    start.plot(sizes, [row["start_ms"] for row in rows], marker="o", markersize=3)
    dress(start, "start, until all are watched", "jobs", "ms", logy=True)
    memory.plot(sizes, [row["job_kb"] for row in rows], marker="o", markersize=3, label="a job")
    memory.plot(sizes, [row["watch_kb"] for row in rows], marker="o", markersize=3, label="started, and a run watched")
    dress(memory, "memory", "jobs", "KB each", logy=True)
    watch.plot(sizes, [row["calls"] for row in rows], marker="o", markersize=3, label="calls/s")
    watch.plot(sizes, [row["cpu"] for row in rows], marker="o", markersize=3, label="% of a core")
    watch.plot(sizes, [row["stall_ms"] for row in rows], marker="o", markersize=3, label="longest stall, ms")
    dress(watch, "watching a run of each", "jobs", "", logy=True)
    takeover.plot(sizes, [row["takeover_ms"][0] for row in rows], marker="o", markersize=3, label="median")
    takeover.plot(sizes, [row["takeover_ms"][1] for row in rows], marker="o", markersize=3, label="last")
    dress(takeover, "all leases end at once", "jobs", "ms until taken over")
    save(figure, path)


def panels(count):
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tenure", "font.size": 8, "figure.facecolor": "white"})
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, count, figsize=(3.4 * count, 3), layout="constrained")
    return figure, axes


def dress(axes, title, across, up, *, logy=False):
    from matplotlib.ticker import FuncFormatter

    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.set(title=title, xlabel=across, ylabel=up, xscale="log")
    axes.xaxis.set_major_formatter(plain)
    if logy:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(plain)
        axes.yaxis.set_minor_formatter("")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7)


def save(figure, path):
    figure.savefig(path, metadata={"Date": None})
    print(f"drawn: {path}")


if __name__ == "__main__":
    main()
