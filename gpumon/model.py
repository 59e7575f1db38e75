"""What one GPU host looks like at one moment: HostSnapshot > Gpu > MigInstance, Process.

Plain data, no I/O. None means unknown, and nothing else does: 0 is a measurement, "" is an empty
text, [] is a list that was read and is empty. Field names carry their unit. Times are epoch seconds
of the host's clock. All text went through `gpumon.text.clean` where it entered.

The JSON form of these structs is the agent's `/snapshot.json` and the detail of `poll()`. Unknown
keys are ignored and missing ones are unknown, so agents and servers of different versions mix.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

SCHEMA = 1
"""Raised when a field changes its meaning or goes away; new fields leave it as it is."""

OUT_OF_RANGE = "out of range"
"""How the reason in `Gpu.unknown` begins for a value that can't be; what was found follows."""


class Process(msgspec.Struct, kw_only=True):
    """A process on one GPU (or MIG instance); one row per (GPU, pid) whatever its kinds."""

    pid: int
    kinds: list[str] = []
    """Which of NVML's lists named it: "compute", "graphics", "mps"."""
    user: str | None = None
    """Login name of the owner; "uid:1234" where the account database has no name for it."""
    user_by: str | None = None
    """How `user` was found out where it is not simply the name of `uid`: "subuid", "rule: home
    mount", "rule: label com.example.user", ... None: the kernel and the account database say so."""
    uid: int | None = None
    """Of the process, as the kernel has it, whoever `user` is."""
    program: str | None = None
    """Short name, fit for everybody's eyes: "python train.py", never arguments."""
    command: str | None = None
    """Command line, cleaned and cut, named secrets masked. It may hold others: no face shows it."""
    gpu_memory_used_mib: int | None = None
    sm_utilization_percent: float | None = None
    started_at: float | None = None
    runtime_seconds: float | None = None
    """At the time of the sample; from the boot clock, so a stepped wall clock does not touch it."""
    cpu_percent: float | None = None
    """Of one core since the sample before; None on the first sight of a process."""
    memory_used_mib: int | None = None
    """Resident memory on the host."""
    state: str | None = None
    """"running", "sleeping", "zombie", ... as the kernel says; None where it can't be seen."""
    container: str | None = None
    """What it is, its id and in brackets what else is known: "docker 3f4e2a1b9c0d (train-7)"."""
    job: str | None = None
    """Batch system and id: "slurm 123.0", "pbs 12345.server"."""
    started_from: str | None = None
    """A hint for people: "tmux", "screen", "jupyter", "ssh session", "session of NAME"."""
    note: str | None = None
    """Why something is unknown: "ended while it was read", "hidden by the host", ..."""


HealthLevel = Literal["fault", "warning", "application"]


class HealthEvent(msgspec.Struct, kw_only=True):
    """One kind of trouble of a GPU: one that goes on, or one of the last day. See docs/health.md.

    Times are epoch seconds by the host's clock.
    """

    kind: str
    """"xid", "ecc", "lost", "missing", "row_remap", "row_remap_failure", "retired_pages",
    "recovery"."""
    code: int | None = None
    """The number of an XID."""
    level: HealthLevel
    """"application": a program did something wrong, the GPU is well."""
    text: str
    advice: str | None = None
    """What to do."""
    first_at: float | None
    last_at: float | None
    """When it happened last; of a state that goes on: when it began, or its count changed. None:
    not known, because the clock was set since."""
    count: int
    ended_at: float | None = None
    """Since when it is over; None: it goes on. An XID goes on for an hour."""
    since: float | None = None
    """Since when it goes on without a break, where that is known."""
    source: str
    """"driver", "kernel log", or both: "driver, kernel log"."""


class MigInstance(msgspec.Struct, kw_only=True):
    """One MIG instance: a slice of a GPU that a job sees as a device of its own."""

    index: int
    uuid: str | None = None
    name: str | None = None
    """Profile, such as "1g.10gb"."""
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    error: str | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_reserved_mib: int | None = None
    memory_free_mib: int | None = None
    processes: list[Process] | None = None
    unused_since: float | None = None
    free_since: float | None = None
    held_since: float | None = None
    watched_since: float | None = None


