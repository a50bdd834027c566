"""Where things are in the table, and the items of history. Pure."""

import json
from typing import Any

from tenure.codec import decode_card, decode_history, encode_card, encode_history
from tenure.model import CARD_KEPT_MS, JobCard, RunResult

from tenure_dynamodb.table import TTL

RUN = "run "
"""How the sort keys of history begin."""
CARD = "card "
"""How the sort keys of cards begin."""


def partition(namespace: str, job: str) -> str:
    """The partition of a job. JSON, so that no two names make the same one."""
    return json.dumps([namespace, job], ensure_ascii=False, separators=(",", ":"))


def job_of(partition: str) -> str:
    """The job whose partition that is."""
    job: str = json.loads(partition)[1]
    return job


def state(namespace: str, job: str) -> dict[str, Any]:
    """The key of a job's state."""
    return _key(partition(namespace, job), "state")


def layout(namespace: str) -> dict[str, Any]:
    """The key of what a later version leaves where this one must not write any more."""
    return _key(cards(namespace), "layout")


def probe(namespace: str) -> dict[str, Any]:
    """The key of an item that there never is."""
    return _key(cards(namespace), "probe")


def record(namespace: str, job: str, result: RunResult, keep_for_ms: int) -> dict[str, Any]:
    """The item of a record; DynamoDB removes it after ``keep_for_ms``, were the job never to run again."""
    ended_ms = result.slot if result.ended_at is None else result.ended_at
    return {
        **_key(partition(namespace, job), _sort_key(result)),
        "record": {"B": encode_history((result,))},
        TTL: {"N": str((ended_ms + keep_for_ms) // 1_000)},
    }


def recorded(item: dict[str, Any]) -> RunResult:
    """The record of its item; BackendMisconfigured if it was written by a newer tenure or by something else."""
    (result,) = decode_history(item["record"]["B"])
    return result


def cards(namespace: str) -> str:
    """The partition of the namespace's cards."""
    return json.dumps([namespace], ensure_ascii=False)


def card(namespace: str, card: JobCard) -> dict[str, Any]:
    """The item of a job's card; DynamoDB removes it some time after it is forgotten."""
    return {
        **_key(cards(namespace), f"{CARD}{card.job}"),
        "card": {"S": encode_card(card)},
        TTL: {"N": str((card.seen_at_ms + CARD_KEPT_MS) // 1_000)},
    }


def told(item: dict[str, Any]) -> JobCard:
    """The card of its item."""
    return decode_card(item["card"]["S"])


def _sort_key(result: RunResult) -> str:
    """Sorted as text these are in order by slot and attempt, however large the attempt is."""
    attempt = str(result.attempt)
    return f"{RUN}{result.slot:015d} {len(attempt):03d} {attempt}"


def _key(partition: str, sort: str) -> dict[str, Any]:
    return {"pk": {"S": partition}, "sk": {"S": sort}}
