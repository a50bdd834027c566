"""What goes wrong and when: drawn from the seed alone, so that a seed brings the same faults again."""

from dataclasses import dataclass
from random import Random

POSITIONS = "abcde"
"""An instance that was killed or stopped is followed by another in its position: a1, a2, …"""

EVERYWHERE = {
    "kill": 3,
    "freeze": 3,
    "blink": 1,
    "stop": 2,
    "wrong clock": 1,
    "deploy": 1,
    "kill all": 1,
    "store pause": 1,
    "store blink": 1,
}
"""Faults that every store can have, and how often each is in the deck."""
NETWORK = {"cut": 3, "refuse": 1, "lost replies": 2, "slow": 1, "store restart": 1, "store kill": 1}
"""Those of a store with a server and a network."""

_FOR_ALL = ("deploy", "kill all")
HOUR_MS = 3_600_000
_CALM_MS = 2_500
"""Before the first fault."""
_TAIL_LEASES = 5
"""After the last one has begun all comes to rest."""
START_MS = 2_000
"""What a start or a graceful stop may take."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is done at a time after the beginning; ``who`` is a position, or ``store`` or ``all``."""

    at_ms: int
    kind: str
    who: str
    for_ms: int
    by: int = 0
    """How much a clock is ahead; or the seed of what is random in the fault."""

    def __str__(self) -> str:
        ahead = f" by {self.by // HOUR_MS:+d} h" if self.kind == "wrong clock" else ""
        return f"{self.at_ms / 1000:7.2f} s  {self.kind}{ahead}, {self.who}, for {self.for_ms / 1000:.2f} s"


def plan(seed: int, minutes: float, lease_ms: int, *, network: bool) -> list[Fault]:
    """The faults of a run, in order."""
    rng = Random(seed)
    end_ms = minutes * 60_000 - _TAIL_LEASES * lease_ms
    deck: list[str] = []
    busy = dict.fromkeys((*POSITIONS, "store"), 0.0)
    faults: list[Fault] = []
    at_ms = float(_CALM_MS)
    while at_ms < end_ms:
        deck = deck or _shuffled(rng, network=network)
        kind = deck.pop()
        if kind in _FOR_ALL:  # they wait until all are well
            at_ms = max(at_ms, *busy.values())
        fault = _fault(rng, kind, round(at_ms), lease_ms, busy)
        if fault is not None and fault.at_ms + fault.for_ms < end_ms + 2 * lease_ms:
            faults.append(fault)
            for who in _struck(fault):
                busy[who] = at_ms + fault.for_ms + START_MS
        at_ms += rng.uniform(400, 2_400)
    return faults


def _shuffled(rng: Random, *, network: bool) -> list[str]:
    kinds = {**EVERYWHERE, **(NETWORK if network else {})}
    deck = [kind for kind, number in kinds.items() for _ in range(number)]
    rng.shuffle(deck)
    return deck


def _fault(rng: Random, kind: str, at_ms: int, lease_ms: int, busy: dict[str, float]) -> Fault | None:
    """The fault, on somebody who is well; None if nobody is."""
    by = rng.choice((-HOUR_MS, HOUR_MS)) if kind == "wrong clock" else rng.randrange(1_000_000)
    for_ms = round(lease_ms * rng.uniform(*_LEASES[kind]))
    well = [who for who in POSITIONS if busy[who] <= at_ms]
    if kind.startswith("store"):
        return Fault(at_ms, kind, "store", for_ms, by) if busy["store"] <= at_ms else None
    if kind in _FOR_ALL:
        return Fault(at_ms, kind, "all", for_ms, by)
    if len(well) < 2:
        return None
    return Fault(at_ms, kind, rng.choice(well), for_ms, by)


def _struck(fault: Fault) -> str | tuple[str, ...]:
    if fault.who == "store":
        return ("store",)
    return POSITIONS if fault.who == "all" else (fault.who,)


_LEASES: dict[str, tuple[float, float]] = {
    "kill": (0.2, 1.5),
    "freeze": (1.3, 2.5),
    "blink": (0.1, 0.4),
    "stop": (0.2, 1.0),
    "wrong clock": (3.0, 5.0),
    "deploy": (3.0, 4.0),
    "kill all": (0.2, 1.0),
    "cut": (1.3, 3.0),
    "refuse": (0.5, 2.0),
    "lost replies": (0.8, 2.0),
    "slow": (1.0, 2.0),
    "store restart": (0.5, 0.5),
    "store kill": (0.2, 1.5),
    "store pause": (1.2, 2.5),
    "store blink": (0.1, 0.4),
}
"""How long each lasts, in leases; a deploy takes as long as it takes."""
