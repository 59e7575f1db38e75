"""Where in the tree of cgroups a path is the system's own, and from where on it is a user's making.

Whoever has been given a cgroup may make others below it, and call them what they like: a user in
the cgroups of their systemd and of their sessions, a service in its own, a job in its own, a
container in its own. What such a cgroup is called proves nothing about anybody else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_USER_SLICE = re.compile(r"user-(?P<uid>\d+)\.slice\Z")
_USER_MANAGER = re.compile(r"user@(?P<uid>\d+)\.service\Z")
_RUNTIME = re.compile(
    r"(?:docker|containerd|cri-docker|crio|kubelet|k3s(?:-agent)?|rke2-(?:server|agent)"
    r"|snap\.(?:docker|microk8s)\.[\w.-]+)\.service\Z"
)
"""Services that may have the cgroups of their containers below their own."""

_BATCH = re.compile(
    r"(?:slurm(?:_.+)?|pbs_jobs\.(?:service|slice)|pbspro(?:\.slice)?|torque|lsf|htcondor)\Z"
)
"""Cgroups at the top below which batch systems put their jobs."""


class Place(msgspec.Struct, frozen=True):
    """One part of a path, and who can have made the cgroup of that name."""

    part: str
    above: str
    """The part before it, "" at the top."""
    ends: int
    """Where it ends in the path."""
    manager_uid: int | None
    """The user below whose own systemd (user@1000.service) it is."""
    handed_over: bool
    """It is below a service or job, whose own making it may be."""


def walk(path: str) -> Iterator[Place]:
    """Yield the parts of a path from the top, down to where it is of no one's making that counts.

    Seen from a cgroup namespace, a path may begin with "/../..".
    """
    above, at_top, ends = "", True, 0
    slice_uid: str | None = None
    manager_uid: int | None = None
    handed_over = False
    for part in path.split("/")[1:]:
        ends += 1 + len(part)
        if part == "..":
            continue
        if at_top and part == "user":
            return  # sessions, as they were before systemd
        if (found := _USER_SLICE.match(part)) is not None and manager_uid is None:
            slice_uid = found["uid"]
        elif (manager := _USER_MANAGER.match(part)) is not None and manager_uid is None:
            if handed_over or slice_uid not in (None, manager["uid"]):
                return
            manager_uid = int(manager["uid"])
        elif slice_uid is not None and manager_uid is None:
            return  # in a login session
        yield Place(part, above, ends, manager_uid, handed_over)
        if manager_uid is None:
            handed_over = handed_over or (
                (part.endswith((".service", ".scope")) and _RUNTIME.match(part) is None)
                or (above in ("", "system.slice") and _BATCH.match(part) is not None)
            )
        above, at_top = part, False
