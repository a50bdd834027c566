"""Checks of an instance's own household: errors have a cause, nothing is left behind, nothing unexpected is said."""

import re
from collections.abc import Iterator

from .application import MORE_THREADS
from .evidence import Life, Note
from .story import Story
from .verdict import Excused, Finding, Violation, check

_LINGER_MS = 1_500
"""An error may be told so long after what caused it, besides the call's own deadline."""
_MORE_FILES = 8
"""What a driver's library keeps for the process once it was used."""
_MOST_THREADS = 120
_MOST_FILES = 120
_MOST_TASKS = 5_000
"""While the store is away each record waits to be saved, for a minute, and each run is watched."""

_HEAD = re.compile(r"in callback|an error:|never retrieved|never awaited|was destroyed|Exception ignored|Warning")
"""A line that begins a report."""
_KNOWN = {
    "PollerCompletionQueue._handle_events": "grpc.aio had an answer for the loop of a start that had failed",
    "MongoClient background task encountered an error": "pymongo logged that a cursor outlived its server",
}
"""What libraries of drivers say of themselves, which is not for tenure to unsay."""


@check("errors-unavailable")
def errors_have_a_cause(story: Story) -> Iterator[Finding]:
    """A call fails only while the store or the way to it is harmed, and then as BackendUnavailable."""
    for note in story.evidence.notes:
        if note.kind in ("error", "start failed"):
            yield from _caused(story, note)


def _caused(story: Story, note: Note) -> Iterator[Finding]:
    rule, life = "errors-unavailable", story.lives[note.instance]
    what = f"{note.more.get('call', 'start')} failed: {note.more.get('type')}: {note.more.get('error')}"
    if note.more.get("type") != "BackendUnavailable":
        yield Violation(rule, note.at, what, note.job, note.slot, note.instance)
        return
    begin = note.at - story.settings.timeout_ms - _LINGER_MS
    harmed = life.harmed(begin, note.at) or story.away(begin, note.at)
    harmed = harmed or any(one.who == "store" and one.span.meets(begin, note.at) for one in story.evidence.faults)
    if harmed:
        yield Excused(rule, note.at, "a call failed while the store or the way to it was harmed")
    elif story.stall_ms(note.instance, begin, note.at) > _LINGER_MS:
        yield Excused(rule, note.at, "a call failed while the machine stalled")
    else:
        yield Violation(rule, note.at, f"without a cause: {what}", note.job, note.slot, note.instance)


@check("instance-stop-order")
def nothing_is_left_behind(story: Story) -> Iterator[Finding]:
    """After a stop there are no more threads, open files and tasks than before the start."""
    counted = {(note.instance, note.kind): note for note in story.evidence.notes if note.kind in ("before", "after")}
    for life in story.evidence.lives:
        before, after = counted.get((life.instance, "before")), counted.get((life.instance, "after"))
        if life.how == "stopped" and before is not None:
            yield from _left(life, before, after)


def _left(life: Life, before: Note, after: Note | None) -> Iterator[Finding]:
    rule = "instance-stop-order"
    if after is None:
        yield Violation(rule, life.end, f"{life.instance} did not come to its end", instance=life.instance)
        return
    for what, more in (("threads", MORE_THREADS), ("files", _MORE_FILES), ("tasks", 0)):
        if after.more[what] > before.more[what] + more:
            text = f"{what}: {before.more[what]} before, {after.more[what]} after: {after.more['names']}"
            yield Violation(rule, after.at, text, instance=life.instance)


@check("instance-stop-order")
def what_is_held_is_bounded(story: Story) -> Iterator[Finding]:
    """Now and then each instance counts its threads, open files and tasks."""
    for note in story.evidence.notes:
        if note.kind == "sample":
            for what, most in (("threads", _MOST_THREADS), ("files", _MOST_FILES), ("tasks", _MOST_TASKS)):
                if note.more[what] > most:
                    text = f"{note.more[what]} {what}, more than {most}"
                    yield Violation("instance-stop-order", note.at, text, instance=note.instance)


@check("instance-listener")
def nothing_unexpected_is_said(story: Story) -> Iterator[Finding]:
    """Nothing is written to stderr: no lost exception, no warning of a loop or a driver."""
    for life in story.evidence.lives:
        said = life.said.strip()
        heads = [line for line in said.splitlines() if _HEAD.search(line)]
        known = [next((why for words, why in _KNOWN.items() if words in line), None) for line in heads]
        if known and None not in known:
            yield from (Excused("instance-listener", life.end, why) for why in known if why)
        elif said:
            yield Violation("instance-listener", life.end, said[-1_500:], instance=life.instance)
