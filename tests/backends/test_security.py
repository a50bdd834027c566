"""Over all backends: a password of the URL is in no text, and a server's certificate is looked at."""

import asyncio
import base64
import gc
import itertools
import logging
import socket
import socketserver
import ssl
import threading
import traceback
from contextlib import contextmanager, suppress
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from tenure import BackendError, BackendMisconfigured, Scheduler, connect
from tenure.cli.commands import tenure as command
from tenure_conformance.faults.proxy import Proxy
from tenure_conformance.servers import HOST
from tenure_conformance.servers.recipe import free_port

from .certificates import certificates
from .servers_dynamodb import client_of
from .servers_etcd import etcd
from .servers_redis import tls_front

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""pymongo's monitor leaves a socket to the collector when it is told to end while it connects."""

USER, PASSWORD = "sched-user", "hunter2/w@rd:x%"
QUOTED = quote(PASSWORD, safe="")
SECRETS = {
    PASSWORD,
    QUOTED,
    "hunter2",
    base64.b64encode(PASSWORD.encode()).decode(),
    base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode(),
    PASSWORD.encode().hex(),
}
URLS = {
    "redis": f"redis://{USER}:{QUOTED}@PLACE/0?timeout=300ms",
    "rediss": f"rediss://{USER}:{QUOTED}@PLACE/0?timeout=300ms",
    "redis+cluster": f"redis+cluster://{USER}:{QUOTED}@PLACE?timeout=300ms",
    "postgresql": f"postgresql://{USER}:{QUOTED}@PLACE/app?timeout=300ms",
    "postgresql, in the query": f"postgresql://PLACE/app?user={USER}&password={QUOTED}&timeout=300ms",
    "mongodb": f"mongodb://{USER}:{QUOTED}@PLACE/app?directConnection=true&timeout=300ms",
    "dynamodb": f"dynamodb://{USER}:{QUOTED}@eu-west-1/jobs?timeout=300ms&endpoint=http://PLACE",
    "etcd": f"etcd://{USER}:{QUOTED}@PLACE?timeout=300ms",
    "etcds": f"etcds://{USER}:{QUOTED}@PLACE?timeout=300ms",
}


def without_secrets(*texts):
    told = "\n".join(texts)
    assert [secret for secret in SECRETS if secret in told] == [], told


def told_of(error):
    """All that anybody may print of it: its text, and its traceback with all its causes."""
    return "".join([str(error), repr(error), *traceback.format_exception(error)])


@pytest.fixture(autouse=True)
def everything_is_logged(caplog):
    caplog.set_level(logging.DEBUG, "tenure")
    caplog.set_level(logging.WARNING)


@pytest.fixture(autouse=True)
def nothing_is_left_to_later_tests():
    yield
    gc.collect()


def enter(backend):
    async def main():
        async with backend:
            await backend.active(["sync"])

    asyncio.run(main())


# Passwords


