"""What is made of a certificate: the badge, JUnit's XML, the comparison, the picture of calls and leases, the page."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from tenure.model import Capabilities, Claim, ClaimResult
from tenure_conformance import assertion, certificate
from tenure_conformance.bench import SLOT
from tenure_conformance.report import RENDERERS, comparison, timeline
from tenure_conformance.report.lifetimes import FOREVER, lives
from tenure_conformance.report.markup import Markup, tag
from tenure_conformance.report.wording import Words, duration, read, slot
from tenure_conformance.rule import catalogue, select
from tenure_conformance.target import Timing
from tenure_conformance.targets.memory import target as memory
from tenure_conformance.verdict import Call, Verdict

TARGET = replace(memory, timing=Timing(slack_ms=50))
NASTY = "<script>alert(1)</script> & \"'\x00\ud800\u202e"


def claim(token="t", lease_ms=400, **options):
    given = {"job": "job", "slot": SLOT, "instance": "i", "mode": "scheduled", "overlap": "skip", "max_attempts": 3}
    return Claim(token=token, lease_ms=lease_ms, max_late_ms=None, **{**given, **options})


def won(client, begin, end, attempt=1, **options):
    answer = ClaimResult(outcome="won", now_ms=1, attempt=attempt, fence=attempt, lease_left_ms=400)
    return Call(client, "claim", {"claim": claim(**options)}, begin, end, answer)


def guarded(client, name, begin, end, answer=True, token="t"):
    return Call(client, name, {"job": "job", "slot": SLOT, "token": token}, begin, end, answer)


def document(*verdicts, target=TARGET, filtered=False):
    told = {verdict.rule: verdict for verdict in verdicts}
    rules = catalogue()
    filled = [told.get(rule.id, Verdict(rule=rule.id, outcome=_default(rule, target))) for rule in rules]
    made = certificate.write(target, rules, filled, seed=1, filtered=filtered, seconds=1.0)
    return made, [verdict.to_json() for verdict in filled]


def _default(rule, target):
    return "pass" if rule.applies(target) else "not-applicable"


def failed(rule="TKO-002", reason="assert 1 == 2", outcome="fail", calls=(), **options):
    return Verdict(rule=rule, outcome=outcome, reason=reason, calls=tuple(calls), **options)


# The badge


def test_the_badge_says_what_is_certified_and_how_many_rules_stand_behind_it():
    made, told = document()
    root = ElementTree.fromstring(RENDERERS["badge.svg"](made, told))
    applicable = sum(rule.applies(TARGET) for rule in catalogue())
    assert root.get("role") == "img"
    assert root.get("aria-label") == f"tenure lease: certified {applicable}/{applicable}"
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["tenure lease", f"certified {applicable}/{applicable}"]


@pytest.mark.parametrize("outcome", ["fail", "inconclusive", "waived"])
def test_the_badge_never_says_certified_of_what_is_not(outcome):
    made, told = document(failed(outcome=outcome))
    root = ElementTree.fromstring(RENDERERS["badge.svg"](made, told))
    assert root.get("aria-label") == "tenure lease: not certified"


# JUnit


def test_junit_counts_each_kind_and_tells_the_reason():
    made, told = document(
        failed(reason="assert False\n  where x = 1"),
        failed("REL-001", crashed=True, reason="KeyError: 'x'"),
        failed("REL-002", outcome="inconclusive", reason="too slow"),
        failed("REL-003", outcome="waived", reason="known"),
    )
    root = ElementTree.fromstring(RENDERERS["junit.xml"](made, told).encode())
    skipped = sum(not rule.applies(TARGET) for rule in catalogue()) + 1
    assert root.attrib["tests"] == str(len(catalogue()))
    assert (root.attrib["failures"], root.attrib["errors"], root.attrib["skipped"]) == ("1", "2", str(skipped))
    (failure,) = root.iter("failure")
    assert failure.get("message") == "assert False"
    assert failure.text == "assert False\n  where x = 1"
    assert [one.get("message") for one in root.iter("error")] == ["KeyError: 'x'", "too slow"]


def test_junit_is_xml_whatever_a_backend_says():
    made, told = document(failed(reason=NASTY))
    (failure,) = ElementTree.fromstring(RENDERERS["junit.xml"](made, told).encode()).iter("failure")
    assert "<script>" in failure.text
    assert "\\x00" in failure.text


# The comparison


def test_a_comparison_names_what_differs_with_the_rules_sentence():
    before, _ = document()
    after, _ = document(failed(), target=replace(TARGET, name="other", timing=Timing(slack_ms=90)))
    (rule,) = select(("TKO-002",))
    assert comparison.lines(before, after) == [
        "target: memory -> other",
        "timing.slack_ms: 50 -> 90",
        "certified: yes -> no",
        f"TKO-002  pass -> fail  {rule.sentence}",
        "rules with another verdict: 1; pass now: 0, pass no more: 1",
    ]
    assert comparison.lines(before, before) == ["no rule has another verdict"]


# The life of leases


CLAIMS = {
    "capabilities": {"min_lease_ms": 1, "lease_granularity_ms": 1, "clock_error_ms": 0},
    "timing": {"slack_ms": 50},
}


def stretches(*calls, claims=CLAIMS):
    told = read([call.to_json() for call in calls])
    return [[(one.begin, one.end, one.state) for one in life.stretches] for life in lives(told, claims)]


def test_a_lease_is_uncertain_while_it_is_won_then_alive_then_uncertain_then_over():
    # 400 ms less 1 % and a tick, from the call's begin; 400 ms more 1 %, a tick and the slack, from its end.
    assert stretches(won("a", 0, 10)) == [
        [(0, 10, "uncertain"), (10, 395, "alive"), (395, 465, "uncertain"), (465, FOREVER, "over")]
    ]


def test_a_heartbeat_renews_it_and_a_finish_ends_it():
    assert stretches(won("a", 0, 10), guarded("a", "heartbeat", 100, 110), guarded("a", "finish", 200, 220)) == [
        [
            (0, 10, "uncertain"),
            (10, 110, "alive"),
            (110, 200, "alive"),
            (200, 220, "uncertain"),
            (220, FOREVER, "over"),
        ]
    ]


def test_what_is_refused_or_raises_or_is_of_another_token_changes_nothing():
    alone = stretches(won("a", 0, 10))
    refused = guarded("b", "release", 50, 60, answer=False)
    foreign = guarded("b", "release", 50, 60, token="other")
    raised = Call("a", "release", {"job": "job", "slot": SLOT, "token": "t"}, 50, 60, None, "BackendUnavailable")
    lost = guarded("a", "release", 50, None, answer=None)
    assert stretches(won("a", 0, 10), refused, foreign, raised, lost) == alone


def test_a_stolen_lease_lives_on_beside_the_thiefs():
    mine, thiefs = stretches(won("a", 0, 10), won("b", 100, 110, attempt=2, token="u"))
    assert (10, 395, "alive") in mine
    assert (110, 495, "alive") in thiefs


def test_the_stores_granularity_and_clock_error_count():
    coarse = {"min_lease_ms": 1, "lease_granularity_ms": 1_000, "clock_error_ms": 100}
    ((*_, (begin, _, state)),) = stretches(won("a", 0, 10), claims={**CLAIMS, "capabilities": coarse})
    assert (begin, state) == (10 + 1_010 + 1 + 50 + 200, "over")


def test_the_picture_agrees_with_what_timed_rules_call_certain():
    from tenure_conformance.timing import Deadline, Span

    deadline = Deadline(Span(0, 10), 400, 50)
    ((_, (_, alive_until, _), (_, over_from, _), _),) = stretches(won("a", 0, 10))
    assert deadline.surely_alive(Span(0, alive_until - 0.01))
    assert not deadline.surely_alive(Span(0, alive_until))
    assert deadline.surely_over(Span(over_from, over_from))
    assert not deadline.surely_over(Span(over_from - 0.01, over_from))


# The picture


def drawn(*calls, mark="failed here:"):
    return timeline.draw(read([call.to_json() for call in calls]), CLAIMS, mark=mark)


def bars(picture, kind):
    found = re.findall(
        rf'<rect x="([\d.]+)" y="([\d.]+)" width="[\d.]+" height="([\d.]+)" rx="2" class="call {kind}"', picture
    )
    return [tuple(map(float, one)) for one in found]


def marked(picture):
    """The clients whose calls are."""
    return re.findall(r'<li style="[^"]*" class="marked"><span[^>]*><b[^>]*>(\w)', picture)


def test_each_client_has_a_lane_and_each_call_a_bar_in_it():
    picture = drawn(won("a", 0, 1), guarded("b", "heartbeat", 2, 3, answer=False), guarded("a", "finish", 4, 5))
    (ax, ay, _), (bx, by, _) = bars(picture, "told")
    ((lastx, lasty, _),) = bars(picture, "marked")
    assert ax == lastx != bx
    assert ay < by < lasty


def test_time_goes_down_and_calls_that_overlap_in_time_do_so_in_the_picture():
    picture = drawn(won("a", 0, 100), guarded("b", "heartbeat", 10, 20, answer=False), guarded("b", "finish", 30, 200))
    (_, atop, aheight), (_, btop, bheight) = bars(picture, "told")
    assert atop < btop < btop + bheight <= atop + aheight


def test_a_client_that_calls_twice_at_once_has_two_tracks():
    picture = drawn(guarded("a", "heartbeat", 0, 100), guarded("a", "finish", 10, 90), guarded("b", "finish", 200, 201))
    (first, _, _), (second, _, _) = bars(picture, "told")
    assert first != second


def test_the_call_that_was_answered_last_is_marked_unless_the_rule_named_another():
    calls = [won("a", 0, 1), guarded("b", "heartbeat", 2, 9), guarded("a", "finish", 3, 4)]
    assert marked(drawn(*calls)) == ["b"]
    calls[0].suspect = True
    assert marked(drawn(*calls)) == ["a"]


def test_the_call_that_raised_what_the_rule_tells_is_marked():
    gone = Call("a", "finish", {"job": "job", "slot": SLOT, "token": "t"}, 5, 6, None, "BackendUnavailable: gone")
    closed = Call("b", "finish", {"job": "job", "slot": SLOT, "token": "t"}, 7, 8, None, "BackendClosed: left")
    calls = read([call.to_json() for call in (won("c", 0, 1), gone, closed)])
    assert marked(timeline.draw(calls, CLAIMS, mark="x", reason="a finish: raised BackendUnavailable (gone)")) == ["a"]
    assert marked(timeline.draw(calls, CLAIMS, mark="x", reason="assert False")) == ["c"]


def test_a_lease_is_uncertain_only_beside_the_call_that_set_it():
    picture = drawn(won("a", 1, 1.1), guarded("b", "heartbeat", 1.2, 1.3, answer=False))
    ((_, top, height),) = bars(picture, "told")
    ((begin, length),) = re.findall(r'y="([\d.]+)" width="[\d.]+" height="([\d.]+)" class="life uncertain"', picture)
    assert (float(begin), float(length)) == (top, height)


def test_a_call_without_an_answer_and_one_that_raised_look_different():
    raised = Call("a", "finish", {"job": "job", "slot": SLOT, "token": "t"}, 5, 6, None, "BackendUnavailable: gone")
    picture = drawn(guarded("a", "release", 0, None, answer=None), raised, guarded("b", "finish", 7, 8))
    assert len(bars(picture, "open")) == len(bars(picture, "raised")) == 1
    assert "no answer" in picture
    assert "raised BackendUnavailable: gone" in picture


def test_of_many_calls_the_last_are_drawn_and_the_others_counted():
    calls = [guarded("a", "heartbeat", number, number + 0.5) for number in range(timeline.SHOWN + 7)]
    picture = drawn(*calls)
    assert picture.count("<li ") == timeline.SHOWN
    assert "7 earlier calls are not drawn" in picture


def test_one_call_at_one_instant_can_be_drawn():
    assert len(bars(drawn(guarded("a", "finish", 3, 3)), "marked")) == 1


# Words


@pytest.mark.parametrize(
    ("value", "told"), [(SLOT, "S"), (SLOT + 5, "S+5"), (SLOT - 1, "S-1"), (0, "0"), ("x", "x"), (None, "None")]
)
def test_slots_are_told_by_their_distance(value, told):
    assert slot(value) == told


@pytest.mark.parametrize(
    ("value", "told"), [(0, "0 ms"), (0.26, "0.3 ms"), (999, "999 ms"), (1_500, "1.5 s"), ("x", "x")]
)
def test_durations_are_told_in_units(value, told):
    assert duration(value) == told


def test_a_token_keeps_its_short_name_and_strange_answers_are_told():
    words = Words()
    calls = read([guarded("a", "finish", 0, 1, token=token).to_json() for token in ("x", "y", "x")])
    assert [words.asked(call) for call in calls] == ["slot S, t1", "slot S, t2", "slot S, t1"]
    assert words.answered(Call("a", "active", {}, 0, 1, {"nonsense": 1})) == "no runs"
    assert words.answered(Call("a", "finish", {}, 0, 1, 7)) == "7"


# The page


class Reader(HTMLParser):
    """What a reader sees of a page, and whether its tags fit together."""

    VOID = frozenset({"meta", "input", "rect", "line", "path"})
    BLOCKS = frozenset({"p", "h1", "h2", "h3", "li", "dt", "dd", "td", "th", "pre", "title"})

    def __init__(self, text):
        super().__init__()
        self.texts, self.open, self.tags = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in self.BLOCKS:
            self.texts.append(" ")

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join("".join(self.texts).split())


def page(*verdicts, **options):
    return RENDERERS["report.html"](*document(*verdicts, **options))


def test_the_page_of_a_certified_target_says_so_first_and_shows_every_rule():
    read_page = Reader(page())
    applicable = sum(rule.applies(TARGET) for rule in catalogue())
    assert "memory is certified All" in read_page.text
    declared = ", ".join(TARGET.levels)
    assert f"All {applicable} rules that apply to what it declares ({declared}) were run and pass." in read_page.text
    for rule in catalogue():
        assert " ".join(rule.sentence.replace("`", "").split()) in read_page.text
    assert "What did not pass" not in read_page.text


@pytest.mark.parametrize(
    ("verdicts", "filtered", "sentence"),
    [
        ([failed()], False, "1 rule failed (TKO-002)."),
        ([failed(), failed("REL-001")], False, "2 rules failed (TKO-002, REL-001)."),
        ([failed(outcome="inconclusive")], False, "1 rule came to no verdict (TKO-002)."),
        ([failed(outcome="waived")], False, "1 rule failed and were waived (TKO-002)."),
        ([], True, "Only some of the rules were run."),
    ],
)
def test_the_page_of_another_says_why_in_a_sentence(verdicts, filtered, sentence):
    text = Reader(page(*verdicts, filtered=filtered)).text
    assert "memory is not certified" in text
    assert sentence in text


def test_a_failure_is_shown_with_its_message_its_calls_and_where_it_comes_from():
    calls = [won("a", 0, 10), won("b", 100, 110, attempt=2, token="u")]
    text = Reader(page(failed(reason="expected running", calls=calls))).text
    for told in (
        "expected running",
        "a claim → won",
        "failed after this: slot S",
        "surely alive until 395 ms",
        "#claim-row-3",
    ):
        assert told in text


def test_every_name_in_the_page_is_escaped():
    calls = [Call(NASTY, NASTY, {NASTY: NASTY, "job": NASTY, "slot": NASTY, "token": NASTY}, 0, 1, NASTY, NASTY)]
    target = replace(TARGET, name=NASTY, store=lambda: NASTY)
    made = page(failed(reason=NASTY, calls=calls), target=target)
    assert len([name for name, _ in Reader(made).tags if name == "script"]) == 1
    assert "<script>alert" not in made
    assert not set("\x00\ud800\u202e") & set(made)
    made.encode()


def test_the_page_asks_nobody_for_anything():
    tags = Reader(page(failed(calls=[won("a", 0, 1)]))).tags
    assert not [tag for tag, _ in tags if tag in ("link", "img", "iframe", "object")]
    links = [value for _, attrs in tags for key, value in attrs.items() if key in ("href", "src")]
    assert links
    assert all(link.startswith("#") for link in links)


def test_links_of_the_page_lead_somewhere():
    tags = Reader(page(failed(), failed("REL-001", outcome="inconclusive"))).tags
    names = {attrs["id"] for _, attrs in tags if "id" in attrs}
    assert {attrs["href"][1:] for tag, attrs in tags if tag == "a"} <= names


def test_markup_is_escaped_once():
    assert tag("p", "a < b", tag("b", "&")) == "<p>a &lt; b<b>&amp;</b></p>"
    assert tag("p", class_='"x"', hidden=True, id=None) == '<p class="&quot;x&quot;" hidden></p>'
    assert isinstance(tag("p"), Markup)


# The certificate that it is made of


def test_a_certificate_says_how_patient_the_rules_were_and_how_to_run_them_again():
    claims = document()[0]["claims"]
    assert claims["timing"]["slack_ms"] == 50
    assert claims["limits"]["histories"] == TARGET.limits.histories
    assert claims["reference"] == "memory"
    assert claims["capabilities"]["min_lease_ms"] == Capabilities().min_lease_ms


def rehashed(change):
    made, _ = document()
    change(made["claims"])
    return certificate.faults({**made, "digest": certificate.digest(made["claims"])})


def test_a_certificate_without_a_rule_is_found_out():
    assert rehashed(lambda claims: claims["verdicts"].pop("TKO-002")) == ["1 rule without a verdict, TKO-002 first"]


def test_one_with_a_rule_left_out_as_not_applicable_is_found_out():
    found = rehashed(lambda claims: claims["verdicts"].update({"TKO-002": "not-applicable"}))
    assert found == ["TKO-002 applies to what it declares"]


def test_one_with_a_level_more_than_was_run_is_found_out():
    assert "applies to what it declares" in rehashed(lambda claims: claims["levels"].append("durable"))[0]


def test_one_of_other_rules_is_not_held_against_these():
    assert rehashed(lambda claims: (claims.update(rules="other"), claims["verdicts"].pop("TKO-002"))) == []


# The message


def test_a_message_leaves_out_what_says_nothing():
    late = ClaimResult(outcome="late", now_ms=1)
    told = assertion.told(AssertionError(f"was told {late}, and None"))
    assert told == "was told ClaimResult(outcome='late', now_ms=1), and None"
