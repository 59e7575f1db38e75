"""Other ways to ask all hosts once, as earlier tools do it; figures as lines of JSON.

`python others.py WAY FILE` with the FILE of poller_child.py. "pool" is gpumonitor's way: a fresh
pool of threads of Python's own size and a fresh xmlrpc.client connection for each host. "in turn"
asks one host after another. Both decode the summary alone, the least that a page needs, and both
give each socket operation the timeout; neither has a deadline for a host.
"""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import sys
import time
import xmlrpc.client
from pathlib import Path
from typing import Any

from poller_child import rss_mib


class Transport(xmlrpc.client.Transport):
    """xmlrpc.client with a timeout, as gpumonitor builds it."""

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self.timeout = timeout

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(host, timeout=self.timeout)


def ask(host: str, port: int, timeout: float) -> bool:
    """Return whether a host gave a reading."""
    try:
        with xmlrpc.client.ServerProxy(f"http://{host}:{port}/RPC2", Transport(timeout)) as proxy:
            _, summary, _ = proxy.poll()
            return bool(json.loads(summary)["gpus"])
    except Exception:  # whatever goes wrong is what is measured here
        return False


def main(way: str, path: str) -> None:
    """Ask all hosts for each round, one line each."""
    task = json.loads(Path(path).read_text())
    calls = [(host, port, task["timeout"]) for _, host, port, _ in task["hosts"]]
    for _ in range(task["rounds"]):
        cpu, begin = time.process_time(), time.monotonic()
        if way == "pool":
            with concurrent.futures.ThreadPoolExecutor() as pool:
                good = sum(pool.map(lambda call: ask(*call), calls))
        else:
            good = sum(ask(*call) for call in calls)
        line = {
            "cpu": time.process_time() - cpu,
            "wall": time.monotonic() - begin,
            "good": good,
            "rss": rss_mib(),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
