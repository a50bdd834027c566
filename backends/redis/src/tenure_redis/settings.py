"""Where the server is and how it is connected to: read from a URL, or taken from a client."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, unquote

from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from tenure.errors import BackendMisconfigured, InvalidUrl
from tenure.urls import Readers, hide_secrets, split_url, whole_number

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

Kind = Literal["server", "sentinel", "cluster"]
Address = tuple[str, int]

_PORTS = {"server": 6379, "sentinel": 26379, "cluster": 6379}
_TLS = ("rediss", "valkeys")
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_FROM_CLIENTS = frozenset(("username", "password", "credential_provider", "client_name", "socket_keepalive")) | {
    name for name in signature(SSLConnection).parameters if name.startswith("ssl_")
}
"""What is taken from a client besides its address: not its retries, its timeouts, its decoding."""


def _one_of_reqs(text: str) -> str:
    if text not in ("required", "none"):
        raise InvalidUrl(f"{text!r} is neither required nor none")
    return text


CONNECTION_OPTIONS: Readers = {
    "ssl_ca_certs": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_cert_reqs": _one_of_reqs,
    "client_name": str,
    "sentinel_username": str,
    "sentinel_password": str,
}
"""Options of a URL that say how to connect."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A server, the sentinels that know where it is, or some nodes of a cluster."""

    kind: Kind
    addresses: tuple[Address, ...]
    shown: str
    """The URL without secrets."""
    connection: "type[AbstractConnection]" = Connection
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sentinel_connection: "type[AbstractConnection]" = Connection
    sentinel_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    service: str = ""

    @property
    def passwords(self) -> tuple[str, ...]:
        """What a server's message may repeat and ours must not."""
        given = (self.options.get("password"), self.sentinel_options.get("password"))
        return tuple(str(password) for password in given if password)

    def check_files(self) -> None:
        """BackendMisconfigured if a file that TLS needs is not there."""
        for name in _FILES:
            path = self.options.get(name)
            if path is not None and not Path(path).is_file():
                raise BackendMisconfigured(f"{name}: there is no file {path}")


def settings_of_url(url: str, options: dict[str, Any]) -> Settings:
    """The settings of a URL and of those of the options that say how to connect, which are taken out."""
    parts = split_url(url)
    dialect, _, way = parts.scheme.partition("+")
    tls = dialect in _TLS
    kind: Kind = "sentinel" if way == "sentinel" else "cluster" if way == "cluster" else "server"
    given = {name: options.pop(name) for name in CONNECTION_OPTIONS if name in options}
    _check_options(url, given, tls=tls, kind=kind)
    user, _, hosts = parts.netloc.rpartition("@")
    if way == "unix":
        return _unix(url, parts.path, {**_credentials(user), **_client_options(given)}, options)
    addresses = _addresses(url, hosts, _PORTS[kind])
    service, db = _service_and_db(url, kind, unquote(parts.path))
    shown = f"{parts.scheme}://{','.join(map(_shown, addresses))}"
    if kind == "sentinel":
        shown += f"/{quote(service)}"
    if db:
        shown += f"/{db}"
    secure = {name: value for name, value in given.items() if name.startswith("ssl_")}
    return Settings(
        kind,
        addresses,
        shown,
        SSLConnection if tls else Connection,
        {**_credentials(user), **_client_options(given), **({"db": db} if db else {})},
        SSLConnection if tls else Connection,
        {**secure, **_sentinel_credentials(given)},
        service,
    )


def settings_of_client(client: Any) -> Settings:
    """The settings of a redis-py client; of its connections none is used, so it may belong to any event loop."""
    if hasattr(client, "nodes_manager"):
        return _of_cluster(client)
    pool = getattr(client, "connection_pool", client)
    known = getattr(pool, "connection_kwargs", None)
    if known is None:
        raise InvalidUrl(f"{type(client).__name__} is no client of redis-py; give one, its pool, or a URL")
    if hasattr(pool, "sentinel_manager"):
        return _of_sentinel(pool)
    options = _options_of(known)
    if "path" in known:
        options["path"] = known["path"]
        return Settings("server", (), f"redis+unix://{quote(known['path'])}", UnixDomainSocketConnection, options)
    return _of_server(known, pool.connection_class)


def _of_server(known: Mapping[str, Any], connection: type) -> Settings:
    address = known.get("host", "localhost"), int(known.get("port", 6379))
    tls = _is_tls(connection)
    db = known.get("db") or 0
    shown = f"{'rediss' if tls else 'redis'}://{_shown(address)}" + (f"/{db}" if db else "")
    return Settings("server", (address,), shown, SSLConnection if tls else Connection, _options_of(known))


