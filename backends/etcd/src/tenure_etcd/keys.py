"""Where things are kept: keys that can be read, and never meet those of another job, namespace or application."""

from dataclasses import dataclass

from tenure.model import MAX_SLOT

KEPT = 4_096
"""Jobs whose keys are kept at hand."""
HIGHEST_ATTEMPT = 10**15
"""Attempts are counted down from it in keys, so that the newest record comes first."""


def quoted(name: str) -> str:
    """A name as one part of a key: no other name has the same, and it holds no slash."""
    return name.replace("%", "%25").replace("/", "%2F")


def range_end(prefix: bytes) -> bytes:
    """The end of the range of all keys with a prefix that ends in a slash."""
    return prefix[:-1] + b"0"  # the character after the slash


class Layout:
    """The keys of a namespace."""

    def __init__(self, root: str, namespace: str) -> None:
        self.prefix: str = f"{root}/{quoted(namespace)}/"
        self.format: bytes = f"{self.prefix}format".encode()
        self.cards: bytes = f"{self.prefix}card/".encode()
        self._jobs: dict[str, JobKeys] = {}

    def job(self, name: str) -> "JobKeys":
        """The keys of a job."""
        known = self._jobs.get(name)
        if known is None:
            if len(self._jobs) >= KEPT:
                self._jobs.clear()
            known = self._jobs[name] = JobKeys.of(name, f"{self.prefix}run/{quoted(name)}/".encode())
        return known

    def history(self, job: str) -> bytes:
        """What the keys of a job's records begin with."""
        return f"{self.prefix}log/{quoted(job)}/".encode()

    def card(self, job: str) -> bytes:
        """The key of a job's card."""
        return self.cards + quoted(job).encode()


@dataclass(frozen=True, slots=True)
class JobKeys:
    """The keys of a job's state: one for all of its runs, and two for each place of a run that is not ended.

    Places are numbers that are used again and again: etcd remembers a deleted key until it is compacted, and a range
    with many of them becomes slow.
    """

    name: str
    prefix: bytes
    end: bytes
    state: bytes

    @classmethod
    def of(cls, name: str, prefix: bytes) -> "JobKeys":
        """The keys with that prefix."""
        return cls(name, prefix, range_end(prefix), prefix + b"state")

    def live(self, place: int) -> bytes:
        """Is there while the lease of the run in that place is live: it hangs on the lease."""
        return b"%slive/%d" % (self.prefix, place)

    def beat(self, place: int) -> bytes:
        """When the lease of the run in that place ends, as of its last heartbeat."""
        return b"%sbeat/%d" % (self.prefix, place)

    @property
    def lives(self) -> bytes:
        """What the keys of ``live`` begin with."""
        return self.prefix + b"live/"


def record_key(history: bytes, slot: int, attempt: int) -> bytes:
    """The key of a record; the newest comes first."""
    return b"%s%015d/%016d" % (history, MAX_SLOT - slot, HIGHEST_ATTEMPT - min(attempt, HIGHEST_ATTEMPT))
