"""The parts that several of the earlier forms share."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from gpumon.cluster.status import HostStatus
from gpumon.model import Gpu, HostSnapshot

Detail = Callable[[str], HostSnapshot | None]
"""The last reading of a host by its name; None: there was none."""

RUNNING, WAITING, DOWN = "running", "waiting for re-uplink", "down"


def word(host: HostStatus) -> str:
    """Return vesta's word for a host; everybody takes only "running" for good."""
    if host.state == "fresh":
        return RUNNING
    return DOWN if host.state == "down" else WAITING


def gpus_now(host: HostStatus, detail: Detail) -> list[Gpu]:
    """Return a host's GPUs with their processes while its reading is fresh, else nothing.

    The old forms have no place for a reading's age, so an old reading would pass for a new one.
    """
    snapshot = detail(host.name) if host.state == "fresh" else None
    return [] if snapshot is None else snapshot.gpus


def not_to_take(host: HostStatus) -> dict[int, str]:
    """Return the GPUs that nobody should take whatever runs on them: index -> their state."""
    out = ("fault", "drained", "unknown")
    return {gpu.index: gpu.state for gpu in host.gpus if gpu.state in out}


def written(epoch: float | None) -> str:
    """Return a time as vesta writes it by default, month first; a dash where it is not known."""
    if epoch is None:
        return "-"
    local = time.localtime(epoch)
    return time.strftime("%m/%d/%Y %H:%M:%S", local)


def sampled(epoch: float | None) -> str | None:
    """Return a time as nvidia-smi writes it: "2026/01/05 08:02:03.000"."""
    if epoch is None:
        return None
    return datetime.fromtimestamp(epoch).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]  # noqa: DTZ006
