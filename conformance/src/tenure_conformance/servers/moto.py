"""A moto server that answers one request at a time: its own server has threads and no locks, and gives a run twice."""

import os
import sys
from importlib import import_module

from tenure_conformance.servers.recipe import HOST


def main(port: int) -> None:
    """Serve DynamoDB on a port of this host."""
    os.environ.setdefault("MOTO_ALLOW_NONEXISTENT_REGION", "true")
    app = import_module("moto.server").DomainDispatcherApplication(import_module("moto.server").create_backend_app)
    # A server that kept connections alive would wait on one and let all others wait.
    import_module("werkzeug.serving").run_simple(HOST, port, app, threaded=False)


if __name__ == "__main__":
    main(int(sys.argv[1]))
