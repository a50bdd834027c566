"""Forged evidence: each kind of violation is found, and what is excused has its cause."""

from dataclasses import replace
from pathlib import Path

import pytest
from tenure import RunResult

from .checker import judge
from .evidence import NEVER, Done, Entry, Evidence, Harm, Life, Note, Settings, Span, loaded, saved
from .page import page, summary
from .verdict import CHECKS

LEASE_MS = 1_500
WALL = 1_000_000_000
"""The right wall clock is ahead of the monotonic one by this."""
END = 40_000.0
SLOT = WALL + 10_000
"""A slot of most jobs, due at 10 s."""
PROTOCOL = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")


class Forge:
    """Evidence as the parts of it are told; three instances are well all the time."""

    def __init__(self):
        self.lives = {
            name: Life(instance=name, version=1, spawned=0, ready=0, stopping=END, end=END + 500, how="stopped", code=0)
            for name in ("a1", "b1", "c1")
        }
        self.journal, self.notes, self.records, self.faults = [], [], {}, []
        self.away, self.stalls = [], []
        self.slots_from = NEVER
        self.fenced = True
        for name in self.lives:
            for kind, at in (("before", 0), ("stopping", END), ("stopped", END + 100), ("after", END + 200)):
                self.notes.append(Note(at, name, kind, more={"threads": 2, "files": 5, "tasks": 0, "names": []}))

    def life(self, name, **changes):
        self.lives[name] = replace(self.lives[name], **changes)
        if changes.get("how") == "killed":
            self.notes = [note for note in self.notes if note.instance != name or note.at < changes["end"]]

    def note(self, at, instance, kind, number=1, job="work", slot=SLOT, fence=None, **more):
        fence = (fence or SLOT + number) if number else 0
        self.notes.append(Note(at, instance, kind, job, slot, number, fence, more))

    def write(self, at, instance, kind="start", number=1, job="work", slot=SLOT, fence=None):
        self.journal.append(Entry(at, instance, job, slot, number, fence or SLOT + number, job, kind, accepted=True))

    def kept(self):
        """The journal as it would have answered."""
        greatest = 0
        for entry in sorted(self.journal, key=lambda entry: entry.at):
            greatest = max(greatest, entry.fence)
            yield replace(entry, accepted=entry.fence >= greatest or not self.fenced)

    def record(self, instance, status, number=1, job="work", slot=SLOT, fence=None):
        fence, times = (fence or SLOT + number, (slot, slot)) if number else (0, (None, None))
        self.records.setdefault(job, []).append(RunResult(slot, number, fence, status, instance, *times))

    def attempt(self, instance, begin, end, number=1, status="success", **run):
        """An attempt as it should be."""
        if number > 1:
            self.note(begin, instance, "takeover", number, **run)
        self.note(begin, instance, "start", number, **run)
        self.write(begin + 1, instance, "start", number, **run)
        if end is not None:
            self.write(end, instance, "end", number, **run)
            self.note(end, instance, "handler end", number, **run)
            event = {"success": "success", "failed": "failure", "interrupted": "interrupted"}[status]
            self.note(end + 5, instance, event, number, **run)
            self.record(instance, status, number, **run)

    def judged(self):
        settings = Settings(target="forged", lease_ms=LEASE_MS)
        return judge(
            Evidence(
                settings=settings,
                begin=min(self.slots_from, END),
                end=END,
                wall_ahead=WALL,
                lives=list(self.lives.values()),
                journal=list(self.kept()),
                notes=sorted(self.notes, key=lambda note: note.at),
                records=self.records,
                faults=self.faults,
                away=self.away,
                stalls=self.stalls,
            )
        )

    def violations(self):
        return [(one.rule, one.text) for one in self.judged().violations]


@pytest.fixture
def forge():
    return Forge()


def the_only(forge, rule, words):
    """The one violation is of this rule, and says this."""
    found = forge.violations()
    assert [found_rule for found_rule, _ in found] == [rule], found
    assert words in found[0][1]


def test_a_run_as_it_should_be_is_no_violation(forge):
    forge.attempt("a1", 10_010, 10_500)
    assert forge.violations() == []


def test_each_check_is_named_after_a_sentence_of_the_protocol():
    assert CHECKS
    for name in CHECKS:
        assert f'<a id="{name.partition(":")[0]}">' in PROTOCOL


