"""What happens in one simulation, made from a seed: jobs, instances, a network, and a list of faults."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal

Overlap = Literal["skip", "allow"]
Behaviour = Literal["quick", "work", "raise", "listen", "deaf", "block", "hang"]


@dataclass(frozen=True, slots=True)
class Spec:
    """One version of a job."""

    name: str
    every_ms: int
    lease_ms: int
    heartbeat_ms: int
    overlap: Overlap = "skip"
    max_attempts: int = 3
    max_late_ms: int | None = 3_000
    catch_up_ms: int | None = None
    jitter_ms: int = 100
    timeout_ms: int | None = None
    behaviours: tuple[Behaviour, ...] = ("work",)
    thread: bool = False
    """Its handler runs where neither cancellation nor a blocked loop reaches it."""

    def __str__(self) -> str:
        late = "any" if self.max_late_ms is None else f"{self.max_late_ms} ms"
        return (
            f"{self.name}: every {self.every_ms} ms, lease {self.lease_ms}, heartbeat {self.heartbeat_ms}, "
            f"{self.overlap}, attempts {self.max_attempts}, late {late}, catch up {self.catch_up_ms}, "
            f"jitter {self.jitter_ms}, timeout {self.timeout_ms}, {'thread' if self.thread else 'loop'}: "
            f"{' '.join(self.behaviours)}"
        )


@dataclass(frozen=True, slots=True)
class Network:
    """How messages fare; probabilities are per message."""

    latency_ms: float = 2.0
    spread_ms: float = 3.0
    timeout_ms: int = 1_000
    lost_requests: float = 0.0
    lost_replies: float = 0.0
    doubled: float = 0.0
    """A request arrives a second time, up to three timeouts later."""
    late: float = 0.0
    """A request arrives up to three timeouts late."""
    hints: bool = False
    lost_hints: float = 0.0

    @property
    def reliable(self) -> bool:
        """Whether a message always arrives in time, but for faults."""
        return not (self.lost_requests or self.lost_replies or self.late)

    @property
    def round_trip_s(self) -> float:
        """The longest there and back."""
        return 2 * (self.latency_ms + self.spread_ms) / 1000


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens; ``who`` is an instance, or empty for the store."""

    at_s: float
    kind: str
    who: str = ""
    for_s: float = 0.0
    detail: Any = None

    def __str__(self) -> str:
        lasts = f" for {self.for_s:.3f} s" if self.for_s else ""
        detail = f" {self.detail}" if self.detail is not None else ""
        return f"{self.kind}{' ' + self.who if self.who else ''}{detail}{lasts}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a simulation needs; the same one always goes the same way."""

    seed: int
    specs: tuple[Spec, ...]
    instances: tuple[str, ...]
    network: Network
    faults: tuple[Fault, ...]
    trouble_s: float
    """Faults come until then."""
    quiet_s: float
    """Then all is well for so long, before everyone is stopped."""
    clocks_ahead_s: dict[str, float] = field(default_factory=dict)

    def only(self, numbers: Iterable[int]) -> "Scenario":
        """With these faults alone, by their place in the list."""
        return replace(self, faults=tuple(self.faults[number] for number in sorted(set(numbers))))


TROUBLE_S = 24.0
QUIET_S = 13.0
_KINDS = (
    *("crash", "freeze", "freeze", "stop", "start", "cut", "cut", "slow", "clock", "block", "store pause"),
    *("store restart", "deploy", "replace", "remove", "trigger", "hints end"),
)
_BEHAVIOURS: tuple[tuple[Behaviour, ...], ...] = (
    ("quick", "work", "raise"),
    ("work", "work", "listen"),
    ("work", "deaf", "block"),
    ("quick",),
    ("work", "listen", "raise", "deaf", "block", "quick"),
)


def make(seed: int, *, trouble_s: float = TROUBLE_S) -> Scenario:
    """The scenario of a seed."""
    return _Maker(seed, trouble_s).make()


