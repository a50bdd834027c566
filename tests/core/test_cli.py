"""The command line: what it prints, and that each error is one line with an exit code that says whose fault it is."""

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from tenure.memory import MemoryBackend
from tenure.model import ActiveRun, Claim, JobCard, RunResult
from tenure.registry import connect
from tenure.schedule import tz_data_version

pytest.importorskip("click")
pytest.importorskip("rich")

from click.testing import CliRunner, Result
from tenure.cli.commands import tenure
from tenure.cli.output import last_line
from tenure.history import read_rows

SLOT = 1_780_315_200_000  # 2026-06-01T12:00:00Z
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def call(*arguments: str, **env: str) -> Result:
    return CliRunner(env={"TENURE_URL": None, **env}).invoke(tenure, arguments)


def out(*arguments: str, **env: str) -> list[str]:
    result = call(*arguments, **env)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


def fails(code: int, *arguments: str, **env: str) -> str:
    """The error's one line."""
    result = call(*arguments, **env)
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (code, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("tenure: ")
    return line


def result_of(slot: int, attempt: int, status: str = "success", error: str | None = None) -> RunResult:
    times = (slot + 5, slot + 1_505) if attempt else (None, None)
    return RunResult(slot, attempt, slot + attempt if attempt else 0, status, f"host-{attempt}", *times, error)


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


def store(url: str, *results: RunResult, claims: tuple[Claim, ...] = ()) -> None:
    async def fill() -> None:
        async with connect(url) as backend:
            for result in results:
                await backend.save_result("sync", result)
            for claim in claims:
                assert (await backend.claim(claim)).outcome == "won"

    asyncio.run(fill())


def tell_of(url: str, job: str) -> None:
    fields = {"lease_ms": 30_000, "overlap": "skip", "max_attempts": 3, "max_late_ms": 60_000, "next_slot": None}
    card = JobCard(
        job=job, schedule="every 10s", words="every 10s", instance="web1", seen_at_ms=int(time.time() * 1_000), **fields
    )

    async def fill() -> None:
        async with connect(url) as backend:
            await backend.save_cards([card])

    asyncio.run(fill())


def claim_of(job: str, slot: int, **changes) -> Claim:
    options = {"lease_ms": 60_000, "mode": "manual", "overlap": "allow", "max_attempts": 3, "max_late_ms": None}
    return Claim(job=job, slot=slot, token=f"{job}{slot}", instance="host-1", **{**options, **changes})


# The command itself


def test_without_a_command_it_explains_itself() -> None:
    commands = {"active", "demo", "doctor", "jobs", "migrate", "next", "run", "runs", "top", "web", "why"}
    assert {line.split()[0] for line in out()[-len(commands) :]} == commands


def test_the_version_names_the_time_zone_data() -> None:
    (line,) = out("--version")
    assert re.fullmatch(rf"tenure \d+\.\d+\.\d+, Python 3\.\d+\.\d+\S*, time zone data {tz_data_version()}", line)


@pytest.mark.parametrize("library", ["click", "rich"])
def test_without_its_libraries_it_names_what_to_install(library: str) -> None:
    code = f"import sys; sys.modules[{library!r}] = None; from tenure.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f'tenure: the command line needs {library}; run: pip install "tenure[cli]"\n'


@pytest.mark.parametrize("how", [["-c", "import sys; from tenure.cli import main; sys.exit(main())"], ["-m", "tenure"]])
def test_the_entry_point_exits_with_the_command_s_code(how: list[str]) -> None:
    done = subprocess.run([sys.executable, *how, "next", "frob"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nxt"], "No such command 'nxt'"),
        (["next"], "Missing argument 'EXPR'"),
        (["next", "10s", "--frob"], "--frob"),
        (["next", "10s", "-n", "0"], "0 is not in the range"),
        (["next", "frob"], "neither a cron expression"),
        (["next", "0s"], "at least 1ms"),
        (["next", "61 * * * *"], "minute 61 is out of range"),
        (["next", "10s", "--fold", "both"], "'10s' is a period of real time"),
        (["next", "10s", "--tz", "Europe/Prag"], "Europe/Prague"),
        (["next", "10s", "--after", "tomorrow"], "'tomorrow' is no instant"),
        (["runs"], "TENURE_URL"),
        (["why"], "Missing argument 'JOB'"),
        *(
            ([command], "which store? give --url, or set TENURE_URL")
            for command in ("doctor", "migrate", "web", "jobs")
        ),
        *(([command, "memory://", "--url", "memory://"], "give one URL") for command in ("doctor", "migrate", "web")),
        *(
            ([command, "redis://u:p@h"], "'redis://***@h' looks like a URL; give it with --url")
            for command in ("why", "jobs", "runs", "active", "top")
        ),
        (["runs", "sync"], "TENURE_URL"),
        (["runs", "sync", "--url", "jobs.db"], 'write "sqlite:///jobs.db"'),
        (["runs", "", "--url", "memory://"], "job: '' is 0 bytes"),
        (["run", "app"], "write module:attribute, as in app:scheduler"),
        (["run", "app.py:scheduler"], "write the module's name, as in app:scheduler"),
        (["run", "app:scheduler", "--log-level", "loud"], "'loud' is not one of"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(arguments: list[str], says: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    if arguments[:2] == ["runs", ""]:
        arguments[-1] = f"sqlite:///{tmp_path}/jobs.db"
        store(arguments[-1])
    assert says in fails(2, *arguments)


# next


def test_next_shows_a_cron_expression_in_words_in_local_time_and_in_utc() -> None:
    lines = out("next", "0 9 * * mon-fri", "--tz", "Europe/Prague", "-n", "2", "--after", "2027-03-26T12:00")
    assert lines == [
        "At 09:00, Monday through Friday, Europe/Prague",
        "Europe/Prague                  UTC",
        "Mon 2027-03-29 09:00:00+02:00  Mon 2027-03-29 07:00:00",
        "Tue 2027-03-30 09:00:00+02:00  Tue 2027-03-30 07:00:00",
    ]


def test_next_takes_a_period_too() -> None:
    lines = out("next", "1.5s", "-n", "3", "--after", "2026-12-01T12:00Z")
    assert lines[0] == "every 1 second 500 milliseconds"
    assert lines[2:] == [
        "Tue 2026-12-01 12:00:01.500",
        "Tue 2026-12-01 12:00:03",
        "Tue 2026-12-01 12:00:04.500",
    ]


def test_next_counts_from_now_unless_told_otherwise() -> None:
    before = datetime.now(UTC)
    found = json.loads(call("next", "1s", "-n", "1", "--json").stdout)
    slot = EPOCH + timedelta(milliseconds=found["slots"][0]["slot"])
    assert timedelta(0) < slot - before < timedelta(seconds=30)


def test_next_as_json() -> None:
    arguments = ["30 2 * * *", "--tz", "Europe/Prague", "-n", "2", "--after", "2027-03-27T00:00Z", "--json"]
    assert json.loads(call("next", *arguments).stdout) == {
        "schedule": "cron 30 2 * * * Europe/Prague",
        "words": "At 02:30, Europe/Prague",
        "tz": "Europe/Prague",
        "tz_data": tz_data_version(),
        "slots": [
            {"slot": 1806111000000, "utc": "2027-03-27T01:30:00Z", "local": "2027-03-27T02:30:00+01:00"},
            {"slot": 1806195600000, "utc": "2027-03-28T01:00:00Z", "local": "2027-03-28T03:00:00+02:00"},
        ],
    }


def test_next_passes_gap_and_fold_on() -> None:
    skipped = json.loads(
        call(
            "next", "30 2 * * *", "--tz", "Europe/Prague", "-n1", "--after", "2027-03-28", "--gap=skip", "--json"
        ).stdout
    )
    assert skipped["slots"][0]["local"] == "2027-03-29T02:30:00+02:00"
    both = json.loads(
        call(
            "next", "30 2 * * *", "--tz", "Europe/Prague", "-n2", "--after", "2027-10-31", "--fold=both", "--json"
        ).stdout
    )
    assert [slot["local"][-6:] for slot in both["slots"]] == ["+02:00", "+01:00"]


def test_next_says_when_there_are_no_more() -> None:
    assert out("next", "1s", "--after", "9999-12-31T23:59:58Z")[-2:] == ["Fri 9999-12-31 23:59:59", "no more slots"]
    assert out("next", "1s", "--after", "9999-12-31T23:59:59Z") == ["every second", "no slots after this"]


def test_next_tells_the_last_hours_of_time_in_utc_where_the_zone_cannot() -> None:
    assert out("next", "1s", "--tz", "Asia/Tokyo", "-n", "1", "--after", "9999-12-31T23:59:58Z")[2:] == [
        "Fri 9999-12-31 23:59:59  Fri 9999-12-31 23:59:59"
    ]


# runs


def test_runs_shows_the_newest_first_with_the_error_s_last_line(url: str) -> None:
    error = "Traceback (most recent call last):\n  File …\nValueError: no \x1b[31mmoney\n"
    store(url, result_of(SLOT, 1), result_of(SLOT + 1_000, 1, "failed", error), result_of(SLOT + 2_000, 0, "late"))
    header, *rows = (re.split(r"\s{2,}", line) for line in out("runs", "sync", "--url", url))
    assert header == ["slot, UTC", "attempt", "status", "fence", "instance", "started, UTC", "duration", "error"]
    assert rows[0] == ["2026-06-01 12:00:02", "late", "host-0"]
    assert rows[1][:5] == ["2026-06-01 12:00:01", "1", "failed", str(SLOT + 1_001), "host-1"]
    assert rows[1][5:] == ["2026-06-01 12:00:01.005", "1.500 s", "ValueError: no \N{REPLACEMENT CHARACTER}[31mmoney"]
    assert rows[2][2] == "success"


def test_runs_shows_a_hole_in_the_attempts_as_crashed_and_what_still_runs(url: str) -> None:
    store(url, result_of(SLOT, 1, "interrupted"), result_of(SLOT, 3), claims=(claim_of("sync", SLOT + 1_000),))
    runs = json.loads(call("runs", "sync", "--url", url, "--json").stdout)["runs"]
    assert [(run["slot"], run["attempt"], run["status"]) for run in runs] == [
        (SLOT + 1_000, 1, "running"),
        (SLOT, 3, "success"),
        (SLOT, 2, "crashed"),
        (SLOT, 1, "interrupted"),
    ]
    assert runs[1]["duration_ms"] == 1_500
    assert (runs[2]["instance"], runs[2]["duration_ms"]) == (None, None)


def test_runs_takes_the_store_from_the_environment_and_a_limit(url: str) -> None:
    store(url, *(result_of(SLOT + number * 1_000, 1) for number in range(5)))
    assert len(out("runs", "sync", "--limit", "3", TENURE_URL=url)) == 1 + 3


def test_runs_says_so_when_there_are_none(url: str) -> None:
    store(url, claims=(claim_of("sync", SLOT),))
    assert "nothing is known of a job 'sync' in namespace 'app'" in fails(
        1, "runs", "sync", "--url", url, "--namespace", "app"
    )
    tell_of(url, "other")
    assert out("runs", "other", "--url", url) == [f"'other' has no runs in namespace 'tenure' of {url}"]


def test_a_hole_is_looked_for_below_every_attempt_that_is_known() -> None:
    running = ActiveRun("sync", SLOT, 3, 3, "host-3", True, 100, SLOT)
    rows = read_rows([result_of(SLOT, 1)], [running], 20)
    assert [(row.attempt, row.status) for row in rows] == [(3, "running"), (2, "crashed"), (1, "success")]


def test_a_run_that_ended_while_it_was_looked_for_is_shown_as_ended() -> None:
    was_running = ActiveRun("sync", SLOT, 1, 1, "host-1", True, 100, SLOT)
    assert [row.status for row in read_rows([result_of(SLOT, 1)], [was_running], 20)] == ["success"]


def test_what_the_limit_cut_off_is_no_hole() -> None:
    cut = [result_of(SLOT + 1_000, 1), result_of(SLOT, 3)]
    assert [(row.slot, row.attempt) for row in read_rows(cut, [], 2)] == [(SLOT + 1_000, 1), (SLOT, 3)]
    inside = [result_of(SLOT, 4), result_of(SLOT, 2)]
    assert [row.attempt for row in read_rows(inside, [], 2)] == [4, 3]
    whole = [result_of(SLOT, 3)]
    assert [row.status for row in read_rows(whole, [], 2)] == ["success", "crashed"]


def test_a_run_that_was_not_started_has_no_holes() -> None:
    assert [row.status for row in read_rows([result_of(SLOT, 0, "overlap")], [], 20)] == ["overlap"]


def test_the_last_line_of_no_error_is_empty() -> None:
    assert [last_line(None), last_line(""), last_line("one\n\n")] == ["", "", "one"]


# active


def test_active_shows_holders_and_what_is_left_of_their_leases(url: str) -> None:
    store(url, claims=(claim_of("sync", SLOT), claim_of("report", SLOT), claim_of("other", SLOT)))
    header, *rows = (re.split(r"\s{2,}", line) for line in out("active", "--url", url, "sync", "report"))
    assert header == ["job", "slot, UTC", "attempt", "fence", "holder", "started, UTC", "lease", "left"]
    assert [row[0] for row in rows] == ["report", "sync"]
    assert all(row[4] == "host-1" and row[6] == "live" and 0 < float(row[7].split()[0]) <= 60 for row in rows)


def test_active_tells_a_lease_that_is_over_from_a_live_one(url: str) -> None:
    async def release() -> None:
        async with connect(url) as backend:
            assert await backend.release("sync", SLOT, f"sync{SLOT}")

    store(url, claims=(claim_of("sync", SLOT),))
    asyncio.run(release())
    (run,) = json.loads(call("active", "sync", "--url", url, "--json").stdout)["runs"]
    assert (run["live"], run["lease_left_ms"], run["holder"]) == (False, 0, "host-1")
    assert out("active", "sync", "--url", url)[1].endswith("lease over")


def test_active_says_so_when_there_are_none(url: str) -> None:
    tell_of(url, "sync")
    assert out("active", "sync", "--url", url) == [f"no unfinished runs in namespace 'tenure' of {url}"]


# migrate


class Migrating(MemoryBackend):
    """A backend whose store has a schema of two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.missing = ["tables", "functions"]

    async def migrate(self):
        done, self.missing = self.missing, []
        return done

    def migration_sql(self):
        return "create table jobs ();"


@pytest.fixture
def migrating(monkeypatch) -> Migrating:
    backend = Migrating()
    monkeypatch.setattr("tenure.cli.migrate.connect", lambda _: backend)
    return backend


def test_migrate_says_what_it_did_and_a_second_time_that_there_was_nothing(migrating) -> None:
    assert out("migrate", "some://where") == ["done: tables", "done: functions"]
    assert out("migrate", TENURE_URL="some://where") == ["the schema is up to date"]
    assert out("migrate", "--url", "some://where") == ["the schema is up to date"]


def test_migrate_prints_sql_and_changes_nothing(migrating) -> None:
    assert out("migrate", "some://where", "--sql") == ["create table jobs ();"]
    assert migrating.missing == ["tables", "functions"]


@pytest.mark.parametrize("more", [(), ("--sql",)])
def test_migrate_of_a_store_without_a_schema_says_that_there_is_none(url: str, more: tuple[str, ...]) -> None:
    assert "has no schema to migrate; what it needs is made on entering" in fails(1, "migrate", url, *more)


# Stores that cannot be read


class ClaimOnly:
    """A backend of the lower level, as third parties write them."""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def claim(self, job, slot, token):
        return True

    async def save_result(self, job, result):
        pass


def test_a_store_that_cannot_be_used_is_a_failure(tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("not a database" * 100)
    assert "not a SQLite database" in fails(1, "runs", "sync", "--url", f"sqlite:///{tmp_path}/notes.txt")


@pytest.mark.parametrize("command", ["runs", "active"])
def test_a_store_that_is_not_there_is_not_made(command: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = fails(1, command, "sync", "--url", "sqlite:///typo.db")
    assert said.startswith(f"tenure: there is no store at {tmp_path}/typo.db; look at the path")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["runs", "active"])
def test_a_database_of_others_is_not_changed(command: str, tmp_path) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table theirs (something)")
    before = path.read_bytes()
    assert "none of tenure's tables" in fails(1, command, "sync", "--url", f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_reading_leaves_the_file_as_it_was(url: str, tmp_path) -> None:
    store(url, result_of(SLOT, 1), claims=(claim_of("sync", SLOT),))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    out("runs", "sync", "--url", url)
    out("active", "sync", "--url", url)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_store_of_this_process_alone_is_refused() -> None:
    assert "not shared between processes" in fails(1, "runs", "sync", "--url", "memory://")


def test_a_claim_only_store_is_refused(monkeypatch) -> None:
    monkeypatch.setattr("tenure.cli.store.connect_existing", lambda *_, **__: ClaimOnly())
    assert "keeps no history" in fails(1, "runs", "sync", "--url", "files://somewhere")


@pytest.mark.parametrize("command", ["runs", "active"])
def test_no_message_repeats_a_secret_of_the_url(command: str, monkeypatch) -> None:
    secret = "files://user:hunter2@host/place?key=hunter2"
    assert "hunter2" not in fails(1, command, "sync", "--url", secret)
    monkeypatch.setattr("tenure.cli.store.connect_existing", lambda *_, **__: ClaimOnly())
    assert "hunter2" not in fails(1, command, "sync", "--url", secret)
    monkeypatch.setattr("tenure.cli.store.connect_existing", lambda *_, **__: SharedMemoryBackend())
    line = fails(1, command, "sync", "--url", secret)
    assert "hunter2" not in line
    assert "host/place" in line


class SharedMemoryBackend(MemoryBackend):
    """Says what a server's backend says."""

    @property
    def capabilities(self):
        from tenure.model import Capabilities

        return Capabilities(shared=True)


# run


@pytest.fixture
def app(tmp_path, monkeypatch):
    """Writes a module of a name of its own, and gives that name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"app_{tmp_path.name.replace('-', '_')}"

    def write(code: str) -> str:
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
        return name

    yield write
    sys.modules.pop(name, None)


SCHEDULER = 'from tenure import Scheduler\nscheduler = Scheduler("memory://")\n'


@pytest.mark.parametrize(
    ("code", "attribute", "says"),
    [
        (SCHEDULER, "schedular", "it has {}:scheduler"),
        ("schedule = 1\n", "scheduler", "did you mean {}:schedule?"),
        ("", "scheduler", "no name in it is a Scheduler"),
        ("scheduler = 1\n", "scheduler", "{}:scheduler is a int, neither a Scheduler nor a function"),
        ("class scheduler: pass\n", "scheduler", "is the class scheduler"),
        ("def scheduler(settings): ...\n", "scheduler", "a function without arguments"),
        ("def make(): ...\n", "make", "{}:make() gave a NoneType; it must give a Scheduler"),
        ("async def make(): ...\n", "make", "is an async function"),
        ("def make():\n    raise RuntimeError('no\\nmoney')\n", "make", "raised RuntimeError: no money ("),
        ("import no_such_module\n", "scheduler", "No module named 'no_such_module'"),
        ("scheduler = \n", "scheduler", ".py:1)"),
    ],
)
def test_a_scheduler_that_is_not_there_is_a_failure(app, code: str, attribute: str, says: str) -> None:
    name = app(code)
    assert says.format(name) in fails(1, "run", f"{name}:{attribute}")


def test_a_module_that_is_not_there_is_a_failure_that_names_the_directory(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"there is no module 'no_such_app' in {tmp_path}" in fails(1, "run", "no_such_app:scheduler")


@pytest.mark.parametrize("code", ["import missing\n", "from missing.part import thing\n", "from os import missing\n"])
def test_an_import_that_fails_is_one_line_that_names_the_place(app, code: str) -> None:
    name = app(code)
    said = fails(1, "run", f"{name}:scheduler")
    assert "missing" in said
    assert f"{name}.py:1); --log-level debug" in said


def test_an_application_s_error_is_shown_with_its_place_and_on_demand_with_its_traceback(app) -> None:
    name = app("\n\nraise RuntimeError('no money')\n")
    assert f"{name}.py:3); --log-level debug" in fails(1, "run", f"{name}:scheduler")
    lines = call("run", f"{name}:scheduler", "--log-level", "debug").stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "RuntimeError" in lines[-1]


# On a terminal


def test_a_terminal_gets_colours_unless_they_are_unwanted(url: str) -> None:
    store(url, result_of(SLOT, 1))
    plain = out("runs", "sync", "--url", url)
    coloured = "\n".join(out("runs", "sync", "--url", url, FORCE_COLOR="1", TERM="xterm", COLUMNS="200"))
    unwanted = "\n".join(out("runs", "sync", "--url", url, FORCE_COLOR="1", TERM="xterm", COLUMNS="200", NO_COLOR="1"))
    assert "\x1b[32msuccess" in coloured
    assert "success" in unwanted
    assert "\x1b[32m" not in unwanted
    assert not any("\x1b" in line for line in plain)


# demo


def test_the_demo_names_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr("tenure.registry.entry_points", lambda **_: ())
    assert fails(1, "demo") == (
        "tenure: scheme 'sqlite': its backend is not installed; run: pip install \"tenure[sqlite]\" "
        "(from a checkout: pip install ./backends/sqlite)"
    )
