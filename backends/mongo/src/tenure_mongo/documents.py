"""What is stored, as the records of the protocol."""

from collections.abc import Mapping
from typing import Any

from bson.datetime_ms import DatetimeMS
from bson.max_key import MaxKey
from tenure.codec import encode_card
from tenure.decision import JobState, RunState
from tenure.errors import BackendMisconfigured
from tenure.model import CARD_KEPT_MS, JobCard, LostAttempt, RunResult

from tenure_mongo.expressions import Document

FORMAT = 1
"""Raised when documents change their meaning; a newer one is refused."""
SCHEMA = "schema"
"""The ``_id`` of the document that tells the format; those of jobs are documents."""


def job_state(document: Mapping[str, Any], since: int = -1) -> JobState:
    """The state of a job, or of the part of it that is there, but for what ended and is of a slot before ``since``.

    TypeError, ValueError and the like for another document.
    """
    stored = document.get("runs") or ()
    unfinished = tuple([_unfinished(run, run["lease"]) for run in stored if "lease" in run])
    ended = tuple([_ended(run) for run in stored if run["slot"] >= since and "lease" not in run])
    return JobState(int(document.get("fence") or 0), int(document.get("floor", -1)), unfinished, ended)


def _unfinished(run: Mapping[str, Any], lease: Mapping[str, Any]) -> RunState:
    return RunState(
        slot=int(run["slot"]),
        attempt=int(run["attempt"]),
        used=int(lease["used"]),
        fence=int(lease["fence"]),
        token=run["token"],
        holder=lease["holder"],
        lease_ms=int(lease["lease_ms"]),
        started_at=int(lease["started_at"]),
        expires_at=int(lease["expires_at"] if "expires_at" in lease else lease["released_at"]),
        status=run["status"],
        previous=tuple([_lost(lost) for lost in lease["previous"]]),
    )


def _ended(run: Mapping[str, Any]) -> RunState:
    return RunState(
        slot=int(run["slot"]),
        attempt=int(run["attempt"]),
        used=0,
        fence=0,
        token=run["token"],
        holder="",
        lease_ms=0,
        started_at=0,
        expires_at=0,
        status=run["status"],
        previous=tuple([_lost(lost) for lost in run.get("previous", ())]),
    )


def _lost(lost: Mapping[str, Any]) -> LostAttempt:
    return LostAttempt(
        int(lost["slot"]),
        int(lost["attempt"]),
        int(lost["fence"]),
        lost["holder"],
        int(lost["started_at"]),
        int(lost["ended_at"]),
        lost["released"],
    )


def result_id(namespace: str, job: str, slot: int, attempt: int) -> Document:
    """The ``_id`` of a record; of one job they are in the order of slot and attempt."""
    return {"namespace": namespace, "job": job, "slot": slot, "attempt": attempt}


def all_results(namespace: str, job: str) -> Document:
    """A filter: the records of a job."""
    job_id = {"namespace": namespace, "job": job}
    return {"_id": {"$gt": job_id, "$lt": {**job_id, "slot": MaxKey()}}}


def result_fields(result: RunResult) -> Document:
    """A record without its ``_id``."""
    return {
        "fence": result.fence,
        "status": result.status,
        "instance": result.instance,
        "started_at": _date(result.started_at),
        "ended_at": _date(result.ended_at),
        "error": result.error,
    }


def run_result(document: Mapping[str, Any]) -> RunResult:
    """The record of a document."""
    place, started_at, ended_at = document["_id"], document["started_at"], document["ended_at"]
    return RunResult(
        slot=int(place["slot"]),
        attempt=int(place["attempt"]),
        fence=int(document["fence"]),
        status=document["status"],
        instance=document["instance"],
        started_at=None if started_at is None else int(started_at),
        ended_at=None if ended_at is None else int(ended_at),
        error=document["error"],
    )


def card_id(namespace: str, job: str) -> Document:
    """The ``_id`` of a job's card."""
    return {"namespace": namespace, "job": job}


def all_cards(namespace: str) -> Document:
    """A filter: the cards of a namespace."""
    return {"_id": {"$gt": {"namespace": namespace}, "$lt": {"namespace": namespace, "job": MaxKey()}}}


def card_fields(card: JobCard) -> Document:
    """A card without its ``_id``."""
    return {"card": encode_card(card), "seen_at": DatetimeMS(card.seen_at_ms)}


def old_cards(namespace: str) -> Document:
    """A filter: the cards of jobs that nobody has told of for long, by the server's clock."""
    return {**all_cards(namespace), "$expr": {"$lt": ["$seen_at", {"$subtract": ["$$NOW", CARD_KEPT_MS]}]}}


def check_format(document: Mapping[str, Any], place: str) -> None:
    """Refuse (BackendMisconfigured) a store of a newer format, and what is none of ours."""
    found = document.get("format")
    if not isinstance(found, int):
        raise BackendMisconfigured(f"{place}: its collection tenure_jobs is not tenure's; use another database")
    if found > FORMAT:
        raise BackendMisconfigured(
            f"{place}: it has format {found} and this tenure-mongo knows up to {FORMAT}; upgrade tenure-mongo here"
        )


def _date(time_ms: int | None) -> DatetimeMS | None:
    return None if time_ms is None else DatetimeMS(time_ms)
