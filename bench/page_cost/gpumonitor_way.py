"""A page the way gpumonitor makes it, written anew and as lean as that way allows.

`python gpumonitor_way.py FILE` reads {"hosts": [[name, address, port], ...], "port", "timeout"}.
Each request asks all hosts over fresh `xmlrpc.client` connections in a thread pool of Python's own
size, waits for the last of them, adds the users up and writes one table a host. The real one does
so in Flask's development server, with pandas; here is neither, so this is faster than it was.
"""

from __future__ import annotations

import html
import http.client
import json
import sys
import xmlrpc.client
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

Host = tuple[str, str, int]


class Transport(xmlrpc.client.Transport):
    """xmlrpc.client with a timeout for each read and write."""

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self.timeout = timeout

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(host, timeout=self.timeout)


def ask(host: Host, timeout: float) -> dict[str, Any] | None:
    """Return the GPUs of a host with their users; None: it did not answer."""
    _, address, port = host
    try:
        with xmlrpc.client.ServerProxy(f"http://{address}:{port}/", Transport(timeout)) as proxy:
            answer: Any = proxy.poll()
    except (OSError, http.client.HTTPException, xmlrpc.client.Error):
        return None
    found: dict[str, Any] = json.loads(answer[1])
    return found


def page(hosts: list[Host], timeout: float) -> str:
    """Ask all hosts and return the page."""
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda host: ask(host, timeout), hosts))
    users: Counter[str] = Counter()
    parts = ["<!DOCTYPE html><title>GPUs</title>"]
    for (name, _, _), answer in zip(hosts, answers, strict=True):
        parts.append(f"<h2>{html.escape(name)}</h2><table>")
        for gpu in [] if answer is None else answer["gpus"]:
            held = [(one["user"], one["gpu_memory_used_mib"]) for one in gpu["holders"]]
            for user, memory in held:
                users[str(user)] += memory or 0
            cells = [gpu["index"], gpu["name"], gpu["utilization_percent"], gpu["memory_used_mib"]]
            cells += [gpu["memory_total_mib"], ", ".join(f"{user} {used}" for user, used in held)]
            row = "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells)
            parts.append(f"<tr>{row}</tr>")
        parts.append("</table>")
    rows = "".join(f"<tr><td>{html.escape(who)}<td>{used}" for who, used in users.most_common())
    return "".join([*parts, f"<table>{rows}</table>"])


class Handler(BaseHTTPRequestHandler):
    """Answers every GET with the page."""

    hosts: ClassVar[list[Host]] = []
    timeout_seconds: ClassVar[float] = 2.0

    def do_GET(self) -> None:
        body = page(self.hosts, self.timeout_seconds).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main(path: str) -> None:
    """Serve until somebody ends it."""
    task = json.loads(Path(path).read_text())
    Handler.hosts = [(name, address, port) for name, address, port in task["hosts"]]
    Handler.timeout_seconds = task["timeout"]
    ThreadingHTTPServer.request_queue_size = 1024
    ThreadingHTTPServer(("127.0.0.1", task["port"]), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
