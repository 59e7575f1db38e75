"""Real processes: an agent that pushes to `gpumon web`, and SIGHUP for both of them."""

from __future__ import annotations

import json
import signal
import subprocess
import xmlrpc.client
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from commands.running import Command, get, wait_until
from fake_nvml.scenario import Scenario, environment, h100

pytestmark = pytest.mark.system


class Site:
    """A server in one folder and an agent that pushes to it in another."""

    def __init__(self, gpumon: Command, tmp_path: Path, free_port: Callable[[], int]) -> None:
        self.gpumon = gpumon
        self.folder = tmp_path
        self.web, self.rpc = free_port(), free_port()
        self.base = f"http://127.0.0.1:{self.web}"
        gpumon.env |= environment(Scenario(gpus=[h100(0)]).write(tmp_path / "scenario"))
        self.tokens("push-tokens", "gpu-09 first-token")
        self.tokens("agent-token", "first-token")

    def tokens(self, name: str, *lines: str) -> None:
        path = self.folder / name
        path.write_text("".join(f"{line}\n" for line in lines))
        path.chmod(0o600)

    def configure_server(self, *hosts: str, more: str = "") -> None:
        (self.folder / "server.yml").write_text(
            f"web_port: {self.web}\npoll_interval: 1\nhosts: {json.dumps(hosts)}\n"
            f"web: {{push_token_file: push-tokens{more}}}\n"
        )

    def configure_agent(self, more: str = "") -> None:
        (self.folder / "agent.yml").write_text(
            f"rpc_port: {self.rpc}\ntoken_file: agent-token\n"
            f"agent: {{bind: 127.0.0.1, sample_interval: 1, push_as: gpu-09{more}}}\n"
        )

    def start_server(self) -> subprocess.Popen[str]:
        return self.gpumon.start("web", "--config", "server.yml")

    def start_agent(self) -> subprocess.Popen[str]:
        return self.gpumon.start("agent", "--config", "agent.yml", "--push", self.base)

    def start_agent_alone(self) -> subprocess.Popen[str]:
        return self.gpumon.start("agent", "--config", "agent.yml")

    def hosts(self) -> dict[str, dict[str, Any]]:
        return {host["name"]: host for host in json.loads(get(f"{self.base}/status.json"))["hosts"]}

    def state(self, host: str) -> str:
        return str(self.hosts().get(host, {}).get("state"))


@pytest.fixture
def site(gpumon: Command, tmp_path: Path, free_port: Callable[[], int]) -> Site:
    return Site(gpumon, tmp_path, free_port)


