"""The decisions of docs/protocol.md, sections 3 and 4, as update pipelines: pure functions that build them.

A job's document is ``{_id, fence, floor, runs}``, its runs in the order of their slots. A run has the fields of
``tenure.decision.RunState``, with two differences: ``expires_at`` is there only while the run is open, so that the
greatest one tells whether any lease is live; ``released_at``, the end of the lease, only once it is released. A win
reduces ended runs to what may still be asked of them. What changes nothing leaves the document as it was, and the
server then writes nothing.

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
AS_IT_WAS = "$$ROOT"
NEWEST: Document = {"$max": ["$floor", {"$max": "$runs.slot"}]}
ENDED: Document = {
    "slot": "$$this.slot",
    "attempt": "$$this.attempt",
    "token": "$$this.token",
    "status": either(UNFINISHED, "superseded", "$$this.status"),
    "previous": either({"$eq": ["$$this.status", "exhausted"]}, "$$this.previous", "$$REMOVE"),
}
"""What may still be asked of a run that ended, or is superseded now."""
FORGOTTEN = ("used", "fence", "holder", "lease_ms", "started_at", "expires_at", "previous")
"""What is not asked any more of a run that was finished."""
SOME_UNFINISHED: Document = {"$gt": [{"$max": "$$others.used"}, None]}
"""Some of ``$$others`` are; those that ended have no such field."""
TOO_MANY = both(UNFINISHED, {"$lte": ["$$this.slot", "$$crowd"]}, {"$lte": ["$$this.expires_at", NOW]})
"""Under ``allow``: the run is beyond the newest unfinished ones, and its lease is over."""


def win(claim: Claim) -> Pipeline:
    """Rows 8 and 14: the document with the run won by this claim, or as it was; it may be missing before row 14."""
    if claim.after:
        return _decided(_take_over(claim))
    return _decided(AS_IT_WAS if claim.mode == "takeover" else _start(claim))


def renew(claim: Claim) -> Pipeline:
    """Row 2: the lease that the token holds, renewed."""
    allowed = both(_own(claim), any_of(_live("$$claimed"), _way_is_free(claim)))
    return _decided(_on_claimed(claim, either(allowed, _replacing(claim, _renewed(claim.lease_ms)), AS_IT_WAS)))


def exhaust(claim: Claim) -> Pipeline:
    """Row 6: the run, ended since its attempts are used up."""
    newer = {"$gt": [NEWEST, claim.slot]} if claim.overlap == "skip" else False
    row_2 = both(_own(claim), _way_is_free(claim))
    used_up = {"$gte": ["$$claimed.used", min(claim.max_attempts, LARGEST)]}
    allowed = both(_over(claim), used_up, no(newer), no(row_2))
    ended = changed("$$this", "expires_at", status="exhausted", previous=[_lost("$$this")])
    return _decided(_on_claimed(claim, either(allowed, _replacing(claim, ended), AS_IT_WAS)))


def facts(claim: Claim) -> Document:
    """A projection: all that the decision of this claim depends on, and nothing else of the document."""
    asked: Expression = {"$eq": ["$$this.slot", claim.slot]}
    if claim.overlap == "skip":
        asked = any_of({"$gte": ["$$this.slot", claim.slot]}, {"$gt": ["$$this.expires_at", NOW]})
    return {"_id": 0, "now": NOW, "fence": 1, "floor": 1, "runs": where(asked, of="$runs")}


def unfinished() -> Document:
    """A projection: a job's unfinished runs."""
    return {"now": NOW, "runs": where(UNFINISHED, of="$runs")}


def held(slot: int, token: str, *statuses: str) -> Document:
    """A filter: the run has one of these statuses, and the token holds it or did so last."""
    return {"runs": {"$elemMatch": {"slot": slot, "token": token, "status": {"$in": list(statuses)}}}}


def heartbeat(slot: int) -> Pipeline:
    """The run's lease, renewed for the length that it has."""
    return _with_run(slot, _renewed("$$this.lease_ms"))


def finish(status: Ending) -> Document:
    """The run that the filter found, ended, with what may still be asked of it; no pipeline costs as little."""
    return {"$set": {"runs.$.status": status}, "$unset": {f"runs.$.{name}": "" for name in FORGOTTEN}}


def run(slot: int) -> Document:
    """A projection: the run of a job."""
    return {"_id": 0, "fence": 1, "floor": 1, "runs": where({"$eq": ["$$this.slot", slot]}, of="$runs")}


def release(slot: int) -> Pipeline:
    """The run, its lease over and its attempt given back, once."""
    fields = {
        "status": "released",
        "used": {"$subtract": ["$$this.used", 1]},
        "released_at": {"$min": ["$$this.expires_at", NOW]},
    }
    return _with_run(slot, _if_open(changed("$$this", "expires_at", **fields)))


def _start(claim: Claim) -> Expression:
    """Row 14, where none of the rows 9 to 13 fits."""
    conditions: list[Expression] = [{"$gte": [NOW, DatetimeMS(claim.slot - EARLY_MS)]}]
    if claim.max_late_ms is not None:
        conditions.append({"$lte": [NOW, DatetimeMS(min(claim.slot + claim.max_late_ms, LARGEST))]})
    if claim.overlap == "skip":
        conditions += [{"$lt": [NEWEST, claim.slot]}, _nothing_is_live("$runs")]
    else:
        conditions += [{"$lt": ["$floor", claim.slot]}, no({"$in": [claim.slot, default("$runs.slot", [])]})]
    won = _with_won(claim, others=default("$runs", []), used=1, lost=[])
    return either(both(*conditions), won, AS_IT_WAS)


