"""Job cards: what an instance tells of its jobs, when, and what it costs."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tenure.codec import decode_card, encode_card
from tenure.errors import BackendMisconfigured, BackendUnavailable, InvalidClaim
from tenure.job import make_job
from tenure.memory import MemoryBackend
from tenure.model import JobCard
from tenure.protocol import JobCards
from tenure.schedule import Cron, at, cron, every, schedule_of
from tenure.testing import World

CARD = JobCard(
    job="sync", schedule="every 10s", words="every 10 seconds", lease_ms=30_000, overlap="skip", max_attempts=3,
    max_late_ms=60_000, next_slot=1_796_126_410_000, instance="a", seen_at_ms=1_796_126_400_000,
)  # fmt: skip


class Counting(MemoryBackend):
    """A store with cards that counts what is asked of it, and can fail."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store)
        self.reads = 0
        self.saved: list[list[str]] = []
        self.error: Exception | None = None

    async def cards(self):
        self.reads += 1
        if self.error is not None:
            raise self.error
        return await super().cards()

    async def save_cards(self, cards):
        self.saved.append(sorted(card.job for card in cards))
        await super().save_cards(cards)


@pytest.fixture
def store(world):
    return Counting(world)


def cards(world):
    return {job: card for (_, job), card in world.store.cards.items()}


def test_an_instance_tells_what_its_jobs_are(world, work, jobs, store):
    world.start(jobs(work, lease="20s", max_late=None, max_attempts=5, overlap="allow"), "a", backend=store)
    world.advance("2s")
    seen_at_ms = cards(world)["sync"].seen_at_ms
    assert world.start_ms <= seen_at_ms <= world.start_ms + 1_000
    assert cards(world)["sync"] == JobCard(
        job="sync", schedule="every 10s", words="every 10 seconds", lease_ms=20_000, overlap="allow", max_attempts=5,
        max_late_ms=None, next_slot=world.start_ms + 10_000, instance="a", seen_at_ms=seen_at_ms,
    )  # fmt: skip


def test_a_second_instance_reads_and_has_nothing_to_add(world, work, jobs, store):
    world.start(jobs(work), "a", backend=store)
    world.advance("2s")
    world.start(jobs(work), "b", backend=store)
    world.advance("30m")
    assert (store.reads, store.saved) == (2, [["sync"]])


def test_one_of_many_instances_an_hour_says_that_the_jobs_are_still_there(world, work, jobs, store):
    for name in "abcdef":
        world.start(jobs(work, schedule=every("1h")), name, backend=store)
        world.advance("2s")
    world.advance("10h")
    assert 10 <= len(store.saved) <= 20
    assert world.true_ms() - cards(world)["sync"].seen_at_ms < 4_600_000


def test_jobs_that_come_together_are_one_call(world, work, store):
    a = world.start([], "a", backend=store)
    for number in range(20):
        a.add(f"job-{number:02}", every("10s"), work)
    world.advance("2s")
    assert store.saved == [[f"job-{number:02}" for number in range(20)]]


def test_a_replaced_job_is_told_anew_and_alone(world, work, jobs, store):
    a = world.start([*jobs(work), *jobs(work, name="other")], "a", backend=store)
    world.advance("2s")
    a.replace("sync", every("1m"), work)
    world.advance("2s")
    assert store.saved == [["other", "sync"], ["sync"]]
    assert cards(world)["sync"].schedule == "every 1m"


def test_a_removed_job_s_card_stays_for_thirty_days(world, work, jobs, store):
    a = world.start([*jobs(work, schedule=every("1d")), *jobs(work, name="old", schedule=every("1d"))], backend=store)
    world.advance("2s")
    a.remove("old")
    world.advance(timedelta(days=29))
    assert set(cards(world)) == {"sync", "old"}
    world.advance(timedelta(days=2))
    assert set(cards(world)) == {"sync"}


def test_a_failure_is_an_event_and_the_cards_are_told_a_minute_later(world, work, jobs, store):
    store.error = BackendUnavailable("away")
    a = world.start(jobs(work), "a", backend=store)
    world.advance("25s")
    (event,) = [event for event in a.events if event.kind == "error"]
    assert (event.call, event.job, a.count("success")) == ("save_cards", "", 2)
    store.error = None
    world.advance("1m")
    assert set(cards(world)) == {"sync"}


