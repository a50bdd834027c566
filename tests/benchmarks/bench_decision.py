"""What a decision costs: microseconds for each kind of call, on the job that a busy scheduler leaves behind.

Run it: ``python tests/benchmarks/bench_decision.py``
"""

from collections.abc import Callable
from dataclasses import replace
from timeit import Timer

from tenure import decision
from tenure.decision import EMPTY, JobState
from tenure.model import Claim

NOW, LEASE = 1_700_000_000_000, 30_000
TARGET_US = 5.0


def a_claim(slot: int, token: str = "mine", after: int = 0, **changes: object) -> Claim:
    claim = Claim(
        job="job",
        slot=slot,
        token=token,
        instance="host-1-abcdef",
        lease_ms=LEASE,
        mode="scheduled",
        overlap="skip",
        max_attempts=3,
        max_late_ms=60_000,
        after=after,
    )
    return replace(claim, **changes)


def a_job_with_history() -> JobState:
    """The newest 16 runs ended."""
    state = EMPTY
    for slot in range(NOW - 40 * 10_000, NOW, 10_000):
        state, _ = decision.claim(state, a_claim(slot), slot)
        state, _ = decision.finish(state, slot, "mine", "success")
    return state


def decisions() -> dict[str, Callable[[], object]]:
    """One call of each kind."""
    history = a_job_with_history()
    mine, theirs, over = a_claim(NOW), a_claim(NOW, "theirs"), NOW + LEASE
    held, _ = decision.claim(history, mine, NOW)
    released, _ = decision.release(held, NOW, "mine", NOW)
    takeover = a_claim(NOW, "theirs", 1, mode="takeover")
    last, ended = a_claim(NOW, "theirs", 1, max_attempts=1), a_claim(history.ended[-1].slot)
    newer, early, older = a_claim(NOW + 1), a_claim(NOW + 5_000), a_claim(NOW - 1)
    unknown, late = a_claim(NOW, mode="takeover"), a_claim(NOW - 60_000 + 1)
    return {
        "won, the job's first run": lambda: decision.claim(EMPTY, mine, NOW),
        "won, another run": lambda: decision.claim(history, mine, NOW),
        "won again, same token": lambda: decision.claim(held, mine, NOW),
        "won, takeover": lambda: decision.claim(held, takeover, over),
        "won, takeover of a released run": lambda: decision.claim(released, takeover, NOW),
        "won, superseding an older run": lambda: decision.claim(held, newer, over),
        "running": lambda: decision.claim(held, theirs, NOW),
        "running, ask again": lambda: decision.claim(held, theirs, over),
        "overlap": lambda: decision.claim(held, newer, NOW),
        "late": lambda: decision.claim(EMPTY, late, NOW + 60_000),
        "done": lambda: decision.claim(history, ended, NOW),
        "done, superseded": lambda: decision.claim(held, older, NOW),
        "done, exhausted": lambda: decision.claim(held, last, over),
        "none, takeover": lambda: decision.claim(history, unknown, NOW),
        "none, early": lambda: decision.claim(history, early, NOW),
        "heartbeat": lambda: decision.heartbeat(held, NOW, "mine", NOW + 1),
        "finish": lambda: decision.finish(held, NOW, "mine", "success"),
        "release": lambda: decision.release(held, NOW, "mine", NOW),
        "active": lambda: decision.active("job", held, NOW),
    }


def microseconds(call: Callable[[], object], number: int = 20_000) -> float:
    """The best of five rounds: what it costs when nothing else runs."""
    return min(Timer(call).repeat(5, number)) / number * 1_000_000


if __name__ == "__main__":
    for name, call in decisions().items():
        cost = microseconds(call)
        print(f"{cost:6.2f} us  {name}{'' if cost < TARGET_US else f'   (target: {TARGET_US:g})'}")