# Who holds


def frozen_holder(forge, told_at, begin=11_000, end=14_000):
    forge.life("a1", harms=(Harm("frozen", Span(begin, end)),))
    forge.attempt("a1", 10_010, None)
    if told_at:
        forge.note(told_at, "a1", "told", reason="lost")
    forge.attempt("b1", 12_500, 13_000, number=2)
    forge.write(14_050, "a1", "end")
    forge.note(14_050, "a1", "handler end")
    forge.note(14_060, "a1", "interrupted", reason="takeover")
    forge.record("a1", "interrupted")


def test_a_frozen_holder_that_is_told_when_it_awakes_is_excused(forge):
    frozen_holder(forge, told_at=14_010)
    judged = forge.judged()
    assert judged.violations == []
    assert {one.why for one in judged.excused} >= {
        "the holder was frozen, and told when it awoke",
        "a stale handler's write was refused",
    }


def test_two_handlers_at_once_are_found(forge):
    forge.attempt("a1", 10_010, 13_000)
    forge.attempt("b1", 11_010, 11_500, slot=SLOT + 1_000, fence=SLOT + 1_000)
    the_only(forge, "instance-deadline", "was never told")


def test_a_stale_holder_that_is_told_late_is_found(forge):
    forge.life("a1", harms=(Harm("cut", Span(11_000, 15_000)),))
    forge.attempt("a1", 10_010, 14_500, status="interrupted")
    forge.note(13_400, "a1", "told", reason="lost")
    forge.attempt("b1", 12_500, 13_000, number=2)
    found = forge.violations()
    assert [rule for rule, _ in found] == ["instance-deadline", "instance-deadline"]
    assert "was told late" in found[0][1]
    assert "was not told in time" in found[1][1]


def test_a_holder_that_awakes_and_is_never_told_is_found(forge):
    forge.life("a1", harms=(Harm("frozen", Span(11_000, 14_000)),))
    forge.attempt("a1", 10_010, 16_000)
    the_only(forge, "instance-deadline", "had no lease when it awoke")


def test_a_holder_that_is_not_told_while_the_store_is_paused_is_found(forge):
    forge.attempt("a1", 10_010, 14_500)
    forge.faults.append(Done("store pause", "store", Span(11_000, 15_000)))
    forge.away.append(Span(11_000, 15_000))
    the_only(forge, "instance-deadline", "had no lease any more")


def test_a_takeover_from_who_lives_is_found(forge):
    forge.attempt("a1", 10_010, 10_900, status="interrupted")
    forge.attempt("b1", 12_500, 13_000, number=2)
    the_only(forge, "instance-lease-kept", "lives, and was taken over")


def test_a_takeover_from_who_stalled_is_excused(forge):
    forge.attempt("a1", 10_010, 10_900, status="interrupted")
    forge.attempt("b1", 12_500, 13_000, number=2)
    forge.notes.append(Note(12_000, "a1", "stall", more={"ms": 900}))
    assert forge.violations() == []


def test_a_takeover_long_after_the_pause_that_made_the_holder_lose_its_lease_is_excused(forge):
    forge.attempt("a1", 10_010, 10_600, status="interrupted")
    forge.note(10_500, "a1", "told", reason="lost")
    forge.away.append(Span(9_000, 10_000))
    forge.attempt("b1", 12_500, 13_000, number=2)
    judged = forge.judged()
    assert judged.violations == []
    assert "the store was away or slow" in {one.why for one in judged.excused}


def test_a_takeover_from_who_could_not_call_is_excused_and_its_error_needs_a_cause(forge):
    forge.attempt("a1", 10_010, 10_900, status="interrupted")
    forge.attempt("b1", 12_500, 13_000, number=2)
    forge.note(11_500, "a1", "error", 0, call="heartbeat", type="BackendUnavailable", error="no answer within 5s")
    the_only(forge, "errors-unavailable", "without a cause")


# Fences


def test_one_fence_for_two_attempts_is_found(forge):
    forge.attempt("a1", 10_010, 10_500)
    forge.attempt("b1", 11_010, 11_500, slot=SLOT + 1_000, fence=SLOT + 1)
    the_only(forge, "word-fence", "two attempts have one fence")


