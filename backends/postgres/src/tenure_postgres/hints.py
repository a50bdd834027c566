"""Listens to what releases notify, on a session of its own that comes back by itself."""

import asyncio
import random
from collections.abc import Callable, Collection
from contextlib import suppress

from tenure_postgres.connections import Connections
from tenure_postgres.session import Session

_PAUSE_S = (0.05, 2.0)
"""Before a lost session is made anew: at first, and at most."""
_SILENCES = 3
"""After that many timeouts without a word from the server it is asked whether it is still there."""

Hint = Callable[[str], None]


async def listen(connections: Connections, channel: str, jobs: Collection[str], timeout_ms: int, hint: Hint) -> None:
    """Call ``hint`` for each release of one of the jobs, until cancelled; no failure is raised, it is tried again."""
    pause_s = _PAUSE_S[0]
    while True:
        with suppress(Exception):  # a hint is never relied upon, and the next call tells what is wrong
            async with asyncio.timeout(timeout_ms / 1_000):
                session = await _listening(connections, channel)
            pause_s = _PAUSE_S[0]
            try:
                await _pass_on(session, frozenset(jobs), timeout_ms / 1_000, hint)
            finally:
                await session.close()
        await asyncio.sleep(pause_s * random.uniform(0.5, 1))
        pause_s = min(2 * pause_s, _PAUSE_S[1])


async def _listening(connections: Connections, channel: str) -> Session:
    session = await connections.listening()
    try:
        await session.run(f'listen "{channel}"')
    except BaseException:
        await session.close()
        raise
    return session


async def _pass_on(session: Session, jobs: frozenset[str], timeout_s: float, hint: Hint) -> None:
    if session.pooled:  # each transaction may get another server process, and none is listened to: there are no hints
        await asyncio.get_running_loop().create_future()
    while True:
        told = await session.notified(_SILENCES * timeout_s)
        for job in told:
            if job in jobs:
                hint(job)
        if not told:
            async with asyncio.timeout(timeout_s):
                await session.run("")
