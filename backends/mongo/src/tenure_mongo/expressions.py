"""Words for aggregation expressions, so that a pipeline reads as what it decides."""

from typing import Any

Expression = Any
Document = dict[str, Any]


def every(run: Expression, *, of: Expression) -> Expression:
    """For each of the runs, as ``$$this``, what ``run`` makes of it."""
    return {"$map": {"input": of, "as": "this", "in": run}}


def where(condition: Expression, *, of: Expression) -> Expression:
    """Those of the runs, as ``$$this``, for which the condition is true."""
    return {"$filter": {"input": of, "as": "this", "cond": condition}}


def let(expression: Expression, **variables: Expression) -> Expression:
    """The expression with these variables, ``$$name``."""
    return {"$let": {"vars": variables, "in": expression}}


def either(condition: Expression, then: Expression, otherwise: Expression) -> Expression:
    """One or the other."""
    return {"$cond": [condition, then, otherwise]}


def default(value: Expression, instead: Expression) -> Expression:
    """The value, or the other one where it is missing."""
    return {"$ifNull": [value, instead]}


def both(*conditions: Expression) -> Expression:
    """All of the conditions."""
    return {"$and": list(conditions)}


def any_of(*conditions: Expression) -> Expression:
    """One of the conditions at least."""
    return {"$or": list(conditions)}


def no(condition: Expression) -> Expression:
    """Not the condition."""
    return {"$not": condition}


def text(value: str | Document) -> Expression:
    """The text itself, also where it begins with a dollar sign; or what consists of such texts and numbers."""
    return {"$literal": value}


def changed(run: Expression, without: str = "", **fields: Expression) -> Expression:
    """The run with these fields, and without that one."""
    merged = {"$mergeObjects": [run, fields]}
    return {"$unsetField": {"field": without, "input": merged}} if without else merged
