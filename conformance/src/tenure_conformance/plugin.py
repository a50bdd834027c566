"""pytest: one test per rule, ``pytest --pyargs tenure_conformance --tenure-target module:object``."""

import asyncio
import threading
import time
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from pathlib import Path

import pytest

from tenure_conformance import certificate, outputs, waivers
from tenure_conformance.rule import Rule, catalogue
from tenure_conformance.session import Session
from tenure_conformance.target import SERVER_HELP, Target, TargetError, load
from tenure_conformance.verdict import Verdict


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that say what is certified."""
    group = parser.getgroup("tenure", "conformance of a tenure backend")
    group.addoption("--tenure-target", metavar="TARGET", help="built-in target or module:object")
    group.addoption("--tenure-url", metavar="URL", help="a store that is there already")
    group.addoption("--tenure-server", default="auto", help=f"how to start one: {SERVER_HELP}")
    group.addoption("--tenure-seed", type=int, default=1, help="what is random follows from it")
    group.addoption("--tenure-waivers", metavar="FILE", help="known failures, a TOML file")
    group.addoption("--tenure-out", metavar="DIR", help="where to write the certificate")


class Background:
    """A session that runs on a thread of its own, so that rules that wait do so side by side while tests await them."""

    def __init__(self, config: pytest.Config, target: Target) -> None:
        self.config = config
        self.target = target
        self.rules: list[Rule] = []
        self._futures: dict[str, Future[Verdict]] = {}
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[list[Verdict]] | None = None
        self._begun = 0.0

    def verdict(self, rule: Rule) -> Verdict:
        """The rule's verdict; the first call starts the session."""
        if self._thread is None:
            self._start()
        return self._futures[rule.id].result()

    def document(self) -> certificate.Document | None:
        """The certificate, None if not every rule came to a verdict."""
        verdicts = self.verdicts()
        if not self.rules or len(verdicts) < len(self.rules):
            return None
        return certificate.write(
            self.target,
            self.rules,
            verdicts,
            seed=self.config.getoption("tenure_seed"),
            filtered=len(self.rules) < len(catalogue()),
            seconds=time.monotonic() - self._begun,
        )

    def verdicts(self) -> list[Verdict]:
        """Those that are there."""
        done = [future for future in self._futures.values() if future.done() and not future.cancelled()]
        return [future.result() for future in done if future.exception() is None]

    def stop(self) -> None:
        """End the session; what has no verdict by then gets none."""
        if self._thread is None:
            return
        if self._loop is not None and self._task is not None and not self._task.done():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _start(self) -> None:
        self._begun = time.monotonic()
        self._futures = {rule.id: Future() for rule in self.rules}
        self._thread = threading.Thread(target=self._run, name="tenure-conformance", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._session())
        except BaseException as error:  # noqa: BLE001  # told to every test that waits for a verdict
            for future in self._futures.values():
                if not future.done():
                    future.set_exception(error)

    async def _session(self) -> None:
        option = self.config.getoption
        known = waivers.load(Path(option("tenure_waivers"))) if option("tenure_waivers") else {}
        with ExitStack() as stack:
            url = stack.enter_context(self.target.serving(option("tenure_url"), option("tenure_server")))
            session = Session(
                target=self.target,
                url=url,
                rules=self.rules,
                seed=option("tenure_seed"),
                waivers=known,
                report=lambda rule, verdict: self._futures[rule.id].set_result(verdict),
            )
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.ensure_future(session.run())
            await self._task


_BACKGROUND = pytest.StashKey[Background]()


def pytest_configure(config: pytest.Config) -> None:
    """Load the target, if one is named."""
    name = config.getoption("tenure_target")
    if name:
        try:
            config.stash[_BACKGROUND] = Background(config, load(name))
        except TargetError as error:
            raise pytest.UsageError(str(error)) from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per rule."""
    if "tenure_rule" not in metafunc.fixturenames:
        return
    if _BACKGROUND not in metafunc.config.stash:
        raise pytest.UsageError("--tenure-target is missing: name the backend that the rules are run against")
    metafunc.parametrize("tenure_rule", catalogue(), ids=lambda rule: f"{rule.id}-{rule.check.__name__}")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Run the rules that are left after all selection."""
    background = session.config.stash.get(_BACKGROUND, None)
    if background is not None:
        specs = (getattr(item, "callspec", None) for item in session.items)
        background.rules = [spec.params["tenure_rule"] for spec in specs if spec and "tenure_rule" in spec.params]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what still runs, and write the certificate if one was asked for."""
    background = session.config.stash.get(_BACKGROUND, None)
    if background is None:
        return
    background.stop()
    out, document = session.config.getoption("tenure_out"), background.document()
    if out and document is not None:
        outputs.write(Path(out), document, background.verdicts())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what the verdicts amount to."""
    background = config.stash.get(_BACKGROUND, None)
    document = background.document() if background is not None else None
    if background is None or document is None:
        return
    claims = document["claims"]
    conclusion = certificate.conclude(claims["verdicts"], filtered=claims["filtered"])
    terminalreporter.section("tenure conformance")
    terminalreporter.line(f"{background.target.name}: {conclusion.sentence}")


@pytest.fixture(scope="session")
def tenure_session(pytestconfig: pytest.Config) -> Background:
    """The session that the rules run in."""
    return pytestconfig.stash[_BACKGROUND]


def check(background: Background, rule: Rule) -> None:
    """A rule's verdict as pytest says it; a skip where the level is not declared."""
    try:
        verdict = background.verdict(rule)
    except (CancelledError, asyncio.CancelledError):
        pytest.fail("the session was ended before this rule's verdict", pytrace=False)
    if verdict.outcome == "not-applicable":
        pytest.skip(f"not applicable: {verdict.reason}")
    if verdict.outcome == "waived":
        pytest.xfail(verdict.reason)
    if verdict.outcome == "inconclusive":
        pytest.fail(f"inconclusive: {verdict.reason}", pytrace=False)
    if verdict.error is not None:
        calls = "\n".join(str(call) for call in verdict.calls[-40:])
        verdict.error.add_note(f"the last calls of all clients:\n{calls}")
        raise verdict.error
    if verdict.outcome == "fail":
        pytest.fail(verdict.reason, pytrace=False)
