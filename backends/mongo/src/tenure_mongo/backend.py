"""The protocol's methods on MongoDB: each is one command on the job's document, decided by the server in one step."""

import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from operator import itemgetter
from types import TracebackType
from typing import Any, Self, TypeVar

from pymongo import AsyncMongoClient
from tenure import decision
from tenure.codec import decode_cards
from tenure.decision import DEFAULT_KEEP_RESULTS, EMPTY, JobState
from tenure.duration import Duration, to_ms
from tenure.errors import BackendClosed, BackendMisconfigured, BackendUnavailable, InvalidClaim, InvalidUrl
from tenure.model import (
    EARLY_MS,
    ActiveRuns,
    Capabilities,
    Claim,
    ClaimResult,
    Ending,
    Finding,
    JobCard,
    RunResult,
    check_ending,
    check_limit,
    check_name,
    check_run,
)
from tenure.urls import Readers, hide_secrets, true_or_false, url_options, whole_number

from tenure_mongo import documents, pipeline
from tenure_mongo.documents import SCHEMA
from tenure_mongo.examine import examine
from tenure_mongo.expressions import Document
from tenure_mongo.hints import listen
from tenure_mongo.link import AGAIN, MAJORITY, Client, Link
from tenure_mongo.pipeline import Pipeline
from tenure_mongo.settings import DATABASE, Settings, check_database, database_of, shown, split_query

Answer = TypeVar("Answer")
Decide = Callable[[JobState], tuple[JobState, bool]]

logger: logging.Logger = logging.getLogger("tenure.mongo")

JOBS = "tenure_jobs"
RESULTS = "tenure_results"
CARDS = "tenure_cards"
NEWEST_FIRST = {"_id": -1}

OLDEST_WIRE = 17
"""What MongoDB 6.0 speaks."""
PRUNE_EVERY = 16
"""About one record in so many looks for those that are too old; until then they are kept and not shown."""
CARDS_AT_ONCE = 500
"""Cards that are written with one command, or read with one reply."""
AT_ONCE = 20_000
"""Jobs that are asked for in one command: their names must fit into one."""

_OPTIONS: Readers = {"timeout": str, "keep_results": whole_number, "create": true_or_false}


def from_url(url: str, *, namespace: str = "tenure", create: bool | None = None, **options: object) -> "MongoBackend":
    """``mongodb://user:password@host,host2/database?replicaSet=rs0``, or ``mongodb+srv://…``.

    Options are those of MongoBackend; in the query also those of MongoDB's connection strings, except that writes are
    acknowledged by a majority and reads ask the primary whatever it says. InvalidUrl for what is not known.
    """
    if create is not None:
        options["create"] = create
    driver_url, own_url = split_query(url, frozenset(_OPTIONS))
    read = url_options(own_url, options, _OPTIONS)
    database = database_of(url)
    timeout_ms = to_ms(read.get("timeout", "5s"), "timeout", minimum_ms=1)
    settings = Settings(driver_url, timeout_ms, pooled="maxpoolsize=" in driver_url.lower())
    return MongoBackend(settings, database=database, place=shown(url, database), namespace=namespace, **read)


