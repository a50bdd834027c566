"""Every Python block of these pages runs, and does what the page says."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest
import redis.asyncio
from pymongo import AsyncMongoClient
from tenure import Context, Scheduler, connect
from tenure_dynamodb import DynamoBackend, client_config
from tenure_mongo import MongoBackend
from tenure_postgres import PostgresBackend
from tenure_redis import RedisBackend

ROOT = Path(__file__).parents[2]
STORES = [
    *(f"docs/{name}.md" for name in ("sqlite", "redis", "postgres", "mongo", "dynamodb", "etcd")),
    *(f"backends/{name}/README.md" for name in ("sqlite", "redis", "postgres", "mongo", "dynamodb", "etcd")),
]
"""Their blocks make schedulers, which connect to nothing before they start."""
PAGES = [
    "README.md",
    "core/README.md",
    "docs/run-lifecycle.md",
    "docs/leases.md",
    "docs/jobs.md",
    "docs/observe.md",
    "docs/web.md",
    "docs/migrate-from.md",
    *STORES,
]
LONGEST_WAIT_S = 60


def text(page):
    return (ROOT / page).read_text("utf-8")


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", text(page), re.DOTALL | re.MULTILINE)


def file_of(block):
    """A block that begins with a file's name is that file of an application, and has a test of its own."""
    first = re.match(r"# (\S+\.py)\n", block)
    return first and first[1]


def file_block(page, name):
    (block,) = [block for block in blocks(page) if file_of(block) == name]
    return block


def nothing(*args, **kwargs):
    return None


async def nothing_async(*args, **kwargs):
    return None


def make_dynamodb_client():
    session = boto3.Session("AKIDTESTS", "a-secret-word", region_name="eu-west-1")
    return session.client("dynamodb", config=client_config())


# What the reader of a page has of his own.
OF_THE_READER = {
    "docs/migrate-from.md": dict.fromkeys(["copy_new_rows", "send_report", "charge_all_customers"], nothing),
    **{
        page: {
            "Scheduler": Scheduler,
            "connect": connect,
            "RedisBackend": RedisBackend,
            "PostgresBackend": PostgresBackend,
            "MongoBackend": MongoBackend,
            "DynamoBackend": DynamoBackend,
            "AsyncMongoClient": AsyncMongoClient,
            "make_client": AsyncMongoClient,
            "client": make_dynamodb_client() if "dynamodb" in page else redis.asyncio.Redis(),
            "pool": nothing,
        }
        for page in STORES
    },
    "README.md": {"send_report": nothing},
    "docs/jobs.md": {
        "copy_new_rows": nothing_async,
        **dict.fromkeys(
            [
                "send_report",
                "remove_old_files",
                "count_visitors",
                "new_files",
                "import_file",
                "page_someone",
                "count",
                "bill",
                "launch",
            ],
            nothing,
        ),
    },
    "docs/leases.md": {"charge_all_customers": nothing_async, "note_how_far_it_got": nothing},
}


def execute(page):
    """The names that the page's blocks leave behind, executed from top to bottom."""
    names = {"__name__": "page", **OF_THE_READER.get(page, {})}
    for number, block in enumerate(blocks(page), 1):
        if file_of(block) and "__main__" not in block:
            continue
        exec(compile(block, f"{page}, block {number}", "exec"), names)
    return names


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run_from_top_to_bottom(page, here):
    names = execute(page)
    if "database" in names:
        names["database"].close()


def test_each_file_that_a_page_shows_has_a_test():
    tests = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    shown = {name for page in [*PAGES, "docs/fencing.md"] for block in blocks(page) if (name := file_of(block))}
    assert shown == set(re.findall(r'file_block\("[^"]+", "([^"]+)"\)', tests))


# docs/jobs.md


