"""The etcd backend on clusters: a leader that is killed, members that are dead or silent, restarts, TLS and users."""

import asyncio
import gc
import json
import os
import socket
import ssl
from contextlib import asynccontextmanager

import pytest
from tenure import connect
from tenure.errors import BackendMisconfigured, BackendUnavailable
from tenure.model import Claim
from tenure_etcd import cluster

from .certificates import certificates
from .servers_etcd import HOST, etcd, free_port

SLOT = 1_750_000_000_000


def claim(slot=SLOT, token="one", *, job="job", **changes):
    fields = {"instance": f"at {token}", "lease_ms": 600_000, "mode": "scheduled", "overlap": "skip"}
    limits = {"max_attempts": 3, "max_late_ms": None}
    return Claim(job=job, slot=slot, token=token, **{**fields, **limits, **changes})


async def persistently(call, seconds=30):
    """The call's answer, as the scheduler has it: again after each failure that may pass."""
    limit = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            return await call()
        except BackendUnavailable:
            if asyncio.get_running_loop().time() > limit:
                raise
            await asyncio.sleep(0.05)


def enter(url, **options):
    async def main():
        async with connect(url, **options) as backend:
            return await backend.active(["job"])

    return asyncio.run(main())


# Members


def leader_of(members):
    told = {member: member.ask("/v3/maintenance/status", {}) for member in members if member.is_healthy()}
    return next(member for member, status in told.items() if status["leader"] == status["header"]["member_id"])


def test_the_death_of_the_leader_costs_no_run_and_gives_none_twice():
    """Three members. One after another is killed and comes back, the leader each time, amid claims of two instances."""
    with etcd(count=3) as members:
        url = f"etcd://{','.join(member.address for member in members)}"
        wins: dict[int, list[tuple[str, int]]] = {}

        async def instance(name, ends):
            async with connect(url, timeout="2s") as backend:
                slot = 0
                while not ends.is_set():
                    slot += 1
                    mine = claim(SLOT + slot, f"{name} {slot}", overlap="allow")
                    told = await persistently(lambda mine=mine: backend.claim(mine))
                    if told.outcome == "won":
                        wins.setdefault(slot, []).append((name, told.fence))
                        ended = await persistently(
                            lambda mine=mine: backend.finish("job", mine.slot, mine.token, "success")
                        )
                        assert ended, "a finish was lost"
                return slot

        async def main():
            ends = asyncio.Event()
            instances = [asyncio.create_task(instance(name, ends)) for name in ("a", "b")]
            async with connect(url, timeout="2s") as holder:
                held = await persistently(lambda: holder.claim(claim(job="held", lease_ms=10_000)))
                for _ in range(2):
                    await asyncio.sleep(0.5)
                    leader = await asyncio.to_thread(leader_of, members)
                    await asyncio.to_thread(leader.kill)
                    assert await persistently(lambda: holder.heartbeat("held", SLOT, "one")), "a live run was lost"
                    before = len(wins)
                    async with asyncio.timeout(30):
                        while len(wins) < before + 20:
                            await asyncio.sleep(0.02)
                    await asyncio.to_thread(leader.restart)
                ends.set()
                slots = await asyncio.gather(*instances)
                told = await persistently(lambda: holder.claim(claim(job="held", token="other")))
                assert (told.outcome, told.attempt, held.attempt) == ("running", 1, 1)
                return slots

        slots = asyncio.run(main())
        assert [len(winners) for winners in wins.values()] == [1] * len(wins), "a run was won twice"
        assert set(range(1, min(slots) + 1)) <= set(wins), "a run was won by nobody"
        fences = [winners[0][1] for _, winners in sorted(wins.items())]
        assert len(set(fences)) == len(fences)


def test_members_that_are_dead_or_silent_are_left_for_the_next_one():
    with etcd() as (member,), socket.socket() as silent:
        silent.bind((HOST, 0))
        silent.listen()  # takes connections and never answers
        address = f"{HOST}:{silent.getsockname()[1]}"

        async def main():
            async with connect(f"etcd://{HOST}:{free_port()},{member.address}", timeout="5s") as backend:
                assert (await backend.claim(claim())).outcome == "won"
            backend = connect(f"etcd://{address},{member.address}", timeout="700ms")
            with pytest.raises(BackendUnavailable, match="no answer within"):
                await backend.__aenter__()
            async with connect(f"etcd://{member.address},{address}", timeout="5s") as backend:
                backend._session.cluster.blame(backend._session.cluster.member)
                backend._timeout_ms = 500
                with pytest.raises(BackendUnavailable, match="no answer within"):
                    await backend.active(["job"])
                assert len((await backend.active(["job"])).runs) == 1

        asyncio.run(main())


