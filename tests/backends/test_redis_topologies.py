"""Redis under Sentinel and as a Cluster, really run: failover, moving slots, and all calls across three primaries."""

import asyncio

import pytest
import redis
import redis.asyncio
from redis.crc import key_slot
from tenure.errors import BackendError, BackendMisconfigured, BackendUnavailable
from tenure.registry import connect
from tenure_redis import RedisBackend
from tenure_redis.errors import acl_rules
from tenure_redis.keys import Keys

from .servers_redis import HOST, clustered, replicated, wait_until
from .test_redis import PAST, claim, every_call, hears

JOBS = [f"job {number}" for number in range(40)]


async def _again_until_it_works(call):
    """The answer of a call that is repeated while a failover lasts; no error but BackendUnavailable is seen."""
    async with asyncio.timeout(40):
        while True:
            try:
                return await call()
            except BackendUnavailable:
                await asyncio.sleep(0.05)


# Sentinel


@pytest.fixture(scope="module")
def sentinel():
    with replicated(1, sentinels=3, quorum=2) as (primary, (replica,), sentinels):
        yield primary, replica, sentinels


def _url(sentinels, **_):
    return f"redis+sentinel://{','.join(f'{HOST}:{one.port}' for one in sentinels)}/mymaster"


def test_every_call_by_the_primary_that_sentinels_name(sentinel):
    _, _, sentinels = sentinel

    async def main():
        async with connect(_url(sentinels)) as backend:
            await every_call(backend)
            assert await hears(backend, "hinted")
        async with connect(f"redis+sentinel://{HOST}:1,{HOST}:{sentinels[0].port}/mymaster/0") as backend:
            await every_call(backend, "beside a sentinel that is down")

    asyncio.run(main())


def test_a_client_under_sentinel(sentinel):
    _, _, sentinels = sentinel
    manager = redis.asyncio.Sentinel([(HOST, one.port) for one in sentinels])

    async def main():
        async with RedisBackend(manager.master_for("mymaster"), namespace="client") as backend:
            assert str(backend) == f"{_url(sentinels)} (namespace client)"
            await every_call(backend)

    asyncio.run(main())


def test_sentinels_that_ask_for_a_user(sentinel):
    _, _, sentinels = sentinel
    for one in sentinels:
        one.call("ACL", "SETUSER", "me", "on", ">hunter2", "-@all", "+sentinel|get-master-addr-by-name")
    url = f"{_url(sentinels)}?sentinel_username=me&sentinel_password="

    async def main():
        async with connect(f"{url}hunter2") as backend:
            await every_call(backend, "by a user of the sentinels")
        with pytest.raises(BackendMisconfigured, match="user or password is wrong"):
            async with connect(f"{url}guessed"):
                pass

    asyncio.run(main())


def test_a_primary_that_no_sentinel_knows(sentinel):
    _, _, sentinels = sentinel

    async def main():
        with pytest.raises(BackendMisconfigured, match="no sentinel knows a primary 'other'"):
            async with connect(_url(sentinels).replace("mymaster", "other")):
                pass
        with pytest.raises(BackendUnavailable):
            async with connect(f"redis+sentinel://{HOST}:1/mymaster"):
                pass

    asyncio.run(main())


def test_a_failover_is_followed_by_the_same_object(sentinel):
    """Last in this module's order: it kills the primary."""
    primary, replica, sentinels = sentinel

    async def main():
        async with connect(_url(sentinels), timeout="1s", wait_replicas=1) as backend:
            request = claim("kept", lease_ms=60_000)
            before = await backend.claim(request)
            heard = asyncio.create_task(_heard(backend, "hinted"))
            primary.kill()
            with pytest.raises(BackendUnavailable):
                await backend.heartbeat("kept", PAST, request.token)
            assert await _again_until_it_works(lambda: backend.heartbeat("kept", PAST, request.token))
            assert replica.call("ROLE")[0] == "master"
            assert await backend.finish("kept", PAST, request.token, "success")
            with pytest.raises(BackendUnavailable, match="0 of 1 replicas"):
                await backend.claim(claim("kept", slot=PAST + 1))
            heard.cancel()
            await asyncio.gather(heard, return_exceptions=True)
        async with connect(_url(sentinels)) as backend:
            after = await backend.claim(claim("kept", slot=PAST + 2))
            assert after.fence > before.fence
            assert await hears(backend, "hinted again")

    asyncio.run(main())


async def _heard(backend, job):
    async for _ in backend.changes([job]):
        pass


# Cluster


@pytest.fixture(scope="module")
def nodes():
    with clustered(3) as started:
        yield started


@pytest.fixture
def cluster(nodes):
    for node in nodes:
        node.call("FLUSHALL")
        node.call("SCRIPT", "FLUSH")
    return nodes


def _cluster_url(nodes):
    return f"redis+cluster://{HOST}:{nodes[1].port}"


