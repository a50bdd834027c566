"""The driver's errors and the server's, as a caller gets them: whether trying again helps, and what does."""

import re
import ssl
from collections.abc import Iterator

from redis import exceptions as driver
from tenure.errors import BackendError, BackendMisconfigured, BackendUnavailable

COMMANDS = (
    "+evalsha +eval +time +hmget +hset +hdel +hgetall +exists +get +set +zadd +zrem +zrangebylex +zremrangebyrank"
    " +zrevrange +publish +subscribe +ping +info +wait +select +client|setinfo +client|setname +cluster|slots"
)
"""All that is ever sent, or called by the scripts; those from +wait on only where they are needed."""

_UNAVAILABLE = {
    "READONLY": "it is a replica: a failover is under way, or the URL leads to a replica instead of the primary",
    "LOADING": "it has just started and loads its data",
    "MASTERDOWN": "it is a replica that lost its primary; a failover is due",
    "CLUSTERDOWN": "some of the cluster's slots have no primary; a failover is due",
    "TRYAGAIN": "the job's slot is being moved to another node",
    "BUSY": "a script or function of somebody runs for too long; SCRIPT KILL ends it",
    "OOM": "it has used up maxmemory; give it more, or let another instance keep what may be evicted",
    "NOREPLICAS": "it has fewer replicas than min-replicas-to-write asks for",
    "MISCONF": "it cannot save to its disk and takes no writes until it can",
    "max number of clients reached": "raise maxclients, or look who keeps connections open",
}
_MISCONFIGURED = {
    "NOAUTH": "it asks for a password and was given none; write redis://user:password@host",
    "WRONGPASS": "user or password is wrong, or the user is off",
    "NOPERM": "the user may not do this",
    "ACL failure in script": "the user may not do this",
    "The user executing the script": "the user may not do this",
    "WRONGTYPE": "another application uses this key; choose another namespace or database",
    "CROSSSLOT": "the keys of a job must be on one node; a proxy that rewrites keys will not do",
    "MOVED": "it is a node of a Redis Cluster; write redis+cluster://",
    "cluster support disabled": "it is no node of a cluster; write redis:// instead of redis+cluster://",
    "unknown command": "it lacks a command that is needed (renamed, or not such a server); Redis 6.2 or later does",
    "DB index is out of range": "it has no database of that number",
    "invalid DB index": "it has no database of that number",
    "SELECT is not allowed in cluster mode": "a cluster has one database only, 0",
    "Authentication required": "it asks for a password and was given none; write redis://user:password@host",
    "without any password configured": "it has no password; leave user and password out of the URL",
    "tenure: not a run": "another application uses this key, or it was written to by hand; choose another namespace",
    "tenure: format none": "another application uses this key; choose another namespace or database",
    "tenure: format": "a newer version of tenure wrote it; upgrade tenure-redis here",
}
_REFUSED = "is it running there? look at host and port"
_CODES: tuple[tuple[type[Exception], str], ...] = (
    (driver.ReadOnlyError, "READONLY"),
    (driver.BusyLoadingError, "LOADING"),
    (driver.MasterDownError, "MASTERDOWN"),
    (driver.ClusterDownError, "CLUSTERDOWN"),
    (driver.TryAgainError, "TRYAGAIN"),
    (driver.OutOfMemoryError, "OOM"),
    (driver.NoPermissionError, "NOPERM"),
    (driver.ClusterCrossSlotError, "CROSSSLOT"),
    (driver.AskError, "MOVED"),
)
"""The driver takes the code out of the text of these."""
_WORDS = re.compile("|".join(rf"(?<![\w]){re.escape(word)}(?!\w)" for word in (*_MISCONFIGURED, *_UNAVAILABLE)))


def acl_rules(prefix: str) -> str:
    """What a user needs, and no more, as ACL SETUSER takes it; ``prefix`` is that of keys and channels."""
    return f"~{prefix}* &{prefix}* {COMMANDS}"


def translate(error: Exception, place: str, prefix: str) -> BackendError:
    """The error as a caller gets it, with the place, the remedy, and the original attached as its cause."""
    if isinstance(error, BackendError):
        return error
    translated = _translated(error, place, prefix)
    translated.__cause__ = error
    return translated


def silent(place: str, limit: str, *, ever_answered: bool) -> BackendUnavailable:
    """What a call raises that got no answer in time."""
    # A server without TLS waits for the rest of what it takes for a command.
    in_doubt = place.startswith(("rediss", "valkeys")) and not ever_answered
    hint = ": does it speak TLS on this port? If not, write redis://" if in_doubt else ""
    error = BackendUnavailable(f"{place}: no answer within {limit}{hint}")
    error.__cause__ = TimeoutError("no answer")
    return error


def is_demoted(error: object) -> bool:
    """Whether the server said that it is no primary (any more): its connection leads to the wrong one."""
    return isinstance(error, Exception) and _code(error) in ("READONLY", "MASTERDOWN")


def _translated(error: Exception, place: str, prefix: str) -> BackendError:
    if isinstance(error, driver.InvalidResponse):
        return BackendMisconfigured(f"{place}: it does not speak Redis's protocol; is it such a server, on this port?")
    for cause in _chain(error):
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            return BackendMisconfigured(f"{place}: TLS failed ({cause.reason or cause}); {_tls_remedy(cause)}")
    code, text = _code(error), str(error).rstrip(".") or type(error).__name__
    if code in _MISCONFIGURED:
        remedy = _MISCONFIGURED[code]
        if remedy == _MISCONFIGURED["NOPERM"]:
            remedy = f"{remedy}; ACL SETUSER its-name {acl_rules(prefix)}"
        return BackendMisconfigured(f"{place}: {text}: {remedy}")
    if isinstance(error, driver.AuthenticationError | driver.AuthenticationWrongNumberOfArgsError):
        return BackendMisconfigured(f"{place}: {_MISCONFIGURED['WRONGPASS']}")
    refused = any(isinstance(cause, ConnectionRefusedError) for cause in _chain(error))
    remedy = _REFUSED if refused else _UNAVAILABLE.get(code, "")
    return BackendUnavailable(f"{place}: {text}" + (f": {remedy}" if remedy else ""))


def _code(error: Exception) -> str:
    """What the server's message is known by; empty if it is not known."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    found = _WORDS.search(str(error))
    return found[0] if found else ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _tls_remedy(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "give the authority that signed its certificate (ssl_ca_certs=), and the host's name as it stands there"
    return "does it speak TLS on this port, and does it ask for a certificate (ssl_certfile=, ssl_keyfile=)?"
