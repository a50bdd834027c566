"""The server: the reference's state machine behind a line protocol, on a thread and a loop of its own."""

import asyncio
import json
import threading
from contextlib import contextmanager

from tenure.memory import MemoryBackend, MemoryStore
from tenure_conformance.processes.wire import arguments_of, to_plain

PASSWORD = "secret"
SCHEMA = 1


class Server:
    """Listens until it is closed; what it stored outlives ``restart``."""

    backend_type = MemoryBackend

    def __init__(self):
        self.store = MemoryStore()
        self.port = 0
        self._writers = set()
        self._backends = {}
        self._newer = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="linestore", daemon=True)
        self._thread.start()
        self._in_loop(self._listen())

    def close(self):
        self._in_loop(self._hang_up())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def restart(self):
        self._in_loop(self._hang_up())
        self.forget()
        self._in_loop(self._listen())

    def outdate(self, namespace, job):
        """From now on the job's state is of a later version."""
        self._newer.add((namespace, job))

    def forget(self):
        """What a restart loses; nothing, if it is as it should be."""

    def _in_loop(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 22)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _hang_up(self):
        self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        while self._writers:
            await asyncio.sleep(0.001)

    async def hung_up(self, requests):
        """What the end of a connection, after these requests, does to the store; nothing."""

    async def _serve(self, reader, writer):
        self._writers.add(writer)
        requests = []
        try:
            if await self._greeted(reader, writer):
                while (line := await reader.readline()).endswith(b"\n"):
                    requests.append(json.loads(line))
                    if requests[-1]["call"] == "changes":
                        await self._push(reader, writer, requests[-1])
                        break
                    await _say(writer, await self.answer(requests[-1]))
        except OSError:
            pass
        finally:
            await self.hung_up(requests)
            self._writers.discard(writer)
            writer.close()

    async def _greeted(self, reader, writer):
        line = await reader.readline()
        known = line.endswith(b"\n") and json.loads(line)["password"] == PASSWORD
        await _say(writer, {"schema": SCHEMA} if known else {"denied": "wrong password"})
        return known

    async def _push(self, reader, writer, request):
        """Tell of released runs until the client is gone."""

        async def push():
            backend = await self.backend(request["namespace"])
            async for job in backend.changes(request["arguments"][0]):
                await _say(writer, {"hint": job})

        pushing = asyncio.create_task(push())
        try:
            await reader.read(1)
        finally:
            pushing.cancel()
            await asyncio.gather(pushing, return_exceptions=True)

    def is_newer(self, request):
        """Whether it is about a job whose state the client cannot know, and the client cares."""
        about = request["arguments"][0]
        jobs = about if isinstance(about, list) else [about["job"] if isinstance(about, dict) else about]
        return not request.get("any") and any((request["namespace"], job) in self._newer for job in jobs)

    async def answer(self, request):
        if self.is_newer(request):
            return {"newer": True}
        backend = await self.backend(request["namespace"])
        call, arguments = request["call"], arguments_of(request["call"], request["arguments"])
        return {"answer": to_plain(await getattr(backend, call)(*arguments, **request["options"]))}

    async def backend(self, namespace):
        if namespace not in self._backends:
            self._backends[namespace] = await self.backend_type(self.store, namespace=namespace).__aenter__()
        return self._backends[namespace]


async def _say(writer, reply):
    writer.write(json.dumps(reply).encode() + b"\n")
    await writer.drain()


_servers = {}


@contextmanager
def serving(server_type=Server):
    """A server; gives its URL."""
    server = server_type()
    url = f"line://user:{PASSWORD}@127.0.0.1:{server.port}"
    _servers[server.port] = server
    try:
        yield url
    finally:
        server.close()


def server_on(port):
    return _servers[port]