def test_a_fence_that_falls_is_found(forge):
    forge.attempt("a1", 10_010, 10_500, fence=SLOT + 50_000)
    forge.attempt("b1", 13_010, 13_500, slot=SLOT + 3_000, fence=SLOT + 3_000)
    assert "word-fence" in {rule for rule, _ in forge.violations()}


def test_a_journal_that_takes_smaller_fences_is_found(forge):
    frozen_holder(forge, told_at=14_010)
    forge.fenced = False
    the_only(forge, "word-fence", "was accepted after one with")


# Ends and slots


def test_a_run_that_ends_twice_is_found(forge):
    forge.life("a1", how="killed", end=12_400, stopping=NEVER)
    forge.attempt("a1", 10_010, 10_500)
    forge.attempt("b1", 14_000, 14_500, number=2)
    assert "finish-holds" in {rule for rule, _ in forge.violations()}


def test_an_attempt_after_the_end_is_found(forge):
    forge.life("a1", how="killed", end=10_600, stopping=NEVER)
    forge.attempt("a1", 10_010, 10_500)
    forge.attempt("b1", 12_000, 12_500, number=2, status="interrupted")
    the_only(forge, "finish-holds", "followed attempt 1")


def test_a_slot_that_nobody_answers_for_is_found(forge):
    forge.slots_from = END - 6 * LEASE_MS - 1_000
    found = forge.violations()
    assert ("claim-order", "no one says what became of it: nobody started it") in found
    assert {rule for rule, _ in found} == {"claim-order"}


def test_a_run_that_nobody_brings_to_its_end_is_found(forge):
    forge.slots_from = 9_990
    forge.life("a1", how="killed", end=10_300, stopping=NEVER)
    forge.attempt("a1", 10_010, None)
    forge.record("a1", "crashed")
    judged = forge.judged()
    assert [one.text for one in judged.violations if (one.job, one.slot) == ("work", SLOT)] == [
        f"no one says what became of it: attempt 1 of a1 (fence {SLOT + 1})"
    ]


# Records


def test_an_attempt_without_a_record_is_found(forge):
    forge.attempt("a1", 10_010, 10_500)
    forge.records.clear()
    the_only(forge, "instance-crashed-records", "told its end, and has no record")


def test_an_attempt_whose_successor_did_not_record_it_is_found(forge):
    forge.life("a1", how="killed", end=10_300, stopping=NEVER)
    forge.attempt("a1", 10_010, None)
    forge.attempt("b1", 11_700, 12_000, number=2)
    the_only(forge, "instance-crashed-records", "replaced attempt 1")


def test_a_hole_whose_saver_died_too_is_excused(forge):
    forge.life("a1", how="killed", end=10_300, stopping=NEVER)
    forge.attempt("a1", 10_010, None)
    forge.attempt("b1", 11_700, None, number=2)
    forge.life("b1", how="killed", end=11_800, stopping=NEVER)
    forge.attempt("c1", 13_200, 13_500, number=3)
    forge.record("b1", "crashed", number=2)
    assert forge.violations() == []


@pytest.mark.parametrize(("record", "words"), [("failed", "its record says failed"), ("crashed", "says crashed")])
def test_a_record_that_says_something_else_is_found(forge, record, words):
    forge.attempt("a1", 10_010, 10_500)
    forge.records.clear()
    forge.record("a1", record)
    the_only(forge, "instance-crashed-records", words)


# Times


def killed_holder(forge, taken_over_at):
    forge.life("a1", how="killed", end=10_300, stopping=NEVER)
    forge.attempt("a1", 10_010, None)
    forge.record("a1", "crashed")
    forge.attempt("b1", taken_over_at, taken_over_at + 300, number=2)


def test_a_takeover_within_the_lease_is_measured(forge):
    killed_holder(forge, 11_850)
    judged = forge.judged()
    assert judged.violations == []
    assert [round(one.took_ms) for one in judged.measured if one.what == "takeover"] == [1_550]


def test_a_late_takeover_is_found(forge):
    killed_holder(forge, 12_400)
    the_only(forge, "instance-watch-when", "took 2100 ms")


def test_a_takeover_that_a_stall_made_late_is_excused(forge):
    killed_holder(forge, 12_400)
    forge.stalls.append(Span(11_500, 12_200))
    judged = forge.judged()
    assert judged.violations == []
    assert "the takeover was late by a stall of the machine or the store" in {one.why for one in judged.excused}


