"""One file, many real processes: starting together, forking, and being killed."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from contextlib import closing

import pytest
from tenure import decision
from tenure.errors import BackendMisconfigured, BackendUnavailable
from tenure.model import Claim, new_token
from tenure_sqlite import SqliteBackend, worker

LONG_AGO = 1_700_000_000_000


def claim(slot=LONG_AGO, token=None, job="sync", **changes):
    fields = {"instance": f"pid {os.getpid()}", "lease_ms": 60_000, "mode": "manual", "overlap": "skip"}
    fields |= {"max_attempts": 3, "max_late_ms": None}
    return Claim(job=job, slot=slot, token=token or new_token(), **{**fields, **changes})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


class Child:
    """A forked process that runs a function and hands back what it returns."""

    def __init__(self, function, *arguments):
        self._reading, writing = os.pipe()
        with warnings.catch_warnings():
            # Forking beside the backend's thread is what is tested; Python 3.12 warns of any thread.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            self._run(writing, function, arguments)
        os.close(writing)

    def _run(self, writing, function, arguments):
        code = 1
        try:
            os.write(writing, json.dumps(function(*arguments)).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def result(self):
        with os.fdopen(self._reading, "rb") as pipe:
            answer = pipe.read()
        assert os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) == 0
        return json.loads(answer)


class Barrier:
    """Holds forked processes until it is opened, all at once."""

    def __init__(self):
        self._reading, self._writing = os.pipe()

    def wait(self):
        os.close(self._writing)
        os.read(self._reading, 1)

    def open(self):
        os.close(self._writing)
        os.close(self._reading)


def claim_slots(path, barrier, slots):
    async def main():
        outcomes = []
        async with SqliteBackend(path, timeout="60s") as backend:
            for slot in slots:
                token = new_token()
                result = await backend.claim(claim(slot, token))
                outcomes.append(result.outcome)
                if result.outcome == "won":
                    assert await backend.finish("sync", slot, token, "success")
        return outcomes

    barrier.wait()
    return asyncio.run(main())


@pytest.mark.parametrize("round_number", range(4))
def test_twenty_processes_start_on_an_empty_place_and_one_wins(path, round_number):  # DR08
    barrier = Barrier()
    children = [Child(claim_slots, path, barrier, [LONG_AGO]) for _ in range(20)]
    barrier.open()
    outcomes = Counter(outcome for child in children for outcome in child.result())
    assert outcomes["won"] == 1
    assert outcomes.total() == 20


def test_of_eight_processes_one_wins_each_slot(path):  # DR10
    barrier = Barrier()
    slots = range(LONG_AGO, LONG_AGO + 25)
    children = [Child(claim_slots, path, barrier, slots) for _ in range(8)]
    barrier.open()
    for outcomes in zip(*[child.result() for child in children], strict=True):
        assert outcomes.count("won") <= 1  # a slot that another process has passed already is superseded for all
    with closing(sqlite3.connect(path)) as connection:
        (state,) = connection.execute("select state from tenure_jobs").fetchone()
    *_, unfinished, ended = json.loads(state)
    assert unfinished == []
    assert ended[-1][0] == slots[-1]


def own_locks():
    with open("/proc/locks") as locks:
        return [line for line in locks if line.split()[4] == str(os.getpid())]


def test_a_forked_child_works_on_a_connection_and_locks_of_its_own(path):
    async def main():
        backend = SqliteBackend(path)
        async with backend:
            assert (await backend.claim(claim(token="parent"))).outcome == "won"

            def in_child():
                async def use():
                    outcome = (await backend.claim(claim(LONG_AGO, "child"))).outcome
                    other = (await backend.claim(claim(LONG_AGO, "child", job="other"))).outcome
                    return [outcome, other, len(own_locks())]

                return asyncio.run(use())

            outcome, other, locks = Child(in_child).result()
            assert (outcome, other) == ("running", "won")
            assert locks > 0
            assert await backend.heartbeat("sync", LONG_AGO, "parent")
            assert [run.job for run in (await backend.active(["sync", "other"])).runs] == ["other", "sync"]

    asyncio.run(main())


def test_what_a_forked_child_writes_outlives_the_parent_s_leaving(path):
    go_on = Barrier()

    def in_child(backend):
        async def use():
            assert (await backend.claim(claim(token="first"))).outcome == "won"
            os.kill(os.getppid(), signal.SIGUSR1)
            await asyncio.to_thread(go_on.wait)
            assert await backend.finish("sync", LONG_AGO, "first", "success")

        return asyncio.run(use())

    async def main():
        ready = threading.Event()
        before = signal.signal(signal.SIGUSR1, lambda *_: ready.set())
        try:
            async with SqliteBackend(path) as backend:
                child = Child(in_child, backend)
                assert await asyncio.to_thread(ready.wait, 30)
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert os.path.exists(f"{path}-wal")  # the child's lock keeps it
        go_on.open()
        child.result()
        async with SqliteBackend(path) as backend:
            again = await backend.claim(claim())
            assert (again.outcome, again.status) == ("done", "success")

    asyncio.run(main())


def test_a_child_may_leave_what_its_parent_entered(path):
    async def main():
        async with SqliteBackend(path) as backend:
            assert Child(lambda: asyncio.run(backend.__aexit__(None, None, None))).result() is None
            assert (await backend.claim(claim())).outcome == "won"

    asyncio.run(main())


def test_forking_in_the_midst_of_calls_disturbs_neither_side(path):
    async def main():
        async with SqliteBackend(path, timeout="60s") as backend:

            def in_child(number):
                async def use():
                    outcomes = [(await backend.claim(claim(job=f"child {number} {n}"))).outcome for n in range(10)]
                    return outcomes.count("won")

                return asyncio.run(use())

            calls = [asyncio.ensure_future(backend.claim(claim(job=f"parent {n}"))) for n in range(300)]
            children = []
            for number in range(5):
                await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                children.append(Child(in_child, number))
            assert {result.outcome for result in await asyncio.gather(*calls)} == {"won"}
            assert [await asyncio.to_thread(child.result) for child in children] == [10] * 5

    asyncio.run(main())
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        assert connection.execute("select count(*) from tenure_jobs").fetchone() == (350,)


def test_a_child_that_inherits_an_open_file_is_refused_clearly(path, monkeypatch):
    monkeypatch.setattr(worker, "PAUSE_S", 0.05)

    async def main():
        async with SqliteBackend(path) as backend:

            def in_child():
                with pytest.raises(BackendMisconfigured, match="fork before the backend is entered"):
                    asyncio.run(backend.claim(claim()))

            with backend._worker._lock:  # as while a transaction hangs
                Child(in_child).result()
            assert (await backend.claim(claim())).outcome == "won"

    asyncio.run(main())


WORKER = """
import asyncio, sys
from tenure.model import Claim, new_token
from tenure_sqlite import SqliteBackend

