# SPDX-License-Identifier: Apache-2.0
"""Script that follows a test through its page, without ROS 2, from any machine that can reach the page.

    python3 watcher_script.py http://127.0.0.1:8085 --most 0.002

The script waits for a test, prints its progress every second, and stops the test if the tracking error exceeds a
limit. Use it to start a camera with a test, or to end a data acquisition. It needs only Python. The page accepts
stops from programs on its own machine, and from other machines if it was started with --stop-from-anywhere.
"""

import argparse
import json
import sys
import time
import urllib.request
from typing import Any

LOOK_S = 0.1
OVER = ("FINISHED", "HELD", "TRIPPED")


def situation(address: str) -> dict[str, Any]:
    """Return the state of the page: run, curves, events."""
    with urllib.request.urlopen(f"{address}/situation", timeout=5.0) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def stop(address: str) -> str:
    """Request a stop, and return the answer of the page."""
    headers = {"X-Rths-Page": "1", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/stop", json.dumps({"kind": "stop"}).encode(), headers)
    with urllib.request.urlopen(request, timeout=5.0) as answer:
        told = json.load(answer)
    return str(told.get("words") or told.get("why"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(",")[0])
    parser.add_argument("address")
    parser.add_argument("--most", type=float, default=float("inf"), help="error at which the test is stopped, m")
    options = parser.parse_args()
    address, began, said, asked = options.address.rstrip("/"), False, -1, False
    while True:
        time.sleep(LOOK_S)
        told = situation(address)
        run, sync = told.get("run", {}), told.get("sync", {})
        state = run.get("state", "")
        if state == "RUNNING" and not began:
            began = True
            print(f"{run['scenario']} has begun", flush=True)  # start your camera here
        if not began:
            continue
        if state in OVER:
            why = f": {run['reason']}" if run.get("reason") else ""
            print(f"{state.lower()} after {run['sample']} samples{why}", flush=True)
            return 0
        time_s = sync.get("sample", 0) / run["servo_rate"]
        error = max(abs(each or 0.0) for each in sync.get("control_error", [0.0]))
        if int(time_s) > said:
            said = int(time_s)
            print(f"{time_s:.1f} s, error {1e3 * error:.3g} mm", flush=True)
        if error > options.most and not asked:
            asked = True
            print(f"error {1e3 * error:.3g} mm: {stop(address)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
