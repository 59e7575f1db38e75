"""What an installation leaves on a host: by its disk, and by what runs."""

from __future__ import annotations

import re

from e2e.e2e_lab import Host

NOT_OURS = re.compile(
    r"/(var/(log|cache|tmp|lib/(systemd|dbus|private|caddy|nginx|dhcp|sudo|apt|dpkg|ucf))"
    r"|tmp|run|root|home/\w+|opt/fake-nvml"
    r"|usr/lib/python3|usr/share/python3"
    r"|etc/rc\d\.d/\w+"  # made by Debian for nginx
    r"|etc/(passwd|shadow|group|gshadow|subuid|subgid|\.pwd\.lock|machine-id|ld\.so\.cache)"
    r"|etc/systemd/system/(multi-user\.target\.wants(/(nginx|caddy)\.service)?)$)"
)
"""Logs, byte code, folders of the proxies and of logins, and files that are judged by content."""


def paths(host: Host) -> set[str]:
    """Return what differs from the bare tree."""
    upper = host.folder / "upper"
    found = {"/" + str(path.relative_to(upper)) for path in upper.rglob("*") if not path.is_dir()}
    return {
        path
        for path in found
        if not NOT_OURS.match(path)
        # Written anew with the same content, where something came and went.
        and not (host.lab.tree.joinpath(path[1:]).is_file() and same(host, path))
    }


def same(host: Host, path: str) -> bool:
    now = host.root / path[1:]
    return now.is_file() and now.read_bytes() == host.lab.tree.joinpath(path[1:]).read_bytes()


def mentions(host: Host) -> list[str]:
    """Return what else of gpumon there is: accounts, units, processes, listening ports."""
    accounts = ["/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/caddy/Caddyfile"]
    left = host.run("grep", "-n", "gpumon:\\|gpumon-\\|gpumon\\.", *accounts).stdout.splitlines()
    left += host.run("systemctl", "list-units", "--all", "--no-legend", "gpumon-*").stdout.split()
    left += host.run("pgrep", "-a", "-f", "gpumon").stdout.splitlines()
    left += host.run(
        "find", "/etc", "/opt", "/usr/local", "/var/lib", "-name", "*gpumon*"
    ).stdout.splitlines()
    known = {"/etc/gpumon-lab-gpus", "/usr/local/sbin/gpumon-lab-init"}
    return [line for line in left if line not in known and "gpumonitor" not in line]
