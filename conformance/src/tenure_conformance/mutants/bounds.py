"""What a win leaves behind: superseded runs, what is told of them, what is kept, floor and fence."""

from dataclasses import replace

from tenure.decision import EMPTY
from tenure.memory import MemoryBackend
from tenure.model import Claim, ClaimResult

from tenure_conformance.mutants.reference import broken, decides, wins

# Superseding

_OLDER = "        return tuple(run for run in others if run.slot < claim.slot)\n"

decides(
    "supersedes-nothing",
    "A newer win leaves older unfinished runs as they are.",
    "claim-supersedes word-superseded",
    (_OLDER, "        return ()\n"),
)
decides(
    "supersedes-one",
    "A newer win supersedes only the oldest unfinished run.",
    "claim-supersedes previous-superseded",
    (_OLDER, "        return tuple(run for run in others if run.slot < claim.slot)[:1]\n"),
)
decides(
    "supersedes-under-allow",
    "A win under `allow` supersedes older runs.",
    "claim-supersedes claim-own-rules",
    ('    if claim.overlap == "skip":\n        return tuple', "    if claim.slot >= 0:\n        return tuple"),
)
decides(
    "supersedes-at-first-wins-only",
    "A takeover supersedes nothing.",
    "claim-supersedes previous-superseded",
    (_OLDER, "        return () if claim.after else tuple(run for run in others if run.slot < claim.slot)\n"),
)
decides(
    "supersedes-ended-runs",
    "A win turns finished runs into superseded ones.",
    "claim-row-1 finish-repeat claim-supersedes",
    (
        "    floor, ended = _bounded(state.floor, ended,",
        '    ended = tuple(one.ended("superseded") for one in ended)\n    floor, ended = _bounded(state.floor, ended,',
    ),
)
decides(
    "superseded-is-failed",
    "A superseded run is told as failed.",
    "word-superseded claim-supersedes",
    ('other.ended("superseded")', 'other.ended("failed")'),
)
decides(
    "superseded-is-deleted",
    "A superseded run is deleted, so that it can start again under `allow`.",
    "claim-supersedes word-superseded bounds-floor",
    ('        ended = _put(ended, other.ended("superseded"))\n', ""),
)

# What a winner is told

wins(
    "previous-empty",
    "A winner is told of no lost attempt.",
    "previous-own previous-superseded",
    lambda win: replace(win.won, previous=()),
)
wins(
    "previous-at-most-ten",
    "A winner is told of ten lost attempts at most.",
    "previous-superseded",
    lambda win: replace(win.won, previous=win.won.previous[:10]),
)
wins(
    "previous-own-only",
    "A winner is not told of the runs that it superseded.",
    "previous-superseded",
    lambda win: replace(win.won, previous=(win.run.lost(),) if win.run else ()),
)
wins(
    "previous-superseded-only",
    "A takeover is not told of the attempt that it replaces.",
    "previous-own",
    lambda win: replace(win.won, previous=win.won.previous[1:] if win.run else win.won.previous),
)
wins(
    "previous-of-every-attempt",
    "A takeover is told of all earlier attempts again.",
    "previous-own",
    lambda win: replace(win.won, previous=win.won.previous + (win.run.previous if win.run else ())),
)
decides(
    "previous-once",
    "A claim that is sent again is not told of the lost attempts again.",
    "previous-repeat errors-repeat",
    ("lease_ms, now + lease_ms, self.status, self.previous)", "lease_ms, now + lease_ms, self.status, ())"),
)
decides(
    "previous-of-exhausted-once",
    "Only the claim that exhausts a run is told of its last attempt.",
    "previous-exhausted errors-repeat",
    (
        "        return _ended(state, exhausted), _done(exhausted, now)",
        '        return _ended(state, run.ended("exhausted")), _done(exhausted, now)',
    ),
)
decides(
    "previous-of-exhausted-empty",
    "`done` exhausted does not tell the last attempt.",
    "previous-exhausted",
    ('previous = run.previous if run.status == "exhausted" else ()', "previous = ()"),
)
decides(
    "previous-of-all-ends",
    "`done` of every status tells lost attempts.",
    "previous-exhausted result-done",
    ('previous = run.previous if run.status == "exhausted" else ()', "previous = (run.lost(),)"),
)
decides(
    "lost-never-released",
    "A lost attempt does not say that it was released.",
    "lost-released",
    ('        released = self.status == "released"\n', "        released = False\n"),
)
decides(
    "lost-always-released",
    "A lost attempt says that it was released although its lease ran out.",
    "lost-released claim-row-8",
    ('        released = self.status == "released"\n', "        released = True\n"),
)
decides(
    "lost-without-fence",
    "A lost attempt carries the attempt as its fence.",
    "previous-own",
    ("LostAttempt(self.slot, self.attempt, self.fence,", "LostAttempt(self.slot, self.attempt, self.attempt,"),
)
decides(
    "lost-times-swapped",
    "A lost attempt is told to have ended when it started.",
    "lost-ended-at previous-own",
    ("self.started_at, self.expires_at, released)", "self.started_at, self.started_at, released)"),
)
wins(
    "started-with-the-slot",
    "A run that is won before its slot is told to have started at it.",
    "recorded-times",
    lambda win: replace(win.won, started_at=max(win.now, win.claim.slot)),
)
wins(
    "started-with-the-run",
    "`started_at` of a takeover is that of the first attempt.",
    "recorded-times lost-ended-at",
    lambda win: replace(win.won, started_at=win.run.started_at if win.run else win.now),
)
wins(
    "holder-of-the-first-attempt",
    "A takeover leaves the first owner as the holder.",
    "result-running active-all claim-row-8 previous-own",
    lambda win: replace(win.won, holder=win.run.holder if win.run else win.claim.instance),
)

