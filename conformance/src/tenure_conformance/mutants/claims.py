"""Claims decided wrongly: a row of the table is missing, in the wrong place, or off by one."""

from dataclasses import replace

from tenure_conformance.mutants.reference import decides, wins

_FIRST_LINE = '    """Decide a claim: the rows of section 3, in order."""\n'
_LIVE_HOLDER = "            return _renew(state, run, claim, now)\n        return state, _running"
_OVER = "    return _claim_over(state, run, claim, now)\n"
_LATE = "claim.max_late_ms is not None and now - slot > claim.max_late_ms"

# Rows 1 to 3: what is known and ended, held, or live.

decides(
    "always-won",
    "Every claim wins, whoever holds the run.",
    "claim-row-1 claim-row-3 claim-row-13 claim-atomic",
    (_FIRST_LINE, _FIRST_LINE + "    return _win(state, claim, now, _find(state.unfinished, claim.slot))\n"),
    seen="a lock whose insert is an upsert",
)
decides(
    "always-running",
    "Every first claim is told that somebody else runs it.",
    "claim-row-14",
    (
        "    return _win(state, claim, now, None)",
        '    return state, ClaimResult(outcome="running", now_ms=now, attempt=1, holder="x", lease_left_ms=1)',
    ),
)
decides(
    "done-forgotten",
    "A finished run is not remembered: its record goes with its lease.",
    "claim-row-1 finish-repeat bounds-skip bounds-allow word-superseded previous-exhausted",
    (
        "ended = _find(state.ended, claim.slot)\n        return _claim_unknown",
        "ended = None\n        return _claim_unknown",
    ),
    seen="armada#3608; locks that are deleted when the work is done",
)
decides(
    "done-reclaimed-by-takeover",
    "A backup's takeover wins a run that failed.",
    "claim-row-1",
    (
        "        return _claim_unknown(state, claim, now) if ended is None else (state, _done(ended, now))",
        '        if ended and ended.status == "failed" and claim.mode == "takeover":\n'
        "            return _win(state, claim, now, ended)\n"
        "        return _claim_unknown(state, claim, now) if ended is None else (state, _done(ended, now))",
    ),
)
decides(
    "done-is-success",
    "Every ended run is told as a success.",
    "claim-row-1 result-done finish-repeat",
    ("status=cast(DoneStatus, run.status)", 'status="success"'),
)
decides(
    "done-without-attempt",
    "`done` does not tell the attempt that ended.",
    "result-done",
    ("        attempt=run.attempt,\n        previous=previous,\n", "        previous=previous,\n"),
)
decides(
    "same-token-new-attempt",
    "A claim that is sent again counts as another attempt.",
    "claim-row-2 errors-repeat",
    (_LIVE_HOLDER, _LIVE_HOLDER.replace("_renew(state, run, claim, now)", "_win(state, claim, now, run)")),
    seen="sim#6864, redislock#94: a retry after a lost reply",
)
decides(
    "same-token-running",
    "The holder's own claim, sent again, is told that the run is running.",
    "claim-row-2 errors-repeat",
    ("        if run.token == claim.token:\n            return _renew(state, run, claim, now)\n", ""),
    seen="sim#6864",
)
decides(
    "same-token-keeps-the-old-end",
    "A claim that is sent again does not renew the lease.",
    "claim-row-2",
    ("renewed = run.renewed(claim.lease_ms, now)", "renewed = run"),
)
decides(
    "same-token-keeps-the-old-length",
    "A claim that is sent again renews the lease with the length of the first.",
    "claim-row-2 heartbeat-holds",
    ("run.renewed(claim.lease_ms, now)", "run.renewed(run.lease_ms, now)"),
)
decides(
    "same-token-heartbeats-keep-the-length",
    "After a claim that is sent again heartbeats still renew by the first one's length.",
    "claim-row-2 heartbeat-holds",
    (
        "run.renewed(claim.lease_ms, now)",
        "replace(run, expires_at=now + claim.lease_ms)",
    ),
)
decides(
    "lapsed-holder-is-running",
    "A holder whose lease ran out cannot win again with its token.",
    "claim-row-2",
    ("if run.held_by(claim.token) and not overtaken", "if claim.max_attempts < 0 and not overtaken"),
)
decides(
    "lapsed-holder-beside-a-newer",
    "The holder of a lapsed run wins again although a newer run has started.",
    "claim-row-2 claim-row-4",
    ("run.held_by(claim.token) and not overtaken and in_the_way", "run.held_by(claim.token) and in_the_way"),
)
decides(
    "lapsed-holder-beside-a-live",
    "The holder of a lapsed run wins again although another run is live.",
    "claim-row-2 claim-row-7",
    ("and not overtaken and in_the_way is None:", "and not overtaken:"),
)
decides(
    "released-token-wins-again",
    "A released run is won again, as the same attempt, by the token that released it.",
    "claim-row-2 release-holds",
    ("if run.held_by(claim.token) and not overtaken", "if run.token == claim.token and not overtaken"),
)
decides(
    "probe-extends-lease",
    "A claim that is told `running` renews the holder's lease.",
    "claim-row-3 claim-writes word-live",
    (
        "        return state, _running(run, now, run.expires_at - now)",
        "        return _renewed(state, replace(run, expires_at=now + run.lease_ms)), _running(run, now, run.lease_ms)",
    ),
    seen="locks whose failed SET still moves the TTL",
)
decides(
    "probe-becomes-the-holder",
    "A claim that is told `running` leaves its name as the holder's.",
    "claim-row-3 claim-writes",
    (
        "        return state, _running(run, now, run.expires_at - now)",
        "        told = _running(run, now, run.expires_at - now)\n"
        "        return _renewed(state, replace(run, holder=claim.instance)), told",
    ),
)
decides(
    "takeover-steals",
    "A takeover wins a run whose lease is live.",
    "claim-row-3 word-live",
    ("    if run.live(now):\n", '    if run.live(now) and claim.mode != "takeover":\n'),
    seen="ShedLock#3577",
)
decides(
    "former-attempt-steals",
    "A claim that knows the run's attempt takes it while it is live.",
    "claim-row-3",
    ("    if run.live(now):\n", "    if run.live(now) and claim.after != run.attempt:\n"),
)
decides(
    "manual-steals",
    "A manual claim wins whatever runs.",
    "claim-row-3",
    ("    if run.live(now):\n", '    if run.live(now) and claim.mode != "manual":\n'),
)

