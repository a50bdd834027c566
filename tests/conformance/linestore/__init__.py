"""A small store with a network, lines of JSON over TCP: faults can be tried on it before a real one is there."""
