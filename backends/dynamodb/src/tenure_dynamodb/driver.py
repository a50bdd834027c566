"""boto3, as tenure needs it: a client that never tries again by itself, and that signs by the store's clock."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from typing import Any
from zlib import crc32

from tenure.duration import Duration, to_ms
from tenure.errors import InvalidUrl

from tenure_dynamodb.clock import StoreClock, local_ms

# Imported when the backend is, so that entering does not wait for it; nothing in tenure needs boto3's types.
_auth: Any = import_module("botocore.auth")
_config: Any = import_module("botocore.config")
_core: Any = import_module("botocore.session")
_boto3: Any = import_module("boto3.session")

CONNECTIONS = 16
_SIGNATURE = "tenure-v4"
_STAMP = "%Y%m%dT%H%M%SZ"
_CERTAIN_MS = 60_000
"""AWS takes signatures that are a few minutes off; as soon as the clock is known better than this, it is used."""


@dataclass(frozen=True, slots=True)
class Account:
    """Where the table is, and who asks; what is None is found out by boto3, as always."""

    region: str | None = None
    endpoint: str | None = field(default=None, repr=False)
    profile: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)


def client_config(timeout: Duration = "5s") -> Any:
    """The ``botocore.config.Config`` for a client of one's own: no retries, and no wait longer than the timeout."""
    timeout_s = to_ms(timeout, "timeout", minimum_ms=1) / 1_000
    return _config.Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=timeout_s,
        read_timeout=timeout_s,
        max_pool_connections=CONNECTIONS,
        parameter_validation=False,
        tcp_keepalive=True,
    )


class _Way(threading.local):
    """When this thread's last request went out and its reply came in, of ``local_ms``, without botocore's own work."""

    sent: float = 0.0
    received: float = 0.0


way: _Way = _Way()


class CutReply(ConnectionError):
    """A reply that did not arrive whole."""


def fit(client: Any) -> Any:
    """Make a client's replies safe to believe; refuse (InvalidUrl) one that tries again behind its caller's back."""
    retries = client.meta.config.retries or {}
    attempts = retries.get("total_max_attempts", retries.get("max_attempts", 4) + 1)
    if attempts != 1:
        raise InvalidUrl(
            f"client: it sends a request up to {attempts} times; make it with config=tenure_dynamodb.client_config()"
        )
    events = client.meta.events
    events.register_last("before-send.dynamodb", _note_sent, unique_id="tenure-sent")
    events.register_first("before-parse.dynamodb", _note_received, unique_id="tenure-received")
    events.register("before-parse.dynamodb", _check_whole, unique_id="tenure-whole-replies")
    return client


def _note_sent(**_: Any) -> None:
    way.sent = local_ms()


def _note_received(**_: Any) -> None:
    way.received = local_ms()


def _check_whole(response_dict: Any, **_: Any) -> None:
    """Refuse a reply that was cut: botocore would take it for one that says nothing, an item for no item."""
    headers, body = response_dict["headers"], response_dict["body"]
    length, checksum = headers.get("content-length", ""), headers.get("x-amz-crc32")
    if headers.get("transfer-encoding") == "chunked":
        _check_json(body)
    elif not length.isdigit() or int(length) != len(body):
        raise CutReply(f"{len(body)} bytes came of a reply of {length or 'unknown'} bytes")
    if checksum and not headers.get("content-encoding") and checksum != str(crc32(body)):
        raise CutReply("the checksum of the reply is another")
    if response_dict["status_code"] < 300 and "json" not in headers.get("content-type", ""):
        raise ValueError("a reply that is no JSON")


def _check_json(body: bytes) -> None:
    try:
        json.loads(body)
    except ValueError as exc:
        raise CutReply("a reply that ends before its end") from exc


def new_client(account: Account, timeout_ms: int, clock: StoreClock) -> Any:
    """A client of a session of its own; making one blocks, and nothing is sent."""
    core = _core.Session(profile=account.profile)
    core.register_component("data_loader", _loader(core))
    session = _boto3.Session(
        aws_access_key_id=account.access_key,
        aws_secret_access_key=account.secret_key,
        region_name=account.region,
        botocore_session=core,
    )
    client = session.client(
        "dynamodb",
        endpoint_url=account.endpoint,
        config=client_config(f"{timeout_ms}ms"),
    )
    _sign_by(client, clock)
    return fit(client)


_loaders: list[Any] = []


def _loader(core: Any) -> Any:
    """The loader of botocore's descriptions, which takes most of the time that a client takes; one is enough."""
    if not _loaders:
        _loaders.append(core.get_component("data_loader"))
    return _loaders[0]


def _sign_by(client: Any, clock: StoreClock) -> None:
    """Sign by the store's clock once it is known: AWS refuses what is signed by a clock that is wrong by an hour."""
    _auth.AUTH_TYPE_MAPS.setdefault(_SIGNATURE, _signer(_auth.SigV4Auth))

    def choose(signature_version: Any = None, **_: Any) -> str | None:
        return _SIGNATURE if signature_version == "v4" else None

    def note(request: Any, **_: Any) -> None:
        request.context["tenure_clock"] = clock

    client.meta.events.register_first("choose-signer.dynamodb", choose)
    client.meta.events.register("before-sign.dynamodb", note)


def _signer(plain: Any) -> Any:
    """The signer of botocore with another clock."""
    modify: Callable[[Any, Any], None] = plain._modify_request_before_signing

    def modify_request(self: Any, request: Any) -> None:
        moment = request.context["tenure_clock"].moment()
        if moment.doubt_ms < _CERTAIN_MS:
            now = datetime.fromtimestamp(moment.early / 1_000, UTC)
            request.context["timestamp"] = now.strftime(_STAMP)
        modify(self, request)

    return type("StoreTimeAuth", (plain,), {"_modify_request_before_signing": modify_request})
