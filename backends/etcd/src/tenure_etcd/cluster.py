"""Calls to a cluster over gRPC channels of our own: one member at a time, another after a failure, and no retries."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import grpc  # type: ignore[import-untyped]  # grpcio has no annotations
from aetcd.rpc import rpc_pb2 as pb  # type: ignore[import-untyped]  # aetcd has no annotations
from aetcd.rpc import rpc_pb2_grpc as stubs
from tenure.errors import BackendMisconfigured, BackendUnavailable

from tenure_etcd import errors, requests
from tenure_etcd.requests import Request
from tenure_etcd.settings import Settings

Told = TypeVar("Told")
Answer = Any
"""A message of etcd's protocol; its classes have no types."""

_OPTIONS = (
    ("grpc.enable_retries", 0),  # a call that failed may have been carried out
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel takes the silent connection of the old one
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 250),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 10_000),  # etcd takes more than one in five seconds for an attack
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.http2.bdp_probe", 0),  # else each answer is followed by a ping, which the next request waits behind
)
SHORT_S = 60
"""A lease of at most this is not given back: etcd ends it for as little, and a request is saved."""
_WITH_LEADER = (("hasleader", "true"),)
"""A member that has no leader says so at once, instead of after its own timeout."""


class Member:
    """A channel to one member, and the methods that are called on it."""

    def __init__(self, endpoint: str, channel: Any) -> None:
        self.endpoint = endpoint
        self.channel = channel
        kv, lease = stubs.KVStub(channel), stubs.LeaseStub(channel)
        self.read: Any = kv.Range
        self.txn: Any = kv.Txn
        self.drop: Any = kv.DeleteRange
        self.grant: Any = lease.LeaseGrant
        self.revoke: Any = lease.LeaseRevoke
        # It has streams, but one that ends after a single request is as good, and cheaper to have as a plain call.
        self.keep_alive: Any = channel.unary_unary(
            "/etcdserverpb.Lease/LeaseKeepAlive",
            request_serializer=pb.LeaseKeepAliveRequest.SerializeToString,
            response_deserializer=pb.LeaseKeepAliveResponse.FromString,
        )
        self.authenticate: Any = stubs.AuthStub(channel).Authenticate
        self.status: Any = stubs.MaintenanceStub(channel).Status
        self.members: Any = stubs.ClusterStub(channel).MemberList
        self.watch: Any = stubs.WatchStub(channel).Watch


