"""A container runtime for the tests: the part of its API that is asked, on a real unix socket."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


class Engine:
    """What is running, and how the next questions are answered; `requests` has them all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.containers: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.answer: Answer = self.list
        self.release = threading.Event()
        """Lets an answer go on that waits."""

    def run(self, container_id: str, name: str, **labels: str) -> None:
        self.containers.append(
            {
                "Id": container_id,
                "Names": [f"/{name}"],
                "Image": "example/train",
                "State": "running",
                "Labels": labels,
                "Created": 1764280000,
            }
        )

    def list(self, handler: BaseHTTPRequestHandler) -> None:
        self.send(handler, json.dumps(self.containers).encode())

    def send(self, handler: BaseHTTPRequestHandler, body: bytes, status: int = 200) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


@contextmanager
def engine(path: Path) -> Iterator[Engine]:
    """Serve an engine on the socket `path` until the end of the block."""
    state = Engine(path)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append(self.requestline)
            state.answer(self)

        do_POST = do_DELETE = do_PUT = do_HEAD = do_GET

        def address_string(self) -> str:
            return "unix"

        def log_message(self, *_: object) -> None:
            pass

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass  # the other side may go at any time

    with Server(str(path), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield state
        finally:
            state.release.set()
            server.shutdown()
            serving.join()
