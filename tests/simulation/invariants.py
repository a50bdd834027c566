"""What must hold in every simulation: each invariant has a name, and the sentence of the protocol it comes from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .history import History

EPS_S = 0.002
"""The store's clock has whole milliseconds."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be: which invariant says so, when it was, and whom it concerns."""

    invariant: str
    anchor: str
    at_s: float
    text: str
    job: str
    slot: int | None

    def __str__(self) -> str:
        return f"{self.invariant} (docs/protocol.md#{self.anchor}) at {self.at_s:.3f} s: {self.text}"


@dataclass(frozen=True, slots=True)
class Found:
    """What an invariant yields."""

    at_s: float
    text: str
    job: str = ""
    slot: int | None = None


Judge = Callable[[History], Iterator[Found]]


@dataclass(frozen=True, slots=True)
class Invariant:
    name: str
    anchor: str
    judge: Judge


INVARIANTS: dict[str, Invariant] = {}


def invariant(anchor: str) -> Callable[[Judge], Judge]:
    """Register a function under its name; ``anchor`` is the sentence of docs/protocol.md that it watches over."""

    def register(judge: Judge) -> Judge:
        name = judge.__name__.strip("_").replace("_", "-")
        assert name not in INVARIANTS, name
        INVARIANTS[name] = Invariant(name, anchor, judge)
        return judge

    return register
