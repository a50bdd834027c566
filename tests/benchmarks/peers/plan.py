"""Who is compared, on which store, and what each does for one run."""

from dataclasses import dataclass

TENURE = "tenure"
STORES = {"redis": "Redis", "postgres": "Postgres", "etcd": "etcd", "memory": "no store"}


@dataclass(frozen=True, slots=True)
class Subject:
    """A scheduler, queue or lock, on one store."""

    name: str
    script: str
    store: str
    measures: tuple[str, ...]
    """Functions of the script."""
    cycle: str = ""
    """What a slot's run is made of here."""
    takeover: str = ""
    """The setting that stands for a lease of two seconds."""


@dataclass(frozen=True, slots=True)
class Import:
    """What a program imports to use it."""

    name: str
    script: str
    store: str
    code: str


OURS = "ours.py"
_CLAIM = "`claim` and `finish`: the run, its attempt, its fence and its history are kept"
_LEASE = '`lease="2s"`'
SUBJECTS = [
    Subject(TENURE, OURS, "redis", ("cycle", "asked", "runs", "waiting", "worker"), _CLAIM, _LEASE),
    Subject(
        "redis-py Lock",
        "peer_redis_lock.py",
        "redis",
        ("cycle", "runs", "worker"),
        "`acquire` and `release`: a key that is there or not",
        "`timeout=2`, extended after each third of that",
    ),
    Subject(
        "docket",
        "peer_docket.py",
        "redis",
        ("asked", "runs", "runs_by_default", "waiting", "worker"),
        "its worker's own, with no calls to measure alone",
        "`redelivery_timeout` of 2 s",
    ),
    Subject(TENURE, OURS, "postgres", ("cycle", "asked", "runs", "waiting", "worker"), _CLAIM, _LEASE),
    Subject(
        "procrastinate",
        "peer_procrastinate.py",
        "postgres",
        ("cycle", "asked", "runs", "waiting", "worker"),
        "a periodic task's slot deferred once, fetched and finished",
        "heartbeats stale after 2 s, looked for each second, as its guide to stalled jobs says",
    ),
    Subject(
        "PgQueuer",
        "peer_pgqueuer.py",
        "postgres",
        ("cycle", "asked", "runs", "waiting", "worker"),
        "`enqueue` with a `dedupe_key`, `dequeue`, `log_jobs`: three statements",
        "`heartbeat_timeout` of 2 s, `dequeue_timeout` of 1 s",
    ),
    Subject(
        "DBOS",
        "peer_dbos.py",
        "postgres",
        ("asked", "runs", "worker"),
        "its workflow's own, with no calls to measure alone",
        "none: a workflow is recovered by a process with the same executor id",
    ),
    Subject(
        "APScheduler 4",
        "peer_apscheduler4.py",
        "postgres",
        ("cycle", "waiting", "worker", "worker_by_default"),
        "the five calls of its data store: acquire the schedule, add its job, release, acquire the job, release",
        "`lease_duration` of 2 s, and `max_running_jobs=2` with another schedule each 0.5 s",
    ),
    Subject(TENURE, OURS, "etcd", ("cycle", "asked", "runs", "waiting", "worker"), _CLAIM, _LEASE),
    Subject(
        "aetcd Lock",
        "peer_aetcd_lock.py",
        "etcd",
        ("cycle", "runs", "worker"),
        "`acquire` and `release`: a key on a lease of etcd",
        "`ttl=2`, refreshed after each third of that",
    ),
    Subject(TENURE, OURS, "memory", ("burst",)),
    Subject("APScheduler 3", "peer_apscheduler3.py", "memory", ("burst",)),
    Subject("APScheduler 4", "peer_apscheduler4.py", "memory", ("burst",)),
]
IMPORTS = [
    Import(TENURE, OURS, "memory", "import tenure"),
    Import("APScheduler 3", "peer_apscheduler3.py", "memory", "import apscheduler.schedulers.asyncio"),
    Import("tenure for Redis", OURS, "redis", "import tenure, tenure_redis"),
    Import("redis-py Lock", "peer_redis_lock.py", "redis", "import redis.asyncio"),
    Import("docket", "peer_docket.py", "redis", "import docket"),
    Import("tenure for Postgres", OURS, "postgres", "import tenure, tenure_postgres"),
    Import("procrastinate", "peer_procrastinate.py", "postgres", "import procrastinate"),
    Import("PgQueuer", "peer_pgqueuer.py", "postgres", "import asyncpg, pgqueuer"),
    Import("DBOS", "peer_dbos.py", "postgres", "import dbos"),
    Import(
        "APScheduler 4",
        "peer_apscheduler4.py",
        "postgres",
        "import apscheduler.datastores.sqlalchemy, apscheduler.eventbrokers.psycopg",
    ),
    Import("tenure for etcd", OURS, "etcd", "import tenure, tenure_etcd"),
    Import("aetcd Lock", "peer_aetcd_lock.py", "etcd", "import aetcd"),
]

_LOCKS = (
    "A lock's two calls alone, nothing is kept; a run of tenure is a claim, a handler, its end, a record of it and two"
    " events, and goes to the scheduler's thread and back."
)
_BATCHES = (
    "Its worker takes a batch of jobs with one statement and writes their ends with another: none is in another's way."
    " tenure decides about each run by itself: each job has a lease, an overlap rule and a fence of its own"
)
_CLIENT = "tenure imports the same client, and itself."
_CARDS = (
    "tenure's store is in the process too, and in it a card of each job, which with any other backend is in the store:"
    " what `tenure jobs` shows. The rest is the job's options, its place among the timers, and its schedule."
)
WHY: dict[tuple[str, str, str], str] = {
    ("claim and finish", "etcd", "aetcd Lock"): (
        "It puts one key and deletes it. tenure's claim reads and writes the job's state, the run and its history, in"
        " messages of several times the size; both wait for etcd as often."
    ),
    ("runs, 50 at a time", "redis", "redis-py Lock"): _LOCKS,
    ("runs, 50 at a time", "etcd", "aetcd Lock"): _LOCKS,
    ("runs, 50 at a time", "postgres", "PgQueuer"): _BATCHES + ".",
    ("runs that wait", "postgres", "PgQueuer"): _BATCHES + "; it sends claims that are due together in one go.",
    ("takeover", "redis", "redis-py Lock"): (
        "Both go on when the dead holder's time is over, the lock within 0.1 s, tenure within 0.05 s. How much of that"
        " time is left at the kill depends on when the last heartbeat was, and five tries are few."
    ),
    ("takeover", "etcd", "aetcd Lock"): (
        "Both wait until etcd itself has ended the dead holder's lease, which it does up to half a second late, and"
        " later when it is busy; five tries of that are few."
    ),
    ("import", "redis", "redis-py Lock"): _CLIENT,
    ("import", "etcd", "aetcd Lock"): _CLIENT,
    **dict.fromkeys(
        [(f"lateness, {of}", "memory", "APScheduler 3") for of in ("median", "99 %", "last")],
        "It starts what is due. tenure claims each run first, so that it is nobody else's, and starts its heartbeat.",
    ),
    ("memory", "memory", "APScheduler 3"): _CARDS,
    ("memory", "memory", "APScheduler 4"): _CARDS,
}
"""Why a peer is better there: whoever measures a new such place has to find out."""
