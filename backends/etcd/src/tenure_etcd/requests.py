"""What is sent to etcd: pure functions that build its requests, and nothing else knows of them."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from aetcd.rpc import rpc_pb2 as pb  # type: ignore[import-untyped]  # aetcd has no annotations

from tenure_etcd.keys import KEPT, JobKeys, range_end
from tenure_etcd.state import Place, encode_beat

Request = Any
"""A message of etcd's protocol; its classes have no types."""


def read_job(job: JobKeys) -> Request:
    """Everything of a job, as of one revision and never from a member that lags."""
    return pb.RangeRequest(key=job.prefix, range_end=job.end)


def replace_state(
    job: JobKeys,
    revision: int,
    state: bytes,
    *,
    live: Place | None = None,
    held: Place | None = None,
    token: str = "",
    over: Sequence[Place] = (),
) -> Request:
    """Store the state if the one of that revision is still there, else read the job.

    The run in the place ``live``, which the token holds, hangs on its lease from then on, those in the places ``over``
    on none. The run in the place ``held``, which the token holds too, must still hang on its own.
    """
    unchanged = pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=job.state, mod_revision=revision)
    success = [_op(request_put=pb.PutRequest(key=job.state, value=state))]
    if live is not None:
        success.append(
            _op(request_put=pb.PutRequest(key=job.live(live.number), value=_holder(token), lease=live.lease))
        )
    success += [_op(request_delete_range=pb.DeleteRangeRequest(key=job.live(place.number))) for place in over]
    return pb.TxnRequest(
        compare=[unchanged, *([] if held is None else _hangs_on(job, held, token))],
        success=success,
        failure=[_read_op(job.prefix, job.end)],
    )


@lru_cache(maxsize=KEPT)
def _read_op(prefix: bytes, end: bytes) -> Request:
    return _op(request_range=pb.RangeRequest(key=prefix, range_end=end))


def write_beat(job: JobKeys, place: Place, token: str, end: int) -> Request:
    """Store when the lease ends, if it is the one that keeps the token's run in that place alive."""
    put = pb.PutRequest(key=job.beat(place.number), value=encode_beat(place, end))
    return pb.TxnRequest(compare=_hangs_on(job, place, token), success=[_op(request_put=put)])


def save_record(history: bytes, key: bytes, record: bytes, *, overwrites: bool) -> Request:
    """Store a record, unless there is one and it does not overwrite; the last part of the answer counts them all."""
    put = _op(request_put=pb.PutRequest(key=key, value=record))
    count = _op(request_range=pb.RangeRequest(key=history, range_end=range_end(history), count_only=True))
    absent = pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.CREATE, key=key, create_revision=0)
    return pb.TxnRequest(compare=[] if overwrites else [absent], success=[put, count], failure=[count])


def read_records(history: bytes, limit: int, *, keys_only: bool = False) -> Request:
    """The newest records."""
    return pb.RangeRequest(key=history, range_end=range_end(history), limit=limit, keys_only=keys_only)


def drop_records(history: bytes, first: bytes) -> Request:
    """Drop a record and all that are older."""
    return pb.DeleteRangeRequest(key=first, range_end=range_end(history))


def about(question: str) -> Request:
    """A question about the cluster itself: ``status`` or ``members``."""
    return pb.StatusRequest() if question == "status" else pb.MemberListRequest()


def would_write(known: bytes, key: bytes) -> Request:
    """A write that never happens, since no key is both there and not: whether it were permitted is looked at first."""
    there, absent = (
        pb.Compare(result=result, target=pb.Compare.CREATE, key=known, create_revision=0)
        for result in (pb.Compare.GREATER, pb.Compare.EQUAL)
    )
    return pb.TxnRequest(compare=[there, absent], success=[_op(request_put=pb.PutRequest(key=key, value=b""))])


def read_all(prefix: bytes) -> Request:
    """All keys with that prefix."""
    return pb.RangeRequest(key=prefix, range_end=range_end(prefix))


def write_keys(pairs: Mapping[bytes, bytes]) -> Request:
    """Store several keys."""
    return pb.TxnRequest(success=[_op(request_put=pb.PutRequest(key=key, value=pairs[key])) for key in pairs])


def drop_keys(keys: Sequence[bytes]) -> Request:
    """Drop several keys."""
    return pb.TxnRequest(success=[_op(request_delete_range=pb.DeleteRangeRequest(key=key)) for key in keys])


def read_key(key: bytes) -> Request:
    """One key."""
    return pb.RangeRequest(key=key)


def create_key(key: bytes, value: bytes) -> Request:
    """Store a key if there is none, else read it."""
    return pb.TxnRequest(
        compare=[pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.CREATE, key=key, create_revision=0)],
        success=[_op(request_put=pb.PutRequest(key=key, value=value))],
        failure=[_op(request_range=pb.RangeRequest(key=key))],
    )


def grant(ttl_s: int) -> Request:
    """A lease of so many seconds; the server chooses its id, so that none is ever used twice."""
    return pb.LeaseGrantRequest(TTL=ttl_s)


def keep_alive(lease: int) -> Request:
    """The lease anew, for its full length."""
    return pb.LeaseKeepAliveRequest(ID=lease)


def revoke(lease: int) -> Request:
    """The lease's end, and that of the key that hangs on it."""
    return pb.LeaseRevokeRequest(ID=lease)


def authenticate(user: str, password: str) -> Request:
    """A token for a user."""
    return pb.AuthenticateRequest(name=user, password=password)


def watch_ends(job: JobKeys, number: int) -> Request:
    """News of each lease of the job that ends, under that number."""
    return pb.WatchRequest(
        create_request=pb.WatchCreateRequest(
            key=job.lives, range_end=range_end(job.lives), watch_id=number, filters=[pb.WatchCreateRequest.NOPUT]
        )
    )


def _hangs_on(job: JobKeys, place: Place, token: str) -> list[Request]:
    """That the token's run is in that place, and hangs on that very lease, which another run may have had before."""
    key = job.live(place.number)
    return [
        pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.VALUE, key=key, value=_holder(token)),
        pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.LEASE, key=key, lease=place.lease),
    ]


def _holder(token: str) -> bytes:
    return blake2b(token.encode(), digest_size=12).digest()


def _op(**request: Request) -> Request:
    return pb.RequestOp(**request)
