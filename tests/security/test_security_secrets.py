"""After a run with every kind of refusal, the token stands nowhere but in its file."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path

import pytest
from commands.running import Command, get, wait_until
from fake_nvml.scenario import Scenario, environment, h100

from gpumon.config.loader import load
from gpumon.http.auth import Tokens
from gpumon.http.doorman import Doorman

TOKENS = ("first-s3cret-token-0123456789", "second-s3cret-token-0123456789")
MISTYPED = "mistyped-s3cret-0123456789"
PAGES = (
    "/", "/status.json", "/status.txt", "/metrics", "/sd/prometheus", "/healthz",
    "/host/127.0.0.1", "/host/127.0.0.1.json", "/host/nobody", "/user/root", "/nothing",
)  # fmt: skip


def free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ask(port: int, method: str, path: str, authorization: str, body: bytes = b"") -> bytes:
    """Ask the agent; return headers and body of what it says."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        headers = {"Authorization": authorization, "Content-Type": "text/xml"}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return str(response.getheaders()).encode() + response.read()
    finally:
        connection.close()


def title(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/comm").read_bytes()


@pytest.mark.system
def test_no_log_page_answer_or_process_title_holds_a_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("\n".join(TOKENS) + "\n")
    token.chmod(0o600)
    rpc, web, dead = free(), free(), free()
    config = tmp_path / "config.yml"
    config.write_text(
        f"web_port: {web}\nrpc_port: {rpc}\npoll_interval: 0.5\ntoken_file: {token}\n"
        f"agent: {{bind: 127.0.0.1}}\nhosts: ['127.0.0.1:{rpc}', '127.0.0.1:{dead}']\n"
    )
    gpumon = Command(tmp_path)
    gpumon.env |= environment(Scenario(gpus=[h100(0)]).write(tmp_path / "scenario"))
    said: list[bytes] = []
    try:
        agent = gpumon.start("agent", "--config", str(config))
        server = gpumon.start("web", "--config", str(config))
        wait_until(
            lambda: json.loads(get(f"http://127.0.0.1:{web}/healthz"))["hosts_fresh"] == 1,
            "the page has its host",
        )
        right, wrong = f"Bearer {TOKENS[0]}", f"Bearer {MISTYPED}"
        for authorization in (right, wrong, f"Basic {MISTYPED}", MISTYPED):
            for path in ("/snapshot.json", "/metrics", "/healthz", "/nothing", "/RPC2"):
                said.append(ask(rpc, "GET", path, authorization))
            said.append(ask(rpc, "POST", "/RPC2", authorization, b"<methodCall><no"))
            said.append(ask(rpc, "POST", "/RPC2", authorization, b"\xff" * 100))
        said += [get(f"http://127.0.0.1:{web}{page}").encode() for page in PAGES]
        said += [get(f"http://127.0.0.1:{web}{page}", "text/html").encode() for page in PAGES]
        for command in (("check",), ("check", "--json"), ("doctor",), ("doctor", "--json")):
            done = gpumon(*command, "--config", str(config))
            said.append((done.stdout + done.stderr).encode())
        said += [title(agent.pid), title(server.pid)]
        for process in (agent, server):
            code, log = gpumon.stop(process)
            assert code == 0, log
            said.append(log.encode())
            assert "Traceback" not in log
    finally:
        gpumon.end_all()
    assert b"was refused: wrong token" in b"".join(said)
    for secret in (*TOKENS, MISTYPED, "s3cret"):
        assert secret.encode() not in b"".join(said), secret


def test_no_repr_holds_a_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("\n".join(TOKENS))
    path.chmod(0o600)
    config = tmp_path / "config.yml"
    config.write_text(f"token_file: {path}\n")
    tokens = Tokens.load(path)
    for thing in (tokens, Doorman("agent", tokens), load(str(config), environ={})):
        assert "s3cret" not in repr(thing) + str(thing)
