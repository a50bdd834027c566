"""What the driver raises, said in tenure's words: whether trying again may help, and what to do."""

import json
from typing import Any

from tenure.errors import BackendError, BackendMisconfigured, BackendUnavailable

BUSY = frozenset(
    (
        "InternalServerError",
        "InternalFailure",
        "ItemCollectionSizeLimitExceededException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "ReplicatedWriteConflictException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ResourceInUseException",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "TransactionConflictException",
        "TransactionInProgressException",
    )
)
"""Codes of errors that pass; each other code that is no server's fault stays."""
TABLE_ACTIONS = ("BatchGetItem", "BatchWriteItem", "GetItem", "PutItem", "Query", "UpdateItem")
CREATE_ACTIONS = ("CreateTable", "DescribeTable", "DescribeTimeToLive", "UpdateTimeToLive")


def policy(table: str, region: str | None, actions: tuple[str, ...] = TABLE_ACTIONS) -> str:
    """The IAM policy that allows the actions on the table, in JSON."""
    statement = {
        "Effect": "Allow",
        "Action": [f"dynamodb:{action}" for action in actions],
        "Resource": f"arn:aws:dynamodb:{region or '*'}:*:table/{table}",
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def unavailable(place: str, why: str, cause: BaseException) -> BackendUnavailable:
    """With its cause."""
    error = BackendUnavailable(f"{place}: {why}")
    error.__cause__ = cause
    return error


def translated(place: str, table: str, region: str | None, exc: Exception) -> BackendError:
    """The BackendError of what botocore raised, with that as its cause."""
    replied = isinstance(getattr(exc, "response", None), dict)
    error = _of_a_reply(place, table, region, exc) if replied else _without_a_reply(place, exc)
    error.__cause__ = exc
    return error


def code_of(exc: Exception) -> str:
    """The code of an error that DynamoDB answered; empty for others."""
    response: Any = getattr(exc, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def _of_a_reply(place: str, table: str, region: str | None, exc: Any) -> BackendError:
    code = code_of(exc)
    said = str(exc.response.get("Error", {}).get("Message") or exc.response.get("message") or "")[:300]
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    told = f"{place}: {code}{f': {said}' if said else ''}"
    if code == "ResourceNotFoundException":
        return BackendMisconfigured(f"{told}; {how_to_create(table, region)}")
    if "ExpiredToken" in code or code in ("UnrecognizedClientException", "InvalidSignatureException"):
        return BackendMisconfigured(f"{told}; give credentials that are valid in this region")
    if code.startswith("AccessDenied") or status in (401, 403):
        making = getattr(exc, "operation_name", "") in CREATE_ACTIONS
        return BackendMisconfigured(
            f"{told}; allow {policy(table, region, CREATE_ACTIONS if making else TABLE_ACTIONS)}"
        )
    if code in BUSY or status >= 500 or status == 429:
        return BackendUnavailable(told)
    if code == "ValidationException":
        return BackendMisconfigured(
            f"{told}; tenure needs a table of its own, with the keys pk and sk, both strings, and items below 400 KB"
        )
    return BackendMisconfigured(f"{told}; it does not answer as DynamoDB does")


def _without_a_reply(place: str, exc: Exception) -> BackendError:
    name = type(exc).__name__
    if name in _MISSING:
        return BackendMisconfigured(f"{place}: {exc}; {_MISSING[name]}")
    if isinstance(exc, ValueError | TypeError | KeyError | LookupError):
        return BackendMisconfigured(f"{place}: {name}: it does not answer as DynamoDB does")
    where = "; look at the region, the endpoint and the network" if name == "EndpointConnectionError" else ""
    return BackendUnavailable(f"{place}: {name}: it could not be asked{where}")


_MISSING = {
    "NoCredentialsError": "give AWS credentials, by the environment, a profile or a role; a local server takes any",
    "PartialCredentialsError": "give both the access key and the secret key",
    "CredentialRetrievalError": "look at the profile or role that gives credentials",
    "ProfileNotFound": "write the profile's name as in ~/.aws/config",
    "NoRegionError": "write the region, as in dynamodb://eu-west-1/tenure",
    "InvalidRegionError": "write a region such as eu-west-1",
    "TokenRetrievalError": "sign in again (aws sso login)",
    "UnauthorizedSSOTokenError": "sign in again (aws sso login)",
    "SSOTokenLoadError": "sign in again (aws sso login)",
    "SSLError": "its certificate cannot be verified; AWS_CA_BUNDLE names a bundle of your own",
    "UnknownEndpointError": "write a region such as eu-west-1",
    "EndpointProviderError": "write a region such as eu-west-1",
}
"""Errors of botocore that come before anything is sent, and what to do."""


def how_to_create(table: str, region: str | None) -> str:
    """What to say where there is no table."""
    return (
        f"there is no table {table!r} here; make it (docs/dynamodb.md), or let create=true make it, which needs"
        f" {policy(table, region, CREATE_ACTIONS)}"
    )
