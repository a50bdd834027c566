"""What is the in-memory backend's own: its stores, its URL, its hints."""

import asyncio
import threading

import pytest
from tenure.errors import InvalidClaim, InvalidUrl
from tenure.memory import MemoryBackend, MemoryStore, from_url
from tenure.model import Claim

LONG_AGO = 1_700_000_000_000


def claim(job="sync", slot=LONG_AGO, token="one"):
    return Claim(
        job=job, slot=slot, token=token, instance="i", lease_ms=1_000, mode="manual", overlap="allow", max_attempts=3,
        max_late_ms=None,
    )  # fmt: skip


def outcomes(*backends):
    async def main():
        found = []
        for number, backend in enumerate(backends):
            async with backend:
                found.append((await backend.claim(claim(token=f"t{number}"))).outcome)
        return found

    return asyncio.run(main())


def test_a_url_without_a_name_is_a_store_of_its_own():
    assert outcomes(from_url("memory://"), from_url("memory://"), from_url("memory:///")) == ["won"] * 3


def test_a_named_url_is_one_store_in_this_process():
    assert outcomes(from_url("memory://one"), from_url("memory://one?keep_results=5")) == ["won", "running"]
    assert outcomes(from_url("memory://two"), from_url("memory://One")) == ["won", "won"]


def test_namespaces_of_a_named_store_are_apart():
    assert outcomes(from_url("memory://three", namespace="a"), from_url("memory://three", namespace="b")) == ["won"] * 2


@pytest.mark.parametrize("url", ["memory://name/path", "memory:///path", "memory://user@name"])
def test_more_than_a_name_is_refused(url):
    with pytest.raises(InvalidUrl, match="write memory:// or memory://name"):
        from_url(url)


def test_the_number_of_results_to_keep_is_checked():
    with pytest.raises(InvalidClaim, match="limit"):
        from_url("memory://?keep_results=0")


def test_objects_on_one_store_decide_together_from_many_threads():
    store = MemoryStore()
    won = []
    ready = threading.Barrier(8)

    def thread(number):
        async def main():
            async with MemoryBackend(store) as backend:
                ready.wait(10)
                for slot in range(LONG_AGO - 50, LONG_AGO):
                    if (await backend.claim(claim(slot=slot, token=f"t{number}"))).outcome == "won":
                        won.append(slot)

        asyncio.run(main())

    threads = [threading.Thread(target=thread, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(won) == list(range(LONG_AGO - 50, LONG_AGO))


def test_a_release_is_hinted_to_other_objects_from_another_loop():
    store = MemoryStore()

    async def release_three_runs():
        async with MemoryBackend(store) as backend:
            for job in ("other", "a", "b"):
                await backend.claim(claim(job))
                assert await backend.release(job, LONG_AGO, "one")

    async def main():
        async with MemoryBackend(store) as backend:
            changes = backend.changes(["a", "b"])
            first = asyncio.ensure_future(anext(changes))
            while not store.listeners:
                await asyncio.sleep(0)
            await asyncio.to_thread(lambda: asyncio.run(release_three_runs()))
            async with asyncio.timeout(10):
                assert [await first, await anext(changes)] == ["a", "b"]
            await changes.aclose()
            assert not store.listeners

    asyncio.run(main())
