"""What a reader may see: user names and command lines, hidden the same way on every face.

Pure: `visible` and `visible_detail` are applied before anything is rendered, so page, text, JSON
and metrics cannot differ.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import structs

from gpumon.cluster.status import ClusterStatus, GpuStatus, HostStatus
from gpumon.cluster.totals import shares_of, user_totals
from gpumon.config import Config
from gpumon.model import Gpu, HostSnapshot, Process
from gpumon.summary import Holder

Tier = Literal["anonymous", "named", "admin"]
"""Readers whom nobody vouches for, those a trusted proxy names, those of them in `web.admins`."""

SOMEBODY = "name hidden"
"""Stands for all users where names are hidden, one or many. No login name holds a blank."""


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What one tier sees."""

    names: Literal["names", "pseudonyms", "hidden"] = "names"
    commands: bool = False

    @property
    def tag(self) -> str:
        """A short word that tells sights apart in ETags and caches; "" for the usual one."""
        return ("" if self.names == "names" else self.names[0]) + ("c" if self.commands else "")


def sight_of(tier: Tier, config: Config) -> Sight:
    """Return what a tier sees by the configuration."""
    told = {"nobody": (), "admins": ("admin",), "named": ("named", "admin")}
    return Sight(
        names=config.web.anonymous_users if tier == "anonymous" else "names",
        commands=tier in told[config.web.command_lines],
    )


def pseudonym(user: str, key: bytes) -> str:
    """Return the name that stands for `user` under `key`: "user-k3m9xq"."""
    digest = hmac.digest(key, user.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return f"user-{base64.b32encode(digest)[:6].decode().lower()}"


def visible(status: ClusterStatus, sight: Sight, key: bytes) -> ClusterStatus:
    """Return what of the cluster a reader with `sight` sees; `key` makes the pseudonyms.

    Sums per user are made anew from what is left, so that they can't tell more.
    """
    rename = _renamer(sight, key)
    if rename is None:
        return status
    hosts = [_host(host, rename) for host in status.hosts]
    return structs.replace(status, hosts=hosts, users=user_totals(shares_of(hosts)))


def visible_detail(detail: HostSnapshot, sight: Sight, key: bytes) -> HostSnapshot:
    """Return what of a host's reading a reader with `sight` sees."""
    rename = _renamer(sight, key)

    def of(processes: list[Process] | None) -> list[Process] | None:
        if processes is None:
            return None
        return [_process(process, sight, rename) for process in processes]

    def gpu(one: Gpu) -> Gpu:
        parts = [structs.replace(part, processes=of(part.processes)) for part in one.mig]
        return structs.replace(one, processes=of(one.processes), mig=parts)

    return structs.replace(detail, gpus=[gpu(one) for one in detail.gpus])


_Rename = Callable[[str | None], str | None]


def _renamer(sight: Sight, key: bytes) -> _Rename | None:
    """Return what is done to names; None where they stay. An unknown owner stays unknown."""
    if sight.names == "names":
        return None
    if sight.names == "hidden":
        return lambda user: None if user is None else SOMEBODY
    return lambda user: None if user is None else pseudonym(user, key)


def _host(host: HostStatus, rename: _Rename) -> HostStatus:
    return structs.replace(host, gpus=[_gpu(gpu, rename) for gpu in host.gpus])


def _gpu(gpu: GpuStatus, rename: _Rename) -> GpuStatus:
    if not gpu.holders and not gpu.mig:
        return gpu
    return structs.replace(
        gpu,
        holders=[_holder(one, rename) for one in gpu.holders],
        mig=[
            structs.replace(part, holders=[_holder(one, rename) for one in part.holders])
            for part in gpu.mig
        ],
    )


def _holder(holder: Holder, rename: _Rename) -> Holder:
    return structs.replace(holder, user=rename(holder.user))


def _process(process: Process, sight: Sight, rename: _Rename | None) -> Process:
    command = process.command if sight.commands else None
    if rename is None:
        return structs.replace(process, command=command)
    # Account numbers, containers, jobs and sessions carry names as well.
    return structs.replace(
        process,
        command=command,
        user=rename(process.user),
        uid=None,
        container=None,
        job=None,
        started_from=None,
    )
