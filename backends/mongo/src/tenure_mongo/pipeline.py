"""The decisions of docs/protocol.md, sections 3 and 4, as update pipelines: pure functions that build them.

A job's document is ``{_id, fence, floor, runs}``, its runs in the order of their slots. A run has a slot, an attempt, a
token and a status. While it is unfinished, the other fields of ``tenure.decision.RunState`` are in its ``lease``, with
two differences: ``expires_at`` is there only while the run is open, so that the greatest one tells whether any lease is
live; ``released_at``, the end of the lease, only once it is released. A run that ends loses its ``lease``. What changes
nothing leaves the document as it was, and the server then writes nothing.

Two things make a command quick. Its filter names the ``_id`` alone, whatever the conditions: any other goes through the
query planner. And nothing large is left to do after the write, neither by the projection nor by taking a long pipeline
apart: on a replica set of one the server otherwise waits a millisecond more before it looks whether a majority has it.

``$$NOW`` is fixed when a command starts, and a command may wait: another one may have stored a later time since. It is
used so that this can only make a lease seem live that is over; and no renewal is ever set back.
"""

from typing import Any

from bson.datetime_ms import DatetimeMS
from tenure.decision import KEPT_ENDED, KEPT_UNFINISHED
from tenure.model import EARLY_MS, Claim, Ending

from tenure_mongo.expressions import (
    Document,
    Expression,
    any_of,
    both,
    changed,
    default,
    either,
    every,
    let,
    no,
    text,
    where,
)

Pipeline = list[Document]

NOW: Any = "$$NOW"

LARGEST = 2**62
"""A limit beyond it means the same as this one: the server keeps 64 bits, and adds."""
UNFINISHED: Document = {"$in": ["$$this.status", ["open", "released"]]}
RUNS: Expression = default("$runs", [])
AS_IT_WAS = "$$ROOT"
UNTOUCHED = either({"$gt": ["$runs", None]}, AS_IT_WAS, {"_id": "$_id", "runs": []})
"""A document that may be missing, as it was."""
NEWEST: Document = {"$max": ["$floor", {"$max": "$runs.slot"}]}
SUPERSEDED: Document = {
    "slot": "$$this.slot",
    "attempt": "$$this.attempt",
    "token": "$$this.token",
    "status": "superseded",
}
"""What may still be asked of a run that is superseded."""
NOTHING_UNFINISHED: Document = {"$eq": [{"$max": "$runs.lease.used"}, None]}
"""Runs that ended have no lease."""
SOME_UNFINISHED: Document = {"$gt": [{"$max": "$$others.lease.used"}, None]}
"""Some of ``$$others`` are."""
TOO_MANY = both(UNFINISHED, {"$lte": ["$$this.slot", "$$crowd"]}, {"$lte": ["$$this.lease.expires_at", NOW]})
"""Under ``allow``: the run is beyond the newest unfinished ones, and its lease is over."""


def begin(claim: Claim) -> Pipeline:
    """Row 14 under ``skip``, where all runs of the job have ended, as is nearly always so; the document may be missing.

    It says what ``win`` says there, in fewer words.
    """
    keep = KEPT_ENDED["skip"]
    fence = {"$max": [{"$add": ["$fence", 1]}, {"$toLong": NOW}]}
    run = _opened(claim, used=1, fence=fence, previous=[])
    runs = {"$concatArrays": [{"$slice": [RUNS, -keep]}, [run]]}
    won = _document(runs, fence=fence, dropped={"$arrayElemAt": ["$runs.slot", -keep - 1]})
    allowed = both(*_in_time(claim), {"$lt": [NEWEST, claim.slot]}, NOTHING_UNFINISHED)
    return _decided(either(allowed, won, UNTOUCHED))


def win(claim: Claim) -> Pipeline:
    """Rows 8 and 14: the document with the run won by this claim, or as it was; it may be missing before row 14."""
    if claim.after:
        return _decided(_take_over(claim))
    return _decided(_start(claim))


def renew(claim: Claim) -> Pipeline:
    """Row 2: the lease that the token holds, renewed."""
    allowed = both(_own(claim), any_of(_live("$$claimed"), _way_is_free(claim)))
    return _decided(_on_claimed(claim, either(allowed, _replacing(claim, _renewed(claim.lease_ms)), AS_IT_WAS)))


def exhaust(claim: Claim) -> Pipeline:
    """Row 6: the run, ended since its attempts are used up."""
    newer = {"$gt": [NEWEST, claim.slot]} if claim.overlap == "skip" else False
    row_2 = both(_own(claim), _way_is_free(claim))
    used_up = {"$gte": ["$$claimed.lease.used", min(claim.max_attempts, LARGEST)]}
    allowed = both(_over(claim), used_up, no(newer), no(row_2))
    ended = changed("$$this", "lease", status="exhausted", previous=[_lost("$$this")])
    return _decided(_on_claimed(claim, either(allowed, _replacing(claim, ended), AS_IT_WAS)))


