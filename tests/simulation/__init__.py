"""A deterministic simulation: the real runner on virtual time, a store and a network that fail, and what must hold."""