# What is kept

decides(
    "keeps-fifteen",
    "Under `skip` fifteen ended runs are kept.",
    "bounds-skip",
    ('KEPT_ENDED = {"skip": 16,', 'KEPT_ENDED = {"skip": 15,'),
)
decides(
    "keeps-too-few-under-allow",
    "Under `allow` as few ended runs are kept as under `skip`.",
    "bounds-allow",
    ('"allow": 128}', '"allow": 16}'),
)
decides(
    "keeps-one-less-under-allow",
    "Under `allow` 127 ended runs are kept.",
    "bounds-allow",
    ('"allow": 128}', '"allow": 127}'),
)
decides(
    "keeps-the-oldest",
    "Of the ended runs the oldest are kept.",
    "bounds-skip bounds-allow",
    (
        "    return max(floor, ended[-keep - 1].slot), ended[-keep:]",
        "    return floor, ended[:keep]",
    ),
)
decides(
    "keeps-all-unfinished",
    "Unfinished runs grow without an end under `allow`.",
    "bounds-allow-excess",
    ("    excess = len(others) + 1 - KEPT_UNFINISHED\n", "    excess = 0\n"),
)
decides(
    "keeps-one-unfinished-less",
    "Under `allow` 999 unfinished runs are kept.",
    "bounds-allow bounds-allow-excess",
    ("KEPT_UNFINISHED = 1_000\n", "KEPT_UNFINISHED = 999\n"),
)
decides(
    "supersedes-the-live-excess",
    "A live run is superseded when there are too many.",
    "bounds-allow-excess",
    ("for run in others[: max(excess, 0)] if not run.live(now))", "for run in others[: max(excess, 0)])"),
)
decides(
    "supersedes-instead-of-the-live",
    "Instead of an old live run a younger one that is over is superseded.",
    "bounds-allow-excess",
    (
        "tuple(run for run in others[: max(excess, 0)] if not run.live(now))",
        "tuple([run for run in others if not run.live(now)][: max(excess, 0)])",
    ),
)
decides(
    "prunes-live-runs",
    "Under `allow` old live runs are dropped with the ended ones.",
    "bounds-allow",
    (
        "    return JobState(won.fence, floor, _put(others, won), ended)",
        "    return JobState(won.fence, floor, _put(others[-140:], won), ended)",
    ),
    seen="armada#3608",
)
decides(
    "floor-not-raised",
    "A run whose record was dropped leaves no trace.",
    "bounds-floor word-floor claim-row-9 newer-counts-dropped",
    ("return max(floor, ended[-keep - 1].slot), ended[-keep:]", "return floor, ended[-keep:]"),
)
decides(
    "floor-too-high",
    "The floor is raised to the oldest run that is kept.",
    "bounds-floor",
    ("return max(floor, ended[-keep - 1].slot), ended[-keep:]", "return max(floor, ended[-2].slot), ended[-keep:]"),
)
decides(
    "floor-one-too-low",
    "The floor is raised to just below the run that is dropped.",
    "bounds-floor",
    ("max(floor, ended[-keep - 1].slot)", "max(floor, ended[-keep - 1].slot - 1)"),
)
decides(
    "floor-goes-down",
    "An old run that is dropped last lowers the floor.",
    "bounds-floor bounds-never-dropped",
    ("max(floor, ended[-keep - 1].slot)", "ended[-keep - 1].slot"),
)