def facts(claim: Claim) -> Document:
    """A projection: all that the decision of this claim depends on; under ``skip`` the few runs that there are."""
    runs = 1 if claim.overlap == "skip" else where({"$eq": ["$$this.slot", claim.slot]}, of="$runs")
    return {"now": NOW, "fence": 1, "floor": 1, "runs": runs}


def unfinished() -> Document:
    """A projection: a job's unfinished runs."""
    return {"now": NOW, "runs": where(UNFINISHED, of="$runs")}


def heartbeat(slot: int, token: str) -> Document:
    """An update: the lease of the run that the token holds, renewed for the length that it has."""
    return {"u": _with_run(_held(slot, token), _renewed("$$this.lease.lease_ms"))}


def finish(slot: int, token: str, status: Ending) -> Document:
    """An update: the run that the token holds, ended, with what may still be asked of it."""
    ended = {"$set": {"runs.$[held].status": status}, "$unset": {"runs.$[held].lease": ""}}
    return {"u": ended, "arrayFilters": [{"held.slot": slot, "held.token": token, "held.status": "open"}]}


def run(slot: int) -> Document:
    """A projection: the run of a job."""
    return {"_id": 0, "fence": 1, "floor": 1, "runs": where({"$eq": ["$$this.slot", slot]}, of="$runs")}


def release(slot: int, token: str) -> Document:
    """An update: the run that the token holds, its lease over and its attempt given back."""
    lease = changed(
        "$$this.lease",
        "expires_at",
        used={"$subtract": ["$$this.lease.used", 1]},
        released_at={"$min": ["$$this.lease.expires_at", NOW]},
    )
    return {"u": _with_run(_held(slot, token), changed("$$this", status="released", lease=lease))}


def _start(claim: Claim) -> Expression:
    """Row 14, where none of the rows 9 to 13 fits."""
    conditions = _in_time(claim)
    if claim.overlap == "skip":
        conditions += [{"$lt": [NEWEST, claim.slot]}, _nothing_is_live("$runs")]
    else:
        conditions += [{"$lt": ["$floor", claim.slot]}, no({"$in": [claim.slot, default("$runs.slot", [])]})]
    return either(both(*conditions), _with_won(claim, others=RUNS, used=1, lost=[]), UNTOUCHED)


def _in_time(claim: Claim) -> list[Expression]:
    """Neither row 11 nor row 12 fits."""
    conditions: list[Expression] = [{"$gte": [NOW, DatetimeMS(claim.slot - EARLY_MS)]}]
    if claim.max_late_ms is not None:
        conditions.append({"$lte": [NOW, DatetimeMS(min(claim.slot + claim.max_late_ms, LARGEST))]})
    return conditions


def _take_over(claim: Claim) -> Expression:
    """Row 8, where none of the rows 1 to 7 fits."""
    left = {"$lt": ["$$claimed.lease.used", min(claim.max_attempts, LARGEST)]}
    allowed = both(_over(claim), left, _way_is_free(claim), no(_own(claim)))
    used = {"$add": ["$$claimed.lease.used", 1]}
    won = _with_won(claim, others=_others(claim), used=used, lost=[_lost("$$claimed")])
    return _on_claimed(claim, either(allowed, won, AS_IT_WAS))


def _on_claimed(claim: Claim, expression: Expression) -> Expression:
    """The expression with the claimed run as ``$$claimed``, missing if there is none."""
    return let(expression, claimed={"$first": where({"$eq": ["$$this.slot", claim.slot]}, of="$runs")})


def _others(claim: Claim) -> Expression:
    return where({"$ne": ["$$this.slot", claim.slot]}, of="$runs")


def _over(claim: Claim) -> Expression:
    """The claimed run is unfinished, its lease is over, and its attempt is the one that the sender knows."""
    unfinished = {"$in": ["$$claimed.status", ["open", "released"]]}
    return both(
        unfinished,
        {"$lte": ["$$claimed.lease.expires_at", NOW]},
        {"$eq": ["$$claimed.attempt", min(claim.after, LARGEST)]},
    )


def _own(claim: Claim) -> Expression:
    """The claim's token holds the run, be its lease over or not."""
    return both(_is_open("$$claimed"), {"$eq": ["$$claimed.token", text(claim.token)]})


def _live(run: str) -> Expression:
    return {"$gt": [f"{run}.lease.expires_at", NOW]}


def _nothing_is_live(runs: str) -> Expression:
    return {"$lte": [{"$max": f"{runs}.lease.expires_at"}, NOW]}


def _way_is_free(claim: Claim) -> Expression:
    """Under ``skip`` no newer run has started, and no other run's lease is live."""
    if claim.overlap == "allow":
        return True
    return both({"$lte": [NEWEST, claim.slot]}, let(_nothing_is_live("$$others"), others=_others(claim)))


