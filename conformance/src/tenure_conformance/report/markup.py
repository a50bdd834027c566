"""HTML and SVG from Python: text is escaped unless it is markup already, and what cannot be seen is shown."""

import html
import unicodedata

VOID = frozenset({"meta", "br", "input", "rect", "line", "path", "circle"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | int | None


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """An element; ``class_`` and ``aria_label`` become ``class`` and ``aria-label``, None and False leave one out."""
    told = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in VOID:
        return Markup(f"<{name}{told}/>")
    return Markup(f"<{name}{told}>{join(*children)}</{name}>")


def join(*children: Child, between: str = "") -> Markup:
    """Children one after another; None is nothing."""
    return Markup(between.join(escaped(child) for child in children if child is not None))


def escaped(child: Child) -> str:
    """The child as HTML."""
    return child if isinstance(child, Markup) else html.escape(visible(str(child)))


def visible(text: str) -> str:
    """The text with control characters, lone surrogates and marks of direction written out, as Python does."""
    return "".join(_shown(character) for character in text)


def code(text: str) -> Markup:
    """A sentence in which `backticks` mark code."""
    parts = text.split("`")
    return join(*(tag("code", part) if number % 2 else part for number, part in enumerate(parts)))


def _attribute(key: str, value: str | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    told = f"{value:g}" if isinstance(value, float) else visible(str(value))
    return f' {name}="{html.escape(told)}"'


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs"):
        return character
    return character.encode("unicode_escape").decode()