def test_an_agent_that_no_server_can_reach_is_shown_and_survives_a_restart_of_the_server(
    site: Site,
) -> None:
    site.configure_server("push://gpu-09")
    site.configure_agent()
    server = site.start_server()
    wait_until(lambda: site.state("gpu-09") == "never", "the page is there")
    agent = site.start_agent()
    wait_until(lambda: site.state("gpu-09") == "fresh", "the pushed host is fresh")
    host = site.hosts()["gpu-09"]
    assert host["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"
    detail = json.loads(get(f"{site.base}/host/gpu-09.json"))["detail"]
    assert detail["gpus"][0]["memory_total_mib"] == 81559

    code, said = site.gpumon.stop(server)
    assert code == 0
    again = site.start_server()
    wait_until(lambda: site.state("gpu-09") == "fresh", "it is fresh again")

    code, agent_said = site.gpumon.stop(agent)
    assert code == 0
    wait_until(lambda: site.state("gpu-09") == "stale", "its silence is seen")
    assert site.hosts()["gpu-09"]["reason_kind"] == "silent"
    code, more = site.gpumon.stop(again)
    assert code == 0
    for text in (said, agent_said, more):
        assert "first-token" not in text
        assert "Traceback" not in text


def test_sighup_adds_and_removes_hosts_and_keeps_what_is_known_of_the_others(site: Site) -> None:
    site.configure_server("push://gpu-09", "push://gpu-10")
    site.configure_agent()
    server, agent = site.start_server(), site.start_agent()
    wait_until(lambda: site.state("gpu-09") == "fresh", "the pushed host is fresh")
    site.gpumon.stop(agent)
    before = site.hosts()["gpu-09"]["answered_at"]

    site.configure_server("push://gpu-11", "push://gpu-09", "self", more=", title: New")
    server.send_signal(signal.SIGHUP)
    wait_until(lambda: list(site.hosts()) == ["gpu-11", "gpu-09", "self"], "the hosts changed")
    host = site.hosts()["gpu-09"]
    assert host["answered_at"] >= before
    assert len(host["gpus"]) == 1
    assert host["age_seconds"] is not None
    wait_until(lambda: site.state("self") == "fresh", "this machine is sampled now")

    (site.folder / "server.yml").write_text("web_port: 1\nhosts: [a b]\npoll_intervall: 5\n")
    server.send_signal(signal.SIGHUP)
    said = read_until(server, "The configuration of before stays in use")
    assert "reload: web.title has changed, which takes a restart" in said
    assert "poll_intervall: unknown key" in said
    assert "hosts[0]: expected a host" in said
    assert list(site.hosts()) == ["gpu-11", "gpu-09", "self"]

    # A sound configuration with a token file that can't be used changes nothing either.
    site.configure_server("push://gpu-12")
    site.tokens("push-tokens", "# nobody")
    server.send_signal(signal.SIGHUP)
    said += read_until(server, "The configuration of before stays in use")
    assert "holds no token" in said
    assert list(site.hosts()) == ["gpu-11", "gpu-09", "self"]

    site.tokens("push-tokens", "gpu-12 another")
    server.send_signal(signal.SIGHUP)
    wait_until(lambda: list(site.hosts()) == ["gpu-12"], "a sound configuration is taken")
    code, rest = site.gpumon.stop(server)
    assert code == 0
    assert "Traceback" not in said + rest


def test_the_first_host_over_ssh_is_added_by_sighup_once_its_key_can_be_used(site: Site) -> None:
    site.configure_server("push://gpu-09")
    server = site.start_server()
    wait_until(lambda: list(site.hosts()) == ["gpu-09"], "the page is there")
    site.configure_server("push://gpu-09", "ssh://nobody@127.0.0.1:1")
    ssh = f"ssh: {{key_file: {site.folder}/id, known_hosts: {site.folder}/known}}\n"
    with (site.folder / "server.yml").open("a") as config:
        config.write(ssh)

    server.send_signal(signal.SIGHUP)
    said = read_until(server, "The configuration of before stays in use")
    assert "ssh.key_file" in said
    assert list(site.hosts()) == ["gpu-09"]

    (site.folder / "known").write_text("")
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(site.folder / "id"))
    (site.folder / "id").chmod(0o600)
    server.send_signal(signal.SIGHUP)
    wait_until(lambda: list(site.hosts()) == ["gpu-09", "127.0.0.1"], "it is taken now")
    code, rest = site.gpumon.stop(server)
    assert code == 0
    assert "Traceback" not in said + rest


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """Return what a daemon says up to a line with `words`; the test's own timeout bounds it."""
    assert process.stderr is not None
    said = ""
    while words not in said:
        line = process.stderr.readline()
        assert line, f"it ended without a word of {words!r}: {said}"
        said += line
    return said


