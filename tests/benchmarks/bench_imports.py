"""What ``import tenure`` costs: whole processes, beside one that imports what every async program does."""

import subprocess
import sys
import time

BASE = "import asyncio, dataclasses, zoneinfo"
ROUNDS = 15


def main() -> None:
    """Print the ratio, and the client libraries that are loaded, of which there should be none."""
    base, tenure = best(BASE), best("import tenure")
    print(f"{BASE}: {base:.0f} ms; import tenure: {tenure:.0f} ms; ratio {tenure / base:.2f} (aim: at most 2)")
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, tenure; print({name.partition('.')[0] for name in sys.modules})"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    clients = [name for name in ("sqlite3", "redis", "pymongo", "psycopg", "boto3", "grpc", "click") if name in loaded]
    print(f"client libraries loaded: {clients or 'none'}")


def best(code: str) -> float:
    """The fastest of some runs, in milliseconds: the others were disturbed."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append((time.perf_counter() - began) * 1000)
    return min(times)


if __name__ == "__main__":
    main()
