"""Runners that are broken on purpose, each in one way, and the invariant that finds out."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace

from . import build, checker, scenario, simulation
from .build import Edit
from .invariants import Violation


@dataclass(frozen=True, slots=True)
class Broken:
    name: str
    what: str
    found_by: str
    """The invariant that names it."""
    edits: Mapping[str, tuple[Edit, ...]]

    def code(self) -> SimpleNamespace:
        return build.copied(self.edits)


@dataclass(frozen=True, slots=True)
class Search:
    """How a broken runner was found, if it was."""

    broken: Broken
    seeds: int
    """So many seeds were run."""
    violation: Violation | None


def search(broken: Broken, first: int = 0, seeds: int = 300) -> Search:
    """Run seeds until the invariant that names the defect is violated."""
    code = broken.code()
    for seed in range(first, first + seeds):
        violations = checker.judge(simulation.run(scenario.make(seed), code), (broken.found_by,))
        if violations:
            return Search(broken, seed - first + 1, violations[0])
    return Search(broken, seeds, None)


def _broken(name: str, what: str, found_by: str, **edits: tuple[str, str] | tuple[Edit, ...]) -> Broken:
    """``edits`` are by module, one edit or several."""
    several = {module: edit if isinstance(edit[0], tuple) else (edit,) for module, edit in edits.items()}
    return Broken(name, what, found_by, several)  # type: ignore[arg-type]


BROKEN = (
    _broken(
        "no-own-deadline",
        "a holder stops only when a heartbeat is refused",
        "own-deadline",
        heartbeat=(
            ("        if now >= self.deadline_ms:\n            self._lose()\n", ""),
            ("            wake_ms = min(wake_ms, self.deadline_ms)\n", "            pass\n"),
        ),
    ),
    _broken(
        "wall-clock",
        "deadlines are kept by the clock that people set",
        "own-deadline",
        instance=(
            "        self.clock = clock\n",
            "        wall_ms = staticmethod(clock.wall_ms)\n"
            "        self.clock = type('Wall', (), {'wall_ms': wall_ms, 'monotonic_ms': wall_ms})\n",
        ),
    ),
    _broken(
        "lease-from-answer",
        "the lease counts from the answer, not from the sending",
        "own-deadline",
        calls=("return Answer(result, sent_ms)", "return Answer(result, self._clock.monotonic_ms())"),
    ),
    _broken(
        "late-won-starts",
        "a win that comes after its lease starts its handler",
        "late-won-starts-nothing",
        runner=(
            (
                "if not (lease.confirmed() and self._may_hold(job, claim.slot)):",
                "if not self._may_hold(job, claim.slot):",
            ),
            ("self._executor.start(job, attempt.ctx, lease)", "self._executor.start(job, attempt.ctx)"),
        ),
    ),
    _broken(
        "release-while-running",
        "a stop gives leases up while their handlers execute",
        "lease-is-kept",
        engine=(
            '            call.stop("stop", cancel=False)\n',
            '            call.stop("stop", cancel=False)\n'
            "            if call.owner is not None:\n"
            "                self._instance.spawn(self._level.runner._give_back(call.owner.lease.claim))\n",
        ),
    ),
    _broken(
        "no-heartbeats-after-stop",
        "heartbeats end when a handler is told to stop",
        "heartbeats-go-on",
        heartbeat=(
            "        if self._stopped:\n            return\n        now =",
            "        if self._stopped or self._instance.stopping.is_set():\n            return\n        now =",
        ),
    ),
    _broken(
        "heartbeats-end-first",
        "heartbeats end before finish is stored",
        "heartbeats-until-finish",
        runner=(
            "        ended = call.ended\n        assert ended is not None\n",
            "        lease.stop()\n        ended = call.ended\n",
        ),
    ),
    _broken(
        "finish-once",
        "a finish that failed is not sent again",
        "finish-is-repeated",
        runner=("            delay_ms = delays.next_ms()\n", "            return None\n"),
    ),
    _broken(
        "finish-not-heard",
        "the answer to finish is taken for True",
        "events-tell-the-truth",
        runner=(
            "        stored = await self._store_end(lease, status)\n",
            "        stored = await self._store_end(lease, status) or True\n",
        ),
    ),
    _broken(
        "lost-lease-released",
        "an attempt whose lease was lost is given back",
        "only-a-stop-gives-back",
        runner=("released = (stops or not started) and await", "released = await"),
    ),
    _broken(
        "recorded-first",
        "the record is saved before the end is stored",
        "first-stored-then-recorded-then-told",
        runner=(
            "        stored = await self._store_end(lease, status)\n",
            "        await self._save(attempt.job, attempt.record(status))\n"
            "        stored = await self._store_end(lease, status)\n",
        ),
    ),
    _broken(
        "timeout-waits",
        "a run that is too slow is failed only when its handler has ended",
        "timeout-is-kept",
        executor=('        self._end(Ended("timeout", HandlerTimeout(', '        (Ended("timeout", HandlerTimeout('),
    ),
    _broken(
        "previous-not-saved",
        "attempts that were lost get no record",
        "each-attempt-has-a-record",
        runner=("        for lost in previous:\n", "        for lost in ():\n"),
    ),
    _broken(
        "fresh-token-on-retry",
        "a claim that failed is repeated as another",
        "a-failed-claim-is-repeated-with-its-token",
        runner=(
            "        ask = partial(self._calls.claim, claim)\n        patience = patience_ms(",
            "        def ask():\n"
            "            return self._calls.claim(self._new_claim(job, claim.slot, claim.mode))\n"
            "        patience = patience_ms(",
        ),
    ),
    _broken(
        "claim-not-repeated",
        "a claim that failed is given up",
        "a-failed-claim-is-repeated",
        runner=("            self._instance.spawn(self._claim_again(job, claim))\n", "            pass\n"),
    ),
    _broken(
        "recovery-skipped",
        "jobs are claimed at once, before the store was asked",
        "recovery-comes-first",
        levels=("        return self._recovery.is_done(name)\n", "        return True\n"),
    ),
    _broken(
        "recovery-not-heard",
        "what recovery finds unfinished is left alone",
        "unfinished-runs-are-taken-up",
        recovery=("            if run.live or not replaced:\n", "            if False:\n"),
    ),
    _broken(
        "catch-up-forgotten",
        "the slot that was missed is not caught up",
        "the-latest-slot-is-caught-up",
        recovery=("            self._catch_up(job, latest)\n", "            pass\n"),
    ),
    _broken(
        "watch-never-looks-at-lease-end",
        "a backup looks once in one or two heartbeats, and never when the lease ends",
        "backups-look-when-the-lease-ends",
        watch=(
            '        if watch.over_ms is None:\n            return float("inf")\n',
            '        return float("inf")\n',
        ),
    ),
    _broken(
        "watch-without-jitter",
        "all backups look at the very end of the lease",
        "backups-do-not-look-all-at-once",
        watch=(
            "return watch.over_ms + self._instance.rng.random() * spread_ms",
            "return watch.over_ms",
        ),
    ),
    _broken(
        "watch-asks-at-once",
        "a backup asks again without a pause",
        "all-is-looked-at-together",
        watch=(
            "due_ms = now + beat_ms * (1 + (self._instance.rng.random() if part is None else part))",
            "due_ms = now + 20",
        ),
    ),
    _broken(
        "watch-claims-what-is-live",
        "a backup asks for each run by itself, and again without a pause",
        "looks-are-few",
        watch=(
            (
                "due_ms = now + beat_ms * (1 + (self._instance.rng.random() if part is None else part))",
                "due_ms = now + 20",
            ),
            ("        return over or watch.hinted or watch.claim is not None\n", "        return True\n"),
        ),
    ),
    _broken(
        "looks-one-by-one",
        "each watch looks for itself",
        "all-is-looked-at-together",
        watch=("_RESTS = 0.5\n", "_RESTS = 9.0\n"),
    ),
    _broken(
        "failed-check-ends-watch",
        "a check that failed ends the watch",
        "a-failed-check-is-repeated",
        watch=("        self._fail([watch])\n", "        self._end(watch)\n"),
    ),
    _broken(
        "checks-all-at-once",
        "while checks fail, every watch goes on with its own",
        "checks-that-fail-are-few",
        watch=(
            ("        if self._in_trouble or self._has_to_wait(watch):\n", "        if self._has_to_wait(watch):\n"),
            (
                "            if not (self._in_trouble or self._has_to_wait(watch)):\n",
                "            if not self._has_to_wait(watch):\n",
            ),
        ),
    ),
    _broken(
        "no-check-after-a-failure",
        "once a check has failed nobody finds out that the store is back",
        "checks-go-on-while-they-fail",
        watch=("            self._instance.spawn(self._probe())\n", "            pass\n"),
    ),
    _broken(
        "slots-not-expected",
        "who starts between a slot and its first claim does not watch that run",
        "what-may-start-still-is-watched",
        recovery=("            self._watches.expect(job, latest, now_ms)\n", "            pass\n"),
    ),
    _broken(
        "lost-hints-end-watches",
        "when the stream of hints breaks, watches end",
        "a-running-run-is-watched",
        hints=(
            '                self._instance.error("changes", error)\n',
            '                self._instance.error("changes", error)\n'
            "                [self._watches.end(name) for name in self._jobs]\n",
        ),
    ),
    _broken(
        "running-not-watched",
        "a run that another instance has is not watched",
        "a-running-run-is-watched",
        runner=(
            '                _skip(self._instance, job, claim.slot, "taken", result.holder)\n'
            "                self._watch(job, claim.slot, answer)\n",
            '                _skip(self._instance, job, claim.slot, "taken", result.holder)\n',
        ),
    ),
    _broken(
        "overlap-not-watched",
        "after overlap only the run in the way is watched",
        "both-runs-are-watched-after-overlap",
        runner=(
            '                _skip(self._instance, job, claim.slot, "overlap", result.holder)\n'
            "                self._watch(job, claim.slot, answer)\n",
            '                _skip(self._instance, job, claim.slot, "overlap", result.holder)\n',
        ),
    ),
    _broken(
        "own-loss-not-watched",
        "an instance is no backup for a run that it lost",
        "a-lost-run-is-watched",
        runner=("        self.watches.watch(attempt.job, ctx.slot_ms, after=ctx.attempt)\n", ""),
    ),
    _broken(
        "claims-beside-its-handler",
        "an instance checks a run that still executes in it",
        "no-claim-beside-its-own-handler",
        watch=(
            (
                "        if call := self._executor.in_the_way(watch.job, watch.slot):\n            watch.busy = True",
                "        if call := None:\n            watch.busy = True",
            ),
            (
                "        if not (self._executor.executes(job.name, slot) or self._owner.ends(job.name, slot)):",
                "        if True:",
            ),
        ),
    ),
    _broken(
        "claims-after-stop",
        "an instance that stops goes on claiming",
        "no-claims-after-a-stop",
        engine=("        self._timers.stop()\n        self._level.stop()\n", "        self._level.stop()\n"),
        lane=(" and not self._instance.stopping.is_set()", ""),
    ),
    _broken(
        "stop-keeps-a-win",
        "what is won while stopping is not given back",
        "a-claim-on-its-way-is-given-back",
        runner=("        await self._give_back(claim)\n        self.watches.watch(", "        self.watches.watch("),
    ),
    _broken(
        "clock-back-fires-twice",
        "after its clock was set back, an instance fires the slot it is in again",
        "the-last-slot-does-not-fire-again",
        timers=(
            "        if timer.slot is not None and timer.slot == timer.fired:\n",
            "        if False:\n",
        ),
    ),
    _broken(
        "no-width",
        "all claims that are due are sent at once",
        "claims-are-not-a-flood",
        lane=("WIDTH = 64\n", "WIDTH = 10_000\n"),
    ),
    _broken(
        "deaf-holder",
        "a holder hears neither its deadline nor a heartbeat that is refused",
        "one-holder",
        heartbeat=(
            ("        self.lost = True\n        if self._call is not None:\n", "        if False:\n"),
            ("        if not self.lost:\n            wake_ms = min(wake_ms, self.deadline_ms)\n", ""),
        ),
    ),
    _broken(
        "deadline-too-late",
        "a holder gives itself longer than its lease",
        "lease-is-live",
        heartbeat=(
            ("self.deadline_ms: float = sent_ms + claim.lease_ms", "self.deadline_ms = sent_ms + 1.3 * claim.lease_ms"),
            (
                "self.deadline_ms = sent_ms + self.claim.lease_ms",
                "self.deadline_ms = sent_ms + 1.3 * self.claim.lease_ms",
            ),
        ),
    ),
    _broken(
        "started-twice",
        "a win starts its handler twice",
        "one-execution-of-an-attempt",
        runner=(
            "        call = self._executor.start(job, attempt.ctx, lease)\n",
            "        self._executor.start(job, attempt.ctx, lease)\n"
            "        call = self._executor.start(job, attempt.ctx, lease)\n",
        ),
    ),
    _broken(
        "fence-of-its-own",
        "the handler is given another fence than the store's",
        "fences-rise",
        runner=("fence=result.fence or 0,", "fence=(result.fence or 0) + 1,"),
    ),
    _broken(
        "heartbeats-at-once",
        "heartbeats are sent while one is on its way",
        "one-heartbeat-at-a-time",
        heartbeat=(
            (
                "        if now >= self._next_beat_ms and not self._beating:\n",
                "        if now >= self._next_beat_ms:\n            self._next_beat_ms = now + self._beat_ms\n",
            ),
            ("_NEVER if self._beating else self._next_beat_ms", "self._next_beat_ms"),
        ),
    ),
    _broken(
        "told-is-failed",
        "a handler that raises because it was told to stop is failed",
        "ends-as-it-ended",
        attempt=('if ended.how == "raised" and self.ctx.signal.reason is None:', 'if ended.how == "raised":'),
    ),
    _broken(
        "late-success-dropped",
        "a success is not stored when the lease is over, though nobody may have taken the run",
        "each-end-is-stored",
        runner=(
            '        if status == "interrupted":\n',
            '        if status == "interrupted" or not lease.confirmed():\n',
        ),
    ),
    _broken(
        "takes-its-own-end-over",
        "an instance takes a run over while its own end of it is on its way",
        "no-takeover-of-its-own-end",
        runner=("        return (name, slot) in self._ending\n", "        return False\n"),
    ),
    _broken(
        "late-look",
        "a backup looks three leases after the lease's end",
        "takeovers-come-in-time",
        watch=(
            ("return watch.over_ms + self._instance", "return watch.over_ms + 3 * watch.job.lease_ms + self._instance"),
            ("and watch.over_ms <= self._now_ms()\n        return over", "and False\n        return over"),
        ),
    ),
    _broken(
        "no-backups",
        "nobody watches anything",
        "a-run-that-was-started-ends",
        watch=("        if self._closed or current is None:\n", "        if True:\n"),
    ),
    _broken(
        "slots-dropped",
        "some slots are not claimed, without a word",
        "each-slot-fires",
        engine=(
            '            self._claim_when_ready(job, slot, "scheduled")\n\n',
            '            slot % 3_000 and self._claim_when_ready(job, slot, "scheduled")\n\n',
        ),
    ),
    _broken(
        "lateness-in-silence",
        "what waits too long to be claimed is dropped without a word",
        "each-slot-is-accounted-for",
        engine=(
            "        if self._too_late(job, slot):\n            self._skip_late(job, slot)\n        else:\n",
            "        if job.max_late_ms is None or job.max_late_ms > 1_000:\n",
        ),
    ),
    _broken(
        "slot-is-now",
        "an instance claims the moment at which it fires",
        "slots-are-of-the-schedule",
        timers=("        self._fire(job, slot)\n", "        self._fire(job, now)\n"),
    ),
    _broken(
        "fires-twice",
        "each slot fires twice",
        "a-slot-fires-once",
        timers=("        self._fire(job, slot)\n", "        self._fire(job, slot)\n        self._fire(job, slot)\n"),
    ),
    _broken(
        "stop-in-silence",
        "a stop tells the handlers only when its grace is over",
        "handlers-are-told-to-stop",
        engine=('            call.stop("stop", cancel=False)\n', "            pass\n"),
    ),
    _broken(
        "stop-waits",
        "a stop waits for handlers that do not listen",
        "a-stop-ends-in-time",
        engine=("            await self._drained(_SETTLE_MS)\n", "            await self._drained(60_000)\n"),
    ),
    _broken(
        "task-left",
        "a stop leaves a task behind",
        "nothing-is-left-behind",
        engine=("        hurried.cancel()\n", ""),
    ),
    _broken(
        "closed-first",
        "the store is left while handlers still execute",
        "the-store-is-closed-last",
        engine=("        await self._instance.drained()\n        self.abandon()\n", "        self.abandon()\n"),
    ),
    _broken(
        "task-fails",
        "a task of the instance's own ends by an exception",
        "no-exception-goes-unheard",
        runner=(
            '        """Record the attempts that nobody ended; what their own holders saved stays."""\n',
            '        """Record the attempts that nobody ended; what their own holders saved stays."""\n'
            "        raise KeyError(slot)\n",
        ),
    ),
    _broken(
        "spins",
        "a heartbeat that is due and not sent is looked for again at once",
        "time-goes-on",
        heartbeat=(
            "        if now >= self._next_beat_ms and not self._beating:",
            "        if now >= self._next_beat_ms and not self._beating and not self._instance.stopping.is_set():",
        ),
    ),
)
