"""The errors of gRPC and etcd, as a caller gets them: whether trying again helps, and what does."""

from typing import Any

import grpc  # type: ignore[import-untyped]  # grpcio has no annotations
from tenure.errors import BackendError, BackendMisconfigured, BackendUnavailable

REFUSED = "failed to connect"
"""In the details of a call that never left, since nothing took the connection."""

_TOKEN = ("invalid auth token", "user name is empty", "revision of auth store is old")
_MISCONFIGURED = {
    "invalid user id or password": "user or password is wrong; write etcd://user:password@host",
    "user name is empty": "it asks for a user; write etcd://user:password@host",
    "invalid auth token": "it does not take the user's token; look at etcd's --auth-token",
    "certificate_verify_failed": "its certificate is not one of an authority that is known here; give cacert",
    "hostname mismatch": "its certificate is not for this host; name the host as the certificate does",
    "_alert_": "it does not take our certificate; give cert and key that its authority has signed",
    "wrong_version_number": "it does not speak TLS; write etcd:// instead of etcds://",
    "http1.x server": "it is not etcd's client port",
    "http2 framing": "it is not etcd's client port, or asks for TLS: write etcds://",
    "request is too large": "the job's runs do not fit into a request (etcd's --max-request-bytes, 1.5 MB)",
    "unknown service": "it is not etcd, or older than 3.4",
}
_UNAVAILABLE = {
    "database space exceeded": "its disk quota is used up; compact, defragment, `etcdctl alarm disarm`, and let it"
    " compact by itself (--auto-compaction-retention)",
    "connection refused": "is it running there? look at host and port",
    "no leader": "its cluster has no leader now",
    "leader changed": "its cluster has just chosen another leader",
    "too many requests": "it has more to do than it can",
    "request timed out": "its cluster did not agree in time; a majority of its members may be out of reach",
}
_CODES = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
}
"""Of answers that will be the same the next time."""
_ELSEWHERE = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
}
"""Of answers that another member may not give."""


def code_of(error: BaseException) -> Any:
    """The gRPC status of a call's error, None if it is something else."""
    return error.code() if isinstance(error, grpc.aio.AioRpcError) else None


def details_of(error: BaseException) -> str:
    """What the status says."""
    return (error.details() or "") if isinstance(error, grpc.aio.AioRpcError) else str(error)


def needs_token(error: BaseException) -> bool:
    """Whether the call was refused for want of a token that is still good; it was not carried out."""
    return any(words in details_of(error) for words in _TOKEN)


def never_left(error: BaseException) -> bool:
    """Whether the call was surely not sent."""
    return code_of(error) is grpc.StatusCode.UNAVAILABLE and details_of(error).startswith(REFUSED)


def needs_no_user(error: BaseException) -> bool:
    """Whether the cluster knows no users at the moment."""
    return "authentication is not enabled" in details_of(error)


def blames_member(error: BaseException) -> bool:
    """Whether another member of the cluster may do better."""
    return code_of(error) in _ELSEWHERE


def lease_is_gone(error: BaseException) -> bool:
    """Whether the lease that a transaction puts a key on is no more."""
    return code_of(error) is grpc.StatusCode.NOT_FOUND and "lease not found" in details_of(error)


def translate(error: BaseException, store: str, prefix: str) -> BackendError:
    """The error as a caller gets it, with the store and the remedy; never with a secret."""
    if isinstance(error, BackendError):
        return error
    code, said = code_of(error), details_of(error)
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return BackendMisconfigured(
            f"{store}: {said}: the user may not use the keys that begin with {prefix!r};"
            f" `etcdctl role grant-permission ROLE --prefix=true readwrite {prefix}` allows it"
        )
    for kind, remedies in ((BackendMisconfigured, _MISCONFIGURED), (BackendUnavailable, _UNAVAILABLE)):
        for words, remedy in remedies.items():
            if words in said.lower():
                return kind(f"{store}: {said}: {remedy}")
    kind = BackendMisconfigured if code in _CODES else BackendUnavailable
    return kind(f"{store}: {said or type(error).__name__}")