def _of_sentinel(pool: Any) -> Settings:
    pools = [sentinel.connection_pool for sentinel in pool.sentinel_manager.sentinels]
    sentinels = [one.connection_kwargs for one in pools]
    addresses = tuple((one.get("host", "localhost"), int(one.get("port", 26379))) for one in sentinels)
    server = _of_server(pool.connection_kwargs, pool.connection_class)
    scheme, _, _ = server.shown.partition("://")
    return replace(
        server,
        kind="sentinel",
        addresses=addresses,
        shown=f"{scheme}+sentinel://{','.join(map(_shown, addresses))}/{quote(pool.service_name)}",
        sentinel_connection=SSLConnection if any(_is_tls(one.connection_class) for one in pools) else Connection,
        sentinel_options=_options_of(sentinels[0]) if sentinels else {},
        service=pool.service_name,
    )


def _of_cluster(client: Any) -> Settings:
    known = {**client.get_connection_kwargs()}
    nodes = client.nodes_manager.startup_nodes
    addresses = tuple((node.host, int(node.port)) for node in nodes.values())
    tls = _is_tls(known.get("connection_class", Connection)) or bool(known.get("ssl"))
    shown = f"{'rediss' if tls else 'redis'}+cluster://{','.join(map(_shown, addresses))}"
    return Settings("cluster", addresses, shown, SSLConnection if tls else Connection, _options_of(known))


def _is_tls(connection: type) -> bool:
    return any("SSL" in base.__name__ for base in connection.__mro__)


def _options_of(known: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: known[name] for name in known if name in _FROM_CLIENTS}
    if known.get("db"):
        kept["db"] = known["db"]
    return {name: value for name, value in kept.items() if value is not None}


def _check_options(url: str, given: Mapping[str, Any], *, tls: bool, kind: Kind) -> None:
    for name in given:
        if name.startswith("ssl_") and not tls:
            raise InvalidUrl(f"{hide_secrets(url)}: {name} is for TLS; write rediss:// instead of redis://")
        if name.startswith("sentinel_") and kind != "sentinel":
            raise InvalidUrl(f"{hide_secrets(url)}: {name} is for redis+sentinel://")


def _unix(url: str, path: str, credentials: dict[str, Any], options: dict[str, Any]) -> Settings:
    if not path or split_url(url).netloc.rpartition("@")[2]:
        raise InvalidUrl(f"{hide_secrets(url)}: a socket is named by its path; write redis+unix:///run/redis.sock")
    db = options.pop("db", 0)
    shown = f"{split_url(url).scheme}://{path}" + (f"?db={db}" if db else "")
    kept = {**credentials, "path": unquote(path), **({"db": db} if db else {})}
    return Settings("server", (), shown, UnixDomainSocketConnection, kept)


def _credentials(user: str) -> dict[str, str]:
    name, _, password = user.partition(":")
    found = {"username": unquote(name), "password": unquote(password)}
    return {key: value for key, value in found.items() if value}


def _client_options(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if not name.startswith("sentinel_")}


def _sentinel_credentials(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("sentinel_"): value for name, value in given.items() if name.startswith("sentinel_")}


def _addresses(url: str, hosts: str, port: int) -> tuple[Address, ...]:
    return tuple(_address(url, host, port) for host in (hosts or "localhost").split(","))


def _address(url: str, host: str, default: int) -> Address:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, str(default)
    name = name.removeprefix("[").removesuffix("]")
    if not name or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise InvalidUrl(f"{hide_secrets(url)}: {host!r} is no host and port; write redis://host:6379")
    return unquote(name), int(port)


def _service_and_db(url: str, kind: Kind, path: str) -> tuple[str, int]:
    words = [word for word in path.split("/") if word]
    service = words.pop(0) if kind == "sentinel" and words else ""
    if kind == "sentinel" and not service:
        raise InvalidUrl(f"{hide_secrets(url)}: which primary? write redis+sentinel://host:26379/mymaster")
    db = whole_number(words.pop(0)) if words and words[0].isdigit() else 0
    if words:
        raise InvalidUrl(f"{hide_secrets(url)}: a database is a number, as in redis://host:6379/0")
    if kind == "cluster" and db:
        raise InvalidUrl(f"{hide_secrets(url)}: a cluster has one database only, 0; leave it out")
    return service, db


def _shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
