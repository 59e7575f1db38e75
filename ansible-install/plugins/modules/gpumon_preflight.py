#!/usr/bin/python
"""Looks at a host before anything is changed on it. Runs on Python 3.6 and newer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpumon_preflight
short_description: Find out whether gpumon can be installed on a host
description:
  - Looks at Python, systemd, free disk, ports and at units of earlier tools. Changes nothing.
  - All that stands against an installation is returned at once, each with its cure.
options:
  python:
    description: The host's Python that the virtual environment is made of.
    type: path
    default: /usr/bin/python3
  ports:
    description:
      - TCP ports that will be used, by the service that will use them. Without a number, the port
        of gpumon's own configuration on the host holds, else that of an earlier tool's, else the
        usual one.
    type: dict
    default: {}
  proxy:
    description: The proxy that will stand in front of the page; none where it is empty.
    type: str
    default: ""
  proxy_ports:
    description: TCP ports that it will listen on.
    type: list
    elements: int
    default: [80, 443]
  etc:
    description: Folder of gpumon's configuration.
    type: path
    default: /etc/gpumon
  old_config:
    description: Configuration of gpumonitor.
    type: path
    default: /home/gpumonitor/config.yml
  root:
    description: Folder that releases are installed below.
    type: path
    default: /opt/gpumon
  free_mib:
    description: So much has to be free there.
    type: int
    default: 200
  users:
    description: Users that the services will run as. One with a home is somebody's login.
    type: list
    elements: str
    default: [gpumon, gpumon-web]
author:
  - The gpumon contributors (@gpumon)
"""

EXAMPLES = r"""
- name: Look at the host
  gpumon_preflight:
    ports:
      gpumon-agent: 8043
"""

RETURN = r"""
faults:
  description: What stands against an installation, a sentence each.
  returned: always
  type: list
  elements: str
host:
  description:
    - Its kind (python 3.11, arch x86_64), ports, units and configuration of earlier tools.
    - As C(known_ports) the ports of the agents, by host, that its own configuration names, so that
      a run that leaves those hosts out does not have to guess.
  returned: always
  type: dict
"""

import errno
import glob
import json
import os
import pwd
import re
import shutil
import socket

from ansible.module_utils.basic import AnsibleModule

OLDEST = (3, 10)
NO_HOME = "/nonexistent"
"""The home of the users that the roles make."""
EARLIER = {
    "gpumonitor-rpc.service": "agent",
    "gpumonitor-web.service": "web",
    "nvgpu-agent.service": "agent",
}
USUAL = {"gpumon-agent": ("rpc_port", 8043), "gpumon-web": ("web_port", 8042)}
PROBE = (
    "import json, os, sys, venv; "
    "print(json.dumps([list(sys.version_info[:2]), os.uname().machine]))"
)


def look_at_python(module, faults):
    """Return "3.11" and "x86_64", or None and None where that Python is of no use."""
    path = module.params["python"]
    cure = "set gpumon_python to a Python 3.10 or newer of this host"
    if not os.path.exists(path):
        faults.append(f"{path} is not there: install python3, or {cure}")
        return None, None
    status, out, err = module.run_command([path, "-I", "-c", PROBE])
    if status != 0 and "venv" in err:
        faults.append(f"{path} has no module venv: apt-get install python3-venv python3")
        return None, None
    if status != 0:
        last = (err.strip() or "no words").splitlines()[-1]
        faults.append(f"{path} does not run ({last}): {cure}")
        return None, None
    version, arch = json.loads(out)
    text = "{}.{}".format(*version)
    if tuple(version) < OLDEST:
        faults.append(
            f"{path} is Python {text}, and gpumon needs 3.10 or newer (Debian 12, "
            f"Ubuntu 22.04, RHEL 9 with python3.11): upgrade the host, or {cure}"
        )
        return None, None
    return text, arch


def look_at_disk(module, faults):
    folder = module.params["root"]
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    free, wanted = shutil.disk_usage(folder).free >> 20, module.params["free_mib"]
    if free < wanted:
        faults.append(f"{free} MiB are free in {folder} and {wanted} are needed: make room")


def look_at_users(module, faults):
    """Refuse to make a service's user of one that somebody may log in as."""
    for name in module.params["users"]:
        try:
            home = pwd.getpwnam(name).pw_dir
        except KeyError:
            continue
        if home != NO_HOME:
            faults.append(
                f"there is a user {name} already, with the home {home}: the service's user would "
                f"take its place and its login. Rename it (usermod -l OTHER {name}) or remove it "
                f"(userdel {name}), and its group {name} likewise"
            )


