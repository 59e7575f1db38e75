"""The archive of wheels that the controller packs for the hosts."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "ansible-install/roles/gpumon/files/build_release.py"


def built(out: Path, *flags: str, source: Path = REPOSITORY) -> dict[str, Any]:
    done = run(out, *flags, source=source)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def run(out: Path, *flags: str, source: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(source), str(out), *flags],
        capture_output=True,
        text=True,
        timeout=110,
    )


@pytest.mark.system
def test_an_archive_holds_all_that_another_python_needs_and_is_made_once(tmp_path: Path) -> None:
    made = built(tmp_path, "--python", "3.10")
    with tarfile.open(made["archive"]) as archive:
        names = archive.getnames()
    wheels = {name.removeprefix("wheels/").partition("-")[0] for name in names}
    assert {"gpumon_cluster", "pip", "bottle", "httptools", "msgspec"} <= wheels
    assert "exceptiongroup" in wheels, (
        "only Python before 3.11 needs it, and the controller is newer"
    )
    assert "nvidia_ml_py" in wheels
    assert "pynvml" not in wheels, "another package brings a module of the same name"
    assert any("cp310" in name for name in names)
    assert not any("cp311" in name for name in names)
    again = built(tmp_path, "--python", "3.10")
    assert again == {**made, "changed": False}


def test_what_is_no_source_is_refused_in_a_sentence(tmp_path: Path) -> None:
    done = run(tmp_path / "out", "--python", "3.11", source=tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        f"{tmp_path} is neither a wheel of gpumon nor a folder with its source"
    )


def test_a_python_that_is_no_version_is_refused_in_a_sentence(tmp_path: Path) -> None:
    done = run(tmp_path / "out", "--python", "python3")
    assert done.returncode == 1
    assert 'expected something like 3.11, found "python3"' in done.stderr
