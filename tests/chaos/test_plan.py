"""The plan of a run: from its seed alone, everything in turn, and never everybody harmed at once by chance."""

import subprocess
import sys
from itertools import pairwise

import pytest

from .plan import EVERYWHERE, NETWORK, POSITIONS, plan


@pytest.mark.parametrize("network", [True, False])
def test_a_seed_brings_the_same_faults_again(network):
    first = plan(7, 2, 1_500, network=network)
    assert first == plan(7, 2, 1_500, network=network)
    assert first != plan(8, 2, 1_500, network=network)


def test_a_seed_brings_the_same_faults_in_another_process():
    program = "from chaos.plan import plan; print(plan(3, 1, 1500, network=True))"
    path = __file__.rpartition("/chaos/")[0]
    told = {
        subprocess.run(
            [sys.executable, "-c", program, path],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in "12"
    }
    assert len(told) == 1


@pytest.mark.parametrize("seed", range(20))
def test_five_minutes_bring_every_kind_of_fault(seed):
    faults = plan(seed, 5, 1_500, network=True)
    assert {fault.kind for fault in faults} == {*EVERYWHERE, *NETWORK}
    assert all(before.at_ms <= after.at_ms for before, after in pairwise(faults))


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_struck_who_is_struck_already(seed):
    until = dict.fromkeys(POSITIONS, 0)
    for fault in plan(seed, 5, 1_500, network=True):
        struck = POSITIONS if fault.who == "all" else [fault.who] if fault.who in POSITIONS else []
        for who in struck:
            assert until[who] <= fault.at_ms
            until[who] = fault.at_ms + fault.for_ms


def test_a_store_without_a_network_has_no_faults_of_one():
    assert not {fault.kind for fault in plan(1, 5, 1_500, network=False)} & set(NETWORK)
