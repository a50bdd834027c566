"""The checker: every state breadth first, the shortest trace to a fault, and what can no longer reach an aim."""

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Move(NamedTuple, Generic[S]):
    """One step to a next state; a fault is what the step broke, and a misfortune is a step nobody has to take."""

    label: tuple[object, ...]
    state: S
    fault: str | None = None
    misfortune: bool = False


@dataclass(frozen=True)
class Aim(Generic[S]):
    """From every state in which it is wanted, moves without misfortune must lead to one in which it is reached."""

    name: str
    wanted: Callable[[S], bool]
    reached: Callable[[S], bool]


@dataclass
class Report:
    """What was explored, and the first thing that was wrong with the moves that lead to it."""

    states: int = 0
    moves: int = 0
    fault: str | None = None
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counted = f"{self.states:,} states, {self.moves:,} moves"
        if self.fault is None:
            return f"{counted}: no fault"
        steps = "\n".join(f"{number:4}. {step}" for number, step in enumerate(self.trace, 1))
        return f"{counted}: {self.fault}\n{steps}"


class Space(Protocol[S]):
    """What is explored."""

    def initial(self) -> S:
        """Where it begins."""

    def moves(self, state: S) -> Iterable[Move[S]]:
        """Everything that can happen next."""

    def canonical(self, state: S) -> S:
        """A state that stands for others that behave alike; called for every move, so it may tell some twins apart."""

    def exact(self, state: S) -> S:
        """The same without exception, however slow."""

    def aims(self) -> Iterable[Aim[S]]:
        """What must stay possible."""


class Explorer(Generic[S]):
    """Every reachable state with the move that first led to it."""

    def __init__(self, space: Space[S]) -> None:
        self._space = space
        self._aims = tuple(space.aims())
        self._states = [space.canonical(space.initial())]
        self._index: dict[S, int] = {self._states[0]: 0}
        self._parents = array("l", [-1])
        self._sources, self._targets = array("l"), array("l")  # the moves without misfortune

    def run(self, limit: int = 20_000_000) -> Report:
        """Explore all states; stops at the first fault. MemoryError if there are more than ``limit``."""
        report = Report()
        current = 0
        while current < len(self._states):
            if len(self._states) > limit:
                raise MemoryError(f"more than {limit:,} states; make the configuration smaller")
            for move in self._space.moves(self._states[current]):
                report.moves += 1
                if move.fault is not None:
                    self._blame(report, move.fault, current)
                    return report
                self._visit(current, move)
            current += 1
        report.states = len(self._states)
        for aim in self._aims:
            stuck = self._first_stuck(aim)
            if stuck is not None:
                self._blame(report, aim.name, stuck)
                break
        return report

    def _visit(self, current: int, move: Move[S]) -> None:
        state = self._space.canonical(move.state)
        target = self._index.setdefault(state, len(self._states))
        if target == len(self._states):
            self._states.append(state)
            self._parents.append(current)
        if self._aims and not move.misfortune and target != current:
            self._sources.append(current)
            self._targets.append(target)

    def _blame(self, report: Report, fault: str, last: int) -> None:
        report.states = len(self._states)
        report.fault = fault
        report.trace = [" ".join(str(word) for word in label if word != "") for label in self._trace(last, fault)]

    def _trace(self, last: int, fault: str) -> Iterator[tuple[object, ...]]:
        """The moves to a state and the one that breaks something there, told with the names of the first state."""
        path = []
        while last > 0:
            path.append(self._states[last])
            last = self._parents[last]
        space, state = self._space, self._space.initial()
        for target in reversed(path):
            sought = space.exact(target)
            move = next(move for move in space.moves(state) if space.exact(move.state) == sought)
            yield move.label
            state = move.state
        yield from islice((move.label for move in space.moves(state) if move.fault == fault), 1)

    def _first_stuck(self, aim: Aim[S]) -> int | None:
        """The first state in which the aim is wanted and from which it can no longer be reached."""
        able = bytearray(aim.reached(state) for state in self._states)
        first, sources = self._backward()
        pending = [index for index, is_able in enumerate(able) if is_able]
        while pending:
            target = pending.pop()
            for place in range(first[target], first[target + 1]):
                source = sources[place]
                if not able[source]:
                    able[source] = 1
                    pending.append(source)
        return next((i for i, state in enumerate(self._states) if not able[i] and aim.wanted(state)), None)

    def _backward(self) -> "tuple[array[int], array[int]]":
        """The moves by target: those into state ``t`` come from ``sources[first[t]:first[t + 1]]``."""
        first = array("l", bytes(array("l").itemsize * (len(self._states) + 1)))
        for target in self._targets:
            first[target + 1] += 1
        for index in range(1, len(first)):
            first[index] += first[index - 1]
        place = array("l", first)
        sources = array("l", bytes(array("l").itemsize * len(self._sources)))
        for source, target in zip(self._sources, self._targets, strict=True):
            sources[place[target]] = source
            place[target] += 1
        return first, sources