def test_sighup_gives_agent_and_server_new_tokens_without_a_restart(site: Site) -> None:
    site.configure_server("push://gpu-09")
    site.configure_agent()
    server, agent = site.start_server(), site.start_agent()
    wait_until(lambda: site.state("gpu-09") == "fresh", "the pushed host is fresh")

    site.tokens("push-tokens", "gpu-09 second-token")
    server.send_signal(signal.SIGHUP)
    wait_until(lambda: site.hosts()["gpu-09"]["reason_kind"] == "wrong token", "it is refused")
    site.tokens("agent-token", "second-token")
    site.configure_agent(", owner_rules: [{home_mount: true}]")
    agent.send_signal(signal.SIGHUP)
    wait_until(lambda: site.state("gpu-09") == "fresh", "it is taken again")

    def health(token: str) -> Any:
        with xmlrpc.client.ServerProxy(f"http://x:{token}@127.0.0.1:{site.rpc}") as rpc:
            return rpc.health()

    with pytest.raises(xmlrpc.client.ProtocolError, match="401"):
        health("first-token")
    assert health("second-token")["restarts"] == 0
    wait_until(lambda: health("second-token")["sample_age_seconds"] < 1.5, "samples go on")

    (site.folder / "agent.yml").write_text(f"rpc_port: {site.rpc + 1}\ntoken_file: agent-token\n")
    agent.send_signal(signal.SIGHUP)
    said = read_until(agent, "rpc_port has changed, which takes a restart")
    assert "reload: done" in said
    assert health("second-token")["ok"] is True
    code, rest = site.gpumon.stop(agent)
    assert code == 0
    assert "Traceback" not in said + rest


def test_a_push_without_a_token_does_not_start(site: Site) -> None:
    (site.folder / "agent.yml").write_text("agent: {bind: 127.0.0.1}\n")
    ended = site.gpumon("agent", "--config", "agent.yml", "--push", site.base)
    assert ended.returncode == 2
    assert "needs a token" in ended.stderr


def test_a_server_that_was_restarted_knows_when_a_silent_host_answered_last(site: Site) -> None:
    site.configure_server("push://gpu-09", more=", state_file: seen.json")
    site.configure_agent()
    server, agent = site.start_server(), site.start_agent()
    wait_until(lambda: site.state("gpu-09") == "fresh", "the pushed host is fresh")
    site.gpumon.stop(agent)
    answered = site.hosts()["gpu-09"]["answered_at"]
    code, _ = site.gpumon.stop(server)
    assert code == 0
    site.start_server()
    wait_until(lambda: site.state("gpu-09") == "stale", "what it knew is there")
    host = site.hosts()["gpu-09"]
    assert host["answered_at"] == pytest.approx(answered, abs=2)
    assert "answered last" in host["notes"][0]


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ("agent: {bind: 127.0.0.1, push: 'https://gpus.example.org'}\n", "needs a token"),
        (
            "token_file: agent-token\ntls: {ca: nowhere.pem}\n"
            "agent: {bind: 127.0.0.1, push: 'https://gpus.example.org'}\n",
            "tls.ca",
        ),
        ("tls: {cert: no.pem, key: no.pem}\n", "tls.cert"),
        ("token_file: nowhere\n", "nowhere does not exist"),
    ],
)
def test_an_agent_refuses_whole_what_it_could_not_start_with(
    site: Site, config: str, fault: str
) -> None:
    (site.folder / "agent.yml").write_text(f"rpc_port: {site.rpc}\nagent: {{bind: 127.0.0.1}}\n")
    agent = site.start_agent_alone()
    with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{site.rpc}") as rpc:
        wait_until(lambda: rpc.health()["sample_age_seconds"] is not None, "it samples")
        # What else it says could be taken over: nothing of it may be.
        (site.folder / "agent.yml").write_text(
            f"rpc_port: {site.rpc}\n{config}".replace("agent: {", "agent: {state_file: other, ")
        )
        agent.send_signal(signal.SIGHUP)
        said = read_until(agent, "The configuration of before stays in use")
        assert fault in said.splitlines()[-1]
        assert sum("reload" in line for line in said.splitlines()) == 1
        assert rpc.health()["restarts"] == 0
    code, rest = site.gpumon.stop(agent)
    assert code == 0
    assert "reload" not in rest
    assert not (site.folder / "other").exists()
