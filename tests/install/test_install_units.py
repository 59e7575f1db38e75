"""The units of systemd: hardened, figure recorded, and open where the agent's work needs it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROLES = Path(__file__).parents[2] / "ansible-install" / "roles"
AGENT = ROLES / "gpumon_agent" / "files" / "gpumon-agent.service"
WEB = ROLES / "gpumon_web" / "files" / "gpumon-web.service"

EXPOSURE = {AGENT: 2.2, WEB: 1.1}
"""By `systemd-analyze security` of systemd 252: 0 is closed, 10 is open. May only fall."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def lines(unit: Path) -> list[str]:
    return [line for line in unit.read_text().splitlines() if line and line[0] not in "#["]


def settings(unit: Path, name: str) -> list[str]:
    return [line.partition("=")[2] for line in lines(unit) if line.startswith(f"{name}=")]


@needs_systemd
@pytest.mark.parametrize("unit", EXPOSURE, ids=lambda unit: unit.stem)
def test_the_exposure_of_a_service_does_not_rise(unit: Path) -> None:
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    figure = re.search(r"Overall exposure level for \S+: ([\d.]+)", told.stdout)
    assert figure is not None, told.stdout + told.stderr
    assert float(figure[1]) <= EXPOSURE[unit]


@needs_systemd
@pytest.mark.parametrize("unit", EXPOSURE, ids=lambda unit: unit.stem)
def test_systemd_finds_no_fault_in_a_unit(unit: Path, tmp_path: Path) -> None:
    there = tmp_path / unit.name
    there.write_text(re.sub(r"/opt/gpumon/\w+/bin/python", "/bin/true", unit.read_text()))
    told = subprocess.run(
        ["systemd-analyze", "verify", str(there)], capture_output=True, text=True, timeout=30
    )
    about_it = [line for line in told.stderr.splitlines() if unit.name in line]
    assert about_it == []


def test_the_agent_reaches_the_gpus_other_peoples_processes_and_the_kernel_log() -> None:
    devices = settings(AGENT, "DeviceAllow")
    for node in ("/dev/char/195:255 rw", "/dev/char/195:0 rw", "char-nvidia* rw", "/dev/kmsg r"):
        assert node in devices
    assert settings(AGENT, "AmbientCapabilities") == ["CAP_SYS_PTRACE CAP_SYSLOG"]
    for hiding in (
        "PrivateDevices",
        "ProtectProc",
        "ProcSubset",
        "PrivateUsers",
        "ProtectKernelLogs",
    ):
        assert settings(AGENT, hiding) == [], hiding
    assert "AF_UNIX" in settings(AGENT, "RestrictAddressFamilies")[0], "accounts may be in a daemon"


def test_what_is_not_closed_has_its_reason_beside_it() -> None:
    every = {line.partition("=")[0] for line in lines(WEB)} | {"ProtectKernelLogs"}
    hardening = {name for name in every if name.startswith(("Private", "Protect", "ProcSubset"))}
    for unit in (AGENT, WEB):
        text = unit.read_text()
        for name in sorted(hardening | {"PrivateNetwork", "IPAddressDeny", "RootDirectory"}):
            reason = re.search(rf"^# Missing: (?:[^\n]*\b)?{name}=", text, re.MULTILINE)
            assert settings(unit, name) or reason, f"{name} in {unit.name}"


@pytest.mark.parametrize("unit", EXPOSURE, ids=lambda unit: unit.stem)
def test_a_service_is_restarted_without_end_and_with_a_pause(unit: Path) -> None:
    assert settings(unit, "StartLimitIntervalSec") == ["0"]
    assert settings(unit, "Restart") == ["always"]
    assert float(settings(unit, "RestartSec")[0]) >= 1


@pytest.mark.parametrize("unit", EXPOSURE, ids=lambda unit: unit.stem)
def test_systemd_hears_of_readiness_and_of_life(unit: Path) -> None:
    assert settings(unit, "Type") == ["notify"]
    assert float(settings(unit, "WatchdogSec")[0]) >= 30


@pytest.mark.parametrize("unit", EXPOSURE, ids=lambda unit: unit.stem)
def test_no_secret_stands_in_a_unit(unit: Path) -> None:
    assert not re.search(r"token|password|secret", " ".join(lines(unit)), re.IGNORECASE)
