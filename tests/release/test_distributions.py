"""What is uploaded: wheels and sdists of one version, complete, and each file that the code reads is in them."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import tenure

ROOT = Path(__file__).parents[2]
FOLDERS = ["core", *(f"backends/{name}" for name in ("sqlite", "redis", "postgres", "mongo", "dynamodb", "etcd"))]
FOLDERS.append("conformance")


def of_project(folder):
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """All of them: those of ``nox -s build``, which names its directory, or made now."""
    if made := os.environ.get("TENURE_DIST"):
        return Path(made)
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--all-packages", "--out-dir", out]
    subprocess.run(command, cwd=ROOT, check=True)
    for example in (*out.glob("tenure_directory-*"), *out.glob("tenure_flock-*")):
        example.unlink()
    return out


@pytest.fixture(params=FOLDERS)
def folder(request):
    return request.param


def stem(folder):
    project = of_project(folder)
    return f"{project['name'].replace('-', '_')}-{project['version']}"


@pytest.fixture
def wheel(dist, folder):
    with zipfile.ZipFile(dist / f"{stem(folder)}-py3-none-any.whl") as archive:
        yield archive


def metadata(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


def test_nothing_else_is_built(dist):
    built = {path.name for path in dist.glob("*.*") if path.name != ".gitignore"}
    assert built == {f"{stem(folder)}{end}" for folder in FOLDERS for end in ("-py3-none-any.whl", ".tar.gz")}


def test_a_wheel_has_every_file_of_the_source_and_no_other(wheel, folder):
    (source,) = (ROOT / folder / "src").iterdir()
    there = {str(path.relative_to(source.parent)) for path in source.rglob("*") if path.is_file()}
    there = {name for name in there if not re.search(r"/(__pycache__|\.)", name)}
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == there
    assert f"{source.name}/py.typed" in packed


def test_a_wheel_has_the_licence_the_entry_points_and_the_version_of_all(wheel, folder):
    told = metadata(wheel)
    assert told["Version"] == tenure.__version__
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Requires-Python"] == ">=3.11"
    (licence,) = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]
    assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
    project = of_project(folder)
    points = [name for group in project.get("entry-points", {}).values() for name in group] + [
        *project.get("scripts", {})
    ]
    (file,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    packed = [line.partition(" = ")[0] for line in wheel.read(file).decode().splitlines() if " = " in line]
    assert sorted(packed) == sorted(points)


def test_siblings_are_required_in_step(wheel):
    siblings = [need for need in metadata(wheel).get_all("Requires-Dist", []) if need.startswith("tenure")]
    series = tenure.__version__.rpartition(".")[0]
    assert all(f">={series}.0.dev0" in need for need in siblings), siblings


def test_an_sdist_makes_the_same_wheel(dist, folder, wheel):
    with tarfile.open(dist / f"{stem(folder)}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names
    assert {f"src/{name}" for name in wheel.namelist() if ".dist-info/" not in name} <= names
