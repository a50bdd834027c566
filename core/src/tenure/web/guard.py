"""What every answer and every request is held to: which host was asked, and what a browser may do with a page."""

from collections.abc import Collection
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_CSP = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
_HEADERS = {
    "content-security-policy": _CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


class Guard:
    """Adds the headers to each answer, and refuses a request for a host that is not ours.

    A page of somebody else's whose name suddenly resolves to this machine (DNS rebinding) is asked for by that name;
    localhost, an address and the ``hosts`` named are nobody's but ours. With ``hosts`` None all are welcome.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None) -> None:
        self._app = app
        self._hosts = hosts if hosts is None else {"localhost", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        app = self._app if self._is_ours(Headers(scope=scope).get("host", "")) else _REFUSED
        await app(scope, receive, send_with_headers)

    def _is_ours(self, host: str) -> bool:
        name = host_name(host)
        return self._hosts is None or name in self._hosts or is_address(name)


def same_origin(headers: Headers) -> bool:
    """Whether a browser sent this from our own page; without a word about its origin it is refused.

    The scheme is not compared: before us there may be who speaks TLS.
    """
    _, slashes, origin = headers.get("origin", "").partition("://")
    return bool(slashes) and origin == headers.get("host")


def host_name(host: str) -> str:
    """The name in a Host header, without its port; an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def is_address(name: str) -> bool:
    """Whether it is an IP address, which nobody can make resolve to another."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


_REFUSED = PlainTextResponse("this page is not served under that name; see --allow-host\n", 421)
