"""``tenure web``: the page in a real browser, over real runs in real stores, and who may ask it for what."""

import asyncio
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from urllib.parse import quote, urlsplit

import pytest
from tenure.registry import connect

from ..backends.servers_redis import serving
from ..browser import chromium
from .conftest import PATIENCE_S, wait_until

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

COMMAND = (sys.executable, "-c", "import sys; from tenure.cli import main; sys.exit(main())")
APP = """
import asyncio, os
from pathlib import Path
from tenure import Scheduler

# Long leases, so that nothing is lost on a machine that stalls.
options = {"instance": os.environ.get("NAME"), "grace": "100ms", "lease": "1m", "jitter": "0s"}
first, scheduler = (Scheduler(os.environ["URL"], **options) for _ in range(2))

async def taken(ctx):
    while not Path("go").exists():
        await asyncio.sleep(0.05)

for one in (first, scheduler):
    one.every("is taken over", "10m", taken, lease="2s", catch_up="10m")

@scheduler.every("works", "1s")
async def works(ctx):
    await asyncio.sleep(0.05)

@scheduler.every("fails", "1s", max_late="1h")
async def fails(ctx):
    raise RuntimeError("<img src=x onerror=alert(1)> says no")

@scheduler.every("is overdue", "1s", max_late="0s", lease="1s")
async def overdue(ctx):
    raise RuntimeError("never works")

@scheduler.every("is held", "1s", heartbeat="1s", max_late="1h")
async def held(ctx):
    await asyncio.sleep(600)

@scheduler.cron("sleeps", "0 9 1 1 *", tz="Europe/Prague")
async def sleeps(ctx):
    Path("woken").touch()
"""


