"""The conditional writes: each carries a call out if its condition proves how the call is answered. Pure."""

from typing import Any, TypedDict

from tenure.decision import KEPT_UNFINISHED
from tenure.model import Claim, Ending

from tenure_dynamodb import item
from tenure_dynamodb.item import LAYOUT, MOST_CALLS, Known

ROOM = {"skip": 1, "allow": KEPT_UNFINISHED}
"""Fewer unfinished runs than this, and a first claim of a newer slot is won and supersedes nothing."""

_WIN = (
    "SET newest = :slot, fence = :now, unfinished = if_not_exists(unfinished, :zero) + :one,"
    " calls = list_append(if_not_exists(calls, :none), :call) ADD held :held"
)
_KNOWN = "(attribute_not_exists(layout) OR layout = :layout)"
"""No later version has written the item since it was last read."""
_CAN_WIN = (
    "attribute_not_exists(pk) OR newest < :slot AND fence < :now AND unfinished < :room AND size(calls) < :most"
    f" AND {_KNOWN}"
)
_RENEW = "SET calls = list_append(calls, :call)"
_END = "SET unfinished = unfinished - :one, calls = list_append(calls, :call) DELETE held :held"
_RELEASE = "SET calls = list_append(calls, :call) DELETE held :held"
_HOLDS = f"contains(held, :holder) AND size(calls) < :most AND {_KNOWN}"
_UNCHANGED = "stamp = :stamp AND size(calls) = :calls"
_UNCHANGED_SINCE_NEW = "attribute_not_exists(stamp) AND size(calls) = :calls"
_NEW = "attribute_not_exists(pk)"


class Update(TypedDict):
    """What ``update_item`` is given besides the key."""

    UpdateExpression: str
    ConditionExpression: str
    ExpressionAttributeValues: dict[str, Any]


def win(claim: Claim, now: int) -> Update:
    """Win attempt 1 of a slot newer than all that were started, with nothing in its way."""
    values = {
        ":slot": _number(claim.slot),
        ":now": _number(now),
        ":zero": _number(0),
        ":one": _number(1),
        ":none": {"L": []},
        ":call": _calls(item.claimed(claim, now)),
        ":held": {"BS": [item.holder(claim.slot, claim.token)]},
        ":room": _number(ROOM[claim.overlap]),
        ":most": _number(MOST_CALLS),
        ":layout": _number(LAYOUT),
    }
    return _update(_WIN, _CAN_WIN, values)


def renew(slot: int, token: str, now: int) -> Update:
    """Renew the lease that the token holds."""
    return _update(_RENEW, _HOLDS, _held(slot, token, item.renewed(slot, token, now)))


def finish(slot: int, token: str, status: Ending) -> Update:
    """End the run that the token holds."""
    values = _held(slot, token, item.finished(slot, token, status))
    return _update(_END, _HOLDS, {**values, ":one": _number(1), ":held": {"BS": [values[":holder"]["B"]]}})


def release(slot: int, token: str, now: int) -> Update:
    """Release the run that the token holds."""
    values = _held(slot, token, item.released(slot, token, now))
    return _update(_RELEASE, _HOLDS, {**values, ":held": {"BS": [values[":holder"]["B"]]}})


def unchanged(known: Known) -> dict[str, Any]:
    """The condition that nothing was written since the item was read, and its values, for ``put_item``."""
    if not known.exists:
        return {"ConditionExpression": _NEW}
    calls = {":calls": _number(known.calls)}
    if known.stamp is None:
        return {"ConditionExpression": _UNCHANGED_SINCE_NEW, "ExpressionAttributeValues": calls}
    return {"ConditionExpression": _UNCHANGED, "ExpressionAttributeValues": {":stamp": {"B": known.stamp}, **calls}}


def _held(slot: int, token: str, call: str) -> dict[str, Any]:
    return {
        ":holder": {"B": item.holder(slot, token)},
        ":call": _calls(call),
        ":most": _number(MOST_CALLS),
        ":layout": _number(LAYOUT),
    }


def _update(update: str, condition: str, values: dict[str, Any]) -> Update:
    return {"UpdateExpression": update, "ConditionExpression": condition, "ExpressionAttributeValues": values}


def _calls(call: str) -> dict[str, Any]:
    return {"L": [{"S": call}]}


def _number(value: int) -> dict[str, str]:
    return {"N": str(value)}
