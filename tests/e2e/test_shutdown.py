"""Signals and other ends of a process: in order, in time, and never a hang."""

import signal
import subprocess
import sys
import time

import pytest

LEASE = {"lease": "2s", "heartbeat": "400ms", "max_late": "1h", "catch_up": "1h"}


def executing(cluster, handler="polite", seconds=60, *options, **config):
    """A process in which a handler executes."""
    job = {"name": "pay", "handler": handler, "seconds": seconds, "slots": [cluster.now_ms() - 1], **LEASE}
    process = cluster.start(*options, jobs=[job], **config)
    process.wait("begin")
    return process


each_host = pytest.mark.parametrize("host", ["run", "serve"])


@each_host
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_process_that_has_nothing_to_do(cluster, host, signum):
    process = cluster.start(host=host)
    process.signal(signum)
    assert process.code() == 0
    process.wait("over")
    assert process.errors.endswith(" has no jobs\n")
    assert process.errors.count("\n") == 1


@each_host
def test_a_stop_waits_for_the_handler_stores_its_end_and_closes_the_store_last(cluster, host):  # SD01, SD02
    process = executing(cluster, "deaf", seconds=3, host=host)  # longer than the lease
    bystander = cluster.start(
        jobs=[{"name": "pay", "slots": [process.of("begin")[0]["slot"]], **LEASE, "catch_up": None}]
    )
    process.signal(signal.SIGTERM)
    assert process.code() == 0
    kinds = [report["kind"] for report in process.reports]
    assert kinds[-3:] == ["end", "success", "over"]
    assert sorted(kinds[:-3]) == ["begin", "ready", "start"]
    assert process.errors == ""
    assert not bystander.of("begin", "takeover")
    assert [run[1:] for run in cluster.history("pay")] == [(1, "success")]


@each_host
def test_a_signal_during_the_start_ends_it(cluster, host):
    with cluster.blocked():
        process = cluster.start(host=host, ready=False, jobs=[{"name": "pay", "period": "1s"}])
        cluster.wait_until(lambda: catches(process, signal.SIGTERM), "it starts, and heeds signals")
        began = time.monotonic()
        process.signal(signal.SIGTERM)
        assert process.code() == 0
        cluster.within((time.monotonic() - began) * 1000, 3_000, "the end of the start")  # the store's timeout is 5 s
    assert not process.of("ready", "begin")
    process.wait("over")


def catches(process, signum):
    with open(f"/proc/{process.pid}/status") as status:
        (mask,) = (int(line.split()[1], 16) for line in status if line.startswith("SigCgt"))
    return mask >> (signum - 1) & 1


@each_host
@pytest.mark.parametrize("handler", ["deaf", "sleeping"])
def test_a_second_signal_does_not_wait(cluster, host, handler):
    process = executing(cluster, handler, seconds=20, host=host, grace="1h")
    process.signal(signal.SIGTERM)
    time.sleep(0.2)
    assert not process.of("over")
    at = process.signal(signal.SIGTERM)
    process.wait("over")
    cluster.within(process.of("over")[0]["at"] - at, 2_500, "the end")
    assert process.code() == 0


@each_host
def test_a_signal_while_a_handler_blocks_the_loop_is_heeded_at_once(cluster, host):
    process = executing(cluster, "blocking", seconds=2.5, host=host, grace="20s")
    process.signal(signal.SIGTERM)
    assert process.wait("end")["told"] == "stop"  # the loop was never free in between
    process.wait("success")
    assert process.code() == 0


def test_a_handler_thread_that_never_ends_does_not_keep_the_process(cluster):  # CT01
    process = executing(cluster, "deaf", seconds=600, grace="200ms")
    at = process.signal(signal.SIGTERM)
    process.wait("over")
    cluster.within(process.of("over")[0]["at"] - at, 200 + 500 + 2_000, "the stop")
    assert process.code() == 0
    assert "outlived the stop" in process.errors


def test_an_async_handler_that_swallows_its_cancellation_does_not_keep_the_process(cluster):  # CT01
    job = {"name": "pay", "handler": "stubborn", "seconds": 600, "slots": [cluster.now_ms() - 1], **LEASE}
    process = cluster.start(jobs=[{**job, "timeout": "1s"}], grace="500ms")
    failure = process.wait("failure")
    assert failure["timeout"]
    assert 900 < failure["duration_ms"] < 20_000
    at = process.signal(signal.SIGTERM)
    process.wait("over")
    cluster.within(process.of("over")[0]["at"] - at, 500 + 500 + 2_000, "the stop")
    assert process.code() == 0


def test_ctrl_c_in_a_plain_script_interrupts_the_start_and_the_block_alike(cluster):
    process = executing(cluster, "polite", host="start")
    process.signal(signal.SIGINT)
    assert process.code() == -signal.SIGINT
    assert "KeyboardInterrupt" in process.errors


def test_a_process_that_ends_without_a_stop_gives_back_what_it_can(cluster):
    process = executing(cluster, "polite", host="start")
    at = process.signal(signal.SIGINT)
    process.code()
    assert process.wait("interrupted")["reason"] == "stop"
    other = cluster.start(jobs=[{"name": "pay", "slots": [process.of("begin")[0]["slot"]], **LEASE, "catch_up": None}])
    begun = other.wait("begin")
    assert begun["attempt"] == 2
    cluster.within(begun["at"] - at, 1_900, "the handover")  # less than the lease, the other's start included


