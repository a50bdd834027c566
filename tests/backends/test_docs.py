"""The backends that docs/backends.md shows do what the page says."""

import asyncio
import re
import sqlite3
import time
from pathlib import Path

import pytest
from tenure.errors import BackendUnavailable
from tenure.model import Claim, RunResult

PAGE = Path(__file__).parents[2] / "docs" / "backends.md"
LONG_AGO = 1_700_000_000_000


def example(name):
    """The names that the page's example defines."""
    (code,) = re.findall(rf"<!-- example: {name} -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names = {}
    exec(compile(code, f"{PAGE}: {name}", "exec"), names)
    return names


class KeyValueClient:
    def __init__(self):
        self.values = {}

    async def ping(self):
        pass

    async def close(self):
        pass

    async def set_if_absent(self, key, value):
        if key in self.values:
            return False
        self.values[key] = value
        return True

    async def get(self, key):
        return self.values.get(key)

    async def set(self, key, value):
        self.values[key] = value


def test_the_claim_only_example_claims_once_per_run_and_again_for_the_same_token():
    backend_class = example("claim-only")["KeyValueBackend"]

    async def main():
        client = KeyValueClient()
        async with backend_class(client) as first, backend_class(client) as second:
            assert await first.claim("a:b", LONG_AGO, "one")
            assert not await second.claim("a:b", LONG_AGO, "two")
            assert await second.claim("a:b", LONG_AGO, "one")
            assert await second.claim("a", LONG_AGO, "two")
            await first.save_result("a", RunResult(LONG_AGO, 1, 0, "success", "i", 1, 2))
            assert len(client.values) == 3

    asyncio.run(main())


class Table:
    def __init__(self):
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.execute(
            "create table tenure (namespace, job, kind, value, version, primary key (namespace, job, kind))"
        )
        self.closed = True

    async def connect(self):
        self.closed = False

    async def close(self):
        self.closed = True

    async def clock_ms(self):
        return int(time.time() * 1_000)

    async def row(self, query, parameters):
        if self.closed:
            raise ConnectionError("closed")
        return self._connection.execute(query, parameters).fetchone()

    async def changed(self, query, parameters):
        return self._connection.execute(query, parameters).rowcount


def claim(token, **changes):
    fields = {"job": "sync", "slot": LONG_AGO, "instance": "i", "lease_ms": 60_000, "mode": "manual", "overlap": "skip"}
    return Claim(token=token, **{**fields, "max_attempts": 3, "max_late_ms": None, **changes})


def test_the_compare_and_replace_example_is_a_lease_backend():
    names = example("cas")
    table = Table()
    names["database_of"] = lambda _: table

    async def main():
        backend = names["from_url"]("table://", namespace="n")
        async with backend:
            assert (await backend.claim(claim("one"))).outcome == "won"
            assert (await backend.claim(claim("two"))).outcome == "running"
            assert await backend.release("sync", LONG_AGO, "one")
            taken = await backend.claim(claim("two", mode="takeover", after=1))
            assert (taken.outcome, taken.attempt) == ("won", 2)
            assert not await backend.finish("sync", LONG_AGO, "one", "success")
            assert await backend.finish("sync", LONG_AGO, "two", "success")
            result = RunResult(LONG_AGO, 2, taken.fence, "success", "i", 1, 2)
            await backend.save_result("sync", result)
            assert await backend.results("sync") == [result]
            table.closed = True
            with pytest.raises(BackendUnavailable, match="closed"):
                await backend.active(["sync"])
        table._connection.close()

    asyncio.run(main())
