"""The fence in the handler's own transaction, which then cannot commit for an owner that was replaced."""

import random
from typing import Any, Protocol

from psycopg.sql import SQL, Composed, Identifier
from tenure.context import Context
from tenure.errors import InvalidClaim
from tenure.model import check_name

_REMOVALS = 1 / 64
"""How often a guarded run also removes the scopes of runs that are long past."""
_KEPT = 1_000
"""Runs of a job whose fences are remembered where each run is a scope, the newest."""

_GUARD = SQL(
    """
with removed as (
    delete from {schema}.fences where %(remove)s and ctid = any (array(
        select ctid from {schema}.fences
        where namespace = %(namespace)s and job = %(job)s and slot between 0 and (
            select slot from {schema}.fences where namespace = %(namespace)s and job = %(job)s
            order by slot desc limit 1 offset %(kept)s
        )
        for update skip locked
    ))
)
insert into {schema}.fences as guarded values (%(namespace)s, %(job)s, %(slot)s, %(fence)s, coalesce((
    select fence from {schema}.jobs where namespace = %(namespace)s and job = %(job)s and %(slot)s::bigint < 0
    union all
    select fence from {schema}.runs where namespace = %(namespace)s and job = %(job)s and slot = %(slot)s
), 0))
on conflict (namespace, job, slot) do update
    set fence = excluded.fence, known = greatest(excluded.known, guarded.fence)
"""
)


class Cursor(Protocol):
    """A psycopg cursor or connection, synchronous or asynchronous."""

    def execute(self, query: Composed, params: dict[str, Any], /) -> Any:
        """Execute, or give what executes when it is awaited."""


def guard(cursor: Cursor, ctx: Context, *, namespace: str = "tenure", schema: str = "tenure") -> Any:
    """Fail the transaction of a handler whose run another instance has taken over; call it just before the commit.

    It locks the run's fence scope (the job under ``skip``, the run under ``allow``) until the transaction ends, and
    raises psycopg.errors.CheckViolation, of the constraint ``stale_fence``, if a greater fence was seen there or
    granted. ``await guard(…)`` with an asynchronous cursor. The database needs the schema that ``tenure migrate``
    makes, and may be another one than the store's.
    """
    check_name(namespace, "namespace")
    if not ctx.fence:
        raise InvalidClaim("ctx.fence is 0: a claim-only backend has no fences, so nothing can be guarded")
    per_run = ctx.fence_scope == "run"
    parameters = {
        "namespace": namespace,
        "job": ctx.job,
        "slot": ctx.slot_ms if per_run else -1,
        "fence": ctx.fence,
        "remove": per_run and random.random() < _REMOVALS,
        "kept": _KEPT,
    }
    return cursor.execute(_GUARD.format(schema=Identifier(schema)), parameters)
