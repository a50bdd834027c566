"""A job's state, history and card as compact JSON bytes, with a format number first."""

import asyncio
import json
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from tenure.decision import JobState, RunState
from tenure.errors import BackendMisconfigured
from tenure.model import JobCard, LostAttempt, RunResult

FORMAT = 1
"""Raised when what follows it changes its meaning; a reader refuses what is newer than itself."""

_CARD = attrgetter(*JobCard.__slots__)
_KNOWN = frozenset(JobCard.__slots__)
_TURN = 200
"""After so many cards others of the loop have their turn: a namespace may have tens of thousands."""
_RUN = attrgetter(*(name for name in RunState.__slots__ if name != "previous"))
_LOST = attrgetter(*LostAttempt.__slots__)
_RESULT = attrgetter(*RunResult.__slots__)


def encode_state(state: JobState) -> bytes:
    """The state's bytes; equal states have equal bytes."""
    runs = [[_row(run) for run in runs] for runs in (state.unfinished, state.ended)]
    return _encode([FORMAT, state.fence, state.floor, *runs])


def decode_state(data: bytes) -> JobState:
    """The state of its bytes; BackendMisconfigured if they were written by a newer tenure or by something else."""
    try:
        fence, floor, unfinished, ended = _decode(data)
        return JobState(fence, floor, tuple([_run(row) for row in unfinished]), tuple([_run(row) for row in ended]))
    except (ValueError, TypeError) as exc:
        raise _not_ours(data) from exc


def encode_history(history: tuple[RunResult, ...]) -> bytes:
    """The history's bytes."""
    return _encode([FORMAT, [_RESULT(result) for result in history]])


def decode_history(data: bytes) -> tuple[RunResult, ...]:
    """The history of its bytes; errors as for ``decode_state``."""
    try:
        (rows,) = _decode(data)
        return tuple([RunResult(*row) for row in rows])
    except (ValueError, TypeError) as exc:
        raise _not_ours(data) from exc


def encode_card(card: JobCard) -> str:
    """The card's text: a JSON object."""
    fields = dict(zip(JobCard.__slots__, _CARD(card), strict=True))
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def decode_card(text: str | bytes) -> JobCard:
    """The card of its text; what a newer tenure added is left out. BackendMisconfigured if it is none."""
    try:
        return JobCard(**{name: value for name, value in json.loads(text).items() if name in _KNOWN})
    except (ValueError, TypeError, AttributeError) as exc:
        raise _not_ours(text.encode() if isinstance(text, str) else text) from exc


async def decode_cards(texts: Iterable[str | bytes]) -> list[JobCard]:
    """The cards of their texts, by job, without keeping the loop for long."""
    cards = []
    for count, text in enumerate(texts, start=1):
        cards.append(decode_card(text))
        if count % _TURN == 0:
            await asyncio.sleep(0)
    return sorted(cards, key=attrgetter("job"))


def _row(run: RunState) -> list[Any]:
    return [*_RUN(run), [_LOST(lost) for lost in run.previous]]


def _run(row: list[Any]) -> RunState:
    row[-1] = tuple([LostAttempt(*lost) for lost in row[-1]])
    return RunState(*row)


def _encode(content: list[Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _decode(data: bytes) -> list[Any]:
    content = json.loads(data)
    if not isinstance(content, list) or not content or type(content[0]) is not int:
        raise TypeError("not a list that begins with a format number")
    if content[0] > FORMAT:
        raise BackendMisconfigured(
            f"the store holds format {content[0]} and this tenure reads up to {FORMAT}; upgrade tenure here"
        )
    return content[1:]


def _not_ours(data: bytes) -> BackendMisconfigured:
    return BackendMisconfigured(f"the store holds {data[:40]!r} where tenure keeps its state; use another place for it")
