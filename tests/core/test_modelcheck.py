"""Every state of the bounded models is sound, and a model with one rule broken is not."""

import os
import re
from pathlib import Path

import pytest

from .modelcheck.breaks import BREAKS, Break
from .modelcheck.checker import Explorer
from .modelcheck.configs import BIG, SMALL
from .modelcheck.model import Model
from .modelcheck.world import Config

PROTOCOL = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("config", SMALL.values(), ids=SMALL.keys())
def test_no_state_of_a_small_model_is_at_fault(config: Config) -> None:
    report = Explorer(Model(config)).run()
    assert report.fault is None, str(report)


@pytest.mark.slow
@pytest.mark.skipif("TENURE_MODELCHECK_BIG" not in os.environ, reason="minutes; set TENURE_MODELCHECK_BIG to run it")
@pytest.mark.parametrize("config", BIG.values(), ids=BIG.keys())
def test_no_state_of_a_big_model_is_at_fault(config: Config) -> None:
    report = Explorer(Model(config)).run()
    assert report.fault is None, str(report)


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: f"{broken.anchor}-{broken.what}")
def test_the_checker_finds_what_a_broken_rule_lets_happen(broken: Break) -> None:
    report = Explorer(Model(broken.config)).run()
    assert report.fault == broken.fault
    assert report.trace
    assert str(report).endswith(report.trace[-1])


@pytest.mark.parametrize("anchor", sorted({broken.anchor for broken in BREAKS}))
def test_a_broken_rule_is_one_of_the_protocol(anchor: str) -> None:
    assert f'<a id="{anchor}"></a>' in PROTOCOL


def test_anchors_of_the_protocol_are_unique() -> None:
    anchors = re.findall(r'<a id="([^"]*)"></a>', PROTOCOL)
    assert len(anchors) == len(set(anchors)) > 150
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", anchor) for anchor in anchors)
