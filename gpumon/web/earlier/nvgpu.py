"""nvgpu's JSON of all hosts: `/cluster_status`."""

from __future__ import annotations

from typing import Any

from gpumon.agent.nvgpu import gpu_status
from gpumon.cluster.status import ClusterStatus, HostStatus
from gpumon.web.earlier.readings import Detail, not_to_take


def cluster_status(status: ClusterStatus, detail: Detail) -> list[dict[str, Any]]:
    """Return one report per host in the order of the configuration; a failed one is `{error}`."""
    return [_report(host, detail) for host in status.hosts]


def _report(host: HostStatus, detail: Detail) -> dict[str, Any]:
    snapshot = detail(host.name) if host.state == "fresh" else None
    if snapshot is None:
        return {"error": host.reason or "the host has not answered", "hostname": host.name}
    told = gpu_status(snapshot, host.name, kept_out=not_to_take(host))
    if "error" in told:
        return {"error": told["error"], "hostname": host.name}
    return told
