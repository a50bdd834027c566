"""Faults: a store that does not answer, a network that loses, cuts and repeats, a restart, a wrong password."""

from tenure_conformance.faults.kit import FaultKit, Faults, Power, proxied, with_option
from tenure_conformance.faults.proxy import Proxy

__all__ = ["FaultKit", "Faults", "Power", "Proxy", "proxied", "with_option"]
