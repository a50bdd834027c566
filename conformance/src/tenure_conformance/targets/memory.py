"""The in-memory backend, the reference of the rules."""

from tenure.memory import MemoryBackend, MemoryStore

from tenure_conformance.target import Limits, Target, Timing

_store = MemoryStore()

target: Target = Target(
    name="memory",
    levels=("lease", "hints", "cards"),
    url="memory://",
    open=lambda _url, namespace: MemoryBackend(_store, namespace=namespace),
    timing=Timing(short_ms=10, slack_ms=5),
    limits=Limits(situations=60, histories=20, examples=60, runs=1_100),
    distribution="tenure",
    store=lambda: "this process's memory",
)
