"""The instance's code as a simulation runs it: tenure itself, or a copy with something changed."""

import builtins
import importlib
from collections.abc import Mapping
from importlib.resources import files
from types import ModuleType, SimpleNamespace
from typing import Any

Edit = tuple[str, str]
"""A piece of source that occurs once, and what stands in its place."""

_MODULES = (
    *("instance", "calls", "timers", "executor", "heartbeat", "watch", "hints", "attempt", "runner", "recovery"),
    *("lane", "levels", "engine"),
)
"""All that an instance is made of, each after what it imports."""


class StaleEdit(Exception):
    """The source that a defect is cut into has changed; the defect must be written anew."""


def right() -> SimpleNamespace:
    """The modules as they are."""
    return SimpleNamespace(**{name: importlib.import_module(f"tenure.{name}") for name in _MODULES})


def copied(edits: Mapping[str, tuple[Edit, ...]]) -> SimpleNamespace:
    """Copies of the modules, not in ``sys.modules``, that import each other; ``edits`` are by module."""
    copies: dict[str, ModuleType] = {}

    def importing(name: str, *args: Any, **kwargs: Any) -> Any:
        return copies.get(name) or builtins.__import__(name, *args, **kwargs)

    for name in _MODULES:
        module = ModuleType(f"tenure.{name}")
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": importing}
        source = edited(files("tenure").joinpath(f"{name}.py").read_text("utf-8"), edits.get(name, ()), name)
        exec(compile(source, f"<changed {name}>", "exec"), vars(module))
        copies[f"tenure.{name}"] = module
    return SimpleNamespace(**{name: copies[f"tenure.{name}"] for name in _MODULES})


def edited(source: str, edits: tuple[Edit, ...], name: str) -> str:
    """The source with every edit made; StaleEdit unless each fits at exactly one place."""
    for old, new in edits:
        if source.count(old) != 1:
            raise StaleEdit(f"{old!r} occurs {source.count(old)} times in {name}.py")
        source = source.replace(old, new)
    return source
