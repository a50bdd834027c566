"""The commands of whoever operates jobs: why, jobs, runs and active without names, top, doctor."""

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tenure.model import Claim, Finding, JobCard, RunResult
from tenure.registry import connect

pytest.importorskip("click")
pytest.importorskip("rich")

from click.testing import CliRunner, Result
from rich.console import Console
from tenure.cli import doctor as doctor_module
from tenure.cli.commands import tenure
from tenure.cli.doctor import _clock
from tenure.cli.output import moment
from tenure.cli.survey import survey
from tenure.cli.top import screen
from tenure.memory import MemoryBackend, MemoryStore

SLOT = 1_780_315_200_000  # 2026-06-01T12:00:00Z
NOW = 0
"""The time at which a test begins."""


@pytest.fixture(autouse=True)
def it_is_now():
    global NOW
    NOW = int(time.time() * 1_000)


def call(*arguments: str, **env: str) -> Result:
    return CliRunner(env={"TENURE_URL": None, **env}).invoke(tenure, arguments)


def out(*arguments: str) -> list[str]:
    result = call(*arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout.splitlines()


def card(job: str, **changes) -> JobCard:
    fields = {"schedule": "every 10s", "words": "every 10 seconds", "lease_ms": 30_000, "overlap": "skip"}
    fields |= {"max_attempts": 3, "max_late_ms": 60_000, "next_slot": None, "instance": "web1", "seen_at_ms": NOW}
    return JobCard(job=job, **{**fields, **changes})


def attempt(slot: int, number: int, status: str, began_ms: int, ended_ms: int, error: str | None = None, by="web1"):
    return RunResult(slot, number, slot + number, status, by, slot + began_ms, slot + ended_ms, error)


def unstarted(slot: int, status: str) -> RunResult:
    return RunResult(slot, 0, 0, status, "web1", None, None)


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"


def fill(url: str, *cards: JobCard, claims: tuple[Claim, ...] = (), **results: list[RunResult]) -> None:
    async def main() -> None:
        async with connect(url) as backend:
            await backend.save_cards(cards)
            for job, records in results.items():
                for record in records:
                    await backend.save_result(job, record)
            for claim in claims:
                assert (await backend.claim(claim)).outcome == "won"

    asyncio.run(main())


def claim_of(job: str, slot: int) -> Claim:
    return Claim(
        job=job, slot=slot, token=f"{job}{slot}", instance="host-1", lease_ms=60_000, mode="manual", overlap="allow",
        max_attempts=3, max_late_ms=None,
    )  # fmt: skip


# why

ERROR = 'Traceback (most recent call last):\n  File "app.py", line 3\nValueError: no such customer'
NIGHT = [
    attempt(SLOT, 1, "crashed", 300, 30_300, by="web1-1"),
    attempt(SLOT, 2, "failed", 30_500, 48_200, ERROR, by="web2-7"),
    unstarted(SLOT + 10_000, "overlap"),
    attempt(SLOT + 70_000, 1, "success", 500, 1_200, by="web2-7"),
]


def test_a_failed_night_is_led_to_its_cause_as_the_page_shows(url: str) -> None:
    fill(url, card("report"), report=NIGHT)
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    _, _, shown = page.partition("$ tenure why report 2026-06-01T12:00 --url sqlite:////var/lib/app/jobs.db\n")
    assert out("why", "report", "2026-06-01T12:00", "--url", url) == shown.partition("\n```")[0].splitlines()


def test_an_error_s_text_cannot_command_the_terminal(url: str) -> None:
    fill(url, report=[attempt(SLOT, 1, "failed", 0, 5, "ValueError: \x1b[31m\r\nred")])
    assert out("why", "report", "--url", url)[6:8] == [
        "ValueError: \N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}",
        "red",
    ]


def test_the_newest_trouble_needs_no_slot(url: str) -> None:
    fill(url, card("report", schedule="my own"), report=NIGHT)
    lines = out("why", "report", "bad", "--url", url)
    assert lines[0].endswith("12:00:10, every 10 seconds: overlap")
    assert "the run of 2026-06-01 12:00:00, attempt 2 by web2-7, was still going (told by web1)" in lines[3]
    assert 'overlap="allow"' in lines[-1]
    lines = out("why", "report", "--url", url)
    assert lines[0].endswith("12:01:10, every 10 seconds: success")
    assert lines[-1] == "nothing to do"


@pytest.mark.parametrize(
    ("slot", "status", "says"),
    [
        ("2026-06-01T12:00:20Z", "missed", "12:00:10: overlap by web1"),
        (str(SLOT + 20_000), "missed", "12:01:10: success by web2-7"),
        ("2026-06-01T14:00:20+02:00", "missed", "nobody claimed it"),
        ("2026-06-01T12:00:05", "no slot", "no slot of its schedule now (every 10 seconds)"),
        ("2020-01-01", "forgotten", "history goes back to 2026-06-01 12:00:00 only, or the job was not there yet"),
        ("9000-01-01", "not due", "due in "),
    ],
)
def test_a_slot_without_a_record_is_explained(url: str, slot: str, status: str, says: str) -> None:
    fill(url, card("report"), report=NIGHT)
    lines = out("why", "report", slot, "--url", url)
    assert lines[0].endswith(f": {status}")
    assert any(says in line for line in lines)
    assert lines[-1].startswith("what to do: ")


def test_times_are_shown_in_the_zone_that_the_slot_is_named_in(url: str) -> None:
    fill(url, report=NIGHT)
    lines = out("why", "report", "2026-06-01T14:00", "--tz", "Europe/Prague", "--url", url)
    assert lines[0] == "report, slot 2026-06-01 14:00:00+02:00: failed"
    assert lines[1].startswith("time, Europe/Prague ")


def test_why_as_json(url: str) -> None:
    fill(url, card("report"), report=NIGHT)
    told = json.loads("\n".join(out("why", "report", str(SLOT), "--json", "--url", url)))
    assert (told["job"], told["slot"], told["utc"], told["status"]) == (
        "report",
        SLOT,
        "2026-06-01T12:00:00Z",
        "failed",
    )
    assert [line["kind"] for line in told["lines"]] == ["due", "claim", "lost", "takeover", "end"]
    assert [line["at_ms"] - SLOT for line in told["lines"]] == [0, 300, 30_300, 30_500, 48_200]
    assert [row["attempt"] for row in told["attempts"]] == [1, 2]
    assert told["lines"][-1]["error"] == ERROR


def test_what_still_runs_shows_what_is_left_of_its_lease(url: str) -> None:
    fill(url, claims=(claim_of("report", SLOT),))
    lines = out("why", "report", "--url", url)
    assert lines[0].endswith(": running")
    assert "runs still, its lease for " in lines[4]


@pytest.mark.parametrize(("cards", "hint"), [(["report"], "did you mean 'report'?"), (["a", "b"], "known are a, b")])
def test_a_job_that_is_not_known_is_a_failure_that_names_others(url: str, cards: list[str], hint: str) -> None:
    fill(url, *map(card, cards))
    for command in (["why"], ["runs"], ["active"], ["jobs"], ["jobs", "--overdue"]):
        result = call(*command, "reprot", "--url", url)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "nothing is known of a job 'reprot' in namespace 'tenure' of sqlite:///" in result.stderr
        assert hint in result.stderr


def test_a_job_with_a_card_or_a_run_is_known(url: str) -> None:
    fill(url, card("told"), claims=(claim_of("held", SLOT),), ended=[attempt(SLOT, 1, "success", 0, 5)])
    for command in ("runs", "active", "jobs"):
        out(command, "told", "held", "ended", "--url", url)


def test_a_slot_that_is_none_is_a_wrong_call(url: str) -> None:
    result = call("why", "report", "yesterday", "--url", url)
    assert result.exit_code == 2
    assert "SLOT: 'yesterday' is no instant" in result.stderr


def test_without_trouble_there_is_none_to_tell(url: str) -> None:
    fill(url, card("report", schedule="my own"), report=[attempt(SLOT, 1, "success", 1, 2)])
    assert out("why", "report", "bad", "--url", url) == ["report: no trouble is on record"]
    assert out("why", "report", "bad", "--json", "--url", url) == ["null"]


def test_after_an_outage_all_commands_lead_to_the_slots_that_nobody_ran(url: str) -> None:
    last = NOW // 10_000 * 10_000 - 600_000
    fill(url, card("sync", seen_at_ms=last), sync=[attempt(last, 1, "success", 0, 5)])
    lines = out("why", "sync", "--url", url)
    assert lines[0].endswith(": success")
    assert "no slot since has a record: no instance that has the job was up" in lines[-3]
    assert lines[-1].startswith("what to do: a success has been overdue for 8m")
    assert lines[-1].endswith(": start an instance")
    assert out("why", "sync", "bad", "--url", url)[0].endswith(": missed")
    _, found = findings(url)
    assert "no instance has told of anything since" in found["jobs"]["text"]
    remedy = found["jobs"]["remedy"]
    assert remedy.startswith("start one; ")
    command = remedy.split("`")[3].split()
    assert out(*command[1:], "--url", url)[0].endswith(": missed")


# jobs, runs, active


def test_jobs_shows_next_slot_last_success_and_what_is_overdue(url: str) -> None:
    slot = NOW // 10_000 * 10_000 - 20_000
    fill(
        url,
        card("good"),
        card("late"),
        card("gone", seen_at_ms=NOW - 5 * 86_400_000),
        card("new", next_slot=NOW + 1_000_000, schedule="my own"),
        good=[attempt(slot, 1, "success", 0, 5)],
        late=[attempt(slot - 600_000, 1, "success", 0, 5), attempt(slot - 590_000, 1, "failed", 0, 5)],
        gone=[attempt(slot - 86_400_000, 1, "success", 0, 5)],
    )
    told = json.loads("\n".join(out("jobs", "--json", "--url", url)))
    jobs = {line["job"]: line for line in told["jobs"]}
    assert [line["state"] for line in jobs.values()] == ["gone", "success", "overdue", "waiting"]
    assert 0 < jobs["good"]["next_slot"] - told["now_ms"] <= 10_000
    assert 490_000 < jobs["late"]["overdue_ms"] < 600_000
    assert (jobs["late"]["last_status"], jobs["late"]["last_slot"]) == ("failed", slot - 590_000)
    assert (jobs["gone"]["next_slot"], jobs["new"]["next_slot"]) == (None, NOW + 1_000_000)
    text = out("jobs", "--url", url)
    assert [line.split()[0] for line in text] == ["job", "gone", "good", "late", "new"]
    assert "gone, seen 5d ago" in text[1]
    assert len(out("jobs", "good", "--url", url)) == 2


def test_overdue_jobs_are_a_failure_for_whoever_asks_for_them(url: str) -> None:
    fill(url, card("late"), late=[attempt(NOW // 10_000 * 10_000 - 600_000, 1, "success", 0, 5)])
    result = call("jobs", "--overdue", "--url", url)
    assert (result.exit_code, result.stderr) == (1, "")
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["job", "late"]
    fill(url, late=[attempt(NOW // 10_000 * 10_000, 1, "success", 0, 5)])
    assert out("jobs", "--overdue", "--url", url)[0].startswith("no job is overdue")


def test_without_names_runs_and_active_show_all_jobs_that_are_known(url: str) -> None:
    fill(
        url,
        card("a"),
        card("b"),
        claims=(claim_of("a", SLOT + 3), claim_of("hidden", SLOT)),
        a=[attempt(SLOT, 1, "success", 0, 5), attempt(SLOT + 2, 1, "success", 0, 5)],
        b=[attempt(SLOT + 1, 1, "failed", 0, 5)],
    )
    told = json.loads("\n".join(out("runs", "--json", "--limit", "3", "--url", url)))["runs"]
    assert [(run["job"], run["slot"] - SLOT, run["status"]) for run in told] == [
        ("a", 3, "running"), ("a", 2, "success"), ("b", 1, "failed"),
    ]  # fmt: skip
    assert [line.split()[0] for line in out("runs", "--url", url)] == ["job", "a", "a", "b", "a"]
    assert [line.split()[0] for line in out("active", "--url", url)] == ["job", "a"]


def test_a_store_without_cards_wants_names(monkeypatch) -> None:
    class Bare(MemoryBackend):
        capabilities = replace(MemoryBackend.capabilities, shared=True)
        save_cards = None

    monkeypatch.setattr("tenure.cli.store.connect_existing", lambda *_, **__: Bare())
    for command in ("runs", "active", "jobs"):
        result = call(command, "--url", "bare://")
        assert result.exit_code == 2
        assert "which jobs? name them" in result.stderr
    assert "no runs" in call("runs", "sync", "--url", "bare://").stdout


# top


def test_top_shows_what_is_overdue_first_and_as_much_as_fits() -> None:
    slot = NOW // 10_000 * 10_000 - 600_000

    async def main():
        async with MemoryBackend(MemoryStore()) as backend:
            await backend.save_cards([card(f"job-{number:02}") for number in range(60)])
            await backend.save_result("job-59", attempt(slot, 1, "success", 0, 5))
            await backend.claim(claim_of("job-07", NOW))
            return await survey(backend)

    console = Console(width=160, height=30, record=True, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    console.print(screen(asyncio.run(main()), "the store", 30))
    console.file.close()
    lines = [line.strip() for line in console.export_text().splitlines()]
    assert "60 jobs, 1 overdue" in lines[0]
    named = [line.split()[0] for line in lines if line.startswith("job-")]
    assert named[:3] == ["job-59", "job-07", "job-00"]
    assert named[-1] == "job-07"
    assert len(lines) <= 30
    assert any("… and" in line and "more jobs" in line for line in lines)


def test_in_110_columns_no_time_is_broken() -> None:
    slot = NOW // 10_000 * 10_000 - 600_000

    async def main():
        async with MemoryBackend(MemoryStore()) as backend:
            await backend.save_cards([card("invoices-of-the-month", words="At 09:00, Monday through Friday")])
            await backend.save_result("invoices-of-the-month", attempt(slot, 1, "success", 0, 5))
            return await survey(backend)

    found = asyncio.run(main())
    console = Console(width=110, height=30, record=True, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    console.print(screen(found, "the store", 30))
    console.file.close()
    shown = console.export_text()
    assert moment(slot) in shown
    assert moment(found.jobs[0].next_slot) in shown


def test_top_runs_in_a_terminal_until_q(url: str) -> None:
    fill(url, card("sync"))
    master, slave = pty.openpty()
    code = "import sys; from tenure.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "top", "--url", url, "--every", "0.2"]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"})
    os.close(slave)
    try:
        seen = b""
        until = time.monotonic() + 60
        while b"q ends" not in seen and time.monotonic() < until:
            if select.select([master], [], [], 0.5)[0]:
                seen += os.read(master, 65_536)
        assert b"sync" in seen
        os.write(master, b"q")
        while process.poll() is None and time.monotonic() < until:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    os.read(master, 65_536)
                except OSError:
                    break
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_top_is_for_a_terminal(url: str) -> None:
    result = call("top", "--url", url)
    assert result.exit_code == 2
    assert "top without --json is for a terminal" in result.stderr


# doctor


def findings(*arguments: str) -> tuple[int, dict[str, dict]]:
    result = call("doctor", *arguments, "--json")
    assert result.stderr == ""
    told = json.loads(result.stdout)
    assert told["ok"] == (result.exit_code == 0)
    return result.exit_code, {finding["what"]: finding for finding in told["findings"]}


def test_a_store_that_is_well_is_said_to_be(url: str) -> None:
    fill(url, card("sync", next_slot=NOW + 5_000))
    code, found = findings(url)
    assert code == 0
    assert {finding["state"] for finding in found.values()} == {"ok"}
    assert {"zone data", "store", "clock", "round trip", "jobs"} <= found.keys()
    assert found["jobs"]["text"] == "1, none overdue"
    for arguments, env in (
        ((url,), {}),
        (("--url", url), {}),
        ((), {"TENURE_URL": url}),
        ((url,), {"TENURE_URL": "x"}),
    ):
        result = call("doctor", *arguments, **env)
        assert (result.exit_code, result.stdout.splitlines()[0].split()) == (0, ["what", "found"])


def test_a_file_is_named_with_its_whole_path(url: str, tmp_path, monkeypatch) -> None:
    fill(url)
    monkeypatch.chdir(tmp_path)
    _, found = findings("sqlite:///jobs.db")
    assert f"{tmp_path}/jobs.db" in found["store"]["text"]


def test_what_is_overdue_and_a_lease_that_is_too_short_are_warnings(url: str, monkeypatch) -> None:
    monkeypatch.setattr(doctor_module, "_TRIPS_IN_A_LEASE", 10_000_000)
    slot = NOW // 10_000 * 10_000 - 600_000
    fill(url, card("sync"), sync=[attempt(slot, 1, "success", 0, 5)])
    code, found = findings(url)
    assert code == 0
    assert found["leases"]["state"] == found["jobs"]["state"] == "warning"
    assert found["jobs"]["text"] == "1 of 1 jobs overdue, as 'sync'"
    first = out("why", "sync", str(slot + 10_000), "--json", "--url", url)
    utc = json.loads("\n".join(first))["utc"]
    assert found["jobs"]["remedy"] == f"see `tenure jobs --overdue`, and `tenure why sync {utc}`"


def test_a_store_that_cannot_be_used_is_wrong_and_exit_code_1(tmp_path) -> None:
    code, found = findings(f"sqlite:///{tmp_path}/none.db")
    assert code == 1
    assert found["store"]["state"] == "wrong"
    assert "there is no store at" in found["store"]["text"]
    assert call("doctor", "frob").exit_code == 2


@pytest.mark.parametrize(
    ("ahead_ms", "state", "says"),
    [
        (0, "ok", "0 ms behind"),
        (400, "ok", "400 ms ahead"),
        (-900, "warning", "900 ms behind"),
        (900, "warning", "900 ms ahead"),
        (1_500, "wrong", "1500 ms ahead"),
        (-9_000, "warning", "9000 ms behind"),
        (-11_000, "wrong", "11000 ms behind"),
    ],
)
def test_a_wrong_clock_is_told_with_its_remedy(ahead_ms: float, state: str, says: str) -> None:
    found = _clock(20.0, ahead_ms, 0)
    assert found.state == state
    assert says in found.text
    assert (found.remedy is None) == (state == "ok")


def test_a_clock_that_the_store_is_slow_to_tell_is_not_called_wrong() -> None:
    assert _clock(4_000.0, 1_900, 0).state == "ok"
    assert _clock(10.0, 1_900, 1_500).state == "ok"


def test_what_the_backend_finds_is_told_too(url: str, monkeypatch) -> None:
    from tenure_sqlite import SqliteBackend

    async def examine(self):
        return [Finding("disk", "wrong", "full", "free some space")]

    monkeypatch.setattr(SqliteBackend, "examine", examine, raising=False)
    fill(url)
    result = call("doctor", url)
    assert result.exit_code == 1
    assert "disk: free some space" in result.stdout


def test_top_tells_programs_a_line_each_time(url: str) -> None:
    fill(url, card("sync", next_slot=NOW + 5_000), claims=(claim_of("sync", NOW),))
    command = [sys.executable, "-m", "tenure", "top", "--json", "--every", "0.2", "--url", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        told = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert told[0]["now_ms"] < told[1]["now_ms"]
    assert [line["job"] for line in told[1]["jobs"]] == ["sync"]
    assert [(run["slot"], run["holder"]) for run in told[1]["runs"]] == [(NOW, "host-1")]
    assert errors == ""
