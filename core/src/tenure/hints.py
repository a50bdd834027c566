"""Listens to a backend's hints, so that backups look at once instead of at their next poll."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import cast

from tenure.instance import Delays, Instance
from tenure.protocol import Hints
from tenure.watch import Watches

_SETTLE_S = 0.1
"""Jobs that come and go together are listened to together."""


class HintListener:
    """Passes a backend's hints on to the watches; lost hints cost time only, so a failure is told and retried."""

    def __init__(self, instance: Instance, backend: object, watches: Watches, jobs: Iterable[str]) -> None:
        self._instance = instance
        self._backend = cast(Hints, backend) if callable(getattr(backend, "changes", None)) else None
        self._watches = watches
        self._jobs = jobs
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def refresh(self) -> None:
        """Listen to the jobs as they are now, soon."""
        if self._backend is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SETTLE_S, self._listen_anew)

    def stop(self) -> None:
        """Listen no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._backend = None

    def _listen_anew(self) -> None:
        self._timer = None
        if self._task is not None:
            self._task.cancel()
        if self._backend is not None:
            self._task = self._instance.spawn(self._listen(self._backend))

    async def _listen(self, backend: Hints) -> None:
        delays = Delays(self._instance.rng)
        while True:
            try:
                await self._pass_on(backend.changes(list(self._jobs)))
            except Exception as error:  # noqa: BLE001 - hints are never relied upon
                self._instance.error("changes", error)
            if await self._instance.pause(delays.next_ms()):
                return

    async def _pass_on(self, changes: AsyncIterator[str]) -> None:
        try:
            async for name in changes:
                self._watches.hint(name)
        finally:
            if isinstance(changes, AsyncGenerator):  # else there is nothing to close
                await changes.aclose()
