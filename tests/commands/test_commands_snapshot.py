"""`gpumon snapshot`: what it waits for is told to people, and what it costs to start."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands.running import Command
from fake_nvml.scenario import Scenario, environment, h100

pytestmark = pytest.mark.system


def _with_a_gpu_that_hangs(gpumon: Command, folder: Path) -> None:
    scenario = Scenario(gpus=[h100(0), h100(1)])
    scenario.hang("nvmlDeviceGetPowerUsage", gpu=1, forever=True)
    gpumon.env |= environment(scenario.write(folder / "scenario"))


def test_a_person_at_a_terminal_is_told_what_takes_so_long(gpumon: Command, tmp_path: Path) -> None:
    _with_a_gpu_that_hangs(gpumon, tmp_path)
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gpumon", "snapshot", "--json"],
            cwd=gpumon.folder,
            env=gpumon.env,
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=60,
        )
        said = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    line = r"gpumon: GPU 1 does not answer yet; waiting for up to 2\d s more\r\n"
    assert re.fullmatch(line, said), said
    errors = [gpu["error"] for gpu in json.loads(done.stdout)["gpus"]]
    assert errors[0] is None
    assert "GPU 1 was being read" in errors[1]


def test_nothing_of_that_gets_into_a_pipe(gpumon: Command, tmp_path: Path) -> None:
    _with_a_gpu_that_hangs(gpumon, tmp_path)
    done = gpumon("snapshot")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "GPU 1 was being read" in " ".join(done.stdout.split())


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("snapshot",)])
def test_what_it_does_not_need_is_not_imported(
    gpumon: Command, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    gpumon.env |= environment(Scenario(gpus=[h100(0)]).write(tmp_path / "scenario"))
    gpumon.env["PYTHONPROFILEIMPORTTIME"] = "1"
    done = gpumon(*arguments)
    assert done.returncode == 0, done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "gpumon.cli" in imported
    unneeded = {"asyncio", "logging", "psutil", "ssl", "yaml", "bottle"}
    if arguments != ("snapshot",):
        unneeded |= {"msgspec", "subprocess", "typing"}
    assert imported & unneeded == set()