def test_a_restart_is_lived_through_and_watches_come_back():
    with etcd() as (member,):

        async def main():
            url = f"etcd://{member.address}"
            async with connect(url, timeout="2s") as a, connect(url, timeout="2s") as b:
                assert (await a.claim(claim(lease_ms=10_000))).outcome == "won"
                heard = asyncio.Queue()

                async def listen():
                    async for job in b.changes(["job"]):
                        heard.put_nowait(job)

                listening = asyncio.create_task(listen())
                await asyncio.to_thread(member.restart)
                assert await persistently(lambda: a.heartbeat("job", SLOT, "one"))
                assert (await persistently(lambda: b.claim(claim(token="two")))).outcome == "running"
                async with asyncio.timeout(20):
                    slot = SLOT
                    while heard.empty():
                        await persistently(lambda: a.release("job", slot, "one"))  # noqa: B023  called at once
                        slot += 1
                        await persistently(lambda: a.claim(claim(slot)))  # noqa: B023  called at once
                        await asyncio.sleep(0.05)
                listening.cancel()

        asyncio.run(main())


def files_and_memory():
    gc.collect()
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    return len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_connections_that_come_and_go_leave_nothing_behind():
    """Shortened; tests/endurance does 200 of them, and 100,000 runs."""
    with etcd() as (member,):

        async def main():
            async with connect(f"etcd://{member.address}", timeout="5s") as backend:
                seen = []
                for turn in range(30):
                    backend._session.cluster.blame(backend._session.cluster.member)
                    assert (await backend.claim(claim(SLOT + turn))).outcome == "won"
                    assert await backend.finish("job", SLOT + turn, "one", "success")
                    if turn >= 10:
                        seen.append(files_and_memory())
                return seen

        seen = asyncio.run(main())
        assert seen[-1][0] <= seen[0][0] + 3, [files for files, _ in seen]
        assert seen[-1][1] <= seen[0][1] + 10, [megabytes for _, megabytes in seen]


# TLS


@pytest.fixture(scope="module")
def secure():
    """A member that asks for a client's certificate, and the files."""
    with certificates() as directory:
        files = {path.name.removesuffix(".pem"): str(path) for path in directory.iterdir()}
        extra = ("--cert-file", files["server"], "--key-file", files["server.key"])
        trusted = ("--client-cert-auth", "--trusted-ca-file", files["ca"])
        with etcd(None, *extra, *trusted, connects=True) as (member,):
            yield member, files


def test_certificates_of_both_sides(secure):
    member, files = secure
    url = f"etcds://{member.address}?cacert={files['ca']}&timeout=20s"

    async def main():
        async with connect(f"{url}&cert={files['client']}&key={files['client.key']}") as backend:
            assert (await persistently(lambda: backend.claim(claim()))).outcome == "won"
            assert backend.capabilities.clock_error_ms == 50

    asyncio.run(main())


def test_what_is_wrong_about_tls_is_told(secure):
    member, files = secure
    client = f"cert={files['client']}&key={files['client.key']}"
    for url, words in (
        (f"etcds://{member.address}?{client}", "give cacert"),
        (f"etcd://{member.address}", "write etcds://"),
        (f"etcds://{member.address}?cacert={files['client']}&{client}", "give cacert"),
        (f"etcds://{member.address}?cacert={files['ca.key']}&{client}", "cannot be used"),
    ):
        with pytest.raises(BackendMisconfigured, match=words):
            enter(url)
    with pytest.raises(BackendMisconfigured, match="give cert and key"):
        enter(f"etcds://{member.address}?cacert={files['ca']}")
    with etcd() as (plain,), pytest.raises(BackendMisconfigured, match="write etcd://"):
        enter(f"etcds://{plain.address}")


def test_tls_is_verified_by_default():
    context = connect("etcds://host")._settings.tls.context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


# Users


def with_users(member):
    """A root, and the user of the page with the permissions of the page."""
    ask = member.ask
    ask("/v3/auth/user/add", {"name": "root", "password": "r00t"})
    ask("/v3/auth/role/add", {"name": "root"})
    ask("/v3/auth/user/grant", {"user": "root", "role": "root"})
    ask("/v3/auth/role/add", {"name": "tenure-billing"})
    grant(member, "tenure-billing", "READWRITE", b"tenure/billing/")
    ask("/v3/auth/user/add", {"name": "billing", "password": "p@ss/word"})
    ask("/v3/auth/user/grant", {"user": "billing", "role": "tenure-billing"})
    ask("/v3/auth/role/add", {"name": "reader"})
    grant(member, "reader", "READ", b"tenure/billing/")
    ask("/v3/auth/user/add", {"name": "reader", "password": "reads"})
    ask("/v3/auth/user/grant", {"user": "reader", "role": "reader"})
    ask("/v3/auth/enable", {})