def test_the_handlers_of_the_jobs_page_can_be_called(here):
    names = execute("docs/jobs.md")
    ctx = Context("import", 0, 1, 1, "scheduled", "i", "skip")
    imported = []
    names.update(new_files=lambda: ["a", "b"], import_file=imported.append)
    names["import_files"](ctx)
    assert imported == ["a", "b"]
    ctx.signal.set("stop")
    with pytest.raises(InterruptedError):
        names["import_files"](ctx)
    asyncio.run(names["sync"](ctx))


def test_jobs_come_and_go_as_the_jobs_page_shows(here):
    names = execute("docs/jobs.md")

    class Customer:
        id, period = 7, "1h"

    names["bill"] = nothing
    names["customer_changed"](Customer)
    Customer.period = "2h"
    names["customer_changed"](Customer)
    (job,) = [job for job in names["scheduler"].jobs if job.name == "bill-7"]
    assert job.schedule.next_slot(0) == 2 * 3_600_000
    names["customer_left"](Customer)
    assert "bill-7" not in [job.name for job in names["scheduler"].jobs]


def test_the_listener_and_the_button_of_the_jobs_page_work(here):
    names = execute("docs/jobs.md")
    scheduler, told = names["watched"], []
    names["page_someone"] = told.append
    scheduler.every("sync", "1d", lambda: 1 / 0)
    names["scheduler"] = scheduler

    async def main():
        async with scheduler:
            assert (await names["on_button"]()).outcome == "won"
            async with asyncio.timeout(LONGEST_WAIT_S):
                while not told:
                    await asyncio.sleep(0.01)

    asyncio.run(main())
    assert re.match(r"sync of 20\d\d-\d\d-\d\d \d\d:\d\d: ", told[0])
    assert told[0].endswith("ZeroDivisionError: division by zero")


# docs/leases.md


def test_the_sql_guard_refuses_the_older_attempt(here, capsys):
    names = execute("docs/leases.md")
    assert capsys.readouterr().out == "refused\n"
    assert names["take"]("eu", names["b"]) == 85
    with pytest.raises(names["Stale"]):
        names["take"]("eu", names["a"])
    names["take"]("eu", names["b"] + 1)
    with pytest.raises(names["Stale"]):
        names["save"]("eu", 90, names["b"])
    names["database"].close()


def test_a_run_charged_at_most_once_returns_when_it_is_cancelled(here):
    names = execute("docs/leases.md")
    names["database"].close()
    noted = []
    names.update(charge_all_customers=asyncio.Event().wait, note_how_far_it_got=lambda: noted.append(True))

    async def main():
        task = asyncio.create_task(names["charge"](None))
        await asyncio.sleep(0)
        task.cancel()
        await task

    asyncio.run(main())
    assert noted == [True]


# docs/fencing.md


