"""What a lab leaves on this machine, and how it goes: processes, mounts, networks, cgroups, disks.

    e2e_remains.py FOLDER    clear that lab away as soon as stdin ends

A lab starts this beside itself. Its stdin ends with the process that made the lab, however that
one ends: a test run that is killed leaves no hosts behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
NAMESPACES = Path("/run/netns")
PROPAGATE = Path("/run/systemd/nspawn/propagate")


def clear(folder: Path) -> None:
    """Remove what the lab of this folder left. Its folder's name begins all its names."""
    tag = folder.name
    for host in [path for path in folder.iterdir() if path.is_dir()]:
        end_cgroups([Path(line) for line in read(host / "cgroups").splitlines()])
    for namespace in NAMESPACES.glob(f"{tag}*"):
        # Playbooks that were cut off, and the connections that ssh keeps open.
        end_processes(partial(pids_in, namespace.name))
        quietly("ip", "netns", "del", namespace.name)
    for host in [path for path in folder.iterdir() if path.is_dir()]:
        quietly("umount", "-l", str(host / "root"))
    for left in [*Path("/tmp").glob(f"{tag}-*"), *PROPAGATE.glob(f"{tag}-*")]:
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
    shutil.rmtree(folder)


def remains(tag: str) -> list[str]:
    """Return what this machine still has of a lab, each in words."""
    mounts = Path("/proc/mounts").read_text().splitlines()
    found = [f"mount {line}" for line in mounts if tag in line]
    places = (NAMESPACES, Path("/tmp"), PROPAGATE)
    found += [str(path) for place in places for path in place.glob(f"{tag}*")]
    found += [str(path) for path in CGROUPS.glob(f"**/{tag}*")]
    for path in Path("/proc").glob("[0-9]*"):
        words = read(path / "cmdline").replace("\0", " ")
        if tag in words and path.name != str(os.getpid()):
            found.append(f"process {path.name}: {words}")
    return found


def end_cgroups(groups: list[Path]) -> None:
    """End every process in the groups, and remove them."""
    end_processes(
        lambda: [
            int(pid)
            for group in groups
            for procs in group.rglob("cgroup.procs")
            for pid in read(procs).split()
        ]
    )
    for group in groups:
        below = [path for path in group.rglob("*") if path.is_dir()]
        for path in [*sorted(below, reverse=True), group]:
            with contextlib.suppress(OSError):
                path.rmdir()


def pids_in(namespace: str) -> list[int]:
    return [int(pid) for pid in quietly("ip", "netns", "pids", namespace).split()]


def end_processes(listed: Callable[[], Iterable[int]]) -> None:
    """Kill what is listed until nothing is, for five seconds at most."""
    for _ in range(50):
        pids = {pid for pid in listed() if pid != 0}
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def quietly(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


def read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def main() -> None:
    folder = Path(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it is the one who tidies up after those
    sys.stdin.read()
    if folder.exists():
        clear(folder)


if __name__ == "__main__":
    main()
