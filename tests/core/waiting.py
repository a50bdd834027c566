"""Waiting for what other threads do."""

import time

PATIENCE_S = 20
"""How long a condition may take on a loaded machine before its test fails."""


def wait_until(predicate, description):
    end = time.monotonic() + PATIENCE_S
    while not (found := predicate()):
        assert time.monotonic() < end, f"waited in vain until {description}"
        time.sleep(0.005)
    return found
