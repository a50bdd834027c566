"""Servers that answer as DynamoDB does, for the tests: dynalite and moto, and a front that changes what they say."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import formatdate, parsedate_to_datetime
from http.client import HTTPConnection
from urllib.parse import urlsplit

from tenure_conformance.targets import dynamodb, dynamodb_moto
from tenure_dynamodb import StoreClock
from tenure_dynamodb.clock import Moment
from tenure_dynamodb.driver import Account, new_client

SERVERS = {"dynalite": dynamodb.server, "moto": dynamodb_moto.server}
REGION = "eu-west-1"
KEY, SECRET = "AKIDTESTS", "a-secret-word"


class Server:
    """A server on its endpoint; ``client`` asks it directly, past any backend."""

    def __init__(self, url: str) -> None:
        host, port = dynamodb.endpoint_of(url)
        self.endpoint = f"http://{host}:{port}"
        self.client = client_of(self.endpoint)
        self.clock = StoreClock()  # learned once, so that not every test waits for a second to turn

    def url(self, table: str = "tenure", query: str = "create=true", endpoint: str | None = None) -> str:
        return f"dynamodb://{KEY}:{SECRET}@{REGION}/{table}?{query}&endpoint={endpoint or self.endpoint}"

    def items(self, table: str = "tenure") -> list[dict]:
        pages = self.client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]


def client_of(endpoint: str):
    return new_client(Account(REGION, endpoint, None, KEY, SECRET), 5_000, StoreClock())


@contextmanager
def serving(name: str) -> Iterator[Server]:
    with SERVERS[name].serve("binary") as url:
        yield Server(url)


class TestClock(StoreClock):
    """Exact, and moved by the test; it learns nothing."""

    __test__ = False

    def __init__(self, now_ms: int, doubt_ms: int = 0) -> None:
        super().__init__()
        self.now_ms = now_ms
        self.doubt_ms = doubt_ms

    def learn(self, date: str, sent: float, received: float) -> None:
        pass

    def moment(self) -> Moment:
        return Moment(self.now_ms, self.now_ms + self.doubt_ms, self.epoch)


class Front:
    """Stands before a server, with a clock of its own: it shifts the Date of replies, and refuses other signatures.

    ``cut`` is the part of each reply that comes, if not all of it.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.shift_s = 0
        self.cut: float | None = None
        self.refused = 0
        self.requests = 0
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, headers, body: bytes) -> bytes:
        """The whole reply, as bytes."""
        self.requests += 1
        upstream = HTTPConnection(urlsplit(self.server.endpoint).netloc, timeout=30)
        upstream.request("POST", "/", body, {name: value for name, value in headers.items() if name != "Host"})
        reply = upstream.getresponse()
        content, status = reply.read(), reply.status
        now = parsedate_to_datetime(reply.headers["Date"]).timestamp() + self.shift_s
        signed = datetime.strptime(headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        upstream.close()
        if abs(signed - now) > 300:
            self.refused += 1
            content, status = b'{"__type":"com.amazon.coral.service#InvalidSignatureException"}', 400
        lines = [
            f"HTTP/1.1 {status} Told",
            f"Content-Length: {len(content)}",
            f"Date: {formatdate(now, usegmt=True)}",
            "Content-Type: application/x-amz-json-1.0",
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + content

    def _handler(front):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                whole = front.answer(self.headers, body)
                self.wfile.write(whole if front.cut is None else whole[: int(len(whole) * front.cut)])
                self.close_connection = front.cut is not None

            def log_message(self, *_):
                pass

        return Handler


@contextmanager
def fronted(server: Server) -> Iterator[Front]:
    front = Front(server)
    try:
        yield front
    finally:
        front.close()
