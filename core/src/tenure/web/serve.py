"""Serves the page on a socket until it is told to stop."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from tenure.host import StopSignals
from tenure.web.app import end_streams


class _Server(uvicorn.Server):
    """Leaves the signals to us: it would raise them again when it has ended, before a scheduler is stopped."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(application: Starlette, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT; a second one does not wait for answers that are on their way."""
    config = uvicorn.Config(
        application, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=3
    )
    asyncio.run(_serve(_Server(config), application, listener))


async def _serve(server: _Server, application: Starlette, listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()

    def stop(again: bool) -> None:
        server.should_exit, server.force_exit = True, again
        loop.call_soon_threadsafe(end_streams, application)

    with StopSignals(stop):
        await server.serve(sockets=[listener])
