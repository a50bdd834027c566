"""Records that a handler logs say which run they belong to."""

import asyncio
import logging
import threading
import time

import pytest
from tenure import Scheduler
from tenure.events import LOG_FIELDS
from tenure.logs import RunFields

PATIENCE_S = 20


class Kept(logging.Handler):
    def __init__(self, **options):
        super().__init__()
        self.records = []
        self.addFilter(RunFields(**options))

    def emit(self, record):
        self.records.append(record)

    def wait(self, count):
        end = time.monotonic() + PATIENCE_S
        while len(self.records) < count:
            assert time.monotonic() < end
            time.sleep(0.005)


@pytest.fixture
def log():
    log = logging.getLogger("of.the.application")
    log.setLevel(logging.INFO)
    yield log
    log.handlers.clear()


def of(record):
    return {name: getattr(record, name, None) for name in LOG_FIELDS}


def test_what_sync_and_async_handlers_log_has_the_facts_of_their_run(log):
    kept, ran = Kept(), {}
    log.addHandler(kept)
    scheduler = Scheduler("memory://", jitter="0s")

    @scheduler.every("sync", "100ms")
    def sync(ctx):
        if ran.setdefault("sync", ctx) is ctx:
            log.info("here")

    async def elsewhere():
        log.info("in a task")
        await asyncio.to_thread(log.info, "in a thread")

    @scheduler.every("async", "100ms")
    async def async_(ctx):
        if ran.setdefault("async", ctx) is ctx:
            await asyncio.create_task(elsewhere())

    with scheduler:
        kept.wait(3)
    assert len(kept.records) == 3
    for record in kept.records:
        ctx = ran["sync" if record.msg == "here" else "async"]
        assert of(record) == {
            "job": ctx.job,
            "slot": ctx.slot_ms,
            "attempt": 1,
            "fence": ctx.fence,
            "instance": ctx.instance,
        }


def test_records_of_others_get_no_facts_or_empty_ones(log):
    bare, full = Kept(), Kept(defaults=True)
    log.addHandler(bare)
    log.info("outside")
    log.handlers = [full]
    log.info("outside")
    assert not hasattr(bare.records[0], "job")
    assert of(full.records[0]) == {"job": "", "slot": 0, "attempt": 0, "fence": 0, "instance": ""}


def test_facts_that_a_record_has_are_kept(log):
    kept = Kept(defaults=True)
    log.addHandler(kept)
    log.info("outside", extra={"job": "mine"})
    assert of(kept.records[0])["job"] == "mine"


def test_a_thread_of_the_application_is_no_run(log):
    kept = Kept()
    log.addHandler(kept)
    scheduler = Scheduler("memory://", jitter="0s")

    @scheduler.every("sync", "100ms")
    def sync():
        thread = threading.Thread(target=log.info, args=["no context"])
        thread.start()
        thread.join()

    with scheduler:
        kept.wait(1)
    assert not hasattr(kept.records[0], "job")
