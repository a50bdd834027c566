"""How a client is made from a URL, and what of the URL may be shown."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError
from pymongo.uri_parser import split_options
from tenure.errors import InvalidUrl
from tenure.urls import hide_secrets, split_url

from tenure_mongo.expressions import Document

DATABASE = "tenure"
CONNECTIONS = 32
"""To the primary at most, unless the URL says maxPoolSize: more calls at once than this wait for each other."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Makes the clients of a URL; nothing is sent before the first call."""

    url: str = field(repr=False)
    timeout_ms: int
    pooled: bool

    def __call__(self) -> "AsyncMongoClient[Document]":
        """A client in the running loop. Retries are off: what failed is repeated by who called, with its token."""
        pool: dict[str, Any] = {} if self.pooled else {"maxPoolSize": CONNECTIONS}
        return AsyncMongoClient(
            self.url,
            appname="tenure",
            retryWrites=False,
            retryReads=False,
            connectTimeoutMS=self.timeout_ms,
            serverSelectionTimeoutMS=self.timeout_ms,
            **pool,
        )


def database_of(url: str) -> str:
    """The database that the URL names, ``tenure`` if it names none."""
    name = unquote(split_url(url).path[1:])
    return check_database(name or DATABASE, hide_secrets(url))


def check_database(name: str, shown: str) -> str:
    """Refuse (InvalidUrl) what cannot name a database."""
    if not name or len(name.encode()) > 63 or any(sign in ' ."$/\\\0*<>:|?' for sign in name):
        raise InvalidUrl(f"{shown}: {name!r} cannot name a database; use letters, digits, - and _")
    return name


def shown(url: str, database: str) -> str:
    """The URL without secrets and options, with the database."""
    parts = split_url(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{database}"


def split_query(url: str, ours: frozenset[str]) -> tuple[str, str]:
    """The URL for the driver and one with our options alone; InvalidUrl for what neither knows."""
    parts = split_url(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    driver = [pair for pair in pairs if pair[0] not in ours]
    for name, value in driver:
        _check_driver_option(url, name, value, ours)
    place = url.partition("?")[0]
    own = [pair for pair in pairs if pair[0] in ours]
    return f"{_with_path(place)}?{urlencode(driver)}", f"{place}?{urlencode(own)}"


def _with_path(place: str) -> str:
    """The driver wants a slash between hosts and query."""
    return place if "/" in place.partition("://")[2] else f"{place}/"


def _check_driver_option(url: str, name: str, value: str, ours: frozenset[str]) -> None:
    try:
        split_options(urlencode({name: value}), validate=True, warn=False)
    except (PyMongoError, ValueError, TypeError):  # not chained: its text may repeat the value
        raise InvalidUrl(
            f"{hide_secrets(url)}: option {name!r} is unknown or its value cannot be read; known are"
            f" {', '.join(sorted(ours))} and the options of MongoDB's connection strings"
        ) from None