class Gpu(msgspec.Struct, kw_only=True):
    """One GPU. A GPU that can't be read keeps its row: `error` in words, None in its fields."""

    index: int
    uuid: str | None = None
    pci_bus_id: str | None = None
    name: str | None = None
    error: str | None = None
    """Why this GPU as a whole could not be read, in words."""
    lost: bool = False
    """The driver says that this GPU is gone (fallen off the bus, reset needed)."""
    unknown: dict[str, str] = {}
    """Field name -> why it is None, in words ("not supported", "not available under MIG")."""

    utilization_percent: int | None = None
    """Share of the last sample period in which a kernel ran; says nothing about efficiency."""
    utilization_5m_percent: float | None = None
    """Mean of the last 5 minutes, once the agent has watched that long (see agent/usage.py)."""
    utilization_30m_percent: float | None = None
    memory_utilization_percent: int | None = None
    """Share of time in which memory was read or written: bandwidth, not memory held."""
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    """Held by processes: without the driver's reserve where the driver tells the two apart."""
    memory_reserved_mib: int | None = None
    """The driver's own; None where the driver counts it as used (before R510)."""
    unattributed_mib: int | None = None
    """Memory in use that no listed process explains; 0 up to what a GPU of nobody's may have in
    use. None where that can't be told: memory of a process unknown, MIG, unified memory."""
    memory_free_mib: int | None = None
    unified_memory: bool = False
    """GPU and host share one memory (GB10, Jetson): the driver gives no GPU memory of its own."""
    temperature_celsius: int | None = None
    power_draw_watts: float | None = None
    enforced_power_limit_watts: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    fan_speed_percent: int | None = None
    """Of the fan's nominal maximum; may exceed 100."""
    performance_state: int | None = None
    """0 (fastest) to 15."""
    clock_event_reasons: list[str] | None = None
    """Why the clocks are lowered: "gpu_idle", "sw_power_cap", "hw_slowdown",
    "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown", ...; [] is none."""
    ecc_mode: bool | None = None
    ecc_volatile_corrected: int | None = None
    ecc_volatile_uncorrected: int | None = None
    ecc_aggregate_corrected: int | None = None
    ecc_aggregate_uncorrected: int | None = None
    compute_mode: str | None = None
    """"default", "exclusive_process", "prohibited", "exclusive_thread"."""
    persistence_mode: bool | None = None
    encoder_utilization_percent: int | None = None
    decoder_utilization_percent: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    remapped_rows_corrected: int | None = None
    remapped_rows_uncorrected: int | None = None
    """Memory rows replaced by spare ones, after corrected and uncorrected errors."""
    remapped_rows_pending: bool | None = None
    """Rows wait for a reset to be replaced."""
    remapped_rows_failure: bool | None = None
    """A row could not be replaced."""
    retired_pages_corrected: int | None = None
    retired_pages_uncorrected: int | None = None
    """Memory pages taken out of use; GPUs before Ampere have these instead of remapped rows."""
    retired_pages_pending: bool | None = None
    recovery_action: str | None = None
    """What the driver asks for: "none", "gpu_reset", "node_reboot", "drain_p2p",
    "drain_and_reset", "recover_imex_domain", "bus_reset", "system_reboot"."""
    missing_since: float | None = None
    """The driver no longer lists this GPU, since then; the row is from memory. The start of the
    machine where it was before that, and `error` says that nobody knows when."""
    health: list[HealthEvent] = []
    """What goes on first, then the worst, then the newest; at most 16."""
    hints: list[str] = []
    """What could be set up better; no faults."""
    mig_mode: bool | None = None
    """True only when MIG is enabled now; None where the GPU has no MIG."""
    mig_mode_pending: bool | None = None
    """What `mig_mode` becomes at the next reset, where it differs; else None."""
    mig: list[MigInstance] = []
    processes: list[Process] | None = None
    """All processes of the GPU outside MIG instances. None: the list could not be read."""
    unused_since: float | None = None
    """Start of the unbroken run of samples in which the GPU was not used, where the agent knows."""
    free_since: float | None = None
    """Since when nothing holds the GPU, where the agent knows."""
    held_since: float | None = None
    """First of the unbroken run of samples in which those who hold it now did so, where the agent
    knows. Idleness counts from here at the earliest."""
    fault_since: float | None = None
    """Since when the GPU is broken without a break, where the agent knows."""
    watched_since: float | None = None
    """Since when the agent has watched it without a gap: what began then may have begun earlier."""


