"""The journal: its own process, which refuses smaller fences and is held up by nobody."""

import asyncio
import json
import socket

import pytest
from tenure_conformance.faults.proxy import Cut

from .instances import LostReplies, python
from .journal import Journal, StaleFence


@pytest.fixture
def journal(tmp_path):
    process = python("journal", str(tmp_path / "sock"), str(tmp_path / "lines"), stdout=-1)
    with process.stdout:
        process.stdout.readline()
        yield Journal(str(tmp_path / "sock"))
        process.kill()
        process.wait()


def test_a_smaller_fence_is_refused_in_its_scope_alone_and_written_down(journal, tmp_path):
    journal.write("pay", 7, kind="start")
    journal.write("pay", 7, kind="end")
    journal.write("sync", 3, kind="start")
    with pytest.raises(StaleFence):
        journal.write("pay", 6, kind="start")
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert [(line["scope"], line["fence"], line["accepted"]) for line in lines] == [
        ("pay", 7, True),
        ("pay", 7, True),
        ("sync", 3, True),
        ("pay", 6, False),
    ]
    assert lines == sorted(lines, key=lambda line: line["at"])


def test_a_writer_that_is_gone_before_its_answer_holds_up_nobody(journal, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind("")
        gone.sendto(json.dumps({"scope": "pay", "fence": 9}).encode(), str(tmp_path / "sock"))
    with pytest.raises(StaleFence):
        journal.write("pay", 8, kind="start")


def test_a_share_of_replies_is_lost():
    fault, lost = LostReplies(30), 0
    for _ in range(100):
        try:
            assert asyncio.run(fault.reply(None, b"reply")) == b"reply"
        except Cut:
            lost += 1
    assert lost == 30