@pytest.mark.parametrize("host", ["block", "serve"])
def test_sigterm_where_nobody_handles_it_kills_and_the_lease_runs_out(cluster, host):
    process = executing(cluster, "polite", host=host)
    process.signal(signal.SIGTERM)
    assert process.code() == (0 if host == "serve" else -signal.SIGTERM)


def test_asserts_that_are_switched_off_change_nothing(cluster):
    process = executing(cluster, "sleeping", 0.1, "-O", "-W", "error")
    process.wait("success")
    process.signal(signal.SIGTERM)
    assert process.code() == 0
    assert process.errors == ""


# Whole programs, as people write them

PROGRAMS = {
    "ends without a stop": """
        scheduler.start()
        scheduler.trigger("sync").result()
    """,
    "ends its loop without a stop": """
        async def main():
            await scheduler.__aenter__()
            await scheduler.trigger("sync")
            await scheduler.trigger("async")

        asyncio.run(main())
    """,
    "raises in the block": """
        with scheduler:
            scheduler.trigger("sync").result()
            raise ZeroDivisionError
    """,
    "exits in the block": """
        async def main():
            async with scheduler:
                await scheduler.trigger("async")
                sys.exit(3)

        asyncio.run(main())
    """,
    "exits in a handler": """
        @scheduler.every("exits", "1h")
        def exits():
            sys.exit("this ends the run alone")

        with scheduler:
            scheduler.trigger("exits").result()
            scheduler.trigger("sync").result()
            wait()
    """,
    "forks in a handler": """
        @scheduler.every("forks", "1h")
        def forks(ctx):
            child = os.fork()
            if child == 0:
                assert scheduler.instance is None
                scheduler.stop()
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            print("forked", flush=True)

        with scheduler:
            scheduler.trigger("forks").result()
            wait()
    """,
    "lets a forked child return from the handler": """
        @scheduler.every("forks", "1h")
        def forks(ctx):
            if child := os.fork():
                os.waitpid(child, 0)
                print("forked", flush=True)

        with scheduler:
            scheduler.trigger("forks").result()
            wait()
    """,
    "stops in a handler": """
        @scheduler.every("stops", "200ms", jitter="0s")
        def stops():
            scheduler.stop()

        scheduler.run()
    """,
    "closes in an async handler": """
        @scheduler.every("stops", "200ms", jitter="0s")
        async def stops():
            await scheduler.aclose()

        asyncio.run(scheduler.serve())
    """,
    "starts in a loop": """
        async def main():
            scheduler.start()

        asyncio.run(main())
    """,
    "blocks the loop in debug mode": """
        @scheduler.every("blocks", "1h", lease="2s", heartbeat="50ms")
        async def blocks(ctx):
            time.sleep(0.9)
            assert not ctx.signal.is_set()

        async def main():
            async with scheduler:
                await asyncio.gather(scheduler.trigger("blocks"), scheduler.trigger("sync"), scheduler.trigger("async"))
                await asyncio.sleep(0.05)

        asyncio.run(main(), debug=True)
    """,
}

ENDS = {
    "ends without a stop": (0, ""),
    "ends its loop without a stop": (0, None),  # whether a handler still met the closed loop is chance
    "raises in the block": (1, "ZeroDivisionError"),
    "exits in the block": (3, ""),
    "exits in a handler": (0, "this ends the run alone"),
    "forks in a handler": (0, ""),
    "lets a forked child return from the handler": (0, ""),
    "stops in a handler": (0, ""),
    "closes in an async handler": (0, ""),
    "starts in a loop": (1, "start() would block the event loop; use `async with scheduler:`"),
    "blocks the loop in debug mode": (0, ""),
}

PREFIX = """
import asyncio, logging, os, sys, threading, time, warnings

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
logging.getLogger("asyncio").setLevel(logging.ERROR)  # that a callback was slow is no news
from tenure import Scheduler

done = []
scheduler = Scheduler(sys.argv[1], grace="10s", on_event=lambda event: done.append(event.kind))


def wait():
    while not {"success", "failure"} & set(done):
        time.sleep(0.01)


@scheduler.every("sync", "1h")
def sync():
    pass


@scheduler.every("async", "1h")
async def async_():
    pass

"""


def dedent(program):
    return "\n".join(line[8:] for line in program.splitlines())


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that(name, tmp_path):  # HB04
    ended = subprocess.run(
        [
            sys.executable,
            "-X",
            "dev",
            "-W",
            "error",
            "-c",
            PREFIX + dedent(PROGRAMS[name]),
            f"sqlite:///{tmp_path}/jobs.db",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    code, words = ENDS[name]
    assert ended.returncode == code, ended.stderr
    assert (words or "") in ended.stderr
    if words == "":
        assert ended.stderr == ""
    assert "never retrieved" not in ended.stderr
    assert "destroyed" not in ended.stderr
    if "fork" in name:
        assert ended.stdout == "forked\n"
