"""The limits of docs/protocol.md, section 2: what breaks one is InvalidClaim before anything is sent."""

import asyncio
import os
from dataclasses import FrozenInstanceError

import pytest
from tenure.errors import InvalidClaim, InvalidJob
from tenure.memory import MemoryBackend
from tenure.model import (
    MAX_ERROR_BYTES,
    MAX_SLOT,
    Capabilities,
    Claim,
    RunResult,
    check_ending,
    check_lease,
    check_limit,
    check_name,
    check_run,
    check_token,
    clean_error,
    new_token,
    round_lease,
)


def a_claim(**changes: object) -> Claim:
    given: dict[str, object] = {
        "job": "job",
        "slot": 1,
        "token": "token",
        "instance": "instance",
        "lease_ms": 1,
        "mode": "scheduled",
        "overlap": "skip",
        "max_attempts": 1,
        "max_late_ms": None,
    }
    return Claim(**(given | changes))


def a_result(**changes: object) -> RunResult:
    given: dict[str, object] = {
        "slot": 1,
        "attempt": 1,
        "fence": 1,
        "status": "success",
        "instance": "instance",
        "started_at": 1,
        "ended_at": 2,
    }
    return RunResult(**(given | changes))


GOOD_NAMES = {
    "one byte": "a",
    "200 bytes": "a" * 200,
    "200 bytes of two each": "ü" * 100,
    "200 bytes of four each": "\N{TOP HAT}" * 50,
    "spaces": " a b ",
    "separators": "a:b/c.d#e|{f}*?[g]%_'\";$\\..",
    "right to left": "\N{HEBREW LETTER ALEF}",
}
BAD_NAMES = {
    "empty": ("", "is 0 bytes"),
    "201 bytes": ("a" * 201, "is 201 bytes"),
    "202 bytes of two each": ("ü" * 101, "is 202 bytes"),
    "NUL": ("a\x00", "control character"),
    "a line's end": ("a\n", "control character"),
    "tab": ("\ta", "control character"),
    "DEL": ("a\x7fb", "control character"),
    "a C1 control": ("a\x85b", "control character"),
    "a lone high surrogate": ("a\ud800", "lone surrogate"),
    "a lone low surrogate": ("\udfffa", "lone surrogate"),
    "bytes": (b"a", "not a string"),
    "None": (None, "not a string"),
    "int": (1, "not a string"),
}


@pytest.mark.parametrize("name", GOOD_NAMES.values(), ids=GOOD_NAMES.keys())
def test_limits_name_keeps(name: str) -> None:
    check_name(name, "namespace")
    assert a_claim(job=name).job == name
    assert a_claim(instance=name).instance == name


