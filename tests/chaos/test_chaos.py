"""Short real runs: tenure keeps what it promises, and a chaos run finds instances that do not."""

import pytest

from .checker import judge
from .director import Options, run
from .page import summary

MINUTES = 0.25

pytestmark = pytest.mark.slow


def judged(directory, **options):
    """The judgement of a short run; its seeds are those whose first faults are worth their time."""
    return judge(run(Options(**{"minutes": MINUTES, **options}), directory, lambda _: None))


@pytest.mark.parametrize(("target", "seed"), [("sqlite", 8), ("redis", 10)])
def test_a_little_chaos_finds_no_violation(tmp_path, target, seed):
    judgement = judged(tmp_path, target=target, seed=seed)
    assert not judgement.violations, summary(judgement)
    assert len(judgement.story.runs) > 20


def test_a_client_that_confirms_heartbeats_it_did_not_send_is_found(tmp_path):
    judgement = judged(tmp_path, target="sqlite", seed=8, minutes=0.15, broken="always-says-yes")
    assert "instance-deadline" in {violation.rule for violation in judgement.violations}
