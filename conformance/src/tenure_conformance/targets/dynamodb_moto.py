"""DynamoDB as moto has it, a server in Python that keeps everything in its memory and answers one request at a time."""

import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from tenure_conformance.servers import Recipe
from tenure_conformance.target import Target, Timing
from tenure_conformance.targets.dynamodb import CAPABILITIES, answers, faults, opened, url_of


def _python_with_moto() -> Path | None:
    return Path(sys.executable) if find_spec("moto") and find_spec("werkzeug") else None


def _name() -> str:
    try:
        return f"moto {version('moto')}"
    except PackageNotFoundError:
        return "moto"


server: Recipe = Recipe(
    name="dynamodb-moto",
    url=url_of,
    port=5000,
    find=(_python_with_moto,),
    arguments=lambda _directory, port: ["-m", "tenure_conformance.servers.moto", str(port)],
    answers=answers,
    remedy='pip install "moto[server]" brings one',
)


target: Target = Target(
    name="dynamodb-moto",
    levels=("lease", "durable", "shared", "faults", "processes", "cards"),
    serve=server.serve,
    open=opened,
    capabilities=CAPABILITIES,
    timing=Timing(lease_ms=1_600),
    faults=faults(restarts=False),
    distribution="tenure-dynamodb",
    store=_name,
)
