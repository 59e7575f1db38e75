"""What of a changed configuration a running daemon takes over by SIGHUP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.commands.reloadable import told
from gpumon.config.loader import load

BEFORE = "hosts: [gpu-01]\nweb: {title: GPUs}\n"


def between(tmp_path: Path, kind: str, old: str, new: str) -> dict[str, list[str]]:
    (tmp_path / "old").write_text(old)
    (tmp_path / "new").write_text(new)
    return told(
        kind,
        load(str(tmp_path / "old"), environ={}),
        load(str(tmp_path / "new"), environ={}),
    )


@pytest.mark.parametrize("kind", ["agent", "web"])
def test_another_layout_of_the_same_configuration_is_no_change(tmp_path: Path, kind: str) -> None:
    assert between(tmp_path, kind, BEFORE, "# same\nweb:\n  title: GPUs\nhosts:\n  - gpu-01\n") == {
        "changed": [],
        "restart": [],
    }


def test_another_host_and_a_drained_one_take_a_reload_of_the_server_and_nothing_of_an_agent(
    tmp_path: Path,
) -> None:
    after = "hosts: [{address: gpu-01, drained: true}, gpu-02]\nweb: {title: GPUs}\n"
    assert between(tmp_path, "web", BEFORE, after) == {"changed": ["hosts"], "restart": []}
    assert between(tmp_path, "agent", BEFORE, after) == {"changed": [], "restart": []}


def test_a_title_takes_a_restart_of_the_server_and_is_told_beside_what_does_not(
    tmp_path: Path,
) -> None:
    after = "hosts: [gpu-02]\nweb: {title: Other}\n"
    assert between(tmp_path, "web", BEFORE, after) == {
        "changed": ["web.title", "hosts"],
        "restart": ["web.title"],
    }


def test_what_only_the_agent_reads_is_the_agents_alone(tmp_path: Path) -> None:
    after = BEFORE + "agent: {sample_interval: 3, state_file: /x}\n"
    assert between(tmp_path, "web", BEFORE, after) == {"changed": [], "restart": []}
    assert between(tmp_path, "agent", BEFORE, after) == {
        "changed": ["agent.sample_interval", "agent.state_file"],
        "restart": ["agent.sample_interval"],
    }


def test_a_server_that_watches_its_own_machine_reads_the_agents_settings_too(
    tmp_path: Path,
) -> None:
    after = "agent: {sample_interval: 3}\nhosts: [self]\n"
    assert between(tmp_path, "web", "hosts: [self]\n", after)["restart"] == [
        "agent.sample_interval"
    ]


def test_the_first_token_takes_a_restart_of_an_agent_which_then_listens_elsewhere(
    tmp_path: Path,
) -> None:
    after = BEFORE + "token_file: /etc/gpumon/token\n"
    assert between(tmp_path, "agent", BEFORE, after)["restart"] == ["token_file"]
    assert between(tmp_path, "web", BEFORE, after)["restart"] == []


def test_a_configuration_with_a_fault_is_told_as_such_by_the_program(tmp_path: Path) -> None:
    (tmp_path / "old").write_text(BEFORE)
    (tmp_path / "new").write_text("web: {titel: x}\n")
    command = [sys.executable, "-I", "-m", "gpumon.commands.reloadable", "web"]
    files = [str(tmp_path / "old"), str(tmp_path / "new")]
    bad = subprocess.run([*command, *files], capture_output=True, text=True, timeout=30)
    assert bad.returncode == 1
    assert 'unknown key. Did you mean "title"' in bad.stderr
    good = subprocess.run([*command, files[0], files[0]], capture_output=True, text=True)
    assert json.loads(good.stdout) == {"changed": [], "restart": []}
