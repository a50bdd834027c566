"""Backend URLs: what may be shown of them, and the options in their query."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tenure.errors import InvalidUrl

if TYPE_CHECKING:
    from urllib.parse import SplitResult

HIDDEN = "***"
_GUESSABLE = 3
"""A secret of so few characters is part of many words, and would be guessed by where it was hidden."""

Readers = Mapping[str, Callable[[str], object]]


def hide_secrets(url: str) -> str:
    """The URL without what could be a secret: user and password, and every value of its query.

    It also hides a password that was not quoted (``p@ss/word``), so the rest of a broken URL may be hidden with it.
    """
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        scheme, rest = "", url
    _, at, place = rest.rpartition("@")
    place, mark, query = place.partition("#")[0].partition("?")
    user = f"{HIDDEN}@" if at else ""
    return f"{scheme}{slashes}{user}{place}{mark}{_hide_values(query)}"


def hide_in_error(error: BaseException, secrets: Iterable[str]) -> None:
    """Hide the secrets in the texts of an error and of all that led to it: servers repeat what they were sent."""
    hidden = [secret for secret in secrets if len(secret) > _GUESSABLE]
    for one in _chain(error) if hidden else ():
        one.args = tuple([_without(argument, hidden) for argument in one.args])


def split_url(url: str) -> "SplitResult":
    """The URL's parts; InvalidUrl if it cannot be taken apart."""
    from urllib.parse import urlsplit  # loaded late: an import of tenure does not pay for it

    try:
        return urlsplit(url)
    except ValueError:  # not chained: its text may repeat user and password
        raise InvalidUrl(f"{hide_secrets(url)!r} is not a URL; quote what is special in it, '@' as %40") from None


def url_options(url: str, given: Mapping[str, object], known: Readers) -> dict[str, Any]:
    """The options in the URL's query, read by ``known``, and those given as keywords, which win.

    Raises InvalidUrl for an option that is not known, is repeated, or cannot be read.
    """
    options: dict[str, Any] = {}
    from urllib.parse import parse_qsl

    for name, text in parse_qsl(split_url(url).query, keep_blank_values=True):
        _check_known(url, name, known)
        if name in options:
            raise InvalidUrl(f"{hide_secrets(url)}: option {name!r} is given twice; give it once")
        options[name] = _read(name, text, known[name])
    for name in given:
        _check_known(url, name, known)
    return {**options, **given}


def whole_number(text: str) -> int:
    """A reader of numbers for ``url_options``."""
    if not (text.isascii() and text.isdigit()):
        raise InvalidUrl(f"{text!r} is not a whole number")
    return int(text)


def true_or_false(text: str) -> bool:
    """A reader of switches for ``url_options``."""
    if text not in ("true", "false"):
        raise InvalidUrl(f"{text!r} is neither true nor false")
    return text == "true"


def _read(name: str, text: str, reader: Callable[[str], object]) -> object:
    try:
        return reader(text)
    except InvalidUrl as exc:
        raise InvalidUrl(f"option {name!r}: {exc}") from None


def _check_known(url: str, name: str, known: Readers) -> None:
    if name not in known:
        raise InvalidUrl(f"{hide_secrets(url)}: unknown option {name!r}; known are {', '.join(sorted(known))}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    todo = [error]
    while todo:
        one = todo.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            todo += [one.__cause__, one.__context__]
            yield one


def _without(argument: object, secrets: Iterable[str]) -> object:
    if isinstance(argument, str):
        for secret in secrets:
            argument = argument.replace(secret, HIDDEN)
    return argument


def _hide_values(query: str) -> str:
    return "&".join(_hide_value(pair) for pair in query.split("&") if pair)


def _hide_value(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}={HIDDEN}" if equals else HIDDEN
