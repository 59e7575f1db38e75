"""What the fields of the JSON answers mean, where their own docstring does not say it.

A name means the same in nearly every type, so it is explained once; units follow from the names.
"""

from __future__ import annotations

import re

_UNITS = {
    "_mib": "MiB",
    "_percent": "percent",
    "_celsius": "degrees Celsius",
    "_watts": "W",
    "_mhz": "MHz",
    "_seconds": "seconds",
    "_at": "seconds since 1970",
    "since": "seconds since 1970",
}
"""By the end of a name. Memory is binary: 1 MiB is 1,048,576 bytes."""
_TIME = "time"

_MEANINGS = {
    "address": "Where the host is asked",
    "agent_version": "Version of the gpumon agent that took the reading",
    "busy": "GPUs that somebody holds and uses, a count",
    "certificate_ends": "When the certificates end that this server needs to ask its agents",
    "compute_instance_id": "The driver's number of the compute instance",
    "count": "How often it happened, a count",
    "counts": "GPUs or instances of this model by state",
    "cpu_count": "Cores that the system sees, a count",
    "cpu_percent": "All cores together, 0 to 100",
    "cuda_version": "Newest CUDA version that the driver supports",
    "decoder_utilization_percent": "Use of the video decoder",
    "disk_free_mib": "Free on the root file system, for everybody but root",
    "drained": "GPUs that the configuration takes out of use, a count",
    "driver_version": "Version of the NVIDIA driver",
    "ecc_aggregate_corrected": "Memory errors corrected in the life of the GPU, a count",
    "ecc_aggregate_uncorrected": "Memory errors not corrected in the life of the GPU, a count",
    "ecc_mode": "Whether memory is checked for errors (ECC)",
    "ecc_volatile_corrected": "Memory errors corrected since the driver was loaded, a count",
    "ecc_volatile_uncorrected": "Memory errors not corrected since the driver was loaded, a count",
    "encoder_utilization_percent": "Use of the video encoder",
    "enforced_power_limit_watts": "Power that the GPU may draw now",
    "error": "What is wrong, in words",
    "fault": "Broken GPUs: lost, memory errors, a slowdown of the hardware, missing; a count",
    "first_at": "When it happened first",
    "free": "GPUs that nobody holds, a count",
    "free_since": "Since when nothing holds it, where the agent knows",
    "gpu": "Number of the GPU on its host, in the driver's (PCI) order, from 0 on",
    "gpu_count": "How many GPUs the driver counts, a number; null: it could not be asked",
    "gpu_instance_id": "The driver's number of the GPU instance",
    "gpu_memory_used_mib": "GPU memory that is held",
    "gpus": "The GPUs in the driver's (PCI) order",
    "Place.gpus": "Indices of the GPUs",
    "UserAnswer.gpus": "The GPUs and MIG instances that the user holds",
    "UserTotals.gpus": "GPUs and MIG instances held, a count",
    "graphics_only": "Whether all processes draw pictures and none computes",
    "held_since": "Since when somebody holds it, as far as it was seen",
    "held_since_at_most": "Whether it may have begun later: nobody saw the process come to it",
    "fault_since": "Since when a fault goes on, where the agent knows",
    "on_gpu_since": "Since when the owner was seen on it; null: nobody saw it come",
    "holders": "Who holds it, one entry an owner",
    "host": "Name of the host in the configuration",
    "HostAnswer.host": "The host as it stands in status.json",
    "HostSnapshot.host": "CPU, memory and disk of the host",
    "host_state": "State of the host: what it holds is current on a fresh host only",
    "hostname": "The name that the host has for itself",
    "hosts": "Hosts in the configuration, a count",
    "ClusterStatus.hosts": "The hosts in the order of the configuration, or in the one asked for",
    "hosts_down": "Hosts without an answer for five minutes, a count",
    "hosts_fresh": "Hosts that answered one of the last two polls, a count",
    "hosts_never": "Hosts that have not answered since the server started, a count",
    "hosts_stale": "Hosts that did not answer the last two polls, a count",
    "idle": "GPUs that somebody holds and has not used for a while, a count",
    "idle_gpus": "Those GPUs of the user that are idle, a count",
    "index": "Number in the driver's (PCI) order, from 0 on",
    "labels": "Name and value of each label in the configuration",
    "load_15m": "Load average of 15 minutes, in runnable processes",
    "load_1m": "Load average of one minute, in runnable processes",
    "load_5m": "Load average of 5 minutes, in runnable processes",
    "memory_available_mib": "Host memory that programs can still have",
    "memory_clock_mhz": "Clock of the memory",
    "memory_free_mib": "GPU memory that nothing holds",
    "memory_reserved_mib": "GPU memory that the driver keeps for itself",
    "memory_total_mib": "All memory of the GPU or instance",
    "HostInfo.memory_total_mib": "All memory of the host",
    "HostStatus.memory_total_mib": "All memory of the host",
    "memory_used_mib": "GPU memory held, without the driver's reserve where it tells the two apart",
    "mig": "MIG instances; [] where MIG is off",
    "mig_mode": "Whether MIG is on; null: the GPU has none, or it is not known",
    "model": 'Short name of the model: "H100 80G"',
    "models": "Sums by model, in the order of the tables",
    "name": "Name: a host's in the configuration, a GPU's product name, an instance's profile",
    "next_poll_seconds": "Until the host is asked again; null: it is not asked, or in this moment",
    "pci_bus_id": "Address on the PCI bus",
    "pcie_generation": "PCIe generation of the link now, a number",
    "pcie_width": "Lanes of the PCIe link now, a count",
    "persistence_mode": "Whether the driver stays loaded without a client",
    "pid": "Number of the process on its host",
    "pids": "Numbers of the processes on their host",
    "places": "Where the user holds GPUs, one entry a host",
    "poll_interval_seconds": "How often hosts are asked",
    "power_draw_watts": "Power that the GPU draws now",
    "processes": "Processes; null: the list could not be read",
    "program": "Short name of the program, fit for everybody's eyes: no arguments",
    "reason": "Why it is in this state, a sentence",
    "remapped_rows_corrected": "Memory rows replaced after corrected errors, a count",
    "retired_pages_corrected": "Memory pages taken out of use after corrected errors, a count",
    "retired_pages_pending": "Whether pages wait for a reset to be taken out of use",
    "revision": "Names what is told here: the same revision, the same content",
    "sample_interval_seconds": "How often the agent reads its GPUs",
    "schema": "Number of the form; it rises when a field changes its meaning or goes away",
    "simulated": "Whether this is invented, not read from a GPU",
    "since": "Since when it is held or free, as its state is; null: not known",
    "since_at_most": "Whether it may have begun later: nobody saw when the process came",
    "since_at_least": "Whether it may have begun earlier than `since`: nobody watched then",
    "sm_clock_mhz": "Clock of the multiprocessors",
    "sm_utilization_percent": "Share of the last sample period in which the process ran a kernel",
    "started_at": "When the process started, or the oldest of several",
    "state": "State, decided once by the server",
    "status": '"ok"',
    "temperature_celsius": "Temperature of the GPU",
    "text": "What happened, a sentence",
    "time": "When this was put together",
    "title": "Title of the page in the configuration",
    "total": "All GPUs, a count",
    "totals": "Sums; null for a user: holds nothing on a fresh host",
    "unified_memory": "Whether GPU and host share one memory",
    "unknown": "GPUs whose state nobody knows, never counted as free; a count",
    "unused_since": "Since when it was not used, in an unbroken run of readings",
    "uptime_seconds": "Since the start of the system",
    "user": "Login name; null: nobody knows whose",
    "users": "Sums by user, most GPUs first",
    "utilization_30m_percent": "Mean of the last 30 minutes, once the agent has watched that long",
    "utilization_percent": "Share of the last sample period in which a kernel ran; says nothing "
    "about efficiency",
    "uuid": "The driver's UUID",
    "version": "Version of gpumon",
    "watched_since": "Since when the agent has watched it without a gap",
}


def described_field(type_name: str, name: str, own: str | None) -> str:
    """Return what a field means, with its unit; `own` is its docstring, which goes first.

    Raises KeyError for a field that nobody explains.
    """
    if own is None:
        own = f"{_MEANINGS.get(f'{type_name}.{name}') or _MEANINGS[name]}."
    words = re.sub(r"\bNone\b", "null", own)
    unit = unit_of(name)
    return words if unit is None else f"{words} Unit: {unit}."


def unit_of(name: str) -> str | None:
    """Return the unit of a field of this name; None: it has none."""
    if name == _TIME:
        return "seconds since 1970"
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), None)
