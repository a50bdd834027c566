"""Heartbeat, finish, release, active and results gone wrong, and leases of the wrong length."""

from dataclasses import replace

from tenure_conformance.mutants.reference import decides, stores, wins

# Heartbeat

_GUARD = "    if run is None or not run.held_by(token):\n        return state, False\n"
_BEATS = "    return _renewed(state, run.renewed(run.lease_ms, now)), True"

decides(
    "heartbeat-of-any-token",
    "A heartbeat is not guarded: any token renews the lease.",
    "heartbeat-refused calls-guarded",
    (_GUARD, '    if run is None or run.status != "open":\n        return state, False\n'),
    seen="lion-reader#917",
)
decides(
    "heartbeat-does-nothing",
    "A heartbeat is `True` and renews nothing.",
    "heartbeat-holds heartbeat-revives",
    (_BEATS, "    return state, True"),
)
decides(
    "heartbeat-adds-up",
    "Each heartbeat adds a lease to what is left.",
    "heartbeat-holds",
    (_BEATS, "    return _renewed(state, replace(run, expires_at=run.expires_at + run.lease_ms)), True"),
)
decides(
    "heartbeat-half-a-lease",
    "A heartbeat renews the lease by half its length.",
    "heartbeat-holds",
    (_BEATS, "    return _renewed(state, replace(run, expires_at=now + run.lease_ms // 2)), True"),
)
decides(
    "heartbeat-of-one-length",
    "A heartbeat renews every lease by the same length, whatever was asked for.",
    "heartbeat-holds",
    (_BEATS, "    return _renewed(state, replace(run, expires_at=now + 30_000)), True"),
)
decides(
    "heartbeat-never-revives",
    "A heartbeat of a lease that ran out and that nobody took is refused.",
    "heartbeat-revives",
    (
        _GUARD,
        "    if run is None or not run.held_by(token) or not run.live(now):\n        return state, False\n",
    ),
)
decides(
    "heartbeat-revives-for-one-lease",
    "A lease that ran out longer ago than its length is not revived.",
    "heartbeat-revives",
    (
        _GUARD,
        _GUARD.replace(":\n", " or now > run.expires_at + run.lease_ms:\n"),
    ),
)
wins(
    "heartbeat-of-the-former-length",
    "Heartbeats of a takeover renew by the lease of the attempt before.",
    "heartbeat-holds claim-row-8",
    lambda win: replace(win.won, lease_ms=win.run.lease_ms if win.run else win.won.lease_ms),
)
decides(
    "heartbeat-revives-released",
    "A heartbeat takes a release back.",
    "heartbeat-refused release-holds",
    (
        _GUARD,
        "    if run is None or run.token != token:\n        return state, False\n"
        '    return _renewed(state, replace(run, status="open", expires_at=now + run.lease_ms)), True\n',
    ),
    seen="db-scheduler#654",
)
decides(
    "heartbeat-revives-ended",
    "A heartbeat of the token that ended a run brings the run back.",
    "heartbeat-refused word-superseded finish-holds",
    (
        _GUARD,
        "    ended = _find(state.ended, slot)\n"
        "    if ended is not None and ended.token == token:\n"
        '        return _renewed(state, replace(ended, status="open", expires_at=now + ended.lease_ms)), True\n'
        + _GUARD,
    ),
    seen="db-scheduler#654",
)
decides(
    "heartbeat-creates",
    "A heartbeat of an unknown run creates it.",
    "heartbeat-refused calls-refused-writes-nothing",
    (
        _GUARD,
        "    if run is None and _find(state.ended, slot) is None:\n"
        '        return _renewed(state, RunState(slot, 1, 1, 1, token, "x", 1_000, now, now + 1_000)), False\n'
        + _GUARD,
    ),
    seen="an upsert with a TTL",
)
decides(
    "heartbeat-of-unknown-is-true",
    "A heartbeat of an unknown run is `True`.",
    "heartbeat-refused",
    (
        _GUARD,
        "    if run is None:\n        return state, True\n"
        "    if not run.held_by(token):\n        return state, False\n",
    ),
)
decides(
    "heartbeat-starts-anew",
    "A heartbeat moves `started_at`.",
    "heartbeat-holds recorded-times",
    (_BEATS, "    return _renewed(state, replace(run, started_at=now, expires_at=now + run.lease_ms)), True"),
)
decides(
    "heartbeat-of-all-runs",
    "A heartbeat renews every run of the job.",
    "heartbeat-holds word-run",
    (
        _BEATS,
        "    beaten = tuple(one.renewed(one.lease_ms, now) if one.live(now) else one for one in state.unfinished)\n"
        "    return replace(state, unfinished=beaten), True",
    ),
)
decides(
    "heartbeat-takes-a-fence",
    "A heartbeat gives the run a new fence.",
    "heartbeat-holds word-fence",
    (_BEATS, "    return _renewed(state, replace(run.renewed(run.lease_ms, now), fence=run.fence + 1)), True"),
)

