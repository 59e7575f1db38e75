"""Runs a module of the playbook as Ansible does, without Ansible's seconds of setting out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODULES = Path(__file__).parents[2] / "ansible-install/plugins/modules"
RUN = """
import json, runpy, sys
from ansible.module_utils import basic
basic._ANSIBLE_ARGS = sys.argv[2].encode()
basic._ANSIBLE_PROFILE = "legacy"
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def run_module(
    module: str,
    /,
    *,
    check: bool = False,
    path_first: Path | None = None,
    preexec: Callable[[], None] | None = None,
    **parameters: Any,
) -> dict[str, Any]:
    """Return what the module answers; `path_first` is a folder of programs that come first."""
    arguments = {**parameters, "_ansible_check_mode": check, "_ansible_diff": True}
    env = dict(os.environ)
    if path_first is not None:
        env["PATH"] = f"{path_first}:{env['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(MODULES / f"{module}.py"),
         json.dumps({"ANSIBLE_MODULE_ARGS": arguments})],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        preexec_fn=preexec,
    )  # fmt: skip
    assert done.stdout.startswith("\n{") or done.stdout.startswith("{"), done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told