class _Maker:
    def __init__(self, seed: int, trouble_s: float) -> None:
        self._seed = seed
        self._trouble_s = trouble_s
        self._rng = Random(f"scenario {seed}")
        self._up: list[str] = []
        self._made = 0
        self._clocks_ahead_s: dict[str, float] = {}
        self._wide = self._rng.random() < 0.02

    def make(self) -> Scenario:
        rng = self._rng
        specs = self._specs()
        names = tuple(self._new_name() for _ in range(rng.choice([1, 2, 2, 3, 3, 4])))
        self._up = list(names)
        network = self._network()
        faults = self._faults(specs)
        return Scenario(
            self._seed, specs, names, network, tuple(faults), self._trouble_s, QUIET_S, self._clocks_ahead_s
        )

    def _specs(self) -> tuple[Spec, ...]:
        if self._wide:
            return tuple(replace(self._spec(f"job-{n}"), every_ms=10_000, jitter_ms=0) for n in range(90))
        return tuple(self._spec(name) for name in "abcd"[: self._rng.choice([1, 2, 2, 3])])

    def _spec(self, name: str) -> Spec:
        rng = self._rng
        lease_ms = rng.choice([600, 1_000, 1_500, 2_000, 4_000])
        behaviours = ("quick", "raise") if self._wide else rng.choice(_BEHAVIOURS)
        timeout_ms = rng.choice([None, None, None, lease_ms // 2, lease_ms * 2])
        if timeout_ms is not None and rng.random() < 0.5:
            behaviours = (*behaviours, "hang")
        max_late_ms = rng.choice([None, 1_000, 3_000, 3_000, 8_000])
        return Spec(
            name,
            every_ms=rng.choice([1_000, 2_000, 3_000, 5_000, 7_000]),
            lease_ms=lease_ms,
            heartbeat_ms=rng.choice([lease_ms // 3, lease_ms // 3, lease_ms // 5, lease_ms // 2]),
            overlap=rng.choice(["skip", "skip", "skip", "allow"]),
            max_attempts=rng.choice([1, 2, 3, 3, 9]),
            max_late_ms=max_late_ms,
            catch_up_ms=rng.choice([None, None, 2_000, 6_000]),
            jitter_ms=rng.choice([0, 50, 200, 500]),
            timeout_ms=timeout_ms,
            behaviours=behaviours,
            thread=rng.random() < 0.2,
        )

    def _network(self) -> Network:
        rng = self._rng
        latency_ms = rng.choice([1.0, 2.0, 5.0, 20.0, 60.0])
        rough = rng.random() < 0.4
        return Network(
            latency_ms,
            spread_ms=latency_ms * rng.choice([0.5, 2.0]),
            timeout_ms=rng.choice([400, 800, 1_500, 3_000]),
            lost_requests=rng.choice([0.0, 0.01, 0.05]) * rough,
            lost_replies=rng.choice([0.0, 0.01, 0.05]) * rough,
            doubled=rng.choice([0.0, 0.0, 0.02]),
            late=rng.choice([0.0, 0.01, 0.03]) * rough,
            hints=rng.random() < 0.5,
            lost_hints=rng.choice([0.0, 0.3, 1.0]),
        )

    def _new_name(self) -> str:
        self._made += 1
        name = f"i{self._made}"
        if self._rng.random() < 0.1:
            self._clocks_ahead_s[name] = self._rng.choice([-3600.0, -2.0, 0.7, 1.5, 3600.0])
        return name

    def _faults(self, specs: tuple[Spec, ...]) -> list[Fault]:
        rng = self._rng
        kinds = rng.sample(sorted(set(_KINDS)), rng.choice([2, 4, 8])) if rng.random() < 0.7 else list(_KINDS)
        pause_s = rng.choice([1.0, 3.0, 6.0])
        faults: list[Fault] = []
        at_s = 2 + rng.random() * 3
        while at_s < self._trouble_s:
            faults += self._fault(rng.choice(kinds), round(at_s, 3), specs)
            at_s += rng.expovariate(1 / pause_s)
        faults += self._mended()
        return sorted(faults, key=lambda fault: fault.at_s)

    def _fault(self, kind: str, at_s: float, specs: tuple[Spec, ...]) -> list[Fault]:
        rng = self._rng
        lease_s = rng.choice(specs).lease_ms / 1000
        who = rng.choice(self._up)
        if kind in ("crash", "stop"):
            return self._leave(kind, at_s, who)
        if kind == "start":
            return [Fault(at_s, kind, self._join())] if len(self._up) < 5 else []
        if kind == "deploy":
            return self._deploy(at_s, specs)
        for_s = round(lease_s * rng.choice([0.2, 0.9, 1.1, 2.5]) * (0.5 + rng.random()), 3)
        if kind.startswith("store"):
            longer = rng.random() < 0.5 if kind == "store restart" else None
            return [Fault(at_s, kind, "", min(for_s, 4.0), longer)]
        return [Fault(at_s, kind, who, for_s, self._detail(kind, specs))]

    def _detail(self, kind: str, specs: tuple[Spec, ...]) -> Any:
        rng = self._rng
        match kind:
            case "cut":
                return rng.choice(["refused", "silent", "silent", "replies lost"])
            case "slow":
                return rng.choice([0.1, 0.3, 1.0])
            case "clock":
                return rng.choice([-3600.0, -30.0, -2.0, -0.3, 0.3, 2.0, 30.0, 3600.0])
            case "replace":
                return self._changed(rng.choice(specs))
            case "remove" | "trigger":
                return rng.choice(specs).name
        return None

    def _changed(self, spec: Spec) -> Spec:
        """Another version of the job, for a rolling deploy."""
        rng = self._rng
        other = self._spec(spec.name)
        changed = replace(other, every_ms=rng.choice([spec.every_ms, spec.every_ms, other.every_ms]))
        return replace(changed, overlap=rng.choice([spec.overlap, spec.overlap, other.overlap]))

    def _leave(self, kind: str, at_s: float, who: str) -> list[Fault]:
        if len(self._up) < 2 and self._rng.random() < 0.7:
            return []
        self._up.remove(who)
        grace_s = self._rng.choice([0.0, 0.5, 3.0])
        faults = [Fault(at_s, kind, who, detail=grace_s if kind == "stop" else None)]
        if not self._up:
            later_s = round(at_s + self._rng.random() * 6, 3)
            faults.append(Fault(later_s, "start", self._join(), detail=None))
        return faults

    def _join(self) -> str:
        name = self._new_name()
        self._up.append(name)
        return name

    def _deploy(self, at_s: float, specs: tuple[Spec, ...]) -> list[Fault]:
        """A new instance with a changed job comes, an old one goes."""
        old = self._rng.choice(self._up)
        changed = self._changed(self._rng.choice(specs))
        new = Fault(at_s, "start", self._join(), detail=changed)
        self._up.remove(old)
        return [new, Fault(round(at_s + self._rng.random(), 3), "stop", old, detail=self._rng.choice([0.0, 2.0]))]

    def _mended(self) -> list[Fault]:
        """A fresh instance is there to end what is unfinished."""
        return [Fault(self._trouble_s, "start", self._join())]
