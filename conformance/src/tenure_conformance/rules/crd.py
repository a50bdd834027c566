"""Job cards: what the jobs of a namespace are, for readers."""

from dataclasses import replace
from typing import Any

from tenure.model import CARD_KEPT_MS, JobCard

from tenure_conformance.bench import SLOT, Bench
from tenure_conformance.records import attempted
from tenure_conformance.rule import rule

MARGIN_MS = 60_000
"""How far from the limit a card's age is taken, so that a slow call makes no difference."""
MANY = 1_000


def _card(job: str, now_ms: int, **changes: Any) -> JobCard:
    card = JobCard(
        job=job,
        schedule="cron 0 9 * * mon-fri Europe/Prague",
        words="At 09:00, Monday through Friday, Europe/Prague – „každý“ 🕘 '\"\\%",
        lease_ms=30_000,
        overlap="skip",
        max_attempts=3,
        max_late_ms=60_000,
        next_slot=SLOT,
        instance="host-1-a",
        seen_at_ms=now_ms,
    )
    return replace(card, **changes)


async def _now_ms(bench: Bench) -> int:
    """The store's clock."""
    return (await bench.a.active()).now_ms


@rule(
    "CRD-001",
    level="cards",
    spec=("cards-what", "cards-last"),
    catches=("cards-keep-the-first", "cards-lose-none", "cards-are-the-client-s"),
)
async def the_last_card_is_kept(bench: Bench) -> None:
    """A card that one client saved another reads as it was, and the last one saved of a job is the one that is kept."""
    now_ms = await _now_ms(bench)
    first = _card("job", now_ms)
    assert await bench.b.cards() == []
    await bench.a.save_cards(first)
    assert await bench.b.cards() == [first]
    last = _card(
        "job", now_ms, schedule="every 10s", words="", overlap="allow", max_late_ms=None, next_slot=None, instance="b"
    )
    await bench.b.save_cards(last)
    await bench.b.save_cards(last)
    assert await bench.a.cards() == [last]


@rule(
    "CRD-002",
    level="cards",
    spec=("cards-what", "names-exact", "namespace-only"),
    catches=("cards-of-all-namespaces", "cards-fold-case", "cards-in-any-order"),
)
async def cards_are_of_the_namespace(bench: Bench) -> None:
    """The cards of a namespace are its own alone, one for each exact name, in the order of the names."""
    now_ms = await _now_ms(bench)
    other = await bench.client("other", namespace=bench.namespace + "2")
    names = ["sync", "Sync", "sync ", "sync:eu", "*", "ü", "u\N{COMBINING DIAERESIS}", "🎉", "n" * 200, "{a}", "../x"]
    await other.save_cards(_card("sync", now_ms, instance="other"), _card("other", now_ms))
    for name in names[:3]:
        await bench.a.save_cards(_card(name, now_ms))
    await bench.a.save_cards(*[_card(name, now_ms) for name in names[3:]])
    assert await bench.b.cards() == [_card(name, now_ms) for name in sorted(names)]
    assert [card.job for card in await other.cards()] == ["other", "sync"]


@rule(
    "CRD-003",
    level="cards",
    spec="cards-forgotten",
    catches=("cards-kept-for-ever", "cards-kept-for-a-week", "cards-of-one-call-alone"),
)
async def old_cards_are_forgotten(bench: Bench) -> None:
    """A card whose job nobody has told of for thirty days, by the store's clock, is forgotten, and no younger one."""
    limit_ms = await _now_ms(bench) - CARD_KEPT_MS
    margin_ms = MARGIN_MS + 2 * bench.target.capabilities.clock_error_ms
    young = _card("young", limit_ms + margin_ms)
    await bench.a.save_cards(young)
    await bench.a.save_cards(_card("old", limit_ms - margin_ms))
    await bench.b.save_cards(_card("new", limit_ms + CARD_KEPT_MS))
    assert [card.job for card in await bench.b.cards()] == ["new", "young"]


@rule("CRD-004", level="cards", spec="cards-many", catches=("cards-cut", "cards-cleared-by-none"))
async def many_cards_are_one_call(bench: Bench) -> None:
    """A thousand cards are saved by one call and read by one, and a call may save none."""
    now_ms = await _now_ms(bench)
    cards = [_card(f"job-{number:04}", now_ms) for number in range(MANY)]
    await bench.a.save_cards(*cards)
    await bench.a.save_cards()
    assert await bench.b.cards() == cards


@rule("CRD-005", level="cards", spec="cards-decide-nothing", catches=("cards-clear-the-job", "cards-by-results"))
async def cards_touch_no_run(bench: Bench) -> None:
    """Saving a card changes no run and no record, and neither changes a card."""
    now_ms = await _now_ms(bench)
    held = await bench.a.win()
    await bench.b.save_cards(_card("job", now_ms))
    assert await held.heartbeat()
    assert await held.finish()
    await bench.b.save_cards(_card("job", now_ms), _card("never-ran", now_ms))
    await bench.a.save_result("job", attempted(held.slot))
    assert [result.attempt for result in await bench.b.results()] == [1]
    assert (await bench.b.ask(slot=held.slot)).outcome == "done"
    assert await bench.a.cards() == [_card("job", now_ms), _card("never-ran", now_ms)]