def test_a_takeover_long_after_the_store_was_back_is_found(forge):
    killed_holder(forge, 35_000)
    forge.away.append(Span(10_500, 13_000))
    the_only(forge, "instance-watch-when", "too late after the others were well again")


def test_a_slow_hand_over_is_found(forge):
    forge.attempt("a1", 10_010, 10_500, status="interrupted")
    forge.notes = [
        replace(note, more={"reason": "stop"}) if note.kind == "interrupted" else note for note in forge.notes
    ]
    forge.life("a1", stopping=10_400, end=11_000)
    forge.notes = [note for note in forge.notes if not (note.instance == "a1" and note.at >= END)]
    for kind, at in (("stopping", 10_400), ("stopped", 10_600), ("after", 10_700)):
        forge.notes.append(Note(at, "a1", kind, more={"threads": 2, "files": 5, "tasks": 0, "names": []}))
    forge.attempt("b1", 12_500, 12_800, number=2)
    forge.notes = [
        replace(note, more={"previous": [[SLOT, 1, SLOT + 1, "a1", True]]}) if note.kind == "takeover" else note
        for note in forge.notes
    ]
    the_only(forge, "instance-stop-handlers", "the hand-over from")


def test_a_stop_that_does_not_end_is_found(forge):
    forge.notes = [replace(note, at=END + 20_000) if note.kind == "stopped" else note for note in forge.notes]
    assert {rule for rule, _ in forge.violations()} == {"instance-stop-order"}


def test_an_exit_code_is_found(forge):
    forge.life("b1", code=1)
    the_only(forge, "instance-stop-order", "exit code 1")


# The household


def test_an_error_without_a_cause_is_found(forge):
    forge.note(20_000, "a1", "error", 0, call="claim", type="BackendUnavailable", error="no answer within 5s")
    the_only(forge, "errors-unavailable", "without a cause")


def test_an_error_of_another_kind_is_found_whatever_was_harmed(forge):
    forge.away.append(Span(19_000, 21_000))
    forge.note(20_000, "a1", "error", 0, call="claim", type="InvalidStateError", error="RPC already finished")
    the_only(forge, "errors-unavailable", "InvalidStateError")


def test_an_error_while_the_store_was_away_is_excused(forge):
    forge.away.append(Span(19_000, 21_000))
    forge.note(20_000, "a1", "error", 0, call="claim", type="BackendUnavailable", error="no answer within 5s")
    assert forge.violations() == []


@pytest.mark.parametrize(("what", "many"), [("threads", 30), ("files", 50), ("tasks", 1)])
def test_what_is_left_behind_is_found(forge, what, many):
    forge.notes = [
        replace(note, more={**note.more, what: many}) if (note.instance, note.kind) == ("c1", "after") else note
        for note in forge.notes
    ]
    the_only(forge, "instance-stop-order", f"{what}: ")


def test_what_grows_without_bound_is_found(forge):
    forge.notes.append(Note(20_000, "a1", "sample", more={"threads": 3, "files": 6, "tasks": 9_000}))
    the_only(forge, "instance-stop-order", "9000 tasks")


def test_what_is_said_to_stderr_is_found(forge):
    forge.life("a1", said="Task exception was never retrieved")
    the_only(forge, "instance-listener", "never retrieved")


def test_what_a_driver_says_of_itself_is_excused_and_nothing_beside_it(forge):
    known = "MongoClient background task encountered an error:\nTraceback (most recent call last):\n  File"
    forge.life("a1", said=known)
    assert forge.violations() == []
    forge.life("a1", said=f"{known}\nTask exception was never retrieved")
    the_only(forge, "instance-listener", "never retrieved")


# The report


def test_the_page_tells_of_violations_and_escapes_what_was_said(forge):
    killed_holder(forge, 12_400)
    forge.life("c1", said="<script>alert(1)</script>")
    judged = forge.judged()
    told = page(judged)
    assert "<script>" not in told
    assert "took 2100 ms" in told
    assert "violations 2" in summary(judged)
    assert 'href="#v0"' in told
    assert 'id="v0"' in told


def test_evidence_that_was_kept_is_judged_alike(forge, tmp_path):
    killed_holder(forge, 12_400)
    judged = forge.judged()
    saved(judged.story.evidence, tmp_path / "kept.json")
    assert judge(loaded(tmp_path / "kept.json")).violations == judged.violations
