"""The report of a chaos run: one page that needs nothing else, and a few lines of text."""

from collections import Counter
from pathlib import Path

from tenure_conformance.report.markup import Markup, tag

from .checker import Judgement
from .drawing import Drawing, key
from .verdict import Measured, Violation

_SHOWN = 200
"""Violations that are told; where there are more, one cause has many."""
_STYLE = Path(__file__).with_name("page.css")


def numbers(judgement: Judgement) -> dict[str, str]:
    """What the run comes to."""
    story, evidence = judgement.story, judgement.story.evidence
    takeovers = [one for one in story.attempts.values() if one.takeover is not None]
    refused = sum(not entry.accepted for entry in evidence.journal)
    return {
        "runs": f"{len(story.runs):,}",
        "attempts": f"{len(story.attempts):,}",
        "takeovers": f"{len(takeovers)}",
        "faults": f"{len(evidence.faults)}",
        "violations": f"{len(judgement.violations)}",
        "worst takeover": _worst(judgement, "takeover"),
        "worst hand-over": _worst(judgement, "hand-over"),
        "stale writes refused": f"{refused}",
        "instances": f"{len(evidence.lives)}",
        "stalls": f"{sum(span.length() for span in evidence.stalls):.0f} ms",
    }


def _worst(judgement: Judgement, what: str) -> str:
    """The one nearest to its limit, with the limit."""
    measured = [one for one in judgement.measured if one.what == what]
    worst: Measured | None = max(measured, key=lambda one: one.took_ms - one.limit_ms, default=None)
    return f"{worst.took_ms:.0f} of {worst.limit_ms:.0f} ms (of {len(measured)})" if worst else "none measured"


def summary(judgement: Judgement) -> str:
    """A few lines."""
    settings = judgement.story.settings
    told = ", ".join(f"{name} {value}" for name, value in numbers(judgement).items())
    lines = [f"{settings.target}, seed {settings.seed}, {settings.minutes:g} min: {told}"]
    lines += [
        f"  {_moment(judgement, one)} {one.rule} {_about(one)}: {one.text}" for one in judgement.violations[:_SHOWN]
    ]
    return "\n".join(lines)


def page(judgement: Judgement) -> str:
    """The page."""
    settings = judgement.story.settings
    refused = bool(judgement.violations)
    title = f"Chaos on {settings.target}: {len(judgement.violations) or 'no'} violations"
    facts = (tag("div", tag("dt", name), tag("dd", value)) for name, value in numbers(judgement).items())
    about = (
        f"{settings.store}, seed {settings.seed}, {settings.minutes:g} minutes, leases of {settings.lease_ms} ms, "
        f"calls of at most {settings.timeout_ms} ms"
    )
    header = tag(
        "header",
        tag("h1", title),
        tag("p", about, class_="about"),
        tag("dl", *facts),
        class_="refused" if refused else None,
    )
    body = tag("main", _violations(judgement), _timeline(judgement), _excused(judgement), _faults(judgement))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(_STYLE.read_text(encoding="utf-8"))),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', header, body), lang='en')}\n"


def _violations(judgement: Judgement) -> Markup | None:
    if not judgement.violations:
        return None
    told = (_violation(judgement, number, one) for number, one in enumerate(judgement.violations[:_SHOWN]))
    left = len(judgement.violations) - _SHOWN
    return tag(
        "section",
        tag("h2", "Violations"),
        tag("ol", *told, class_="violations"),
        tag("p", f"{left} more are not told") if left > 0 else None,
    )


def _violation(judgement: Judgement, number: int, one: Violation) -> Markup:
    moment = tag("a", _moment(judgement, one), href=f"#v{number}")
    return tag("li", moment, " ", tag("code", one.rule), f" {_about(one)}\n{one.text}")


def _moment(judgement: Judgement, one: Violation) -> str:
    return f"{(one.at - judgement.story.evidence.begin) / 1000:.3f} s"


def _about(one: Violation) -> str:
    run = f"{one.job}@{one.slot}" if one.job else ""
    return " ".join(filter(None, (run, one.instance)))


def _timeline(judgement: Judgement) -> Markup:
    return tag("section", tag("h2", "Timeline"), key(), Drawing(judgement).draw())


def _excused(judgement: Judgement) -> Markup:
    """What would be violations, had their cause not been seen."""
    counted = sorted(Counter((one.rule, one.why) for one in judgement.excused).items())
    rows = (
        tag("tr", tag("td", count, class_="number"), tag("td", tag("code", rule)), tag("td", why))
        for (rule, why), count in counted
    )
    head = tag("thead", tag("tr", tag("th", "times"), tag("th", "rule"), tag("th", "cause")))
    return tag("section", tag("h2", "Excused"), tag("table", head, tag("tbody", *rows)))


def _faults(judgement: Judgement) -> Markup:
    evidence = judgement.story.evidence
    rows = (
        tag(
            "tr",
            tag("td", f"{(one.span.begin - evidence.begin) / 1000:.2f} s", class_="number"),
            tag("td", one.kind),
            tag("td", one.who),
            tag("td", f"{one.span.length() / 1000:.2f} s", class_="number"),
        )
        for one in evidence.faults
    )
    head = tag("thead", tag("tr", tag("th", "at"), tag("th", "fault"), tag("th", "of"), tag("th", "took")))
    return tag("section", tag("h2", "Faults"), tag("table", head, tag("tbody", *rows)))