# Finish

_HOLDS = "    if run is not None and run.held_by(token):\n"
_ENDS = "        return _ended(state, run.ended(status)), True\n"
_AGAIN = "    return state, ended is not None and ended.token == token and ended.status in ENDINGS"

decides(
    "finish-of-any-token",
    "Finish is not guarded: any token ends the run.",
    "finish-refused calls-guarded",
    (_HOLDS, '    if run is not None and run.status == "open":\n'),
    seen="superset#43462",
)
decides(
    "finish-does-nothing",
    "Finish is `True` and ends nothing.",
    "finish-holds",
    (_ENDS, "        return state, True\n"),
)
decides(
    "finish-once-only",
    "Finish repeated with its token is refused.",
    "finish-repeat errors-repeat",
    (_AGAIN, "    return state, False"),
    seen="pglock#175, hudi#14286",
)
decides(
    "finish-last-status-wins",
    "Finish repeated with another status changes it.",
    "finish-repeat",
    (
        _AGAIN,
        "    again = ended is not None and ended.token == token and ended.status in ENDINGS\n"
        "    return (_ended(state, replace(ended, status=status)) if again else state), again",
    ),
)
decides(
    "finish-again-by-anyone",
    "Finish of an ended run is `True` for every token.",
    "finish-refused finish-repeat",
    (_AGAIN, "    return state, ended is not None and ended.status in ENDINGS"),
)
decides(
    "finish-of-superseded-is-true",
    "Finish of a run that was superseded or exhausted is `True`.",
    "finish-refused word-superseded",
    (_AGAIN, "    return state, ended is not None and ended.token == token"),
)
decides(
    "finish-of-unknown-is-true",
    "Finish of an unknown run is `True`.",
    "finish-refused",
    (_AGAIN, "    return state, run is None and (ended is None or (ended.token == token and ended.status in ENDINGS))"),
)
decides(
    "finish-of-released",
    "A holder that released can still finish.",
    "finish-after-release",
    (_HOLDS, "    if run is not None and run.token == token:\n"),
)
decides(
    "finish-is-always-success",
    "Finish ends every run as a success.",
    "finish-holds",
    (_ENDS, '        return _ended(state, run.ended("success")), True\n'),
)
decides(
    "finish-deletes",
    "Finish deletes the run's record instead of ending it.",
    "finish-holds claim-row-1 finish-repeat",
    (_ENDS, "        return replace(state, unfinished=_without(state.unfinished, slot)), True\n"),
    seen="locks that are deleted when the work is done",
)
decides(
    "finish-of-all-runs",
    "Finish ends every run of the job that its token holds.",
    "finish-holds word-run",
    (
        _ENDS,
        "        for one in state.unfinished:\n"
        "            state = _ended(state, one.ended(status)) if one.token == token or one is run else state\n"
        "        return state, True\n",
    ),
)
stores(
    "finish-of-lapsed-refused",
    "A holder whose lease ran out cannot finish, although nobody took the run.",
    "finish-lapsed",
    (
        "        return self._decide(job, lambda state, _: decision.finish(state, slot, token, status))",
        "        def finish(state: JobState, now: int) -> tuple[JobState, bool]:\n"
        "            over = [one for one in state.unfinished if one.slot == slot and not one.live(now)]\n"
        "            return (state, False) if over else decision.finish(state, slot, token, status)\n\n"
        "        return self._decide(job, finish)",
    ),
    seen="work that was done is run again",
)

# Release

_REFUSED = "    if run is None or run.token != token:\n        return state, False\n"
_RELEASES = "    return _renewed(state, run.released(now)), True"

