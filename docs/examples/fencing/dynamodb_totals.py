"""Totals in DynamoDB that refuse a stale attempt: a condition on the item."""

from typing import Any

import boto3  # type: ignore[import-untyped]  # it has none
from botocore.exceptions import ClientError  # type: ignore[import-untyped]  # it has none
from tenure import Context

CONDITION = "attribute_not_exists(fence) OR fence <= :fence"


class Stale(Exception):
    """A newer attempt has taken or written the item."""


def connect(name: str) -> Any:
    """Give the table; its key is ``region``, a string."""
    return boto3.resource("dynamodb").Table(name)


def take(table: Any, region: str, ctx: Context) -> int:
    """Give the total; from here on no older attempt can write."""
    return int(_update(table, region, "SET fence = :fence", {":fence": ctx.fence}).get("total", 0))


def save(table: Any, region: str, total: int, ctx: Context) -> None:
    """Write the total; Stale if a newer attempt was here."""
    words = {"ExpressionAttributeNames": {"#total": "total"}}  # which is a word of the language's own
    _update(table, region, "SET #total = :total, fence = :fence", {":total": total, ":fence": ctx.fence}, **words)


def _update(table: Any, region: str, expression: str, values: dict[str, int], **words: Any) -> dict[str, Any]:
    try:
        reply = table.update_item(
            Key={"region": region},
            UpdateExpression=expression,
            ConditionExpression=CONDITION,
            ExpressionAttributeValues=values,
            ReturnValues="ALL_NEW",
            **words,
        )
    except ClientError as error:
        if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
            raise Stale(region) from None
        raise
    attributes: dict[str, Any] = reply["Attributes"]
    return attributes
