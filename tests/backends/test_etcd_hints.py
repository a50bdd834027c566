"""What becomes of a watch that ends at an awkward moment."""

import asyncio

import pytest

grpc = pytest.importorskip("grpc")
hints = pytest.importorskip("tenure_etcd.hints")
keys = pytest.importorskip("tenure_etcd.keys")


class Stream:
    """A watch that ends as soon as a job was asked for; the next one tells of a lease."""

    def __init__(self, ends):
        self.ends = ends
        self.asked = 0

    async def write(self, request):
        if self.ends and self.asked:
            raise asyncio.InvalidStateError("RPC already finished.")
        self.asked += 1

    async def read(self):
        if self.ends:
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, None, None, details="Socket closed")
        return type("Answer", (), {"canceled": False, "events": [1], "watch_id": 2})

    def cancel(self):
        pass


class Cluster:
    """One member, whose first watch ends."""

    closed = False

    def __init__(self):
        self.streams = [Stream(True), Stream(False)]
        self.blamed = []
        self.member = self

    async def metadata(self):
        return ()

    def watch(self, metadata):
        return self.streams.pop(0)

    def blame(self, member):
        self.blamed.append(member)


def test_a_watch_that_ends_while_jobs_are_asked_for_comes_back():
    jobs = {number: keys.Layout("tenure", "app").job(f"job-{number}") for number in (1, 2, 3)}

    async def first_hint(cluster):
        async with asyncio.timeout(20):
            return await anext(hints.lease_ends(cluster, jobs))

    cluster = Cluster()
    assert asyncio.run(first_hint(cluster)) == "job-2"
    assert cluster.blamed == [cluster]
