"""Measure tenure beside its peers, keep the results, and make the page of them: ``nox -s bench``.

``nox -s bench -- cycle worker`` takes these measures alone and keeps the other results, ``-- page`` none at all.
"""

import argparse
import asyncio
import json
from collections.abc import Callable

from peers import page
from peers.machine import described, first_in_line, on_one_core
from peers.plan import IMPORTS, SUBJECTS, Subject
from peers.running import import_ms, interpreter, measured, pinned, takeover
from tenure_conformance.target import Target
from tenure_conformance.targets import etcd, postgres, redis

TARGETS: dict[str, Target] = {"redis": redis.target, "postgres": postgres.target, "etcd": etcd.target}
SERVERS = {"redis": redis.server, "postgres": postgres.server, "etcd": etcd.server}
ROUNDS = 3
TAKEOVERS = 5
NEVERS = 2
"""After so many that did not happen, no more are waited for."""
JOBS = "10000"
RATES = ("runs", "runs_by_default", "waiting")
CALLS = ("cycle", "asked")
"""Measured on one core."""
WORKERS = ("worker", "worker_by_default")
MEASURES = (*CALLS, *RATES, *WORKERS, "burst", "imports")


def main() -> None:
    parser = argparse.ArgumentParser(prog="nox -s bench --", description=__doc__)
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=", ".join([*MEASURES, "page"]))
    wanted = set(parser.parse_args().measures) or {*MEASURES}
    if unknown := wanted - {*MEASURES, "page"}:
        parser.error(f"{', '.join(unknown)} is none of {', '.join(MEASURES)}")
    if wanted != {"page"}:
        results = page.read() if page.RESULTS.exists() else {}
        _measure(wanted, results)
    page.make()


def _measure(wanted: set[str], results: dict) -> None:
    for subject in SUBJECTS:
        interpreter(subject.script)  # made before anything is measured
    results["machine"] = described() | {"first_in_line": first_in_line()}
    results["versions"] = {each.name: pinned(each.script) for each in SUBJECTS if each.script.startswith("peer_")}
    for store in SERVERS:
        if wanted & {*CALLS, *RATES, *WORKERS}:
            _measure_store(store, wanted, results)
            page.keep(results)
    if "burst" in wanted:
        results["burst"] = {"memory": _bursts([each for each in SUBJECTS if "burst" in each.measures])}
    if "imports" in wanted:
        with on_one_core():
            results["imports"] = {one.name: _told("imports", one.name, import_ms(one)) for one in IMPORTS}
    page.keep(results)


def _measure_store(store: str, wanted: set[str], results: dict) -> None:
    """All subjects on one server, in turns."""
    subjects = [subject for subject in SUBJECTS if subject.store == store]
    with SERVERS[store].serve("binary") as url:
        results.setdefault("stores", {})[store] = asyncio.run(_version(TARGETS[store], url))
        for measure in (*CALLS, *RATES, *WORKERS):
            if measure in wanted:
                asked = [subject for subject in subjects if measure in subject.measures]
                results.setdefault(measure, {})[store] = _in_turns(measure, asked, url)


async def _version(target: Target, url: str) -> str:
    async with target.open(url, "bench"):
        return target.store()


def _in_turns(measure: str, subjects: list[Subject], url: str) -> dict:
    """What each gave in each round."""
    if measure in WORKERS:
        return _rounds(subjects, measure, TAKEOVERS, lambda subject, part: takeover(subject, measure, url, part))
    if measure in CALLS:
        with on_one_core():
            return _rounds(subjects, measure, ROUNDS, lambda subject, _: measured(subject, measure, url))
    return _rounds(subjects, measure, ROUNDS, lambda subject, _: measured(subject, measure, url))


def _rounds(subjects: list[Subject], measure: str, rounds: int, take: Callable[[Subject, float], dict]) -> dict:
    """What each gave in each round; ``take`` is told the middle of the round's part of the whole."""
    taken: dict[str, list[dict]] = {subject.name: [] for subject in subjects}
    for turn in range(rounds):
        for subject in subjects:
            if sum(one == {"s": None} for one in taken[subject.name]) < NEVERS:
                taken[subject.name].append(_told(measure, subject.name, take(subject, (turn + 0.5) / rounds)))
    return taken


def _bursts(subjects: list[Subject]) -> dict:
    """Times as they are, and memory as Python counts it, which makes it slow."""
    traced = {each.name: measured(each, "burst", JOBS, PYTHONTRACEMALLOC="1")["bytes_per_job"] for each in subjects}
    return _rounds(
        subjects, "burst", ROUNDS, lambda each, _: measured(each, "burst", JOBS) | {"bytes_per_job": traced[each.name]}
    )


def _told(measure: str, name: str, figures: dict) -> dict:
    print(f"{measure:18} {name:20} {json.dumps(figures)}", flush=True)
    return figures


if __name__ == "__main__":
    main()
