"""Invented clusters, as the server has them after some polls."""

from __future__ import annotations

from gpumon.cluster.record import Moment, Record
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.status import ClusterStatus
from gpumon.cluster.view import build
from gpumon.config import Config, HostEntry, Limits
from gpumon.model import HostSnapshot
from gpumon.simulate import SimulatedHost, host_names

NOW = 1767600123.0

Cluster = tuple[ClusterStatus, dict[str, HostSnapshot]]


def cluster(*, gpus: int = 0, hosts: int = 0) -> Cluster:
    """Return a cluster of at least so many GPUs, or of so many hosts, and the hosts' readings."""
    names = host_names(hosts or 2 * max(1, gpus // 8))
    records, details, found = [], {}, 0
    for number, name in enumerate(names):
        machine, record = SimulatedHost(name, number), Record(entry=_entry(name))
        for at in (NOW - 10, NOW - 5, NOW) if machine.answers else ():
            details[name] = machine.snapshot(at)
            record = record.answered_with(
                Reading.of(details[name]),
                asked=at - 0.1,
                now=Moment(monotonic=at, wall=at),
                limits=Limits(),
                poll_interval=5.0,
            )
        records.append(record)
        found += len(details[name].gpus) if name in details else 0
        if gpus and found >= gpus:
            break
    config = Config(hosts=[record.entry for record in records])
    now = Moment(monotonic=NOW, wall=NOW)
    return build(records, config=config, now=now, revision="r"), details


def _entry(name: str) -> HostEntry:
    return HostEntry(name=name, source="simulated", address="simulated")
