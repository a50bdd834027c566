"""Where the cluster is and how it is connected to: read from a URL, or given."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tenure.errors import BackendMisconfigured, InvalidUrl
from tenure.urls import hide_secrets, split_url

PORT = 2379
DEFAULT_ROOT = "tenure"


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM: who may vouch for the servers (the system's authorities unless given), and who we are."""

    cacert: str | None = None
    cert: str | None = None
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse half of a client's certificate."""
        if (self.cert is None) != (self.key is None):
            raise InvalidUrl("cert and key belong together; give both files, or none")

    def read(self) -> dict[str, bytes | None]:
        """The files' contents, as gRPC takes them; BackendMisconfigured if one cannot be read."""
        return {
            "root_certificates": _content("cacert", self.cacert),
            "private_key": _content("key", self.key),
            "certificate_chain": _content("cert", self.cert),
        }

    def context(self) -> ssl.SSLContext:
        """The same for HTTPS."""
        try:
            context = ssl.create_default_context(cafile=self.cacert)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ValueError) as exc:
            raise BackendMisconfigured(f"cacert, cert, key: they cannot be used ({exc}); look at the files") from exc
        return context


@dataclass(frozen=True, slots=True)
class Settings:
    """The cluster's members, and what is needed to talk to them."""

    endpoints: tuple[str, ...]
    """``host`` or ``host:port`` of each."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    root: str = DEFAULT_ROOT
    """What all keys begin with, before the namespace."""
    http_port: int | None = None
    """The port of the HTTP side, where it is not that of the endpoint (etcd's --listen-client-http-urls)."""

    def __post_init__(self) -> None:
        """Refuse what names no cluster."""
        if not self.endpoints:
            raise InvalidUrl("no endpoint is given; write etcd://host:2379")
        if not self.root or self.root.startswith("/") or self.root.endswith("/") or "\x00" in self.root:
            raise InvalidUrl(f"root: {self.root!r} is not a prefix such as {DEFAULT_ROOT!r} or 'apps/billing'")
        object.__setattr__(self, "endpoints", tuple(_endpoint(address, address) for address in self.endpoints))

    def __str__(self) -> str:
        scheme = "etcd" if self.tls is None else "etcds"
        root = "" if self.root == DEFAULT_ROOT else f"/{self.root}"
        return f"{scheme}://{','.join(self.endpoints)}{root}"

    def http_endpoint(self, endpoint: str) -> tuple[str, int]:
        """Host and port of the HTTP side of a member."""
        host, _, port = endpoint.rpartition(":")
        return host.strip("[]"), self.http_port or int(port)


def settings_of_url(url: str, options: dict[str, Any]) -> Settings:
    """The settings of a URL and of those options that say how to connect, which are taken out."""
    parts = split_url(url)
    files = {name: options.pop(name) for name in ("cacert", "cert", "key") if name in options}
    secure = parts.scheme.lower() == "etcds"
    if files and not secure:
        raise InvalidUrl(f"{hide_secrets(url)}: {', '.join(files)} are for TLS; write etcds://")
    user, at, hosts = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    if at and not name:
        raise InvalidUrl(f"{hide_secrets(url)}: a password without a user; write etcd://user:password@host")
    return Settings(
        endpoints=tuple(_endpoint(url, host) for host in hosts.split(",")),
        user=unquote(name) if at else None,
        password=unquote(password) if at else None,
        tls=Tls(**files) if secure else None,
        root=unquote(parts.path).strip("/") or DEFAULT_ROOT,
        http_port=options.pop("http_port", None),
    )


def settings_of_client(client: Any, root: str = DEFAULT_ROOT) -> Settings:
    """The address and the user of an ``aetcd.Client``; a channel of its own is opened to them."""
    try:
        endpoint = f"{client._host}:{client._port}"  # aetcd has no other way to tell, and is bound to version 1
        return Settings((endpoint,), user=client._username, password=client._password, root=root)
    except AttributeError as exc:
        raise InvalidUrl(f"{type(client).__name__} is not an aetcd.Client; give Settings or a URL") from exc


def _endpoint(url: str, address: str) -> str:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(PORT)
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        raise InvalidUrl(f"{hide_secrets(url)}: {hide_secrets(address)!r} is not host or host:port")
    return f"{host}:{int(port)}"


def _content(name: str, path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise BackendMisconfigured(f"{name}: {path} cannot be read ({exc.strerror})") from exc
