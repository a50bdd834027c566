"""Totals in MongoDB that refuse a stale attempt: one update with a pipeline, which compares inside."""

from typing import Any

from pymongo import MongoClient, ReturnDocument
from pymongo.collection import Collection
from tenure import Context

Totals = Collection[dict[str, Any]]


class Stale(Exception):
    """A newer attempt has taken or written the total."""


def connect(url: str) -> Totals:
    """Open the collection; a fence that a failover may take back would guard nothing, so a majority has to have it."""
    client: MongoClient[dict[str, Any]] = MongoClient(url, w="majority")
    return client["app"]["totals"]


def take(totals: Totals, region: str, ctx: Context) -> int:
    """Give the total; from here on no older attempt can write."""
    return int(_update(totals, region, ctx).get("total", 0))


def save(totals: Totals, region: str, total: int, ctx: Context) -> None:
    """Write the total; Stale if a newer attempt was here."""
    newest = {"$lte": ["$fence", ctx.fence]}
    _update(totals, region, ctx, {"total": {"$cond": [newest, {"$literal": total}, "$total"]}})


def _update(totals: Totals, region: str, ctx: Context, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    # The filter is the key alone: with the fence in it, of two upserts that race even the newer one may fail.
    pipeline = [{"$set": {**(changes or {}), "fence": {"$max": ["$fence", ctx.fence]}}}]
    after = totals.find_one_and_update({"_id": region}, pipeline, upsert=True, return_document=ReturnDocument.AFTER)
    assert after is not None
    if after["fence"] > ctx.fence:
        raise Stale(region)
    return after
