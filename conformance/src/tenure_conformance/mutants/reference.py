"""Broken copies of the reference: its own source with a clause changed, or its class with a method changed."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from importlib.resources import files
from importlib.util import module_from_spec
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

from tenure.memory import MemoryBackend, MemoryStore
from tenure.model import Capabilities, Claim, ClaimResult

from tenure_conformance.mutants.mutant import Mutant, register
from tenure_conformance.target import Limits, Target
from tenure_conformance.targets.memory import target as memory

Edit = tuple[str, str]
"""A piece of source that occurs once, and what stands in its place."""


_COMMENT = re.compile(r"  # .*$", re.MULTILINE)


class StaleEdit(Exception):
    """The source that a defect is cut into has changed; the defect must be written anew."""


class _Edited(InspectLoader):
    """Loads a module from a source that was edited."""

    def __init__(self, source: str) -> None:
        self._source = source

    def get_source(self, fullname: str) -> str:
        return self._source

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._source, f"<{fullname}>")


def edited(text: str, edits: tuple[Edit, ...]) -> str:
    """The text with every edit made; StaleEdit unless each fits at exactly one place."""
    for old, new in edits:
        if text.count(old) != 1:
            raise StaleEdit(f"{old!r} occurs {text.count(old)} times in the source of the reference")
        text = text.replace(old, new)
    return text


def load(package: str, file: str, edits: tuple[Edit, ...] = ()) -> ModuleType:
    """A module of its own, not in ``sys.modules``, from an installed file's source with the edits made.

    Edits see the source without the comments at the end of lines, and may use ``replace`` of dataclasses.
    """
    source = _COMMENT.sub("", files(package).joinpath(file).read_text("utf-8"))
    loader = _Edited(edited(source, edits))
    module = module_from_spec(ModuleSpec(f"broken {file}", loader))
    vars(module)["replace"] = replace
    loader.exec_module(module)
    return module


def reference(decision: tuple[Edit, ...] = (), memory: tuple[Edit, ...] = ()) -> SimpleNamespace:
    """Copies of the in-memory backend's two modules with these edits, as ``decision`` and what ``memory`` has."""
    backend, decisions = load("tenure", "memory.py", memory), load("tenure", "decision.py", decision)
    vars(backend).update(decision=decisions, EMPTY=decisions.EMPTY)
    return SimpleNamespace(**vars(backend))


def on_memory(name: str, make: Callable[[], tuple[Callable[..., Any], Any]], **options: Any) -> Target:
    """A target of this process; ``make`` gives the backends' class and their store when the first is opened."""
    made = cache(make)

    def opened(_url: str, namespace: str) -> Any:
        kind, store = made()
        return kind(store, namespace=namespace)

    limits = Limits(situations=40, histories=6, examples=60, runs=1_100)
    return replace(memory, name=name, open=opened, limits=limits, **options)


def _copied(decision: tuple[Edit, ...] = (), memory: tuple[Edit, ...] = ()) -> tuple[Callable[..., Any], Any]:
    copy = reference(decision, memory)
    return copy.MemoryBackend, copy.MemoryStore()


def decides(name: str, defect: str, breaks: str, *edits: Edit, seen: str = "") -> None:
    """Register the reference with a clause of its state machine changed."""
    target = on_memory(name, lambda: _copied(decision=edits))
    register(Mutant(name, defect, target, tuple(breaks.split()), seen))


@dataclass(frozen=True, slots=True)
class Win:
    """What a win was decided from, and the run that it gave."""

    state: Any
    claim: Claim
    now: int
    run: Any
    """What the store knew of the run before, None if nothing."""
    won: Any


def wins(name: str, defect: str, breaks: str, change: Callable[[Win], Any], *, seen: str = "") -> None:
    """Register the reference with the run that each win gives changed."""

    def made() -> tuple[Callable[..., Any], Any]:
        copy = reference()
        decision, right = copy.decision, copy.decision._win

        def win(state: Any, claim: Claim, now: int, run: Any) -> tuple[Any, ClaimResult]:
            after, _ = right(state, claim, now, run)
            won = next(one for one in after.unfinished if one.slot == claim.slot)
            changed = change(Win(state, claim, now, run, won))
            unfinished = tuple(changed if one is won else one for one in after.unfinished)
            return replace(after, fence=changed.fence, unfinished=unfinished), decision._won(changed, now)

        vars(decision)["_win"] = win
        return copy.MemoryBackend, copy.MemoryStore()

    register(Mutant(name, defect, on_memory(name, made), tuple(breaks.split()), seen))


def stores(name: str, defect: str, breaks: str, *edits: Edit, seen: str = "") -> None:
    """Register the reference with a line of its store changed."""
    target = on_memory(name, lambda: _copied(memory=edits))
    register(Mutant(name, defect, target, tuple(breaks.split()), seen))


def broken(
    name: str, defect: str, breaks: str, *, seen: str = "", capabilities: Capabilities | None = None
) -> Callable[[type[MemoryBackend]], type[MemoryBackend]]:
    """Register a subclass of the in-memory backend, which differs from it in one thing."""
    options = {} if capabilities is None else {"capabilities": capabilities}

    def registered(kind: type[MemoryBackend]) -> type[MemoryBackend]:
        register(
            Mutant(name, defect, on_memory(name, lambda: (kind, MemoryStore()), **options), tuple(breaks.split()), seen)
        )
        return kind

    return registered
