"""The script behind `make test-gpu`, on the fake driver: it finds agreement and differences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fake_nvml.scenario import Scenario, environment, h100, rtx

pytestmark = pytest.mark.system

FOLDER = Path(__file__).parent


def _environment(tmp_path: Path, theirs: Scenario) -> dict[str, str]:
    """Return one with two GPUs and no CUDA device, where nvidia-smi is a stand-in on `theirs`."""
    env = environment(Scenario(gpus=[h100(0), rtx(1)]).write(tmp_path / "scenario"))
    other = theirs.write(tmp_path / "theirs")
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(
        f"#!/bin/sh\nexport FAKE_NVML_SCENARIO='{other}'\n"
        f'exec "{sys.executable}" "{FOLDER / "nvidia_smi.py"}" "$@"\n'
    )
    smi.chmod(0o755)
    env["PATH"] = f"{smi.parent}:{env['PATH']}"
    return env


def _check(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / "check.py")],
        env=env,
        capture_output=True,
        text=True,
        timeout=110,
    )


def _differences(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if "DIFFERS" in line]


def test_where_both_agree_only_the_missing_load_is_a_difference(tmp_path: Path) -> None:
    done = _check(_environment(tmp_path, Scenario(gpus=[h100(0), rtx(1)])))
    assert _differences(done) == ["- DIFFERS: a CUDA load runs: none could be started"], done.stdout
    assert done.returncode == 1  # no load could be checked, so not all is shown to hold
    assert "| 0 | memory_total_mib | 81559 | 81559 | ok |" in done.stdout
    assert "| 0 | fan_speed_percent | unknown: not supported | [N/A] | ok |" in done.stdout
    assert "| 1 | fan_speed_percent | 30 | 30 | ok |" in done.stdout
    assert "SIGTERM ends it with exit 0" in done.stdout


def test_each_field_that_differs_is_named(tmp_path: Path) -> None:
    theirs = Scenario(gpus=[h100(0), rtx(1)])
    theirs.gpus[0]["name"] = "NVIDIA A100 80GB HBM3"
    theirs.gpus[0]["temperature"] = 50
    del theirs.gpus[1]["fan_speed"]
    done = _check(_environment(tmp_path, theirs))
    assert _differences(done)[1:] == [
        "| 0 | name | NVIDIA H100 80GB HBM3 | NVIDIA A100 80GB HBM3 | **DIFFERS** |",
        "| 0 | temperature_celsius | 31 | 50 | **DIFFERS** |",
        "| 1 | fan_speed_percent | 30 | [N/A] | **DIFFERS** |",
    ], done.stdout
    assert done.returncode == 1


def test_a_machine_without_nvidia_smi_is_told_so(tmp_path: Path) -> None:
    done = _check({"PATH": str(tmp_path)})
    assert done.returncode == 2
    assert "names no GPU" in done.stderr
    assert "Traceback" not in done.stderr
