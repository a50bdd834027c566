"""Which run a handler's own log records belong to."""

import logging

from tenure.executor import current


class RunFields(logging.Filter):
    """Gives each record that is made inside of a job's handler its job, slot, attempt, fence and instance.

    Add it to a handler of logging, whose formatter can then show them. Records that have such attributes keep them,
    those made elsewhere get none; with ``defaults=True`` they get empty ones, for formatters that want them always.
    """

    def __init__(self, *, defaults: bool = False) -> None:
        super().__init__()
        self._defaults = defaults

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass."""
        for name, value in self._fields().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True

    def _fields(self) -> dict[str, object]:
        call = current.get(None)
        if call is not None:
            ctx = call.ctx
            facts = {"job": ctx.job, "slot": ctx.slot_ms, "attempt": ctx.attempt, "fence": ctx.fence}
            return {**facts, "instance": ctx.instance}
        return {"job": "", "slot": 0, "attempt": 0, "fence": 0, "instance": ""} if self._defaults else {}
