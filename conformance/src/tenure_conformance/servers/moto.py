"""A moto server that answers one request at a time: its own server has threads and no locks, and gives a run twice."""

import os
import sys
from importlib import import_module
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from tenure_conformance.servers.recipe import HOST


class _Patient(WSGIServer):
    request_queue_size = 128  # with the five of the class, a sixth client at once tries again after a second


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


def main(port: int) -> None:
    """Serve DynamoDB on a port of this host."""
    os.environ.setdefault("MOTO_ALLOW_NONEXISTENT_REGION", "true")
    app = import_module("moto.server").DomainDispatcherApplication(import_module("moto.server").create_backend_app)
    # One that keeps connections alive waits on one and lets all others wait, and so does moto's own, werkzeug's, which
    # waits for up to 10 ms after each answer whether its client has more to say.
    make_server(HOST, port, app, _Patient, _Quiet).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
