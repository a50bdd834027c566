"""What a server says of itself, and what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Server:
    """A server, as its INFO describes it."""

    replica: bool
    durable: bool
    """Whether it writes what it was told to a file before long, so that a restart loses nothing."""
    policy: str
    """What it does when its memory is full."""
    kind: str = ""
    """Its name and version."""
    replicas: int = 0
    memory: int = 0
    memory_limit: int = 0
    """In bytes; 0 for none."""

    @property
    def evicts(self) -> bool:
        """Whether it may forget jobs when its memory is full; theirs are keys without an expiry."""
        return self.policy.startswith("allkeys")


def server_of(info: bytes) -> Server:
    """The server of that INFO."""
    known = _fields(info.decode("utf-8", "replace"))
    return Server(
        replica=known.get("role") == "slave",
        durable=known.get("aof_enabled") == "1",
        policy=known.get("maxmemory_policy", ""),
        kind=_kind(known),
        replicas=int(known.get("connected_slaves", "0")),
        memory=int(known.get("used_memory", "0")),
        memory_limit=int(known.get("maxmemory", "0")),
    )


def _kind(known: Mapping[str, str]) -> str:
    if "valkey_version" in known:
        return f"Valkey {known['valkey_version']}"
    return f"Redis {known.get('redis_version', 'of an unknown version')}"


def _fields(info: str) -> Mapping[str, str]:
    pairs = (line.partition(":") for line in info.splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}