class Cluster:
    """Belongs to the loop and the process in which it was made; ``aclose`` ends what is still on its way."""

    def __init__(self, settings: Settings, timeout_s: float) -> None:
        self.settings = settings
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.closed: bool = False
        self._pid = os.getpid()
        self._credentials = _credentials(settings)
        self._options = (*_OPTIONS, ("grpc.min_reconnect_backoff_ms", int(timeout_s * 1_000)))
        self._timeout_s = timeout_s
        self._turn = 0
        self._member: Member | None = None
        self._token: str | None = None
        self._authenticating = asyncio.Lock()
        self._background: set[asyncio.Task[Any]] = set()

    def check(self) -> None:
        """Refuse another loop and a forked child: gRPC's channels work in neither, and may hang there."""
        if self._pid != os.getpid():
            raise BackendMisconfigured(
                f"{self.settings}: this process was forked after the backend was entered, and gRPC does not work over"
                " a fork; enter a backend of its own in a process that is started anew (spawn)"
            )
        if self.loop is not asyncio.get_running_loop():
            raise BackendMisconfigured(
                f"{self.settings}: the backend was entered in another event loop; enter one in each loop"
            )

    @property
    def member(self) -> Member:
        """The member that is asked now."""
        if self._member is None:
            endpoint = self.settings.endpoints[self._turn % len(self.settings.endpoints)]
            self._member = Member(endpoint, self._channel(endpoint))
        return self._member

    async def call(self, method: str, request: Request) -> Answer:
        """The answer to one request; AioRpcError if there is none: the next request goes elsewhere if that may help.

        A request that surely was not sent goes to the other members at once, any other is sent once.
        """
        for _ in self.settings.endpoints[1:]:
            try:
                return await self._ask(method, request)
            except grpc.aio.AioRpcError as exc:
                if not errors.never_left(exc):
                    raise
        return await self._ask(method, request)

    async def keep_alive(self, lease: int) -> int:
        """Renew a lease; the seconds that it has now, 0 if it is no more."""
        answer = await self.call("keep_alive", requests.keep_alive(lease))
        return int(answer.TTL)

    async def grant(self, ttl_s: int) -> tuple[int, int]:
        """A new lease, and the seconds that it has: more than asked for where the server's least is more."""
        answer = await self.call("grant", requests.grant(ttl_s))
        return answer.ID, answer.TTL

    def give_back(self, lease: int, ttl_s: int) -> None:
        """End a lease that no run needs any more, some time soon; a short one ends by itself."""
        if ttl_s > SHORT_S:
            self.spawn(self.call, "revoke", requests.revoke(lease))

    def spawn(self, work: Callable[..., Coroutine[Any, Any, Told]], *arguments: Any) -> "asyncio.Task[Told]":
        """Do something beside, whose failure matters to nobody, for the timeout at most."""
        return self.keep_up(self._in_time, work, *arguments)

    def keep_up(self, work: Callable[..., Coroutine[Any, Any, Told]], *arguments: Any) -> "asyncio.Task[Told]":
        """Do something beside until it ends or the cluster is closed."""
        task = self.loop.create_task(work(*arguments))
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    async def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes along with each request."""
        if self.settings.user is None:
            return _WITH_LEADER
        if self._token is None:
            await self._authenticate(None)
        return _WITH_LEADER if not self._token else (*_WITH_LEADER, ("token", self._token))

    def forget_token(self) -> None:
        """Have a new token with the next request."""
        self._token = None

    def blame(self, member: Member) -> None:
        """Ask another member from now on, or this one over a new connection; what is on its way is left alone."""
        if self._member is member:
            self._turn += 1
            self._member = None
            self.keep_up(self._retire, member)

    async def aclose(self) -> None:
        """End everything."""
        self.closed = True
        tasks = tuple(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        member, self._member = self._member, None
        if member is not None:
            await member.channel.close()

    async def _in_time(self, work: Callable[..., Coroutine[Any, Any, Told]], *arguments: Any) -> Told:
        async with asyncio.timeout(self._timeout_s):
            return await work(*arguments)

    async def _retire(self, member: Member) -> None:
        """Close a channel once its calls have ended."""
        try:
            await member.channel.close(grace=self._timeout_s)
        finally:
            await member.channel.close()

    async def _ask(self, method: str, request: Request) -> Answer:
        """Once, or twice if the first was refused for its token."""
        member = self.member
        try:
            if self.settings.user is None:  # by far the most
                return await self._send(member, method, request, _WITH_LEADER)
            return await self._send_with_token(member, method, request)
        except grpc.aio.AioRpcError as exc:
            if errors.blames_member(exc) and len(self.settings.endpoints) > 1:
                self.blame(member)
            raise
        except asyncio.CancelledError as exc:
            if is_wanted():
                raise
            raise BackendUnavailable(f"{self.settings}: the connection was closed amid the call") from exc

    async def _send_with_token(self, member: Member, method: str, request: Request) -> Answer:
        metadata = await self.metadata()
        token = self._token
        try:
            return await self._send(member, method, request, metadata)
        except grpc.aio.AioRpcError as exc:
            if not errors.needs_token(exc):
                raise
        await self._authenticate(token)
        return await self._send(member, method, request, await self.metadata())

    async def _send(
        self, member: Member, method: str, request: Request, metadata: tuple[tuple[str, str], ...]
    ) -> Answer:
        return await getattr(member, method)(request, metadata=metadata)

    async def _authenticate(self, stale: str | None) -> None:
        """A token instead of the stale one, unless another call has had one meanwhile."""
        assert self.settings.user is not None
        async with self._authenticating:
            if self._token != stale:
                return
            request = requests.authenticate(self.settings.user, self.settings.password or "")
            try:
                self._token = (await self._send(self.member, "authenticate", request, ())).token
            except grpc.aio.AioRpcError as exc:
                if not errors.needs_no_user(exc):
                    raise
                self._token = ""  # users are known and not asked for

    def _channel(self, endpoint: str) -> Any:
        if self._credentials is None:
            return grpc.aio.insecure_channel(endpoint, options=self._options)
        return grpc.aio.secure_channel(endpoint, self._credentials, options=self._options)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # so that asyncio does not complain of it


def _credentials(settings: Settings) -> Any:
    return None if settings.tls is None else grpc.ssl_channel_credentials(**settings.tls.read())


def is_wanted() -> bool:
    """Whether this task was told to end, not only the call."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
