"""Part of `make test-gpu`: processes of another user and of another pid namespace, by real CUDA."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import psutil

USER = "nobody"


def check(
    report: Any, snapshot: Callable[[], dict[str, Any] | None], start: Callable[..., Any]
) -> None:
    """Start two loads of the user nobody, one of them in a pid namespace, and look for both."""
    report.say("\n## Owners of other processes\n")
    if os.geteuid() != 0:
        report.say("- not looked at: starting processes of another user needs root")
        return
    uid = pwd.getpwnam(USER).pw_uid
    ways = {
        "another user": [],
        "another user in a pid namespace of its own": ["unshare", "-pf", "--mount-proc"],
    }
    become = [shutil.which("setpriv") or "setpriv", f"--reuid={uid}", "--clear-groups"]
    loads = {way: start([*prefix, *become]) for way, prefix in ways.items()}
    try:
        mine = snapshot()
        rows = {row["pid"]: row for gpu in (mine or {}).get("gpus", []) for row in gpu["processes"]}
        for way, (load, how, _) in loads.items():
            if load is None:
                report.say(f"- not looked at: {USER} could start no load as {way}")
                continue
            pids = {load.pid, *(child.pid for child in psutil.Process(load.pid).children(True))}
            row = next((rows[pid] for pid in pids if pid in rows), None)
            report.check(row is not None, f"{way} ({how}): its process stands under the GPU")
            if row is not None:
                report.check(row["user"] == USER, f"{way}: owner {row['user']}, pid {row['pid']}")
    finally:
        for load, _, _ in loads.values():
            if load is not None:
                _end(load)


def _end(load: subprocess.Popen[str]) -> None:
    """End a load and what it started: `unshare` does not hand on the signal."""
    everyone = [*psutil.Process(load.pid).children(recursive=True), psutil.Process(load.pid)]
    for process in everyone:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    load.wait(timeout=10)
