"""The protocol's calls on the table, for threads: one conditional write each, decided by ``tenure.decision``."""

import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from tenure import decision
from tenure.decision import EMPTY, JobState
from tenure.duration import to_text
from tenure.errors import BackendMisconfigured
from tenure.model import CARD_KEPT_MS, EARLY_MS, Claim, ClaimResult, Ending, Finding, JobCard, RunResult

from tenure_dynamodb import expressions, item, keys
from tenure_dynamodb.clock import Moment
from tenure_dynamodb.examine import examine
from tenure_dynamodb.expressions import Update
from tenure_dynamodb.faults import unavailable
from tenure_dynamodb.item import MOST_CALLS, Known
from tenure_dynamodb.table import BATCH_READ, Item, Key, Refused, Table, code_of_cause

Answer = TypeVar("Answer")
AtOnce = Callable[[Moment], tuple[Update, Answer] | None]
"""A write whose condition proves the answer, where there is one."""
Decide = Callable[[JobState, Moment], tuple[JobState, Answer]]

PRUNE_EVERY = 32
"""One save in so many removes what is older than the records that are kept."""
PRUNE_AT_ONCE = 1_000
MOST_CARDS = 100_000
PAUSE_S = 0.002
MOST_JOBS = BATCH_READ
"""Jobs whose states are read in one request."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a backend was told."""

    namespace: str
    keep_results: int
    keep_for_ms: int
    clock_error_ms: int
    create: bool


class _Again(Exception):
    """The item was full, and another call has made room in it: a write at once may do now."""


