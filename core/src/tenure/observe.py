"""Who looks at an instance more closely than events tell: its calls of the store, and around its handlers."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import TracebackType
from typing import Protocol

from tenure.context import Context
from tenure.events import Event, logger

_NOTHING = nullcontext()


class Observer(Protocol):
    """Looks at an instance; see ``Scheduler.observe``. What it raises is logged and changes nothing."""

    def event(self, event: Event) -> None:
        """An event happened; called on the thread of the listeners, in order."""

    def called(self, call: str, took_ms: float, error: BaseException | None) -> None:
        """A call of the store ended, with an answer or by an error; called on the instance's own thread: be quick."""

    def around(self, ctx: Context) -> AbstractContextManager[object]:
        """Entered just before the handler starts and left when it has ended, in its thread or task."""


class Observers:
    """All that look at one instance."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = tuple(observers)

    def called(self, call: str, took_ms: float, error: BaseException | None = None) -> None:
        """Tell of a call; never raises."""
        for observer in self._observers:
            try:
                observer.called(call, took_ms, error)
            except Exception:  # noqa: BLE001 - whatever it is, the call goes on
                logger.exception("the observer %r failed on a call of %s", observer, call)

    def around(self, ctx: Context) -> AbstractContextManager[object]:
        """What a handler runs in; what the handler raises passes through it."""
        if not self._observers:
            return _NOTHING
        if len(self._observers) == 1:
            return _Guarded(self._observers[0], ctx)
        return _all(_Guarded(observer, ctx) for observer in self._observers)


def _all(guarded: Iterable["_Guarded"]) -> AbstractContextManager[object]:
    with ExitStack() as stack:
        for each in guarded:
            stack.enter_context(each)
        return stack.pop_all()


class _Guarded:
    """An observer's context; a handler runs as if it were not there, whatever it does."""

    __slots__ = ("_ctx", "_entered", "_observer")

    def __init__(self, observer: Observer, ctx: Context) -> None:
        self._observer = observer
        self._ctx = ctx
        self._entered: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        try:
            around = self._observer.around(self._ctx)
            around.__enter__()
        except Exception:  # noqa: BLE001 - whatever it is, the handler goes on
            self._complain()
        else:
            self._entered = around

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._entered is None:
            return
        try:
            self._entered.__exit__(exc_type, exc, traceback)
        except Exception:  # noqa: BLE001 - whatever it is, the handler goes on
            self._complain()

    def _complain(self) -> None:
        logger.exception("the observer %r failed around the handler of %r", self._observer, self._ctx.job)
