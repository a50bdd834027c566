"""What an operator may want to know of the servers and of the user's rights."""

from collections.abc import Iterator

from pymongo.errors import PyMongoError
from tenure.errors import BackendError
from tenure.model import Finding

from tenure_mongo.expressions import Document
from tenure_mongo.link import Link

NEEDED: dict[str, tuple[str, ...]] = {
    "tenure_jobs": ("find", "insert", "update"),
    "tenure_results": ("find", "insert", "update", "remove"),
    "tenure_cards": ("find", "insert", "update", "remove"),
}
"""What an instance may have to do; hints need ``changeStream`` on the first, and are not missed without."""


async def examine(link: Link, database: str) -> list[Finding]:
    """Findings on the servers; nothing is written."""
    hello = await link.command({"hello": 1})
    build = await _told(link, {"buildInfo": 1})
    connection = await _told(link, {"connectionStatus": 1, "showPrivileges": True})
    return [
        *_servers(hello, str(build.get("version", "of an unknown version"))),
        Finding("write concern", "ok", "majority and journaled, whatever the URL says"),
        *_rights(connection, database),
    ]


async def _told(link: Link, question: Document) -> Document:
    """The answer, empty where it may not be asked."""
    try:
        return await link.command(question)
    except (PyMongoError, BackendError):
        return {}


def _servers(hello: Document, version: str) -> Iterator[Finding]:
    if hello.get("msg") == "isdbgrid":
        yield Finding("servers", "ok", f"a sharded cluster, MongoDB {version}")
        return
    if "setName" not in hello:
        remedy = "make it a replica set, of one member at least: then there are hints, and with three it fails over"
        yield Finding("servers", "warning", f"a standalone server, MongoDB {version}: lost with its disk", remedy)
        return
    voting = [*hello.get("hosts", ()), *hello.get("passives", ())]
    text = f"replica set {hello['setName']!r} of {len(voting)} with data, MongoDB {version}"
    if len(voting) < 3:
        yield Finding("servers", "warning", text, "give it three members with data: then it survives the loss of one")
    else:
        yield Finding("servers", "ok", text)


def _rights(connection: Document, database: str) -> Iterator[Finding]:
    info = connection.get("authInfo", {})
    if not info.get("authenticatedUsers"):
        yield Finding(
            "rights", "warning", "no user is asked for", "turn authorization on, and give tenure its own role"
        )
        return
    privileges = info.get("authenticatedUserPrivileges", ())
    missing = [
        f"{action} on {collection}"
        for collection, actions in NEEDED.items()
        for action in actions
        if not any(_covers(privilege["resource"], database, collection, action, privilege) for privilege in privileges)
    ]
    if missing:
        remedy = "grant the role of docs/mongo.md, permissions"
        yield Finding("rights", "wrong", f"the user may not {', '.join(missing)}", remedy)
    else:
        yield Finding("rights", "ok", "the user may do what is needed")


def _covers(resource: Document, database: str, collection: str, action: str, privilege: Document) -> bool:
    if action not in privilege.get("actions", ()) and "anyAction" not in privilege.get("actions", ()):
        return False
    if resource.get("anyResource"):
        return True
    return resource.get("db") in ("", database) and resource.get("collection") in ("", collection)
