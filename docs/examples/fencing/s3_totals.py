"""Totals in objects of S3, or of a store like it, that refuse a stale attempt: conditional writes."""

import json
from typing import Any

import boto3  # type: ignore[import-untyped]  # it has none
from botocore.exceptions import ClientError  # type: ignore[import-untyped]  # it has none
from tenure import Context

REPLACED = {"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"}
"""It is not the one that was read: replaced, being replaced now, or removed."""


class Stale(Exception):
    """A newer attempt has taken or written the object."""


def connect(name: str) -> Any:
    """Give the bucket."""
    return boto3.resource("s3").Bucket(name)


def take(bucket: Any, region: str, ctx: Context) -> int:
    """Give the total; from here on no older attempt can write."""
    return _replace(bucket, region, ctx, None)


def save(bucket: Any, region: str, total: int, ctx: Context) -> None:
    """Write the total; Stale if a newer attempt was here."""
    _replace(bucket, region, ctx, total)


def _replace(bucket: Any, region: str, ctx: Context, total: int | None) -> int:
    while True:
        known, unchanged = _read(bucket, region)
        if known["fence"] > ctx.fence:
            raise Stale(region)
        new = {"fence": ctx.fence, "total": known["total"] if total is None else total}
        try:
            bucket.put_object(Key=region, Body=json.dumps(new).encode(), **unchanged)
        except ClientError as error:
            if error.response["Error"]["Code"] not in REPLACED:
                raise
        else:
            return new["total"]


def _read(bucket: Any, region: str) -> tuple[dict[str, int], dict[str, str]]:
    """What the object says, and the condition that it says so still."""
    try:
        reply = bucket.Object(region).get()
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchKey":
            raise
        return {"fence": 0, "total": 0}, {"IfNoneMatch": "*"}
    # The fence is in the body: the ETag is that of the body, so a change of the metadata alone would go unnoticed.
    return json.loads(reply["Body"].read()), {"IfMatch": reply["ETag"]}