decides(
    "release-of-any-token",
    "Release is not guarded: any token gives the run up.",
    "release-refused calls-guarded",
    (
        _REFUSED,
        "    if run is None:\n        return state, False\n",
    ),
    seen="jedis-lock#2, superset#43462",
)
decides(
    "release-does-nothing",
    "Release is `True` and the lease goes on.",
    "release-holds",
    (_RELEASES, "    return state, True"),
)
decides(
    "release-finishes",
    "Release ends the run as a success.",
    "release-holds finish-after-release",
    (_RELEASES, '    return _ended(state, run.ended("success")), True'),
)
decides(
    "release-deletes",
    "Release deletes the run, so that its attempts are forgotten.",
    "release-holds",
    (_RELEASES, "    return replace(state, unfinished=_without(state.unfinished, slot)), True"),
    seen="DEL of a lock's key",
)
decides(
    "release-once-only",
    "Release repeated is refused.",
    "release-repeat errors-repeat",
    (
        '    if run.status == "released":\n        return state, True\n',
        '    if run.status == "released":\n        return state, False\n',
    ),
    seen="pglock#175",
)
decides(
    "release-again-gives-back-again",
    "Release repeated gives another attempt back.",
    "release-repeat claim-released-not-used",
    ('    if run.status == "released":\n        return state, True\n', ""),
)
decides(
    "release-uses-up",
    "A released attempt is used up.",
    "claim-released-not-used",
    ("return self._with(self.used - 1,", "return self._with(self.used,"),
    seen="deploys that eat a job's retries",
)
decides(
    "release-gives-all-back",
    "A release gives every attempt of the run back.",
    "claim-released-not-used claim-row-6",
    ("return self._with(self.used - 1,", "return self._with(0,"),
)
decides(
    "release-of-finished-is-true",
    "Release after finish is `True`.",
    "release-after-finish",
    (
        _REFUSED,
        "    if run is None and (ended := _find(state.ended, slot)) is not None:\n"
        "        return state, ended.token == token\n" + _REFUSED,
    ),
)
decides(
    "release-of-unknown-is-true",
    "Release of an unknown run is `True`.",
    "release-refused",
    (
        _REFUSED,
        _REFUSED.replace("False", "run is None and not _find(state.ended, slot)"),
    ),
)
decides(
    "release-of-lapsed-refused",
    "A holder whose lease ran out cannot release.",
    "release-holds calls-guarded",
    (
        _REFUSED,
        _REFUSED + '    if run.status == "open" and not run.live(now):\n        return state, False\n',
    ),
)
decides(
    "release-ends-now",
    "The attempt that is released after its lease ran out is told to have ended only then.",
    "lost-ended-at release-holds",
    ("min(self.expires_at, now)", "now"),
)
decides(
    "release-ends-with-the-lease",
    "A released attempt is told to have ended when its lease would have.",
    "lost-ended-at",
    ("min(self.expires_at, now)", "self.expires_at"),
)
decides(
    "release-of-all-runs",
    "Release gives up every run of the job that its token holds.",
    "release-holds word-run",
    (
        _RELEASES,
        "    gone = tuple(one.released(now) if one.held_by(token) else one for one in state.unfinished)\n"
        "    return replace(state, unfinished=gone), True",
    ),
)

# The lease's length and its end