def test_a_failure_that_stays_is_told_once_an_hour(world, work, jobs, store):
    store.error = BackendMisconfigured("no permission")
    a = world.start(jobs(work), "a", backend=store)
    world.advance("30m")
    assert a.count("error") == 1


def test_a_backend_without_cards_is_not_asked(world, work, jobs):
    a = world.start(jobs(work))
    world.advance("2h")
    assert (cards(world), a.count("error")) == ({}, 0)


def test_a_stop_does_not_wait_for_the_next_time(world, work, jobs, store):
    a = world.start(jobs(work), "a", backend=store)
    world.advance("15s")
    a.stop()
    world.advance("1s")
    assert a.stopped


def test_a_schedule_of_a_user_s_own_is_told_by_its_text(world, work, store):
    class Own:
        def next_slot(self, after_ms):
            return None

        def latest_slot(self, at_ms):
            return None

        def __str__(self):
            return "when the moon is full" + "!" * 1_000 + "\x00"

    world.start([make_job("own", Own(), work, {})], backend=store)
    world.advance("2s")
    card = cards(world)["own"]
    assert (card.next_slot, len(card.schedule), card.words) == (None, 500, card.schedule)
    assert schedule_of(card.schedule) is None


# The record


def test_a_card_survives_its_text_and_what_a_newer_version_adds():
    text = encode_card(CARD)
    assert decode_card(text) == CARD
    assert decode_card(json.dumps({**json.loads(text), "colour": "red"}).encode()) == CARD


@pytest.mark.parametrize("text", ["[]", "{}", "not json", '{"job": 1}'])
def test_what_is_no_card_is_told(text):
    with pytest.raises(BackendMisconfigured, match="where tenure keeps its state"):
        decode_card(text)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"job": ""}, "job"),
        ({"instance": "a\n"}, "instance"),
        ({"lease_ms": 0}, "lease_ms"),
        ({"overlap": "both"}, "overlap"),
        ({"next_slot": -1}, "next_slot"),
        ({"seen_at_ms": None}, "seen_at_ms"),
        ({"max_late_ms": -1}, "max_late_ms"),
        ({"max_attempts": 0}, "max_attempts"),
    ],
)
def test_a_card_that_breaks_a_limit_is_refused(change, named):
    with pytest.raises(InvalidClaim, match=f"^{named}: "):
        replace(CARD, **change)


def test_the_texts_of_a_card_are_lines_that_every_store_can_keep():
    card = replace(CARD, words="a\nb\x00\ud800" + "c" * 500)
    assert card.words.startswith("a b\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}c")
    assert (len(card.words), card.words[-2:]) == (500, " …")


def test_the_in_memory_backend_keeps_cards():
    assert isinstance(MemoryBackend(), JobCards)


# A schedule's text


@pytest.mark.parametrize(
    "schedule",
    [
        every("10s"),
        every("1h30m", anchor=datetime(2026, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)),
        cron("0 9 * * mon-fri", tz="Europe/Prague"),
        cron("@daily"),
        cron("0 0 2 * * sun", tz="America/Argentina/Buenos_Aires", gap="skip", fold="both"),
        cron("0 3 * * *", tz="Etc/GMT-14", fold="both"),
        at(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 1, 5_000, tzinfo=UTC)),
    ],
    ids=str,
)
def test_a_schedule_is_read_from_its_text(schedule):
    assert schedule_of(str(schedule)) == schedule


@pytest.mark.parametrize(
    "text",
    [
        "",
        "every",
        "every now and then",
        "every 1s from somewhere",
        "cron",
        "cron 0 9 * * *",
        "cron 0 9 * * * Mars/Base",
        "cron 0 9 * * * UTC gap=wide",
        "at noon",
        "at 2026-01-01T00:00:00Z, 2026-01-02T00:00:00Z, 2026-01-03T00:00:00Z and 5 more",
        "<Own object at 0x7f>",
    ],
)
def test_a_text_that_says_not_enough_is_no_schedule(text):
    assert schedule_of(text) is None


def test_a_zone_that_this_host_does_not_know_is_no_error():
    text = str(Cron("0 9 * * *")).replace("UTC", "Europe/Atlantis")
    assert schedule_of(text) is None
