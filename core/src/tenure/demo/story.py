"""What has happened in the demo so far, as its processes told it, and whether it is as it should be."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from tenure.demo.ledger import Entry
from tenure.demo.processes import Report
from tenure.demo.worker import PERIOD_MS
from tenure.model import RunResult

Deed = Literal["killed", "frozen", "stopped"]
Fate = Literal["running", "success", "interrupted", "killed", "frozen", "stopped"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class AttemptStory:
    """One attempt of a slot's run."""

    slot: int
    number: int
    worker: str
    fence: int
    started_ms: int
    begun: bool = False
    ended_ms: int | None = None
    fate: Fate = "running"
    refused: bool = False
    """The ledger refused its write."""


@dataclass(slots=True)
class WorkerStory:
    """One process."""

    name: str
    pid: int
    ready_ms: int | None = None
    gone_ms: int | None = None
    frozen_ms: int | None = None
    thawed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Act:
    """What was done to a holder in the middle of its run."""

    deed: Deed
    worker: str
    slot: int
    attempt: int
    at_ms: int


class Story:
    """Everything told, by attempt and by worker."""

    def __init__(self, subtitle: str = "") -> None:
        self.subtitle = subtitle
        self.attempts: dict[tuple[int, int], AttemptStory] = {}
        self.workers: dict[str, WorkerStory] = {}
        self.acts: list[Act] = []

    def take_in(self, worker: str, report: Report) -> None:
        """Take a worker's report in; what concerns one attempt may come in any order."""
        match report["kind"]:
            case "ready":
                self.workers[worker].ready_ms = report["at"]
            case "gone":
                self.workers[worker].gone_ms = self.workers[worker].gone_ms or now_ms()
            case kind:
                self._take_in_run(kind, self._attempt(worker, report), report["at"])

    def act(self, deed: Deed, attempt: AttemptStory) -> Act:
        """Something is done to the attempt's holder."""
        act = Act(deed, attempt.worker, attempt.slot, attempt.number, now_ms())
        worker = self.workers[attempt.worker]
        self.acts.append(act)
        attempt.fate = deed
        if deed == "killed":
            attempt.ended_ms = worker.gone_ms = act.at_ms
        elif deed == "frozen":
            worker.frozen_ms = act.at_ms
        return act

    def thaw(self, act: Act) -> None:
        """The frozen worker goes on."""
        self.workers[act.worker].thawed_ms = now_ms()

    def held_by(self, worker: str) -> list[AttemptStory]:
        """The worker's attempts that have not ended."""
        return [attempt for attempt in self.attempts.values() if attempt.worker == worker and attempt.ended_ms is None]

    def following(self, act: Act) -> AttemptStory | None:
        """The attempt that took the run over."""
        return self.attempts.get((act.slot, act.attempt + 1))

    def takeover_ms(self, act: Act) -> int | None:
        """From the deed to the start of the next attempt."""
        following = self.following(act)
        return None if following is None else following.started_ms - act.at_ms

    def by_slot(self) -> dict[int, list[AttemptStory]]:
        """The attempts of each slot, in order."""
        slots: dict[int, list[AttemptStory]] = defaultdict(list)
        for key in sorted(self.attempts):
            slots[key[0]].append(self.attempts[key])
        return dict(slots)

    def _attempt(self, worker: str, report: Report) -> AttemptStory:
        key = (report["slot"], report["attempt"])
        if key not in self.attempts:
            self.attempts[key] = AttemptStory(*key, worker, report["fence"], report["at"])
        return self.attempts[key]

    def _take_in_run(self, kind: str, attempt: AttemptStory, at_ms: int) -> None:
        match kind:
            case "start":
                attempt.started_ms = at_ms
            case "begun":
                attempt.begun = True
            case "refused":
                attempt.refused = True
            case "success":
                attempt.fate, attempt.ended_ms = "success", at_ms
            case "interrupted":
                attempt.ended_ms = at_ms
                if attempt.fate == "running":
                    attempt.fate = "interrupted"


def expected_slots(first_ms: int, last_ms: int) -> list[int]:
    """Every slot from the first to the last, both of them included."""
    return list(range(first_ms, last_ms + 1, PERIOD_MS))


def faults(expected: Iterable[int], history: Iterable[RunResult], ledger: Mapping[int, Entry]) -> list[str]:
    """What is wrong, a line each: a slot that was lost, one that ran twice to success, a stale write that went through.

    ``history`` and ``ledger`` are what the two files hold in the end, whatever the processes have told.
    """
    successes: dict[int, list[RunResult]] = defaultdict(list)
    for result in history:
        if result.status == "success":
            successes[result.slot].append(result)
    slots = sorted({*expected, *successes, *ledger})
    found = (_fault(slot, successes.get(slot, []), ledger.get(slot)) for slot in slots)
    return [fault for fault in found if fault is not None]


def _fault(slot: int, successes: list[RunResult], entry: Entry | None) -> str | None:
    when = slot_text(slot)
    if not successes:
        return f"{when} was lost: no attempt ended in success"
    if len(successes) > 1:
        who = ", ".join(f"attempt {result.attempt} by {result.instance}" for result in successes)
        return f"{when} ran {len(successes)} times to success: {who}"
    if entry is None or entry.entry != "paid":
        return f"{when} ended in success, but its handler's last write is missing"
    (success,) = successes
    if entry.fence != success.fence:
        return f"{when} was written by attempt {entry.attempt}, while attempt {success.attempt} owned it"
    return None


def slot_text(slot: int) -> str:
    """The slot's time of day, UTC."""
    return (_EPOCH + timedelta(milliseconds=slot)).strftime("%H:%M:%S")


def now_ms() -> int:
    """The wall clock, which the workers of this machine share."""
    return int(datetime.now(UTC).timestamp() * 1_000)