wins(
    "lease-floor-seconds",
    "Leases are cut to whole seconds.",
    "time-round-up word-live",
    lambda win: replace(win.won, expires_at=win.now + win.claim.lease_ms // 1_000 * 1_000),
    seen="locksmith#17",
)
wins(
    "lease-ceil-seconds",
    "Leases are rounded up to whole seconds, which the backend does not declare.",
    "time-round-up word-live",
    lambda win: replace(win.won, expires_at=win.now - -win.claim.lease_ms // 1_000 * 1_000),
    seen="stores whose TTL counts seconds",
)
wins(
    "lease-int32",
    "A lease is kept in 32 bits.",
    "limits-numbers word-live",
    lambda win: replace(win.won, expires_at=win.now + min(win.claim.lease_ms, 2**31 - 1)),
)
wins(
    "lease-of-an-hour-at-most",
    "No lease is longer than an hour.",
    "limits-numbers word-live",
    lambda win: replace(win.won, expires_at=win.now + min(win.claim.lease_ms, 3_600_000)),
)
wins(
    "lease-from-the-slot",
    "A lease runs from the slot instead of from the win.",
    "word-live claim-row-14",
    lambda win: replace(win.won, expires_at=max(win.now, win.claim.slot + win.claim.lease_ms)),
)
decides(
    "expiry-inclusive",
    "At the very end of a lease it is still live.",
    "word-live",
    ("now < self.expires_at", "now <= self.expires_at"),
)
decides(
    "expiry-with-grace",
    "A lease is over only a tenth of a second after its end.",
    "word-live claim-row-8",
    ("now < self.expires_at", "now < self.expires_at + 100"),
    seen="distributed-lock#5: a sweeper",
)
decides(
    "expiry-early",
    "A lease is over when a tenth of it is left.",
    "word-live",
    ("now < self.expires_at", "now < self.expires_at - self.lease_ms // 10"),
    seen="TTLs that are cut for clock drift",
)
decides(
    "expiry-never",
    "A lease never ends.",
    "word-live claim-row-8",
    ("now < self.expires_at", "now > 0"),
)
decides(
    "expired-forgotten",
    "A run whose lease ran out is forgotten: its key had a TTL.",
    "claim-row-8 active-all heartbeat-revives finish-lapsed word-attempt",
    (
        "    run = _find(state.unfinished, claim.slot)\n    if run is None:\n        ended",
        '    kept = tuple(one for one in state.unfinished if one.live(now) or one.status != "open")\n'
        "    state = replace(state, unfinished=kept)\n"
        "    run = _find(state.unfinished, claim.slot)\n    if run is None:\n        ended",
    ),
    seen="SET NX PX",
)
decides(
    "won-tells-no-lease",
    "`won` tells that there is no lease left.",
    "result-won",
    ("        lease_left_ms=run.expires_at - now,\n        previous", "        lease_left_ms=0,\n        previous"),
)

# Active

_ALL = "        for run in state.unfinished\n    )\n"

decides(
    "active-with-ended",
    "`active` shows ended runs too.",
    "active-all",
    (_ALL, "        for run in (*state.unfinished, *state.ended)\n    )\n"),
)
decides(
    "active-live-only",
    "`active` leaves out runs whose lease is over.",
    "active-all",
    (_ALL, "        for run in state.unfinished\n        if run.live(now)\n    )\n"),
    seen="a TTL index",
)
decides(
    "active-without-released",
    "`active` leaves out released runs.",
    "active-all release-holds",
    (_ALL, '        for run in state.unfinished\n        if run.status == "open"\n    )\n'),
)
decides(
    "active-first-page",
    "`active` shows the first hundred runs of a job.",
    "active-all bounds-allow",
    (_ALL, "        for run in state.unfinished[:100]\n    )\n"),
    seen="SCAN, Query and list calls without their next page",
)
decides(
    "active-newest-first",
    "`active` shows the newest run first.",
    "active-all",
    (_ALL, "        for run in reversed(state.unfinished)\n    )\n"),
)
decides(
    "active-all-live",
    "`active` says of every run that it is live.",
    "active-live",
    ("            run.live(now),\n            run.expires", "            True,\n            run.expires"),
)
decides(
    "active-left-below-zero",
    "`active` tells of a lease that is over how long ago that was.",
    "active-live",
    ("run.expires_at - now if run.live(now) else 0", "run.expires_at - now"),
)
decides(
    "active-tells-seconds",
    "`active` tells what is left of a lease in whole seconds.",
    "active-live",
    ("run.expires_at - now if run.live(now) else 0", "(run.expires_at - now) // 1_000 * 1_000 if run.live(now) else 0"),
)
decides(
    "active-started-with-the-slot",
    "`active` tells the slot as the start.",
    "active-all recorded-times",
    ("            run.started_at,\n        )", "            run.slot,\n        )"),
)
stores(
    "active-stale",
    "`active` shows what was there a moment ago: it reads from a replica.",
    "active-fresh",
    (
        "        return ActiveRuns(now,",
        "        lagging = vars(self.store).setdefault('lagging', {})\n"
        "        states, told = {job: lagging.get(keys[job], states[job]) for job in states}, states\n"
        "        lagging.update({keys[job]: told[job] for job in told})\n"
        "        return ActiveRuns(now,",
    ),
    seen="reads from a secondary",
)
stores(
    "active-by-prefix",
    "`active` shows the runs of every job whose name begins like the one asked for.",
    "active-named names-exact",
    (
        "            states = {job: self.store.states.get(key, EMPTY) for job, key in keys.items()}\n",
        "            known = self.store.states.items()\n"
        "            states = {\n"
        "                name: state for (space, name), state in sorted(known, key=lambda one: one[0])\n"
        "                if space == self._namespace and name.startswith(tuple(jobs))\n"
        "            }\n",
    ),
    seen="SCAN job:*",
)
stores(
    "active-in-the-order-asked",
    "`active` shows jobs in the order in which they were asked for.",
    "active-all",
    ("for job in sorted(set(jobs))", "for job in dict.fromkeys(jobs)"),
)
stores(
    "active-repeats",
    "`active` shows the runs of a job that is named twice twice.",
    "active-all active-named",
    (
        "for job, state in states.items() for run in",
        "for job, state in ((job, states[job]) for job in sorted(jobs)) for run in",
    ),
)
stores(
    "active-of-none-fails",
    "`active` of no jobs fails.",
    "active-named",
    (
        "        keys = {job",
        "        if not jobs:\n            raise BackendClosed('an empty list')\n        keys = {job",
    ),
    seen="IN ()",
)

# Results

_KEPT = "            if not overwrites(result):\n                return history\n"

decides(
    "crashed-overwrites",
    "A backup's `crashed` replaces the record that the holder saved.",
    "results-crashed-yields",
    ('return result.status in ATTEMPT_STATUSES and result.status != "crashed"', "return result.attempt > 0"),
)
decides(
    "reason-overwrites",
    "A second record of why a slot was not run replaces the first.",
    "results-crashed-yields",
    ('return result.status in ATTEMPT_STATUSES and result.status != "crashed"', 'return result.status != "crashed"'),
)
decides(
    "results-never-overwrite",
    "The first record of an attempt stays, whatever comes.",
    "results-overwrite",
    (_KEPT, "            return history\n"),
)
decides(
    "interrupted-yields",
    "`interrupted` does not replace a backup's `crashed`.",
    "results-overwrite",
    ('and result.status != "crashed"', 'and result.status not in ("crashed", "interrupted")'),
)
decides(
    "overwriting-forgets-older",
    "A record that is saved again takes those behind it away.",
    "results-one-record results-overwrite",
    ("return (*history[:place], result, *history[place + 1 :])", "return (*history[:place], result)"),
)
decides(
    "results-one-per-run",
    "Attempts of one run share a record.",
    "results-one-record",
    ("        if (known.slot, known.attempt) == key:\n", "        if known.slot == result.slot:\n"),
)
decides(
    "results-twice",
    "A record that is saved again is there twice.",
    "results-one-record errors-repeat",
    ("        if (known.slot, known.attempt) == key:\n", "        if False:\n"),
)
decides(
    "results-as-saved",
    "Records come in the order in which they were saved, the last one first.",
    "results-order",
    (
        "        if (known.slot, known.attempt) < key:\n            break\n",
        "        if place < 0:\n            break\n",
    ),
    ("return (*history[:place], result, *history[place:])[:keep]", "return (result, *history)[:keep]"),
)
decides(
    "results-oldest-first",
    "The attempts of one run come oldest first.",
    "results-order",
    (
        "        if (known.slot, known.attempt) < key:\n",
        "        if (known.slot, -known.attempt) < (result.slot, -result.attempt):\n",
    ),
)
decides(
    "results-forever",
    "History grows without an end.",
    "bounds-history",
    ("*history[place:])[:keep]", "*history[place:])"),
)
decides(
    "results-one-less",
    "One record less than promised is kept.",
    "bounds-history",
    ("*history[place:])[:keep]", "*history[place:])[: keep - 1]"),
)
decides(
    "results-drop-the-last-saved",
    "An old record that comes late pushes a newer one out.",
    "bounds-history-old bounds-history",
    (
        "    return (*history[:place], result, *history[place:])[:keep]",
        "    return (*history[:place], result, *history[place:])[-keep:] if place < keep else (*history[1:], result)",
    ),
)
stores(
    "results-without-limit",
    "`limit` is ignored.",
    "results-limit",
    ("self.store.histories.get(key, ())[:limit]", "self.store.histories.get(key, ())"),
)
stores(
    "results-oldest-within-limit",
    "`limit` gives the oldest records.",
    "results-limit results-order",
    ("self.store.histories.get(key, ())[:limit]", "self.store.histories.get(key, ())[-limit:]"),
)
stores(
    "results-ten-unless-told",
    "`results` gives ten records unless told otherwise.",
    "results-limit",
    ("limit: int = 20", "limit: int = 10"),
)
stores(
    "results-of-known-runs-only",
    "A record of a run that the store does not know is dropped.",
    "results-one-record",
    (
        "            history = self.store.histories.get(key, ())\n",
        "            history = self.store.histories.get(key, ())\n"
        "            state = self.store.states.get(key, EMPTY)\n"
        "            if result.slot not in {run.slot for run in (*state.unfinished, *state.ended)}:\n"
        "                return\n",
    ),
)
