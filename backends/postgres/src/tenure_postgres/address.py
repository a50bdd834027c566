"""Where the database is, in libpq's words; our own options are taken out of the URL, and no secret is shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict
from tenure.errors import InvalidUrl
from tenure.urls import Readers, hide_secrets, split_url, true_or_false, url_options, whole_number

OPTIONS: Readers = {
    "schema": str,
    "timeout": str,
    "keep_results": whole_number,
    "connections": whole_number,
    "create": true_or_false,
    "functions": true_or_false,
    "pooler": true_or_false,
}
_AUTHORITIES = Path.home() / ".postgresql" / "root.crt"
"""Where libpq looks by itself; if that is there, `require` verifies."""
_DEFAULTS = {"application_name": "tenure", "client_encoding": "utf8"}


@dataclass(frozen=True, slots=True)
class Address:
    """What libpq is given; shown without user, password and anything else that could be a secret."""

    conninfo: Mapping[str, Any] = field(repr=False)

    def __str__(self) -> str:
        hosts = str(self._of("host") or self._of("hostaddr") or "localhost").split(",")
        ports = str(self._of("port") or "5432").split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        pairs = zip_longest(hosts, ports, fillvalue="5432")
        return f"postgresql://{','.join(map(_endpoint, pairs))}/{quote(str(self._of('dbname') or ''))}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What a server's message may repeat and ours must not."""
        return tuple(str(value) for name in ("user", "password") if (value := self.conninfo.get(name)))

    @property
    def believes_any_server(self) -> bool:
        """Whether TLS is demanded of a server, and no certificate looked at: libpq does so only if told by whose."""
        return self._of("sslmode") == "require" and not self._of("sslrootcert") and not _AUTHORITIES.exists()

    @property
    def passwords(self) -> tuple[str, ...]:
        """Those of them that are nowhere shown, not even in what caused an error."""
        names = ("password", "sslpassword")
        return tuple(str(value) for name in names if (value := self.conninfo.get(name)))

    def _of(self, name: str) -> Any:
        return self.conninfo.get(name) or _FALLBACKS.get(name)


def read_url(url: str, given: Mapping[str, object]) -> tuple[Address, dict[str, Any]]:
    """The address and our own options, of the query or as keywords, which win; InvalidUrl for what nobody knows."""
    place, _, query = url.partition("?")
    split_url(place)
    pairs = parse_qsl(query, keep_blank_values=True)
    ours = urlencode([pair for pair in pairs if pair[0] in OPTIONS or pair[0] not in _KEYWORDS])
    theirs = urlencode([pair for pair in pairs if pair[0] in _KEYWORDS], quote_via=quote)
    options = url_options(f"{hide_secrets(place)}?{ours}", given, OPTIONS)
    return Address(_conninfo(f"{place}?{theirs}", url)), options


def _conninfo(address: str, url: str) -> dict[str, Any]:
    try:
        conninfo = conninfo_to_dict(address)
    except psycopg.Error:  # not chained: its text may repeat user and password
        raise InvalidUrl(f"{hide_secrets(url)!r}: libpq cannot read it; quote what is special, '@' as %40") from None
    several = "," in str(conninfo.get("host") or conninfo.get("hostaddr") or "")
    primary = {"target_session_attrs": "read-write"} if several else {}
    return {**_DEFAULTS, **primary, **conninfo}


def _endpoint(pair: tuple[str, str]) -> str:
    host, port = pair
    host = f"[{host}]" if ":" in host else quote(host, safe="")
    return host if port == "5432" else f"{host}:{port}"


def _known_keywords() -> tuple[frozenset[str], dict[str, str]]:
    options = pq.Conninfo.get_defaults()
    fallbacks = {option.keyword.decode(): option.val.decode() for option in options if option.val}
    return frozenset(option.keyword.decode() for option in options), fallbacks


_KEYWORDS, _FALLBACKS = _known_keywords()
