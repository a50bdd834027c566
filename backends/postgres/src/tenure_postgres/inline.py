"""A claim without a function in the database: it locks, ``tenure.decision`` decides here, the outcome is written.

It takes two round trips in one transaction, on the same tables and under the same locks as the function does.
"""

import json
from collections.abc import Callable, Coroutine, Iterator
from operator import attrgetter
from typing import Any

from psycopg import pq
from tenure import decision
from tenure.decision import JobState, RunState
from tenure.model import Claim, ClaimResult, LostAttempt

from tenure_postgres.session import Outcome, Query, Session, rows
from tenure_postgres.statements import Statement, Statements

_UNFINISHED = ("open", "released")
_LOST = attrgetter(*LostAttempt.__slots__)
_COMMIT = Statement(b"commit", b"tenure_commit")


def claiming(
    sql: Statements, key: bytes, claim: Claim, timeout_ms: int
) -> Callable[[Session], Coroutine[Any, Any, ClaimResult]]:
    """The steps of the claim in the namespace of that key."""
    of_job = (key, claim.job.encode())

    async def steps(session: Session) -> ClaimResult:
        state, now_ms, transaction = await _locked(session, sql, of_job, timeout_ms)
        after, result = decision.claim(state, claim, now_ms)
        same = Query(sql.ensure_transaction, (transaction,))
        await _good(session, [same, *_writes(sql, of_job, state, after), Query(_COMMIT, ())])
        return result

    return steps


async def _locked(
    session: Session, sql: Statements, of_job: tuple[bytes, bytes], timeout_ms: int
) -> tuple[JobState, int, bytes | None]:
    """The job's state and the server's clock, once all that could change them is locked, and the transaction's id."""
    # A process that is frozen here would keep the others from the job for as long.
    limit = b"set local idle_in_transaction_session_timeout = %d" % timeout_ms
    begin = [
        Statement(b"begin isolation level read committed", b"tenure_begin"),
        Statement(limit, b"tenure_limit_%d" % timeout_ms),
    ]
    asked = [
        Query(statement, of_job)
        for statement in (sql.ensure_job, sql.lock_job, sql.lock_runs, sql.load_job, sql.load_runs)
    ]
    *_, job, runs = await _good(session, [*[Query(statement, ()) for statement in begin], *asked])
    ((now_ms, fence, floor, transaction),) = rows(job)
    known = [_run(row) for row in rows(runs)]
    unfinished = tuple([run for run in known if run.status in _UNFINISHED])
    ended = tuple([run for run in known if run.status not in _UNFINISHED])
    return JobState(int(fence or 0), int(floor or 0), unfinished, ended), int(now_ms or 0), transaction


def _writes(sql: Statements, of_job: tuple[bytes, bytes], before: JobState, after: JobState) -> Iterator[Query]:
    """What makes the one state of the other."""
    if after is before:
        return
    former = {run.slot: run for run in (*before.unfinished, *before.ended)}
    runs = {run.slot: run for run in (*after.unfinished, *after.ended)}
    for slot in former.keys() - runs.keys():
        yield Query(sql.drop_run, (*of_job, b"%d" % slot))
    for slot, run in runs.items():
        if former.get(slot) is not run:
            yield Query(sql.put_run, (*of_job, *_columns(run)))
    unfinished = ",".join(str(run.slot) for run in after.unfinished)
    newest = max([after.floor, *runs])
    numbers = (after.fence, after.floor, newest, len(runs), f"{{{unfinished}}}")
    yield Query(sql.put_job, (*of_job, *[str(number).encode() for number in numbers]))


def _columns(run: RunState) -> list[bytes | None]:
    lost = json.dumps([_LOST(attempt) for attempt in run.previous]).encode() if run.previous else None
    numbers = (run.slot, run.attempt, run.used, run.fence)
    times = (run.lease_ms, run.started_at, run.expires_at)
    return [
        *[b"%d" % number for number in numbers],
        run.token.encode(),
        run.holder.encode(),
        *[b"%d" % time for time in times],
        run.status.encode(),
        lost,
    ]


def _run(row: list[bytes | None]) -> RunState:
    slot, attempt, used, fence = [int(value or 0) for value in row[:4]]
    token, holder = [(value or b"").decode() for value in row[4:6]]
    lease_ms, started_at, expires_at = [int(value or 0) for value in row[6:9]]
    lost = () if row[10] is None else tuple([LostAttempt(*attempt) for attempt in json.loads(row[10])])
    status: Any = (row[9] or b"").decode()
    return RunState(slot, attempt, used, fence, token, holder, lease_ms, started_at, expires_at, status, lost)


async def _good(session: Session, queries: list[Query]) -> list[pq.abc.PGresult]:
    """The results, or the first error; the transaction ends with its connection then."""
    return [_result(outcome) for outcome in await session.ask(queries, inside=True)]


def _result(outcome: Outcome) -> pq.abc.PGresult:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
