"""What an operator may want to know of the table."""

from collections.abc import Iterator

from tenure.errors import BackendError
from tenure.model import Finding

from tenure_dynamodb.clock import Moment
from tenure_dynamodb.table import TTL, Table


def examine(table: Table, moment: Moment, clock_error_ms: int) -> list[Finding]:
    """Findings on the table; for a thread. A question that is not permitted is a finding."""
    doubt = f"known to {moment.doubt_ms / 2:.0f} ms, promised are {clock_error_ms} ms"
    return [Finding("time", "ok", doubt), *_table(table), *_expiry(table)]


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
