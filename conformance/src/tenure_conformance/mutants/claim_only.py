"""A claim-only backend of a dictionary, which is correct, and what can be wrong with one."""

import asyncio
import unicodedata
from collections.abc import Callable
from typing import Any, Self

from tenure.errors import BackendClosed, BackendUnavailable, InvalidClaim
from tenure.memory import MemoryStore
from tenure.model import RunResult, check_name, check_run

from tenure_conformance.mutants.mutant import Mutant, register
from tenure_conformance.mutants.reference import on_memory
from tenure_conformance.target import Level, Target

LEVELS: tuple[Level, ...] = ("claim-only", "durable")


class Claims:
    """Who was given a run, by namespace, job and slot; ``store`` is any object with attributes of its own."""

    def __init__(self, store: Any, *, namespace: str) -> None:
        check_name(namespace, "namespace")
        self.namespace = namespace
        self.entered: bool = False
        self.store: dict[str, Any] = vars(store)
        self.given: dict[Any, str] = self.store.setdefault("given", {})

    async def __aenter__(self) -> Self:
        self.entered = True
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.entered = False

    async def claim(self, job: str, slot: int, token: str) -> bool:
        check_run(job, slot, token)
        self.check_entered()
        return self.give(self.key(job, slot), token)

    async def save_result(self, job: str, result: RunResult) -> None:
        check_name(job, "job")
        self.check_entered()

    def check_entered(self) -> None:
        if not self.entered:
            raise BackendClosed("not entered; use it inside `async with`")

    def key(self, job: str, slot: int) -> Any:
        return self.namespace, job, slot

    def give(self, key: Any, token: str) -> bool:
        return self.given.setdefault(key, token) == token


def on_claims(name: str, kind: Callable[..., Any]) -> Target:
    """A claim-only target."""
    return on_memory(name, lambda: (kind, MemoryStore()), levels=LEVELS)


def broken(name: str, defect: str, breaks: str, *, seen: str = "") -> Callable[[type[Claims]], type[Claims]]:
    """Register a subclass of the correct claim-only backend."""

    def registered(kind: type[Claims]) -> type[Claims]:
        register(Mutant(name, defect, on_claims(name, kind), tuple(breaks.split()), seen))
        return kind

    return registered


def keyed(name: str, defect: str, breaks: str, key: Callable[[str, str, int], Any], *, seen: str = "") -> None:
    """Register a claim-only backend that files runs under another key."""

    class Keyed(Claims):
        def key(self, job: str, slot: int) -> Any:
            return key(self.namespace, job, slot)

    broken(name, defect, breaks, seen=seen)(Keyed)


@broken("once-given-twice", "Every token is given the run.", "claim-only-once claim-atomic")
class _GivenTwice(Claims):
    def give(self, key: Any, token: str) -> bool:
        self.given[key] = token
        return True


@broken(
    "once-not-repeated",
    "The winner's token, sent again, gets `False`.",
    "claim-only-repeat errors-repeat",
    seen="INSERT … ON CONFLICT DO NOTHING without a look at the row",
)
class _NotRepeated(Claims):
    def give(self, key: Any, token: str) -> bool:
        return key not in self.given and self.given.setdefault(key, token) == token


@broken("once-last-token", "A token that lost holds the run from then on.", "claim-only-once claim-only-repeat")
class _LastToken(Claims):
    def give(self, key: Any, token: str) -> bool:
        known = self.given.get(key, token)
        self.given[key] = token
        return known == token


@broken(
    "once-race",
    "Two tokens at the same time are both given the run.",
    "claim-atomic claim-only-once enter-concurrent",
    seen="ShedLock#3577; look, then write",
)
class _Race(Claims):
    async def claim(self, job: str, slot: int, token: str) -> bool:
        check_run(job, slot, token)
        self.check_entered()
        known = self.given.get(self.key(job, slot))
        await asyncio.sleep(0)
        if known is None:
            self.given[self.key(job, slot)] = token
        return known in (None, token)


@broken(
    "once-race-with-itself",
    "A claim that arrives twice at the same time gets `False` once.",
    "claim-only-repeat claim-atomic errors-repeat",
)
class _RaceWithItself(Claims):
    async def claim(self, job: str, slot: int, token: str) -> bool:
        check_run(job, slot, token)
        self.check_entered()
        busy: set[Any] = self.store.setdefault("busy", set())
        key = self.key(job, slot)
        if key in busy:
            return False
        busy.add(key)
        await asyncio.sleep(0)
        busy.discard(key)
        return self.give(key, token)


@broken(
    "once-forgets-the-old",
    "Of each job the hundred newest runs are remembered.",
    "claim-only-once bounds-never-dropped",
    seen="capped collections",
)
class _ForgetsTheOld(Claims):
    def give(self, key: Any, token: str) -> bool:
        given = super().give(key, token)
        mine = sorted(known for known in self.given if known[:2] == key[:2])
        for old in mine[:-100]:
            del self.given[old]
        return given


@broken(
    "once-forgets-with-a-record",
    "A saved record makes room for another claim of its run.",
    "results-one-record claim-only-once",
)
class _ForgetsWithARecord(Claims):
    async def save_result(self, job: str, result: RunResult) -> None:
        await super().save_result(job, result)
        self.given.pop(self.key(job, result.slot), None)


