"""What all faces of the server show: the cluster at one revision. This is `/status.json`.

Built once per revision by `view.py` from the fleet's records; immutable afterwards, so any thread
may read it.
"""

from __future__ import annotations

import msgspec

from gpumon.model import SCHEMA
from gpumon.states import GpuState, HostState
from gpumon.summary import Holder


class MigStatus(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """One MIG instance with its state."""

    index: int
    uuid: str | None
    name: str | None
    state: GpuState
    reason: str | None
    since: float | None
    since_at_least: bool
    since_at_most: bool = False
    memory_used_mib: int | None
    memory_total_mib: int | None
    holders: list[Holder]


class GpuStatus(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """One GPU with its state. On a host that is not fresh, the last known values."""

    index: int
    uuid: str | None
    name: str | None
    model: str
    """Short name for tables: "H100 80G", "RTX 3090 24G"; "unknown GPU" where it has no name."""
    state: GpuState
    reason: str | None
    since: float | None
    """When the state began, epoch seconds."""
    since_at_least: bool
    """It began then or earlier: nobody watched before."""
    since_at_most: bool = False
    """It began then or later: then the process began, and nobody saw it come to the GPU."""
    utilization_percent: int | None
    memory_used_mib: int | None
    memory_total_mib: int | None
    unified_memory: bool
    temperature_celsius: int | None
    power_draw_watts: float | None
    enforced_power_limit_watts: float | None
    warnings: list[str] = []
    """What wants attention though the GPU works: "bad memory rows wait for a reset ...\""""
    mig_mode: bool | None
    mig: list[MigStatus]
    holders: list[Holder]
    """Of a GPU in MIG mode: those of all its instances."""


class HostStatus(msgspec.Struct, kw_only=True, frozen=True):
    """One host with its state."""

    name: str
    address: str
    labels: dict[str, str]
    state: HostState
    reason: str | None
    """Why the host is not fresh, or what is wrong on it as a whole; a sentence or None."""
    reason_kind: str | None
    """The short word for it: "refused", "timed out", "no driver", ..."""
    age_seconds: float | None
    """Age of the reading that is shown; None: there is none."""
    answered_at: float | None
    """Server's wall clock at the last good answer."""
    next_poll_seconds: float | None
    simulated: bool
    agent_version: str | None
    driver_version: str | None
    cuda_version: str | None
    gpu_count: int | None
    cpu_percent: float | None
    memory_total_mib: int | None
    memory_available_mib: int | None
    errors: list[str]
    """What is wrong on the host as a whole, each a sentence."""
    notes: list[str] = []
    """What the server noticed and is worth a look, though the host's readings are sound."""
    gpus: list[GpuStatus]
    via: list[str] = []
    """The servers that it came through, by their `instance`, the nearest first; [] is polled here.
    """


class Counts(msgspec.Struct, kw_only=True):
    """GPUs by state."""

    total: int = 0
    free: int = 0
    busy: int = 0
    idle: int = 0
    fault: int = 0
    unknown: int = 0
    drained: int = 0


class Totals(msgspec.Struct, kw_only=True, frozen=True):
    """The whole cluster. `gpus` counts the GPUs that were ever seen; a host that never answered
    stands in `hosts_never` and adds none, since nobody knows how many it has."""

    gpus: Counts | None
    """GPUs by state; None: no host has told of any, and some have not told how many they have."""
    hosts: int
    hosts_fresh: int
    hosts_stale: int
    hosts_down: int
    hosts_never: int


class Block(msgspec.Struct, kw_only=True, frozen=True):
    """Free GPUs of one model on one host."""

    host: str
    free: int


class ModelTotals(msgspec.Struct, kw_only=True, frozen=True):
    """All GPUs (or MIG instances) of one kind."""

    model: str
    """A GPU's `model`; "H100 80G MIG 1g.10gb" for instances."""
    memory_total_mib: int | None
    counts: Counts
    blocks: list[Block]
    """Hosts with free ones, most first."""


class Place(msgspec.Struct, kw_only=True, frozen=True):
    """Where a user holds GPUs."""

    host: str
    gpus: list[int]


class UserTotals(msgspec.Struct, kw_only=True, frozen=True):
    """What one user holds on fresh hosts. Unknown owners are together under user None."""

    user: str | None
    gpus: int
    idle_gpus: int
    processes: int | None
    """Distinct (host, pid); None: GPUs are held, but no process is visible."""
    gpu_memory_used_mib: int | None
    since: float | None
    """Since when the user holds one of them."""
    since_at_most: bool = False
    """Then or later: then the process began, and nobody saw it come to the GPU."""
    places: list[Place]


class CertificateEnds(msgspec.Struct, kw_only=True, frozen=True):
    """When the certificates end that the server needs to ask agents; epoch seconds, None: there is
    none, or no agent is asked over TLS."""

    client_ends_at: float | None = None
    """Of the one that the server shows."""
    authority_ends_at: float | None = None
    """Of the last authority in `tls.ca` that ends."""


class ClusterStatus(msgspec.Struct, kw_only=True, frozen=True):
    """The answer to all four questions that a moment can give."""

    schema: int = SCHEMA
    simulated: bool
    """True when any host shown is invented."""
    title: str
    revision: str
    time: float
    """When this was put together, by the server's clock."""
    poll_interval_seconds: float
    totals: Totals
    models: list[ModelTotals]
    users: list[UserTotals]
    query: str = ""
    """The filter words that the hosts were chosen by: sums and lists are over those hosts alone."""
    query_remarks: list[str] = []
    """What was left out of what was asked for, each a sentence."""
    hosts: list[HostStatus]
    instance: str = ""
    """Names this run of the server, for others that show its hosts."""
    certificate_ends: CertificateEnds = CertificateEnds()
