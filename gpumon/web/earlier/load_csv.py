"""web-gpu-monitor's `load_data.csv`: one line a GPU."""

from __future__ import annotations

import csv
import io

from gpumon.agent.nvgpu import processes, processes_known
from gpumon.cluster.status import ClusterStatus
from gpumon.web.earlier.readings import Detail, gpus_now, not_to_take

HEADER = (
    "",
    "load",
    "load_mem",
    "gpu_idx",
    "gpu_name",
    "gpu_uuid",
    "hostname",
    "username",
)
"""The first column is the row's number within its host. The names are web-gpu-monitor's."""
NOT_KNOWN = "?"
"""User of a GPU whose processes are not known, or that is broken or drained: an empty field would
say that it is free."""


def load_csv(status: ClusterStatus, detail: Detail) -> str:
    """Return the file. A host without a fresh reading has no lines: its old ones would look new."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    for host in status.hosts:
        for number, gpu in enumerate(gpus_now(host, detail)):
            users = [process.user or NOT_KNOWN for process in processes(gpu)]
            held = not processes_known(gpu) or gpu.unattributed_mib
            if held or (not users and gpu.index in not_to_take(host)):
                users.append(NOT_KNOWN)
            writer.writerow(
                [
                    number,
                    "" if gpu.utilization_percent is None else gpu.utilization_percent,
                    ""
                    if gpu.memory_utilization_percent is None
                    else gpu.memory_utilization_percent,
                    gpu.index,
                    _safe(gpu.name or "unknown GPU"),
                    gpu.uuid or "",
                    _safe(host.name),
                    _safe(", ".join(users)),
                ]
            )
    return out.getvalue()


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _safe(text: str) -> str:
    """Return `text` so that no spreadsheet takes it for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
