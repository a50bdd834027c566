# scheduling/scheduler.py
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import connections
from tenure import Context, Event, Scheduler


class Connections:
    """Each handler has a thread of its own, and so database connections of its own: close them when it ends."""

    @contextmanager
    def around(self, ctx: Context) -> Iterator[None]:
        try:
            yield
        finally:
            connections.close_all()

    def event(self, event: Event) -> None:
        pass

    def called(self, call: str, took_ms: float, error: BaseException | None) -> None:
        pass


scheduler = Scheduler(settings.JOBS_STORE, grace="30s")
scheduler.observe(Connections())
