"""Two certificates beside each other, for people: what was certified then and now, and whose verdict changed."""

from collections.abc import Mapping
from typing import Any

from tenure_conformance import certificate
from tenure_conformance.rule import catalogue

_SHOWN = ("target", "distribution", "version", "store", "suite", "rules", "seed")


def lines(before: certificate.Document, after: certificate.Document) -> list[str]:
    """What differs, line by line; one line if nothing does."""
    one, other = _told(before["claims"]), _told(after["claims"])
    heads = [f"{name}: {one[name]} -> {other[name]}" for name in one if one[name] != other[name]]
    found = certificate.differences(before, after)
    sentences = {rule.id: rule.sentence for rule in catalogue()}
    rows = [f"{rule}  {was} -> {now}  {sentences.get(rule, '')}".rstrip() for rule, was, now in found]
    return [*heads, *rows, _summary(found)]


def _told(claims: Mapping[str, Any]) -> dict[str, str]:
    """What is said of a certificate in a line each."""
    shown = {name: str(claims.get(name) or "none") for name in _SHOWN}
    shown["rules"] = shown["rules"][:12]
    for name in ("levels", "powers"):
        shown[name] = ", ".join(claims.get(name) or ["none"])
    for name in ("capabilities", "timing", "limits"):
        shown |= {f"{name}.{key}": str(value) for key, value in sorted((claims.get(name) or {}).items())}
    shown["certified"] = "yes" if claims["certified"] else "no"
    return shown


def _summary(found: list[tuple[str, str, str]]) -> str:
    lost = sum(was == "pass" for _, was, _ in found)
    gained = sum(now == "pass" for _, _, now in found)
    if not found:
        return "no rule has another verdict"
    return f"rules with another verdict: {len(found)}; pass now: {gained}, pass no more: {lost}"
