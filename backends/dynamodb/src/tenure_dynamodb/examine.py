"""What an operator may want to know of the table."""

import time
from collections.abc import Callable, Iterator

from tenure.errors import BackendError, BackendMisconfigured
from tenure.model import Finding

from tenure_dynamodb.clock import Moment
from tenure_dynamodb.faults import policy
from tenure_dynamodb.table import TTL, Key, Refused, Table

_DENIED = "; allow {"
"""What the message of a refusal goes on with: the policy that is needed."""
_NEVER = "attribute_exists(pk) AND attribute_not_exists(pk)"
"""A condition that never holds: a write with it changes nothing, and is refused earlier where it is not permitted."""


def examine(table: Table, probe: Key, moment: Moment, clock_error_ms: int) -> list[Finding]:
    """Findings on the table; for a thread. A question that is not permitted is a finding.

    ``probe`` is the key of an item that there never is.
    """
    doubt = f"known to {moment.doubt_ms / 2:.0f} ms, promised are {clock_error_ms} ms"
    return [Finding("time", "ok", doubt), _rights(table, probe), *_table(table), *_expiry(table)]


def _rights(table: Table, probe: Key) -> Finding:
    calls: dict[str, Callable[[], object]] = {
        "PutItem": lambda: table.put(probe, ConditionExpression=_NEVER),
        "UpdateItem": lambda: table.update(probe, UpdateExpression="REMOVE probe", ConditionExpression=_NEVER),
        "Query": lambda: list(table.newest(probe["pk"]["S"], "probe", 1)),
        "BatchGetItem": lambda: table.get_all([probe], time.monotonic()),
        "BatchWriteItem": lambda: table.delete_all([probe]),
    }
    missing = [action for action, call in calls.items() if not _may(call)]
    if not missing:
        return Finding("rights", "ok", "the credentials allow what is needed")
    text = f"the credentials do not allow {', '.join(missing)}"
    return Finding("rights", "wrong", text, f"allow {policy(table.name, table.region)}")


def _may(call: Callable[[], object]) -> bool:
    try:
        call()
    except Refused:  # it was permitted, and its condition did not hold
        return True
    except BackendMisconfigured as error:
        if _DENIED not in str(error):
            raise
        return False
    return True


def _table(table: Table) -> Iterator[Finding]:
    try:
        told = table.describe()
    except BackendError as error:
        yield _unknown("table", "dynamodb:DescribeTable", error)
        return
    throughput = told.get("ProvisionedThroughput", {})
    provisioned = throughput.get("WriteCapacityUnits", 0)
    items = told.get("ItemCount", 0)
    if provisioned:
        text = f"{items} items, {provisioned} writes a second are provisioned"
        yield Finding("table", "warning", text, "bill it on demand: a throttled heartbeat is a lost one")
    else:
        yield Finding("table", "ok", f"{items} items, billed on demand")
    if told.get("Replicas"):
        remedy = "let all instances use one region, or a table with multi-region strong consistency"
        yield Finding("replicas", "warning", "a global table: two regions can win one run", remedy)


def _expiry(table: Table) -> Iterator[Finding]:
    try:
        expires = table.expires()
    except BackendError as error:
        yield _unknown("expiry", "dynamodb:DescribeTimeToLive", error)
        return
    if expires:
        yield Finding("expiry", "ok", f"items expire by {TTL!r}")
    else:
        remedy = f"aws dynamodb update-time-to-live … Enabled=true,AttributeName={TTL}"
        yield Finding("expiry", "warning", "records and cards of removed jobs stay for ever", remedy)


def _unknown(what: str, action: str, error: BackendError) -> Finding:
    return Finding(what, "ok", f"not known: {type(error.__cause__).__name__}; allow {action} to be told")
