"""`gpumon export`: web-gpu-monitor's files, written by cron beside its old ones."""

from __future__ import annotations

import csv
import stat
from pathlib import Path

import pytest
from commands.running import Command
from fake_nvml.scenario import Scenario, environment, h100, rtx

pytestmark = pytest.mark.system


def test_one_round_writes_both_files_and_a_silent_host_is_named(
    gpumon: Command, tmp_path: Path
) -> None:
    gpumon.env |= environment(Scenario(gpus=[h100(0), rtx(1)]).write(tmp_path / "scenario"))
    (tmp_path / "config.yml").write_text(
        "rpc_timeout: 1\nhosts:\n  - {name: here, address: self}\n  - 127.0.0.1:1\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    done = gpumon("export", "--html", str(out), "--csv", str(out / "load_data.csv"))
    assert done.returncode == 0, done.stderr
    told = list(csv.DictReader((out / "load_data.csv").read_text().splitlines()))
    assert [(row["hostname"], row["gpu_idx"]) for row in told] == [("here", "0"), ("here", "1")]
    page = (out / "index.html").read_text()
    assert "H100" in page
    assert "refused" in page
    assert sorted(path.name for path in out.iterdir()) == ["index.html", "load_data.csv"]
    assert stat.S_IMODE((out / "index.html").stat().st_mode) == 0o644


def test_a_folder_that_is_missing_is_one_sentence(gpumon: Command, tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_text("rpc_timeout: 1\nhosts: [127.0.0.1:1]\n")
    done = gpumon("export", "--html", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "No such file or directory. Make its folder first" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_file_to_write_it_says_what_it_takes(gpumon: Command) -> None:
    done = gpumon("export")
    assert done.returncode == 1
    assert "--html DIRECTORY or --csv FILE" in done.stderr


def test_a_host_that_pushes_is_not_waited_for(gpumon: Command, tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_text("hosts: ['push://gpu-09']\n")
    done = gpumon("export", "--html", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "gpu-09" in (tmp_path / "index.html").read_text()
