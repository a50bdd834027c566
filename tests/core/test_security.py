"""What reads data must not run it: no pickle, no eval, no shell in what a service imports."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*ROOT.glob("core/src/**/*.py"), *ROOT.glob("backends/*/src/**/*.py")])
RUNS_WHAT_IT_READS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle", "code", "codeop"}
CALLS = {"eval", "exec", "compile", "__import__", "execfile", "input"}
METHODS = {
    *(
        "os.system",
        "os.popen",
        "os.execl",
        "os.execv",
        "os.spawnl",
        "subprocess.getoutput",
        "subprocess.getstatusoutput",
    ),
    *("yaml.load", "yaml.unsafe_load", "tempfile.mktemp", "ssl._create_unverified_context", "importlib.__import__"),
}
RULES = ["S301", "S302", "S307", "S102", "S602", "S604", "S605", "S501", "S323", "S506", "S306"]
"""Those of ruff that forbid the same."""


def name_of(node):
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def found_in(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in RUNS_WHAT_IT_READS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in RUNS_WHAT_IT_READS:
            yield node.module
        elif isinstance(node, ast.Call):
            name = name_of(node.func)
            if name in CALLS | METHODS:
                yield name
            yield from (f"{name}({word.arg}=…)" for word in node.keywords if is_unsafe(word))


def is_unsafe(word):
    value = word.value
    return isinstance(value, ast.Constant) and (word.arg, value.value) in (("shell", True), ("verify", False))


def test_there_is_something_to_look_at():
    assert len(SOURCES) > 80


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_runs_what_it_reads(path):
    assert list(found_in(ast.parse(path.read_text("utf-8")))) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from marshal import loads",
        "eval(text)",
        "os.system(text)",
        "subprocess.run(text, shell=True)",
        "requests.get(url, verify=False)",
    ],
)
def test_what_would_is_found(code):
    assert list(found_in(ast.parse(code)))


def test_the_linter_forbids_the_same():
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "S" in ruff["select"]
    assert not [rule for rule in ruff["ignore"] if rule in RULES]
    of_sources = [path for path in ruff["per-file-ignores"] if not path.startswith(("tests", "docs", "noxfile"))]
    assert of_sources == []
