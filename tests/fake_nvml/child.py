"""Scripts that run in a process of their own, against the fake NVML through the real binding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from fake_nvml.scenario import FOLDER, Scenario, environment

_PRELUDE = """
import ctypes, json, os, sys, threading, time
from pathlib import Path
import pynvml as n
from fake_nvml.scenario import Scenario, calls, gb10, h100, mig, rtx

path = Path(os.environ["FAKE_NVML_SCENARIO"])

def ask(function, *arguments):
    "The answer of the binding's nvmlFUNCTION, or 'error CODE'."
    try:
        return getattr(n, "nvml" + function)(*arguments)
    except n.NVMLError as error:
        return f"error {error.value}"

def device(index=0):
    return ask("DeviceGetHandleByIndex", index)

def tell(answer):
    print(json.dumps(answer, default=str), flush=True)
"""
_INIT = "n.nvmlInit()\n"


def run(
    script: str,
    scenario: Scenario | Path,
    folder: Path,
    *,
    init: bool = True,
    counts: Path | None = None,
    driver: str = "all",
    missing: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run `script` to its end, within 20 seconds, with the scenario in `folder`."""
    path = scenario if isinstance(scenario, Path) else scenario.write(folder / "test.scenario")
    env = environment(path, counts, driver, missing)
    env["PYTHONPATH"] = os.pathsep.join([str(FOLDER.parent), env.get("PYTHONPATH", "")])
    code = _PRELUDE + (_INIT if init else "") + script
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=20
    )


def told(script: str, scenario: Scenario | Path, folder: Path, **options: Any) -> Any:
    """Return what `script` tells by `tell(...)`; the script must end well."""
    done = run(script, scenario, folder, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