class Store:
    """Each call takes a deadline (of ``time.monotonic``), after which it sends nothing more."""

    def __init__(self, table: Table, settings: Settings) -> None:
        self._table = table
        self._settings = settings
        self._layout = keys.layout(settings.namespace)
        self._enough_ms = settings.clock_error_ms * 2 // 3

    def enter(self, deadline: float) -> None:
        """Look whether the table is there and fit, make it if told to, and learn the store's clock."""
        for _ in range(2):
            try:
                self._check_layout()
                break
            except BackendMisconfigured as exc:
                if not self._mended(code_of_cause(exc), deadline):
                    raise
        else:
            self._check_layout()
        self.moment(deadline)

    def _mended(self, code: str, deadline: float) -> bool:
        """Whether it is worth another look, after an error with that code."""
        if code == "ResourceNotFoundException" and self._settings.create:
            self._table.create(deadline)
            return True
        return code in _OF_THE_CLOCK  # the refusal told the time: the next signature is right

    def close(self) -> None:
        """Close the connections that are idle."""
        self._table.close()

    def claim(self, claim: Claim, deadline: float) -> ClaimResult:
        """See LeaseBackend."""

        def at_once(moment: Moment) -> tuple[Update, ClaimResult] | None:
            answer = _of_a_job_without_runs(claim, moment)
            return (expressions.win(claim, moment.late), answer) if answer.outcome == "won" else None

        while True:
            answer = self._answer(claim.job, at_once, lambda state, moment: item.claim(state, claim, moment), deadline)
            early_ms = claim.slot - answer.now_ms - EARLY_MS
            if answer.outcome != "none" or claim.mode == "takeover" or early_ms > self._settings.clock_error_ms:
                return answer
            if early_ms <= 0:  # not because of its slot
                return answer
            time.sleep(early_ms / 1_000)  # whether the slot is near enough is in doubt: until it is not

    def heartbeat(self, job: str, slot: int, token: str, deadline: float) -> bool:
        """See LeaseBackend."""
        return self._answer(
            job,
            lambda moment: (expressions.renew(slot, token, moment.late), True),
            lambda state, moment: item.heartbeat(state, slot, token, moment.late),
            deadline,
        )

    def finish(self, job: str, slot: int, token: str, status: Ending, deadline: float) -> bool:
        """See LeaseBackend."""
        return self._answer(
            job,
            lambda _: (expressions.finish(slot, token, status), True),
            lambda state, _: decision.finish(state, slot, token, status),
            deadline,
        )

    def release(self, job: str, slot: int, token: str, deadline: float) -> bool:
        """See LeaseBackend."""
        return self._answer(
            job,
            lambda moment: (expressions.release(slot, token, moment.early), True),
            lambda state, moment: decision.release(state, slot, token, moment.early),
            deadline,
        )

    def states(self, jobs: Sequence[str], deadline: float) -> tuple[Moment, dict[str, JobState]]:
        """Those jobs that there are, and a moment before they were read; at most ``MOST_JOBS``."""
        while True:
            moment = self.moment(deadline)
            items = self._table.get_all([keys.state(self._settings.namespace, job) for job in jobs], deadline)
            states = {keys.job_of(found["pk"]["S"]): item.decode(found).state for found in items}
            if self._table.clock.epoch == moment.epoch:
                return moment, states

    def save_result(self, job: str, result: RunResult, _deadline: float) -> None:
        """See LeaseBackend; one in many removes old records too."""
        settings = self._settings
        record = keys.record(settings.namespace, job, result, settings.keep_for_ms)
        try:
            if decision.overwrites(result):
                self._table.put(record)
            else:
                self._table.put(record, ConditionExpression="attribute_not_exists(pk)")
        except Refused:
            return
        if random.randrange(PRUNE_EVERY) == 0:
            self.prune(job)

    def results(self, job: str, limit: int, _deadline: float) -> list[RunResult]:
        """See LeaseBackend."""
        partition = keys.partition(self._settings.namespace, job)
        most = min(limit, self._settings.keep_results)
        return [keys.recorded(found) for found in self._table.newest(partition, keys.RUN, most, ConsistentRead=True)]

    def save_cards(self, cards: Sequence[JobCard], deadline: float) -> None:
        """Keep those cards."""
        self._table.put_all([keys.card(self._settings.namespace, card) for card in cards], deadline)

    def cards(self, deadline: float) -> list[JobCard]:
        """All cards but those of jobs that nobody has told of for long; DynamoDB removes them when it likes."""
        before_ms = self.moment(deadline).early - CARD_KEPT_MS
        found = self._table.newest(keys.cards(self._settings.namespace), keys.CARD, MOST_CARDS, ConsistentRead=True)
        return sorted(
            (card for card in map(keys.told, found) if card.seen_at_ms >= before_ms), key=lambda card: card.job
        )

    def examine(self, deadline: float) -> list[Finding]:
        """What an operator may want to know of the table."""
        namespace = self._settings.namespace
        return examine(self._table, keys.probe(namespace), self.moment(deadline), self._settings.clock_error_ms)

    def prune(self, job: str) -> None:
        """Remove the records that are older than those that are kept."""
        partition = keys.partition(self._settings.namespace, job)
        keep = self._settings.keep_results
        found = self._table.newest(partition, keys.RUN, keep + PRUNE_AT_ONCE, ProjectionExpression="pk, sk")
        self._table.delete_all(list(found)[keep:])

    def moment(self, deadline: float) -> Moment:
        """The store's clock now, as exactly as it was promised; mostly it is known, sometimes it is looked at first."""
        self._table.check_time(deadline, "others change the job all the while")
        clock, most_ms = self._table.clock, self._settings.clock_error_ms
        moment = clock.moment()
        if moment.doubt_ms <= most_ms:
            return moment
        self._look_at_the_clock(deadline)
        return clock.moment()

    def clock_fades(self) -> bool:
        """Whether a call may soon have to look at the clock first."""
        return self._table.clock.moment().doubt_ms > self._settings.clock_error_ms * 5 // 6

    def until_a_look_s(self) -> float | None:
        """How long to wait with the next look, None where the clock is known well."""
        return self._table.clock.until_a_look_s(self._enough_ms)

    def look(self, _deadline: float) -> None:
        """Make a request, for its Date."""
        self._check_layout()

    def _look_at_the_clock(self, deadline: float) -> None:
        """Learn the store's clock better than it must be known; takes a second at most."""
        most_ms = self._settings.clock_error_ms
        try:
            self._table.clock.measure(self._check_layout, self._enough_ms, deadline)
        except TimeoutError as exc:
            if self._table.clock.moment().doubt_ms <= most_ms:
                return
            why = (
                f"{exc}, and clock_error={to_text(most_ms)} was promised; give it more time, or promise less where the"
                " way to the table is long"
            )
            raise unavailable(self._table.place, why, exc) from exc

    def _answer(self, job: str, at_once: AtOnce[Answer], decide: Decide[Answer], deadline: float) -> Answer:
        key = keys.state(self._settings.namespace, job)
        while True:
            moment = self.moment(deadline)
            with suppress(_Again):
                answer = self._answered(key, moment, at_once, decide, deadline)
                if self._table.clock.epoch == moment.epoch:
                    return answer
                # The replies told of another clock than the one that this was decided by: once more.

    def _answered(
        self, key: Key, moment: Moment, at_once: AtOnce[Answer], decide: Decide[Answer], deadline: float
    ) -> Answer:
        write = at_once(moment)
        if write is None:
            return self._decided(key, self._read(key), moment, decide, deadline)
        update, answer = write
        known = self._written(key, update)
        return answer if known is None else self._decided(key, known, moment, decide, deadline)

    def _decided(self, key: Key, known: Known, moment: Moment, decide: Decide[Answer], deadline: float) -> Answer:
        """Decide by what is known, and replace it if nothing has changed since; again if something has.

        The moment is always one before the state was read: an error then only delays a takeover.
        """
        pause_s = PAUSE_S
        while True:
            state, answer = decide(known.state, moment)
            if state is known.state:
                return answer
            moment = self.moment(deadline)
            there = self._replaced(key, known, state)
            if there is None:
                return answer
            if known.calls >= MOST_CALLS > there.calls:
                raise _Again
            known = there
            time.sleep(random.uniform(0, pause_s))
            pause_s = min(2 * pause_s, 0.1)

    def _read(self, key: Key) -> Known:
        return item.decode(self._table.get(key))

    def _written(self, key: Key, update: Update) -> Known | None:
        """None if it was carried out, else what is there."""
        try:
            self._table.update(key, **update)
        except Refused as refused:
            return self._there(key, refused.item)
        return None

    def _replaced(self, key: Key, known: Known, state: JobState) -> Known | None:
        """None if the state was put in the place of what is known, else what is there."""
        try:
            self._table.put({**key, **item.encode(state, os.urandom(8))}, **expressions.unchanged(known))
        except Refused as refused:
            return self._there(key, refused.item)
        return None

    def _there(self, key: Key, told: Item | None) -> Known:
        """What a refusal told, or what is there now where the server does not tell (dynalite)."""
        return item.decode(told) if told is not None else self._read(key)

    def _check_layout(self) -> None:
        found = self._table.get(self._layout)
        if found is not None:
            item.check_layout(found)


_OF_THE_CLOCK = ("InvalidSignatureException", "RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch")


def _of_a_job_without_runs(claim: Claim, moment: Moment) -> ClaimResult:
    """What the claim alone decides: whether it may win, early by the interval's end and late by its beginning."""
    if claim.max_late_ms is not None:
        claim = replace(claim, max_late_ms=claim.max_late_ms + moment.doubt_ms)
    return decision.claim(EMPTY, claim, moment.late)[1]
