"""What an operator may want to know of the servers."""

from collections.abc import Iterator, Sequence

from tenure.model import Finding

from tenure_redis.server import Server

_FULL = 0.9
_NO_INFO = Finding(
    "servers",
    "warning",
    "INFO is not permitted, so it is unknown whether the server may evict jobs, and what a restart loses",
    "grant +info, or ask who runs it for maxmemory-policy and appendonly",
)


def examine(servers: Sequence[Server] | None, refused: str, rules: str) -> list[Finding]:
    """Findings on the servers, None if they may not be asked, and on the command that was ``refused``, if one was."""
    told = [_NO_INFO] if servers is None else [finding for server in servers for finding in _of(server)]
    return [*told, _rights(refused, rules)]


def _rights(refused: str, rules: str) -> Finding:
    if not refused:
        return Finding("rights", "ok", "the user may do what is needed")
    return Finding("rights", "wrong", f"refused is {refused}", f"ACL SETUSER … {rules}, if the user may not")


def _of(server: Server) -> Iterator[Finding]:
    yield _eviction(server)
    yield _persistence(server)
    yield _failover(server)
    if server.memory_limit and server.memory > _FULL * server.memory_limit:
        text = f"{server.memory / 2**20:.0f} of {server.memory_limit / 2**20:.0f} MB are used"
        yield Finding("memory", "warning", text, "more memory, or fewer keys of others: once it is full, no run starts")


def _eviction(server: Server) -> Finding:
    text = f"maxmemory-policy {server.policy or 'unknown'}"
    if not server.evicts:
        return Finding("eviction", "ok", text)
    remedy = "set it to noeviction, or use a server of its own: runs of jobs that were evicted start again"
    return Finding("eviction", "wrong" if server.memory_limit else "warning", text, remedy)


def _persistence(server: Server) -> Finding:
    if server.durable:
        return Finding("persistence", "ok", f"append-only file, {server.kind}")
    remedy = "set appendonly yes: a restart loses the latest wins, whose runs may start again"
    return Finding("persistence", "warning", f"no append-only file, {server.kind}", remedy)


def _failover(server: Server) -> Finding:
    if server.replicas:
        return Finding("replicas", "ok", f"{server.replicas}; a failover may lose the latest writes, see wait_replicas")
    remedy = "give it a replica, and Sentinel"
    return Finding("replicas", "warning", "none: while the server is down, nothing runs", remedy)
