"""Hints: a watch on the keys that hang on leases tells of each that was released or ran out."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import grpc  # type: ignore[import-untyped]  # grpcio has no annotations
from tenure.errors import BackendUnavailable

from tenure_etcd import errors, requests
from tenure_etcd.cluster import Answer, Cluster, is_wanted
from tenure_etcd.keys import JobKeys

_PAUSES_S = (0.05, 0.2, 0.5, 1.0)


async def lease_ends(cluster: Cluster, jobs: Mapping[int, JobKeys]) -> AsyncIterator[str]:
    """The name of a job each time one of its leases ends; jobs by numbers from 1. A watch that is lost comes back."""
    failures = 0
    while not cluster.closed:
        member = cluster.member
        try:
            metadata = await cluster.metadata()
            stream = member.watch(metadata=metadata)
            try:
                await _ask(stream, jobs)
                while (answer := await stream.read()) is not grpc.aio.EOF:
                    _check(answer)
                    failures = 0
                    for _ in answer.events:
                        yield jobs[answer.watch_id].name
            finally:
                stream.cancel()
        except asyncio.CancelledError:
            if is_wanted():
                raise  # else its channel was closed
        except (grpc.aio.AioRpcError, BackendUnavailable) as exc:
            if errors.needs_token(exc):
                cluster.forget_token()
            elif errors.blames_member(exc):
                cluster.blame(member)
        await asyncio.sleep(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
        failures += 1


async def _ask(stream: Any, jobs: Mapping[int, JobKeys]) -> None:
    """Ask for all jobs; of a stream that ended meanwhile gRPC says so here, and the reason where it is read."""
    with suppress(asyncio.InvalidStateError):
        for number, job in jobs.items():
            await stream.write(requests.watch_ends(job, number))


def _check(answer: Answer) -> None:
    if answer.canceled:
        raise BackendUnavailable(f"the watch was cancelled: {answer.cancel_reason}")