def _take_over(claim: Claim) -> Expression:
    """Row 8, where none of the rows 1 to 7 fits."""
    left = {"$lt": ["$$claimed.used", min(claim.max_attempts, LARGEST)]}
    allowed = both(_over(claim), left, _way_is_free(claim), no(_own(claim)))
    used = {"$add": ["$$claimed.used", 1]}
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
        unfinished, {"$lte": ["$$claimed.expires_at", NOW]}, {"$eq": ["$$claimed.attempt", min(claim.after, LARGEST)]}
    )


def _own(claim: Claim) -> Expression:
    """The claim's token holds the run, be its lease over or not."""
    return both({"$eq": ["$$claimed.status", "open"]}, {"$eq": ["$$claimed.token", text(claim.token)]})


def _live(run: str) -> Expression:
    return {"$gt": [f"{run}.expires_at", NOW]}


def _nothing_is_live(runs: str) -> Expression:
    return {"$lte": [{"$max": f"{runs}.expires_at"}, NOW]}


def _way_is_free(claim: Claim) -> Expression:
    """Under ``skip`` no newer run has started, and no other run's lease is live."""
    if claim.overlap == "allow":
        return True
    return both({"$lte": [NEWEST, claim.slot]}, let(_nothing_is_live("$$others"), others=_others(claim)))


def _with_won(claim: Claim, *, others: Expression, used: Expression, lost: list[Expression]) -> Expression:
    """The document with the run won, others superseded, and what is too much of them dropped."""
    superseded = every(_lost("$$this"), of=where(_superseded(claim), of="$$others"))
    told = {
        "slot": claim.slot,
        "attempt": min(claim.after, LARGEST) + 1,
        "token": claim.token,
        "holder": claim.instance,
        "lease_ms": claim.lease_ms,
        "status": "open",
    }
    decided = {
        "used": used,
        "fence": "$$fence",
        "started_at": NOW,
        "expires_at": {"$add": [NOW, claim.lease_ms]},
        "previous": either(SOME_UNFINISHED, {"$concatArrays": [lost, superseded]}, lost),
    }
    run = {"$mergeObjects": [text(told), decided]}
    kept = _alone(run) if claim.overlap == "skip" else _among_others(run, claim.slot)
    fence = {"$max": [{"$add": ["$fence", 1]}, {"$toLong": NOW}]}
    return let(kept, others=others, fence=fence)


def _superseded(claim: Claim) -> Expression:
    """Whether this win supersedes ``$$this``."""
    return UNFINISHED if claim.overlap == "skip" else TOO_MANY


def _alone(run: Document) -> Expression:
    """Under ``skip``: all other runs are older, and ended from now on."""
    keep = KEPT_ENDED["skip"]
    ended = {"$slice": [either(SOME_UNFINISHED, every(ENDED, of="$$others"), "$$others"), -keep]}
    return _document({"$concatArrays": [ended, [run]]}, dropped={"$arrayElemAt": ["$$others.slot", -keep - 1]})


def _among_others(run: Document, slot: int) -> Expression:
    """Under ``allow``: unfinished runs stay, unless there are too many."""
    kept = any_of(UNFINISHED, {"$gt": ["$$this.slot", "$$dropped"]})
    before = where(both(kept, {"$lt": ["$$this.slot", slot]}), of="$$closed")
    after = where(both(kept, {"$gt": ["$$this.slot", slot]}), of="$$closed")
    ended = where(no(UNFINISHED), of="$$closed")
    document = _document({"$concatArrays": [before, [run], after]}, dropped="$$dropped")
    document = let(document, dropped={"$arrayElemAt": [_slots(ended), -KEPT_ENDED["allow"] - 1]})
    document = let(document, closed=every(either(both(UNFINISHED, no(TOO_MANY)), "$$this", ENDED), of="$$others"))
    return let(document, crowd={"$arrayElemAt": [_slots(where(UNFINISHED, of="$$others")), -KEPT_UNFINISHED]})


def _document(runs: Expression, *, dropped: Expression) -> Document:
    """The job's document; its floor is the newest slot of which a record was ever dropped."""
    return {"_id": "$_id", "fence": "$$fence", "floor": {"$max": [-1, "$floor", dropped]}, "runs": runs}


def _slots(runs: Expression) -> Expression:
    return every("$$this.slot", of=runs)


def _lost(run: str) -> Document:
    """The run's attempt as its successor is told of it."""
    return {
        **{name: f"{run}.{name}" for name in ("slot", "attempt", "fence", "holder", "started_at")},
        "ended_at": default(f"{run}.released_at", f"{run}.expires_at"),
        "released": {"$eq": [f"{run}.status", "released"]},
    }


def _renewed(lease_ms: Expression) -> Expression:
    """``$$this`` with a lease of that length from now, or from the renewal that is stored if that is later."""
    renewed_at = {"$max": [NOW, {"$subtract": ["$$this.expires_at", "$$this.lease_ms"]}]}
    return changed("$$this", lease_ms=lease_ms, expires_at={"$add": [renewed_at, lease_ms]})


def _if_open(run: Expression) -> Expression:
    return either({"$eq": ["$$this.status", "open"]}, run, "$$this")


def _with_run(slot: int, run: Expression) -> Pipeline:
    return [{"$set": {"runs": every(either({"$eq": ["$$this.slot", slot]}, run, "$$this"), of="$runs")}}]


def _replacing(claim: Claim, run: Expression) -> Expression:
    return {"$mergeObjects": [AS_IT_WAS, _with_run(claim.slot, run)[0]["$set"]]}


def _decided(document: Expression) -> Pipeline:
    return [{"$replaceWith": document}]
