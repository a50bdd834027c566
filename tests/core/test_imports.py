"""The core's modules import downwards, backends know only the core, and `import tenure` brings in nothing else."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "src" / "tenure"
OTHERS = sorted(path for pattern in ("backends/*/src/*", "conformance/src/*") for path in ROOT.glob(pattern))

LAYERS = [
    "errors clock dateclock duration urls",
    "model",
    "cron schedule words",
    "decision",
    "protocol job context events codec convoy",
    "observe health",
    "memory cas registry history",
    "story outlook",
    "instance calls timers executor",
    "heartbeat logs watch hints",
    "attempt unanswered",
    "runner",
    "recovery lane cards",
    "levels",
    "engine",
    "host",
    "scheduler",
    "successes",
    "cli demo testing otel web",
    "__init__ __main__",
]
LAYER = {module: height for height, line in enumerate(LAYERS) for module in line.split()}

BACKEND_CALLS = {"claim", "heartbeat", "finish", "release", "active", "save_result", "results", "save_cards", "cards"}
MAY_CALL_BACKENDS = {"runner", "watch", "recovery", "heartbeat", "calls", "cards", "cli", "demo", "testing", "web"}
MAY_CALL_HANDLERS = {"executor"}
OPTIONAL = {
    "web": {"starlette", "uvicorn"},
    "otel": {"opentelemetry"},
    "cli": {"click", "rich"},
    "demo": {"rich"},
    "words": {"cron_descriptor"},
}
"""Third-party modules that may be imported at import time, by whoever chose the extra of that name."""


def _modules() -> list[Path]:
    return sorted(CORE.glob("**/*.py"))


def _name(path: Path) -> str:
    return path.relative_to(CORE).with_suffix("").parts[0]


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imported(tree: ast.AST) -> Iterator[str]:
    """Every imported name in full, as `tenure.model.Claim`; also those for type checking only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import; write the name in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _core_imports(path: Path) -> set[str]:
    names = {name.split(".")[1] for name in _imported(_tree(path)) if name.startswith("tenure.")}
    return {name for name in names if name in LAYER or (CORE / f"{name}.py").exists()}


def _at_import_time(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported: not those in functions, nor those for type checking only."""
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        statement = pending.pop()
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test):
            continue
        yield statement
        pending += [child for child in ast.walk(statement) if isinstance(child, ast.stmt) and child is not statement]


def _called(path: Path) -> Iterator[tuple[str, str]]:
    """Pairs of receiver and method, by their last names: `self._backend.claim(…)` is ("_backend", "claim")."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = node.func.value
            yield getattr(receiver, "attr", getattr(receiver, "id", "")), node.func.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield "", node.func.id


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_a_module_imports_only_what_is_not_above_it(path: Path) -> None:
    name = _name(path)
    assert name in LAYER, f"{name} has no place among the layers; give it one in LAYERS"
    too_high = {imported for imported in _core_imports(path) if LAYER[imported] > LAYER[name]}
    assert not too_high


def test_no_modules_import_each_other_in_a_circle() -> None:
    imports: dict[str, set[str]] = {}
    for path in _modules():
        imports.setdefault(_name(path), set()).update(_core_imports(path) - {_name(path)})
    while free := {name for name, needed in imports.items() if not needed & imports.keys()}:
        imports = {name: needed for name, needed in imports.items() if name not in free}
    assert not imports, f"a circle: {imports}"


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_only_the_run_s_own_modules_call_a_backend(path: Path) -> None:
    calls = {
        f"{receiver}.{method}"
        for receiver, method in _called(path)
        if method in BACKEND_CALLS and receiver.strip("_") in ("backend", "store")
    }
    assert not calls or _name(path) in MAY_CALL_BACKENDS


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_only_the_executor_calls_handlers(path: Path) -> None:
    calls = {method for _, method in _called(path) if method.strip("_") in ("handler", "user_handler")}
    assert not calls or _name(path) in MAY_CALL_HANDLERS


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_the_core_imports_no_third_party_module_at_import_time(path: Path) -> None:
    statements = [node for node in _at_import_time(_tree(path)) if isinstance(node, ast.Import | ast.ImportFrom)]
    roots = {name.partition(".")[0] for statement in statements for name in _imported(statement)}
    assert roots <= {"tenure", *sys.stdlib_module_names, *OPTIONAL.get(_name(path), ())}


@pytest.mark.parametrize("package", OTHERS, ids=lambda path: path.name)
def test_backends_and_the_suite_know_the_core_and_never_each_other(package: Path) -> None:
    for path in package.glob("**/*.py"):
        roots = {name.partition(".")[0] for name in _imported(_tree(path))}
        strangers = {root for root in roots if root.startswith("tenure")} - {"tenure", package.name}
        assert not strangers, path


def _modules_of(code: str) -> set[str]:
    """What a fresh interpreter has imported after the code."""
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules, sep='\\n')"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_import_tenure_imports_only_itself_and_the_standard_library() -> None:
    brought = {
        name for name in _modules_of("import tenure") - _modules_of("pass") if not name.startswith("_sysconfigdata")
    }
    assert {name.partition(".")[0] for name in brought} <= {"tenure", *sys.stdlib_module_names}
    assert not brought & {"tenure.cli", "tenure.demo", "tenure.testing", "tenure.words", "sqlite3", "unittest"}
