"""Headless Chromium, spoken to through its debugging pipe."""

import base64
import json
import os
import shutil
import subprocess
import threading
from contextlib import contextmanager

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def browser():
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.fail("no Chromium; install it (apt-get install chromium), the page is checked in a real browser")
    return found


class Chromium:
    """One tab; ``events`` are all that it told so far."""

    def __init__(self, profile, longest_s):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe")
        command = ("bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash", browser(), *flags)
        self._process = subprocess.Popen(
            (*command, f"--user-data-dir={profile}", "about:blank"),
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # A browser that hangs must not hang the tests: its pipes are closed by its end.
        self._watchdog = threading.Timer(longest_s, self._process.kill)
        self._watchdog.start()
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, None
        self.events = []
        (page,) = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while "id" not in (told := self._next()) or told["id"] != self._number:
            self.events.append(told)
        assert "error" not in told, told
        return told["result"]

    def _next(self):
        while b"\0" not in self._buffer:
            part = os.read(self._read, 65_536)
            assert part, "the browser ended"
            self._buffer += part
        told, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(told)

    def open(self, url, width, height=900, scripts=True):
        self.events.clear()
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def ask(self, expression):
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def named(self, *methods):
        return [event for event in self.events if event.get("method") in methods]

    def errors(self):
        thrown = self.named("Runtime.exceptionThrown", "Log.entryAdded")
        return thrown + [one for one in self.named("Runtime.consoleAPICalled") if one["params"]["type"] == "error"]

    def screenshot(self, path, clip=None):
        more = {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True} if clip else {}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **more)["data"]))

    def close(self):
        self._watchdog.cancel()
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)


@contextmanager
def chromium(profile, longest_s=60):
    tab = Chromium(profile, longest_s)
    try:
        yield tab
    finally:
        tab.close()