class MongoBackend:
    """A lease backend on MongoDB 6.0 or newer: a replica set, a sharded cluster, or, with a warning, a standalone.

    ``client`` is an AsyncMongoClient, which stays open when the backend is left and belongs to the event loop that
    uses it first; or what makes one when the backend is entered, which is then closed with it. The scheduler enters a
    backend in a loop of its own, so a client that the application uses cannot be given to it. With ``create`` False
    only a store that is there is opened.
    """

    capabilities: Capabilities = Capabilities(durable=True, shared=True)

    def __init__(
        self,
        client: Client | Callable[[], Client],
        *,
        database: str = DATABASE,
        namespace: str = "tenure",
        timeout: Duration = "5s",
        keep_results: int = DEFAULT_KEEP_RESULTS,
        create: bool = True,
        place: str = "",
    ) -> None:
        check_name(namespace, "namespace")
        check_limit(keep_results)
        if type(create) is not bool:
            raise InvalidUrl(f"create: {create!r} is neither True nor False")
        if not isinstance(client, AsyncMongoClient) and not callable(client):
            raise InvalidUrl(f"{type(client).__name__} is neither an AsyncMongoClient nor a function that makes one")
        self._client = client
        self._database = check_database(database, "database")
        self._namespace = namespace
        self._timeout_ms = to_ms(timeout, "timeout", minimum_ms=1)
        self._keep_results = keep_results
        self._create = create
        self._place = place or _place_of(client, database)
        self._entered = 0
        self._link: Link | None = None
        self._streams = False

    def __str__(self) -> str:
        return f"{self._place} (namespace {self._namespace})"

    async def __aenter__(self) -> Self:
        """See Entered; a client is opened with the first and closed with the last of several."""
        if self._link is None:
            self._link = self._opened()
        self._entered += 1
        try:
            link = self._serving()
            await link.ask(self._prepare(link))
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """See Entered; what is on its way is waited for, no longer than the timeout."""
        await self._leave()

    async def claim(self, claim: Claim) -> ClaimResult:
        """See LeaseBackend."""
        if claim.lease_ms > pipeline.LARGEST:
            raise InvalidClaim(f"lease: {claim.lease_ms} ms is longer than MongoDB can reckon with; use a shorter one")
        link = self._serving()
        return await link.ask(self._claim(link, claim))

    async def heartbeat(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        link = self._serving()
        return await link.ask(self._heartbeat(link, self._id(job), slot, token))

    async def finish(self, job: str, slot: int, token: str, status: Ending) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        check_ending(status)
        link = self._serving()
        ended = pipeline.finish(slot, token, status)
        return await link.ask(
            self._end(link, self._id(job), slot, ended, lambda state: decision.finish(state, slot, token, status))
        )

    async def release(self, job: str, slot: int, token: str) -> bool:
        """See LeaseBackend."""
        check_run(job, slot, token)
        link = self._serving()
        released = pipeline.release(slot, token)
        return await link.ask(
            self._end(link, self._id(job), slot, released, lambda state: decision.release(state, slot, token, 0))
        )

    async def active(self, jobs: Sequence[str]) -> ActiveRuns:
        """See LeaseBackend."""
        ids = [self._id(job) for job in sorted(set(jobs))]
        link = self._serving()
        now, states = await link.ask(self._read_all(link, ids))
        return ActiveRuns(now, tuple([run for job in sorted(states) for run in decision.active(job, states[job], now)]))

    async def save_result(self, job: str, result: RunResult) -> None:
        """See LeaseBackend."""
        place = {"_id": documents.result_id(**self._id(job), slot=result.slot, attempt=result.attempt)}
        fields = documents.result_fields(result)
        write = fields if decision.overwrites(result) else {"$setOnInsert": fields}
        link = self._serving()
        await link.ask(link.update(RESULTS, q=place, u=write, upsert=True))
        if random.randrange(PRUNE_EVERY) == 0:
            await link.ask(self._prune(link, job))

    async def results(self, job: str, *, limit: int = 20) -> list[RunResult]:
        """See LeaseBackend."""
        check_limit(limit)
        asked = documents.all_results(**self._id(job))
        link = self._serving()
        found = await link.ask(link.find(RESULTS, asked, sort=NEWEST_FIRST, limit=min(limit, self._keep_results)))
        return [self._read_as(documents.run_result, document) for document in found]

    async def save_cards(self, cards: Sequence[JobCard]) -> None:
        """See JobCards; many are several calls, each with its own deadline."""
        link = self._serving()
        for start in range(0, len(cards), CARDS_AT_ONCE):
            await link.ask(self._save_cards(link, cards[start : start + CARDS_AT_ONCE]))
        old = {"q": documents.old_cards(self._namespace), "limit": 0}
        await link.ask(link.command({"delete": CARDS, "deletes": [old], "writeConcern": MAJORITY}))

    async def cards(self) -> list[JobCard]:
        """See JobCards."""
        link = self._serving()
        found = await link.ask(link.find(CARDS, documents.all_cards(self._namespace), batch_size=CARDS_AT_ONCE))
        return await decode_cards(self._read_as(itemgetter("card"), document) for document in found)

    async def examine(self) -> list[Finding]:
        """See Examines."""
        link = self._serving()
        return await link.ask(examine(link, self._database))

    async def changes(self, jobs: Sequence[str]) -> AsyncIterator[str]:
        """See Hints; on a standalone server, which has no change streams, there are none."""
        ids = [self._id(job) for job in jobs]
        link = self._serving()
        if not self._streams:
            await link.closed.wait()
            return
        async for job in listen(link, JOBS, ids):
            yield job

    def _id(self, job: str) -> Document:
        check_name(job, "job")
        return {"namespace": self._namespace, "job": job}

    async def _claim(self, link: Link, claim: Claim) -> ClaimResult:
        write = _first_write(claim, link.guessed_ms())
        for _ in range(AGAIN):
            now, state = await (self._written(link, claim, write) if write else self._looked_at(link, claim))
            link.learn_clock(now)
            decided, answer = decision.claim(state, claim, now)
            if decided is state or _stored(state, decided, claim):
                return answer
            write = _write_of(claim, answer, state)
        raise BackendUnavailable(f"{self._place}: other claims of job {claim.job!r} came between {AGAIN} times")

    async def _heartbeat(self, link: Link, job: Document, slot: int, token: str) -> bool:
        """Whether the token holds the run; if nothing was renewed, one that is stored may be later."""
        if await link.update(JOBS, q={"_id": job}, **pipeline.heartbeat(slot, token)):
            return True
        state = await self._run(link, job, slot)
        return any(run.held_by(token) for run in state.unfinished)

    async def _end(self, link: Link, job: Document, slot: int, write: Document, decide: Decide) -> bool:
        """Whether the token holds the run; if not, a second look tells a repeated call from one that is refused."""
        for _ in range(AGAIN):
            if await link.update(JOBS, q={"_id": job}, **write):
                return True
            state = await self._run(link, job, slot)
            decided, held = decide(state)
            if decided is state:
                return held
        raise BackendUnavailable(f"{self._place}: other calls came between {AGAIN} times")

    async def _run(self, link: Link, job: Document, slot: int) -> JobState:
        """The job with this run alone."""
        found = await link.find(JOBS, {"_id": job}, pipeline.run(slot))
        return self._state(found[0]) if found else EMPTY

    async def _looked_at(self, link: Link, claim: Claim) -> tuple[int, JobState]:
        """The clock and what the decision depends on."""
        now, states = await self._read(link, [self._id(claim.job)], pipeline.facts(claim))
        return now, states.get(claim.job, EMPTY)

    async def _written(self, link: Link, claim: Claim, write: Pipeline) -> tuple[int, JobState]:
        """The clock and what the decision depends on, after the write if its conditions were met."""
        command = {
            "findAndModify": JOBS,
            "query": {"_id": self._id(claim.job)},
            "update": write,
            "upsert": not claim.after,
            "new": True,
            "fields": pipeline.facts(claim),
            "writeConcern": MAJORITY,
        }
        for _ in range(AGAIN):
            found: Document | None = (await link.command(command))["value"]
            if found is None:  # no such job, and this claim cannot be its first
                return await self._looked_at(link, claim)
            if "now" in found:  # a findAndModify that was repeated on the way is answered without its projection
                return int(found["now"]), self._state(found, claim.slot)
        raise BackendUnavailable(f"{self._place}: no claim is answered as it was asked; take what repeats writes away")

    async def _read_all(self, link: Link, ids: list[Document]) -> tuple[int, dict[str, JobState]]:
        """As ``_read``, of any number of jobs; the clock is that of the first look."""
        now, states = await self._read(link, ids[:AT_ONCE], pipeline.unfinished())
        for start in range(AT_ONCE, len(ids), AT_ONCE):
            _, more = await self._read(link, ids[start : start + AT_ONCE], pipeline.unfinished())
            states |= more
        return now, states

    async def _read(self, link: Link, ids: list[Document], wanted: Document) -> tuple[int, dict[str, JobState]]:
        """The clock and what is wanted of the jobs, as of one instant."""
        asked = {"_id": {"$in": [SCHEMA, *ids]}}
        found = await link.find(JOBS, asked, wanted, batch_size=len(ids) + 2)
        now = next((int(row["now"]) for row in found if row["_id"] == SCHEMA), None)
        if now is None:
            raise BackendMisconfigured(
                f"{self._place}: the store was removed; enter the backend again to make a new one"
            )
        states = {row["_id"]["job"]: self._state(row) for row in found if row["_id"] != SCHEMA}
        return now, states

    async def _save_cards(self, link: Link, cards: Sequence[JobCard]) -> None:
        statements = [
            {"q": {"_id": documents.card_id(**self._id(card.job))}, "u": documents.card_fields(card), "upsert": True}
            for card in cards
        ]
        await link.command({"update": CARDS, "updates": statements, "ordered": False, "writeConcern": MAJORITY})

    async def _prune(self, link: Link, job: str) -> None:
        """Remove the records that are older than the newest ``keep_results``."""
        asked = documents.all_results(**self._id(job))
        found = await link.find(RESULTS, asked, {"_id": 1}, sort=NEWEST_FIRST, skip=self._keep_results, limit=1)
        for newest in found:
            old = {"_id": {"$gt": self._id(job), "$lte": newest["_id"]}}
            await link.command({"delete": RESULTS, "deletes": [{"q": old, "limit": 0}], "writeConcern": MAJORITY})

    async def _prepare(self, link: Link) -> None:
        """Look whether the server will do, and make the store if it is not there yet."""
        hello = await link.command({"hello": 1})
        self._look_at(hello)
        link.learn_clock(int(hello["localTime"]))
        schema = {"_id": SCHEMA}
        found = await link.find(JOBS, schema)
        if not found and not self._create:
            raise BackendMisconfigured(f"{self._place}: there is no store; look at the address and the database's name")
        if not found:
            await link.update(JOBS, q=schema, u={"$setOnInsert": {"format": documents.FORMAT}}, upsert=True)
            found = await link.find(JOBS, schema)
        documents.check_format(found[0] if found else {}, self._place)

    def _look_at(self, hello: Document) -> None:
        if hello.get("maxWireVersion", 0) < OLDEST_WIRE:
            raise BackendMisconfigured(f"{self._place}: the server is older than MongoDB 6.0; upgrade it")
        if not hello.get("isWritablePrimary"):
            raise BackendUnavailable(f"{self._place}: it is not the primary")
        sharded = hello.get("msg") == "isdbgrid"
        self._streams = sharded or "setName" in hello
        if not self._streams:
            logger.warning(
                "%s is a standalone server: what it agreed to is lost with its disk, nobody takes its place while it is"
                " down, and backups hear of a release by asking only; make it a replica set, of one member at least",
                self._place,
            )

    def _state(self, document: Document, since: int = -1) -> JobState:
        return self._read_as(lambda document: documents.job_state(document, since), document)

    def _read_as(self, read: Callable[[Document], Answer], document: Document) -> Answer:
        try:
            return read(document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BackendMisconfigured(
                f"{self._place}: {JOBS} or {RESULTS} holds what tenure did not write ({error!r}); use another database"
            ) from error

    def _serving(self) -> Link:
        if self._link is None:
            raise BackendClosed(f"{self._place}: the backend is not entered; use it inside `async with`")
        self._link.check()
        return self._link

    def _opened(self) -> Link:
        owned = not isinstance(self._client, AsyncMongoClient)
        client = self._client if isinstance(self._client, AsyncMongoClient) else self._client()
        return Link(client, self._database, self._place, timeout_ms=self._timeout_ms, owned=owned)

    async def _leave(self) -> None:
        self._entered -= 1
        link = self._link
        if not self._entered and link is not None:
            self._link = None
            await link.close()


def _stored(state: JobState, decided: JobState, claim: Claim) -> bool:
    """Whether what the decision wants is there: the run, held by the claim's token with its full lease."""
    runs = {run.slot: run for run in state.unfinished}
    wanted = next((run for run in decided.unfinished if run.slot == claim.slot), None)
    known = runs.get(claim.slot)
    return (
        wanted is not None
        and known is not None
        and known.held_by(claim.token)
        and known.attempt == wanted.attempt
        and known.lease_ms == wanted.lease_ms
        and known.expires_at >= wanted.expires_at
    )


def _first_write(claim: Claim, now_ms: float) -> Pipeline | None:
    """What decides about the claim, None for a look at first: it cannot win unless that guess of the clock is wrong.

    So a job whose first claim is late or early gets no document.
    """
    if claim.after:
        return pipeline.win(claim)
    late = claim.max_late_ms is not None and now_ms - claim.slot > claim.max_late_ms
    if claim.mode == "takeover" or late or claim.slot - now_ms > EARLY_MS:
        return None
    return pipeline.begin(claim) if claim.overlap == "skip" else pipeline.win(claim)


def _write_of(claim: Claim, answer: ClaimResult, state: JobState) -> Pipeline:
    """What is still to be written: the rare rows 2 and 6, or a win that was not tried, or not in full."""
    if answer.outcome == "done":
        return pipeline.exhaust(claim)
    if any(run.slot == claim.slot and run.held_by(claim.token) for run in state.unfinished):
        return pipeline.renew(claim)
    return pipeline.win(claim)


def _place_of(client: Any, database: str) -> str:
    if not isinstance(client, AsyncMongoClient):
        return f"mongodb:///{database}"
    hosts = ",".join(f"{host}:{port}" for host, port in sorted(client.topology_description.server_descriptions()))
    return hide_secrets(f"mongodb://{hosts}/{database}")
