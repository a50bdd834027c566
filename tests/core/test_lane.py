"""The line in which runs wait for their claim: its width, and what a burst does to the collector of garbage."""

import asyncio
import gc

import pytest
from tenure.job import make_job
from tenure.lane import WIDTH
from tenure.memory import MemoryBackend
from tenure.schedule import every
from tenure.testing import World


@pytest.fixture
def collector():
    """The collector is on before and after."""
    assert gc.isenabled()
    yield
    assert gc.isenabled()


def jobs(count, handler):
    return [make_job(f"job-{number}", every("1h"), handler, {"jitter": "0s"}) for number in range(count)]


def test_a_store_is_not_asked_for_more_claims_at_once_than_the_line_is_wide():
    class Counting(MemoryBackend):
        now = most = 0

        async def claim(self, claim):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.02)
            self.now -= 1
            return await super().claim(claim)

    with World(start="2026-12-01T12:30:00Z") as world:
        backend = Counting(world.store)
        instance = world.start(jobs(500, lambda: None), backend=backend)
        world.advance("31m")
        assert (instance.count("success"), backend.most) == (500, WIDTH)


def test_a_burst_puts_the_collector_off_and_on_again(collector):
    seen = []
    with World(start="2026-12-01T12:30:00Z") as world:
        world.start(jobs(1_500, lambda: seen.append(gc.isenabled())))
        world.advance("31m")
        assert seen == [False] * 1_500
        assert gc.isenabled()


def test_a_stop_in_a_burst_leaves_the_collector_on(collector):
    with World(start="2026-12-01T12:30:00Z") as world:
        instance = world.start(jobs(1_500, lambda: None))
        world.run_until(lambda: instance.count("success"))
        assert not gc.isenabled()
        instance.stop()
        assert gc.isenabled()


def test_a_collector_that_the_application_stopped_stays_stopped():
    gc.disable()
    try:
        with World(start="2026-12-01T12:30:00Z") as world:
            world.start(jobs(1_500, lambda: None))
            world.advance("31m")
            assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_world_that_ends_in_a_burst_leaves_the_collector_on(collector):
    with World(start="2026-12-01T12:30:00Z") as world:
        instance = world.start(jobs(1_500, lambda: None))
        world.run_until(lambda: instance.count("success"))
        instance.crash()
        assert not gc.isenabled()
    assert gc.isenabled()
