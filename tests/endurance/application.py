"""One process that is measured: an instance with a job that is due all the time, or calls of a backend."""

import asyncio
import itertools
import json
import signal
import sys
import threading
from collections import Counter
from typing import Any

from chaos.orphans import end_with_parent
from tenure import BackendError, Scheduler, connect, every
from tenure.model import Claim, RunResult, new_token

AT_ONCE = 50
_FIRST = 1_700_000_000_000
_LEFT: list[bytes] = []


def main() -> None:
    """Work until SIGTERM, or until all calls are made; the last line says what was done."""
    end_with_parent()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    config = json.loads(sys.argv[1])
    done = _calls(config) if config["runs"] else _schedule(config)
    print(json.dumps(done), flush=True)


def _schedule(config: dict[str, Any]) -> dict[str, int]:
    """An instance, as applications have it."""
    seen: Counter[str] = Counter()
    url, name = config["url"], config["name"]
    scheduler = Scheduler(url, instance=name, namespace="endure", on_event=lambda event: seen.update([event.kind]))

    def handler() -> None:
        if config["leak"]:
            _LEFT.append(b"x" * config["leak"])

    schedule = every(config["every"])
    scheduler.add("often", schedule, handler, lease=config["lease"], jitter="0s")
    scheduler.start()
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM})
    scheduler.stop()
    return dict(seen)


def _calls(config: dict[str, Any]) -> dict[str, int]:
    """Whole runs as calls of the backend, many at once, until there were enough."""
    ended = threading.Event()
    threading.Thread(target=lambda: (signal.sigwait({signal.SIGTERM}), ended.set()), daemon=True).start()
    return asyncio.run(_make_calls(config["url"], config["runs"], ended))


async def _make_calls(url: str, runs: int, ended: threading.Event) -> dict[str, int]:
    made: Counter[str] = Counter()
    slots = itertools.count(_FIRST)

    async def one_after_another(backend: Any, job: str) -> None:
        while made["success"] < runs and not ended.is_set():
            made.update([await _run(backend, job, next(slots))])

    async with connect(url, namespace="endure") as backend:
        print("ready", flush=True)
        await asyncio.gather(*(one_after_another(backend, f"job {number}") for number in range(AT_ONCE)))
    return dict(made)


async def _run(backend: Any, job: str, slot: int) -> str:
    """Claim, finish and record a run; a call that fails ends it, as its connection was taken away."""
    asked = {"lease_ms": 5_000, "mode": "manual", "overlap": "skip", "max_attempts": 3, "max_late_ms": None}
    claim = Claim(job=job, slot=slot, token=new_token(), instance="endure", **asked)
    try:
        won = await backend.claim(claim)
        if won.outcome != "won":
            await asyncio.sleep((won.lease_left_ms or 0) / 1_000)  # of a run whose end did not arrive
            return won.outcome
        await backend.finish(job, slot, claim.token, "success")
        record = RunResult(slot, won.attempt, won.fence, "success", "endure", won.now_ms, won.now_ms)
        await backend.save_result(job, record)
    except BackendError:
        return "error"
    return "success"


if __name__ == "__main__":
    main()
