"""Broken backends: each is a correct one with one defect, and rules say which of them they catch."""

from dataclasses import dataclass

from tenure_conformance.target import Target


@dataclass(frozen=True, slots=True)
class Mutant:
    """A backend with one defect, in one sentence, as a target."""

    name: str
    defect: str
    target: Target


MUTANTS: dict[str, Mutant] = {}
