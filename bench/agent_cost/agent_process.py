"""A real agent in a process of its own, and questions to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import time
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fake_nvml.scenario import calls

from agent_cost import children
from agent_cost.children import Trouble
from agent_cost.world import World

START_SECONDS = 30.0
SHORTEST_INTERVAL = 0.5
"""Seconds; what the configuration allows."""


class Agent:
    """A running agent."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, counts: Path) -> None:
        self.pid = process.pid
        self.port = port
        self._counts = counts

    def sampler_pid(self) -> int:
        """Return the pid of its sampler."""
        pids = children.child_pids(self.pid)
        if len(pids) != 1:
            raise Trouble(f"the agent has {len(pids)} children where one was expected")
        return pids[0]

    def samples(self) -> int:
        """Return how many samples were begun: each asks once for the number of GPUs."""
        counted = calls(self._counts)
        return sum(n for (name, _), n in counted.items() if name == "nvmlDeviceGetCount_v2")

    def get(self, path: str, **headers: str) -> bytes:
        """Return the body of an answer."""
        return self._ask("GET", path, b"", headers)

    def call(self, method: str, *parameters: Any) -> bytes:
        """Return the body of the answer to an XML-RPC call."""
        body = xmlrpc.client.dumps(parameters, method).encode()
        return self._ask("POST", "/RPC2", body, {"Content-Type": "text/xml"})

    def has_sample(self) -> bool:
        """Wait for the first sample; False when there was none in time."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                if json.loads(self.get("/healthz"))["ok"]:
                    return True
            time.sleep(0.05)
        return False

    def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body, headers)
            return connection.getresponse().read()
        finally:
            connection.close()


@contextlib.contextmanager
def agent(world: World, interval: float, command: list[str]) -> Iterator[Agent]:
    """Run an agent that has a sample, while the block lasts. Raises Trouble.

    `command` is completed with configuration and port.
    """
    counts = world.folder / "calls-agent"
    counts.unlink(missing_ok=True)
    config = world.folder / "config.yml"
    config.write_text(f"agent: {{sample_interval: {interval}}}\n")
    port = free_port()
    options = ["--config", str(config), "--rpc-port", str(port)]
    messages = world.folder / "agent.log"
    with (
        messages.open("wb") as log,
        children.running(
            [*command, *options],
            env=children.child_environment(world.scenario, counts),
            cwd=world.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        ) as process,
    ):
        running = Agent(process, port, counts)
        if not running.has_sample():
            said = messages.read_text(errors="replace").strip().splitlines()
            raise Trouble(
                f"the agent had no sample within {START_SECONDS:.0f} s; the last that it said: "
                f"{said[-1] if said else 'nothing'}"
            )
        yield running


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
