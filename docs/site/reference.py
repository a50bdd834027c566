"""Write docs/reference.md, the public names: ``python docs/site/reference.py``, after one has come or gone."""

import inspect
from importlib import import_module
from pathlib import Path

from stage import MODULES, names

PAGE = Path(__file__).parents[1] / "reference.md"
HEAD = """# Reference

The public names, by module. On the site each leads to its signature and description; in the code they are documented
where they stand. What is not named here may change without notice.
"""


def page() -> str:
    """The page."""
    return HEAD + "".join(section(module, text.replace("](../", "](")) for module, text in MODULES.items())


def section(module: str, text: str) -> str:
    """A module's names."""
    loaded = import_module(module)
    rows = "".join(f"| `{name}` | {sentence(getattr(loaded, name))} |\n" for name in names(module))
    return f"\n## `{module}`\n\n{text}\n\n| | |\n| --- | --- |\n{rows}"


def sentence(value: object) -> str:
    """The first line of what is said of it; of a type's other name, what it stands for."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return f"`{value}`".replace("tenure.protocol.", "").replace("typing.", "").replace("|", "or")
    first = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
    return first.replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
