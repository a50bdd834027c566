"""Broken backends: each is a correct one with one defect, and rules say which of them they catch."""

from importlib import import_module

from tenure_conformance.mutants.mutant import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant"]

for _module in ("claims", "calls", "bounds", "clocks", "races", "names", "clients", "cards", "claim_only", "sqlite"):
    import_module(f"{__name__}.{_module}")  # which fills the registry
