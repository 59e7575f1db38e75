"""SIGHUP for a real `gpumon web` over real agents: the hosts that stay notice nothing of it."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands.running import Command, get, wait_until
from commands.wiretap import Wiretap
from fake_nvml.scenario import Scenario, environment, h100

pytestmark = pytest.mark.system

INTERVAL = 2.0


class Cluster:
    """A server, and two agents behind wiretaps."""

    def __init__(self, gpumon: Command, folder: Path, free_port: Callable[[], int]) -> None:
        self.gpumon = gpumon
        self.folder = folder
        self.web = free_port()
        gpumon.env |= environment(Scenario(gpus=[h100(0)]).write(folder / "scenario"))
        self.tokens("agent-tokens", "first", "second")
        self.tokens("server-token", "first")
        self.taps = [self._agent(name, free_port()) for name in "ab"]
        self.server: subprocess.Popen[str] | None = None

    def tokens(self, name: str, *lines: str) -> None:
        path = self.folder / name
        path.write_text("".join(f"{line}\n" for line in lines))
        path.chmod(0o600)

    def _agent(self, name: str, port: int) -> Wiretap:
        (self.folder / f"{name}.yml").write_text(
            f"rpc_port: {port}\ntoken_file: agent-tokens\n"
            "agent: {bind: 127.0.0.1, sample_interval: 1}\n"
        )
        self.gpumon.start("agent", "--config", f"{name}.yml")
        return Wiretap(port)

    def entry(self, number: int, **more: object) -> dict[str, object]:
        name = "ab"[number]
        return {"name": name, "address": f"127.0.0.1:{self.taps[number].port}", **more}

    def configure(self, *hosts: object, more: str = "") -> None:
        (self.folder / "web.yml").write_text(
            f"web_port: {self.web}\npoll_interval: {INTERVAL}\ntoken_file: server-token\n"
            f"hosts: {json.dumps(hosts)}\n{more}"
        )

    def start(self) -> None:
        self.server = self.gpumon.start("web", "--config", "web.yml")

    def hosts(self) -> dict[str, dict[str, Any]]:
        answer = json.loads(get(f"http://127.0.0.1:{self.web}/status.json"))
        return {host["name"]: host for host in answer["hosts"]}

    def reload(self) -> None:
        """Send SIGHUP in the middle between two polls of the first host, and wait for its word."""
        assert self.server is not None
        assert self.server.stderr is not None
        count = len(self.taps[0].requests)
        wait_until(lambda: len(self.taps[0].requests) > count, "it is polled")
        time.sleep(INTERVAL / 2)  # no wait for a state: the moment is what is tested
        self.server.send_signal(signal.SIGHUP)
        while "reload:" not in (line := self.server.stderr.readline()):
            assert line, "the server ended"
        assert "reload: done" in line
        wait_until(lambda: len(self.taps[0].requests) > count + 1, "it is polled again")


@pytest.fixture
def cluster(gpumon: Command, tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Cluster]:
    cluster = Cluster(gpumon, tmp_path, free_port)
    yield cluster
    for tap in cluster.taps:
        tap.close()


def test_a_host_that_stays_keeps_its_connection_and_its_turn_over_every_reload(
    cluster: Cluster,
) -> None:
    first, second = cluster.taps
    cluster.configure(cluster.entry(0))
    cluster.start()
    wait_until(lambda: cluster.hosts()["a"]["state"] == "fresh", "the host is fresh")
    wait_until(lambda: len(first.requests) >= 2, "its connection has settled")
    begin, settled = len(first.requests), first.requests[-1].connection

    cluster.reload()  # nothing has changed

    cluster.configure(cluster.entry(1), cluster.entry(0, labels={"room": "b12"}, drained=True))
    cluster.reload()
    wait_until(lambda: cluster.hosts().get("b", {}).get("state") == "fresh", "the new one is read")
    row = cluster.hosts()["a"]
    assert (row["labels"], row["gpus"][0]["state"]) == ({"room": "b12"}, "drained")

    cluster.configure(cluster.entry(0), more="rpc_timeout: 1.5\nlimits: {used_percent: 10}\n")
    cluster.reload()
    assert list(cluster.hosts()) == ["a"]
    wait_until(lambda: second.closed >= second.connections, "the one that went is let go")
    gone = len(second.requests)

    cluster.tokens("server-token", "second")
    cluster.reload()

    asked = first.requests[begin:]
    assert {request.connection for request in asked} == {settled}
    assert settled not in first.closed
    turns = [later.at - earlier.at for earlier, later in itertools.pairwise(asked)]
    assert min(turns) > 0.75 * INTERVAL, turns
    assert (asked[0].token, asked[-1].token) == ("first", "second")
    assert len(second.requests) == gone


def test_a_configuration_that_can_not_be_used_disturbs_nobody_and_costs_one_line(
    cluster: Cluster,
) -> None:
    [first, second] = cluster.taps
    cluster.configure(cluster.entry(0))
    cluster.start()
    wait_until(lambda: cluster.hosts()["a"]["state"] == "fresh", "the host is fresh")
    settled = first.requests[-1].connection

    # All of it would be fine but for the file of its tokens, which is looked at among the last.
    cluster.configure(cluster.entry(1), more="web: {push_token_file: missing}\n")
    assert cluster.server is not None
    assert cluster.server.stderr is not None
    cluster.server.send_signal(signal.SIGHUP)
    while "reload" not in (line := cluster.server.stderr.readline()):
        assert line, "the server ended"
    assert "web.push_token_file" in line
    assert "missing does not exist" in line
    assert line.endswith("The configuration of before stays in use\n")

    count = len(first.requests)
    wait_until(lambda: len(first.requests) > count + 1, "the host is polled on")
    assert {request.connection for request in first.requests} == {settled}
    assert (list(cluster.hosts()), second.requests) == (["a"], [])
    code, said = cluster.gpumon.stop(cluster.server)
    assert (code, "reload" in said) == (0, False)
