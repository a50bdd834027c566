# /// script
# requires-python = ">=3.11"
# dependencies = ["dbos==3.4.0"]
# ///
"""DBOS: workflows whose steps are kept in Postgres; a schedule starts each slot's workflow under an id of its own."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from dbos import DBOS
from measure import NEVER_ENDS_S, WIDTH, in_turns, main, say


def _launch(url: str, **settings: object) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "log_level": "ERROR",
            "application_version": "1",
            **settings,
        }
    )
    DBOS.launch()


@DBOS.workflow()
def noop() -> None:
    pass


@DBOS.workflow()
def hold() -> None:
    say("run")
    time.sleep(NEVER_ENDS_S)


async def asked(url: str) -> dict:
    """A workflow started and its result waited for."""
    _launch(url)

    async def workflow() -> None:
        DBOS.start_workflow(noop).get_result()

    measured = await in_turns(500, asked=workflow)
    DBOS.destroy()
    return measured


def runs(url: str, count: int = 1_000) -> dict:
    """Workflows started and waited for by as many threads as there are runs at a time."""
    _launch(url)
    with ThreadPoolExecutor(WIDTH) as threads:
        list(threads.map(lambda _: DBOS.start_workflow(noop).get_result(), range(WIDTH)))
        started = time.perf_counter()
        list(threads.map(lambda _: DBOS.start_workflow(noop).get_result(), range(count)))
        took_s = time.perf_counter() - started
    DBOS.destroy()
    return {"per_s": count / took_s}


def worker(url: str, name: str) -> None:
    """Each process with an executor id of its own, as hosts have them."""
    _launch(url, executor_id=f"{name} {datetime.now(UTC)}")
    say("ready")
    if sys.stdin.readline().strip() == "begin":
        DBOS.start_workflow(hold)
    time.sleep(NEVER_ENDS_S)


if __name__ == "__main__":
    main(asked=asked, runs=runs, worker=worker)
