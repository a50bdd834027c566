"""What happens in a world outside of its instances: messages on their way, the store, faults."""

import heapq
import math
from collections.abc import Callable
from typing import Any

from tenure.testing import World


class Agenda:
    """Functions to call at given times, in order; the world runs it as it runs an instance's loop."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._added = 0
        world._loops.append(self)  # type: ignore[arg-type]

    @property
    def due_s(self) -> float:
        return self._heap[0][0] if self._heap else math.inf

    def after(self, delay_s: float, function: Callable[..., object], *args: Any) -> None:
        self.at(self._world.elapsed_s + max(delay_s, 0.0), function, *args)

    def at(self, at_s: float, function: Callable[..., object], *args: Any) -> None:
        self._added += 1
        heapq.heappush(self._heap, (at_s, self._added, function, args))

    def run_until_idle(self) -> None:
        while self._heap and self._heap[0][0] <= self._world.elapsed_s:
            _, _, function, args = heapq.heappop(self._heap)
            function(*args)
