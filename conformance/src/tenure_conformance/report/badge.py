"""The badge: what is certified, and how many rules stand behind it, as a small picture of its own."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tenure_conformance.report.markup import Markup, tag

HEIGHT = 20
PADDING = 8
NARROW, WIDE = "fijlrtI|./ ", "mwMW"


def render(document: Mapping[str, Any], _verdicts: Sequence[Mapping[str, Any]]) -> str:
    """The badge as SVG; it needs no font of its own and is read out as one sentence."""
    claims = document["claims"]
    told = tell(claims)
    label = f"tenure {base(claims)}"
    left, right = _width(label), _width(told)
    colour = "#1a7f4b" if claims["certified"] else "#b3261e"
    said = f"{label}: {told}"
    return tag(
        "svg",
        tag("title", said),
        tag("rect", width=left + right, height=HEIGHT, rx=3, fill="#3a3f47"),
        tag("path", d=_right_half(left, right), fill=colour),
        _text(label, 0, left),
        _text(told, left, right),
        xmlns="http://www.w3.org/2000/svg",
        width=left + right,
        height=HEIGHT,
        viewBox=f"0 0 {left + right} {HEIGHT}",
        role="img",
        aria_label=said,
    )


def base(claims: Mapping[str, Any]) -> str:
    """The kind of backend: ``lease`` or ``claim-only``."""
    return next(iter(claims["levels"]), "")


def tell(claims: Mapping[str, Any]) -> str:
    """How many of the rules that apply pass, if that certifies it."""
    counted = Counter(claims["verdicts"].values())
    applicable = counted.total() - counted["not-applicable"]
    return f"certified {counted['pass']}/{applicable}" if claims["certified"] else "not certified"


def _right_half(left: int, right: int) -> str:
    """A rectangle whose right corners are round."""
    return f"M{left} 0h{right - 3}a3 3 0 0 1 3 3v{HEIGHT - 6}a3 3 0 0 1-3 3h-{right - 3}z"


def _text(text: str, x: int, width: int) -> Markup:
    room = width - 2 * PADDING
    font = "Verdana,Geneva,DejaVu Sans,sans-serif"
    return tag("text", text, x=x + PADDING, y=14, textLength=room, fill="#fff", font_family=font, font_size=11)


def _width(text: str) -> int:
    """About as wide as the text is drawn; ``textLength`` makes it exact."""
    drawn = sum(4.2 if character in NARROW else 9.8 if character in WIDE else 6.7 for character in text)
    return round(drawn) + 2 * PADDING