def test_the_handler_of_the_fencing_page_adds_up_and_an_older_attempt_is_stale(here, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/examples/fencing")
    names = {"__name__": "page"}
    exec(compile(file_block("docs/fencing.md", "add_up.py"), "add_up.py", "exec"), names)
    attempts = [Context("add_up", 0, attempt, attempt, "scheduled", "i", "skip") for attempt in (1, 2, 3)]
    names["add_up"](attempts[0])
    names["add_up"](attempts[2])
    with pytest.raises(names["sql_totals"].Stale):
        names["add_up"](attempts[1])
    totals = names["sql_totals"].connect("totals.db")
    assert totals.execute("select region, total, fence from totals").fetchall() == [("eu", 2, 3)]
    totals.close()


# docs/migrate-from.md


def test_each_attempt_of_a_slot_sends_the_same_task(here):
    sent = []
    names = execute("docs/migrate-from.md")
    names["app"].send_task = lambda task, task_id: sent.append((task, task_id))
    for attempt in (1, 2):
        names["send_bill"](Context("send-bill", 1_796_090_400_000, attempt, attempt, "scheduled", "i", "skip"))
    assert sent == [("shop.bill", "send-bill-1796090400000")] * 2


# Applications, as real processes


class Process:
    """A process, and the lines that it printed so far."""

    def __init__(self, *command, cwd):
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "HOME": str(cwd)}  # gunicorn keeps a socket there
        self.popen = subprocess.Popen(
            command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.popen.stdout:
            self.lines.append(line.rstrip("\n"))

    def find(self, pattern):
        return [found for line in list(self.lines) if (found := re.search(pattern, line))]

    def wait_for(self, pattern, times=1):
        end = time.monotonic() + LONGEST_WAIT_S
        while len(found := self.find(pattern)) < times:
            assert time.monotonic() < end, f"not printed {times} times: {pattern}\n" + "\n".join(self.lines)
            assert self.popen.poll() is None, f"ended before it printed {pattern}\n" + "\n".join(self.lines)
            time.sleep(0.02)
        return found[-1]

    def end(self, signum=signal.SIGTERM):
        self.popen.send_signal(signum)
        return self.ended()

    def ended(self):
        code = self.popen.wait(LONGEST_WAIT_S)
        self._reader.join()
        return code

    def close(self):
        self.popen.kill()
        self.popen.wait()
        self._reader.join()
        self.popen.stdout.close()


@contextmanager
def running(*command, cwd):
    process = Process(*command, cwd=cwd)
    try:
        yield process
    finally:
        process.close()


RUN = r"^slot (\d\d:\d\d:\d\d)  attempt (\d+)  fence (\d+)  (\S+)$"


def test_run_keeps_async_handlers_on_a_loop_beside_the_main_thread(tmp_path):
    code = """
import threading
from tenure import Scheduler

scheduler = Scheduler("memory://")

@scheduler.every("sync", "1s")
async def sync():
    print("main" if threading.current_thread() is threading.main_thread() else "beside", flush=True)

scheduler.run()
"""
    with running(sys.executable, "-c", code, cwd=tmp_path) as app:
        app.wait_for("^beside$")
        assert app.end() == 0
        assert set(app.lines) == {"beside"}


def test_the_program_of_the_readme_runs_until_it_is_told_to_stop(tmp_path):
    (tmp_path / "app.py").write_text(file_block("README.md", "app.py"))
    with running(sys.executable, "app.py", cwd=tmp_path) as app:
        slot, attempt, fence, _ = app.wait_for(RUN).groups()
        assert int(slot[-1]) % 5 == 0
        assert attempt == "1"
        assert int(fence) > 1_700_000_000_000
        assert app.end() == 0
        assert len(app.lines) == len(app.find(RUN)), app.lines


def test_the_readmes_two_processes_share_the_slots_and_a_killed_ones_run_is_taken_over(tmp_path):
    app = file_block("README.md", "app.py").replace('"5s"', '"10s"')  # a busy machine must not make the next slot due
    (tmp_path / "app.py").write_text(app)
    command = (sys.executable, "app.py")
    with running(*command, cwd=tmp_path) as one, running(*command, cwd=tmp_path) as two:
        killed, survivor = first_to_run(one, two)
        killed.popen.kill()
        killed.ended()
        slot, attempt, fence, _ = killed.find(RUN)[-1].groups()
        again, greater = survivor.wait_for(rf"^slot {slot}  attempt (\d+)  fence (\d+)  \S+$").groups()
        assert (attempt, again) == ("1", "2")
        assert int(greater) > int(fence)
        assert survivor.end() == 0


def first_to_run(one, two):
    """The process that starts a run first, and the other one."""
    end = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < end:
        if one.find(RUN):
            return one, two
        if two.find(RUN):
            return two, one
        time.sleep(0.02)
    raise AssertionError("no run was started")


def test_tenure_run_runs_a_scheduler_of_a_module(tmp_path):
    pytest.importorskip("click")
    (tmp_path / "app.py").write_text(file_block("README.md", "app.py"))
    with running(Path(sys.executable).parent / "tenure", "run", "app:scheduler", cwd=tmp_path) as app:
        app.wait_for(RUN)
        assert app.end() == 0
