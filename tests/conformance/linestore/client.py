"""The backend: a pool of connections, each of which carries one call at a time, and a deadline around everything."""

import asyncio
import json
import os
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

from tenure.duration import to_ms
from tenure.errors import BackendClosed, BackendMisconfigured, BackendUnavailable
from tenure.model import (
    Capabilities,
    check_ending,
    check_limit,
    check_name,
    check_run,
)
from tenure_conformance.processes.wire import answer_of, to_plain

from .server import SCHEMA

POOL = 8


class Connection:
    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    def alive(self):
        return not (self.reader.at_eof() or self.writer.is_closing())

    def close(self):
        self.writer.transport.abort()

    async def ask(self, request):
        self.writer.write(json.dumps(request).encode() + b"\n")
        await self.writer.drain()
        return json.loads(await self.line())

    async def line(self):
        line = await self.reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the connection was closed amid a reply")
        return line


class LineBackend:
    """A correct one; the broken ones differ from it in one place."""

    capabilities = Capabilities(durable=True, shared=True)
    connection_type = Connection
    schema = SCHEMA

    def __init__(self, url, *, namespace):
        check_name(namespace, "namespace")
        parts = urlsplit(url)
        options = parse_qs(parts.query)
        self._host, self._port, self._password = parts.hostname, parts.port, parts.password
        self._timeout_s = to_ms(options.get("timeout", ["5s"])[0], "timeout", minimum_ms=1) / 1_000
        self._schema = int(options.get("schema", [self.schema])[0])
        self._namespace = namespace
        self._entered = 0
        self._home = None
        self._idle = []
        self._places = None

    async def __aenter__(self):
        self._entered += 1
        self._home = self._home or _here()
        self._places = self._places or asyncio.Semaphore(POOL)
        try:
            await self.enter()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_exc):
        self._entered -= 1
        if not self._entered:
            while self._idle:
                self._idle.pop().close()
            self._home = None

    async def enter(self):
        await self._ask("active", [])

    async def claim(self, claim):
        return await self._ask("claim", claim)

    async def heartbeat(self, job, slot, token):
        check_run(job, slot, token)
        return await self._ask("heartbeat", job, slot, token)

    async def finish(self, job, slot, token, status):
        check_run(job, slot, token)
        check_ending(status)
        return await self._ask("finish", job, slot, token, status)

    async def release(self, job, slot, token):
        check_run(job, slot, token)
        return await self._ask("release", job, slot, token)

    async def active(self, jobs):
        for job in jobs:
            check_name(job, "job")
        return await self._ask("active", list(jobs))

    async def save_result(self, job, result):
        check_name(job, "job")
        return await self._ask("save_result", job, result)

    async def results(self, job, *, limit=20):
        check_name(job, "job")
        check_limit(limit)
        return await self._ask("results", job, limit=limit)

    async def changes(self, jobs):
        """The names of released jobs, for ever; a connection that is lost is replaced."""
        while True:
            try:
                async for job in self.pushed(jobs):
                    yield job
            except OSError:
                await asyncio.sleep(0.02)

    async def pushed(self, jobs):
        """The same, over one connection."""
        connection = await self.connected()
        try:
            request = {"call": "changes", "namespace": self._namespace, "arguments": [list(jobs)], "options": {}}
            connection.writer.write(json.dumps(request).encode() + b"\n")
            while True:
                yield json.loads(await self.hint(connection))["hint"]
        finally:
            connection.close()

    async def hint(self, connection):
        return await connection.line()

    def check_home(self):
        """Refuse the use of the owner's connections by another loop or process."""
        if self._home != _here():
            raise BackendMisconfigured(f"line://{self._host}: entered in another loop or process; enter one there")

    async def _ask(self, call, *arguments, **options):
        if not self._entered:
            raise BackendClosed(f"line://{self._host}:{self._port}: not entered; use it inside `async with`")
        self.check_home()
        told = [to_plain(one) for one in arguments]
        request = {"call": call, "namespace": self._namespace, "arguments": told, "options": options}
        reply = await self.asked(request)
        if "newer" in reply:
            raise BackendMisconfigured(f"line://{self._host}: a later version stored the job; upgrade the client")
        return answer_of(call, reply["answer"])

    async def asked(self, request):
        """The reply, in time; BackendUnavailable for whatever the network does."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self.exchange(request)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise BackendUnavailable(f"port {self._port}: {str(error) or 'no answer in time'}") from error

    async def exchange(self, request):
        async with self.place() as connection:
            return await connection.ask(request)

    @asynccontextmanager
    async def place(self):
        """A connection of the pool; one that failed or was given up is not used again."""
        async with self._places:
            connection = await self.taken()
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            if self._entered:
                self._idle.append(connection)
            else:
                connection.close()

    async def taken(self):
        while self._idle:
            connection = self._idle.pop()
            if connection.alive():
                return connection
            connection.close()
        return await self.connected()

    async def connected(self):
        connection = self.connection_type(*await asyncio.open_connection(self._host, self._port, limit=1 << 22))
        try:
            greeting = await connection.ask({"password": self._password})
        except BaseException:
            connection.close()
            raise
        if "denied" in greeting:
            connection.close()
            raise BackendMisconfigured(f"line://{self._host}:{self._port}: {greeting['denied']}; give the right one")
        if greeting["schema"] > self._schema:
            connection.close()
            raise BackendMisconfigured(f"line://{self._host}: schema {greeting['schema']}; upgrade the client")
        return connection


def _here():
    return os.getpid(), asyncio.get_running_loop()
