"""Thousands of agents in one process: one listener per kind of host, told apart by address.

`python agents.py` prints one JSON object {kind: port} and serves until its input ends. Host number
n is 127.A.B.C of `address(n)`, on the port of its kind. Listeners take connections to any loopback
address and, bound to the loopback device, none from elsewhere.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fleet_cost.answers import SAMPLE_SECONDS, Agent, answered, unchanged
from gpumon.http.xmlrpc import array, enveloped, string

VARIANTS = 16
"""So many different readings; hosts share them, but for their GPUs' UUIDs."""
DRIP_SECONDS = 0.05
GROWTH_BYTES = 256 * 1024
"""By this much the detail of a growing host is larger at each poll."""
BOMB_BYTES = 200 * 2**20
ENDLESS = b"x" * 65536

_SO_BINDTODEVICE = 25


def address(number: int) -> str:
    """Return the loopback address of host `number`, none of which is 127.0.0.x."""
    number += 1 << 8
    return f"127.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def number_of(host: str) -> int:
    """Return the number of the host with this address."""
    _, a, b, c = (int(part) for part in host.split("."))
    return (a << 16 | b << 8 | c) - (1 << 8)


class Behaviour(asyncio.Protocol):
    """One connection. Requests are taken apart by their length only; the poller's are ours."""

    def __init__(self) -> None:
        self._got = b""
        self.transport: asyncio.Transport
        self.host = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.host = number_of(transport.get_extra_info("sockname")[0])

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, end, body = self._got.partition(b"\r\n\r\n")
        if end:
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            if len(body) >= length:
                self._got = body[length:]
                self.asked(body[:length])

    def asked(self, call: bytes) -> None:
        """Answer a whole request; a host that hangs does not."""


class Healthy(Behaviour):
    """Answers poll(since) as an agent does: news after each sample, else "unchanged"."""

    agents: list[Agent] = []  # noqa: RUF012  shared by all connections, made once
    frozen = False
    """Whether a sample stays the newest for ever: every poll after the first is known already."""

    def asked(self, call: bytes) -> None:
        agent = self.agents[self.host % len(self.agents)]
        phase = self.host * 0.618 % SAMPLE_SECONDS
        sample = 0 if self.frozen else int((time.time() + phase) / SAMPLE_SECONDS)
        revision = b"%d-%d" % (self.host, sample)
        if b">" + revision + b"<" in call:
            self.transport.write(answered(unchanged(revision)))
        else:
            summary = agent.summary(self.host, sample * SAMPLE_SECONDS)
            self.transport.write(answered(agent.news(revision, summary)))


class Known(Healthy):
    """Never has news after the first answer."""

    frozen = True


class Growing(Healthy):
    """Its detail grows from poll to poll: a valid answer until it is over the limit."""

    sizes: dict[int, int] = {}  # noqa: RUF012

    def asked(self, call: bytes) -> None:
        size = self.sizes[self.host] = self.sizes.get(self.host, 0) + GROWTH_BYTES
        summary = self.agents[0].summary(self.host, time.time())
        detail = b"QUJD" * (size // 4)
        values = [string(value) for value in (b"%d" % size, summary, detail)]
        self.transport.write(answered(enveloped(array(values))))


class Garbage(Behaviour):
    """Something else listens: SSH, a web page, noise, or nothing at all, by number."""

    said = (
        b"SSH-2.0-OpenSSH_9.6\r\n",
        answered(b"<!DOCTYPE html><html><body>It works!</body></html>"),
        bytes(range(256)) * 8,
        b"",
        answered(b"<?xml version='1.0'?>\n<methodResponse>\n<params>\n<par"),
    )

    def asked(self, call: bytes) -> None:
        self.transport.write(self.said[self.host % len(self.said)])
        self.transport.close()


class Oversized(Behaviour):
    """A body without end, as fast as it is taken."""

    def asked(self, call: bytes) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/xml\r\n\r\n")
        self._more()

    def _more(self) -> None:
        if not self.transport.is_closing():
            if self.transport.get_write_buffer_size() < 4 * len(ENDLESS):
                self.transport.write(ENDLESS)
            asyncio.get_running_loop().call_later(0.001, self._more)


class Bomb(Behaviour):
    """A few hundred kilobytes that unpack to hundreds of megabytes."""

    packed = b""

    def asked(self, call: bytes) -> None:
        self.transport.write(answered(self.packed, b"content-encoding: gzip"))


class Drip(Behaviour):
    """A byte now and then: each read succeeds, and the answer never ends."""

    def asked(self, call: bytes) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        self._more()

    def _more(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"<")
            asyncio.get_running_loop().call_later(DRIP_SECONDS, self._more)


KINDS: dict[str, Callable[[], Behaviour]] = {
    "healthy": Healthy,
    "known": Known,
    "hung": Behaviour,
    "garbage": Garbage,
    "oversized": Oversized,
    "bomb": Bomb,
    "dripping": Drip,
    "growing": Growing,
}


def loopback_socket(backlog: int) -> socket.socket:
    """Return a listener on every loopback address that nobody else can reach."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, b"lo\0")
    listener.bind(("0.0.0.0", 0))
    listener.listen(backlog)
    return listener


def full_backlog() -> tuple[int, list[socket.socket]]:
    """Return the port of a listener whose queue is full, and what keeps it so.

    The kernel drops what arrives there, as a firewall would: the next one gets no answer at all.
    """
    deaf = loopback_socket(0)
    kept = [deaf]
    port = deaf.getsockname()[1]
    for _ in range(8):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", port))
        kept.append(client)
    return port, kept


def closed_port() -> tuple[int, socket.socket]:
    """Return a port that is taken and on which nothing listens: connections are refused."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, b"lo\0")
    holder.bind(("0.0.0.0", 0))
    return holder.getsockname()[1], holder


async def serve(kinds: list[str]) -> None:
    """Serve these kinds until standard input ends."""
    loop = asyncio.get_running_loop()
    ports, kept = {}, []
    for kind in kinds:
        if kind == "refused":
            ports[kind], holder = closed_port()
            kept.append(holder)
        elif kind == "blackholed":
            ports[kind], sockets = full_backlog()
            kept += sockets
        else:
            listener = loopback_socket(4096)
            await loop.create_server(KINDS[kind], sock=listener, backlog=4096)
            ports[kind] = listener.getsockname()[1]
    print(json.dumps(ports), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def main(kinds: list[str]) -> None:
    """Serve the kinds that the command line names."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if {"healthy", "known", "growing"} & set(kinds):
        Healthy.agents = [Agent(seed) for seed in range(VARIANTS)]
    if "bomb" in kinds:
        Bomb.packed = gzip.compress(bytes(BOMB_BYTES), 9)
    asyncio.run(serve(kinds))


if __name__ == "__main__":
    main(sys.argv[1:])
