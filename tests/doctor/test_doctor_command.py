"""`gpumon doctor` as a person runs it: output, JSON, exit code, no secret."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest
from commands.running import Command, get, wait_until
from fake_nvml.scenario import Scenario, environment, h100

pytestmark = pytest.mark.system

TOKEN = "a-s3cret-token-that-nobody-may-see"


@pytest.fixture
def gpumon(tmp_path: Path):
    command = Command(tmp_path)
    yield command
    command.end_all()


def nvml(gpumon: Command, tmp_path: Path, scenario: Scenario) -> None:
    gpumon.env |= environment(scenario.write(tmp_path / "scenario"))


def rows(gpumon: Command, *arguments: str) -> tuple[int, dict[str, list[str]]]:
    """Return the exit code, and the levels of each check."""
    done = gpumon("doctor", "--json", *arguments)
    assert done.stderr == ""
    told = json.loads(done.stdout)
    found: dict[str, list[str]] = {}
    for row in told["findings"]:
        found.setdefault(row["check"], []).append(row["level"])
    assert told["ok"] == (done.returncode == 0)
    return done.returncode, found


def test_a_working_host_is_well_and_its_agents_port_is_asked(gpumon, tmp_path):
    nvml(gpumon, tmp_path, Scenario(gpus=[h100(0), h100(1)]))
    code, found = rows(gpumon, "--config", str(_config(tmp_path)))
    assert found["driver"] == ["ok"]
    assert found["agent"] == ["warning"]
    assert code == 0
    code, found = rows(gpumon, "--agent", "--config", str(_config(tmp_path)))
    assert (code, found["agent"]) == (1, ["fault"])


@pytest.mark.parametrize(("code", "word"), [(9, "driver"), (18, "reboot"), (4, "permission")])
def test_a_driver_that_can_not_be_used_is_a_fault_with_its_cure(gpumon, tmp_path, code, word):
    scenario = Scenario(gpus=[h100(0)])
    scenario.fail("nvmlInit", code)
    nvml(gpumon, tmp_path, scenario)
    done = gpumon("doctor")
    assert done.returncode == 1
    [line] = [line for line in done.stdout.splitlines() if line.startswith("fault")]
    assert "driver" in line
    assert word in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_driver_that_hangs_costs_its_own_line_in_time(gpumon, tmp_path):
    scenario = Scenario(gpus=[h100(0)])
    scenario.hang("nvmlInit", forever=True)
    nvml(gpumon, tmp_path, scenario)
    began = time.monotonic()
    code, found = rows(gpumon)
    assert time.monotonic() - began < 45
    assert (code, found["driver"], found["version"]) == (1, ["fault"], ["ok"])


def _config(tmp_path: Path, text: str = "") -> Path:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    path = tmp_path / "config.yml"
    path.write_text(f"token_file: {token}\nrpc_port: 1\nweb_port: 2\n{text}")
    return path


def test_a_broken_configuration_is_a_fault_and_the_rest_is_looked_at(gpumon, tmp_path):
    nvml(gpumon, tmp_path, Scenario(gpus=[h100(0)]))
    config = _config(tmp_path, "webb: {}\n")
    code, found = rows(gpumon, "--agent", "--config", str(config))
    assert (code, found["configuration"], found["driver"]) == (1, ["fault"], ["ok"])


def test_nothing_that_it_says_holds_the_token(gpumon, tmp_path):
    config = _config(tmp_path, "hosts: [self, '127.0.0.1:3']\n")
    for arguments in ((), ("--json",)):
        done = gpumon("doctor", "--agent", "--server", "--config", str(config), *arguments)
        assert done.returncode == 1
        assert TOKEN not in done.stdout + done.stderr


def test_agent_and_page_that_run_are_found_well(gpumon, tmp_path):

    def free() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            return port

    nvml(gpumon, tmp_path, Scenario(gpus=[h100(0)]))
    rpc, web = free(), free()
    config = _config(tmp_path, f"hosts: ['127.0.0.1:{rpc}']\n")
    text = config.read_text().replace("rpc_port: 1", f"rpc_port: {rpc}")
    config.write_text(text.replace("web_port: 2", f"web_port: {web}"))
    gpumon.start("up", "--config", str(config))
    wait_until(
        lambda: json.loads(get(f"http://127.0.0.1:{web}/healthz"))["hosts_fresh"] == 1,
        "the page has its host",
    )
    code, found = rows(gpumon, "--agent", "--server", "--config", str(config))
    assert found["agent"] == found["page"] == found["hosts"] == ["ok"]
    assert code == 0, found
