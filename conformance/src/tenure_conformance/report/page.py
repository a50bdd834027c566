"""The certificate as a page for people: one file that needs nothing else."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tenure_conformance.report.badge import base
from tenure_conformance.report.markup import Markup, code, join, tag, visible
from tenure_conformance.report.timeline import draw
from tenure_conformance.report.wording import duration, read
from tenure_conformance.rule import AREAS, Rule, catalogue
from tenure_conformance.verdict import OUTCOMES, Call

Verdict = Mapping[str, Any]
Claims = Mapping[str, Any]

SIGNS = {"pass": "✓", "fail": "✗", "inconclusive": "?", "waived": "~", "not-applicable": "·"}
MARKS = {"fail": "✗ failed after this", "waived": "✗ failed after this"}
POWERS = {
    "claim-only": "decides who runs a slot",
    "lease": "also knows whether the owner is alive",
    "durable": "survives a restart of the store",
    "shared": "is reached from other processes",
    "hints": "tells of released runs",
    "cards": "keeps what the jobs are, for readers",
    "faults": "is right while replies are lost, connections break and stores restart",
    "processes": "is right while processes are killed and frozen, whatever their clocks say",
}


def render(document: Mapping[str, Any], verdicts: Sequence[Verdict]) -> str:
    """The page; the verdicts are in the order of the rules."""
    claims, run = document["claims"], document["run"]
    rules = {rule.id: rule for rule in catalogue()}
    title = f"{claims['target']}: {'certified' if claims['certified'] else 'not certified'}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · tenure conformance"),
        tag("style", Markup(_beside("page.css"))),
    )
    body = tag(
        "body",
        _PATTERN,
        _verdict(claims, run, verdicts),
        tag(
            "main",
            _attention(claims, verdicts, rules),
            _facts(document),
            _levels(claims, verdicts, rules),
            _promises(claims),
            _rules(verdicts, rules),
        ),
        _footer(document),
        tag("script", Markup(_beside("page.js"))),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


_PATTERN = Markup(
    '<svg class="patterns" width="0" height="0" aria-hidden="true"><defs><pattern id="uncertain" width="5" height="5" '
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5" class="ground"/>'
    '<rect width="2" height="5" class="hatch"/></pattern></defs></svg>'
)


def _verdict(claims: Claims, run: Mapping[str, Any], verdicts: Sequence[Verdict]) -> Markup:
    certified = claims["certified"]
    target = " ".join(part for part in (claims["distribution"], claims["version"]) if part)
    about = (target, claims["store"], tag("span", run["date"][:10], class_="whole"))
    return tag(
        "header",
        tag(
            "div",
            tag("p", "tenure conformance", class_="brand"),
            tag(
                "h1",
                tag("span", "✓" if certified else "✗", class_="seal", aria_hidden="true"),
                tag("span", claims["target"], " is ", tag("em", "certified" if certified else "not certified")),
            ),
            tag("p", _sentence(claims, verdicts), class_="sentence"),
            tag("p", join(*(part for part in about if part), between=" · "), class_="about"),
            class_="inner",
        ),
        class_="certified" if certified else "refused",
    )


def _sentence(claims: Claims, verdicts: Sequence[Verdict]) -> Markup:
    """Why, in one sentence."""
    counted = Counter(verdict["outcome"] for verdict in verdicts)
    if claims["certified"]:
        levels = ", ".join(claims["levels"])
        return join(f"All {counted['pass']} rules that apply to what it declares ({levels}) were run and pass.")
    reasons = [
        join(f"{_number(counted[kind], 'rule')} {word} (", _links(verdicts, kind), ")")
        for kind, word in (
            ("fail", "failed"),
            ("inconclusive", "came to no verdict"),
            ("waived", "failed and were waived"),
        )
        if counted[kind]
    ]
    if not counted.total() - counted["not-applicable"]:
        reasons.append(join("no rule was run"))
    elif claims["filtered"]:
        reasons.append(join("only some of the rules were run"))
    told = join(*reasons, between="; ")
    return join(told[:1].upper(), Markup(told[1:]), ".")


def _links(verdicts: Sequence[Verdict], kind: str) -> Markup:
    named = [verdict["rule"] for verdict in verdicts if verdict["outcome"] == kind]
    shown = [tag("a", name, href=f"#{name}") for name in named[:8]]
    return join(join(*shown, between=", "), f" and {len(named) - 8} more" if len(named) > 8 else None)


def _number(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _attention(claims: Claims, verdicts: Sequence[Verdict], rules: Mapping[str, Rule]) -> Markup | None:
    """What keeps it from being certified, failures first."""
    order = ("fail", "inconclusive", "waived")
    found = sorted((one for one in verdicts if one["outcome"] in order), key=lambda one: order.index(one["outcome"]))
    if not found:
        return None
    cards = (_card(claims, verdict, rules.get(verdict["rule"])) for verdict in found)
    return tag("section", tag("h2", "What did not pass"), *cards, class_="attention")


def _card(claims: Claims, verdict: Verdict, rule: Rule | None) -> Markup:
    calls = read(verdict["calls"])
    mark = MARKS.get(verdict["outcome"], "? last answer")
    return tag(
        "article",
        tag("h3", _chip(verdict["outcome"]), tag("span", verdict["rule"], class_="id"), _about(rule)),
        tag("p", code(rule.sentence), class_="rule") if rule else None,
        tag("pre", _reason(verdict), class_="reason"),
        draw(calls, claims, mark=mark, reason=verdict["reason"])
        if calls
        else tag("p", "It made no call.", class_="quiet"),
        _everything(calls),
        _more("How Python tells it", verdict["traceback"]),
        _origin(rule, verdict),
        id=verdict["rule"],
        class_=f"card {verdict['outcome']}",
    )


def _about(rule: Rule | None) -> Markup | None:
    return tag("span", f"{AREAS[rule.area]} · level {rule.level}", class_="quiet") if rule else None


def _reason(verdict: Verdict) -> str:
    return f"The backend raised {verdict['reason']}" if verdict["crashed"] else str(verdict["reason"])


def _everything(calls: Sequence[Call]) -> Markup | None:
    lines = "\n".join(f"{number:3}  {call}" for number, call in enumerate(calls, 1))
    return _more(f"All {_number(len(calls), 'call')} in full", lines) if calls else None


def _more(summary: str, text: str) -> Markup | None:
    return tag("details", tag("summary", summary), tag("pre", text)) if text else None


def _origin(rule: Rule | None, verdict: Verdict) -> Markup:
    """Where the rule comes from, and what it took."""
    told = (
        [join("Leases of ", ", ".join(str(lease) for lease in verdict["leases_ms"]), " ms. ")]
        if verdict["leases_ms"]
        else []
    )
    if rule is not None:
        told.append(join("Protocol: ", join(*(tag("code", f"#{anchor}") for anchor in rule.spec), between=" "), ". "))
        told.append(join("See ", tag("code", f"tenure-conformance explain {rule.id}"), "."))
    return tag("p", *told, class_="quiet")


def _facts(document: Mapping[str, Any]) -> Markup:
    claims, run = document["claims"], document["run"]
    facts: list[tuple[str, str | Markup]] = [
        ("Backend", " ".join(part for part in (claims["distribution"], claims["version"]) if part) or "not named"),
        ("Store", claims["store"] or "not named"),
        ("Suite", f"tenure-conformance {claims['suite']}"),
        ("Rules", tag("code", claims["rules"][:16], title=claims["rules"])),
        ("When", f"{run['date'].replace('T', ' ').replace('+00:00', ' UTC')}, {run['seconds']:.1f} s"),
        ("Where", f"{run['host']}, Python {run['python']}"),
        ("Again", tag("code", f"tenure-conformance run {claims['reference']} --seed {claims['seed']}")),
        ("Digest", tag("code", document["digest"][:16], title=document["digest"])),
    ]
    rows = (tag("div", tag("dt", name), tag("dd", told)) for name, told in facts)
    return tag("section", tag("h2", "What was run"), tag("dl", *rows, class_="facts"))


def _levels(claims: Claims, verdicts: Sequence[Verdict], rules: Mapping[str, Rule]) -> Markup:
    counted: dict[str, Counter[str]] = {level: Counter() for level in POWERS}
    for verdict in verdicts:
        rule = rules.get(verdict["rule"])
        if rule is not None and rule.base in claims["levels"]:
            counted[rule.level][verdict["outcome"]] += 1
    shown = [level for level in POWERS if level in claims["levels"] or counted[level]]
    rows = (_level(level, level in claims["levels"], counted[level]) for level in shown)
    head = tag("tr", *(tag("th", word, scope="col") for word in ("Level", "Declared", "Rules")))
    table = tag("table", tag("thead", head), tag("tbody", *rows))
    return tag("section", tag("h2", "Levels"), table)


def _level(level: str, declared: bool, counted: Counter[str]) -> Markup:
    return tag(
        "tr",
        tag("th", tag("code", level), tag("span", f" {POWERS[level]}", class_="quiet"), scope="row"),
        tag("td", "yes" if declared else "no"),
        tag("td", _counts(counted)),
        class_=None if declared else "undeclared",
    )


def _counts(counted: Mapping[str, int]) -> Markup:
    told = [
        tag("span", f"{SIGNS[kind]} {counted[kind]}", tag("span", f" {kind}", class_="word"), class_=f"count {kind}")
        for kind in OUTCOMES
        if counted.get(kind)
    ]
    return join(*told, between=" ") if told else tag("span", "none", class_="quiet")


def _promises(claims: Claims) -> Markup:
    """What the target declares of itself: its capabilities, and how patient the rules were with it."""
    parts = (("Capabilities", "capabilities"), ("Patience", "timing"), ("Demands", "limits"))
    lists = (
        tag("div", tag("h3", title), tag("dl", *(_promise(*one) for one in claims[key].items()), class_="promises"))
        for title, key in parts
        if claims.get(key)
    )
    powers = claims["powers"]
    harm = tag("p", f"What the suite can do to its store: {', '.join(powers)}.", class_="quiet") if powers else None
    return tag("section", tag("h2", "What the target declares"), tag("div", *lists, class_="columns"), harm)


def _promise(name: str, value: object) -> Markup:
    told = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
    unit = " ms" if name.endswith("_ms") else ""
    return tag("div", tag("dt", name.removesuffix("_ms").replace("_", " ")), tag("dd", told + unit))


def _rules(verdicts: Sequence[Verdict], rules: Mapping[str, Rule]) -> Markup:
    areas = [(area, list(told)) for area, told in groupby(verdicts, key=lambda verdict: str(verdict["rule"])[:3])]
    return tag(
        "section",
        tag("h2", "Rules"),
        _filter([area for area, _ in areas], verdicts),
        *(_area(area, told, rules) for area, told in areas),
        tag("p", "No rule fits.", class_="quiet", id="nothing", hidden=True),
        class_="rules",
    )


def _filter(areas: Iterable[str], verdicts: Sequence[Verdict]) -> Markup:
    """Shown by the script, since it does nothing without."""
    counted = Counter(verdict["outcome"] for verdict in verdicts)
    kinds = (
        tag(
            "label",
            tag("input", type="checkbox", name="outcome", value=kind, checked=True),
            f" {SIGNS[kind]} {kind} {counted[kind]}",
            class_=f"count {kind}",
        )
        for kind in OUTCOMES
        if counted[kind]
    )
    options = (tag("option", f"{area} {AREAS.get(area, '')}", value=area) for area in areas)
    return tag(
        "form",
        tag("select", tag("option", "all areas", value=""), *options, name="area", aria_label="Area"),
        tag("input", type="search", name="words", placeholder="Search the rules", aria_label="Search the rules"),
        *kinds,
        tag("button", "Fold all", type="button", name="fold"),
        id="filter",
        hidden=True,
    )


def _area(area: str, verdicts: Sequence[Verdict], rules: Mapping[str, Rule]) -> Markup:
    counted = Counter(verdict["outcome"] for verdict in verdicts)
    summary = tag(
        "summary", tag("h3", tag("span", area, class_="id"), f" {AREAS.get(area, '')}"), tag("span", _counts(counted))
    )
    rows = (_row(verdict, rules.get(verdict["rule"])) for verdict in verdicts)
    applies = len(verdicts) > counted["not-applicable"]
    return tag("details", summary, tag("ul", *rows), open=applies, class_="area", data_area=area)


def _row(verdict: Verdict, rule: Rule | None) -> Markup:
    kind = verdict["outcome"]
    name = verdict["rule"]
    attention = kind in ("fail", "inconclusive", "waived")
    why = tag("span", f" {visible(verdict['reason'])}.", class_="quiet") if kind == "not-applicable" else None
    return tag(
        "li",
        tag("span", SIGNS[kind], class_=f"sign {kind}", title=kind, role="img", aria_label=kind),
        tag("a", name, href=f"#{name}", class_="id") if attention else tag("span", name, class_="id"),
        tag("span", code(rule.sentence) if rule else None, why, class_="sentence"),
        tag("span", duration(round(verdict["seconds"] * 1_000)) if kind != "not-applicable" else "", class_="seconds"),
        data_outcome=kind,
    )


def _chip(kind: str) -> Markup:
    return tag("span", f"{SIGNS[kind]} {kind}", class_=f"chip {kind}")


def _footer(document: Mapping[str, Any]) -> Markup:
    claims = document["claims"]
    return tag(
        "footer",
        tag(
            "p",
            f"A {base(claims)} backend is certified when every rule of the levels that it declares passes. The suite "
            "tries hard to find what is wrong and cannot show that nothing is. The digest shows that the certificate "
            "was not changed by accident, not who wrote it: to be sure, run it again.",
        ),
        tag("p", tag("code", "tenure-conformance verify certificate.json"), " checks the file beside this page."),
    )
