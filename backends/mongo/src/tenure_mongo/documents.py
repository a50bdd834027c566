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


def job_state(document: Mapping[str, Any]) -> JobState:
    """The state of a job, or of the part of it that was asked for; TypeError or ValueError for another document."""
    runs = [_run(run) for run in document.get("runs") or ()]
    unfinished = tuple([run for run in runs if run.status in ("open", "released")])
    ended = tuple([run for run in runs if run.status not in ("open", "released")])
    return JobState(int(document.get("fence") or 0), int(document.get("floor", -1)), unfinished, ended)


def _run(run: Mapping[str, Any]) -> RunState:
    return RunState(
        slot=int(run["slot"]),
        attempt=int(run["attempt"]),
        used=int(run.get("used", 0)),
        fence=int(run.get("fence", 0)),
        token=run["token"],
        holder=run.get("holder", ""),
        lease_ms=int(run.get("lease_ms", 0)),
        started_at=int(run.get("started_at", 0)),
        expires_at=int(run.get("expires_at", run.get("released_at", 0))),
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
