"""Lay the pages out for the site: as they are here, but for links to directories, and with the reference."""

import ast
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    "*.md",
    "LICENSE",
    "docs/*.md",
    "docs/*.svg",
    "docs/site/site.css",
    "docs/benchmarks/**/*",
    "docs/images/**/*",
    "docs/examples/**/*",
    "backends/*/README.md",
    "conformance/README.md",
    "conformance/certificates/**/*",
]
ONLY = {"tenure.health": ["wsgi", "asgi"]}
"""Of modules whose other names are not for the public."""
SOURCES = ["core/src", "backends/*/src", "conformance/src"]
LEFT_OUT = {"__pycache__", ".mypy_cache", ".hypothesis", ".ruff_cache"}
MODULES = {
    "tenure": "The public names of `tenure`.",
    "tenure.testing": "Several instances in virtual time; [Test your own jobs](../testing.md) tells how.",
    "tenure.cas": "A lease backend of any store that can compare and replace; [Backends](../backends.md) shows one.",
    "tenure.health": "Probes and health pages; [Observe](../observe.md) tells how.",
    "tenure.otel": "Traces and metrics by OpenTelemetry; [Observe](../observe.md) tells how.",
    "tenure.web": "A page to look at, for an application that serves it; [A page to look at](../web.md) tells how.",
    "tenure.logs": "Which run a log record belongs to; [Observe](../observe.md) tells how.",
    "tenure_sqlite": "[SQLite](../sqlite.md).",
    "tenure_redis": "[Redis and Valkey](../redis.md).",
    "tenure_postgres": "[PostgreSQL](../postgres.md).",
    "tenure_mongo": "[MongoDB](../mongo.md).",
    "tenure_dynamodb": "[DynamoDB](../dynamodb.md).",
    "tenure_etcd": "[etcd](../etcd.md).",
    "tenure_conformance": "[The conformance suite](../conformance.md).",
}
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")


def main(out: Path) -> None:
    """Write the pages into an empty directory."""
    shutil.rmtree(out, ignore_errors=True)
    for file in files():
        target = out / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            target.write_text(staged(file), "utf-8")
        else:
            shutil.copyfile(ROOT / file, target)
    reference = out / "docs/reference"
    reference.mkdir()
    for module, text in MODULES.items():
        (reference / f"{module}.md").write_text(described(module, text), "utf-8")


def files() -> Iterator[Path]:
    """What belongs to the site, relative to the root."""
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and not LEFT_OUT.intersection(path.parts):
                yield path.relative_to(ROOT)


def staged(page: Path) -> str:
    """The page, whose links to directories lead to their README, as they do where the repository is looked at."""

    def whole(link: re.Match[str]) -> str:
        is_directory = (ROOT / page.parent / link[2]).is_dir()
        return f"{link[1]}{link[2].rstrip('/')}/README.md{link[3]}" if is_directory else link[0]

    text = LINK.sub(whole, (ROOT / page).read_text("utf-8"))
    return linked(text) if page == Path("docs/reference.md") else text


def linked(text: str) -> str:
    """The page of public names, each of which leads to what is generated of it."""
    module = ""
    lines = []
    for line in text.splitlines():
        if heading := re.match(r"## `(\w[\w.]*)`", line):
            module = heading[1]
        lines.append(re.sub(r"^\| `(\w+)`", rf"| [`\1`](reference/{module}.md#{module}.\1)", line))
    return "\n".join(lines) + "\n"


def described(module: str, text: str) -> str:
    """A page for the generator of the reference: a module's public names."""
    return f"# {module}\n\n{text}\n\n" + "\n\n".join(f"::: {module}.{name}" for name in names(module)) + "\n"


def names(module: str) -> list[str]:
    """Those of ``__all__``, or those that a module defines without an underscore; read, not imported."""
    if module in ONLY:
        return ONLY[module]
    tree = ast.parse(source(module).read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]


def source(module: str) -> Path:
    """The file of a module."""
    place = module.replace(".", "/")
    homes = [home for pattern in SOURCES for home in ROOT.glob(pattern)]
    (found,) = (
        path for home in homes for kind in (".py", "/__init__.py") if (path := home / f"{place}{kind}").exists()
    )
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
