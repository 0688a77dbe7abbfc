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

POLL_S = 0.1
ENDED = ("FINISHED", "HELD", "TRIPPED")


def situation(address: str) -> dict[str, Any]:
    """Return the situation that the page shows: run, curves, events."""
    with urllib.request.urlopen(f"{address}/situation", timeout=5.0) as response:
        content: dict[str, Any] = json.load(response)
    return content


def stop(address: str) -> str:
    """Request a stop, and return the answer of the page."""
    headers = {"X-Rths-Page": "1", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/stop", json.dumps({"kind": "stop"}).encode(), headers)
    with urllib.request.urlopen(request, timeout=5.0) as response:
        answer = json.load(response)
    return str(answer.get("words") or answer.get("why"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(",")[0])
    parser.add_argument("address")
    parser.add_argument("--most", type=float, default=float("inf"), help="tracking error that stops the test, m")
    options = parser.parse_args()
    address, began, printed_s, stopping = options.address.rstrip("/"), False, -1, False
    while True:
        time.sleep(POLL_S)
        content = situation(address)
        run, sync = content.get("run", {}), content.get("sync", {})
        state = run.get("state", "")
        if state == "RUNNING" and not began:
            began = True
            print(f"{run['scenario']} has begun", flush=True)  # start your camera here
        if not began:
            continue
        if state in ENDED:
            reason = f": {run['reason']}" if run.get("reason") else ""
            print(f"{state.lower()} after {run['sample']} samples{reason}", flush=True)
            return 0
        time_s = sync.get("sample", 0) / run["servo_rate"]
        error = max(abs(value or 0.0) for value in sync.get("control_error", [0.0]))
        if int(time_s) > printed_s:
            printed_s = int(time_s)
            print(f"{time_s:.1f} s, error {1e3 * error:.3g} mm", flush=True)
        if error > options.most and not stopping:
            stopping = True
            print(f"error {1e3 * error:.3g} mm: {stop(address)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
