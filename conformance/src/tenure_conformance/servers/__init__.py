"""Servers: what a target needs is started here, in Docker or as a program, or the run ends with exit code 3."""

from tenure_conformance.servers.binary import in_package, on_path
from tenure_conformance.servers.recipe import HOST, Recipe, restart

__all__ = ["HOST", "Recipe", "in_package", "on_path", "restart"]
