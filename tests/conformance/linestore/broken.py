"""Clients and servers of the line store with one defect each."""

import asyncio
import json
import socket
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from tenure import decision
from tenure.clock import SystemClock
from tenure.decision import EMPTY
from tenure.errors import BackendMisconfigured, BackendUnavailable
from tenure.memory import MemoryBackend, MemoryStore
from tenure.model import ActiveRuns, Claim, ClaimResult, new_token
from tenure_conformance.processes.wire import answer_of, arguments_of, to_plain

from .client import Connection, LineBackend
from .server import Server
from .target import make_target


class NoDeadline(LineBackend):
    """Waits as long as the store likes."""

    async def asked(self, request):
        self._timeout_s = 3_600
        return await super().asked(request)


class EntersWithoutDeadline(LineBackend):
    """Waits for its first connection as long as it takes."""

    async def enter(self):
        timeout_s, self._timeout_s = self._timeout_s, 3_600
        try:
            await super().enter()
        finally:
            self._timeout_s = timeout_s


class WaitsForLeaving(LineBackend):
    """Says goodbye to the store, and waits for that to be heard."""

    async def __aexit__(self, *exc):
        try:
            if self._entered == 1 and self._idle:
                await self._idle[-1].ask({"namespace": "-", "call": "active", "arguments": [[]], "options": {}})
        finally:
            await super().__aexit__(*exc)


class RetriesAsAnother(LineBackend):
    """Sends a claim that failed once more, with a token of its own."""

    async def claim(self, claim):
        try:
            return await super().claim(claim)
        except BackendUnavailable:
            return await super().claim(replace(claim, token=new_token()))


class RetriesGuardedAsAnother(LineBackend):
    """Takes whatever went wrong with a heartbeat, finish or release for the end of the lease."""

    async def heartbeat(self, job, slot, token):
        return await self._or_false(super().heartbeat(job, slot, token))

    async def finish(self, job, slot, token, status):
        return await self._or_false(super().finish(job, slot, token, status))

    async def release(self, job, slot, token):
        return await self._or_false(super().release(job, slot, token))

    async def _or_false(self, call):
        try:
            return await call
        except BackendUnavailable:
            return False


class ErrorIsRunning(LineBackend):
    """Tells a claim that it could not ask that the run is running."""

    async def claim(self, claim):
        try:
            return await super().claim(claim)
        except BackendUnavailable:
            now = SystemClock().wall_ms()
            return ClaimResult(outcome="running", now_ms=now, attempt=1, holder="nobody", lease_left_ms=1_000)


class ErrorIsNothing(LineBackend):
    """Tells of no runs where it could not ask."""

    async def active(self, jobs):
        try:
            return await super().active(jobs)
        except BackendUnavailable:
            return ActiveRuns(SystemClock().wall_ms(), ())


class ErrorIsFinal(LineBackend):
    """Tells of a store that is not there as if it never would be."""

    async def asked(self, request):
        try:
            return await super().asked(request)
        except BackendUnavailable as error:
            raise BackendMisconfigured(str(error)) from error


class NoCause(LineBackend):
    """Keeps the cause for itself."""

    async def asked(self, request):
        try:
            return await super().asked(request)
        except BackendUnavailable as error:
            error.__cause__ = None
            raise BackendUnavailable(str(error)) from None


class BareErrors(LineBackend):
    """Lets the driver's errors through."""

    async def asked(self, request):
        async with asyncio.timeout(self._timeout_s):
            return await self.exchange(request)


class NeverRecovers(LineBackend):
    """Gives up for good after the first failure."""

    broken = None

    async def asked(self, request):
        if self.broken is not None:
            raise BackendUnavailable("still broken") from self.broken
        try:
            return await super().asked(request)
        except BackendUnavailable as error:
            self.broken = error
            raise


class KeepsBrokenConnections(LineBackend):
    """Puts a connection back whatever became of the call on it: the next one may read its reply."""

    @asynccontextmanager
    async def place(self):
        async with self._places:
            connection = await self.taken()
            try:
                yield connection
            finally:
                self._idle.append(connection)


class LeaksPlaces(LineBackend):
    """A call that was given up keeps its place in the pool."""

    @asynccontextmanager
    async def place(self):
        await self._places.acquire()
        connection = await self.taken()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        self._places.release()