def test_every_call_on_each_of_three_primaries(cluster):
    async def main():
        async with connect(_cluster_url(cluster)) as backend, connect(_cluster_url(cluster)) as other:
            await asyncio.gather(*(every_call(backend, job) for job in JOBS))
            requests = [claim(job, PAST + 1) for job in JOBS]
            answers = await asyncio.gather(*(backend.claim(request) for request in requests))
            assert {answer.outcome for answer in answers} == {"won"}
            shown = await other.active([*JOBS, "none"])
            assert [run.job for run in shown.runs] == sorted(JOBS)
            assert shown.now_ms > PAST
            assert (await other.active([])).runs == ()
            assert await hears(backend, "hinted")

    asyncio.run(main())
    sizes = [node.call("DBSIZE") for node in cluster]
    assert sum(sizes) == 2 * len(JOBS) + 3  # the runs of the one that was hinted, the cards, and the store
    assert all(sizes)


def test_calls_of_one_moment_travel_together_to_each_node(cluster, monkeypatch):
    from tenure_redis import node

    exchanges = []
    exchange = node._exchange

    async def counted(connection, requests):
        exchanges.append(len(requests))
        return await exchange(connection, requests)

    async def main():
        async with connect(_cluster_url(cluster)) as backend:
            await backend.active(JOBS)
            monkeypatch.setattr(node, "_exchange", counted)
            await backend.active(JOBS)

    asyncio.run(main())
    assert sum(exchanges) == len(JOBS)
    assert len(exchanges) <= 2 * len(cluster)


def test_a_cluster_client(cluster):
    client = redis.asyncio.RedisCluster(host=HOST, port=cluster[0].port)

    async def main():
        async with RedisBackend(client, namespace="client") as backend:
            await every_call(backend)

    asyncio.run(main())


def test_a_user_of_the_page_on_a_cluster(cluster):
    for node in cluster:
        node.call("ACL", "SETUSER", "me", "reset", "on", ">pw", *acl_rules(Keys("tenure").prefix).split())

    async def main():
        async with connect(_cluster_url(cluster).replace("://", "://me:pw@")) as backend:
            await every_call(backend)
            assert await hears(backend, "hinted")

    asyncio.run(main())


def test_a_slot_that_moves_is_followed_amid_and_after_its_move(cluster):
    key = Keys("tenure").runs("moving")
    slot = key_slot(key.encode())

    async def main():
        async with connect(_cluster_url(cluster)) as backend:
            request = claim("moving")
            won = await backend.claim(request)
            source = next(node for node in cluster if node.call("CLUSTER", "COUNTKEYSINSLOT", slot))
            target = next(node for node in cluster if node is not source)
            target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.call("CLUSTER", "MYID"))
            source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.call("CLUSTER", "MYID"))
            assert await backend.heartbeat("moving", PAST, request.token)  # not moved yet
            source.call("MIGRATE", HOST, target.port, key, 0, 1_000)
            assert await backend.heartbeat("moving", PAST, request.token)  # ASK
            assert (await backend.claim(claim("moving"))).fence is None
            for node in (target, source, *cluster):
                node.call("CLUSTER", "SETSLOT", slot, "NODE", target.call("CLUSTER", "MYID"))
            assert await backend.heartbeat("moving", PAST, request.token)  # MOVED
            (run,) = (await backend.active(["moving"])).runs
            assert run.fence == won.fence
            assert await backend.finish("moving", PAST, request.token, "success")

    asyncio.run(main())


def test_a_node_that_is_down_costs_its_own_jobs_and_comes_back(cluster):
    async def main():
        async with connect(_cluster_url(cluster), timeout="1s") as backend:
            await asyncio.gather(*(backend.claim(claim(job)) for job in JOBS))
            down = cluster[2]
            down.freeze()
            try:
                answers = await asyncio.gather(*(backend.claim(claim(job)) for job in JOBS), return_exceptions=True)
            finally:
                down.thaw()
            lost = [answer for answer in answers if isinstance(answer, Exception)]
            assert all(isinstance(answer, BackendUnavailable) for answer in lost)
            assert 0 < len(lost) < len(JOBS)
            wait_until(lambda: _is_ok(cluster), "the cluster")
            for job in JOBS:
                answer = await _again_until_it_works(lambda job=job: backend.claim(claim(job)))
                assert answer.outcome == "running"

    asyncio.run(main())


def _is_ok(nodes):
    return all("ok" in str(node.call("CLUSTER", "INFO")) for node in nodes)


def test_a_node_of_a_cluster_that_is_addressed_as_a_server_says_what_to_write(cluster):
    asyncio.run(_entered_once(cluster))

    async def main():
        owner = next(node for node in cluster if node.call("DBSIZE"))
        async with connect(f"redis://{HOST}:{owner.port}") as backend:
            answers = await asyncio.gather(*(backend.claim(claim(job)) for job in JOBS), return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, BackendMisconfigured)]
        assert 0 < len(refused) < len(JOBS)
        assert all("write redis+cluster://" in str(answer) for answer in refused)

    asyncio.run(main())


async def _entered_once(nodes):
    async with connect(_cluster_url(nodes)):
        pass


def test_leaving_amid_calls_ends_them(cluster):
    async def main():
        backend = connect(_cluster_url(cluster))
        await backend.__aenter__()
        calls = [asyncio.create_task(backend.claim(claim(job))) for job in JOBS]
        await asyncio.sleep(0)
        await backend.__aexit__(None, None, None)
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(answer, BackendError) or answer.outcome == "won"

    asyncio.run(main())