# Rows 4 to 8: the lease is over.

decides(
    "overtaken-run-is-taken",
    "A lapsed run is taken over although a newer one has started.",
    "claim-row-4",
    ('overtaken = claim.overlap == "skip" and _newest(state) > run.slot', "overtaken = False"),
)
decides(
    "overtaken-by-live-runs-only",
    "A newer run that ended does not count as started.",
    "claim-row-4 claim-row-9 newer-counts-dropped",
    ("    if state.ended:\n        newest = max(newest, state.ended[-1].slot)\n", ""),
)
decides(
    "overtaken-by-ended-runs-only",
    "A newer run that has not ended does not count as started.",
    "claim-row-4 claim-row-9",
    ("    if state.unfinished:\n        newest = max(newest, state.unfinished[-1].slot)\n", ""),
)
decides(
    "overtaken-under-allow",
    "A newer run forbids a takeover under `allow` too.",
    "claim-row-4 claim-own-rules",
    ('overtaken = claim.overlap == "skip" and _newest(state) > run.slot', "overtaken = _newest(state) > run.slot"),
)
decides(
    "after-ignored",
    "A takeover wins the next attempt whatever attempt the sender knew: a late message wins.",
    "claim-row-5 claim-after errors-late-message",
    (
        "    if run.attempt != claim.after:\n        return state, _running(run, now, 0)\n",
        "    claim = replace(claim, after=run.attempt)\n",
    ),
    seen="a delayed duplicate in the protocol's model checker",
)
decides(
    "after-believed",
    "A takeover wins attempt `after` + 1 although the run's last attempt is another one.",
    "claim-row-5 claim-after",
    ("    if run.attempt != claim.after:\n        return state, _running(run, now, 0)\n", ""),
)
decides(
    "after-at-least",
    "A takeover whose `after` is too high wins.",
    "claim-row-5 claim-after",
    ("if run.attempt != claim.after:", "if run.attempt > claim.after:"),
)
decides(
    "after-at-most",
    "A takeover whose `after` is too low wins.",
    "claim-row-5 claim-after",
    ("if run.attempt != claim.after:", "if run.attempt < claim.after:"),
)
decides(
    "after-told-as-live",
    "A sender that does not know the attempt is told that there is a lease left.",
    "claim-row-5 result-running",
    ("        return state, _running(run, now, 0)\n", "        return state, _running(run, now, run.lease_ms)\n"),
)
decides(
    "attempts-one-more",
    "A run is tried once more often than allowed.",
    "claim-row-6 claim-once",
    ("if run.used >= claim.max_attempts:", "if run.used > claim.max_attempts:"),
)
decides(
    "attempts-one-less",
    "A run is tried once less often than allowed.",
    "claim-row-6 claim-row-8",
    ("if run.used >= claim.max_attempts:", "if run.used + 1 >= claim.max_attempts:"),
)
decides(
    "attempts-without-limit",
    "Attempts have no limit.",
    "claim-row-6 claim-once",
    ("if run.used >= claim.max_attempts:", "if run.used < 0:"),
)
decides(
    "attempts-equal-to-the-limit-only",
    "A run that has used up more attempts than the claim allows is won.",
    "claim-row-6 claim-own-rules",
    ("if run.used >= claim.max_attempts:", "if run.used == claim.max_attempts:"),
)
decides(
    "attempts-by-number",
    "Released attempts are used up as well.",
    "claim-released-not-used claim-row-6",
    ("if run.used >= claim.max_attempts:", "if run.attempt >= claim.max_attempts:"),
    seen="deploys that eat a job's retries",
)
wins(
    "attempts-of-manual-claims-count-twice",
    "A takeover by hand uses up two attempts.",
    "claim-row-6 claim-row-8",
    lambda win: replace(win.won, used=win.won.used + (win.claim.mode == "manual")),
)
wins(
    "attempt-in-a-byte",
    "Attempts are counted in a byte.",
    "word-attempt claim-after limits-numbers",
    lambda win: replace(win.won, attempt=win.won.attempt % 256),
)
wins(
    "attempt-stuck",
    "A takeover keeps the number of the attempt that it replaces.",
    "claim-row-8 word-attempt claim-after",
    lambda win: replace(win.won, attempt=win.run.attempt if win.run else 1),
)
decides(
    "attempt-of-the-sender",
    "A claim that names an attempt of an unknown run wins: the store must have lost it.",
    "claim-row-10 claim-after",
    (" or claim.after or", " or"),
)
decides(
    "exhausted-stays-unfinished",
    "A run whose attempts are used up is told so, and not ended.",
    "claim-row-6 claim-writes active-all",
    ("        return _ended(state, exhausted), _done(exhausted, now)", "        return state, _done(exhausted, now)"),
)
decides(
    "exhausted-after-overlap",
    "Whether another run is in the way is looked at before whether the attempts are used up.",
    "claim-row-6 claim-row-7 claim-order",
    (
        "    if run.used >= claim.max_attempts:",
        "    if in_the_way is not None:\n        return state, _overlap(in_the_way, run.attempt, now)\n"
        "    if run.used >= claim.max_attempts:",
    ),
)
decides(
    "exhausted-before-after",
    "A sender that does not know the last attempt can exhaust the run.",
    "claim-row-5 claim-row-6 claim-order",
    (
        "    if run.attempt != claim.after:\n        return state, _running(run, now, 0)\n",
        "    if run.attempt != claim.after and run.used < claim.max_attempts:\n"
        "        return state, _running(run, now, 0)\n",
    ),
)
decides(
    "exhausted-before-overtaken",
    "A run that a newer one replaced is exhausted all the same.",
    "claim-row-4 claim-order",
    (
        "    if overtaken:",
        "    if overtaken and not (run.attempt == claim.after and run.used >= claim.max_attempts):",
    ),
)
decides(
    "takeover-never-waits",
    "A takeover does not look whether another run is live.",
    "claim-row-7 claim-atomic",
    (
        "    if in_the_way is not None:\n        return state, _overlap(in_the_way, run.attempt, now)\n",
        "",
    ),
)
decides(
    "takeover-late",
    "A takeover can be too late.",
    "claim-row-8 claim-late-first",
    (
        "    return _win(state, claim, now, run)",
        "    if claim.max_late_ms is not None and now - claim.slot > claim.max_late_ms:\n"
        '        return state, ClaimResult(outcome="late", now_ms=now)\n'
        "    return _win(state, claim, now, run)",
    ),
)
decides(
    "takeover-needs-its-mode",
    "Only a claim of mode `takeover` takes over; others are told `running`.",
    "claim-row-8",
    (
        "    return _win(state, claim, now, run)",
        '    if claim.mode != "takeover":\n        return state, _running(run, now, 0)\n'
        "    return _win(state, claim, now, run)",
    ),
)

