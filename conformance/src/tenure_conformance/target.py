"""What the author of a backend says about it: how it is opened, what it promises, how patient to be with it."""

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module, metadata
from typing import Any, Literal

from tenure.model import Capabilities

from tenure_conformance.faults.kit import FaultKit, Power

Level = Literal["claim-only", "lease", "durable", "shared", "faults", "processes", "hints", "cards"]
Server = str
"""How a server is started: ``auto``, ``docker`` or ``binary``; the latter two may name an image or a program to be used
instead of the recipe's, as ``docker:redis:6.2``."""

SERVER_HELP = "there are auto, docker or docker:IMAGE, binary or binary:PROGRAM"

LEVELS: tuple[Level, ...] = ("claim-only", "lease", "durable", "shared", "faults", "processes", "hints", "cards")
"""From the ground up; a target declares exactly one of the first two, and any of the others."""


class TargetError(Exception):
    """The target, or what it runs on, cannot be used; nothing was certified (exit code 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How patient the rules are; a slow machine costs repetitions, never a false failure."""

    lease_ms: int = 400
    """The lease that timed rules begin with; it is doubled, up to four times, when the machine was too slow."""
    short_ms: int = 30
    """The lease of a run that a rule only waits for to lapse."""
    slack_ms: int = 50
    """How long after its end a lease may still be seen as live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much the rules ask of the store."""

    clients: int = 16
    """Backend objects that race each other."""
    runs: int = 300
    """Runs that are stored beside each other where a page might end; at least 300 to mean much."""
    situations: int = 24
    """Situations that are built for each row of the claim's table."""
    histories: int = 12
    """Concurrent random histories of each kind."""
    examples: int = 60
    """Sequences that the state machine tries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A backend as the suite sees it.

    ``open(url, namespace)`` gives an asynchronous context manager that enters a fresh backend object; every object with
    one URL and namespace must work on one store. ``serve(how)`` gives a context manager that starts what the backend
    needs and gives its URL; without it, ``url`` is used as it is.
    """

    name: str
    open: Callable[[str, str], AbstractAsyncContextManager[Any]]
    levels: tuple[Level, ...] = ("lease",)
    url: str | None = None
    serve: Callable[[Server], AbstractContextManager[str]] | None = None
    capabilities: Capabilities = field(default_factory=Capabilities)
    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits)
    fences: Literal["clock", "revision"] = "clock"
    """Whether a new fence is ``max(last + 1, now)``, or a revision of the store that only rises."""
    distribution: str = ""
    """The distribution that brings the backend; its version is written into the certificate."""
    store: Callable[[], str] = str
    """Names the store and its version, for the certificate."""
    faults: FaultKit | None = None
    """How its store is harmed; declared together with the level ``faults``."""
    reference: str = ""
    """The name that other processes ``load`` it by, unless it is a built-in one; ``load`` fills it in."""
    options: dict[str, Any] = field(default_factory=dict)
    """What rules of one level ask of a target of that level."""

    def __post_init__(self) -> None:
        """Refuse levels that do not exist or do not fit together."""
        unknown = [level for level in self.levels if level not in LEVELS]
        if unknown:
            raise TargetError(f"{self.name}: no level {unknown[0]!r}; there are {', '.join(LEVELS)}")
        if ("claim-only" in self.levels) == ("lease" in self.levels):
            raise TargetError(f"{self.name}: declare one of the levels 'claim-only' and 'lease', not both or none")
        for power, promised in (("durable", self.capabilities.durable), ("shared", self.capabilities.shared)):
            if "lease" in self.levels and promised != (power in self.levels):
                raise TargetError(f"{self.name}: level and capability {power!r} disagree; declare both or none")
        if ("faults" in self.levels) != (self.faults is not None):
            raise TargetError(f"{self.name}: the level 'faults' and the field `faults` belong together")
        if "processes" in self.levels and "shared" not in self.levels:
            raise TargetError(f"{self.name}: the level 'processes' needs the level 'shared'")
        if "restart" in self.powers and "durable" not in self.levels:
            raise TargetError(f"{self.name}: a restart can only be judged of a store that is durable")

    @property
    def powers(self) -> frozenset[Power]:
        """What can be done to its store."""
        return self.faults.powers if self.faults is not None else frozenset()

    @property
    def lease_ms(self) -> int:
        """The lease that timed rules begin with, one that the store can grant."""
        return max(self.timing.lease_ms, self.capabilities.min_lease_ms)

    @property
    def short_ms(self) -> int:
        """The shortest lease that rules wait for to lapse, one that the store can grant."""
        return max(self.timing.short_ms, self.capabilities.min_lease_ms)

    def version(self) -> str:
        """The version of the backend's distribution, empty if the target names none."""
        return metadata.version(self.distribution) if self.distribution else ""

    def serving(self, url: str | None, how: Server) -> AbstractContextManager[str]:
        """The URL to use: the given one, else that of a server started here, else the target's own."""
        kind, _, which = how.partition(":")
        if kind not in ("auto", "docker", "binary") or (kind == "auto" and which):
            raise TargetError(f"no way to start a server is called {how!r}; {SERVER_HELP}")
        if url is not None:
            return nullcontext(url)
        if self.serve is not None:
            return self.serve(how)
        if self.url is None:
            raise TargetError(f"{self.name}: no URL; give --url")
        return nullcontext(self.url)


def connected(url: str, namespace: str) -> AbstractAsyncContextManager[Any]:
    """The backend of a URL; what most targets ``open`` with."""
    from tenure.registry import connect  # the suite also runs where only a part of tenure is needed

    return connect(url, namespace=namespace)


def load(name: str) -> Target:
    """The target of that name, ``module:object`` for one's own; TargetError if there is none."""
    module_name, colon, attribute = name.partition(":")
    if colon and "" not in sys.path:
        sys.path.insert(0, "")  # a module beside which the command is typed is found, as by `python -m`
    if not colon:
        module_name, attribute = f"tenure_conformance.targets.{name.replace('-', '_')}", "target"
    try:
        found = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise TargetError(f"no target {name!r} ({error}); give a built-in target or module:object") from error
    target = found() if callable(found) and not isinstance(found, Target) else found
    if not isinstance(target, Target):
        raise TargetError(f"{name!r} is {type(target).__name__}, not a tenure_conformance.Target")
    return target if target.reference or not colon else replace(target, reference=name)