async def main(path, first):
    async with SqliteBackend(path) as backend:
        for slot in range(first, first + 1_000_000):
            token = new_token()
            won = await backend.claim(Claim(
                job="sync", slot=slot, token=token, instance="i", lease_ms=600_000, mode="manual", overlap="allow",
                max_attempts=3, max_late_ms=None,
            ))
            print("won", slot, won.fence, flush=True)
            assert await backend.finish("sync", slot, token, "success")
            print("finished", slot, won.fence, flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize("seed", range(3))
def test_what_a_killed_process_was_told_stays_true(path, seed):
    fences = []
    for kill in range(3):
        first = LONG_AGO + kill * 1_000_000
        lines = killed_after(40 + 13 * seed + kill, [sys.executable, "-c", WORKER, str(path), str(first)])
        said, slot, fence = lines[-1]
        fences += [int(line[2]) for line in lines if line[0] == "won"]

        async def look(slot=int(slot), said=said, fence=int(fence)):
            async with SqliteBackend(path) as backend:
                result = await backend.claim(claim(slot, overlap="allow"))
                if said == "finished":
                    assert (result.outcome, result.status) == ("done", "success")
                else:  # killed after it was told, before or after its finish was stored
                    assert result.outcome in ("running", "done")
                later = await backend.claim(claim(slot + 500_000, overlap="allow"))
                assert later.fence > fence

        asyncio.run(look())
    assert fences == sorted(set(fences))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)


def killed_after(count, command):
    """The whole lines that the process printed before it was killed, at least ``count``."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    lines = []
    with process:
        for line in process.stdout:
            lines.append(line)
            if len(lines) == count:
                process.kill()
    return [line.split() for line in lines if line.endswith("\n")]


def freeze_in_a_write(path):
    def frozen(state, claim, now):
        os.kill(os.getpid(), signal.SIGSTOP)
        return decide(state, claim, now)

    async def main():
        async with SqliteBackend(path) as backend:
            return (await backend.claim(claim(token="frozen"))).outcome

    decide, decision.claim = decision.claim, frozen
    return asyncio.run(main())


def test_a_process_frozen_in_a_write_holds_the_lock_until_it_goes_on(path):
    child = Child(freeze_in_a_write, path)
    try:
        assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])

        async def main():
            async with SqliteBackend(path, timeout="300ms") as backend:
                with pytest.raises(BackendUnavailable, match="another process holds the file's write lock"):
                    await backend.claim(claim(token="waits"))
                assert (await backend.active(["sync"])).runs == ()  # to read is allowed

        asyncio.run(main())
    finally:
        os.kill(child.pid, signal.SIGCONT)
    assert child.result() == "won"


def test_a_killed_writer_leaves_no_lock(path):
    async def main():
        async with SqliteBackend(path) as backend:
            holding = f"import sqlite3,time; c=sqlite3.connect({str(path)!r}, isolation_level=None)\n"
            holding += "c.execute('begin immediate'); c.execute('delete from tenure_jobs'); print(1, flush=True)\n"
            holding += "time.sleep(600)"
            await backend.claim(claim(token="one"))
            process = subprocess.Popen([sys.executable, "-c", holding], stdout=subprocess.PIPE)
            with process:
                process.stdout.readline()
                call = asyncio.ensure_future(backend.heartbeat("sync", LONG_AGO, "one"))
                await asyncio.sleep(0)
                process.kill()
                started = time.monotonic()
                assert await call is True
                assert time.monotonic() - started < 3

    asyncio.run(main())
