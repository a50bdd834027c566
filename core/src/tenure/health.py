"""Whether a scheduler is alive and ready, as probes ask it: nothing is called, so that the answer always comes."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypeVar

from tenure.clock import Clock
from tenure.observe import Observers

Result = TypeVar("Result")
State = Literal["stopped", "starting", "running", "stopping"]

TICK_MS = 1_000
"""The instance's loop notes this often that it turns."""
_LONGEST_SILENCE_MS = 10_000
"""A loop that has not turned for so long is stuck: all that it does in one go takes far less."""
_TROUBLE_MS = 60_000
"""A call that failed longer ago says nothing of the store of today: while it is away, something is tried more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What a scheduler knows of itself at one moment; ages are None where there was nothing yet."""

    state: State
    instance: str | None = None
    tick_age_ms: int | None = None
    """Since the loop of the instance turned last; it does each second."""
    store_answer_age_ms: int | None = None
    """Since the last call that the store answered."""
    store_error: str | None = None
    """The kind of the error by which the last call failed, if no later one succeeded and that was within a minute."""
    clock_offset_ms: int | None = None
    """The store's clock minus this machine's, as the last answer told; None on a claim-only backend."""

    @property
    def alive(self) -> bool:
        """Whether the instance works; if not, only another start helps."""
        return self.tick_age_ms is not None and self.tick_age_ms < _LONGEST_SILENCE_MS

    @property
    def store_reachable(self) -> bool:
        """Whether the store answered the last call."""
        return self.store_answer_age_ms is not None and self.store_error is None

    @property
    def ready(self) -> bool:
        """Whether it claims runs: it is alive, does not stop, and reaches its store."""
        return self.state == "running" and self.alive and self.store_reachable

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        verdicts = {"alive": self.alive, "ready": self.ready, "store_reachable": self.store_reachable}
        return {**verdicts, **asdict(self)}


class StoreClock:
    """The store's clock as an instance knows it from answers; before the first one, the instance's own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms: float | None = None

    def learn(self, now_ms: int) -> None:
        """Take an answer's ``now_ms`` in."""
        self._ahead_ms = now_ms - self._clock.monotonic_ms()

    def now_ms(self) -> int:
        """The store's time, late by at most the way of the last answer."""
        if self._ahead_ms is None:
            return self._clock.wall_ms()
        return int(self._clock.monotonic_ms() + self._ahead_ms)

    def offset_ms(self) -> int | None:
        """The store's time minus this machine's; None before the first answer."""
        return None if self._ahead_ms is None else self.now_ms() - self._clock.wall_ms()


class Contact:
    """An instance's calls of its store, as they went; written on the engine's thread, read on any."""

    def __init__(self, clock: Clock, observers: Observers) -> None:
        self.store_clock: StoreClock = StoreClock(clock)
        self._clock = clock
        self._observers = observers
        self._answered_ms: float | None = None
        self._failed: tuple[float, str] | None = None

    async def note(self, call: str, asked: Awaitable[Result]) -> Result:
        """The answer that is waited for, or its error; both are noted. A call that is cancelled says nothing."""
        began_ms = self._clock.monotonic_ms()
        try:
            answer = await asked
        except Exception as error:
            ended_ms = self._clock.monotonic_ms()
            self._failed = ended_ms, type(error).__name__
            self._observers.called(call, ended_ms - began_ms, error)
            raise
        self._answered_ms = self._clock.monotonic_ms()
        self._failed = None
        self._observers.called(call, self._answered_ms - began_ms)
        return answer

    def health(self, state: State, instance: str | None, ticked_ms: float | None) -> Health:
        """What is known now; ``ticked_ms`` is by the monotonic clock."""
        now, failed = self._clock.monotonic_ms(), self._failed
        recent = failed is not None and now - failed[0] < _TROUBLE_MS
        return Health(
            state=state,
            instance=instance,
            tick_age_ms=_age_ms(now, ticked_ms),
            store_answer_age_ms=_age_ms(now, self._answered_ms),
            store_error=failed[1] if failed is not None and recent else None,
            clock_offset_ms=self.store_clock.offset_ms(),
        )


def _age_ms(now: float, then: float | None) -> int | None:
    return None if then is None else max(round(now - then), 0)


# For whoever has a server already


class HasHealth(Protocol):
    """A scheduler."""

    def health(self) -> Health:
        """See Scheduler."""


def wsgi(scheduler: HasHealth) -> Callable[[dict[str, Any], Callable[..., object]], Iterable[bytes]]:
    """A WSGI application with ``/live`` and ``/ready``, below any prefix: 200 or 503, and the health as JSON."""

    def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        status, body = _answer(scheduler, environ.get("PATH_INFO", ""))
        start_response(status, [("content-type", "application/json"), ("content-length", str(len(body)))])
        return [body]

    return application


def asgi(scheduler: HasHealth) -> Callable[..., Awaitable[None]]:
    """An ASGI application with ``/live`` and ``/ready``, below any prefix: 200 or 503, and the health as JSON."""

    async def application(scope: dict[str, Any], receive: object, send: Callable[..., Awaitable[None]]) -> None:  # noqa: ARG001 - ASGI's signature
        if scope["type"] != "http":
            raise ValueError(f"a health check answers http, not {scope['type']}")
        status, body = _answer(scheduler, scope["path"])
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": int(status[:3]), "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return application


def _answer(scheduler: HasHealth, path: str) -> tuple[str, bytes]:
    import json  # loaded for the first probe: an import of tenure does not pay for it

    asked = path.rstrip("/").rpartition("/")[2]
    if asked not in ("live", "ready"):
        return "404 Not Found", b'{"error": "there are /live and /ready"}'
    health = scheduler.health()
    good = health.alive if asked == "live" else health.ready
    return "200 OK" if good else "503 Service Unavailable", json.dumps(health.as_dict()).encode()
