"""The example of a claim-only backend does what one has to."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
import tenure_directory
from tenure.errors import BackendClosed, BackendMisconfigured, BackendUnavailable, InvalidClaim, InvalidUrl
from tenure.model import RunResult
from tenure.protocol import ClaimOnlyBackend, has_leases
from tenure.registry import connect
from tenure_directory import DirectoryBackend

LONG_AGO = 1_700_000_000_000


def run(path, scenario, **options):
    async def main():
        async with DirectoryBackend(path, **options) as first, DirectoryBackend(path, **options) as second:
            await scenario(first, second)

    asyncio.run(main())


def files(path, pattern):
    return sorted(path.rglob(pattern))


def test_it_is_found_by_its_scheme_and_is_claim_only(tmp_path):
    backend = connect(f"dir://{tmp_path}/a%20b", namespace="n")
    assert isinstance(backend, ClaimOnlyBackend)
    assert not has_leases(backend)
    assert str(backend) == f"dir://{tmp_path}/a%20b (namespace n)"
    run(tmp_path / "a b", lambda first, _: first.claim("sync", LONG_AGO, "one"))
    assert files(tmp_path / "a b", "*.claim")
    with pytest.raises(InvalidUrl, match="unknown option 'x'"):
        connect(f"dir://{tmp_path}?x=1")


def test_a_run_is_won_once_and_again_by_the_same_token(tmp_path):
    async def scenario(first, second):
        assert await first.claim("sync", LONG_AGO, "one") is True
        assert await second.claim("sync", LONG_AGO, "two") is False
        assert await second.claim("sync", LONG_AGO, "one") is True
        assert await second.claim("sync", LONG_AGO + 1, "two") is True
        assert await second.claim("SYNC", LONG_AGO, "two") is True

    run(tmp_path, scenario)
    run(tmp_path, lambda first, _: first.claim("sync", LONG_AGO, "two"), namespace="other")
    assert len(files(tmp_path, "*.claim")) == 4


def test_of_many_claims_at_once_one_wins(tmp_path):
    async def scenario(first, second):
        for slot in range(LONG_AGO, LONG_AGO + 20):
            claims = [(first, second)[n % 2].claim("sync", slot, f"{n}") for n in range(20)]
            assert sum(await asyncio.gather(*claims)) == 1

    run(tmp_path, scenario)


def test_names_of_any_kind_are_apart_and_stay_in_the_directory(tmp_path):
    names = [
        "../x",
        "/x",
        "..",
        ".",
        "a",
        "A",
        "ü",
        "u\N{COMBINING DIAERESIS}",
        "n" * 200,
        "🎉" * 50,
        "a/b",
        "a\\b",
        "*",
    ]

    async def scenario(first, second):
        for name in names:
            assert await first.claim(name, LONG_AGO, "one")
            assert not await second.claim(name, LONG_AGO, "two")

    run(tmp_path / "store", scenario)
    assert len(files(tmp_path / "store", "*.claim")) == len(names)
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]


def test_a_claim_killed_half_way_does_not_count(tmp_path):
    script = f"""
import asyncio, os, signal
from tenure_directory import DirectoryBackend
os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
async def main():
    async with DirectoryBackend({str(tmp_path)!r}) as backend:
        await backend.claim("sync", {LONG_AGO}, "one")
asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == -signal.SIGKILL

    async def scenario(first, second):
        assert await first.claim("sync", LONG_AGO, "two")
        assert not await second.claim("sync", LONG_AGO, "one")

    run(tmp_path, scenario)


def test_a_slot_older_than_the_claims_that_are_kept_is_never_won(tmp_path, monkeypatch):
    monkeypatch.setitem(tenure_directory.KEPT, "*.claim", 3)

    async def scenario(first, second):
        for slot in range(LONG_AGO, LONG_AGO + 5):
            assert await first.claim("sync", slot, "one")
        for slot in (LONG_AGO - 1, LONG_AGO, LONG_AGO + 1):
            assert not await second.claim("sync", slot, "two")
        assert [path.stem[-1] for path in files(tmp_path, "*.claim")] == ["2", "3", "4"]

    run(tmp_path, scenario)


def test_results_are_kept_whole_the_newest_of_them(tmp_path, monkeypatch):
    monkeypatch.setitem(tenure_directory.KEPT, "*.json", 2)

    async def scenario(first, second):
        for slot in range(3):
            await first.save_result("sync", RunResult(slot, 1, 0, "failed", "i", 1, 2, "ü"))
        await second.save_result("sync", RunResult(2, 1, 0, "crashed", "i", 1, 2))

    run(tmp_path, scenario)
    records = [json.loads(path.read_text()) for path in files(tmp_path, "*.json")]
    assert [(record["slot"], record["status"], record["error"]) for record in records] == [
        (1, "failed", "ü"),
        (2, "failed", "ü"),
    ]
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if name.startswith(".")]


def test_bad_input_and_a_bad_place_are_told_apart(tmp_path):
    (tmp_path / "file").write_text("")

    async def main():
        backend = DirectoryBackend(tmp_path)
        with pytest.raises(BackendClosed):
            await backend.claim("sync", LONG_AGO, "one")
        with pytest.raises(BackendMisconfigured, match="name a directory"):
            await DirectoryBackend(tmp_path / "file").__aenter__()
        async with backend:
            with pytest.raises(InvalidClaim):
                await backend.claim("sync", -1, "one")
            with pytest.raises(InvalidClaim):
                await backend.save_result("", RunResult(1, 0, 0, "late", "i", None, None))
        with pytest.raises(BackendClosed):
            await backend.save_result("sync", RunResult(1, 0, 0, "late", "i", None, None))

    asyncio.run(main())


def test_a_disk_that_does_not_answer_is_unavailable_in_time(tmp_path, monkeypatch):
    answer = threading.Event()
    monkeypatch.setattr(tenure_directory, "TIMEOUT_S", 0.05)

    async def main():
        async with DirectoryBackend(tmp_path) as backend:
            monkeypatch.setattr(tenure_directory, "_claim", lambda *_: answer.wait(30))
            try:
                with pytest.raises(BackendUnavailable, match="no answer"):
                    await backend.claim("sync", LONG_AGO, "one")
            finally:
                answer.set()

    asyncio.run(main())