# Rows 9 to 14: no record of the run.

decides(
    "older-slot-starts",
    "A slot that is older than the newest started one can start.",
    "claim-row-9",
    ('slot <= state.floor or (claim.overlap == "skip" and _newest(state) > slot)', "slot <= state.floor"),
)
decides(
    "older-slot-superseded-under-allow",
    "An older slot is superseded under `allow` as well.",
    "claim-row-9 claim-own-rules",
    ('slot <= state.floor or (claim.overlap == "skip" and _newest(state) > slot)', "_newest(state) > slot"),
)
decides(
    "floor-ignored",
    "A run whose record was dropped can start again.",
    "claim-row-9 bounds-floor word-floor",
    (
        'slot <= state.floor or (claim.overlap == "skip" and _newest(state) > slot)',
        'claim.overlap == "skip" and _newest(state) > slot',
    ),
)
decides(
    "floor-exclusive",
    "The very slot of the floor can start again.",
    "claim-row-9 bounds-floor word-floor",
    ("if slot <= state.floor or", "if slot < state.floor or"),
)
decides(
    "slot-zero-is-below",
    "The floor of an unknown job is 0, so that slot 0 never starts.",
    "word-floor limits-slot",
    ("    floor: int = -1\n", "    floor: int = 0\n"),
)
decides(
    "takeover-creates",
    "A takeover of an unknown run starts it.",
    "claim-row-10",
    (' claim.mode == "takeover" or', ""),
)
decides(
    "takeover-of-nothing-is-late",
    "A takeover of an unknown run can be told that it is late.",
    "claim-row-10 claim-order",
    ('claim.mode == "takeover" or', f'(claim.mode == "takeover" and not ({_LATE})) or'),
)
decides(
    "early-never",
    "A slot that is far ahead is started.",
    "claim-row-11",
    (" or slot - now > EARLY_MS:", ":"),
    seen="ShedLock#231: an instance with a fast clock",
)
decides(
    "early-at-all",
    "A slot is not started a millisecond before it is due.",
    "claim-row-11 claim-row-14",
    ("slot - now > EARLY_MS:", "slot > now:"),
)
decides(
    "early-inclusive",
    "A slot exactly a second ahead is not started.",
    "claim-row-11",
    ("slot - now > EARLY_MS:", "slot - now >= EARLY_MS:"),
)
decides(
    "early-by-one-more",
    "A slot 1,001 ms ahead is started.",
    "claim-row-11",
    ("slot - now > EARLY_MS:", "slot - now > EARLY_MS + 1:"),
)
decides(
    "wait-in-seconds",
    "The time to wait is told in seconds.",
    "result-none claim-row-11",
    ("wait_ms=slot - now if slot > now else None", "wait_ms=(slot - now) // 1_000 if slot > now else None"),
)
decides(
    "wait-missing-for-takeover",
    "A takeover of a run that is not due is not told how long to wait.",
    "claim-none-wait result-none",
    ("slot - now if slot > now else None", 'slot - now if slot > now and claim.mode != "takeover" else None'),
)
decides(
    "wait-below-zero",
    "A takeover of an unknown run that is due is told to wait less than nothing.",
    "result-none",
    ("wait_ms=slot - now if slot > now else None", "wait_ms=slot - now"),
)
decides(
    "late-never",
    "No run is ever too late.",
    "claim-row-12",
    (_LATE, "slot < 0"),
)
decides(
    "late-at-the-limit",
    "A run is late at its limit, and not only beyond it.",
    "claim-row-12",
    (_LATE, _LATE.replace(">", ">=")),
)
decides(
    "late-with-grace",
    "No run is late within its first twenty milliseconds, whatever its limit.",
    "claim-row-12",
    (_LATE, "claim.max_late_ms is not None and now - slot > max(claim.max_late_ms, 20)"),
)
decides(
    "late-in-seconds",
    "Lateness is judged in whole seconds.",
    "claim-row-12 limits-numbers",
    (_LATE, "claim.max_late_ms is not None and (now - slot) // 1_000 > claim.max_late_ms // 1_000"),
)
decides(
    "late-zero-is-no-limit",
    "A limit of 0 ms counts as none.",
    "claim-row-12 limits-numbers",
    (_LATE, "claim.max_late_ms and now - slot > claim.max_late_ms"),
    seen="truthiness instead of `is not None`",
)
decides(
    "late-when-early",
    "A slot that is a little ahead is late if no lateness is allowed.",
    "claim-row-12",
    (_LATE, "claim.max_late_ms is not None and abs(now - slot) > claim.max_late_ms"),
)
decides(
    "late-is-recorded",
    "A late run counts as started: it is ended, and older slots are superseded.",
    "claim-row-12 claim-writes",
    (
        '        return state, ClaimResult(outcome="late", now_ms=now)',
        "        return JobState(state.fence, max(state.floor, slot), state.unfinished, state.ended), ClaimResult(\n"
        '            outcome="late", now_ms=now\n        )',
    ),
)
decides(
    "late-after-overlap",
    "Whether another run is in the way is looked at before lateness.",
    "claim-row-12 claim-row-13 claim-order",
    (
        f"    if {_LATE}:",
        "    if (other := _live_other(state, claim, now)) is not None:\n"
        "        return state, _overlap(other, 0, now)\n"
        f"    if {_LATE}:",
    ),
)
decides(
    "overlap-never",
    "Two runs of a job run at once under `skip`.",
    "claim-row-7 claim-row-13 claim-atomic",
    (
        '    if claim.overlap == "skip":\n        for run in reversed',
        "    if claim.slot < 0:\n        for run in reversed",
    ),
)
decides(
    "overlap-always",
    "A live run is in the way under `allow` too.",
    "claim-row-13 claim-own-rules claim-row-14",
    (
        '    if claim.overlap == "skip":\n        for run in reversed',
        "    if claim.slot >= 0:\n        for run in reversed",
    ),
)
decides(
    "overlap-of-lapsed-runs",
    "A run whose lease ran out is still in the way.",
    "claim-row-13 claim-row-7 word-live",
    ("if run.slot != claim.slot and run.live(now):", 'if run.slot != claim.slot and run.status == "open":'),
    seen="distributed-lock#5: a sweeper that comes once a minute",
)
decides(
    "overlap-of-released-runs",
    "A released run is in the way until its lease would have run out.",
    "claim-row-13 claim-row-8 release-holds",
    (
        "if run.slot != claim.slot and run.live(now):",
        "if run.slot != claim.slot and now < run.started_at + run.lease_ms:",
    ),
)
decides(
    "overlap-of-newer-runs-only",
    "A live run of an older slot is not in the way.",
    "claim-row-13 claim-row-7",
    ("if run.slot != claim.slot and run.live(now):", "if run.slot > claim.slot and run.live(now):"),
)
decides(
    "overlap-first-page",
    "Only the newest hundred runs are searched for one that is in the way.",
    "claim-row-13 active-all",
    ("for run in reversed(state.unfinished):", "for run in reversed(state.unfinished[-100:]):"),
    seen="a query without its next page",
)
decides(
    "overlap-names-the-oldest",
    "Of several runs in the way the oldest is named.",
    "claim-overlap-which",
    ("for run in reversed(state.unfinished):", "for run in state.unfinished:"),
)
decides(
    "overlap-attempt-missing",
    "`overlap` tells attempt 0 of a run that has had attempts.",
    "result-overlap claim-row-7",
    ("return state, _overlap(in_the_way, run.attempt, now)", "return state, _overlap(in_the_way, 0, now)"),
)
decides(
    "overlap-tells-the-claimant",
    "`overlap` tells the claimed slot instead of the one in the way.",
    "result-overlap",
    ("        slot=in_the_way.slot,\n", "        slot=in_the_way.slot + 1,\n"),
)
decides(
    "overlap-full-lease",
    "`overlap` tells the whole length of the lease instead of what is left of it.",
    "result-overlap",
    ("        lease_left_ms=in_the_way.expires_at - now,\n", "        lease_left_ms=in_the_way.lease_ms,\n"),
)
decides(
    "running-full-lease",
    "`running` tells the whole length of the lease instead of what is left of it.",
    "result-running",
    ("_running(run, now, run.expires_at - now)", "_running(run, now, run.lease_ms)"),
)
decides(
    "running-tells-the-next-attempt",
    "`running` tells the attempt that the next winner will have.",
    "result-running claim-row-3",
    ('outcome="running", now_ms=now, attempt=run.attempt,', 'outcome="running", now_ms=now, attempt=run.attempt + 1,'),
)
decides(
    "running-hides-the-holder",
    "`running` does not tell who holds the run.",
    "result-running",
    ("holder=run.holder, lease_left_ms=left_ms", "lease_left_ms=left_ms"),
)