def _with_won(claim: Claim, *, others: Expression, used: Expression, lost: list[Expression]) -> Expression:
    """The document with the run won, others superseded, and what is too much of them dropped."""
    superseded = every(_lost("$$this"), of=where(_superseded(claim), of="$$others"))
    previous = either(SOME_UNFINISHED, {"$concatArrays": [lost, superseded]}, lost)
    run = _opened(claim, used=used, fence="$$fence", previous=previous)
    kept = _alone(run) if claim.overlap == "skip" else _among_others(run, claim.slot)
    fence = {"$max": [{"$add": ["$fence", 1]}, {"$toLong": NOW}]}
    return let(kept, others=others, fence=fence)


def _opened(claim: Claim, *, used: Expression, fence: Expression, previous: Expression) -> Document:
    """The run as the claim wins it."""
    lease = {
        "used": used,
        "fence": fence,
        "holder": text(claim.instance),
        "lease_ms": claim.lease_ms,
        "started_at": NOW,
        "expires_at": {"$add": [NOW, claim.lease_ms]},
        "previous": previous,
    }
    attempt = min(claim.after, LARGEST) + 1
    return {"slot": claim.slot, "attempt": attempt, "token": text(claim.token), "status": "open", "lease": lease}


def _superseded(claim: Claim) -> Expression:
    """Whether this win supersedes ``$$this``."""
    return UNFINISHED if claim.overlap == "skip" else TOO_MANY


def _alone(run: Document) -> Expression:
    """Under ``skip``: all other runs are older, and ended from now on."""
    keep = KEPT_ENDED["skip"]
    ended = either(SOME_UNFINISHED, every(either(UNFINISHED, SUPERSEDED, "$$this"), of="$$others"), "$$others")
    runs = {"$concatArrays": [{"$slice": [ended, -keep]}, [run]]}
    return _document(runs, fence="$$fence", dropped={"$arrayElemAt": ["$$others.slot", -keep - 1]})


def _among_others(run: Document, slot: int) -> Expression:
    """Under ``allow``: unfinished runs stay, unless there are too many."""
    kept = any_of(UNFINISHED, {"$gt": ["$$this.slot", "$$dropped"]})
    before = where(both(kept, {"$lt": ["$$this.slot", slot]}), of="$$closed")
    after = where(both(kept, {"$gt": ["$$this.slot", slot]}), of="$$closed")
    ended = where(no(UNFINISHED), of="$$closed")
    runs = {"$concatArrays": [before, [run], after]}
    document = _document(runs, fence="$$fence", dropped="$$dropped")
    document = let(document, dropped={"$arrayElemAt": [_slots(ended), -KEPT_ENDED["allow"] - 1]})
    document = let(document, closed=every(either(TOO_MANY, SUPERSEDED, "$$this"), of="$$others"))
    return let(document, crowd={"$arrayElemAt": [_slots(where(UNFINISHED, of="$$others")), -KEPT_UNFINISHED]})


def _document(runs: Expression, *, fence: Expression, dropped: Expression) -> Document:
    """The job's document; its floor is the newest slot of which a record was ever dropped."""
    return {"_id": "$_id", "fence": fence, "floor": {"$max": [-1, "$floor", dropped]}, "runs": runs}


def _slots(runs: Expression) -> Expression:
    return every("$$this.slot", of=runs)


def _lost(run: str) -> Document:
    """The run's attempt as its successor is told of it."""
    return {
        **{name: f"{run}.{name}" for name in ("slot", "attempt")},
        **{name: f"{run}.lease.{name}" for name in ("fence", "holder", "started_at")},
        "ended_at": default(f"{run}.lease.released_at", f"{run}.lease.expires_at"),
        "released": {"$eq": [f"{run}.status", "released"]},
    }


def _renewed(lease_ms: Expression) -> Expression:
    """``$$this`` with a lease of that length from now, or from the renewal that is stored if that is later."""
    renewed_at = {"$max": [NOW, {"$subtract": ["$$this.lease.expires_at", "$$this.lease.lease_ms"]}]}
    lease = changed("$$this.lease", lease_ms=lease_ms, expires_at={"$add": [renewed_at, lease_ms]})
    return changed("$$this", lease=lease)


def _held(slot: int, token: str) -> Expression:
    """Whether the token holds ``$$this``, the run of that slot."""
    return both({"$eq": ["$$this.slot", slot]}, {"$eq": ["$$this.token", text(token)]}, _is_open("$$this"))


def _is_open(run: str) -> Expression:
    return {"$eq": [f"{run}.status", "open"]}


def _with_run(condition: Expression, run: Expression) -> Pipeline:
    return [{"$set": {"runs": every(either(condition, run, "$$this"), of=RUNS)}}]


def _replacing(claim: Claim, run: Expression) -> Expression:
    runs = _with_run({"$eq": ["$$this.slot", claim.slot]}, run)
    return {"$mergeObjects": [AS_IT_WAS, runs[0]["$set"]]}


def _decided(document: Expression) -> Pipeline:
    return [{"$replaceWith": document}]