class LeaksConnections(LineBackend):
    """A call that was given up leaves its connection open."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.kept = []

    @asynccontextmanager
    async def place(self):
        async with self._places:
            connection = await self.taken()
            try:
                yield connection
            except BaseException:
                self.kept.append(connection)
                raise
            self._idle.append(connection)

    async def __aexit__(self, *exc):
        await super().__aexit__(*exc)
        while self.kept:
            self.kept.pop().close()


class DriverRetries(LineBackend):
    """Sends what failed three times."""

    async def exchange(self, request):
        for _ in range(2):
            try:
                return await super().exchange(request)
            except OSError:
                await asyncio.sleep(0.001)
        return await super().exchange(request)


class RetriesLater(LineBackend):
    """Sends what failed once more a little later, when nobody waits for it."""

    async def asked(self, request):
        try:
            return await super().asked(request)
        except BackendUnavailable:
            self._later = asyncio.create_task(self._again(request))
            raise

    async def _again(self, request):
        await asyncio.sleep(0.3)
        await asyncio.gather(super().asked(request), return_exceptions=True)


class Blocks(LineBackend):
    """Talks to the store from the loop's own thread."""

    async def exchange(self, request):
        address = self._host, self._port
        with socket.create_connection(address, self._timeout_s) as connection, connection.makefile("rwb") as file:
            for told in ({"password": self._password}, request):
                file.write(json.dumps(told).encode() + b"\n")
                file.flush()
                reply = file.readline()
            return json.loads(reply)


class OneRead(Connection):
    """Takes what comes at once for the whole reply."""

    async def line(self):
        line = await self.reader.read(1 << 20)
        if not line:
            raise ConnectionResetError("the connection was closed amid a reply")
        return line


class ReadsOnce(LineBackend):
    connection_type = OneRead


class Padded(Connection):
    """Makes the best of a reply that is not whole."""

    async def line(self):
        line = await self.reader.readline()
        if line.endswith(b"\n"):
            return line
        return b'{"schema": 1, "answer": {"now_ms": 1, "runs": []}}'


class CompletesReplies(LineBackend):
    connection_type = Padded


class SwallowsCancellation(LineBackend):
    """Goes on when it is cancelled."""

    async def exchange(self, request):
        task = asyncio.ensure_future(super().exchange(request))
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                continue
            except OSError:
                break
        return task.result()


class SavesUnderItsCount(LineBackend):
    """Saves a record that failed once more, as another attempt's."""

    async def save_result(self, job, result):
        try:
            await super().save_result(job, result)
        except BackendUnavailable:
            await super().save_result(job, replace(result, attempt=result.attempt + 1))


class RepeatsPassword(LineBackend):
    """Says with which password it was refused."""

    async def connected(self):
        try:
            return await super().connected()
        except BackendMisconfigured as error:
            raise BackendMisconfigured(f"{error} ({self._password})") from error


class RefusedIsUnavailable(LineBackend):
    """Asks to try again with a wrong password, and with a schema it does not know."""

    async def connected(self):
        try:
            return await super().connected()
        except BackendMisconfigured as error:
            raise BackendUnavailable(str(error)) from error


class AnySchema(LineBackend):
    """Does not look which schema the store has."""

    async def connected(self):
        self._schema = 1_000
        return await super().connected()


class AnyFormat(LineBackend):
    """Does not look by which version a job was stored."""

    async def exchange(self, request):
        return await super().exchange({**request, "any": True})


class LooksAtClaimsAlone(LineBackend):
    """Looks by which version a job was stored when it is claimed or shown, and not when its run ends."""

    async def exchange(self, request):
        unseen = request["call"] in ("finish", "release")
        return await super().exchange({**request, "any": unseen})


class ClientClock(LineBackend):
    """Decides by its own process's clock, which it sends along; its servers believe it."""

    async def _ask(self, call, *arguments, **options):
        told = [to_plain(one) for one in arguments]
        request = {"call": call, "namespace": self._namespace, "arguments": told, "options": options}
        request["now_ms"] = int(time.time() * 1_000)
        return answer_of(call, (await self.asked(request))["answer"])


class BelievingServer(Server):
    """Its clock is that of whoever asks."""

    async def answer(self, request):
        self.store.now_ms = lambda: request.get("now_ms") or SystemClock().wall_ms()
        return await super().answer(request)


class ForgetfulServer(Server):
    """Keeps nothing over a restart."""

    def forget(self):
        self.store.states.clear()
        self.store.histories.clear()


class ShorteningServer(Server):
    """Ends all leases with a restart."""

    def forget(self):
        for key, state in self.store.states.items():
            over = tuple(replace(run, expires_at=0) for run in state.unfinished)
            self.store.states[key] = replace(state, unfinished=over)


