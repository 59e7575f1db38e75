"""The doctor that a run asks at its end: what fails a host, what is told, what waits."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from install.install_module import run_module

SHOWN = "Environment=A=1 B=2\nSupplementaryGroups=docker\nAmbientCapabilities=\n"


def finding(check: str, level: str, cure: str | None = None) -> dict[str, str | None]:
    return {"check": check, "level": level, "text": f"{check} {level}", "cure": cure}


def asked(
    tmp_path: Path, findings: list[dict[str, str | None]] | None, **parameters: Any
) -> dict[str, Any]:
    """Return what the module says; `findings` is what the doctor answers, None: nothing."""
    out = "nonsense" if findings is None else json.dumps({"ok": True, "findings": findings})
    programs = {
        "systemctl": f"cat <<EOF\n{SHOWN}EOF",
        "systemd-run": f'echo "$@" > {tmp_path}/command\ncat <<EOF\n{out}\nEOF',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    return run_module("gpumon_doctor", path_first=tmp_path, name="agent", **parameters)


def test_faults_are_told_with_their_cure_and_those_of_the_machine_apart(tmp_path: Path) -> None:
    told = asked(
        tmp_path,
        [
            finding("version", "ok"),
            finding("token", "fault", "Make it readable"),
            finding("driver", "fault", "Reboot"),
            finding("clock", "warning", "Install chrony"),
        ],
        later=["driver", "gpu"],
    )
    assert told["faults"] == ["token: token fault -> Make it readable"]
    assert told["later"] == ["driver: driver fault -> Reboot"]
    assert told["warnings_told"] == ["clock: clock warning -> Install chrony"]
    assert told["changed"] is False


def test_the_doctor_sees_the_host_as_the_service_does(tmp_path: Path) -> None:
    asked(tmp_path, [])
    command = (tmp_path / "command").read_text()
    assert "-p User=gpumon -p Group=gpumon" in command
    assert "-p Environment=A=1 B=2 -p SupplementaryGroups=docker " in command
    assert "AmbientCapabilities" not in command, "what the unit does not have is not asked for"
    assert "-m gpumon doctor --agent --json" in command


def test_a_release_without_a_doctor_fails_no_host(tmp_path: Path) -> None:
    told = asked(tmp_path, None)
    assert told["faults"] == []
    [words] = told["warnings_told"]
    assert "gives no answer (nonsense) -> Run it by hand: sudo -u gpumon gpumon doctor" in words


def test_check_mode_asks_nobody(tmp_path: Path) -> None:
    assert asked(tmp_path, [finding("token", "fault")], check=True)["faults"] == []
    assert not (tmp_path / "command").exists()


@pytest.mark.system
def test_the_real_doctor_is_understood(tmp_path: Path) -> None:
    """Without systemd: a systemd-run that runs what follows its options."""
    (tmp_path / "agent/bin").mkdir(parents=True)
    python = tmp_path / "agent/bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    run = '#!/bin/sh\nwhile [ "$1" != PYTHON ]; do shift; done\nexec "$@"\n'
    (tmp_path / "systemd-run").write_text(run.replace("PYTHON", str(python)))
    (tmp_path / "systemctl").write_text("#!/bin/sh\nexit 1\n")
    for path in (python, tmp_path / "systemd-run", tmp_path / "systemctl"):
        path.chmod(0o755)
    (tmp_path / "config.yml").write_text("rpc_port: 1\n")
    told = run_module(
        "gpumon_doctor", path_first=tmp_path, name="agent", etc=str(tmp_path), root=str(tmp_path)
    )
    [words] = [words for words in told["faults"] if words.startswith("agent: ")]
    assert "nothing listens" in words
    assert "systemctl start gpumon-agent" in words
