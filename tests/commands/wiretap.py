"""A TCP relay before a real agent: what the agent sees of connections and requests, and when."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from typing import NamedTuple


class Request(NamedTuple):
    """One request that went to the agent."""

    at: float
    """Monotonic."""
    connection: int
    """Which of the connections, from 0."""
    token: str | None


class Wiretap:
    """Passes everything on to 127.0.0.1:`port`. `port` of its own is where to connect to."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests: list[Request] = []
        self.closed: set[int] = set()
        """The connections that have ended."""
        self._count = 0
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> set[int]:
        """The connections over which anything was asked."""
        return {request.connection for request in self.requests}

    def close(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                try:
                    agent = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    client.close()  # the agent is not there yet
                    continue
                self._sockets.append(agent)
                number, self._count = self._count, self._count + 1
                threading.Thread(target=self._up, args=(client, agent, number), daemon=True).start()
                threading.Thread(target=_pass_on, args=(agent, client), daemon=True).start()

    def _up(self, client: socket.socket, agent: socket.socket, number: int) -> None:
        _pass_on(client, agent, lambda data: self._note(data, number))
        self.closed.add(number)

    def _note(self, data: bytes, number: int) -> None:
        if data.startswith(b"POST "):
            token = re.search(rb"(?i)^authorization: bearer (\S+)", data, re.MULTILINE)
            self.requests.append(
                Request(time.monotonic(), number, None if token is None else token[1].decode())
            )


def _pass_on(one: socket.socket, other: socket.socket, seen=lambda data: None) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            seen(data)
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_RDWR)
