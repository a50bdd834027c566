"""The page as an ASGI application: static files, a stream of what changes, the story of a slot, and a trigger."""

import json
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import tenure
from tenure.errors import BackendMisconfigured, InvalidInput, TenureError, UnknownJob
from tenure.memory import MemoryBackend
from tenure.model import check_name
from tenure.protocol import Backend
from tenure.registry import connect_existing
from tenure.scheduler import Scheduler
from tenure.web.data import slot_documents, story_document
from tenure.web.guard import Guard, same_origin
from tenure.web.reader import Reader

_STATIC = Path(__file__).with_name("static")
_QUIET_S = 15.0
"""A stream without news says that it is still there: what is between us and the browser may end silent ones."""


def page(
    target: str | Scheduler,
    *,
    namespace: str = "tenure",
    jobs: Sequence[str] = (),
    hosts: Collection[str] | None = None,
    allow_trigger: bool = False,
) -> Starlette:
    """The page of a store, given its URL or a scheduler that uses it; it may be mounted below any prefix.

    ``jobs`` are shown besides those that the store has cards of. ``hosts`` are the names that it may be asked for by,
    besides addresses and localhost; None if whoever mounts it looks after that. ``allow_trigger`` wants a scheduler,
    which whoever mounts it starts: a job that is triggered runs there. Nothing is opened before somebody looks.
    """
    if isinstance(target, Scheduler):
        connect = _connect_beside(target, allow_trigger)
    elif allow_trigger:
        raise InvalidInput("allow_trigger: a job runs where its handler is; give the scheduler instead of a URL")
    else:
        connect = _connect_to(target, namespace)
    for job in jobs:
        check_name(job, "job", InvalidInput)
    triggers = target if isinstance(target, Scheduler) and allow_trigger else None
    return _application(_Page(Reader(connect, jobs), str(connect()), triggers), hosts)


def _connect_to(url: str, namespace: str) -> Callable[[], Backend]:
    return lambda: connect_existing(url, namespace=namespace)


def _connect_beside(scheduler: Scheduler, allow_trigger: bool) -> Callable[[], Backend]:
    connect = scheduler._connect
    shared = connect()
    if allow_trigger and shared is connect() and not isinstance(shared, MemoryBackend):
        raise BackendMisconfigured(
            f"{shared} is an object, which the scheduler uses on its own thread; give the scheduler the store's URL, "
            "so that the page has a connection of its own"
        )
    return connect


def _application(handlers: "_Page", hosts: Collection[str] | None) -> Starlette:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await handlers.reader.aclose()

    application = Starlette(
        routes=[
            Route("/", handlers.index),
            Route("/events", handlers.events),
            Route("/slots", handlers.slots),
            Route("/story", handlers.story),
            Route("/trigger", handlers.trigger, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        middleware=[Middleware(Guard, hosts)],
        exception_handlers={TenureError: _failed, HTTPException: _refused},
        lifespan=lifespan,
    )
    application.state.board = handlers.reader.board
    return application


def end_streams(application: Starlette) -> None:
    """Have the streams end; a server that stops would wait for them."""
    application.state.board.close()


class _Page:
    """What the page's paths answer."""

    def __init__(self, reader: Reader, store: str, triggers: Scheduler | None) -> None:
        self.reader = reader
        self._store = store
        self._triggers = triggers
        self._token = secrets.token_urlsafe()

    async def index(self, _: Request) -> Response:
        return FileResponse(_STATIC / "index.html")

    async def events(self, _: Request) -> Response:
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def slots(self, request: Request) -> Response:
        """All slots of a job that are kept."""
        return JSONResponse(slot_documents((await self.reader.known(_job(request))).rows))

    async def story(self, request: Request) -> Response:
        """What became of one slot."""
        job, slot = _job(request), _slot(request)
        return JSONResponse(story_document(await self.reader.known(job), slot))

    async def trigger(self, request: Request) -> Response:
        """Run a job now, here."""
        if self._triggers is None:
            raise HTTPException(403, "this page is read-only; see --allow-trigger")
        token = request.headers.get("x-tenure-token", "")
        if not same_origin(request.headers) or not secrets.compare_digest(token.encode(), self._token.encode()):
            raise HTTPException(403, "this was not asked by the page itself; load it again")
        job = _job(request)
        triggered = await self._triggers.trigger(job)
        self.reader.expect(job)
        return JSONResponse({"slot": triggered.slot, "outcome": triggered.outcome})

    async def _stream(self) -> AsyncIterator[str]:
        async with self.reader.watched() as board:
            seen, extra = 0, {"about": self._about()}
            while not board.closed:
                news, seen = {**extra, **board.since(seen)}, board.revision
                yield _event({"now_ms": self.reader.now_ms(), "parts": news}) if news else ": still here\n\n"
                extra = {}
                await board.later(seen, _QUIET_S)

    def _about(self) -> dict[str, Any]:
        scheduler = self._triggers
        return {
            "store": self._store,
            "version": tenure.__version__,
            "triggers": [] if scheduler is None else [job.name for job in scheduler.jobs],
            "token": None if scheduler is None else self._token,
        }


def _event(message: dict[str, Any]) -> str:
    return f"data: {json.dumps(message, separators=(',', ':'))}\n\n"


def _job(request: Request) -> str:
    job = request.query_params.get("job", "")
    check_name(job, "job", InvalidInput)
    return job


def _slot(request: Request) -> int:
    text = request.query_params.get("slot", "")
    if not (text.isascii() and text.isdigit()) or len(text) > 15:
        raise InvalidInput(f"slot: {text[:40]!r} is no number of milliseconds")
    return int(text)


def _failed(_: Request, error: Exception) -> Response:
    status = 400 if isinstance(error, InvalidInput) else 404 if isinstance(error, UnknownJob) else 503
    return JSONResponse({"error": str(error)}, status)


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)
