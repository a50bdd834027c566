"""Totals in Redis that refuse a stale attempt: compare and write in one script."""

import redis
from tenure import Context

GUARD = """
if tonumber(redis.call("HGET", KEYS[1], "fence") or 0) > tonumber(ARGV[1]) then
  return redis.error_reply("STALE a newer attempt has written")
end
redis.call("HSET", KEYS[1], "fence", ARGV[1])
"""
TAKE = GUARD + 'return tonumber(redis.call("HGET", KEYS[1], "total") or 0)'
SAVE = GUARD + 'return redis.call("HSET", KEYS[1], "total", ARGV[2])'


class Stale(Exception):
    """A newer attempt has taken or written the total."""


def connect(url: str) -> redis.Redis:
    """Open the client."""
    return redis.Redis.from_url(url)


def take(client: redis.Redis, region: str, ctx: Context) -> int:
    """Give the total; from here on no older attempt can write."""
    return _guarded(client, TAKE, region, ctx.fence)


def save(client: redis.Redis, region: str, total: int, ctx: Context) -> None:
    """Write the total; Stale if a newer attempt was here."""
    _guarded(client, SAVE, region, ctx.fence, total)


def _guarded(client: redis.Redis, script: str, region: str, *values: int) -> int:
    try:
        return int(client.eval(script, 1, f"totals:{region}", *values))
    except redis.ResponseError as error:
        if str(error).startswith("STALE"):
            raise Stale(region) from None
        raise
