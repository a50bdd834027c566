"""The keys of a namespace and its jobs: one hash tag per job, different for different names."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

_QUOTED: Final = {ord(char): f"%{ord(char):02X}" for char in "%{}:*?[]\\ "}
"""What would end the hash tag or a part of it, or would mean something in an ACL's pattern."""


@lru_cache(maxsize=10_000)  # a scheduler asks for the same jobs again and again
def _quoted(name: str) -> str:
    return name.translate(_QUOTED)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a namespace, and their channels."""

    namespace: str
    prefix: str = field(init=False)
    """What all keys and channels of the namespace begin with, and none of another."""

    def __post_init__(self) -> None:
        """Make the prefix."""
        object.__setattr__(self, "prefix", f"tenure:{{{_quoted(self.namespace)}:")

    @property
    def store(self) -> str:
        """The key that says that there is a store, and its format; no job has an empty name."""
        return f"{self.prefix}}}"

    @property
    def cards(self) -> str:
        """The hash of the jobs' cards."""
        return f"{self.prefix}}}:cards"

    @property
    def probe(self) -> str:
        """A key that is there only while a script looks what it may do."""
        return f"{self.prefix}}}:probe"

    def runs(self, job: str) -> str:
        """The hash of the job's runs, and the channel of its hints."""
        return f"{self.prefix}{_quoted(job)}}}:runs"

    def results(self, job: str) -> str:
        """The sorted set of the job's records."""
        return f"{self.prefix}{_quoted(job)}}}:results"
