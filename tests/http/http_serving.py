"""Real servers for tests: `running(...)` serves WSGI applications until its block ends."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpumon.http.server import Site, open_sockets, serve


@contextmanager
def running(*sites: Site) -> Iterator[list[int]]:
    """Serve `sites` on their sockets; yields the port of each. Fails when `serve` fails."""
    ports = [int(open_sockets(site)[0].rpartition(":")[2]) for site in sites]
    ready = threading.Event()
    failures: list[BaseException] = []
    handles: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        shutdown = asyncio.Event()
        handles.append((asyncio.get_running_loop(), shutdown))
        ready.set()
        await serve(list(sites), shutdown)

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(10)
        yield ports
    finally:
        for loop, shutdown in handles:
            if thread.is_alive():
                loop.call_soon_threadsafe(shutdown.set)
        thread.join(15)
        assert not thread.is_alive(), "the server did not stop"
    assert not failures, failures


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Return whether `condition` came true within `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def connect(port: int, timeout: float = 10.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout)


def get(
    port: int, path: str = "/", method: str = "GET", body: bytes | None = None, **headers: str
) -> http.client.HTTPResponse:
    """Ask once over a connection of its own; the body is read (`.body`)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        response = connection.getresponse()
        response.body = response.read()  # type: ignore[attr-defined]
        return response
    finally:
        connection.close()


def exchange(port: int, request: bytes, timeout: float = 10.0) -> bytes:
    """Send raw bytes; return everything that comes until the other side closes."""
    with connect(port, timeout) as client:
        client.sendall(request)
        received = bytearray()
        try:
            while chunk := client.recv(65536):
                received += chunk
        except ConnectionResetError:
            pass
        return bytes(received)