@contextmanager
def serving(answer, host=HOST):
    """The place of a server that does with each connection what it is told to."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            with suppress(OSError):
                self.request.settimeout(5)
                answer(self.request)

    with socketserver.ThreadingTCPServer((host, 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"{HOST}:{server.server_address[1]}"
        server.shutdown()


def says_nothing(connection):
    while connection.recv(65_536):
        pass


def hangs_up(connection):
    connection.recv(65_536)


def talks_nonsense(connection):
    connection.recv(65_536)
    connection.sendall(b"SSH-2.0-OpenSSH_9.7\r\n" * 20)


def repeats_all(connection):
    while data := connection.recv(65_536):
        connection.sendall(data)


def repeats_all_as_an_error_of_redis(connection):
    while data := connection.recv(65_536):
        connection.sendall(b"-ERR what is this: " + data.replace(b"\r\n", b" ") + b"\r\n")


def repeats_all_as_an_error_of_postgres(connection):
    data = connection.recv(65_536)
    if data[4:8] == b"\x04\xd2\x16\x2f":  # it asks for TLS
        connection.sendall(b"N")
        data = connection.recv(65_536)
    connection.sendall(b"R\x00\x00\x00\x08\x00\x00\x00\x03")  # the password in clear
    data = connection.recv(65_536)
    fields = b"SFATAL\x00C28P01\x00Mpassword " + data[5:].rstrip(b"\x00") + b" is wrong\x00\x00"
    connection.sendall(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)


def repeats_all_over_http(connection):
    while data := connection.recv(65_536):
        body = b'{"__type":"x#ValidationException","message":"' + base64.b16encode(data) + b'"}'
        head = (
            b"HTTP/1.1 400 Bad\r\nDate: Tue, 01 Dec 2026 12:00:00 GMT\r\nContent-Type: application/x-amz-json-1.0\r\n"
        )
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)


ANSWERS = [
    *itertools.product(URLS, [None, talks_nonsense, repeats_all]),
    *itertools.product(["redis", "postgresql", "mongodb", "dynamodb", "etcd"], [says_nothing, hangs_up]),
    *itertools.product(["redis", "redis+cluster"], [repeats_all_as_an_error_of_redis]),
    *itertools.product(["postgresql", "postgresql, in the query"], [repeats_all_as_an_error_of_postgres]),
    *itertools.product(["dynamodb", "etcd"], [repeats_all_over_http]),
]


@pytest.mark.parametrize(("kind", "answer"), ANSWERS)
def test_no_error_repeats_a_password_whatever_answers(kind, answer, caplog):
    with serving(answer) if answer else nobody() as place:
        url = URLS[kind].replace("PLACE", place)
        backend = connect(url)
        with pytest.raises(BackendError) as caught:
            enter(backend)
    without_secrets(told_of(caught.value), caplog.text, f"{backend} {backend!r}")


@contextmanager
def nobody():
    yield f"{HOST}:{free_port()}"


COMMANDS = [
    "active sync --url URL",
    "jobs --url URL",
    "runs sync --url URL",
    "why sync 2026-12-01T12:00:00Z --url URL",
    "doctor URL",
    "migrate URL",
    "web URL --port 0 --no-such-option",
]


@pytest.mark.parametrize("kind", URLS)
def test_neither_a_scheduler_nor_a_command_repeats_a_password(kind, caplog):
    with nobody() as place:
        url = URLS[kind].replace("PLACE", place)
        scheduler = Scheduler(url)
        scheduler.every("sync", "1s", lambda: None)
        with pytest.raises(BackendError) as caught:
            scheduler.start()
        ran = [CliRunner().invoke(command, [word.replace("URL", url) for word in words.split()]) for words in COMMANDS]
    assert [one.exit_code for one in ran if one.exit_code not in (1, 2)] == []
    outputs = [f"{one.output} {one.exception!r}" for one in ran]
    without_secrets(told_of(caught.value), caplog.text, f"{scheduler} {scheduler!r}", *outputs)


@pytest.mark.parametrize(
    "broken",
    [
        "no-such-store://{user}:{secret}@h/app",
        "redis://{user}:{secret}@h:port/0",
        "redis://{user}:{secret}@h/0?no-such-option={secret}",
        "postgresql://{user}:{secret}@h/app?schema=&connections=many",
        "postgresql://{user}:{secret}@[h/app",
        "mongodb://{user}:{secret}@h/a.b?maxPoolSize={secret}",
        "mongodb://{user}:{secret}@h/app?tlsCertificateKeyFilePassword={secret}&tls=perhaps",
        "dynamodb://{user}:{secret}@eu-west-1/x?endpoint=http://{user}:{secret}@h",
        "dynamodb://{user}:{secret}@eu-west-1/jobs?timeout=soon",
        "etcd://{user}:{secret}@/",
        "etcd://{user}:{secret}@h?root=/&timeout=soon",
        "sqlite://{user}:{secret}@h/jobs.db?nothing={secret}",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(broken, caplog):
    url = broken.format(user=USER, secret=QUOTED)
    try:
        backend = connect(url)
    except Exception as error:
        without_secrets(told_of(error), caplog.text)
    else:
        without_secrets(f"{backend} {backend!r}")
    ran = CliRunner().invoke(command, ["active", "sync", "--url", url])
    assert ran.exit_code != 0, ran.output
    without_secrets(ran.output)


def url_of(kind, request, place=None):
    """Of a real server, with the user and password; it may ask for another, or for none."""
    if kind == "redis":
        server = request.getfixturevalue("redis_server")
        server.call("ACL", "SETUSER", USER, "on", f">{PASSWORD}", "~*", "&*", "+@all")
        return URLS["redis"].replace("PLACE", place or f"{HOST}:{server.port}"), (HOST, server.port)
    server = request.getfixturevalue("postgres_server")
    with suppress(Exception):  # it is there from an earlier test
        server.sql(f'create role "{USER}" superuser login')
    place = place or f"{HOST}:{server.port}"
    return f"postgresql://{USER}:{QUOTED}@{place}/postgres?timeout=300ms&schema=secrets", (HOST, server.port)


@pytest.mark.parametrize("kind", ["redis", "postgresql"])
def test_no_event_of_an_instance_that_loses_its_store_repeats_a_password(kind, request, caplog):
    _, (host, port) = url_of(kind, request)
    events, failed = [], threading.Event()

    def listen(event):
        events.append(event)
        if event.kind == "error":
            failed.set()

    async def main():
        async with Proxy.between(host, port) as proxy:
            url, _ = url_of(kind, request, f"{proxy.host}:{proxy.port}")
            scheduler = Scheduler(url, on_event=listen)
            scheduler.every("sync", "200ms", lambda: None, lease="1s", jitter="0s")
            async with scheduler:
                await proxy.refuse()
                assert await asyncio.to_thread(failed.wait, 30)
                health = scheduler.health()
                await proxy.heal()
            without_secrets(f"{scheduler} {scheduler!r} {health}")

    asyncio.run(main())
    told = [str(event) + repr(event) + told_of(event.error) for event in events if event.kind == "error"]
    assert told
    without_secrets(*told, caplog.text)


@pytest.mark.parametrize("kind", ["redis", "postgresql", "mongodb", "dynamodb", "etcd"])
def test_no_error_of_a_real_server_repeats_a_password(kind, request, caplog):
    with real(kind, request) as urls:
        for url in urls:
            with pytest.raises(BackendError) as caught:
                enter(connect(url))
            without_secrets(told_of(caught.value))
    without_secrets(caplog.text)


@contextmanager
def real(kind, request):
    """URLs that a real server will not serve: for their user, or their database."""
    if kind in ("redis", "postgresql"):
        url, _ = url_of(kind, request)
        other = "/123456?" if kind == "redis" else "/missing?"
        known = url.replace("/0?", "/postgres?") if kind == "redis" else url.replace("/postgres?", "/0?")
        database = known.replace("/postgres?", other).replace("/0?", other)
        stranger = url.replace(USER, "a-stranger")
        yield [database, stranger]
    elif kind == "mongodb":
        yield [URLS[kind].replace("PLACE", request.getfixturevalue("mongo_server").place)]
    elif kind == "dynamodb":
        endpoint = request.getfixturevalue("dynamodb_server").endpoint
        url = URLS[kind].replace("http://PLACE", endpoint)
        yield [url.replace("/jobs?", "/no-such-table?create=false&")]
    else:
        with etcd() as (member,):
            member.ask("/v3/auth/user/add", {"name": "root", "password": "r00t"})
            member.ask("/v3/auth/user/grant", {"user": "root", "role": "root"})
            member.ask("/v3/auth/enable", {})
            yield [URLS[kind].replace("PLACE", member.address)]


# TLS


@pytest.fixture(scope="module")
def tls():
    with certificates() as directory:
        yield directory


def test_postgres_is_verified_as_soon_as_the_url_asks_for_it(postgres_server, tls, caplog):
    """libpq's own default is to take whatever certificate comes; docs/security.md says so."""
    with postgres_front(postgres_server, tls) as port:
        url = f"postgresql://postgres@{HOST}:{port}/postgres?schema=tls&timeout=5s"
        for unknown in (f"{url}&sslmode=verify-full", f"{url}&sslmode=verify-full&sslrootcert=system"):
            with pytest.raises(BackendMisconfigured, match="sslrootcert"):
                enter(connect(unknown))
        enter(connect(f"{url}&sslmode=verify-full&sslrootcert={tls}/ca.pem"))
        assert "looks at no certificate" not in caplog.text
        enter(connect(f"{url}&sslmode=require"))
        assert "write sslmode=verify-full" in caplog.text
        with pytest.raises(BackendMisconfigured, match="certificate"):
            enter(connect(f"{url}&sslmode=verify-full&sslrootcert={tls}/ca.pem".replace(HOST, "127.0.0.2")))