class FenceServer(Server):
    """Begins its fences anew after a restart."""

    def forget(self):
        for key, state in self.store.states.items():
            self.store.states[key] = replace(state, fence=0)
        self.store.now_ms = lambda: 1_000  # so that the clock does not save it


class SessionServer(Server):
    """A run belongs to the connection that won it, as a session lock does."""

    async def hung_up(self, requests):
        for request in requests:
            if request["call"] == "claim":
                backend, claim = await self.backend(request["namespace"]), request["arguments"][0]
                await backend.release(claim["job"], claim["slot"], claim["token"])


class Tokenless(MemoryBackend):
    """Heartbeat, finish and release do not look at the token."""

    async def heartbeat(self, job, slot, token):
        return await super().heartbeat(job, slot, self._current(job, slot, token))

    async def finish(self, job, slot, token, status):
        return await super().finish(job, slot, self._current(job, slot, token), status)

    async def release(self, job, slot, token):
        return await super().release(job, slot, self._current(job, slot, token))

    def _current(self, job, slot, token):
        state = self.store.states.get(self._key(job), EMPTY)
        return next((run.token for run in state.unfinished if run.slot == slot), token)


class TokenlessServer(Server):
    backend_type = Tokenless


class Anew(MemoryBackend):
    """A claim that comes again is a new attempt."""

    async def claim(self, claim):
        if await self.release(claim.job, claim.slot, claim.token):
            state = self.store.states[self._key(claim.job)]
            run = next(run for run in state.unfinished if run.slot == claim.slot)
            return await super().claim(replace(claim, after=run.attempt))
        return await super().claim(claim)


class AnewServer(Server):
    backend_type = Anew


class LongLeases(MemoryBackend):
    """No lease is shorter than a minute."""

    async def claim(self, claim):
        return await super().claim(replace(claim, lease_ms=max(60_000, claim.lease_ms)))


class LongLeaseServer(Server):
    backend_type = LongLeases


class OwnMemory(LineBackend):
    """Knows only what its own process knows."""

    own = MemoryStore()

    async def exchange(self, request):
        backend = await MemoryBackend(self.own, namespace=request["namespace"]).__aenter__()
        arguments = arguments_of(request["call"], request["arguments"])
        return {"answer": to_plain(await getattr(backend, request["call"])(*arguments, **request["options"]))}


class RacyServer(Server):
    """Reads, thinks, and writes what it thought, whatever others wrote meanwhile."""

    async def answer(self, request):
        if request["call"] != "claim":
            return await super().answer(request)
        (claim,) = arguments_of("claim", request["arguments"])
        key, now = (request["namespace"], claim.job), self.store.now_ms()
        state, result = decision.claim(self.store.states.get(key, EMPTY), claim, now)
        await asyncio.sleep(0.003)
        self.store.states[key] = state
        return {"answer": to_plain(result)}