def grant(member, role, kind, prefix):
    from .servers_etcd import b64

    permission = {"permType": kind, "key": b64(prefix), "range_end": b64(prefix[:-1] + bytes([prefix[-1] + 1]))}
    member.ask("/v3/auth/role/grant", {"name": role, "perm": permission})


@asynccontextmanager
async def billing(member, **options):
    url = f"etcd://billing:p%40ss%2Fword@{member.address}"
    async with connect(url, namespace="billing", timeout="5s", **options) as backend:
        yield backend


def test_users():
    """One server for all of it: what the page's permissions allow, tokens that are no longer good, what is refused."""
    with etcd() as (member,):
        assert enter(f"etcd://anyone:word@{member.address}").runs == ()  # users are off, as for etcd's own clients
        with_users(member)

        async def allowed():
            async with billing(member) as backend:
                assert {finding.what: finding.state for finding in await backend.examine()}["rights"] == "ok"
                assert (await backend.claim(claim(lease_ms=2_000))).outcome == "won"
                assert await backend.heartbeat("job", SLOT, "one")
                hints = backend.changes(["job"])
                heard = asyncio.ensure_future(anext(hints))
                assert await asyncio.wait_for(heard, 20) == "job"
                assert await backend.heartbeat("job", SLOT, "one"), "it was not revived"
                assert await backend.release("job", SLOT, "one")
                await hints.aclose()

        async def tokens_end():
            async with billing(member) as backend:
                first = backend._session.cluster._token
                backend._session.cluster._token = "no.1"
                assert (await backend.claim(claim(SLOT + 1))).outcome == "won"
                assert backend._session.cluster._token not in ("no.1", first)
                await asyncio.to_thread(member.restart)  # it forgets the tokens that it gave
                assert await persistently(lambda: backend.heartbeat("job", SLOT + 1, "one"))
                assert await persistently(lambda: backend.finish("job", SLOT + 1, "one", "success"))

        async def reads():
            url = f"etcd://reader:reads@{member.address}"
            async with connect(url, namespace="billing", create=False, timeout="5s") as backend:
                assert [one.attempt for one in (await backend.active(["job"])).runs] == [1]
                rights = {finding.what: finding for finding in await backend.examine()}["rights"]
                assert (rights.state, "readwrite tenure/billing/" in rights.remedy) == ("wrong", True)
                with pytest.raises(BackendMisconfigured, match=r"permission denied.*readwrite tenure/billing/"):
                    await backend.claim(claim(SLOT + 2))

        asyncio.run(allowed())
        asyncio.run(reads())
        asyncio.run(tokens_end())
        refused = {
            f"etcd://billing:a-secret-word@{member.address}": "user or password is wrong",
            f"etcd://nobody:a-secret-word@{member.address}": "user or password is wrong",
            f"etcd://{member.address}": "it asks for a user",
        }
        for url, words in refused.items():
            with pytest.raises(BackendMisconfigured, match=words) as caught:
                enter(url, namespace="billing")
            assert "a-secret-word" not in f"{caught.value} {caught.value.__cause__!r}"
        with pytest.raises(BackendMisconfigured, match="readwrite tenure/sales/"):
            enter(f"etcd://billing:p%40ss%2Fword@{member.address}", namespace="sales")


# Not etcd


def test_what_is_no_etcd_is_told():
    async def web(reader, writer):
        await reader.read(1_000)
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def main():
        async with await asyncio.start_server(web, HOST, 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises((BackendMisconfigured, BackendUnavailable)) as caught:
                async with connect(f"etcd://{HOST}:{port}", timeout="3s"):
                    pass
            return caught.value

    assert isinstance(asyncio.run(main()), BackendMisconfigured)


def test_the_remedies_are_found_in_what_etcd_says():
    from tenure_etcd import errors

    for words in (*errors._MISCONFIGURED, *errors._UNAVAILABLE):
        assert words == words.lower(), f"{words!r} is never found"


def test_calls_are_not_sent_again_by_grpc():
    assert dict(cluster._OPTIONS)["grpc.enable_retries"] == 0
    assert json.dumps(cluster._WITH_LEADER) == '[["hasleader", "true"]]'