def look_at_ports(module, ports, faults):
    wanted = [
        (service, port, "set another port (gpumon_rpc_port, gpumon_web_port)")
        for service, port in ports.items()
    ]
    proxy = module.params["proxy"]
    if proxy:
        cure = "let that be the page's proxy too (gpumon_proxy_program)"
        wanted += [(proxy, port, cure) for port in module.params["proxy_ports"]]
    for service, port, cure in wanted:
        if is_free(port):
            continue
        holder = holder_of(port)
        ours = (service + ".service", *EARLIER)
        if holder is None or not any(unit in holder for unit in ours):
            faults.append(
                f"port {port}, which {service} needs, is taken by {holder or 'something unseen'}: "
                f"stop that, or {cure}"
            )


def wanted_ports(module, *configs):
    """Return the ports by service: as asked for, or of the first configuration that has one."""
    ports = {}
    for service, port in module.params["ports"].items():
        key, usual = USUAL[service]
        kept = [re.search(rf"^{key}:\s*(\d+)\s*(#|$)", text, re.MULTILINE) for text in configs]
        ports[service] = int(port or next((found.group(1) for found in kept if found), usual))
    return ports


def known_ports(installed):
    """Return the agents' ports by host, as an earlier run wrote them into a server's hosts."""
    entry = re.compile(r"""^-\s+name:\s*(\S+)\n\s+address:\s*\S*:(\d+)['"]?$""", re.MULTILINE)
    return {name.strip("'\""): int(port) for name, port in entry.findall(installed)}


def is_free(port):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


def holder_of(port):
    """Return who listens on the port: program, process id and systemd unit; None: not seen."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in read(table).splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{fields[9]}]")
    for link in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            found = os.readlink(link) in sockets
        except OSError:
            continue
        if found:
            pid = link.split("/")[2]
            name = read(f"/proc/{pid}/comm").strip()
            paths = [line.split(":", 2)[2] for line in read(f"/proc/{pid}/cgroup").splitlines()]
            parts = [part for path in paths for part in path.split("/")]
            units = [part for part in parts if part.endswith(".service")]
            return "{} (process {}{})".format(name, pid, ", " + units[-1] if units else "")
    return None


def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def earlier_tools(module):
    """Return the units of earlier tools that are started here or at boot, by what replaces them."""
    found = {"agent": [], "web": []}
    for unit, kind in EARLIER.items():
        if not any(
            os.path.exists(os.path.join(folder, unit))
            for folder in ("/etc/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system")
        ):
            continue
        for question in ("is-active", "is-enabled"):
            status, _out, _err = module.run_command(["systemctl", question, unit])
            if status == 0 and unit not in found[kind]:
                found[kind].append(unit)
    return found


def main():
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "ports": {"type": "dict", "default": {}},
            "root": {"type": "path", "default": "/opt/gpumon"},
            "free_mib": {"type": "int", "default": 200},
            "users": {"type": "list", "elements": "str", "default": ["gpumon", "gpumon-web"]},
            "proxy": {"type": "str", "default": ""},
            "proxy_ports": {"type": "list", "elements": "int", "default": [80, 443]},
            "etc": {"type": "path", "default": "/etc/gpumon"},
            "old_config": {"type": "path", "default": "/home/gpumonitor/config.yml"},
        },
        supports_check_mode=True,
    )
    faults = []
    installed = read(os.path.join(module.params["etc"], "config.yml"))
    old_config = read(module.params["old_config"])
    ports = wanted_ports(module, installed, old_config)
    if not os.path.isdir("/run/systemd/system"):
        faults.append("systemd does not run here: gpumon is installed as units of systemd")
    if os.geteuid() != 0:
        faults.append("this is not root: run with --become, or --ask-become-pass")
    python, arch = look_at_python(module, faults)
    look_at_disk(module, faults)
    look_at_users(module, faults)
    look_at_ports(module, ports, faults)
    module.exit_json(
        changed=False,
        faults=faults,
        host={
            "kind": {"python": python, "arch": arch},
            "earlier": earlier_tools(module),
            "old_config": old_config,
            "ports": ports,
            "known_ports": known_ports(installed),
        },
    )


if __name__ == "__main__":
    main()