@broken(
    "once-record-takes-the-run",
    "A record of a run that nobody claimed takes the run.",
    "results-one-record claim-only-once",
)
class _RecordTakesTheRun(Claims):
    async def save_result(self, job: str, result: RunResult) -> None:
        await super().save_result(job, result)
        self.given.setdefault(self.key(job, result.slot), "recorded")


@broken("once-long-errors-refused", "A record with a long error text is refused.", "limits-error-text")
class _LongErrorsRefused(Claims):
    async def save_result(self, job: str, result: RunResult) -> None:
        if len(result.error or "") > 16_000:
            raise InvalidClaim("the error text is too long")


@broken(
    "once-forgets-when-left", "Who leaves last takes what was given away along.", "capabilities-durable claim-only-once"
)
class _ForgetsWhenLeft(Claims):
    async def __aenter__(self) -> Self:
        inside = self.store.setdefault("inside", {})
        inside[self.namespace] = inside.get(self.namespace, 0) + 1
        return await super().__aenter__()

    async def __aexit__(self, *exc_info: object) -> None:
        await super().__aexit__(*exc_info)
        self.store["inside"][self.namespace] -= 1
        if not self.store["inside"][self.namespace]:
            for key in [key for key in self.given if key[0] == self.namespace]:
                del self.given[key]


@broken("once-works-when-left", "Calls work before entering and after leaving.", "errors-closed")
class _WorksWhenLeft(Claims):
    def check_entered(self) -> None:
        pass


@broken(
    "once-entering-at-once-fails",
    "Of two objects that enter a namespace at once one fails.",
    "enter-prepares enter-concurrent",
)
class _EnteringAtOnceFails(Claims):
    async def __aenter__(self) -> Self:
        entering: set[str] = self.store.setdefault("entering", set())
        if self.namespace in entering:
            raise BackendUnavailable("the directory is being made")
        entering.add(self.namespace)
        await asyncio.sleep(0)
        entering.discard(self.namespace)
        return await super().__aenter__()


@broken("once-cancelled-is-lost", "A cancelled claim has given the run to nobody.", "errors-cancel errors-repeat")
class _CancelledIsLost(Claims):
    async def claim(self, job: str, slot: int, token: str) -> bool:
        given = await super().claim(job, slot, token)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.given[self.key(job, slot)] = "lost"
            raise
        return given


@broken("once-unchecked", "What breaks a limit is taken.", "limits-before-send limits-slot limits-name limits-token")
class _Unchecked(Claims):
    async def claim(self, job: str, slot: int, token: str) -> bool:
        self.check_entered()
        return self.give(self.key(job, slot), token)


@broken("once-namespace-unchecked", "A namespace that is none is taken.", "limits-name limits-before-send")
class _NamespaceUnchecked(Claims):
    def __init__(self, store: Any, *, namespace: str) -> None:
        super().__init__(store, namespace="checked")
        self.namespace = namespace


@broken("once-with-heartbeat", "It has a method `heartbeat`, and is declared as claim-only.", "backend-level")
class _WithHeartbeat(Claims):
    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        return False


@broken("once-answers-numbers", "`claim` answers 1 and 0.", "claim-only-once claim-only-repeat")
class _AnswersNumbers(Claims):
    def give(self, key: Any, token: str) -> bool:
        return int(super().give(key, token))  # type: ignore[return-value]  # the defect


@broken("once-tokens-folded", "The case of tokens does not count.", "names-exact limits-token")
class _TokensFolded(Claims):
    def give(self, key: Any, token: str) -> bool:
        return super().give(key, token.casefold())


@broken("once-tokens-cut", "Tokens are cut to 63 characters.", "names-exact limits-token")
class _TokensCut(Claims):
    def give(self, key: Any, token: str) -> bool:
        return super().give(key, token[:63])


keyed(
    "once-slot-in-seconds",
    "Slots are kept in seconds.",
    "word-run claim-only-once",
    lambda space, job, slot: (space, job, slot // 1_000),
)
keyed(
    "once-names-joined",
    "Namespace, job and slot are joined by colons.",
    "names-exact namespace-only word-run",
    lambda space, job, slot: f"{space}:{job}:{slot}",
    seen="aiki#215",
)
keyed(
    "once-names-as-files",
    "Names are put into a path as they are.",
    "names-exact namespace-only",
    lambda space, job, slot: f"{space}-{job.replace('/', '-')}-{slot}",
)
keyed(
    "once-names-folded",
    "The case of names does not count.",
    "names-exact",
    lambda space, job, slot: (space.casefold(), job.casefold(), slot),
    seen="file systems",
)
keyed(
    "once-names-normalized",
    "Names are brought to one Unicode form.",
    "names-exact",
    lambda space, job, slot: (unicodedata.normalize("NFC", space), unicodedata.normalize("NFC", job), slot),
    seen="file systems",
)
keyed(
    "once-names-cut",
    "Names are cut to 100 characters.",
    "names-exact limits-name",
    lambda space, job, slot: (space, job[:100], slot),
    seen="file systems",
)
keyed("once-namespace-ignored", "All namespaces are one.", "namespace-only word-run", lambda _, job, slot: (job, slot))
keyed(
    "once-job-ignored", "All jobs of a namespace are one.", "names-exact word-run", lambda space, _, slot: (space, slot)
)
keyed(
    "once-slot-ignored", "All slots of a job are one.", "word-run claim-only-once", lambda space, job, _: (space, job)
)
