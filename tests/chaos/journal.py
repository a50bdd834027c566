"""What handlers write to: a process of its own that refuses a smaller fence than it has seen, and keeps every line."""

import json
import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from .orphans import end_with_parent

_PATIENCE_S = 10.0
_LARGEST = 4_096


class StaleFence(Exception):
    """A later attempt has written already: this one no longer owns what it writes to."""


class Journal:
    """The handlers' side; each write is one datagram and its answer, so that a writer that dies holds up nobody."""

    def __init__(self, address: str) -> None:
        self._address = address

    def write(self, scope: str, fence: int, **fields: Any) -> None:
        """Write a line; StaleFence if the scope was written to with a greater fence."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.bind("")  # Linux finds a name
            end.settimeout(_PATIENCE_S)
            end.sendto(json.dumps({"scope": scope, "fence": fence, **fields}).encode(), self._address)
            if end.recv(_LARGEST) != b"kept":
                raise StaleFence(f"{scope}: fence {fence} is stale")


def serve(address: str, path: str, *, fenced: bool = True) -> None:
    """Keep the journal until this process is ended; a line says when it came and whether it was accepted."""
    greatest: dict[str, int] = {}
    lines = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(address)
        os.write(1, b"ready\n")
        while True:
            data, sender = end.recvfrom(_LARGEST)
            entry = json.loads(data)
            scope, fence = entry["scope"], entry["fence"]
            accepted = not fenced or fence >= greatest.get(scope, 0)
            if accepted:
                greatest[scope] = fence
            entry |= {"at": time.monotonic_ns() / 1e6, "accepted": accepted}
            os.write(lines, json.dumps(entry).encode() + b"\n")
            _answer(end, sender, b"kept" if accepted else b"stale")


def _answer(end: socket.socket, sender: Any, answer: bytes) -> None:
    with suppress(OSError):  # it was killed
        end.sendto(answer, socket.MSG_DONTWAIT, sender)


if __name__ == "__main__":
    end_with_parent()
    Path(sys.argv[1]).unlink(missing_ok=True)
    serve(sys.argv[1], sys.argv[2], fenced=sys.argv[3:] != ["unfenced"])
