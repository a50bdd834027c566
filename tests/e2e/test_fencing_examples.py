"""A holder that was frozen and replaced cannot write, whatever it writes to: docs/examples/fencing on real servers."""

import asyncio
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from importlib import import_module
from io import BytesIO
from pathlib import Path
from threading import Lock

import pytest
from tenure import Context, connect
from tenure_conformance.targets import dynamodb, dynamodb_moto, mongo, postgres, redis

EXAMPLES = Path(__file__).parents[2] / "docs/examples/fencing"
PATIENCE_S = 120
WRITERS = 12


@pytest.fixture(scope="module")
def aws():
    """An endpoint that is both DynamoDB and S3, in the environment that boto3 reads, with a table and a bucket."""
    boto3 = pytest.importorskip("boto3")
    with dynamodb_moto.server.serve("binary") as url, pytest.MonkeyPatch.context() as environment:
        host, port = dynamodb.endpoint_of(url)
        environment.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        environment.setenv("AWS_ACCESS_KEY_ID", "AKIDTESTS")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-word")
        with closing(boto3.client("s3")) as s3, closing(boto3.client("dynamodb")) as tables:
            s3.create_bucket(Bucket="totals")
            tables.create_table(
                TableName="totals",
                KeySchema=[{"AttributeName": "region", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "region", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        yield "totals"


@contextmanager
def sql_place(request):
    yield str(request.getfixturevalue("tmp_path_factory").mktemp("totals") / "totals.db")


@contextmanager
def file_place(request):
    yield str(request.getfixturevalue("tmp_path_factory").mktemp("totals"))


@contextmanager
def postgres_place(request):
    with postgres.server.serve("binary") as url:
        asyncio.run(connect(url).migrate())
        yield url


@contextmanager
def redis_place(request):
    with redis.server.serve("binary") as url:
        yield url


@contextmanager
def mongo_place(request):
    with mongo.server.serve("binary") as url:
        yield url


@contextmanager
def aws_place(request):
    yield request.getfixturevalue("aws")


PLACES = {
    "sql": sql_place,
    "file": file_place,
    "postgres": postgres_place,
    "redis": redis_place,
    "mongo": mongo_place,
    "dynamodb": aws_place,
    "s3": aws_place,
}


class Guarded:
    """One example, on a server."""

    def __init__(self, name, place):
        self.name = name
        self.place = place
        self.module = import_module(f"{name}_totals")
        self._one_at_a_time = Lock()

    @contextmanager
    def target(self):
        with self._one_at_a_time:  # boto3 cannot make two clients at once
            target = self.module.connect(self.place)
        try:
            yield target
        finally:
            client_of(self.name, target).close()

    def save(self, total, fence, region="eu"):
        with self.target() as target:
            self.module.save(target, region, total, context(fence, region))

    def take(self, fence, region="eu"):
        with self.target() as target:
            return self.module.take(target, region, context(fence, region))

    def refuses(self, fence, region):
        with pytest.raises(self.module.Stale):
            self.save(0, fence, region)


def client_of(name, target):
    """What the module opened."""
    match name:
        case "dynamodb" | "s3":
            return target.meta.client
        case "mongo":
            return target.database.client
        case "file":
            return BytesIO()  # there is nothing to close
    return target


def context(fence, region):
    """An attempt of a job for each region: Postgres compares the fences of a job, not those of a row."""
    return Context(region, 1_796_126_400_000, 1, fence, "scheduled", "i", "skip")


@pytest.fixture(scope="module", params=PLACES)
def guarded(request):
    with PLACES[request.param](request) as place, pytest.MonkeyPatch.context() as path:
        path.syspath_prepend(EXAMPLES)
        yield Guarded(request.param, place)


def test_a_frozen_holder_s_write_is_refused_once_its_successor_has_begun(guarded, tmp_path):
    store = guarded.place if guarded.name == "postgres" else f"sqlite:///{tmp_path}/jobs.db"
    command = [sys.executable, str(EXAMPLES / "freeze.py"), guarded.name, guarded.place, store]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert told.stdout.splitlines() == [
        "first:  has taken the total, and is frozen",
        "second: has taken the run over, and the total",
        "first:  wakes, and writes: refused",
        "second: writes: saved",
    ], told.stderr
    assert guarded.take(2**52) == 1


@pytest.mark.parametrize("words", [[], ["sql"], ["mysql", "totals.db"], ["sql", "totals.db", "memory://", "more"]])
def test_wrong_words_are_answered_with_how_to_write_them(words):
    command = [sys.executable, str(EXAMPLES / "freeze.py"), *words]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert told.returncode == 1
    assert told.stdout == ""
    usage, guards, *_ = told.stderr.splitlines()
    assert usage == "usage: python freeze.py GUARD PLACE [STORE]"
    assert guards.removeprefix("GUARD").strip().split(", ") == sorted(PLACES)


def test_an_attempt_writes_as_often_as_it_likes_until_a_newer_one_takes_or_writes(guarded):
    guarded.save(1, 5, "asia")
    guarded.save(1, 5, "asia")
    guarded.save(2, 7, "asia")
    guarded.refuses(6, "asia")
    assert guarded.take(9, "asia") == 2
    guarded.refuses(8, "asia")
    guarded.save(3, 9, "asia")
    assert guarded.take(9, "asia") == 3


def test_the_newest_of_many_writers_at_once_is_never_refused_and_its_value_stays(guarded):
    fences = random.sample(range(10, 10 + WRITERS), WRITERS)

    def saved(fence):
        try:
            guarded.save(fence * 10, fence, "africa")
        except guarded.module.Stale:
            return False
        return True

    with ThreadPoolExecutor(WRITERS) as threads:
        outcomes = dict(zip(fences, threads.map(saved, fences), strict=True))
    assert outcomes[max(fences)]
    assert guarded.take(2**52, "africa") == max(fences) * 10
