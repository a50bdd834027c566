"""A replica set of three loses its primary amid calls: nobody wins twice, and no finish is lost."""

import asyncio
import signal
from contextlib import AsyncExitStack

import pytest
from tenure.errors import BackendUnavailable
from tenure.registry import connect

from .servers_mongo import ReplicaSet, wait_until
from .test_mongo import LEAVES_SOCKETS, claim, listening, news

pytestmark = LEAVES_SOCKETS

CLAIMERS = 8
PATIENCE_S = 120


@pytest.fixture(scope="module")
def members():
    replica_set = ReplicaSet()
    try:
        yield replica_set
    finally:
        replica_set.remove()


@pytest.fixture
def url(members, request):
    members.primary()
    place, _, query = members.url.partition("?")
    return f"{place}{request.node.name[:20].replace('[', '-').strip(']')}?{query}&timeout=2s"


async def answered(call, *arguments):
    """The answer, asked for as often as it takes; what was not answered may have been carried out."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await call(*arguments)
            except BackendUnavailable:
                await asyncio.sleep(0.01)


def stepped_down(members):
    members.step_down()


def frozen(members):
    """It goes on as primary for a moment when it wakes, beside its successor."""
    primary = members.primary()
    primary.send(signal.SIGSTOP)
    try:
        wait_until(lambda: _another_than(members, primary), "another member is the primary")
    finally:
        primary.send(signal.SIGCONT)


def killed(members):
    primary = members.primary()
    primary.kill()
    wait_until(lambda: _another_than(members, primary), "another member is the primary")
    primary.start()


def _another_than(members, former):
    for member in members.members:
        if member is not former:
            with member.client() as client:
                if client.admin.command("hello")["isWritablePrimary"]:
                    return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("loses_its_primary", [stepped_down, frozen, killed])
def test_nobody_wins_twice_and_no_finish_is_lost(members, url, loses_its_primary):
    async def main():
        wins, over = {}, asyncio.Event()

        async def compete(backend, name):
            slot = 0
            while not over.is_set():
                slot = max(slot + 1, max(wins, default=0))
                request = claim(slot=slot, instance=name, lease_ms=600_000, overlap="allow")
                told = await answered(backend.claim, request)
                assert told.outcome in ("won", "running", "done"), told
                if told.outcome == "won":
                    wins.setdefault(slot, []).append((name, told.attempt, told.fence))
                    assert await answered(backend.finish, "sync", slot, request.token, "success") is True

        async with AsyncExitStack() as stack:
            backends = [await stack.enter_async_context(connect(url)) for _ in range(CLAIMERS)]
            tasks = [asyncio.create_task(compete(backend, f"c{n}")) for n, backend in enumerate(backends)]
            await _until(lambda: len(wins) > 20, tasks)
            await asyncio.to_thread(loses_its_primary, members)
            after = len(wins)
            await _until(lambda: len(wins) > after + 20, tasks)
            over.set()
            await asyncio.gather(*tasks)
            assert all(len(winners) == 1 for winners in wins.values()), [w for w in wins.values() if len(w) > 1]
            assert {attempt for ((_, attempt, _),) in wins.values()} == {1}
            fences = [fence for _, ((_, _, fence),) in sorted(wins.items())]
            assert len(set(fences)) == len(fences)
            for slot in sorted(wins)[-100:]:
                told = await answered(backends[0].claim, claim(slot=slot, overlap="allow"))
                assert (told.outcome, told.status) == ("done", "success"), slot

    asyncio.run(main())


async def _until(told, tasks):
    async with asyncio.timeout(PATIENCE_S):
        while not told():
            await asyncio.wait(tasks, timeout=0.01, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done():
                    task.result()


@pytest.mark.slow
def test_hints_come_back_after_a_step_down(members, url):
    async def main():
        async with connect(url) as backend:
            async with listening(backend, "before"):
                await asyncio.to_thread(stepped_down, members)
                members.primary()
            async with listening(backend, "job") as heard:
                await asyncio.to_thread(stepped_down, members)
                listener = asyncio.create_task(news(heard))
                slot = 0
                while not listener.done():
                    slot += 1
                    request = claim("job", slot)
                    await answered(backend.claim, request)
                    await answered(backend.release, "job", slot, request.token)
                    await asyncio.wait([listener], timeout=0.05)
                assert listener.result() == "job"

    asyncio.run(main())


@pytest.mark.slow
def test_a_direct_way_to_a_member_serves_while_it_is_the_primary(members, url):
    database = url.rpartition("/")[2].partition("?")[0]

    async def main():
        primary = members.primary()
        secondary = next(member for member in members.members if member is not primary)
        with pytest.raises(BackendUnavailable, match="not the primary"):
            async with connect(secondary.url(database, timeout="2s")):
                pass
        async with connect(primary.url(database, timeout="2s")) as backend:
            await backend.claim(claim())
            await asyncio.to_thread(stepped_down, members)
            wait_until(lambda: members.primary() is not primary, "another member is the primary")
            calls = (backend.active, ["sync"]), (backend.results, "sync"), (backend.claim, claim())
            for call, argument in calls:
                with pytest.raises(BackendUnavailable):
                    await call(argument)

    asyncio.run(main())
