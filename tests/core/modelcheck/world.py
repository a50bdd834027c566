"""A state of the model: the store, the instances, the messages on their way, and what may still go wrong."""

from dataclasses import dataclass, field
from typing import NamedTuple

from .store import Decision, Reply, Request

NAMES = "AB"
HOLDING = ("run", "finish")


NONE: tuple[()] = ()
"""No call, no answer: unlike None it can be ordered."""


class Call(NamedTuple):
    """A call on its way, and its answer once the store has acted."""

    age: int = 0
    """Ticks since it was started, LEASE for any more; counted only while a lease may count from it."""
    reply: Reply | tuple[()] = NONE


class Task(NamedTuple):
    """What an instance does about one slot.

    Phases: wait (for the timer), claim, run (the handler executes), finish, release, watch, over.
    """

    phase: str
    after: int = 0
    takeover: bool = False
    left: int = 0
    """Ticks until the holder's own deadline."""
    told: str = ""
    """Why the handler was told to stop: stop or loss."""
    call: Call | tuple[()] = NONE
    beat: Call | tuple[()] = NONE
    zombie: bool = False
    """An earlier handler of the run still executes; only a broken rule lets that be."""
    token: str = ""


WAIT, OVER = Task("wait"), Task("over")


class Instance(NamedTuple):
    """Status: up, stopping or down. A frozen instance does nothing, and time goes on for it."""

    tasks: tuple[Task, ...]
    status: str = "up"
    frozen: bool = False


class Budget(NamedTuple):
    """How many misfortunes may still happen. A delay is a call given up, or one that takes a whole lease."""

    delays: int = 0
    duplicates: int = 0
    crashes: int = 0
    restarts: int = 0
    freezes: int = 0
    stops: int = 0


class Past(NamedTuple):
    """What no instance and no store needs to remember, but properties do; one number for each slot."""

    fences: tuple[int, ...]
    """Of the last handler started, counted from the store's newest fence, which is 0."""
    starts: tuple[int, ...]
    """Handlers started, less those that a stop gave back."""
    successes: tuple[int, ...]
    """Events."""


class World(NamedTuple):
    """A state of the model."""

    store: int
    instances: tuple[Instance, ...]
    strays: tuple[Request, ...]
    """Requests on their way whose sender does not wait for them any more."""
    due: int
    """Slots that are due."""
    budget: Budget
    past: Past


@dataclass(frozen=True)
class Config:
    """A bounded model. ``broken`` names rules of the instance that do not hold in it."""

    slots: int = 1
    overlaps: tuple[str, ...] = ("skip", "skip")
    max_attempts: int = 2
    strays: int = 1
    """Requests at most that may arrive after their sender gave up; any more are lost."""
    prompt: bool = False
    """Requests arrive as they are sent, and only answers take their time: for models that are too big otherwise."""
    patient: bool = False
    """A claim that was given up is always sent again, and never given up for good."""
    budget: Budget = field(default=Budget())
    decide: Decision = field(default_factory=Decision)
    broken: frozenset[str] = frozenset()


def watch(after: int) -> Task:
    return Task("watch", after=after)
