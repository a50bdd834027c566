"""A trace that goes on in another process, after the one that began it was killed."""

import json
import subprocess
import sys
import time

import pytest

pytest.importorskip("opentelemetry.sdk")

PATIENCE_S = 60
PROGRAM = """
import sys, time
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from tenure import Scheduler
from tenure.otel import instrument

store, hangs = sys.argv[1:]
exporter = ConsoleSpanExporter(formatter=lambda span: span.to_json(indent=None) + chr(10))
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = provider.get_tracer("of the application")
scheduler = Scheduler(store)
instrument(scheduler, tracer_provider=provider)


@scheduler.every("pay", "52w", lease="1s", catch_up="52w", jitter="0s")
def pay():
    with tracer.start_as_current_span("charge"):
        pass
    time.sleep(3600 if hangs == "hangs" else 0)


scheduler.run()
"""


class Instance:
    def __init__(self, folder, name, *, hangs):
        self._output = folder / name
        command = [sys.executable, "-c", PROGRAM, f"sqlite:///{folder}/jobs.db", "hangs" if hangs else ""]
        with self._output.open("w") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)

    def wait_for(self, wanted):
        """The first span that is wanted, once it was exported."""
        end = time.monotonic() + PATIENCE_S
        while True:
            text = self._output.read_text()
            whole = text[: text.rfind("\n") + 1].splitlines()
            for span in (json.loads(line) for line in whole if line.startswith("{")):
                if wanted(span):
                    return span
            assert time.monotonic() < end, text
            assert self.process.poll() is None, text
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()


def test_the_attempt_that_took_over_links_to_the_one_that_was_killed(tmp_path):
    killed = Instance(tmp_path, "killed", hangs=True)
    try:
        charge = killed.wait_for(lambda span: span["name"] == "charge")
    finally:
        killed.kill()
    other = Instance(tmp_path, "other", hangs=False)
    try:
        taken_over = other.wait_for(lambda span: span["attributes"].get("tenure.mode") == "takeover")
    finally:
        other.kill()
    assert taken_over["attributes"]["tenure.attempt"] == 2
    assert taken_over["attributes"]["tenure.ending"] == "success"
    assert taken_over["context"]["trace_id"] == charge["context"]["trace_id"]
    (link,) = taken_over["links"]
    assert link["context"]["span_id"] == charge["parent_id"]  # all that was exported of the killed attempt
