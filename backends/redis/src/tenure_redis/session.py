"""What is open while a backend is entered: it belongs to one event loop of one process."""

import asyncio
import os
import weakref
from collections.abc import Coroutine
from typing import Any

from tenure.errors import BackendMisconfigured

from tenure_redis.routes import Connector, Route, route_of

_inherited: list["Session"] = []
"""Sessions of a parent process: to close their sockets, or to let them be collected, would harm the parent's loop."""
_open: "weakref.WeakSet[Session]" = weakref.WeakSet()


def _disown() -> None:
    """In a forked child: what is open is the parent's."""
    for session in _open:
        session.inherited = True
    _inherited.extend(_open)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)


class Session:
    """The way to the server, and those who listen to hints."""

    def __init__(self, connector: Connector) -> None:
        self.route: Route = route_of(connector)
        self._loop = asyncio.get_running_loop()
        self.inherited = False
        _open.add(self)
        self._listeners: set[asyncio.Task[None]] = set()

    def check_here(self) -> None:
        """BackendMisconfigured in a forked process, and in another event loop."""
        if self.inherited:
            raise BackendMisconfigured(
                "the backend was entered by the process that this one was forked from; enter a backend of its own here"
            )
        if self._loop is not asyncio.get_running_loop():
            raise BackendMisconfigured(
                "the backend was entered in another event loop; enter a backend of its own in this one"
            )

    def listen(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Listen to hints until it is cancelled, at the latest when the session is closed."""
        task = self._loop.create_task(work)
        self._listeners.add(task)
        task.add_done_callback(self._listeners.discard)
        return task

    async def aclose(self) -> None:
        """Close what was opened here; what belongs to another process is left alone."""
        if self.inherited or self._loop is not asyncio.get_running_loop():
            return
        for listener in list(self._listeners):
            listener.cancel()
        await asyncio.gather(self.route.aclose(), *self._listeners, return_exceptions=True)