class Household:
    """Processes in one directory, on one store; none is left behind."""

    def __init__(self, directory, url):
        self.directory, self.url = directory, url
        self._ending = ExitStack()
        (directory / "app.py").write_text(APP)

    def start(self, *arguments, name=None):
        process = subprocess.Popen(
            (*COMMAND, *arguments),
            cwd=self.directory,
            env={"URL": self.url, "PATH": "", **({"NAME": name} if name else {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._ending.callback(_end, process)
        return process

    def serve(self, *arguments):
        """A process that serves the page, and the page's address."""
        process = self.start("web", "--port", "0", *arguments)
        line = process.stdout.readline()
        found = re.match(r"(http://\S+/) ", line)
        assert found, line + process.stderr.read()
        return process, found[1]

    def ask(self, call):
        async def asking():
            async with connect(self.url) as backend:
                return await call(backend)

        return asyncio.run(asking())

    def holder(self, job):
        runs = self.ask(lambda backend: backend.active([job])).runs
        return runs[-1] if runs else None

    def is_known(self, job):
        """Whether there is a card of the job, and a record."""

        async def both(backend):
            return await backend.results(job) and job in {card.job for card in await backend.cards()}

        return self.ask(both)

    def close(self):
        self._ending.close()


def _end(process):
    process.kill()
    process.communicate()


def _live_through_a_takeover(household):
    """An instance is killed in the middle of a run, and another takes it over."""
    one = household.start("run", "app:first", name="one")
    run = wait_until(lambda: household.holder("is taken over"), "a run is held")
    one.kill()
    household.start("run", "app:scheduler", name="two")

    def taken():
        now = household.holder("is taken over")
        return now and now.attempt > 1

    wait_until(taken, "the run is taken over")
    (household.directory / "go").touch()

    def ended():
        results = household.ask(lambda backend: backend.results("is taken over"))
        return {one.status for one in results if one.slot == run.slot} >= {"crashed", "success"}

    wait_until(ended, "it ends, and its attempts are recorded")
    return run.slot


@pytest.fixture(scope="module")
def household(tmp_path_factory):
    directory = tmp_path_factory.mktemp("household")
    with closing(Household(directory, f"sqlite:///{directory}/jobs.db")) as household:
        household.taken_slot = _live_through_a_takeover(household)
        yield household


@pytest.fixture(scope="module")
def page(household):
    return household.serve(household.url)[1]


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile"), longest_s=240) as opened:
        yield opened


def until(tab, expression, timeout_s=PATIENCE_S):
    """Wait until the page says so; nothing went wrong in it meanwhile."""
    found = wait_until(
        lambda: tab.ask(expression), lambda: f"{expression}; {tab.ask('document.body.innerText')}", timeout_s
    )
    assert tab.errors() == []
    return found


@contextmanager
def visiting(tab):
    """The page is left before its server ends, which would be an error in it."""
    try:
        yield
    finally:
        tab.open("about:blank", 1280)


def look(tab, page, width=1280, scheme="light"):
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    tab.open(page, width)
    until(tab, f"{row('works')}?.querySelector('.cell') != null")


def row(job):
    return f"document.querySelector('.row[data-job={json.dumps(job)}]')"


def text(selector):
    return f"(document.querySelector({json.dumps(selector)})?.innerText ?? '')"


def click(tab, expression):
    """A real click, where the element is seen."""
    box = tab.ask(
        f"(e => {{ e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();"
        f"return {{x: r.x + r.width / 2, y: r.y + r.height / 2}} }})({expression})"
    )
    for kind in ("mousePressed", "mouseReleased"):
        tab.call("Input.dispatchMouseEvent", type=kind, x=box["x"], y=box["y"], button="left", clickCount=1)


def press(tab, key, text=""):
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text if kind == "keyDown" else "")


# What is seen


@pytest.mark.parametrize("width", [320, 390, 900, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_errors_asks_only_its_own_server_and_never_scrolls_sideways(tab, page, width, scheme):
    look(tab, page, width, scheme)
    asked = [event["params"]["request"]["url"] for event in tab.named("Network.requestWillBeSent")]
    assert asked
    assert {urlsplit(url).netloc for url in asked} == {urlsplit(page).netloc}
    assert tab.ask("document.documentElement.scrollWidth") <= width
    click(tab, f"{row('fails')}.querySelector('.cell')")
    until(tab, f"{text('#story pre')}.includes('says no')")
    assert tab.ask("document.documentElement.scrollWidth") <= width
    assert tab.ask("(e => e.scrollTop + e.clientHeight >= e.scrollHeight - 1)(document.querySelector('#story pre'))")


def test_it_shows_each_job_with_its_schedule_in_words_and_when_it_is_due(tab, page):
    look(tab, page)
    assert tab.ask("[...document.querySelectorAll('.job b')].map(e => e.innerText).sort()") == [
        "fails",
        "is held",
        "is overdue",
        "is taken over",
        "sleeps",
        "works",
    ]
    until(tab, f"{row('works')}.innerText.includes('every second')")
    until(tab, f"/due in \\d+ (d|h|min)/.test({row('sleeps')}.innerText)")


def test_what_is_overdue_is_told_first_and_in_red(tab, page):
    look(tab, page)
    until(tab, f"{text('#verdict')} == '1 of 6 jobs is overdue'")
    assert tab.ask("document.title") == "(1) tenure"
    assert tab.ask("document.querySelector('.row').dataset.job") == "is overdue"
    assert tab.ask(f"{row('is overdue')}.classList.contains('overdue')")
    assert re.search(r"overdue \d+", tab.ask(f"{row('is overdue')}.innerText"))
    red = tab.ask(f"getComputedStyle({row('is overdue')}.querySelector('.now b')).color")
    assert red != tab.ask(f"getComputedStyle({row('works')}.querySelector('.now b')).color")
    assert not tab.ask(f"{row('fails')}.classList.contains('overdue')")


def test_new_slots_come_without_a_reload(tab, page):
    look(tab, page)
    newest = f"Number({row('works')}.querySelector('.strip').lastElementChild.dataset.slot)"
    seen = tab.ask(newest)
    until(tab, f"{newest} > {seen}")


def test_who_holds_a_run_is_told_with_a_lease_that_counts_down_and_is_renewed(tab, page):
    look(tab, page)
    item = "[...document.querySelectorAll('.run')].find(e => e.dataset.job == 'is held')"
    until(tab, f"{item} != undefined")
    left = f"parseFloat({item}.querySelector('.left').innerText)"
    seen = [tab.ask(left)]

    def down_and_up():
        seen.append(tab.ask(left))
        changes = [after - before for before, after in pairwise(seen)]
        return any(change < 0 for change in changes) and any(change > 0 for change in changes)

    wait_until(down_and_up, lambda: f"it goes down and up: {seen}")
    assert "two" in tab.ask(f"{item}.innerText")


def test_a_slot_that_nobody_starts_is_told(tab, tmp_path):
    with closing(Household(tmp_path, f"sqlite:///{tmp_path}/jobs.db")) as household, visiting(tab):
        instance = household.start("run", "app:scheduler")
        wait_until(lambda: household.is_known("works"), "a run is recorded")
        instance.kill()
        look(tab, household.serve(household.url)[1])
        until(tab, f"/due for \\d+ s/.test({row('works')}.innerText)")


# The story of a slot


def test_a_link_leads_to_a_story(tab, page, household):
    look(tab, page)
    tab.ask(f"location.hash = 'job={quote('works')}'")
    until(tab, f"{text('#story h2')} == 'works'")
    tab.open("about:blank", 1280)  # else only the link's end would change, and nothing be loaded
    look(tab, f"{page}#job={quote('is taken over')}&slot={household.taken_slot}")
    until(tab, f"{text('#story h2')} == 'is taken over'")


def test_the_story_of_a_takeover_has_its_attempts_on_one_axis_and_in_words(tab, page, household):
    look(tab, page)
    click(tab, f"{row('is taken over')}.querySelector('[data-slot=\"{household.taken_slot}\"]')")
    until(tab, "document.querySelectorAll('.chart .span').length >= 2")
    names = tab.ask("[...document.querySelectorAll('.span')].map(e => e.className)")
    assert (names[0], names[-1]) == ("span crashed", "span success")
    places = tab.ask("[...document.querySelectorAll('.span')].map(e => e.getBoundingClientRect().toJSON())")
    assert places[0]["left"] < places[-1]["left"]
    told = r"claimed by one: attempt 1.*its lease was over.*taken over by two: attempt 2.*success"
    assert re.search(told, tab.ask(text(".lines")), re.DOTALL)
    assert tab.ask(text(".badge")) == "success"


def test_a_click_on_a_slot_tells_its_error_as_text(tab, page):
    look(tab, page)
    click(tab, f"{row('fails')}.querySelector('.cell')")
    until(tab, f"{text('#story pre')}.includes('<img src=x onerror=alert(1)> says no')")
    assert tab.ask("document.querySelectorAll('img').length") == 0
    assert tab.ask(text("#story h2")) == "fails"
    assert tab.ask(text(".badge")) == "failed"
    click(tab, "document.querySelector('.close')")
    until(tab, "document.querySelector('#story').hidden")


def test_a_click_on_a_job_tells_what_it_is_and_all_its_slots(tab, page):
    look(tab, page)
    click(tab, f"{row('is taken over')}.querySelector('.job')")
    until(tab, f"{text('.facts')}.includes('every 10 minutes')")
    assert "at most 3" in tab.ask(text(".facts"))
    kept = tab.ask("document.querySelectorAll('#story .cell').length")
    assert kept >= 1
    click(tab, "document.querySelector('#story .cell')")
    until(tab, "document.querySelector('#story .lines') != null")


def test_the_slots_of_an_open_job_go_on_and_keep_the_focus(tab, page):
    look(tab, page)
    click(tab, f"{row('works')}.querySelector('.job')")
    until(tab, "document.querySelector('.kept .cell') != null")
    tab.ask("document.querySelector('.kept').lastElementChild.focus()")
    seen = tab.ask("document.activeElement.dataset.slot")
    until(tab, f"Number(document.querySelector('.kept').lastElementChild.dataset.slot) > {seen}")
    assert tab.ask("document.activeElement.dataset.slot") == seen


def test_a_click_on_a_holder_tells_the_story_of_what_it_holds(tab, page):
    look(tab, page)
    until(tab, "document.querySelector('.run[data-job=\"is held\"]') != null")
    click(tab, "document.querySelector('.run[data-job=\"is held\"]')")
    until(tab, f"{text('#story .lines')}.includes('runs still')")


def test_the_last_hour_names_failures_and_takeovers(tab, page):
    look(tab, page)
    until(tab, f"/fails\\s+failed/.test({text('#happenings')})")
    until(tab, f"/is taken over\\s+taken over/.test({text('#happenings')})")


# Keys


def test_slots_are_walked_through_by_arrow_keys_and_escape_leads_back(tab, page):
    look(tab, page)
    tab.ask(f"{cell_at('fails', -3)}.focus()")
    here = tab.ask("document.activeElement.dataset.slot")
    press(tab, "ArrowLeft")
    there = tab.ask("document.activeElement.dataset.slot")
    assert int(there) < int(here)
    press(tab, "Enter", "\r")
    until(tab, "!document.querySelector('#story').hidden")
    press(tab, "ArrowRight")
    until(tab, f"location.hash.endsWith('slot={here}')")  # the story follows
    press(tab, "Escape")
    until(tab, "document.querySelector('#story').hidden")
    assert tab.ask("document.activeElement.dataset.slot") == here
    press(tab, "ArrowDown")
    assert tab.ask("document.activeElement.closest('.row').dataset.job") != "fails"
    assert tab.ask(
        "document.querySelectorAll('.strip [tabindex=\"0\"]').length <= document.querySelectorAll('.row').length"
    )


def cell_at(job, index):
    return f"[...{row(job)}.querySelectorAll('.cell')].at({index})"


def test_a_focus_outlives_the_slots_that_come(tab, page):
    look(tab, page)
    tab.ask(f"{cell_at('works', -1)}.focus()")
    seen = tab.ask("document.activeElement.dataset.slot")
    until(tab, f"Number({cell_at('works', -1)}.dataset.slot) > {seen}")
    assert tab.ask("document.activeElement.dataset.slot") == seen


def test_jobs_are_filtered_by_words_and_by_trouble(tab, page):
    look(tab, page)
    shown = "[...document.querySelectorAll('.row')].map(e => e.dataset.job).sort()"
    press(tab, "/", "/")
    tab.call("Input.insertText", text="over is")
    assert tab.ask(shown) == ["is overdue", "is taken over"]
    tab.call("Input.insertText", text=" nothing")
    assert tab.ask(shown) == []
    until(tab, f"{text('#nothing')} == 'No job fits.'")
    tab.ask(
        "document.querySelector('#filter').reset(); document.querySelector('#filter').dispatchEvent(new Event('input'))"
    )
    click(tab, "document.querySelector('[value=trouble] + span')")
    troubled = set(tab.ask(shown))
    assert troubled >= {"fails", "is overdue"}
    assert not troubled & {"works", "sleeps"}
    click(tab, "document.querySelector('[value=held] + span')")
    assert "is held" in tab.ask(shown)


def test_times_are_utc_or_the_browser_s_own(tab, page):
    tab.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kathmandu")
    look(tab, page)
    minute = "Number(document.querySelector('#zone').innerText.match(/:(..):/)[1])"
    utc = tab.ask(minute)
    assert tab.ask(text("#zone")).endswith("UTC")
    click(tab, "document.querySelector('#zone')")
    until(tab, f"{text('#zone')}.endsWith('local')")
    assert (tab.ask(minute) - utc) % 60 in (45, 46)  # it is 5:45 ahead
    look(tab, page)
    assert tab.ask(text("#zone")).endswith("local")  # as it was left
    click(tab, "document.querySelector('#zone')")


# On Redis, which goes away


def test_on_redis_it_shows_the_same_and_tells_when_redis_is_away_and_back(tab, tmp_path):
    with (
        serving("--appendonly", "yes") as server,
        closing(Household(tmp_path, f"{server.url}/0")) as household,
        visiting(tab),
    ):
        slot = _live_through_a_takeover(household)
        look(tab, f"{household.serve(household.url, '--job', 'unknown')[1]}#job=is+taken+over&slot={slot}")
        until(tab, "document.querySelectorAll('.chart .span').length >= 2")
        until(tab, f"{text('#verdict')} == '1 of 7 jobs is overdue'")
        until(tab, f"{row('fails')}.innerText.includes('failed')")
        until(tab, f"{row('unknown')}.innerText.includes('no instance has told of it')")
        assert tab.ask("document.querySelector('#trouble').hidden")
        server.kill()
        until(tab, f"{text('#trouble')}.includes('The store has been away since')")
        server.start()
        until(tab, "document.querySelector('#trouble').hidden")


def test_a_store_that_is_away_from_the_start_is_told_without_its_password(tab, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        away = f"redis://somebody:secret@127.0.0.1:{nobody.getsockname()[1]}/0?timeout=1s"
    with closing(Household(tmp_path, away)) as household, visiting(tab):
        process, page = household.serve(away)
        tab.open(page, 1280)
        until(tab, f"{text('#trouble')}.includes('The store has been away since')")
        seen = tab.ask("document.documentElement.outerHTML") + get(page, "/events", limit=2_000)[2]
        tab.open("about:blank", 1280)
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=PATIENCE_S)
        assert "the page tells when it is there" in error
        assert "secret" not in seen + out + error


MOUNTED = """
import os, socket, uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from tenure.web import page

app = Starlette(routes=[Mount("/below/here", page(os.environ["URL"]))])
listener = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listener.getsockname()[1]}/below/here/ ", flush=True)
config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
uvicorn.Server(config).run(sockets=[listener])
"""


def test_it_can_be_a_part_of_an_application(tab, household):
    process = subprocess.Popen(
        (sys.executable, "-c", MOUNTED), env={"URL": household.url}, stdout=subprocess.PIPE, text=True
    )
    try:
        with visiting(tab):
            page = process.stdout.readline().strip()
            look(tab, page)
            click(tab, f"{row('fails')}.querySelector('.cell')")
            until(tab, f"{text('#story pre')}.includes('says no')")
        assert get(page, urlsplit(page).path, Host="jobs.example")[0] == 200  # that is up to the application
    finally:
        _end(process)


# Who may ask for what


def get(page, path="/", method="GET", limit=None, **headers):
    place = urlsplit(page)
    with closing(http.client.HTTPConnection(place.hostname, place.port, timeout=PATIENCE_S)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read1(limit) if limit else answer.read()
        return answer.status, answer.headers, body.decode()


def test_a_name_that_is_not_ours_is_refused_so_that_dns_cannot_be_rebound_to_it(page):
    port = urlsplit(page).port
    for ours in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "192.168.1.7"):
        assert get(page, Host=ours)[0] == 200, ours
    for strange in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", ""):
        for path in ("/", "/events", "/static/main.js", "/story?job=works&slot=0"):
            assert get(page, path, Host=strange)[0] == 421, (strange, path)


def test_a_name_that_is_allowed_is_served(household):
    _, page = household.serve(household.url, "--allow-host", "Jobs.example")
    assert get(page, Host="jobs.example:80")[0] == 200
    assert get(page, Host="other.example")[0] == 421


def test_each_answer_forbids_what_a_page_of_others_could_do(page):
    for path in ("/", "/static/main.js", "/story?job=works&slot=0", "/nothing", "/story?job="):
        _, headers, _ = get(page, path)
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_the_page_needs_nothing_inline(page):
    _, _, markup = get(page)
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|javascript:", markup)


def test_a_bad_question_is_an_error_that_says_so(page):
    for path in ("/story?job=works&slot=soon", "/story?job=works", "/story?slot=0", "/slots?job=", "/slots?job=a%00b"):
        status, _, body = get(page, path)
        assert status == 400, path
        assert json.loads(body)["error"]


def test_a_page_that_may_only_read_runs_nothing(page):
    status, _, body = get(page, "/trigger?job=works", "POST", Origin=page.rstrip("/"))
    assert status == 403
    assert "--allow-trigger" in json.loads(body)["error"]
    assert get(page, "/trigger?job=works")[0] == 405


def test_a_job_is_run_by_two_clicks_where_that_is_allowed_and_by_nobody_else(tab, tmp_path):
    with closing(Household(tmp_path, f"sqlite:///{tmp_path}/jobs.db")) as household, visiting(tab):
        process, page = household.serve("app:scheduler", "--allow-trigger")
        origin = page.rstrip("/")
        token = json.loads(get(page, "/events", limit=65_536)[2].removeprefix("data: "))["parts"]["about"]["token"]
        right = {"Origin": origin, "x-tenure-token": token}
        for wrong in (
            {},
            {"Origin": origin},
            {"x-tenure-token": token},
            {**right, "Origin": "http://evil.example"},
            {**right, "Origin": "null"},
            {**right, "x-tenure-token": "x"},
        ):
            assert get(page, "/trigger?job=sleeps", "POST", **wrong)[0] == 403, wrong
        assert get(page, "/trigger?job=nothing", "POST", **right)[0] == 404
        assert not (tmp_path / "woken").exists()

        look(tab, page)
        click(tab, f"{row('sleeps')}.querySelector('.job')")
        until(tab, "document.querySelector('.trigger') != null")
        click(tab, "document.querySelector('.trigger')")
        until(tab, "document.querySelector('.trigger.yes') != null")
        assert not (tmp_path / "woken").exists()
        click(tab, "document.querySelector('.trigger.yes')")
        until(tab, f"{text('.said')}.startsWith('runs, slot')")
        wait_until((tmp_path / "woken").exists, "the job runs")
        until(tab, f"{row('sleeps')}.querySelector('.cell') != null")
        tab.open("about:blank", 1280)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


# The command


def fails(household, *arguments, code=1):
    process = household.start("web", *arguments)
    out, error = process.communicate(timeout=PATIENCE_S)
    assert (out, process.returncode) == ("", code), error
    (line,) = error.splitlines()
    return line


def test_what_cannot_be_shown_is_one_line_that_names_the_remedy(household, tmp_path):
    assert "no installed backend serves it" in fails(household, "nosuch://x")
    assert "there is no store" in fails(household, f"sqlite:///{tmp_path}/typo.db")
    assert "only its own can read it" in fails(household, "memory://")
    assert "keeps no history" in fails(household, f"dir://{tmp_path}")
    assert "app:scheduler" in fails(household, household.url, "--allow-trigger", code=2)
    assert "'redis:/x' is not a URL; write \"redis://x\"" in fails(household, "redis:/x", code=2)
    assert f'write "sqlite:///{tmp_path}/typo.db"' in fails(household, f"{tmp_path}/typo.db", code=2)


def test_a_port_that_is_taken_is_told(household):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "choose --port" in fails(household, household.url, "--port", str(taken.getsockname()[1]))


def test_whoever_opens_it_to_others_is_warned(household):
    process, page = household.serve(household.url, "--host", "0.0.0.0")
    assert get(page.replace("0.0.0.0", "127.0.0.1"))[0] == 200
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=PATIENCE_S)
    assert "the page asks for no password" in error


def test_it_ends_at_once_while_somebody_looks(household):
    process, page = household.serve(household.url)
    place = urlsplit(page)
    with closing(http.client.HTTPConnection(place.hostname, place.port, timeout=PATIENCE_S)) as connection:
        connection.request("GET", "/events")
        stream = connection.getresponse()
        assert stream.readline().startswith(b"data: ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert stream.read().decode().startswith("\n")
    assert process.stderr.read() == ""