@contextmanager
def postgres_front(server, directory):
    """The port of a front that speaks TLS as Postgres does; the servers that pip brings are built without."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "server.pem", directory / "server.key")

    def pass_on(source, sink):
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def front(connection):
        connection.recv(8)  # the question whether it speaks TLS
        connection.sendall(b"S")
        with (
            context.wrap_socket(connection, server_side=True) as outer,
            socket.create_connection((HOST, server.port)) as inner,
        ):
            back = threading.Thread(target=pass_on, args=(inner, outer))
            back.start()
            pass_on(outer, inner)
            back.join()

    with serving(front, host="0.0.0.0") as place:
        yield int(place.rpartition(":")[2])


def test_dynamodb_is_verified_and_takes_an_authority_of_ones_own(dynamodb_server, tls, monkeypatch):
    port = int(dynamodb_server.endpoint.rpartition(":")[2])
    front = type("Place", (), {"port": port})
    with tls_front(front, tls) as secure:
        url = dynamodb_server.url("tls", endpoint=f"https://{HOST}:{secure}") + "&timeout=5s"
        with pytest.raises(BackendError, match="certificate"):
            enter(connect(url))
        monkeypatch.setenv("AWS_CA_BUNDLE", f"{tls}/ca.pem")
        enter(connect(url.replace("timeout=5s", "timeout=30s")))
        assert client_of(f"https://{HOST}:{secure}").list_tables()["TableNames"]
