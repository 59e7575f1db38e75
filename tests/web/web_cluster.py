"""Clusters for the tests of the web faces: hand-made ones, and the simulated one."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from gpumon.cluster.record import Moment, Record
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.status import ClusterStatus, GpuStatus, HostStatus, MigStatus
from gpumon.cluster.totals import cluster_totals, model_totals, shares_of, user_totals
from gpumon.cluster.view import build
from gpumon.config import Config, HostEntry, Limits, WebConfig
from gpumon.model import HostSnapshot
from gpumon.simulate import SimulatedHost, host_names
from gpumon.summary import Holder

NOW = 1767600123.0
"""Monday 2026-01-05 08:02:03 UTC."""
HOUR = 3600.0


def holder(user: str | None, *, hours: float | None = 3.0, **fields: Any) -> Holder:
    values: dict[str, Any] = {"pids": [4242], "gpu_memory_used_mib": 70_000, "program": "python"}
    started = None if hours is None else NOW - hours * HOUR
    return Holder(user=user, started_at=started, **{**values, **fields})


def gpu(index: int, state: str = "free", **fields: Any) -> GpuStatus:
    """A GPU in `state`; held ones are held by alice unless `holders` says otherwise."""
    held = state in ("busy", "idle")
    values: dict[str, Any] = {
        "uuid": f"GPU-{index:08}",
        "name": "NVIDIA H100 80GB HBM3",
        "model": "H100 80G",
        "reason": None,
        "since": NOW - 2 * HOUR,
        "since_at_least": False,
        "utilization_percent": 73 if state == "busy" else 0,
        "memory_used_mib": 72_000 if held else 0,
        "memory_total_mib": 81_920,
        "unified_memory": False,
        "temperature_celsius": 61,
        "power_draw_watts": 512.0,
        "enforced_power_limit_watts": 700.0,
        "mig_mode": None,
        "mig": [],
        "holders": [holder("alice")] if held else [],
    }
    return GpuStatus(index=index, state=state, **{**values, **fields})  # type: ignore[arg-type]


def instance(index: int, state: str = "free", **fields: Any) -> MigStatus:
    held = state == "busy"
    values: dict[str, Any] = {
        "uuid": f"MIG-{index:08}",
        "name": "1g.10gb",
        "reason": None,
        "since": NOW - HOUR,
        "since_at_least": False,
        "memory_used_mib": 9_000 if held else 0,
        "memory_total_mib": 9_856,
        "holders": [holder("erin", gpu_memory_used_mib=9_000)] if held else [],
    }
    return MigStatus(index=index, state=state, **{**values, **fields})  # type: ignore[arg-type]


def host(name: str, gpus: list[GpuStatus] | None = None, **fields: Any) -> HostStatus:
    gpus = [structs.replace(one, uuid=f"GPU-{name}-{one.index}") for one in gpus or []]
    values: dict[str, Any] = {
        "address": f"{name}:8043",
        "labels": {},
        "state": "fresh",
        "reason": None,
        "reason_kind": None,
        "age_seconds": 4.0,
        "answered_at": NOW - 3.0,
        "next_poll_seconds": 2.0,
        "simulated": False,
        "agent_version": "0.1.0",
        "driver_version": "570.133.20",
        "cuda_version": "12.8",
        "gpu_count": len(gpus),
        "cpu_percent": 42.0,
        "memory_total_mib": 1_000_000,
        "memory_available_mib": 600_000,
        "errors": [],
    }
    return HostStatus(name=name, gpus=gpus, **{**values, **fields})


def cluster(
    hosts: list[HostStatus], *, title: str = "GPUs", revision: str = "r-1", time: float = NOW
) -> ClusterStatus:
    """Put hosts together as the server does."""
    shares = shares_of(hosts)
    return ClusterStatus(
        simulated=any(one.simulated for one in hosts),
        title=title,
        revision=revision,
        time=time,
        poll_interval_seconds=5.0,
        totals=cluster_totals(hosts, shares),
        models=model_totals(shares),
        users=user_totals(shares),
        hosts=hosts,
    )


def every_state() -> ClusterStatus:
    """A small cluster that holds one of everything."""
    bob, memory_alone = [holder("bob", hours=30.0)], {"holders": [], "reason": None}
    memory_alone["reason"] = "62464 MiB in use, no process visible"
    fault = "fallen off the bus: GPU is lost"
    last = gpu(0, "unknown", reason="the host is down", holders=[holder("mei")])
    down = {
        "state": "down",
        "reason": "gpu-4:8043 refused the connection",
        "reason_kind": "refused",
        "age_seconds": 840.0,
        "answered_at": NOW - 838.0,
    }
    never = {
        "state": "never",
        "reason": "gpu-5: no such name",
        "reason_kind": "name not found",
        "age_seconds": None,
        "answered_at": None,
        "gpu_count": None,
        "cpu_percent": None,
        "memory_total_mib": None,
    }
    return cluster(
        [
            host(
                "gpu-1",
                [
                    gpu(0, "busy", utilization_percent=0),
                    gpu(1, "busy", utilization_percent=100, holders=bob),
                    gpu(2, "free"),
                    gpu(3, "idle", holders=bob, since_at_least=True),
                    gpu(4, "fault", reason=fault, utilization_percent=None),
                    gpu(5, "free", since=None),
                    gpu(6, "busy", utilization_percent=None, **memory_alone),
                    gpu(7, "unknown", reason="its processes could not be read", since=None),
                ],
            ),
            host(
                "gpu-2",
                [
                    gpu(
                        0,
                        "busy",
                        model="A100 80G",
                        utilization_percent=None,
                        mig_mode=True,
                        mig=[instance(0, "busy"), instance(1), instance(2)],
                        holders=[holder("erin", gpu_memory_used_mib=9_000)],
                    ),
                    gpu(1, "drained", model="A100 80G"),
                ],
                notes=["its clock is 3m ahead of this server's"],
            ),
            host("gpu-3", [], gpu_count=0, reason="no GPU: the driver counts none"),
            host("gpu-4", [last, gpu(1, "unknown", reason="the host is down")], **down),
            host("gpu-5", [], **never),
        ]
    )


def simulated(
    count: int, *, samples: int = 3
) -> tuple[ClusterStatus, dict[str, HostSnapshot], Config]:
    """The simulated cluster of `count` hosts after a few polls, with the detail of each host."""
    names = host_names(count)
    config = Config(
        hosts=[HostEntry(name=name, source="simulated", address="simulated") for name in names],
        web=WebConfig(title="GPUs"),
    )
    records, details = [], {}
    for number, entry in enumerate(config.hosts):
        machine, record = SimulatedHost(entry.name, number), Record(entry=entry)
        for step in reversed(range(samples)):
            at = NOW - 5.0 * step - number % 5
            now = Moment(monotonic=at, wall=at)
            if machine.answers:
                details[entry.name] = machine.snapshot(at)
                record = record.answered_with(
                    Reading.of(details[entry.name]),
                    asked=at - 0.1,
                    now=now,
                    limits=Limits(),
                    poll_interval=5.0,
                )
            else:
                why = f"{entry.name} refused the connection"
                record = record.failed_with("refused", why, asked=at - 0.1, now=now)
        records.append(record)
    now = Moment(monotonic=NOW, wall=NOW)
    return build(records, config=config, now=now, revision="r-1"), details, config