class LocalTime(LineBackend):
    """Writes slots down as the clock on the wall says."""

    async def claim(self, claim):
        return await super().claim(replace(claim, slot=self._local(claim.slot)))

    async def active(self, jobs):
        told = await super().active(jobs)
        shift = self._local(0)
        return ActiveRuns(told.now_ms, tuple(replace(run, slot=run.slot - shift) for run in told.runs))

    def _local(self, slot):
        return slot + 1_000 * time.localtime(slot // 1_000).tm_gmtoff


class CreatesOnce(LineBackend):
    """Entering makes something that must not be there yet, while another makes it."""

    async def enter(self):
        await super().enter()
        made = Claim(
            job="the schema",
            slot=1,
            token=new_token(),
            instance="schema",
            lease_ms=60_000,
            mode="manual",
            overlap="skip",
            max_attempts=1,
            max_late_ms=None,
        )
        if (await self.claim(made)).outcome == "running":
            raise BackendMisconfigured("table already exists")
        await asyncio.sleep(0.1)
        await self.finish("the schema", 1, made.token, "success")


class OfAnyProcess(LineBackend):
    """Uses its connections wherever it is called."""

    def check_home(self):
        pass


class HintsEnd(LineBackend):
    """Its hints end with their connection."""

    async def changes(self, jobs):
        try:
            async for job in self.pushed(jobs):
                yield job
        except OSError:
            return


class HintsTimeOut(LineBackend):
    """Takes a store that has nothing to tell for one that is gone."""

    async def hint(self, connection):
        try:
            async with asyncio.timeout(self._timeout_s):
                return await super().hint(connection)
        except TimeoutError as error:
            raise BackendUnavailable("no hint in time") from error


@dataclass(frozen=True)
class Broken:
    """A defect, and the rules that must catch it."""

    rules: tuple[str, ...]
    client: type = LineBackend
    server: type = Server

    @property
    def name(self):
        return (self.client if self.client is not LineBackend else self.server).__name__


BROKEN = [
    Broken(("FLT-001",), NoDeadline),
    Broken(("FLT-002",), EntersWithoutDeadline),
    Broken(("FLT-003",), WaitsForLeaving),
    Broken(("FLT-021", "FLT-022"), RetriesAsAnother),
    Broken(("FLT-001", "FLT-004", "FLT-020", "FLT-023", "FLT-024", "FLT-025", "FLT-027"), RetriesGuardedAsAnother),
    Broken(("FLT-001", "FLT-020", "FLT-021", "FLT-022", "FLT-027"), ErrorIsRunning),
    Broken(("FLT-001", "FLT-020", "FLT-030"), ErrorIsNothing),
    Broken(("FLT-001", "FLT-002", "FLT-020", "FLT-027"), ErrorIsFinal),
    Broken(("FLT-001", "FLT-020"), NoCause),
    Broken(("FLT-001", "FLT-020", "FLT-030"), BareErrors),
    Broken(("FLT-004", "FLT-005", "FLT-007", "FLT-010", "FLT-020", "FLT-035"), NeverRecovers),
    Broken(("FLT-009", "FLT-010"), KeepsBrokenConnections),
    Broken(("FLT-010", "FLT-036"), LeaksPlaces),
    Broken(("FLT-036",), LeaksConnections),
    Broken(("FLT-028",), DriverRetries),
    Broken(("FLT-028",), RetriesLater),
    Broken(("FLT-011",), Blocks),
    Broken(("FLT-031",), ReadsOnce),
    Broken(("FLT-030",), CompletesReplies),
    Broken(("FLT-009",), SwallowsCancellation),
    Broken(("FLT-007", "FLT-026"), SavesUnderItsCount),
    Broken(("FLT-014",), RepeatsPassword),
    Broken(("FLT-014", "FLT-015"), RefusedIsUnavailable),
    Broken(("FLT-015",), AnySchema),
    Broken(("FLT-016",), AnyFormat),
    Broken(("FLT-016",), LooksAtClaimsAlone),
    Broken(("FLT-032", "FLT-033"), ClientClock, BelievingServer),
    Broken(("FLT-012", "FLT-013"), server=ForgetfulServer),
    Broken(("FLT-013",), server=ShorteningServer),
    Broken(("FLT-012",), server=FenceServer),
    Broken(("FLT-005", "FLT-035"), server=SessionServer),
    Broken(("FLT-006", "FLT-029", "FLT-034", "FLT-037"), server=TokenlessServer),
    Broken(("FLT-007", "FLT-021", "FLT-022", "FLT-029"), server=AnewServer),
    Broken(("FLT-008",), server=LongLeaseServer),
    Broken(("HNT-006",), HintsEnd),
    Broken(("HNT-007",), HintsTimeOut),
]


def _shared(client_type=LineBackend, server_type=Server):
    """A target that workers find in this module under the defect's name."""
    name = (client_type if client_type is not LineBackend else server_type).__name__
    return make_target(client_type, server_type, reference=f"{__name__}:TARGETS_{name}")


TARGETS_ClientClock = _shared(ClientClock, BelievingServer)
TARGETS_OwnMemory = _shared(OwnMemory)
TARGETS_OfAnyProcess = _shared(OfAnyProcess)
TARGETS_LocalTime = _shared(LocalTime)
TARGETS_CreatesOnce = _shared(CreatesOnce)
TARGETS_RacyServer = _shared(server_type=RacyServer)
TARGETS_SessionServer = _shared(server_type=SessionServer)
TARGETS_TokenlessServer = _shared(server_type=TokenlessServer)

BROKEN_PROCESSES = [
    (TARGETS_ClientClock, ("CLK-001", "CLK-002", "CLK-003", "CLK-004", "CLK-005")),
    (TARGETS_OwnMemory, ("CON-101", "CON-102", "LIF-101")),
    (TARGETS_OfAnyProcess, ("LIF-102",)),
    (TARGETS_LocalTime, ("PRC-101",)),
    (TARGETS_CreatesOnce, ("LIF-101",)),
    (TARGETS_RacyServer, ("CON-101", "TKO-102")),
    (TARGETS_SessionServer, ("CON-103", "TKO-101")),
    (TARGETS_TokenlessServer, ("FNC-101",)),
]
