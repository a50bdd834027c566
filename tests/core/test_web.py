"""What the page is told, and how little the store is asked for it."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("starlette")

from tenure.clock import SystemClock
from tenure.errors import BackendMisconfigured, BackendUnavailable, InvalidClaim, InvalidInput
from tenure.history import Row
from tenure.memory import MemoryBackend, MemoryStore
from tenure.model import Claim, JobCard, RunResult
from tenure.scheduler import Scheduler
from tenure.web import page, reader
from tenure.web.board import Board
from tenure.web.data import Health, health_of, job_document, known_cards, slot_documents
from tenure.web.reader import Reader

NOON = 1_796_126_400_000
SECOND = 1_000
PATIENCE_S = 20


def card(job="sync", **changes):
    facts = {
        "schedule": "every 10s",
        "words": "every 10 seconds",
        "lease_ms": 30 * SECOND,
        "overlap": "skip",
        "max_attempts": 3,
        "max_late_ms": 60 * SECOND,
        "next_slot": NOON,
        "instance": "one",
        "seen_at_ms": NOON,
    }
    return JobCard(job=job, **{**facts, **changes})


def row(slot, attempt=1, status="success", took_ms=100):
    times = (slot, slot + took_ms) if attempt else (None, None)
    return Row(slot, attempt, status, slot, "one", *times)


def result(slot, attempt=1, status="success"):
    times = (slot, slot + 100) if attempt else (None, None)
    return RunResult(slot, attempt, slot if attempt else 0, status, "one", *times)


# What it says of a job


def test_a_slot_s_attempts_come_in_order_and_then_why_it_was_given_up():
    rows = [
        row(NOON + SECOND),
        row(NOON, 2, "crashed"),
        row(NOON, 1, "crashed"),
        row(NOON, 0, "superseded"),
    ]
    newest, older = slot_documents(rows)
    assert newest == [NOON + SECOND, [[1, "success", NOON + SECOND, NOON + SECOND + 100]]]
    assert [attempt[:2] for attempt in older[1]] == [[1, "crashed"], [2, "crashed"], [0, "superseded"]]


def test_a_job_without_a_card_shows_what_its_records_tell():
    document = job_document("sync", None, [row(NOON)], health_of(None, [row(NOON)], Health()), NOON)
    assert document["success_at_ms"] == NOON + 100
    assert document["card"] is document["due_slot"] is document["overdue_at_ms"] is None


def test_the_slot_that_is_due_is_the_first_one_of_which_nothing_is_known():
    later = NOON + 3_600 * SECOND
    assert job_document("sync", card(), [row(NOON)], Health(), later)["due_slot"] == NOON + 10 * SECOND
    assert job_document("sync", card(), [], Health(), later)["due_slot"] == later + 10 * SECOND


def test_only_so_many_slots_are_sent_to_everyone():
    document = job_document("sync", card(), [row(NOON - i * SECOND) for i in range(500)], Health(), NOON)
    assert len(document["slots"]) < 100
    assert document["more"]


def test_an_overdue_job_stays_so_when_its_older_failures_are_forgotten():
    first = health_of(card(), [row(NOON, 1, "failed")], Health())
    later = health_of(card(), [row(NOON + 3_600 * SECOND, 1, "failed")], first)
    assert later == first
    assert later.overdue_at_ms is not None
    healed = health_of(card(), [row(NOON + 3_610 * SECOND)], later)
    assert healed.overdue_at_ms > later.overdue_at_ms


def test_a_job_that_nobody_tells_of_any_more_is_not_shown():
    cards = [card("here"), card("removed", seen_at_ms=NOON - 24 * 3_600 * SECOND)]
    assert known_cards(cards).keys() == {"here"}
    assert known_cards([]) == {}


# The board


def test_a_browser_is_told_only_what_it_has_not_seen():
    async def main():
        board = Board()
        board.put("a", 1)
        seen = board.revision
        board.put("b", 2)
        assert board.since(0) == {"a": 1, "b": 2}
        assert board.since(seen) == {"b": 2}
        board.put("b", 2)
        assert board.revision == seen + 1  # no news
        board.drop("b")
        assert board.since(0) == {"a": 1}

    asyncio.run(main())


def test_who_waits_is_woken_by_news_and_by_the_end():
    async def main():
        board = Board()
        waiting = asyncio.create_task(board.later(board.revision, PATIENCE_S))
        await asyncio.sleep(0)
        board.put("a", 1)
        await asyncio.wait_for(waiting, PATIENCE_S)
        waiting = asyncio.create_task(board.later(board.revision, PATIENCE_S))
        await asyncio.sleep(0)
        board.close()
        await asyncio.wait_for(waiting, PATIENCE_S)
        await board.later(board.revision, PATIENCE_S)  # at once

    asyncio.run(main())


# The reader


class Counting(MemoryBackend):
    """Counts what it is asked; ``away`` makes it fail."""

    def __init__(self, store):
        super().__init__(store)
        self.asked = Counter()
        self.away = False
        self.inside = 0

    async def __aenter__(self):
        self._fail_if_away()
        self.inside += 1
        return await super().__aenter__()

    async def __aexit__(self, *exc):
        self.inside -= 1
        await super().__aexit__(*exc)

    def _fail_if_away(self):
        if self.away:
            raise BackendUnavailable("it is away")

    async def active(self, jobs):
        self._fail_if_away()
        self.asked["active"] += 1
        return await super().active(jobs)

    async def results(self, job, *, limit=20):
        self.asked[f"results {job}"] += 1
        return await super().results(job, limit=limit)


@pytest.fixture
def quick(monkeypatch):
    """Rounds and pauses without waits."""
    monkeypatch.setattr(reader, "_ROUND_S", 0.005)
    monkeypatch.setattr(reader, "_FIRST_PAUSE_S", 0.005)
    monkeypatch.setattr(reader, "_LINGER_S", 0.02)


@asynccontextmanager
async def reading(*cards, jobs=()):
    """A reader over a store in which there are cards."""
    backend = Counting(MemoryStore())
    async with MemoryBackend(backend.store) as writer:
        await writer.save_cards(cards)
        eyes = Reader(lambda: backend, jobs)
        try:
            yield eyes, backend, writer
        finally:
            await eyes.aclose()
            assert backend.inside == 0


async def until(told, description):
    async with asyncio.timeout(PATIENCE_S):
        while not told():
            await asyncio.sleep(0.002)
    assert told(), description


def now_ms():
    return SystemClock().wall_ms()


def yearly(job, **changes):
    """A job that is not due in this test."""
    return card(job, schedule="cron 0 9 1 1 * UTC", next_slot=None, seen_at_ms=now_ms(), **changes)


def test_one_reader_asks_the_store_however_many_look(quick):
    async def main():
        async with (
            reading(yearly("a"), yearly("b"), jobs=["named"]) as (eyes, backend, _),
            eyes.watched() as board,
            eyes.watched(),
            eyes.watched(),
        ):
            await until(lambda: backend.asked["active"] > 20, "some rounds")
            assert board.since(0)["names"] == ["a", "b", "named"]
            assert backend.inside == 1
            for job in ("a", "b", "named"):  # once a round at most
                assert 0 < backend.asked[f"results {job}"] <= backend.asked["active"]

    asyncio.run(main())


def test_nobody_asks_when_nobody_looks_and_all_is_there_again_for_who_comes_back(quick):
    async def main():
        async with reading(yearly("a")) as (eyes, backend, _):
            assert backend.asked["active"] == backend.inside == 0
            async with eyes.watched() as board:
                await until(lambda: "job a" in board.since(0), "a first round")
            await until(lambda: backend.inside == 0, "the store is left")
            asked = backend.asked["active"]
            assert board.since(0) == {}  # nothing stale is shown
            async with eyes.watched() as board:
                await until(lambda: "job a" in board.since(0), "another round")
            assert backend.asked["active"] > asked

    asyncio.run(main())


def test_of_many_quiet_jobs_few_are_read_in_a_round_and_all_in_the_end(quick):
    async def main():
        names = [f"job{number:03d}" for number in range(300)]
        async with reading(*map(yearly, names)) as (eyes, backend, _), eyes.watched():
            await until(lambda: all(backend.asked[f"results {name}"] for name in names), "each was read")
            rounds, before = backend.asked["active"], backend.asked.total()
            await until(lambda: backend.asked["active"] >= rounds + 10, "more rounds")
            more = backend.asked.total() - before
            assert more <= 15 * (backend.asked["active"] - rounds + 1)
            await until(lambda: all(backend.asked[f"results {name}"] > 1 for name in names), "each was read again")

    asyncio.run(main())


def test_a_run_that_begins_and_ends_is_told_at_once(quick):
    async def main():
        async with (
            reading(*(yearly(f"job{number}") for number in range(100))) as (eyes, backend, writer),
            eyes.watched() as board,
        ):
            await until(lambda: board.since(0).get("held") == [], "a first round")
            slot = now_ms()
            claim = Claim(
                job="job7",
                slot=slot,
                token="t",
                instance="one",
                lease_ms=60 * SECOND,
                mode="manual",
                overlap="skip",
                max_attempts=3,
                max_late_ms=None,
            )
            assert (await writer.claim(claim)).outcome == "won"
            await until(lambda: board.since(0)["held"], "it is held")
            (held,) = board.since(0)["held"]
            assert (held["job"], held["slot"], held["holder"], held["live"]) == ("job7", slot, "one", True)
            assert 0 < held["expires_at_ms"] - now_ms() <= 60 * SECOND
            await writer.finish("job7", slot, "t", "success")
            await until(lambda: not board.since(0)["held"], "it is held no more")
            rounds = backend.asked["active"]
            await writer.save_result("job7", result(slot))  # a moment later, as an instance does it
            ended = [[slot, [[1, "success", slot, slot + 100]]]]
            await until(lambda: board.since(0)["job job7"]["slots"] == ended, "its record is shown")
            assert backend.asked["active"] - rounds < 5

    asyncio.run(main())


def test_a_job_that_is_removed_leaves_the_board(quick, monkeypatch):
    monkeypatch.setattr("tenure.web.rounds._CARDS_MS", 0)

    async def main():
        async with reading(yearly("stays"), yearly("goes")) as (eyes, backend, _), eyes.watched() as board:
            await until(lambda: "job goes" in board.since(0), "it is there")
            del backend.store.cards["tenure", "goes"]
            await until(lambda: board.since(0)["names"] == ["stays"], "it is gone")
            assert "job goes" not in board.since(0)

    asyncio.run(main())


def test_a_store_that_is_away_is_told_and_asked_again(quick):
    async def main():
        async with reading(yearly("a")) as (eyes, backend, _), eyes.watched() as board:
            await until(lambda: board.since(0).get("store") == {"state": "there"}, "it is there")
            backend.away = True
            await until(lambda: board.since(0)["store"]["state"] == "away", "it is away")
            told = board.since(0)["store"]
            assert told["error"] == "it is away"
            assert abs(told["since_ms"] - now_ms()) < PATIENCE_S * SECOND
            assert "job a" in board.since(0)  # what was known stays
            backend.away = False
            await until(lambda: board.since(0)["store"] == {"state": "there"}, "it is back")

    asyncio.run(main())


def test_an_error_that_is_not_ours_is_named_by_its_kind_alone(quick, caplog):
    async def main():
        async with reading(yearly("a")) as (eyes, backend, _), eyes.watched() as board:
            backend._fail_if_away = lambda: {}["redis://user:secret@host"]
            await until(lambda: board.since(0).get("store", {}).get("state") == "away", "it is told")
            assert board.since(0)["store"]["error"] == "KeyError, see the log"

    asyncio.run(main())
    assert any("could not read" in record.message for record in caplog.records)


def test_a_story_can_be_asked_for_though_nobody_looks(quick):
    async def main():
        async with reading(yearly("a")) as (eyes, backend, writer):
            await writer.save_result("a", result(NOON))
            known = await eyes.known("a")
            assert [one.slot for one in known.rows] == [NOON]
            backend.away = True
            await until(lambda: backend.inside == 0, "the store is left")

    asyncio.run(main())


# The application


def test_a_page_that_runs_jobs_wants_a_scheduler_and_a_connection_of_its_own():
    with pytest.raises(InvalidInput, match="give the scheduler instead of a URL"):
        page("sqlite:///jobs.db", allow_trigger=True)
    with pytest.raises(BackendMisconfigured, match="give the scheduler the store's URL"):
        page(Scheduler(Shared(MemoryBackend())), allow_trigger=True)
    page(Scheduler(Shared(MemoryBackend())))
    page(Scheduler(MemoryBackend()), allow_trigger=True)
    page(Scheduler("sqlite:///jobs.db"), allow_trigger=True)


class Shared:
    """A backend that is not in memory, as far as anyone can see."""

    def __init__(self, backend):
        self._backend = backend

    def __getattr__(self, name):
        return getattr(self._backend, name)

    async def __aenter__(self):
        return await self._backend.__aenter__()

    async def __aexit__(self, *exc):
        await self._backend.__aexit__(*exc)


def test_names_of_jobs_and_of_the_namespace_are_checked():
    with pytest.raises(InvalidInput, match="job"):
        page("sqlite:///jobs.db", jobs=["a\0b"])
    with pytest.raises(InvalidClaim, match="namespace"):
        page("sqlite:///jobs.db", namespace="")
