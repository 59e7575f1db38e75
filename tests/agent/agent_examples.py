"""Samples for tests: what a host may look like, and the `Latest` that holds it."""

from __future__ import annotations

import time

from gpumon.agent.latest import Latest
from gpumon.model import Gpu, HostSnapshot, MigInstance, Process, encode
from gpumon.summary import summarize


def gpu(index: int, **changes: object) -> Gpu:
    """Return a GPU that nobody uses."""
    known = {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H100 80GB HBM3",
        "utilization_percent": 0,
        "memory_total_mib": 81559,
        "memory_used_mib": 0,
        "memory_reserved_mib": 551,
        "memory_free_mib": 81008,
        "temperature_celsius": 31,
        "processes": [],
    }
    return Gpu(**{**known, **changes})


def process(pid: int, **changes: object) -> Process:
    known = {
        "pid": pid,
        "kinds": ["compute"],
        "user": "alice",
        "uid": 1000,
        "program": "python train.py",
        "command": "python train.py --token secret",
        "gpu_memory_used_mib": 4096,
        "started_at": 1_700_000_000.0,
        "runtime_seconds": 3725.9,
    }
    return Process(**{**known, **changes})


def instance(index: int, **changes: object) -> MigInstance:
    known = {
        "index": index,
        "uuid": f"MIG-{index}",
        "name": "1g.10gb",
        "memory_total_mib": 9856,
        "memory_used_mib": 0,
        "memory_reserved_mib": 12,
        "memory_free_mib": 9844,
        "processes": [],
    }
    return MigInstance(**{**known, **changes})


def busy(index: int) -> Gpu:
    return gpu(
        index,
        utilization_percent=97,
        memory_used_mib=4096,
        memory_free_mib=76912,
        processes=[process(100 + index)],
    )


def unknown(index: int) -> Gpu:
    """Return a GPU that could not be read at all."""
    return Gpu(index=index, error="the driver has not answered since 14:02:11")


def mig(index: int, *instances: MigInstance) -> Gpu:
    return gpu(index, utilization_percent=None, processes=None, mig_mode=True, mig=[*instances])


def host(*gpus: Gpu, **changes: object) -> HostSnapshot:
    known = {
        "hostname": "gpu7",
        "time": 1_700_000_000.0,
        "sample_interval_seconds": 5.0,
        "agent_version": "0.1.0",
        "driver_version": "550.54.15",
        "cuda_version": "12.4",
        "gpu_count": len(gpus),
        "gpus": [*gpus],
    }
    return HostSnapshot(**{**known, **changes})


def large(gpus: int = 8, processes: int = 20) -> HostSnapshot:
    """Return the host that figures are given for."""
    return host(
        *(
            gpu(index, processes=[process(1000 * index + n) for n in range(processes)])
            for index in range(gpus)
        )
    )


def latest(sample: HostSnapshot | None, age: float = 1.0, **changes: object) -> Latest:
    """Return what a supervisor has when it took `sample` `age` seconds ago."""
    known: dict[str, object] = {"revision": "r-0", "interval": 5.0}
    if sample is not None:
        known |= {
            "revision": "r-1",
            "snapshot": encode(sample),
            "summary": encode(summarize(sample)),
            "taken_at": time.monotonic() - age,
            "sampler_error": None,
        }
    return Latest(**{**known, **changes})