class HostInfo(msgspec.Struct, kw_only=True):
    """CPU, memory and disk of the host, for the host's line."""

    cpu_percent: float | None = None
    """All cores together, 0 to 100, since the sample before."""
    cpu_count: int | None = None
    load_1m: float | None = None
    load_5m: float | None = None
    load_15m: float | None = None
    memory_total_mib: int | None = None
    memory_available_mib: int | None = None
    disk_total_mib: int | None = None
    """Of the root file system."""
    disk_free_mib: int | None = None
    uptime_seconds: float | None = None


class HostSnapshot(msgspec.Struct, kw_only=True):
    """One reading of one host.

    The first three fields stand first on purpose: the agent's parent knows the age of a sample only
    when somebody asks, and puts them in front of the sampler's ready bytes (`splice`).
    """

    schema: int = SCHEMA
    sample_age_seconds: float | None = None
    """How old the reading was when it was sent; None: there is no reading yet."""
    sampler_error: str | None = None
    """Why there is no newer reading, in words; None while the sampler works."""

    hostname: str = ""
    time: float | None = None
    """When the reading was taken, by the host's clock."""
    sample_interval_seconds: float | None = None
    simulated: bool = False
    agent_version: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    gpu_count: int | None = None
    """How many GPUs the driver counts; None: it could not be asked, which is not zero."""
    errors: list[str] = []
    """What went wrong on the host as a whole, each a sentence with what to do."""
    error_kind: str | None = None
    """Why the driver can't be used, in a short word of CollectError.KINDS; None while it can."""
    host: HostInfo = msgspec.field(default_factory=HostInfo)
    gpus: list[Gpu] = []


_encoder = msgspec.json.Encoder()
_snapshot_decoder = msgspec.json.Decoder(HostSnapshot)
_Decoded = TypeVar("_Decoded")


def encode(value: object) -> bytes:
    """Return the JSON form of a struct, in field order, on one line."""
    return _encoder.encode(value)


def decode_snapshot(data: bytes | str) -> HostSnapshot:
    """Return the snapshot in `data`. Raises msgspec.MsgspecError, which names the path."""
    return decoded(_snapshot_decoder, data)


def decoded(decoder: msgspec.json.Decoder[_Decoded], data: bytes | str) -> _Decoded:
    """Return what `decoder` reads in `data`. Raises msgspec.MsgspecError and nothing else."""
    try:
        return decoder.decode(data)
    except (UnicodeError, RecursionError) as error:  # bad UTF-8, or thousands of brackets
        raise msgspec.DecodeError(str(error)) from error


_UNSPLICED = b'{"schema":%d,"sample_age_seconds":null,"sampler_error":null,' % SCHEMA


def splice(snapshot: bytes, sample_age_seconds: float | None, sampler_error: str | None) -> bytes:
    """Return the sampler's bytes with today's age and reason in front; no decoding.

    `snapshot` is `encode` of a HostSnapshot whose first fields are at their defaults.
    """
    if not snapshot.startswith(_UNSPLICED):
        raise ValueError(f"a snapshot of schema {SCHEMA} was expected, found {snapshot[:60]!r}")
    age = None if sample_age_seconds is None else round(sample_age_seconds, 3)
    head = _encoder.encode(
        {"schema": SCHEMA, "sample_age_seconds": age, "sampler_error": sampler_error}
    )
    return head[:-1] + b"," + snapshot[len(_UNSPLICED) :]
