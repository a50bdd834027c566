"""Requests to the table: sent once, and the clock learns from the Date of each reply."""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from tenure.errors import BackendError, BackendMisconfigured

from tenure_dynamodb.clock import StoreClock
from tenure_dynamodb.driver import way
from tenure_dynamodb.faults import code_of, translated, unavailable

Key = dict[str, Any]
Item = dict[str, Any]

BATCH_READ = 100
BATCH_WRITE = 25
"""What DynamoDB takes in one request."""
TTL = "expires"
CREATE_STEP_S = 0.1
UNPROCESSED_PAUSE_S = 0.05


class Refused(Exception):
    """The condition of a write did not hold; ``item`` is what is there, None if the server does not tell."""

    def __init__(self, item: Item | None) -> None:
        super().__init__()
        self.item = item


class Table:
    """One table through one client, for threads; every error is a BackendError, but for Refused."""

    def __init__(self, client: Any, name: str, place: str, clock: StoreClock) -> None:
        self.name = name
        self.place = place
        self.clock = clock
        self._client = client

    @property
    def region(self) -> str | None:
        """The client's."""
        region: str | None = self._client.meta.region_name
        return region

    def close(self) -> None:
        """Close the connections that are idle."""
        self._client.close()

    def get(self, key: Key) -> Item | None:
        """The item as of the last write that was answered."""
        item: Item | None = self._send("get_item", Key=key, ConsistentRead=True).get("Item")
        return item

    def get_all(self, keys: Sequence[Key], deadline: float) -> list[Item]:
        """Those items that there are, in any order; at most ``BATCH_READ`` keys."""
        found: list[Item] = []
        left = list(keys)
        while left:
            request = {self.name: {"Keys": left, "ConsistentRead": True}}
            reply = self._request("batch_get_item", RequestItems=request)
            found += reply["Responses"].get(self.name, [])
            left = reply.get("UnprocessedKeys", {}).get(self.name, {}).get("Keys", [])
            if left:  # more than a request may carry, or throttled
                time.sleep(random.uniform(0, UNPROCESSED_PAUSE_S))
                self.check_time(deadline, f"{len(left)} of {len(keys)} jobs were not read")
        return found

    def check_time(self, deadline: float, why: str) -> None:
        """Raise BackendUnavailable once the deadline is over."""
        if time.monotonic() > deadline:
            raise unavailable(self.place, f"no answer in time; {why}", TimeoutError("the deadline is over"))

    def update(self, key: Key, **update: Any) -> None:
        """A conditional update; Refused where the condition does not hold."""
        self._send("update_item", Key=key, ReturnValuesOnConditionCheckFailure="ALL_OLD", **update)

    def put(self, item: Item, **condition: Any) -> None:
        """Put an item in the place of the one that is there; Refused where the condition does not hold."""
        told = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"} if condition else {}
        self._send("put_item", Item=item, **told, **condition)

    def put_all(self, items: Sequence[Item], deadline: float) -> None:
        """Put those items in the place of others, in no order."""
        for at in range(0, len(items), BATCH_WRITE):
            left = [{"PutRequest": {"Item": item}} for item in items[at : at + BATCH_WRITE]]
            while left:
                reply = self._request("batch_write_item", RequestItems={self.name: left})
                left = reply.get("UnprocessedItems", {}).get(self.name, [])
                if left:  # throttled
                    time.sleep(random.uniform(0, UNPROCESSED_PAUSE_S))
                self.check_time(deadline, f"{len(items) - at} of {len(items)} items were not surely written")

    def newest(self, partition: str, prefix: str, limit: int, **query: Any) -> Iterator[Item]:
        """The items with that beginning of their sort key, from the last on, at most so many."""
        start: dict[str, Any] = {}
        while limit > 0:
            reply = self._send(
                "query",
                KeyConditionExpression="pk = :pk AND begins_with(sk, :prefix)",
                ExpressionAttributeValues={":pk": {"S": partition}, ":prefix": {"S": prefix}},
                ScanIndexForward=False,
                Limit=limit,
                **start,
                **query,
            )
            yield from reply["Items"]
            limit -= len(reply["Items"])
            if "LastEvaluatedKey" not in reply:
                return
            start = {"ExclusiveStartKey": reply["LastEvaluatedKey"]}

    def delete_all(self, keys: Sequence[Key]) -> None:
        """Delete those items; what the server leaves undone stays."""
        for at in range(0, len(keys), BATCH_WRITE):
            deletes = [{"DeleteRequest": {"Key": key}} for key in keys[at : at + BATCH_WRITE]]
            self._request("batch_write_item", RequestItems={self.name: deletes})

    def create(self, deadline: float) -> None:
        """Make the table, and wait for it; many may do so at once."""
        try:
            self._send("create_table", **_DEFINITION)
        except BackendError as exc:
            if code_of_cause(exc) != "ResourceInUseException":  # another has just made it
                raise
        while not self._is_there():
            if time.monotonic() + CREATE_STEP_S > deadline:
                raise unavailable(self.place, "the table is being made; enter again", TimeoutError())
            time.sleep(CREATE_STEP_S)
        self._expire_history()

    def describe(self) -> dict[str, Any]:
        """What the server says of the table."""
        told: dict[str, Any] = self._send("describe_table")["Table"]
        return told

    def expires(self) -> bool:
        """Whether items expire by the attribute that is meant for it."""
        told = self._send("describe_time_to_live")["TimeToLiveDescription"]
        return bool(told["TimeToLiveStatus"].startswith("ENABL") and told.get("AttributeName", TTL) == TTL)

    def _is_there(self) -> bool:
        try:
            return bool(self.describe()["TableStatus"] == "ACTIVE")
        except BackendError as exc:
            if code_of_cause(exc) == "ResourceNotFoundException":
                return False
            raise

    def _expire_history(self) -> None:
        try:
            if self._send("describe_time_to_live")["TimeToLiveDescription"]["TimeToLiveStatus"].startswith("ENABL"):
                return
            self._send("update_time_to_live", TimeToLiveSpecification={"Enabled": True, "AttributeName": TTL})
        except BackendError as exc:  # dynalite has none; another may have just asked for it
            if code_of_cause(exc) not in ("UnknownOperationException", "ValidationException"):
                raise

    def _send(self, method: str, **request: Any) -> Any:
        return self._request(method, TableName=self.name, **request)

    def _request(self, method: str, **request: Any) -> Any:
        try:
            reply = getattr(self._client, method)(**request)
        except Exception as exc:  # botocore and urllib3 raise errors of many kinds
            response = getattr(exc, "response", None)
            if isinstance(response, dict):
                with suppress(BackendMisconfigured):  # a refusal says more than that it has no Date
                    self._learn(response)
            if code_of(exc) == "ConditionalCheckFailedException":
                raise Refused(response.get("Item") if response else None) from None
            raise translated(self.place, self.name, self.region, exc) from exc
        self._learn(reply)
        return reply

    def _learn(self, reply: Any) -> None:
        """Take the time from a reply."""
        date = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
        try:
            self.clock.learn(date, way.sent, way.received)
        except ValueError as exc:
            raise BackendMisconfigured(
                f"{self.place}: its replies have no Date, and no other clock of the store is known; use another server"
            ) from exc


def code_of_cause(exc: BackendError) -> str:
    """The code that DynamoDB answered."""
    return code_of(exc.__cause__) if isinstance(exc.__cause__, Exception) else ""


_DEFINITION: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "S"},
    ],
    "BillingMode": "PAY_PER_REQUEST",
}