@broken("floor-of-the-namespace", "All jobs of a namespace share a floor.", "bounds-floor word-floor")
class _FloorOfTheNamespace(MemoryBackend):
    async def claim(self, claim: Claim) -> ClaimResult:
        key = self._key(claim.job)
        states = {one: state for one, state in self.store.states.items() if one[0] == key[0]}
        floor = max((state.floor for state in states.values()), default=-1)
        self.store.states[key] = replace(states.get(key, EMPTY), floor=floor)
        return await super().claim(claim)


decides(
    "floor-forgotten-by-heartbeats",
    "A renewed lease forgets the floor.",
    "bounds-never-dropped bounds-floor",
    (
        "return JobState(state.fence, state.floor, _put(state.unfinished, run), state.ended)",
        "return JobState(state.fence, -1, _put(state.unfinished, run), state.ended)",
    ),
)
decides(
    "floor-forgotten-by-finish",
    "The end of a run forgets the floor.",
    "bounds-never-dropped bounds-floor",
    ("return JobState(state.fence, state.floor, _without(", "return JobState(state.fence, -1, _without("),
)
# Fence

wins(
    "fence-is-the-attempt",
    "The fence is the attempt, so that every run begins at 1.",
    "word-fence claim-fence",
    lambda win: replace(win.won, fence=win.won.attempt),
)
wins(
    "fence-per-slot",
    "Each run counts fences of its own.",
    "word-fence claim-fence",
    lambda win: replace(win.won, fence=win.run.fence + 1 if win.run else 1),
)
wins(
    "fence-is-the-clock",
    "The fence is the clock, which two wins may share.",
    "word-fence claim-fence",
    lambda win: replace(win.won, fence=win.now),
    seen="timestamps as fencing tokens",
)
wins(
    "fence-above-the-slot",
    "A fence is never below its slot, which may be ahead of the clock.",
    "claim-fence",
    lambda win: replace(win.won, fence=max(win.won.fence, win.claim.slot + 1)),
)
wins(
    "fence-is-the-slot",
    "The fence is the slot, so that an older slot's win has a smaller one.",
    "word-fence claim-fence",
    lambda win: replace(win.won, fence=win.claim.slot),
)
wins(
    "fence-without-the-clock",
    "The fence counts from 1 and does not follow the clock, so that a store that lost its writes counts again.",
    "claim-fence",
    lambda win: replace(win.won, fence=win.state.fence + 1),
)
wins(
    "fence-steps-by-two",
    "The fence rises by two.",
    "claim-fence",
    lambda win: replace(win.won, fence=max(win.state.fence + 2, win.now)),
)
wins(
    "fence-of-kept-runs",
    "The fence goes on from the runs that are still there, and begins anew without any.",
    "bounds-never-dropped word-fence",
    lambda win: replace(win.won, fence=max((one.fence for one in win.state.unfinished), default=0) + 1),
    seen="a counter that expires with its lock",
)
wins(
    "fence-in-32-bits",
    "The fence is cut to 32 bits.",
    "word-fence claim-fence",
    lambda win: replace(win.won, fence=max(win.state.fence + 1, win.now % 2**32)),
)
decides(
    "fence-again-for-the-same-token",
    "A claim that is sent again gets a new fence.",
    "claim-row-2 word-fence errors-repeat",
    (
        "    renewed = run.renewed(claim.lease_ms, now)\n    return _renewed(state, renewed), _won(renewed, now)",
        "    renewed = replace(run.renewed(claim.lease_ms, now), fence=state.fence + 1)\n"
        "    return replace(_renewed(state, renewed), fence=state.fence + 1), _won(renewed, now)",
    ),
    seen="redislock#94",
)
