"""Which container a process is in, from its cgroups.

A path is read from its top: what the host's own runtime made stands there. Below it a container may
have made anything, another container's name too. So may a user in what they were given: below
their own systemd that is told (`manager_uid`), below a service or job only what Podman makes there
counts, and is marked (`handed_over`).
"""

from __future__ import annotations

import re

import msgspec

from gpumon.collect.owners.cgroups import unescape
from gpumon.collect.owners.places import walk
from gpumon.text import clean

SHORT_ID = 12
_NAME_LENGTH = 64

_ID = r"(?P<id>[0-9a-f]{64})"
_NAMED_ID = re.compile(
    rf"(?P<by>docker|libpod(?:-payload)?|cri-containerd|crio|nerdctl)-{_ID}(?:\.scope)?\Z"
)
_COLON_ID = re.compile(rf".+\.slice:(?P<by>docker|libpod|cri-containerd|crio|nerdctl):{_ID}\Z")
_BARE_ID = re.compile(rf"{_ID}\Z")
_RUNTIMES = {
    "docker": "docker",
    "libpod": "podman",
    "libpod-payload": "podman",
    "cri-containerd": "containerd",
    "crio": "cri-o",
    "nerdctl": "containerd",
}
_UUID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}"
# Static pods have a hash for a uid. Older containerds put the id behind a colon.
_POD = re.compile(rf"(?:[\w-]*-)?pod(?P<uid>{_UUID}|[0-9a-f]{{32}})(?:\.slice(?::.*)?)?\Z")
_LXC = re.compile(r"lxc\.payload\.(?P<name>.+)\Z")
_MACHINE = re.compile(r"(?:machine-(?P<name>.+)\.scope|systemd-nspawn@(?P<unit>.+)\.service)\Z")
_APPTAINER = re.compile(r"(?:apptainer|singularity)-(?P<pid>\d+)\.scope\Z")
_VIRTUAL_MACHINE = "qemu-"
_WITHOUT_CGROUPS_OF_ITS_OWN = ("docker", "containerd", "cri-o", "pod")
"""Made by a daemon of the host, in containers whose cgroups can't be written from within."""


class Container(msgspec.Struct, frozen=True):
    """A container, as far as the cgroups tell."""

    runtime: str
    """"docker", "podman", "containerd", "cri-o", "lxc", "machine" (systemd's), "apptainer";
    "container" where the path has an id of a container and no more, "pod" where it has no id."""
    id: str
    """The whole id of 64 digits; the name of an lxc container or machine."""
    pod: str | None = None
    """The uid of the Kubernetes pod."""
    manager_uid: int | None = None
    """The user whose systemd (user@1000.service) the container runs under: it is rootless."""
    handed_over: bool = False
    """Its cgroup is below one that a service or job was given, and may be of their making."""

    @property
    def of_the_host(self) -> bool:
        """Whether only the host's own runtime can have made a cgroup of this name there."""
        return self.manager_uid is None and not self.handed_over

    @property
    def name(self) -> str | None:
        """The name, of those that are known by their name and not by an id."""
        return self.id if self.runtime in ("lxc", "machine") else None


def container_of(paths: list[str]) -> Container | None:
    """Return the container that the paths name; None where they name none, or not the same one."""
    found = {named[0] for path in paths if (named := _in_path(path)) is not None}
    return found.pop() if len(found) == 1 else None


def as_text(container: Container, name: str | None = None) -> str:
    """Return the form of the model: what it is, its id, and what else is known in brackets.

    "docker 3f4e2a1b9c0d", "docker 3f4e2a1b9c0d (train-7)", "pod 2c4b2241-... (cri-o 3f4e2a1b9c0d)",
    "lxc gpu-box". `name` is what its runtime calls it.
    """
    is_hash = _BARE_ID.match(container.id) is not None
    short = container.id[:SHORT_ID] if is_hash else container.id
    itself = f"{container.runtime} {short}"
    if container.pod is not None:
        return f"pod {container.pod} ({itself})" if container.runtime != "pod" else itself
    return f"{itself} ({name})" if name else itself


def below_container(path: str) -> str | None:
    """Return the rest of a path below a container whose own cgroups prove something.

    That is where a batch system runs in pods. None: it is in no such container.
    """
    found = _in_path(path)
    if found is None:
        return None
    container, ends = found
    sure = container.of_the_host and container.runtime in _WITHOUT_CGROUPS_OF_ITS_OWN
    return path[ends:] if sure else None


def _in_path(path: str) -> tuple[Container, int] | None:
    """Return the container and where in the path its own part ends."""
    pod: str | None = None
    whose: int | None = None
    pod_ends = 0
    for place in walk(path):
        if not place.handed_over and (match := _POD.match(place.part)) is not None:
            pod, pod_ends, whose = match["uid"].replace("_", "-"), place.ends, place.manager_uid
        found = _in_part(place.part, place.above)
        if found is None or (place.handed_over and found[0] != "podman"):
            continue
        runtime, identity = found
        made = Container(runtime, identity, pod, place.manager_uid, place.handed_over)
        return made, place.ends
    return None if pod is None else (Container("pod", pod, pod, whose), pod_ends)


def _in_part(part: str, above: str) -> tuple[str, str] | None:
    """Return runtime and id where this part of a path names a container."""
    if (match := _NAMED_ID.match(part) or _COLON_ID.match(part)) is not None:
        return _RUNTIMES[match["by"]], match["id"]
    if _BARE_ID.match(part):
        return ("docker" if above == "docker" else "container"), part
    if (match := _LXC.match(part)) is not None:
        return _named("lxc", match["name"])
    if above in ("lxc", "lxc.payload"):
        return _named("lxc", part)
    if (match := _MACHINE.match(part)) is not None:
        name = unescape(match["name"] or match["unit"])
        return None if name.startswith(_VIRTUAL_MACHINE) else _named("machine", name)
    if (match := _APPTAINER.match(part)) is not None:
        return "apptainer", match["pid"]
    if above in ("apptainer", "singularity") and part.isdecimal():
        return "apptainer", part
    return None


def _named(runtime: str, name: str) -> tuple[str, str] | None:
    name = clean(name, _NAME_LENGTH)
    return (runtime, name) if name else None