@pytest.mark.parametrize("what", ["job", "instance"])
@pytest.mark.parametrize(("name", "why"), BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_limits_name_refuses(name: object, why: str, what: str) -> None:
    with pytest.raises(InvalidClaim, match=why) as refused:
        a_claim(**{what: name})
    assert str(refused.value).startswith(f"{what}: ")
    assert isinstance(refused.value, ValueError)


def test_limits_name_of_a_namespace_can_be_told_as_another_error() -> None:
    with pytest.raises(InvalidJob, match=r"name: '' is 0 bytes of UTF-8; use 1 to 200"):
        check_name("", "name", InvalidJob)


def test_limits_name_s_message_is_printable_and_short() -> None:
    with pytest.raises(InvalidClaim) as refused:
        a_claim(job="\ud800" * 5_000)
    assert str(refused.value).isascii()
    assert len(str(refused.value)) < 200


def test_names_exact_composed_and_decomposed_letters_are_two_names() -> None:
    async def outcomes() -> list[str]:
        async with MemoryBackend() as backend:
            names = ("\u00e9", "e\u0301", "\u00c9", " \u00e9")
            claims = [a_claim(job=name, token=f"t{number}") for number, name in enumerate(names)]
            return [(await backend.claim(claim)).outcome for claim in claims]

    assert asyncio.run(outcomes()) == ["won"] * 4


@pytest.mark.parametrize("token", ["a", "a" * 64, " ", "~", "\x00"])
def test_limits_token_keeps(token: str) -> None:
    assert a_claim(token=token).token == token


@pytest.mark.parametrize("token", ["", "a" * 65, "ü", "\ud800", b"a", None, 1])
def test_limits_token_refuses(token: object) -> None:
    with pytest.raises(InvalidClaim, match=r"token: .* is not 1 to 64 ASCII characters"):
        a_claim(token=token)
    with pytest.raises(InvalidClaim, match="token: "):
        check_token(token)


@pytest.mark.parametrize("slot", [0, 1, MAX_SLOT])
def test_limits_slot_keeps(slot: int) -> None:
    assert a_claim(slot=slot).slot == slot
    assert a_result(slot=slot).slot == slot


@pytest.mark.parametrize("slot", [-1, MAX_SLOT + 1, 1.0, "1", None, True, False])
def test_limits_slot_refuses(slot: object) -> None:
    for refuse in (lambda: a_claim(slot=slot), lambda: a_result(slot=slot), lambda: check_run("job", slot, "t")):
        with pytest.raises(InvalidClaim, match=f"slot: .* is not an integer of 0 to {MAX_SLOT}"):
            refuse()


def test_limits_slot_ends_with_the_year_9999() -> None:
    assert MAX_SLOT == 253_402_300_799_999


@pytest.mark.parametrize(("name", "lowest"), [("lease_ms", 1), ("max_attempts", 1), ("after", 0), ("max_late_ms", 0)])
def test_limits_numbers(name: str, lowest: int) -> None:
    assert getattr(a_claim(**{name: lowest}), name) == lowest
    for wrong in (lowest - 1, float(lowest), str(lowest), True, "None" if name == "max_late_ms" else None):
        with pytest.raises(InvalidClaim, match=f"{name}: .* is not an integer of at least {lowest}"):
            a_claim(**{name: wrong})


def test_limits_numbers_a_limit_of_results_is_at_least_1() -> None:
    check_limit(1)
    for wrong in (0, -1, True, 1.0, None):
        with pytest.raises(InvalidClaim, match=r"limit: .* is not an integer of at least 1"):
            check_limit(wrong)


@pytest.mark.parametrize("mode", ["scheduled", "catch-up", "manual", "takeover"])
@pytest.mark.parametrize("overlap", ["skip", "allow"])
def test_limits_words_keeps(mode: str, overlap: str) -> None:
    claim = a_claim(mode=mode, overlap=overlap)
    assert (claim.mode, claim.overlap) == (mode, overlap)


def test_limits_words_refuses_and_names_the_choices() -> None:
    with pytest.raises(InvalidClaim, match="mode: 'Skip' is not one of 'catch-up', 'manual', 'scheduled', 'takeover'"):
        a_claim(mode="Skip")
    with pytest.raises(InvalidClaim, match="overlap: 'Skip' is not one of 'allow', 'skip'"):
        a_claim(overlap="Skip")
    with pytest.raises(InvalidClaim, match="status: 'crashed' is not one of 'failed', 'success'"):
        check_ending("crashed")


@pytest.mark.parametrize("status", ["success", "failed", "interrupted", "crashed"])
def test_result_statuses_of_an_attempt(status: str) -> None:
    assert a_result(status=status).status == status
    with pytest.raises(InvalidClaim, match=f"status: '{status}' of attempt 0"):
        a_result(status=status, attempt=0, started_at=None, ended_at=None)


@pytest.mark.parametrize("status", ["late", "overlap", "exhausted", "superseded"])
def test_result_statuses_of_a_slot_that_was_not_run(status: str) -> None:
    assert a_result(status=status, attempt=0, fence=0, started_at=None, ended_at=None).status == status
    with pytest.raises(InvalidClaim, match=f"status: '{status}' of attempt 1"):
        a_result(status=status)


@pytest.mark.parametrize("name", ["started_at", "ended_at"])
def test_result_times_belong_to_attempts(name: str) -> None:
    for wrong in (None, -1, 1.5, True):
        with pytest.raises(InvalidClaim, match=f"{name}: .* is not an integer of at least 0"):
            a_result(**{name: wrong})
    unrun: dict[str, object] = {"attempt": 0, "status": "late", "started_at": None, "ended_at": None}
    with pytest.raises(InvalidClaim, match=f"{name}: 1 of attempt 0; a slot that was not run has no times"):
        a_result(**(unrun | {name: 1}))


@pytest.mark.parametrize(
    "text", ["", "plain", "ü" * 32_768, "a" * MAX_ERROR_BYTES, "\n\t\x1b[31m", "\N{TOP HAT}" * 16_384]
)
def test_limits_error_text_is_kept_whole(text: str) -> None:
    assert a_result(error=text).error == text


@pytest.mark.parametrize("text", ["a" * (MAX_ERROR_BYTES + 1), "ü" * 40_000, "\N{TOP HAT}" * 20_000, "a" * 10_000_000])
def test_limits_error_cut_keeps_the_beginning_and_marks_the_end(text: str) -> None:
    error = a_result(error=text).error
    assert error is not None
    assert MAX_ERROR_BYTES - 4 < len(error.encode()) <= MAX_ERROR_BYTES
    assert error.endswith(" … (cut)")
    assert text.startswith(error.removesuffix(" … (cut)"))


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a\x00b", "a\N{REPLACEMENT CHARACTER}b"),
        ("a\ud800b", "a\N{REPLACEMENT CHARACTER}b"),
        ("\udc00", "\N{REPLACEMENT CHARACTER}"),
        ("\ud83d\udca5", "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_limits_error_clean_replaces_nul_and_lone_surrogates(text: str, cleaned: str) -> None:
    assert a_result(error=text).error == clean_error(text) == cleaned


@pytest.mark.parametrize(
    "text", ["\ud800" * 80_000, "\x00" * 80_000, "a" * (MAX_ERROR_BYTES - 1) + "\x00", "\ud800" * 21_845]
)
def test_limits_error_text_fits_also_when_cleaned(text: str) -> None:
    assert len(clean_error(text).encode()) <= MAX_ERROR_BYTES


def test_limits_error_text_stays_none() -> None:
    assert a_result(error=None).error is None


def test_time_round_up() -> None:
    seconds = Capabilities(lease_granularity_ms=1_000)
    assert [round_lease(lease, seconds) for lease in (1, 999, 1_000, 1_001)] == [1_000, 1_000, 1_000, 2_000]
    assert round_lease(1_001, Capabilities()) == 1_001


def test_time_min_lease() -> None:
    check_lease(2_000, Capabilities(min_lease_ms=2_000))
    with pytest.raises(InvalidClaim, match="lease: 1999 ms is shorter than this store can grant; use 2000 ms or more"):
        check_lease(1_999, Capabilities(min_lease_ms=2_000))


def test_records_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        a_claim().slot = 2
    with pytest.raises(FrozenInstanceError):
        a_result().slot = 2


def test_word_token_is_accepted_and_fresh() -> None:
    tokens = {new_token() for _ in range(1_000)}
    assert len(tokens) == 1_000
    for token in tokens:
        check_token(token)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_word_token_differs_in_processes_that_were_forked_from_one() -> None:
    new_token()  # whatever state there is, the children inherit it
    tokens = [new_token(), *(_token_of_a_fork() for _ in range(4))]
    assert len(set(tokens)) == 5


def _token_of_a_fork() -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, new_token().encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        token = pipe.read()
    assert os.waitpid(child, 0) == (child, 0)
    return token
