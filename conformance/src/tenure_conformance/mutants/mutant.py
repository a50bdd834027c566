"""What a broken backend is, and the registry of all of them."""

from dataclasses import dataclass

from tenure_conformance.target import Target


@dataclass(frozen=True, slots=True)
class Mutant:
    """A backend with one defect, in one sentence, as a target."""

    name: str
    defect: str
    target: Target
    breaks: tuple[str, ...] = ()
    """Anchors of the protocol's sentences that it does not keep: a rule that cites one of them may list it."""
    seen: str = ""
    """Where such a defect was met in the field, empty if it was only thought of."""


MUTANTS: dict[str, Mutant] = {}
"""By name; filled by the modules of ``mutants``."""


def register(mutant: Mutant) -> None:
    """Add a broken backend to the list; ValueError if its name is taken."""
    if mutant.name in MUTANTS:
        raise ValueError(f"{mutant.name}: there is a broken backend of that name")
    MUTANTS[mutant.name] = mutant
