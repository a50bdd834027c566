"""The life of each lease as its clients can know it from their calls: surely alive, uncertain, surely over."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tenure.model import Capabilities, round_lease

from tenure_conformance.report.wording import claim_of
from tenure_conformance.timing import Deadline, Span
from tenure_conformance.verdict import Call

State = Literal["alive", "uncertain", "over"]
Holding = tuple[str, int, str]
"""Job, slot and token."""
FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a lease's life, in milliseconds since the rule began; the last one has no end."""

    begin: float
    end: float
    state: State


@dataclass(slots=True)
class Life:
    """The lease of one holder of a run, from its win on; what others are told does not shorten it."""

    job: str
    slot: int
    token: str
    client: str
    """Who won it."""
    lease_ms: int
    ended: bool = False
    stretches: list[Stretch] = field(default_factory=list)

    @property
    def holding(self) -> Holding:
        """What names it."""
        return self.job, self.slot, self.token

    def begin(self, set_by: Span, slack_ms: int) -> None:
        """A win or a heartbeat: the lease counts from some moment within the call."""
        deadline = Deadline(set_by, self.lease_ms, slack_ms)
        if not self.stretches:
            self.stretches.append(Stretch(set_by.begin, FOREVER, "uncertain"))
        alive_until = max(set_by.end, deadline.alive_ms)
        self._go_on(
            Stretch(set_by.end, alive_until, "alive"),
            Stretch(alive_until, deadline.over_ms, "uncertain"),
            Stretch(deadline.over_ms, FOREVER, "over"),
        )

    def end(self, within: Span) -> None:
        """A finish or a release: the lease is over from some moment within the call."""
        self.ended = True
        self._go_on(Stretch(within.begin, within.end, "uncertain"), Stretch(within.end, FOREVER, "over"))

    def _go_on(self, *stretches: Stretch) -> None:
        """What was foreseen before holds until the first of these."""
        moment = stretches[0].begin
        known = [replace(one, end=min(one.end, moment)) for one in self.stretches if one.begin < moment]
        self.stretches = [one for one in (*known, *stretches) if one.begin < one.end]


def lives(calls: Sequence[Call], claims: Mapping[str, Any]) -> list[Life]:
    """The lives of all leases that were won in these calls; ``claims`` are the certificate's."""
    capabilities = Capabilities(**claims["capabilities"])
    slack_ms = claims["timing"]["slack_ms"] + 2 * capabilities.clock_error_ms
    found: dict[Holding, Life] = {}
    for call in sorted(_answered(calls), key=lambda one: one.end_ms or 0):
        _follow(found, call, capabilities, slack_ms)
    return list(found.values())


def holding(call: Call) -> Holding | None:
    """The lease that a call is about, if it names one."""
    told = claim_of(call) or call.arguments
    return (str(told["job"]), told["slot"], told["token"]) if {"job", "slot", "token"} <= told.keys() else None


def _answered(calls: Iterable[Call]) -> list[Call]:
    return [call for call in calls if call.error is None and call.end_ms is not None]


def _follow(found: dict[Holding, Life], call: Call, capabilities: Capabilities, slack_ms: int) -> None:
    named, span = holding(call), Span(call.begin_ms, call.end_ms or 0)
    if named is None:
        return
    life, claim = found.get(named), claim_of(call)
    if claim and isinstance(call.answer, Mapping) and call.answer.get("outcome") == "won":
        life = life or found.setdefault(named, Life(*named, call.client, 0))
        life.lease_ms = round_lease(claim["lease_ms"], capabilities)
        life.begin(span, slack_ms)
    elif call.answer is True and life is not None and not life.ended:
        if call.name == "heartbeat":
            life.begin(span, slack_ms)
        elif call.name in ("finish", "release"):
            life.end(span)
