"""``tenure doctor``."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import asdict
from statistics import median

import click

from tenure.cli.group import FAILURE
from tenure.cli.output import iso, moment, print_json, print_table
from tenure.cli.store import cards_of, entered, given_url, url_as_word
from tenure.cli.survey import JobLine, Survey, survey
from tenure.duration import to_text
from tenure.errors import BackendError, InvalidInput
from tenure.model import EARLY_MS, Finding, JobCard
from tenure.protocol import Examines, LeaseBackend
from tenure.registry import hide_secrets
from tenure.schedule import tz_data_version

_PINGS = 7
_CLOCK_NEAR_MS = 500
_CLOCK_LATE_MS = 10_000
"""Who comes this much later than the others never wins."""
_TRIPS_IN_A_LEASE = 20
_MOST_JOBS = 500


@click.command()
@url_as_word("[URL]")
@click.option("--namespace", default="tenure", show_default=True, help="The namespace of the jobs.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def doctor(word: str | None, url: str | None, namespace: str, as_json: bool) -> None:
    """Look whether the store at URL, and this host's way to it, are fit for running jobs; TENURE_URL if not given.

    It changes nothing. Each finding that is not well has a remedy; the exit code is 1 if something is wrong.
    """
    url = given_url(word, url)
    findings = asyncio.run(_examine(url, namespace))
    wrong = any(finding.state == "wrong" for finding in findings)
    if as_json:
        print_json({"url": hide_secrets(url), "ok": not wrong, "findings": [asdict(finding) for finding in findings]})
    else:
        print_table(["", "what", "found"], [[finding.state, finding.what, finding.text] for finding in findings])
        for finding in findings:
            if finding.remedy is not None:
                click.echo(f"\n{finding.what}: {finding.remedy}")
    if wrong:
        raise click.exceptions.Exit(FAILURE)


async def _examine(url: str, namespace: str) -> list[Finding]:
    findings = [_zone_data()]
    began = time.perf_counter()
    try:
        async with entered(url, namespace) as backend:
            took_ms = (time.perf_counter() - began) * 1_000
            findings.append(Finding("store", "ok", f"{backend} answers, after {took_ms:.0f} ms"))
            findings += await _of_store(backend)
    except InvalidInput:
        raise
    except BackendError as error:
        findings.append(Finding("store", "wrong", str(error), "see what the message asks for, then run this again"))
    return findings


async def _of_store(backend: LeaseBackend) -> list[Finding]:
    trips = [await _trip(backend) for _ in range(_PINGS)]
    trip_ms = median(took_ms for took_ms, _ in trips)
    cards = await cards_of(backend)
    own = await backend.examine() if isinstance(backend, Examines) else []
    return [
        _clock(*min(trips), backend.capabilities.clock_error_ms),
        *_leases(backend, cards, trip_ms),
        *_durability(backend),
        *own,
        await _jobs(backend, cards),
    ]


async def _trip(backend: LeaseBackend) -> tuple[float, float]:
    """How long a call takes, and how far ahead this host's clock is, as far as that call can tell."""
    began, wall = time.perf_counter(), time.time()
    now_ms = (await backend.active([])).now_ms
    took_ms = (time.perf_counter() - began) * 1_000
    return took_ms, wall * 1_000 + took_ms / 2 - now_ms


def _clock(took_ms: float, ahead_ms: float, error_ms: int) -> Finding:
    doubt_ms = took_ms / 2 + error_ms
    side = "ahead of" if ahead_ms > 0 else "behind"
    text = f"this host's clock is {abs(ahead_ms):.0f} ms {side} the store's, give or take {doubt_ms:.0f} ms"
    surely_ms = max(abs(ahead_ms) - doubt_ms, 0)
    if surely_ms < _CLOCK_NEAR_MS:
        return Finding("clock", "ok", text)
    limit_ms = EARLY_MS if ahead_ms > 0 else _CLOCK_LATE_MS
    means = "its claims come too early" if ahead_ms > 0 else "others are always first, and its claims may be too late"
    return Finding("clock", "wrong" if surely_ms > limit_ms else "warning", text, f"set the clock right (NTP): {means}")


def _leases(backend: LeaseBackend, cards: list[JobCard], trip_ms: float) -> Iterator[Finding]:
    least_ms = backend.capabilities.min_lease_ms
    yield Finding("round trip", "ok", f"{trip_ms:.1f} ms; the shortest lease of the store is {to_text(least_ms)}")
    short = [card for card in cards if card.lease_ms < _TRIPS_IN_A_LEASE * trip_ms]
    if short:
        text = f"{_names(short)}: a lease of {to_text(min(card.lease_ms for card in short))} is not much longer"
        enough_ms = max(int(_TRIPS_IN_A_LEASE * trip_ms) // 100 * 100, 100)
        remedy = f"make it {to_text(enough_ms)} or more, or bring the store nearer"
        yield Finding("leases", "warning", text, remedy)


def _durability(backend: LeaseBackend) -> Iterator[Finding]:
    if not backend.capabilities.durable:
        yield Finding("durability", "warning", "a restart of the store forgets everything", "use it for tests alone")


async def _jobs(backend: LeaseBackend, cards: list[JobCard]) -> Finding:
    if not cards:
        text = "no instance has told of a job in this namespace in the last thirty days"
        return Finding("jobs", "warning", text, "start one, or look whether the namespace is the right one")
    found = await survey(backend, [card.job for card in cards[:_MOST_JOBS]])
    overdue = [line for line in found.jobs if line.overdue_slot is not None]
    if overdue:
        return _overdue(found, overdue, len(cards))
    return Finding("jobs", "ok", f"{len(cards)}, none overdue")


def _overdue(found: Survey, overdue: list[JobLine], count: int) -> Finding:
    """The one that waits for the longest says it for all."""
    first = max(overdue, key=lambda line: line.overdue_ms)
    assert first.overdue_slot is not None
    text = f"{len(overdue)} of {count} jobs overdue, as {first.job!r}"
    remedy = f"see `tenure jobs --overdue`, and `tenure why {first.job} {iso(first.overdue_slot)}`"
    heard_ms = max((line.heard_at_ms for line in found.jobs if line.heard_at_ms is not None), default=0)
    if heard_ms < max(line.overdue_slot for line in overdue if line.overdue_slot is not None):
        text += f"; no instance has told of anything since {moment(heard_ms)} UTC"
        remedy = f"start one; {remedy}"
    return Finding("jobs", "warning", text, remedy)


def _zone_data() -> Finding:
    version = tz_data_version()
    if version == "unknown":
        remedy = "pip install tzdata: instances with different releases may compute different slots"
        return Finding("zone data", "warning", "the system does not say of which release its time zone data is", remedy)
    return Finding("zone data", "ok", f"{version}; it should be the same for all instances")


def _names(cards: list[JobCard]) -> str:
    more = f" and {len(cards) - 1} more" if len(cards) > 1 else ""
    return f"{cards[0].job!r}{more}"
