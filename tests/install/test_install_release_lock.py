"""Two runs on one host: the second waits for the first, and then finds what that one made."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ansible")

MODULE = Path(__file__).parents[2] / "ansible-install/plugins/modules/gpumon_release.py"
RUN = """
import runpy, sys
from ansible.module_utils import basic
basic._ANSIBLE_ARGS = sys.argv[2].encode()
basic._ANSIBLE_PROFILE = "legacy"
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_a_run_waits_for_another_that_is_still_at_work_on_the_host(tmp_path: Path) -> None:
    release = tmp_path / "1.0-py3.11"
    parameters = {
        "archive": str(tmp_path / "none.tar"),
        "path": str(release),
        "version": "1.0",
        "python": sys.executable,
    }
    given = json.dumps({"ANSIBLE_MODULE_ARGS": parameters})
    root = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(root, fcntl.LOCK_EX)
        module = subprocess.Popen(
            [sys.executable, "-c", RUN, str(MODULE), given],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        end = time.monotonic() + 30
        while not is_open(module.pid, tmp_path):
            assert module.poll() is None, "it does not wait"
            assert time.monotonic() < end
            time.sleep(0.01)
        (release / "bin").mkdir(parents=True)
        (release / "bin/python").symlink_to(sys.executable)
        (release / "gpumon-release.json").write_text('{"extras": [], "version": "1.0"}')
    finally:
        os.close(root)
    out, _ = module.communicate(timeout=30)
    assert json.loads(out)["changed"] is False, out


def is_open(pid: int, folder: Path) -> bool:
    """Return whether a process has the folder open."""
    try:
        return any(os.readlink(fd) == str(folder) for fd in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
