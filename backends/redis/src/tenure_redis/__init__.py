"""The Redis backend of tenure: instances on any number of hosts schedule together through Redis or Valkey."""

from tenure_redis.backend import RedisBackend, from_url

__all__ = ["RedisBackend", "from_url"]
