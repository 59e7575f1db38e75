"""A job in a container, as a container runtime with the driver's hook starts it."""

from __future__ import annotations

from e2e.e2e_lab import Host

CONTAINER = "3f4e2a1b9c0d" + "7" * 52
SCOPE = f"docker-{CONTAINER}.scope"
DEVICES = f"/sys/fs/cgroup/devices/system.slice/{SCOPE}"
STRANGER = "/dev/stranger"
"""A device that is nobody's business."""
OPEN = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_RDWR))
        print("open")
    except OSError as error:
        print(error.errno)
"""
EPERM, ENXIO = "1", "6"
"""Kept out by the rules of devices; let through to the driver, which is none in the lab."""


def start_container(host: Host) -> int:
    """Start a root's process in a container's scope; return its pid.

    The runtime has systemd make the scope, without the GPUs. Then the hook lets them in behind
    systemd's back, by a line of its own in the cgroup: as soon as systemd reads its units anew, it
    puts its own list back, and the container has lost its GPUs.
    """
    host.ask(
        "systemd-run", "--quiet", "--unit=runtime",
        "systemd-run", "--quiet", "--scope", f"--unit={SCOPE}",
        "-p", "DevicePolicy=closed", "-p", "DeviceAllow=/dev/null rw", "sleep", "infinity",
    )  # fmt: skip
    pid = host.ask("systemctl", "show", "--value", "-p", "MainPID", "runtime")
    wait = f"until grep -q {SCOPE} /proc/{pid}/cgroup; do sleep 0.05; done"
    host.ask("timeout", "10", "sh", "-c", wait)
    host.ask("mknod", "-m", "666", STRANGER, "c", "10", "229")
    if has_device_rules(host):
        host.ask("sh", "-c", f"echo 'c 195:* rw' > {DEVICES}/devices.allow")
    return int(pid)


def has_device_rules(host: Host) -> bool:
    """Return whether the machine's cgroups have lists of devices that can be looked at: v1."""
    return host.run("test", "-e", f"{DEVICES}/devices.allow").returncode == 0


def opened_in(host: Host, group: str, *nodes: str) -> list[str]:
    """Return what a process in that cgroup of devices meets when it opens them."""
    command = f"echo $$ > {group}/cgroup.procs; exec python3 -c '{OPEN}' {' '.join(nodes)}"
    return host.ask("sh", "-c", command).split()
