"""Finds the scheduler that ``tenure run module:scheduler`` names."""

import difflib
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType

import click

from tenure.scheduler import Scheduler


class LoadFailed(click.ClickException):
    """The application's own code raised; its error is the cause."""


def load_scheduler(target: str) -> Scheduler:
    """The scheduler, or what a function without arguments of that name gives.

    Modules are looked for in the current directory first. UsageError if the target is not written right,
    ClickException if it is not there, LoadFailed if the application raises.
    """
    module_name, colon, path = target.partition(":")
    if not module_name or not colon or not path:
        raise click.UsageError(f"{target!r} names no scheduler; write module:attribute, as in app:scheduler")
    if module_name.endswith(".py") or "/" in module_name:
        name = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise click.UsageError(f"{module_name!r} is a file; write the module's name, as in {name}:{path}")
    found = _attribute(_module(module_name), path)
    return found if isinstance(found, Scheduler) else _made(found, target)


def _module(name: str) -> ModuleType:
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 - sys.path holds texts
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _load_failed(name, error) from error
        raise click.ClickException(
            f"there is no module {error.name!r} in {here} or installed; call this where it can be imported"
        ) from None
    except Exception as error:
        raise _load_failed(name, error) from error


def _attribute(module: ModuleType, path: str) -> object:
    found: object = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise click.ClickException(f"{module.__name__!r} has no {path!r}; {_suggestion(module, path)}") from None
    return found


def _suggestion(module: ModuleType, path: str) -> str:
    schedulers = [name for name, value in vars(module).items() if isinstance(value, Scheduler)]
    if schedulers:
        return f"it has {', '.join(f'{module.__name__}:{name}' for name in schedulers)}"
    close = difflib.get_close_matches(path, dir(module), n=1)
    return f"did you mean {module.__name__}:{close[0]}?" if close else "no name in it is a Scheduler"


def _made(factory: object, target: str) -> Scheduler:
    """What a factory makes."""
    if not callable(factory) or isinstance(factory, type) or _takes_arguments(factory):
        raise click.ClickException(
            f"{target} is {_kind(factory)}, neither a Scheduler nor a function without arguments that gives one"
        )
    try:
        made = factory()
    except Exception as error:
        raise _load_failed(target, error) from error
    if isinstance(made, Scheduler):
        return made
    if inspect.iscoroutine(made):
        made.close()
        raise click.ClickException(f"{target} is an async function; make it a plain one that gives a Scheduler")
    raise click.ClickException(f"{target}() gave {_kind(made)}; it must give a Scheduler")


def _takes_arguments(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    return False


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _load_failed(what: str, error: Exception) -> LoadFailed:
    text = traceback.format_exception_only(error)[-1].strip()
    return LoadFailed(f"{what} raised {text} ({_place(error)}); --log-level debug shows the traceback")


def _place(error: Exception) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"
