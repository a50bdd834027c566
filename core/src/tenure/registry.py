"""Finds the backend that serves a URL, by scheme, through the entry points of ``tenure.backends``."""

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from tenure.errors import InvalidUrl, UnknownBackend, closest
from tenure.model import check_name
from tenure.protocol import Backend
from tenure.urls import hide_secrets, split_url

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

__all__ = ["FIRST_PARTY", "GROUP", "connect", "connect_existing", "hide_secrets", "schemes"]

GROUP = "tenure.backends"
"""Each entry point is named after its scheme and loads ``from_url(url, *, namespace, **options) -> Backend``.

Where it has a keyword ``create``, False means that only a store that is there is opened, and nothing is created.
"""

_REDIS = [f"{name}{how}" for name in ("redis", "rediss", "valkey", "valkeys") for how in ("", "+sentinel", "+cluster")]
_EXTRAS = {
    "sqlite": ["sqlite"],
    "redis": [*_REDIS, "redis+unix", "valkey+unix"],
    "postgres": ["postgres", "postgresql"],
    "mongo": ["mongodb", "mongodb+srv"],
    "dynamodb": ["dynamodb"],
    "etcd": ["etcd", "etcds"],
}
"""The schemes that each extra brings."""

FIRST_PARTY = {
    scheme: f'pip install "tenure[{extra}]" (from a checkout: pip install ./backends/{extra})'
    for extra, schemes in _EXTRAS.items()
    for scheme in schemes
} | {
    "dir": "pip install ./docs/examples/directory (tenure-directory, an example in tenure's repository)",
    "flock": "pip install ./docs/examples/flock (tenure-flock, an example in tenure's repository)",
}
"""How to get the backend that brings a scheme, where it does not come with ``tenure``."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def connect(url: str, *, namespace: str = "tenure", **options: object) -> Backend:
    """The backend of a URL, not entered yet: nothing is sent, nothing is opened.

    Options are the backend's own; they may stand in the URL's query too, where a keyword wins. Raises InvalidUrl for
    what is not a URL and for an unknown option, UnknownBackend where nothing installed serves the scheme, InvalidClaim
    for a namespace that breaks a limit. No message repeats a secret of the URL.
    """
    check_name(namespace, "namespace")
    return _from_url_of(url)(url, namespace=namespace, **options)


def connect_existing(url: str, *, namespace: str = "tenure") -> Backend:
    """The same for who only reads: entering creates nothing, if the backend has a keyword ``create``."""
    check_name(namespace, "namespace")
    from_url = _from_url_of(url)
    creates = "create" in inspect.signature(from_url).parameters
    return from_url(url, namespace=namespace, create=False) if creates else from_url(url, namespace=namespace)


def schemes() -> list[str]:
    """The URL schemes that installed distributions serve."""
    return sorted({entry_point.name for entry_point in entry_points(group=GROUP)})


def entry_points(*, group: str, name: str | None = None) -> "EntryPoints":
    """The installed entry points; loaded late, since it is a third of what importing tenure would cost."""
    from importlib import metadata

    found = metadata.entry_points(group=group)
    return found if name is None else found.select(name=name)


def _from_url_of(url: str) -> Callable[..., Backend]:
    entry_point = _find(_scheme_of(url))
    split_url(url)
    try:
        return cast(Callable[..., Backend], entry_point.load())
    except (ImportError, AttributeError) as exc:
        raise UnknownBackend(
            f"scheme {entry_point.name!r}: {entry_point.value} cannot be loaded ({exc}); install its distribution again"
        ) from exc


def _scheme_of(url: str) -> str:
    if not isinstance(url, str):
        raise InvalidUrl(f'{type(url).__name__} is not a URL; write a text such as "sqlite:///jobs.db"')
    match = _SCHEME.match(url)
    if match is None:
        raise InvalidUrl(f"{hide_secrets(url)!r} is not a URL; {_suggestion(url)}")
    return match[1].lower()


def _suggestion(url: str) -> str:
    scheme, colon, rest = url.partition(":")
    if colon and scheme in (*FIRST_PARTY, "memory"):
        place = f"//{rest.lstrip('/')}" if scheme != "sqlite" else f"///{rest}"
        return f'write "{hide_secrets(f"{scheme}:{place}")}"'
    if re.search(r"\.(db|sqlite3?)$", url):
        return f'write "sqlite:///{hide_secrets(url)}" for a SQLite file'
    return 'write scheme://…, such as "sqlite:////var/lib/app/jobs.db" or "memory://"'


def _find(scheme: str) -> "EntryPoint":
    found = {entry_point.value: entry_point for entry_point in entry_points(group=GROUP, name=scheme)}
    if len(found) > 1:
        raise InvalidUrl(f"scheme {scheme!r} is served by {' and by '.join(sorted(found))}; uninstall one of them")
    if not found:
        raise UnknownBackend(f"scheme {scheme!r}: {_remedy(scheme)}")
    return next(iter(found.values()))


def _remedy(scheme: str) -> str:
    installed = f"installed are {', '.join(schemes()) or 'none'}"
    if scheme in FIRST_PARTY:
        return f"its backend is not installed; run: {FIRST_PARTY[scheme]}"
    close = closest(scheme, (*schemes(), *FIRST_PARTY))
    return f"did you mean {close}://?" if close else f"no installed backend serves it; {installed}"
