"""Names, tokens, slots and limits: joined, folded, cut, rounded, or not looked at."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from tenure.decision import EMPTY
from tenure.errors import InvalidClaim
from tenure.memory import MemoryBackend, MemoryStore
from tenure.model import ActiveRuns, Claim, ClaimResult, Ending, RunResult

from tenure_conformance.mutants.mutant import Mutant, register
from tenure_conformance.mutants.reference import broken, on_memory, stores

Key = tuple[str, str]


def _keyed(name: str, defect: str, breaks: str, change: Callable[[str, str], Key], *, seen: str = "") -> None:
    """Register a backend that files a job of a namespace under another key than those two."""

    class Keyed(MemoryBackend):
        def _key(self, job: str) -> Key:
            return change(*super()._key(job))

    register(Mutant(name, defect, on_memory(name, lambda: (Keyed, MemoryStore())), tuple(breaks.split()), seen))


_EXACT = "names-exact"

_keyed(
    "names-joined",
    "Namespace and job are joined by a colon.",
    "names-exact namespace-only",
    lambda space, job: ("", f"{space}:{job}"),
    seen="aiki#215, quirrel#134",
)
_keyed(
    "names-joined-by-slash",
    "Namespace and job are joined to a path.",
    "names-exact namespace-only",
    lambda space, job: ("", f"{space}/{job}"),
)
_keyed(
    "names-normalized",
    "Names are brought to one Unicode form.",
    _EXACT,
    lambda space, job: (space, unicodedata.normalize("NFC", job)),
)
_keyed(
    "names-compatible",
    "Names that look alike are one.",
    _EXACT,
    lambda space, job: (space, unicodedata.normalize("NFKC", job)),
    seen="collations",
)
_keyed(
    "names-casefolded",
    "The case of names does not count.",
    _EXACT,
    lambda space, job: (space, job.casefold()),
    seen="nacos#15543",
)
_keyed(
    "names-lower-ascii",
    "The case of ASCII letters in names does not count.",
    _EXACT,
    lambda space, job: (space, "".join(c.lower() if c.isascii() else c for c in job)),
    seen="COLLATE NOCASE",
)
_keyed(
    "names-stripped",
    "Spaces around names do not count.",
    _EXACT,
    lambda space, job: (space, job.strip()),
    seen="iam#1136",
)
_keyed(
    "names-padded",
    "Spaces at the end of names do not count.",
    _EXACT,
    lambda space, job: (space, job.rstrip(" ")),
    seen="PAD SPACE collations",
)
_keyed(
    "names-cut-at-64",
    "Names are cut to 64 characters.",
    "names-exact limits-name",
    lambda space, job: (space, job[:64]),
    seen="VARCHAR(64)",
)
_keyed(
    "names-cut-at-199",
    "The last of 200 bytes of a name does not count.",
    "names-exact limits-name",
    lambda space, job: (space, job.encode()[:199].decode(errors="ignore")),
)
_keyed(
    "names-as-files",
    "What a file's name may not have is replaced in names.",
    _EXACT,
    lambda space, job: (space, job.replace("/", "_").replace("\\", "_")),
)
_keyed(
    "names-without-surrogates",
    "Characters beyond the basic plane are all one.",
    _EXACT,
    lambda space, job: (space, "".join(c if ord(c) < 0x10000 else "?" for c in job)),
    seen="Blazar-Archive#351: utf8mb3",
)
_keyed(
    "names-without-wildcards",
    "`%`, `*` and `_` in names are one.",
    _EXACT,
    lambda space, job: (space, job.replace("*", "%").replace("_", "%")),
)
_keyed(
    "names-unquoted",
    "Names are unquoted as parts of URLs are.",
    _EXACT,
    lambda space, job: (space, unquote(job)),
)
_keyed(
    "names-unescaped",
    "Backslash escapes in names are carried out.",
    _EXACT,
    lambda space, job: (space, re.sub(r"\\x([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), job)),
)


def _filled_in(text: str) -> str:
    """A text in which each placeholder has been replaced, as formatting a statement or a key twice does."""
    return re.sub(r"\{\w*\}|%s", "x", text)


_keyed(
    "names-filled-in",
    "Placeholders in names are filled in.",
    _EXACT,
    lambda space, job: (space, _filled_in(job)),
)
_keyed(
    "namespace-filled-in",
    "Placeholders in namespaces are filled in.",
    "namespace-only names-exact",
    lambda space, job: (_filled_in(space), job),
)
_keyed(
    "namespace-ignored",
    "All namespaces are one.",
    "namespace-only",
    lambda _, job: ("", job),
    seen="csi-test#223, resque-scheduler#239",
)
_keyed(
    "namespace-casefolded",
    "The case of namespaces does not count.",
    "namespace-only names-exact",
    lambda space, job: (space.casefold(), job),
)
_keyed(
    "namespace-stripped",
    "Spaces around namespaces do not count.",
    "namespace-only names-exact",
    lambda space, job: (space.strip(), job),
)
_keyed(
    "namespace-cut-at-64",
    "Namespaces are cut to 64 characters.",
    "namespace-only limits-name",
    lambda space, job: (space[:64], job),
)
_keyed(
    "namespace-normalized",
    "Namespaces are brought to one Unicode form.",
    "namespace-only names-exact",
    lambda space, job: (unicodedata.normalize("NFC", space), job),
)


@broken("jobs-are-one", "All jobs of a namespace share their runs.", "names-exact active-named word-run")
class _JobsAreOne(MemoryBackend):
    def _key(self, job: str) -> Key:
        return super()._key(job)[0], ""


@broken("jobs-share-results", "All jobs of a namespace share their records.", "results-one-record names-exact")
class _JobsShareResults(MemoryBackend):
    async def save_result(self, job: str, result: RunResult) -> None:
        await super().save_result("job", result)

    async def results(self, job: str, *, limit: int = 20) -> list[RunResult]:
        return await super().results("job", limit=limit)


@broken("namespaces-share-results", "Records of one job are shared by all namespaces.", "namespace-only")
class _NamespacesShareResults(MemoryBackend):
    def _shared(self, job: str) -> MemoryBackend:
        self._key(job)
        shared = MemoryBackend(self.store, namespace="shared")
        shared._entered = 1
        return shared

    async def save_result(self, job: str, result: RunResult) -> None:
        await self._shared(job).save_result(job, result)

    async def results(self, job: str, *, limit: int = 20) -> list[RunResult]:
        return await self._shared(job).results(job, limit=limit)


@broken("overlap-of-any-job", "A live run of any job is in the way.", "claim-row-13 names-exact namespace-only")
class _OverlapOfAnyJob(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        now = self.store.now_ms()
        for (space, job), state in self.store.states.items():
            live = [run for run in state.unfinished if run.live(now)]
            if live and space == self._namespace and job != claim.job and claim.overlap == "skip":
                run = live[-1]
                left_ms = run.expires_at - now
                return ClaimResult(
                    outcome="overlap", now_ms=now, slot=run.slot, holder=run.holder, lease_left_ms=left_ms, attempt=0
                )
        return await super().claim(claim)


class _Told(MemoryBackend):
    """Changes slots, tokens or instances on their way to the store."""

    def slot(self, slot: int) -> int:
        return slot

    def token(self, token: str) -> str:
        return token

    def instance(self, instance: str) -> str:
        return instance

    async def claim(self, claim: Claim) -> ClaimResult:
        sent = replace(
            claim, slot=self.slot(claim.slot), token=self.token(claim.token), instance=self.instance(claim.instance)
        )
        return await super().claim(sent)

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        return await super().heartbeat(job, self.slot(slot), self.token(token))

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        return await super().finish(job, self.slot(slot), self.token(token), status)

    async def release(self, job: str, slot: int, token: str) -> bool:
        return await super().release(job, self.slot(slot), self.token(token))


@broken("slot-in-seconds", "Slots are kept in seconds.", "word-slot word-run", seen="timestamp(0) columns")
class _SlotInSeconds(_Told):
    def slot(self, slot: int) -> int:
        return slot // 1_000 * 1_000 if type(slot) is int else slot


@broken("slot-in-32-bits", "Slots are kept in 32 bits.", "word-slot limits-slot")
class _SlotIn32Bits(_Told):
    def slot(self, slot: int) -> int:
        return slot % 2**32 if type(slot) is int and slot > 0 else slot


@broken("slot-is-a-float", "Slots come back as floating point numbers.", "word-slot result-overlap active-all")
class _SlotIsAFloat(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        answer = await super().claim(claim)
        return replace(answer, slot=None if answer.slot is None else float(answer.slot))  # type: ignore[arg-type]  # the defect


@broken("slot-of-results-in-seconds", "The slots of records are kept in seconds.", "results-one-record word-slot")
class _SlotOfResultsInSeconds(MemoryBackend):
    async def save_result(self, job: str, result: RunResult) -> None:
        await super().save_result(job, replace(result, slot=result.slot // 1_000 * 1_000))


@broken(
    "token-casefolded",
    "The case of tokens does not count.",
    "names-exact limits-token calls-guarded",
    seen="*_ci collations",
)
class _TokenCasefolded(_Told):
    def token(self, token: str) -> str:
        return token.casefold() if isinstance(token, str) else token


@broken("token-padded", "Spaces at the end of tokens do not count.", "names-exact limits-token calls-guarded")
class _TokenPadded(_Told):
    def token(self, token: str) -> str:
        return token.rstrip(" ") + "." if isinstance(token, str) and len(token) < 64 and token else token


@broken("token-cut-at-32", "Tokens are cut to 32 characters.", "names-exact limits-token")
class _TokenCut(_Told):
    def token(self, token: str) -> str:
        return token[:32] if isinstance(token, str) and len(token) <= 64 else token


@broken("token-used-once", "A token that ended a run of the job wins no other.", "word-token")
class _TokenUsedOnce(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        ended = self.store.states.get(self._key(claim.job), EMPTY).ended
        used = [run for run in ended if run.token == claim.token and run.slot != claim.slot]
        return await super().claim(replace(claim, mode="takeover") if used else claim)


@broken("token-alphanumeric", "Tokens with other signs than letters and digits are refused.", "limits-token")
class _TokenAlphanumeric(_Told):
    def token(self, token: str) -> str:
        if isinstance(token, str) and not re.fullmatch("[A-Za-z0-9-]+", token):
            raise InvalidClaim("a token is letters and digits")
        return token


@broken(
    "token-of-any-slot",
    "A token that holds one run of a job holds them all.",
    "calls-guarded finish-refused release-refused",
)
class _TokenOfAnySlot(MemoryBackend):
    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        held = await super().heartbeat(job, slot, token)
        states = self.store.states.get(self._key(job))
        return held or bool(states and any(run.held_by(token) for run in states.unfinished))


@broken(
    "instance-cut-at-64", "An instance's id is cut to 64 characters.", "limits-name result-running", seen="VARCHAR(64)"
)
class _InstanceCut(_Told):
    def instance(self, instance: str) -> str:
        return instance[:64]


@broken("instance-stripped", "Spaces around an instance's id are lost.", "names-exact result-running")
class _InstanceStripped(_Told):
    def instance(self, instance: str) -> str:
        return instance.strip()


@broken("active-names-folded", "`active` tells names in lower case.", "active-all names-exact")
class _ActiveNamesFolded(MemoryBackend):
    async def active(self, jobs: Any) -> ActiveRuns:
        active = await super().active(jobs)
        return replace(active, runs=tuple(replace(run, job=run.job.lower()) for run in active.runs))


@broken(
    "error-cut-at-1000", "Error texts are cut to a thousand characters.", "limits-error-text", seen="Hangfire.Mongo#440"
)
class _ErrorCut(MemoryBackend):
    async def save_result(self, job: str, result: RunResult) -> None:
        await super().save_result(job, replace(result, error=result.error and result.error[:1_000]))


@broken("error-in-ascii", "Error texts lose what is not ASCII.", "limits-error-text limits-error-clean")
class _ErrorInAscii(MemoryBackend):
    async def save_result(self, job: str, result: RunResult) -> None:
        await super().save_result(
            job, replace(result, error=result.error and result.error.encode("ascii", "ignore").decode())
        )


@broken("error-empty-is-none", "An empty error text comes back as none.", "limits-error-text results-one-record")
class _ErrorEmptyIsNone(MemoryBackend):
    async def save_result(self, job: str, result: RunResult) -> None:
        await super().save_result(job, replace(result, error=result.error or None))


@broken(
    "error-refused",
    "A record with a long error text is refused.",
    "limits-error-text",
    seen="autoplex#500, jobrunr#701",
)
class _ErrorRefused(MemoryBackend):
    async def save_result(self, job: str, result: RunResult) -> None:
        if result.error and len(result.error) > 16_000:
            raise InvalidClaim("the error text is too long")
        await super().save_result(job, result)


@broken("results-instance-cut", "The instance of a record is cut to a hundred bytes.", "results-one-record")
class _ResultsInstanceCut(MemoryBackend):
    async def save_result(self, job: str, result: RunResult) -> None:
        cut = result.instance.encode()[:100].decode(errors="ignore")
        await super().save_result(job, replace(result, instance=cut))


@broken(
    "results-times-in-seconds",
    "The times of records are kept in seconds.",
    "results-one-record",
    seen="timestamp(0) columns",
)
class _ResultsTimesInSeconds(MemoryBackend):
    async def save_result(self, job: str, result: RunResult) -> None:
        if result.started_at is not None:
            result = replace(result, started_at=result.started_at // 1_000 * 1_000)
        await super().save_result(job, result)


@broken(
    "results-numbers-are-doubles",
    "Numbers of records pass through floating point.",
    "results-one-record word-fence",
    seen="JSON numbers in JavaScript",
)
class _ResultsNumbersAreDoubles(MemoryBackend):
    async def save_result(self, job: str, result: RunResult) -> None:
        await super().save_result(job, replace(result, fence=int(float(result.fence))))


# Limits that are not looked at

_CHECK_NAME = '        check_name(job, "job")\n        self._check_entered()\n'
_CHECK_BEAT = (
    "        check_run(job, slot, token)\n        return self._decide(job, lambda state, now: decision.heartbeat"
)
_CHECK_FINISH = "        check_run(job, slot, token)\n        check_ending(status)\n"
_CHECK_RELEASE = "        check_run(job, slot, token)\n        held"

for _name, _defect, _allowed in (
    ("name-too-long", "A name of 201 bytes is taken.", "isinstance(job, str) and len(job) > 200"),
    (
        "name-counted-in-characters",
        "Names are measured in characters instead of bytes.",
        "len(job) <= 200 and not job.isascii() and len(job.encode(errors='replace')) > 200",
    ),
    ("name-empty", "An empty name is taken.", "job == ''"),
    ("name-with-controls", "A name with control characters is taken.", "isinstance(job, str) and '\\n' in job"),
    ("name-with-nul", "A name with a NUL is taken.", "isinstance(job, str) and '\\0' in job"),
    ("name-with-surrogates", "A name with a lone surrogate is taken.", "isinstance(job, str) and '\\ud800' in job"),
):
    stores(
        _name,
        _defect,
        "limits-name limits-before-send",
        (_CHECK_NAME, f'        ({_allowed}) or check_name(job, "job")\n        self._check_entered()\n'),
        seen="ShedLock's shouldFailIfKeyNameTooLong" if _name == "name-too-long" else "",
    )
stores(
    "active-unchecked-names",
    "`active` takes names that are none.",
    "limits-name limits-before-send",
    ("keys = {job: self._key(job) for", "keys = {job: (self._namespace, job) for"),
)
stores(
    "heartbeat-unchecked",
    "A heartbeat takes slots and tokens that are none.",
    "limits-slot limits-token limits-before-send",
    (_CHECK_BEAT, _CHECK_BEAT.split("\n", 1)[1]),
)
stores(
    "release-unchecked",
    "A release takes slots and tokens that are none.",
    "limits-slot limits-token limits-before-send",
    (_CHECK_RELEASE, "        held"),
)
stores(
    "finish-unchecked",
    "A finish takes slots and tokens that are none.",
    "limits-slot limits-token limits-before-send",
    (_CHECK_FINISH, "        check_ending(status)\n"),
)
stores(
    "finish-of-any-status",
    "A finish takes statuses that are none.",
    "limits-words limits-before-send",
    (_CHECK_FINISH, "        check_run(job, slot, token)\n"),
)
stores(
    "limit-unchecked",
    "`results` takes limits that are none.",
    "results-limit limits-numbers",
    ('        """See LeaseBackend."""\n        check_limit(limit)\n', '        """See LeaseBackend."""\n'),
)
stores(
    "namespace-unchecked",
    "A namespace that is none is taken.",
    "limits-name limits-before-send",
    ('        check_name(namespace, "namespace")\n', ""),
)


@broken(
    "invalid-is-false",
    "What breaks a limit is answered `False`.",
    "limits-before-send limits-slot limits-token errors-never-outcome",
)
class _InvalidIsFalse(MemoryBackend):
    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        try:
            return await super().heartbeat(job, slot, token)
        except InvalidClaim:
            return False


@broken("slot-limit-of-2038", "Slots beyond the year 2106 are refused.", "limits-slot")
class _SlotLimit(_Told):
    def slot(self, slot: int) -> int:
        if type(slot) is int and slot > 2**32 * 1_000:
            raise InvalidClaim("the slot is too large")
        return slot


@broken("lease-limit-of-a-day", "Leases longer than a day are refused.", "limits-numbers", seen="TTL limits of a store")
class _LeaseLimit(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        if claim.lease_ms > 86_400_000:
            raise InvalidClaim("the lease is too long")
        return await super().claim(claim)
